/** Taking over changes that another implementation, or a person, has recorded: they have fewer columns than ours. */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';

/** A synced table: its names here, and those under which it travels. */
export type Spelt = Pick<Table, 'name' | 'wireName' | 'columns'>;

/** Takes over what another implementation had in its own `_changes`; `before` is that table, `columns` are its columns. */
export function adoptChanges(db: Connection, before: string, columns: string[], syncedTables: Spelt[]): void {
  const named = ['table', 'tbl', 'tbl_name', 'tablename'].find((column) => columns.includes(column));
  if (named && !columns.includes('table_name')) {
    db.exec(
      `UPDATE main._changes SET table_name = (SELECT b.${quote(named)} FROM ${before} AS b ` +
        'WHERE b.change_id = _changes.change_id)',
    );
  }
  adoptForeign(db, syncedTables);
  // Their deletions left no tombstones here, so a new peer must be sent these changes besides the snapshot.
  db.exec(
    "INSERT INTO main._meta (key, value) SELECT 'adopted_upto', coalesce(max(change_id), 0) FROM main._changes " +
      'WHERE true ON CONFLICT DO UPDATE SET value = excluded.value',
  );
}

/**
 * The specification's `_changes` does not say which table a change belongs to, and whoever writes to ours in that way
 * leaves it out. With a single synced table it is that one; with several the row's columns decide, and a change that fits
 * no table or several becomes a dead letter for a person to look at. Only the changes with ids in `(after, upTo]`. They name
 * tables and columns as these are called here; in `_changes` stands what travels.
 */
export function adoptForeign(
  db: Connection,
  syncedTables: Spelt[],
  range: { after: number; upTo: number } = { after: Number.MIN_SAFE_INTEGER, upTo: Number.MAX_SAFE_INTEGER },
): void {
  const here = `change_id > ${range.after} AND change_id <= ${range.upTo}`;
  const [only] = syncedTables;
  if (syncedTables.length === 1 && only !== undefined) {
    // Unless its row has a column that this table has not: an old trigger may be on a table that is not synced.
    const strange =
      'EXISTS (SELECT 1 FROM json_each(iif(json_valid(row_data), row_data, NULL)) AS e WHERE ' +
      "lower(e.key) NOT IN (SELECT lower(name) FROM pragma_table_info(?, 'main')))";
    db.run(
      `UPDATE main._changes SET ${asItTravels(only)} WHERE table_name IS NULL AND ${here} AND NOT ${strange}`,
      only.wireName,
      only.name,
    );
  }
  for (const table of syncedTables) {
    const rivals = syncedTables.filter((other) => other !== table);
    db.run(
      `UPDATE main._changes SET ${asItTravels(table)} WHERE table_name IS NULL AND ${here} AND json_valid(row_data) ` +
        `AND ${FITS} ${rivals.map(() => `AND NOT ${FITS}`).join(' ')}`,
      table.wireName,
      table.name,
      ...rivals.map(({ name }) => name),
    );
  }
  const latest = Number(db.get('SELECT coalesce(max(dead_id), 0) AS n FROM main._dead_letter')?.n);
  db.exec(
    'INSERT INTO main._dead_letter (op, row_id, row_data, failed_at) SELECT op, row_id, row_data, ' +
      "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) " +
      `FROM main._changes WHERE ${UNUSABLE} AND ${here} ORDER BY change_id`,
  );
  db.run(
    "INSERT INTO main._dead_letter_info (dead_id, direction, code, reason) SELECT dead_id, 'out', 'unknown-table', " +
      "'not recorded by Rowcast, and its op or its row is none, or which table it belongs to cannot be told' " +
      'FROM main._dead_letter WHERE dead_id > ?',
    latest,
  );
  db.exec(`DELETE FROM main._changes WHERE ${UNUSABLE} AND ${here}`);
}

/** The name of the table is bound. Each value stays in the very bytes in which it stands there, and in its place. */
function asItTravels({ columns }: Spelt): string {
  const renamed = columns.filter(({ name, wireName }) => name !== wireName);
  if (renamed.length === 0) return 'table_name = ?';
  const names = renamed.map(({ name, wireName }) => `WHEN ${literal(fold(name))} THEN ${literal(wireName)}`);
  const key = `CASE lower(key) ${names.join(' ')} ELSE key END`;
  const row =
    `(SELECT '{' || group_concat(json_quote(${key}) || ':' || value, ',') || '}' FROM ` +
    '(SELECT e.key AS key, coalesce(row_data -> e.fullkey, json_quote(e.value)) AS value ' +
    'FROM json_each(row_data) AS e ORDER BY e.id))';
  return `table_name = ?, row_data = iif(json_type(iif(json_valid(row_data), row_data, NULL)) = 'object', ${row}, row_data)`;
}

/** Nothing that a peer could be sent: it would be refused, and could not even be taken apart to find out why. */
export const UNUSABLE =
  "(table_name IS NULL OR (op IN ('INSERT', 'UPDATE', 'DELETE')) IS NOT 1 OR NOT coalesce(json_valid(row_data), 1))";

/** Every key of the row is a column of the table, and every column is a key of the row. */
const FITS =
  "(SELECT (SELECT group_concat(k) FROM (SELECT lower(name) AS k FROM pragma_table_info(?, 'main') ORDER BY 1)) IS " +
  '(SELECT group_concat(k) FROM (SELECT lower(key) AS k FROM json_each(row_data) ORDER BY 1)))';
