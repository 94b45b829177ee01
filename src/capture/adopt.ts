/** Taking over the `_changes` of another implementation, whose table has fewer columns than ours. */
import type { Connection } from '../sqlite/connection.ts';
import { quote } from '../sqlite/sql.ts';

/**
 * The specification's `_changes` does not say which table a change belongs to. A column of that meaning is taken over if
 * there is one; with a single synced table there is no question; otherwise the row's columns decide, and a change that
 * fits no table or several becomes a dead letter for a person to look at.
 */
export function adoptChanges(db: Connection, before: string, columns: string[], syncedTables: string[]): void {
  const named = ['table', 'tbl', 'tbl_name', 'tablename'].find((column) => columns.includes(column));
  if (named && !columns.includes('table_name')) {
    db.exec(
      `UPDATE _changes SET table_name = (SELECT b.${quote(named)} FROM ${before} AS b WHERE b.change_id = _changes.change_id)`,
    );
  }
  const [only] = syncedTables;
  if (syncedTables.length === 1 && only !== undefined) {
    db.run('UPDATE _changes SET table_name = ? WHERE table_name IS NULL', only);
  }
  for (const table of syncedTables) {
    const rivals = syncedTables.filter((other) => other !== table);
    db.run(
      `UPDATE _changes SET table_name = ? WHERE table_name IS NULL AND json_valid(row_data) AND ${fits()} ` +
        `${rivals.map(() => `AND NOT ${fits()}`).join(' ')}`,
      table,
      table,
      ...rivals,
    );
  }
  const latest = Number(db.get('SELECT coalesce(max(dead_id), 0) AS n FROM _dead_letter')?.n);
  db.exec(
    "INSERT INTO _dead_letter (op, row_id, row_data, failed_at) SELECT op, row_id, row_data, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) " +
      `FROM _changes WHERE ${UNUSABLE} ORDER BY change_id`,
  );
  db.run(
    "INSERT INTO _dead_letter_info (dead_id, direction, code, reason) SELECT dead_id, 'out', 'unknown-table', " +
      "'adopted from another implementation: its op or its row is none, or which table it belongs to cannot be told' FROM _dead_letter " +
      'WHERE dead_id > ?',
    latest,
  );
  db.exec(`DELETE FROM _changes WHERE ${UNUSABLE}`);
  // Their deletions left no tombstones here, so a new peer must be sent these changes besides the snapshot.
  db.exec(
    "INSERT INTO _meta (key, value) SELECT 'adopted_upto', coalesce(max(change_id), 0) FROM _changes WHERE true ON CONFLICT DO UPDATE SET value = excluded.value",
  );
}

/** Nothing that a peer could be sent: it would be refused, and could not even be taken apart to find out why. */
const UNUSABLE =
  "(table_name IS NULL OR (op IN ('INSERT', 'UPDATE', 'DELETE')) IS NOT 1 OR NOT coalesce(json_valid(row_data), 1))";

/** Every key of the row is a column of the table, and every column is a key of the row. */
function fits(): string {
  return (
    '(SELECT (SELECT group_concat(k) FROM (SELECT lower(name) AS k FROM pragma_table_info(?) ORDER BY 1)) IS ' +
    '(SELECT group_concat(k) FROM (SELECT lower(key) AS k FROM json_each(row_data) ORDER BY 1)))'
  );
}
