/** One row as it stands, wherever it is: in its table, or among those that a UNIQUE value keeps out of it. */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { quote } from '../sqlite/sql.ts';
import { exactJson } from '../wire/exact-text.ts';
import { rowJson } from '../wire/row-json.ts';
import { BOUND_ID } from '../wire/values.ts';

/** Column to value, as it travels: bytes as `$blob:`, integers beyond 2^53 as text. */
export type Row = Record<string, unknown>;

export function rowAt(db: Connection, table: Table, id: string): Row | null {
  const live = db.get<{ row: Uint8Array }>(
    `SELECT CAST(${rowJson(table, 't')} AS BLOB) AS "row" FROM ${table.target} AS t ` +
      `WHERE t.${quote(table.id)} = ${BOUND_ID}`,
    id,
  );
  const row = live ?? hiddenRow(db, table, id);
  return row ? (JSON.parse(exactJson(row.row)) as Row) : null;
}

function hiddenRow(db: Connection, table: Table, id: string): { row: Uint8Array } | undefined {
  return db.get(
    `SELECT CAST(row_data AS BLOB) AS "row" FROM main._hidden WHERE table_name = ? AND row_id = ${BOUND_ID}`,
    table.name,
    id,
  );
}
