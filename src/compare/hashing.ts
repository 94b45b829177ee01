/** The hashes of ranges, made piece by piece so that however much is in them, nobody else waits for long. */
import { createHash, type Hash, hash } from 'node:crypto';
import type { Range } from './ids.ts';
import { type Columns, type Ledger, type Portion, smaller } from './ledger.ts';
import type { Pace } from './pace.ts';

/** Said in place of a hash where more is in a range than any asker has in its own. */
export const MORE = 'more';
export const RANGE_ROWS_MAX = 10_000;

/** A range that has been hashed; `upTo` is where it ends. */
export interface Hashed extends Range {
  rows: number;
  /** `<how many rows and tombstones>:<the first eight bytes of SHA-1>`. */
  hash: string;
}

/** Ranges given to a ledger at once. */
const TOGETHER = 64;

/** Of whole ranges, as they were asked for. */
export async function hashRanges(
  ledger: Ledger,
  pace: Pace,
  table: string,
  columns: Columns,
  ranges: Range[],
  floor?: number,
): Promise<string[]> {
  const hashes: string[] = [];
  const most = { rows: RANGE_ROWS_MAX + 1, bytes: Infinity };
  let begun = new Lines();
  for (let next = ranges[0]; next; ) {
    const some = [next, ...ranges.slice(hashes.length + 1, hashes.length + TOGETHER)];
    const each = { ...most, rows: most.rows - begun.rows };
    for (const piece of await pace.turn((turn) => ledger.spell(table, columns, some, each, turn, floor))) {
      begun.add(piece);
      const isMore = begun.rows > RANGE_ROWS_MAX;
      next = piece.end === null || isMore ? ranges[hashes.length + 1] : { ...(next as Range), after: piece.end };
      if (piece.end !== null && !isMore) continue;
      hashes.push(isMore ? MORE : begun.hash());
      begun = new Lines();
      // The pieces that follow, if any, are of what is left of this range.
      if (isMore && piece.end !== null) break;
    }
  }
  return hashes;
}

/** Of the first rows of a range, about as many as `most` says. */
export async function hashNext(
  ledger: Ledger,
  pace: Pace,
  table: string,
  columns: Columns,
  range: Range,
  most: Portion,
  floor?: number,
): Promise<Hashed> {
  const lines = new Lines();
  for (let { after } = range; ; ) {
    const rest = { after, upTo: range.upTo };
    const room = { rows: most.rows - lines.rows, bytes: most.bytes - lines.bytes };
    const [piece] = await pace.turn((turn) => ledger.spell(table, columns, [rest], room, smaller(room, turn), floor));
    if (piece) lines.add(piece);
    const end = piece?.end ?? null;
    if (end === null || lines.rows >= most.rows || lines.bytes >= most.bytes) {
      return { after: range.after, upTo: end ?? range.upTo, rows: lines.rows, hash: lines.hash() };
    }
    after = end;
  }
}

/** Of these ranges, cut into pieces of at most so much. */
export async function* hashPieces(
  ledger: Ledger,
  pace: Pace,
  table: string,
  columns: Columns,
  ranges: Range[],
  most: Portion,
  floor?: number,
): AsyncGenerator<Hashed> {
  for (let left = ranges; left.length > 0; ) {
    const some = left.slice(0, TOGETHER);
    for (const piece of await pace.turn((turn) => ledger.spell(table, columns, some, most, turn, floor))) {
      const { after, upTo } = left[0] as Range;
      const lines = new Lines();
      lines.add(piece);
      yield { after, upTo: piece.end ?? upTo, rows: lines.rows, hash: lines.hash() };
      left = piece.end === null ? left.slice(1) : [{ after: piece.end, upTo }, ...left.slice(1)];
    }
  }
}

/** What is hashed of a range. */
class Lines {
  /** What was added, as long as it is one text: that is hashed in one call, which costs half as much. */
  #only: Uint8Array | undefined;
  #hash: Hash | undefined;
  rows = 0;
  bytes = 0;

  add({ rows, texts }: { rows: number; texts: Uint8Array[] }): void {
    for (const text of texts) {
      if (this.bytes > 0) this.#more().update(text);
      else this.#only = text;
      this.bytes += text.byteLength;
    }
    this.rows += rows;
  }

  hash(): string {
    const found = this.#hash?.digest('hex') ?? hash('sha1', this.#only ?? '', 'hex');
    return `${this.rows}:${found.slice(0, 16)}`;
  }

  #more(): Hash {
    this.#hash ??= createHash('sha1').update(this.#only as Uint8Array);
    return this.#hash;
  }
}
