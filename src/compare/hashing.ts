/** The hash of a range, made piece by piece so that however much is in it, nobody else waits for long. */
import { createHash } from 'node:crypto';
import type { Id, Range } from './ids.ts';
import type { Columns, Ledger, Portion } from './ledger.ts';
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

/** Of a whole range, as it was asked for. */
export async function hashRange(
  ledger: Ledger,
  pace: Pace,
  table: string,
  columns: Columns,
  range: Range,
  floor?: number,
): Promise<string> {
  const most = { rows: RANGE_ROWS_MAX + 1, bytes: Infinity };
  const { rows, hash } = await hashNext(ledger, pace, table, columns, range, most, floor);
  return rows > RANGE_ROWS_MAX ? MORE : hash;
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
  const hash = createHash('sha1');
  let [rows, bytes] = [0, 0];
  for (let { after } = range; ; ) {
    const from = after;
    const end: Id | null = await pace.turn(async (turn) => {
      const portion = { rows: Math.min(turn.rows, most.rows - rows), bytes: Math.min(turn.bytes, most.bytes - bytes) };
      const spelt = await ledger.spell(table, columns, { after: from, upTo: range.upTo }, portion, floor);
      for (const text of spelt.texts) {
        hash.update(text);
        bytes += text.byteLength;
      }
      rows += spelt.rows;
      return spelt.end;
    });
    if (end === null || rows >= most.rows || bytes >= most.bytes) {
      const upTo = end ?? range.upTo;
      return { after: range.after, upTo, rows, hash: `${rows}:${hash.digest('hex').slice(0, 16)}` };
    }
    after = end;
  }
}
