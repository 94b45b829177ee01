/** The hash of a range, made piece by piece so that however much is in it, nobody else waits for long. */
import { createHash } from 'node:crypto';
import type { Range } from './ids.ts';
import { type Columns, type Ledger, PIECE } from './ledger.ts';
import type { Pace } from './pace.ts';

/** Said in place of a hash where more is in a range than any asker has in its own. */
export const MORE = 'more';
export const RANGE_ROWS_MAX = 10_000;

/** `<how many rows and tombstones>:<the first eight bytes of SHA-1>`. */
export async function hashRange(
  ledger: Ledger,
  pace: Pace,
  table: string,
  columns: Columns,
  range: Range,
  floor?: number,
): Promise<string> {
  const hash = createHash('sha1');
  let rows = 0;
  for (let after = range.after; ; ) {
    const end = await pace.turn(() => ledger.cut(table, { after, upTo: range.upTo }, PIECE));
    const spelt = await pace.turn(() => ledger.spell(table, columns, { after, upTo: end ?? range.upTo }, floor));
    for (const text of spelt.texts) hash.update(text);
    rows += spelt.rows;
    if (end === null || rows > RANGE_ROWS_MAX) break;
    after = end;
  }
  return rows > RANGE_ROWS_MAX ? MORE : `${rows}:${hash.digest('hex').slice(0, 16)}`;
}

/** The same of a range that is known to be small. */
export async function hashPiece(
  ledger: Ledger,
  table: string,
  columns: Columns,
  range: Range,
  floor?: number,
): Promise<string> {
  const hash = createHash('sha1');
  const { rows, texts } = await ledger.spell(table, columns, range, floor);
  for (const text of texts) hash.update(text);
  return `${rows}:${hash.digest('hex').slice(0, 16)}`;
}
