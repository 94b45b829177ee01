/**
 * Comparing with one peer: what differs for good, and putting it right.
 *
 * The two sides are never looked at in the same moment, and changes are always on their way. So what the walk finds is
 * looked at again after a while. It counts only where the side that was behind has still not come to what the other had
 * then; and where the newer side has not sent its change yet, there is nothing wrong, only something to wait for.
 */
import { passedSince } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { fold } from '../sqlite/sql.ts';
import { type Exchange, fetchRows, sendRows } from './exchange.ts';
import { deleteForgotten, forgottenBy, higherOf, type Side } from './forgotten.ts';
import type { Id } from './ids.ts';
import type { Columns, Entry, Ledger, Outline } from './ledger.ts';
import type { Pace } from './pace.ts';
import { CannotCompare, type Remote } from './remote.ts';
import { lookAt } from './second-look.ts';
import { newerSide, order } from './versions.ts';
import { isSame, type Suspect, suspectsIn } from './walk.ts';

/** The version of a row on one side. */
export interface RowVersion {
  updatedAt: number;
  deleted: boolean;
}

/** A row that is not the same here and there; null where that side knows nothing of it. */
export interface Difference {
  /** As it travels: a blob is `$blob:<hex>`. */
  id: string;
  here: RowVersion | null;
  there: RowVersion | null;
  /** The side that is behind keeps the change as a dead letter: it cannot be applied there, and is not sent again. */
  parked?: 'here' | 'there';
  /** That side has collected tombstones and has nothing of the row, which was deleted there: it is deleted on the other. */
  forgotten?: 'here' | 'there';
  repaired: boolean;
}

export interface VerifiedTable {
  table: string;
  /** The other side does not sync it: nothing was compared. */
  only?: 'here';
  /** Rows and tombstones here that were compared. */
  rows: number;
  /** How many differ, or did until they were repaired. */
  differences: number;
  repaired: number;
  /** How many differ because the change of the newer side is still on its way, or waits for its time on the other. */
  pending: number;
  /** The first of them, as many as were asked for. */
  list: Difference[];
}

/** What a comparison with one peer has found. */
export interface VerifyResult {
  peer: string;
  /** Both have the same of every table that both sync. After a repair: have it now. */
  equal: boolean;
  differences: number;
  repaired: number;
  pending: number;
  tables: VerifiedTable[];
  /** How much was asked and answered. */
  requests: number;
  bytes: number;
  ms: number;
  /** Why it could not be finished: the peer is away, or does not know how. What was found until then is above. */
  error?: string;
}

export interface VerifyOptions {
  /** The tables to compare; all that are synced, unless said. */
  tables?: string[];
  /** Put right what differs, by the version order. Default false. */
  repair?: boolean;
  /** How many differences of each table are listed. Default 100. */
  limit?: number;
  signal?: AbortSignal;
  onProgress?(progress: { peer: string; table: string; rows: number; differences: number }): void;
}

export interface Comparison {
  peer: string;
  ledger: Ledger;
  remote: Remote;
  pace: Pace;
  exchange: Exchange;
  /** Milliseconds of which only differences say anything. */
  now(): number;
}

/** Looked at again after so long, and, where a change is on its way, until so long. */
const AGAIN_MS = 2_000;
const AGAIN_MS_MAX = 30_000;
/** Suspects that are looked at together; what is in memory does not depend on how much differs. */
const SUSPECTS_MAX = 10_000;
const IDS_TOGETHER = 500;

export async function verify(comparison: Comparison, options: VerifyOptions = {}): Promise<VerifyResult> {
  const { peer, remote, ledger, pace, now } = comparison;
  const began = now();
  const tables: VerifiedTable[] = [];
  let error: string | undefined;
  try {
    const theirs = await remote.outline();
    await pace.afterPeer(remote.busyMs);
    const wanted = options.tables?.map(fold);
    for (const own of await pace.once(() => ledger.outline())) {
      if (wanted && !wanted.includes(fold(own.name))) continue;
      const table: VerifiedTable = { table: own.name, rows: 0, differences: 0, repaired: 0, pending: 0, list: [] };
      tables.push(table);
      const columns = sharedColumns(own, theirs);
      // Who asks for a table is not told that it is equal where nobody has looked.
      if (columns === undefined && wanted && own.last !== null) {
        throw new CannotCompare(`the peer has no table "${own.name}"`);
      }
      if (columns === undefined) table.only = 'here';
      else await verifyTable(comparison, table, { columns, floor: floorOf(own, theirs) }, options);
    }
  } catch (cause) {
    if (!(cause instanceof CannotCompare)) throw cause;
    error = messageOf(cause);
  }
  const sum = (of: 'differences' | 'repaired' | 'pending'): number => tables.reduce((n, table) => n + table[of], 0);
  const [differences, repaired, pending] = [sum('differences'), sum('repaired'), sum('pending')];
  return {
    peer,
    equal: error === undefined && differences === repaired && pending === 0,
    differences,
    repaired,
    pending,
    tables,
    requests: remote.requests,
    bytes: remote.bytes,
    ms: Math.round(Math.max(0, now() - began)),
    ...(error !== undefined && { error }),
  };
}

/** The columns that both sides have of a table; undefined where the other side does not have the table. */
export function sharedColumns(own: Outline, theirs: Outline[]): Columns | undefined {
  const other = theirs.find(({ name }) => fold(name) === fold(own.name));
  // Who has no schema takes any table.
  const schemaless = theirs.length === 0 || theirs.some(({ columns }) => columns === null);
  if (!other) return schemaless ? own.columns : undefined;
  if (own.columns === null || other.columns === null) return own.columns ?? other.columns;
  const known = new Set(Object.keys(other.columns).map(fold));
  return Object.fromEntries(Object.entries(own.columns).filter(([name]) => known.has(fold(name))));
}

/** Up to there one of the sides may have collected its tombstones of a table. */
export function floorOf(own: Outline, theirs: Outline[]): number | undefined {
  return higherOf({ here: own.floor, there: theirs.find(({ name }) => fold(name) === fold(own.name))?.floor });
}

async function verifyTable(
  comparison: Comparison,
  table: VerifiedTable,
  { columns, floor }: { columns: Columns; floor: number | undefined },
  options: VerifyOptions,
): Promise<void> {
  let waiting: Suspect[] = [];
  const settle = async (): Promise<void> => {
    const suspects = waiting;
    waiting = [];
    if (suspects.length > 0) await judgeAll(comparison, table, columns, suspects, options);
  };
  const progress = (): void => {
    const { rows, differences } = table;
    options.onProgress?.({ peer: comparison.peer, table: table.table, rows, differences });
  };
  const onRange = (rows: number): void => {
    table.rows += rows;
    progress();
  };
  for await (const found of suspectsIn(comparison, table.table, columns, floor, onRange)) {
    waiting.push(...found);
    if (waiting.length >= SUSPECTS_MAX) await settle();
  }
  await settle();
  progress();
}

/** What has become of a suspect when it is looked at again. */
export type Judgement = 'equal' | 'moved' | 'pending' | 'early' | 'differs';

interface Judged extends Suspect {
  judgement: Judgement;
  parked?: Side;
  forgotten?: Side;
}

async function judgeAll(
  comparison: Comparison,
  table: VerifiedTable,
  columns: Columns,
  suspects: Suspect[],
  options: VerifyOptions,
): Promise<void> {
  const { pace, now } = comparison;
  const began = now();
  const differing: Judged[] = [];
  let undecided = suspects;
  while (undecided.length > 0) {
    await pace.sleep(AGAIN_MS);
    const judged = await lookAgain(comparison, table.table, columns, undecided);
    differing.push(...judged.filter(({ judgement }) => judgement === 'differs'));
    table.pending += judged.filter(({ judgement }) => judgement === 'early').length;
    const pending = judged.filter(({ judgement }) => judgement === 'pending');
    const waiting = new Set(pending.map(({ id }) => id));
    undecided = undecided.filter(({ id }) => waiting.has(id));
    if (passedSince({ now }, began) < AGAIN_MS_MAX) continue;
    differing.push(...pending);
    break;
  }
  if (options.repair) await repair(comparison, table.table, differing);
  const left = options.repair ? await stillDiffering(comparison, table.table, columns, differing) : undefined;
  for (const { id, here, there, parked, forgotten, judgement } of differing) {
    const repaired = left !== undefined && !left.has(id);
    if (judgement === 'pending' && !repaired) table.pending += 1;
    if (judgement === 'pending') continue;
    table.differences += 1;
    if (repaired) table.repaired += 1;
    if (table.list.length >= (options.limit ?? 100)) continue;
    const why = { ...(parked && { parked }), ...(forgotten && { forgotten }) };
    table.list.push({ id, here: versionOf(here), there: versionOf(there), ...why, repaired });
  }
}

async function lookAgain(
  comparison: Comparison,
  table: string,
  columns: Columns,
  suspects: Suspect[],
): Promise<Judged[]> {
  const judged: Judged[] = [];
  for (let i = 0; i < suspects.length; i += IDS_TOGETHER) {
    const some = suspects.slice(i, i + IDS_TOGETHER);
    const { here, there, floors, deciding } = await lookAt(
      comparison,
      table,
      columns,
      some.map(({ id }) => id),
    );
    for (const before of some) {
      const now = { id: before.id, here: here.entries.get(before.id), there: there.entries.get(before.id) };
      const onItsWay = { here: here.undelivered.has(before.id), there: there.undelivered.has(before.id) };
      const behind = newerSide(now) === 'here' ? 'there' : 'here';
      const side = behind === 'here' ? here : there;
      const isParked = side.parked.has(before.id);
      const found = judge(before, now, onItsWay, higherOf(floors));
      // It has come, and is too far ahead of the clock there: it is merged in its time, and sending it again is no use.
      const isEarly = found !== 'equal' && side.isEarly(now[behind === 'here' ? 'there' : 'here']);
      const judgement = isEarly ? 'early' : found;
      const forgotten = judgement === 'differs' && !isParked ? forgottenBy(now, deciding) : undefined;
      judged.push({ ...now, judgement, ...(isParked && { parked: behind }), ...(forgotten && { forgotten }) });
    }
  }
  return judged;
}

/** A suspect as it was, as it is now, and which side has not sent its change to the other yet. */
export function judge(
  before: Suspect,
  now: Suspect,
  onItsWay: { here: boolean; there: boolean },
  floor?: number,
): Judgement {
  if (isSame(now.here, now.there, floor)) return 'equal';
  // Both have come to what one of them had then. What differs now is newer than that, and was not there to be late.
  if (hasReached(now.here, before) && hasReached(now.there, before)) return 'moved';
  const newer = newerSide(now);
  const isWaiting = newer === undefined ? onItsWay.here || onItsWay.there : onItsWay[newer];
  return isWaiting ? 'pending' : 'differs';
}

/** Has a side come to the greater of the two versions that there were? Of two at one time, neither is known to be it. */
function hasReached(entry: Entry | undefined, before: Suspect): boolean {
  const side = newerSide(before);
  const goal = before[side ?? 'here'];
  if (!entry || !goal) return false;
  if (order(entry, goal) !== 0) return order(entry, goal) > 0;
  return side !== undefined && entry.hash === goal.hash;
}

/** The newer version goes to the other side; of two at one time each gets the other's, and the merge decides. */
async function repair(
  { ledger, remote, exchange, pace }: Comparison,
  table: string,
  differing: Judged[],
): Promise<void> {
  const unparked = differing.filter(({ parked }) => parked === undefined);
  await deleteForgotten({ exchange, pace }, table, unparked.filter(isForgotten));
  const usable = unparked.filter((one) => !isForgotten(one));
  const send = usable.filter((one) => newerSide(one) !== 'there').map(({ id }) => id);
  const fetch = usable.filter((one) => newerSide(one) !== 'here');
  for (let i = 0; i < send.length; i += IDS_TOGETHER) {
    await sendRows({ ledger, exchange, pace }, table, send.slice(i, i + IDS_TOGETHER));
  }
  for (let i = 0; i < fetch.length; i += IDS_TOGETHER) {
    await fetchRows({ ledger, remote, exchange, pace }, table, fetch.slice(i, i + IDS_TOGETHER));
  }
}

function isForgotten(judged: Judged): judged is Judged & { forgotten: Side } {
  return judged.forgotten !== undefined;
}

async function stillDiffering(
  comparison: Comparison,
  table: string,
  columns: Columns,
  differing: Judged[],
): Promise<Set<Id>> {
  const left = new Set<Id>();
  for (let i = 0; i < differing.length; i += IDS_TOGETHER) {
    const ids = differing.slice(i, i + IDS_TOGETHER).map(({ id }) => id);
    const { here, there, floors } = await lookAt(comparison, table, columns, ids);
    for (const before of differing.slice(i, i + IDS_TOGETHER)) {
      const now = { id: before.id, here: here.entries.get(before.id), there: there.entries.get(before.id) };
      const judgement = judge(before, now, { here: false, there: false }, higherOf(floors));
      if (judgement === 'differs') left.add(before.id);
    }
  }
  return left;
}

function versionOf(entry: Entry | undefined): RowVersion | null {
  return entry ? { updatedAt: entry.version, deleted: entry.deleted } : null;
}
