/**
 * Finding what differs between this side and a peer in one table, in three rounds: hashes of ranges of a thousand rows;
 * of those that differ, hashes of ranges of 32; of those that differ, the versions of the rows.
 *
 * Both sides are written to meanwhile, so what is found is a suspicion: verify.ts looks again.
 */
import { hashPiece } from './hashing.ts';
import { compareIds, EVERYTHING, type Id, type Range } from './ids.ts';
import { type Columns, type Entry, type Ledger, LIST_PIECE, PIECE, type Portion } from './ledger.ts';
import type { Pace } from './pace.ts';
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

const SMALL: Portion = { rows: 32, bytes: PIECE.bytes };
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
  const whole = pieces(sides, table, EVERYTHING, PIECE);
  for await (const large of differing(sides, table, terms, whole, LARGE_TOGETHER, onRange)) {
    const parts = piecesOf(sides, table, large, SMALL);
    for await (const small of differing(sides, table, terms, parts, SMALL_TOGETHER)) {
      yield* suspectsOf(sides, table, columns, floor, small);
    }
  }
}

/** The state of both sides within these ranges, where it differs. */
export async function* suspectsOf(
  { ledger, remote, pace }: Sides,
  table: string,
  columns: Columns,
  floor: number | undefined,
  ranges: Range[],
): AsyncGenerator<Suspect[]> {
  for (let left = ranges; left.length > 0; ) {
    const { entries, upTo } = await remote.list(table, columns, left);
    const answered = upTo === null ? left : upToId(left, upTo);
    if (answered.length === 0) throw new CannotCompare('the peer does not get on with its answer');
    const here: Entry[] = [];
    for (const range of answered) {
      for (let after = range.after; ; ) {
        const end: Id | null = await pace.turn(() => ledger.cut(table, { after, upTo: range.upTo }, LIST_PIECE));
        here.push(...(await pace.turn(() => ledger.list(table, columns, { after, upTo: end ?? range.upTo }))));
        if (end === null) break;
        after = end;
      }
    }
    yield differences(here, entries, floor);
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
  { ledger, remote, pace }: Sides,
  table: string,
  { columns, floor }: { columns: Columns; floor: number | undefined },
  ranges: AsyncGenerator<Range>,
  together: number,
  onRange: (rows: number) => void = () => {},
): AsyncGenerator<Range[]> {
  let group: Range[] = [];
  let own: string[] = [];
  const ask = async function* (): AsyncGenerator<Range[]> {
    if (group.length === 0) return;
    const [asked, hashes, before] = [group, own, remote.busyMs];
    [group, own] = [[], []];
    const theirs = await remote.hashes(table, columns, asked, floor);
    await pace.afterPeer(remote.busyMs - before);
    const odd = asked.filter((_, i) => hashes[i] !== theirs[i]);
    if (odd.length > 0) yield odd;
  };
  for await (const range of ranges) {
    const hash = await pace.turn(() => hashPiece(ledger, table, columns, range, floor));
    onRange(Number.parseInt(hash, 10) || 0);
    group.push(range);
    own.push(hash);
    if (group.length >= together) yield* ask();
  }
  yield* ask();
}

async function* piecesOf(sides: Sides, table: string, ranges: Range[], portion: Portion): AsyncGenerator<Range> {
  for (const range of ranges) yield* pieces(sides, table, range, portion);
}

/** The range cut into pieces of this side's rows. */
async function* pieces({ ledger, pace }: Sides, table: string, range: Range, portion: Portion): AsyncGenerator<Range> {
  for (let after = range.after; ; ) {
    const end: Id | null = await pace.turn(() => ledger.cut(table, { after, upTo: range.upTo }, portion));
    yield { after, upTo: end ?? range.upTo };
    if (end === null) return;
    after = end;
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
