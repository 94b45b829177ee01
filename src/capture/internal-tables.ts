/** The tables that Rowcast keeps in the application's database, and how it takes over those of another implementation. */

import { LETTER_TABLES } from '../dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import { quote } from '../sqlite/sql.ts';
import { adoptChanges } from './adopt.ts';
import { keepChangeIdsAbove, lastChangeId } from './change-ids.ts';

/**
 * Nothing in `_changes` may be able to fail: it is written inside the application's own statement. Its ids never start
 * again after a drain, or a late acknowledgement would delete changes that nobody has seen; NEXT_CHANGE_ID sees to that,
 * and not AUTOINCREMENT, which writes a page of its own in every transaction.
 */
const DEFINITIONS = {
  _meta: '(key TEXT PRIMARY KEY, value) WITHOUT ROWID',
  _tombstones: '(table_name TEXT, row_id TEXT, version INTEGER, PRIMARY KEY (table_name, row_id)) WITHOUT ROWID',
  // The least version that a row's next one must be above, while a statement is running; see triggers.ts.
  _floors: '(table_name TEXT, row_id TEXT, version INTEGER, PRIMARY KEY (table_name, row_id)) WITHOUT ROWID',
  _replaced:
    '(table_name TEXT, row_id TEXT, version INTEGER, row_data TEXT, PRIMARY KEY (table_name, row_id)) WITHOUT ROWID',
  ...LETTER_TABLES,
  // tail_from is set while a snapshot is under way: the position in _changes from which to go on after it.
  _peer_state:
    '(peer_url TEXT PRIMARY KEY, last_acked INTEGER DEFAULT 0, shipped INTEGER DEFAULT 0, tail_from INTEGER, snapshot_table TEXT, snapshot_after TEXT)',
  // Last, because adopting another implementation's changes may write dead letters.
  _changes: '(change_id INTEGER PRIMARY KEY, op TEXT, table_name TEXT, row_id TEXT, row_data TEXT)',
};

/** Creates what is missing and rebuilds what has another shape, keeping its rows. Runs inside the installer's transaction. */
export function installInternalTables(db: Connection, syncedTables: string[]): void {
  for (const [name, definition] of Object.entries(DEFINITIONS)) {
    const sql = `CREATE TABLE ${quote(name)} ${definition}`;
    const existing = db.get<{ sql: string }>("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", name);
    if (!existing) db.exec(sql);
    else if (normalised(existing.sql) !== normalised(sql)) rebuild(db, name, sql, syncedTables);
  }
  db.exec(
    "INSERT INTO _meta (key, value) VALUES ('syncing', 0) ON CONFLICT DO UPDATE SET value = 0 WHERE value IS NOT 0",
  );
  keepChangeIdsAbove(db, lastChangeId(db));
}

/** What an AUTOINCREMENT of another implementation, or of an earlier version of this one, has handed out. */
function sequenceOf(db: Connection, table: string): number {
  const known = db.get("SELECT 1 AS n FROM sqlite_schema WHERE name = 'sqlite_sequence'");
  return known ? Number(db.get('SELECT coalesce(max(seq), 0) AS n FROM sqlite_sequence WHERE name = ?', table)?.n) : 0;
}

/** By way of a temporary copy: renaming a table would rewrite every trigger that names it, the application's own included. */
function rebuild(db: Connection, name: string, sql: string, syncedTables: string[]): void {
  const before = 'temp._rowcast_before';
  const columns = columnsOf(db, name);
  // Dropping the table forgets it.
  const sequence = sequenceOf(db, name);
  db.exec(`CREATE TEMP TABLE _rowcast_before AS SELECT * FROM main.${quote(name)}`);
  db.exec(`DROP TABLE main.${quote(name)}`);
  db.exec(sql);
  const list = columnsOf(db, name)
    .filter((column) => columns.includes(column))
    .map(quote)
    .join(', ');
  if (list !== '') {
    db.exec(`INSERT INTO ${quote(name)} (${list}) SELECT ${list} FROM ${before} WHERE true ON CONFLICT DO NOTHING`);
  }
  if (name === '_changes') {
    keepChangeIdsAbove(db, sequence);
    adoptChanges(db, before, columns, syncedTables);
  }
  db.exec(`DROP TABLE ${before}`);
}

function columnsOf(db: Connection, table: string): string[] {
  return db.all<{ name: string }>('SELECT name FROM pragma_table_info(?)', table).map((column) => column.name);
}

function normalised(sql: string): string {
  return sql.replace(/\s+|"/g, '');
}
