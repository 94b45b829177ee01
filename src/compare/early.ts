/** Changes that are kept as dead letters until their time has come; see letters/time-limit.ts. */
import type { Connection } from '../sqlite/connection.ts';
import type { Id } from './ids.ts';
import type { Early } from './ledger.ts';

/** Those of these ids. Letters name their table as it was sent; it may have had other names. */
export function earlyIn(db: Connection, tables: string[], ids: Id[]): Early[] {
  // The plus sign: found by the row, and not by the code, of which there may be a hundred thousand.
  const sql =
    'SELECT d.row_id AS id, i.version AS version FROM main._dead_letter_info AS i ' +
    "JOIN main._dead_letter AS d USING (dead_id) WHERE +i.code = 'future-stamp' " +
    'AND i.table_name COLLATE NOCASE IN (SELECT value FROM json_each(?)) AND d.row_id IN (SELECT value FROM json_each(?))';
  return db.all<Early & Record<string, never>>(sql, JSON.stringify(tables), JSON.stringify(ids));
}
