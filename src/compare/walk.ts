/**
 * Finding what differs between this side and a peer in one table, in three rounds: hashes of ranges of a thousand rows;
 * of those that differ, hashes of ranges of 32; of those that differ, the versions of the rows.
 *
 * Both sides are written to meanwhile, so what is found is a suspicion: verify.ts looks again.
 */
import { type Hashed, hashNext, hashPieces } from './hashing.ts';
import { compareIds, EVERYTHING, type Id, type Range } from './ids.ts';
import { type Columns, type Entry, LARGE_RANGE, type Ledger, SMALL_RANGE } from './ledger.ts';
import type { Pace } from './pace.ts';
import { listInTurns } from './reading.ts';
import { CannotCompare, type Remote } from './remote.ts';

/** An id of which the two sides do not have the same. */
export interface Suspect {
  id: Id;
  here: Entry | undefined;
  there: Entry | undefined;
}

export interface Sides {
  ledger: Ledger;
  remote: Remote;
  pace: Pace;
}

/** What is compared of a table; up to `floor` one of the sides may have collected its tombstones. */
export interface Terms {
  columns: Columns;
  floor: number | undefined;
}

/** Hashes asked for at once: a thousand rows each, or 32. */
const LARGE_TOGETHER = 32;
const SMALL_TOGETHER = 256;

/** The suspects of a table, as they are found. */
export async function* suspectsIn(
  sides: Sides,
  table: string,
  columns: Columns,
  floor: number | undefined,
  onRange: (rows: number) => void,
): AsyncGenerator<Suspect[]> {
  const terms = { columns, floor };
  const whole = hashedIn(sides, table, terms);
  for await (const large of differing(sides, table, terms, whole, LARGE_TOGETHER, onRange)) {
    yield* suspectsWithin(sides, table, terms, large);
  }
}

/** The suspects within large ranges that differ; told is of how many rows here the other side was asked for its own. */
export async function* suspectsWithin(
  sides: Sides,
  table: string,
  terms: Terms,
  large: Hashed[],
  onListed: (rows: number) => void = () => {},
): AsyncGenerator<Suspect[]> {
  const listed = (ranges: Hashed[]): AsyncGenerator<Suspect[]> => {
    onListed(ranges.reduce((sum, { rows }) => sum + rows, 0));
    return suspectsOf(sides, table, terms, ranges);
  };
  const isSmall = ({ rows }: Hashed): boolean => rows <= SMALL_RANGE.rows;
  const parts = hashPieces(
    sides.ledger,
    sides.pace,
    table,
    terms.columns,
    large.filter((range) => !isSmall(range)),
    SMALL_RANGE,
    terms.floor,
  );
  for await (const small of differing(sides, table, terms, parts, SMALL_TOGETHER)) yield* listed(small);
  const small = large.filter(isSmall);
  if (small.length > 0) yield* listed(small);
}

/** The state of both sides within these ranges, where it differs. */
async function* suspectsOf(
  { ledger, remote, pace }: Sides,
  table: string,
  { columns, floor }: Terms,
  ranges: Range[],
): AsyncGenerator<Suspect[]> {
  for (let left = ranges; left.length > 0; ) {
    const { entries: there, upTo } = await remote.list(table, columns, left);
    const answered = upTo === null ? left : upToId(left, upTo);
    if (answered.length === 0) throw new CannotCompare('the peer does not get on with its answer');
    const here: Entry[] = [];
    for await (const { entries } of listInTurns(ledger, pace, table, columns, answered)) here.push(...entries);
    yield differences(here, there, floor);
    left = upTo === null ? [] : afterId(left, upTo);
  }
}

/** `floor`: up to there one of the sides may have collected its tombstones. */
export function differences(here: Entry[], there: Entry[], floor?: number): Suspect[] {
  const theirs = new Map(there.map((entry) => [entry.id, entry]));
  const found: Suspect[] = [];
  for (const own of here) {
    const other = theirs.get(own.id);
    theirs.delete(own.id);
    if (!isSame(own, other, floor)) found.push({ id: own.id, here: own, there: other });
  }
  for (const other of theirs.values()) {
    if (!isSame(undefined, other, floor)) found.push({ id: other.id, here: undefined, there: other });
  }
  return found;
}

export function isSame(a: Entry | undefined, b: Entry | undefined, floor?: number): boolean {
  const isNothing = (one: Entry | undefined): boolean =>
    !one || (one.deleted && floor !== undefined && one.version <= floor);
  if (isNothing(a) && isNothing(b)) return true;
  if (!a || !b) return a === b;
  return a.version === b.version && a.deleted === b.deleted && a.hash === b.hash;
}

/** Groups of those ranges of which the two sides have another hash. */
async function* differing(
  { remote, pace }: Sides,
  table: string,
  { columns, floor }: Terms,
  ranges: AsyncGenerator<Hashed>,
  together: number,
  onRange: (rows: number) => void = () => {},
): AsyncGenerator<Hashed[]> {
  let group: Hashed[] = [];
  const ask = async function* (): AsyncGenerator<Hashed[]> {
    if (group.length === 0) return;
    const [asked, before] = [group, remote.busyMs];
    group = [];
    const theirs = await remote.hashes(table, columns, asked, floor);
    await pace.afterPeer(remote.busyMs - before);
    const odd = asked.filter(({ hash }, i) => hash !== theirs[i]);
    if (odd.length > 0) yield odd;
  };
  for await (const range of ranges) {
    onRange(range.rows);
    group.push(range);
    if (group.length >= together) yield* ask();
  }
  yield* ask();
}

/** All of a table in large ranges of this side's rows. */
async function* hashedIn({ ledger, pace }: Sides, table: string, { columns, floor }: Terms): AsyncGenerator<Hashed> {
  for (let range = EVERYTHING; ; ) {
    const next = await hashNext(ledger, pace, table, columns, range, LARGE_RANGE, floor);
    yield next;
    if (next.upTo === range.upTo) return;
    range = { after: next.upTo, upTo: range.upTo };
  }
}

function upToId(ranges: Range[], id: Id): Range[] {
  return ranges
    .filter(({ after }) => after === null || compareIds(after, id) < 0)
    .map(({ after, upTo }) => ({ after, upTo: upTo === null || compareIds(upTo, id) > 0 ? id : upTo }));
}

function afterId(ranges: Range[], id: Id): Range[] {
  return ranges
    .filter(({ upTo }) => upTo === null || compareIds(upTo, id) > 0)
    .map(({ after, upTo }) => ({ after: after === null || compareIds(after, id) < 0 ? id : after, upTo }));
}
