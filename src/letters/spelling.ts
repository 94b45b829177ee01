/** How a letter keeps a change: its row by itself, and the rest of it only where its columns do not say it already. */
import { createHash } from 'node:crypto';
import type { Connection } from '../sqlite/connection.ts';

export interface LetterContent {
  op: string | null;
  table: string | null;
  rowId: string | null;
  row: string | null;
  /** The whole change as JSON text, as it came. */
  change: string;
}

/**
 * What is kept of a change beside its row, and by what the same letter is known again. Any database can spell it. Of a row
 * that a peer refuses there is one letter, with its newest version: a peer that refuses everything must not fill the disk of
 * whoever sends to it with all versions that there ever were. `isOfRow`: this is such a one.
 */
export function spelling(
  db: Connection,
  direction: 'in' | 'out',
  peer: string | null,
  { op, table, rowId, row, change }: LetterContent,
): { rest: string | null; fingerprint: string; isOfRow: boolean } {
  const sql = `SELECT ${REMAINDER} AS rest FROM (SELECT ? AS op, ? AS row_id, ? AS row_data) AS d, (SELECT ? AS table_name, ? AS change) AS i`;
  const rest = db.get<{ rest: string | null }>(sql, op, rowId, row, table, change)?.rest ?? null;
  // Not of the change as it came: put together again, for another attempt, its row is the last of it.
  const content = [direction, direction === 'out' ? peer : '', op, table, rowId, row, rest];
  const isOfRow = direction === 'out' && peer !== '' && table !== null && rowId !== null;
  const parts = JSON.stringify(isOfRow ? [direction, peer, table, rowId] : content);
  return { rest, fingerprint: createHash('sha256').update(parts).digest('hex'), isOfRow };
}

/** The change that the columns of a letter spell, where there is nothing more to say of it. */
const SPELT =
  "json_object('op', d.op, 'table', i.table_name, 'row', json(d.row_data), 'old_id', iif(d.op = 'DELETE', d.row_id, NULL))";
const IS_JSON = '(d.row_data IS NULL OR json_valid(d.row_data))';

/** A change is stored once: its row in `row_data`, and the rest of it only where it is not what the columns spell. */
const REMAINDER =
  `CASE WHEN NOT (json_valid(i.change) AND ${IS_JSON}) OR d.row_data IS NULL THEN i.change ` +
  `WHEN ${SPELT} = i.change THEN NULL ` +
  // Whoever writes `row` twice has both of them kept.
  "ELSE iif(json_type(json_remove(i.change, '$.row'), '$.row') IS NULL, json_remove(i.change, '$.row'), i.change) END";

/**
 * The whole change of a letter, as JSON text; NULL where what is kept of it cannot be read: a person may have written anything there.
 * What still has a row is whole already.
 */
export const LETTER_CHANGE =
  `CASE WHEN NOT ${IS_JSON} OR NOT json_valid(coalesce(i.change, '0')) OR i.dead_id IS NULL THEN NULL ` +
  `WHEN i.change IS NULL THEN ${SPELT} ` +
  "WHEN d.row_data IS NULL OR json_type(i.change, '$.row') IS NOT NULL THEN i.change " +
  "ELSE json_set(i.change, '$.row', json(d.row_data)) END";
