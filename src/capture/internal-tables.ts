/** The tables that Rowcast keeps in the application's database, and how it takes over those of another implementation. */
import type { Connection } from '../sqlite/connection.ts';
import { quote } from '../sqlite/schema.ts';

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
  _dead_letter:
    '(dead_id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, row_id TEXT, row_data TEXT, failed_at INTEGER, retry_count INTEGER DEFAULT 0)',
  // What the specification's six columns have no room for: which way, to or from whom, why, and the whole change.
  _dead_letter_info:
    '(dead_id INTEGER PRIMARY KEY, direction TEXT, table_name TEXT, peer TEXT, code TEXT, reason TEXT, change TEXT, unknown_columns TEXT, fingerprint TEXT UNIQUE)',
  // tail_from is set while a snapshot is under way: the position in _changes from which to go on after it.
  _peer_state:
    '(peer_url TEXT PRIMARY KEY, last_acked INTEGER DEFAULT 0, shipped INTEGER DEFAULT 0, tail_from INTEGER, snapshot_table TEXT, snapshot_after TEXT)',
  // Last, because adopting another implementation's changes may write dead letters.
  _changes: '(change_id INTEGER PRIMARY KEY, op TEXT, table_name TEXT, row_id TEXT, row_data TEXT)',
};

/** The two tables of dead letters alone, for a hub, which keeps no others of these. */
export function createLetterTables(db: Connection): void {
  for (const name of LETTER_TABLES) db.exec(`CREATE TABLE IF NOT EXISTS ${name} ${DEFINITIONS[name]}`);
}

export const LETTER_TABLES = ['_dead_letter', '_dead_letter_info'] as const;

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

/** Whatever is no longer in the table had at most this id: it was shipped or set aside, and that is noted, or acknowledged. */
const LAST_GONE =
  "max(CAST(coalesce((SELECT value FROM _meta WHERE key = 'last_change_id'), 0) AS INTEGER), coalesce((SELECT max(last_acked) FROM _peer_state), 0))";
const LAST_CHANGE_ID = `max(coalesce((SELECT max(change_id) FROM _changes), 0), ${LAST_GONE})`;

/**
 * The id of a single change about to be recorded. NULL is SQLite's own choice, one above the greatest there is, which
 * keepChangeIdsAbove sees to it is great enough; only where the table is empty does it have to be told.
 */
export const NEXT_CHANGE_ID = `iif(EXISTS (SELECT 1 FROM _changes), NULL, ${LAST_GONE} + 1)`;

/** The same where one statement records several: it looks into the table before it writes the first of them. */
export const NEXT_CHANGE_IDS = `${LAST_CHANGE_ID} + row_number() OVER ()`;

export function lastChangeId(db: Connection): number {
  return Number(db.get(`SELECT ${LAST_CHANGE_ID} AS n`)?.n);
}

/** Of a change that is about to be shipped: its id is not given again, even when the table is empty. In a transaction. */
export function noteLastId(db: Connection, last: number): void {
  db.run(
    "INSERT INTO _meta (key, value) VALUES ('last_change_id', CAST(? AS INTEGER)) ON CONFLICT DO UPDATE SET value = excluded.value " +
      "WHERE (typeof(value) = 'integer' AND value >= excluded.value) IS NOT 1",
    last,
  );
}

/**
 * No id up to this one is given again. Where there are changes, new ids follow the greatest of theirs; so if that is less,
 * because the ones above it were taken out, it becomes this one. To be sent again under another number does no harm.
 */
export function keepChangeIdsAbove(db: Connection, last: number): void {
  noteLastId(db, last);
  db.run(
    'UPDATE _changes SET change_id = CAST(? AS INTEGER) WHERE change_id = (SELECT max(change_id) FROM _changes) AND change_id < ?',
    last,
    last,
  );
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

/**
 * The specification's `_changes` does not say which table a change belongs to. A column of that meaning is taken over if
 * there is one; with a single synced table there is no question; otherwise the row's columns decide, and a change that
 * fits no table or several becomes a dead letter for a person to look at.
 */
function adoptChanges(db: Connection, before: string, columns: string[], syncedTables: string[]): void {
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

function columnsOf(db: Connection, table: string): string[] {
  return db.all<{ name: string }>('SELECT name FROM pragma_table_info(?)', table).map((column) => column.name);
}

function normalised(sql: string): string {
  return sql.replace(/\s+|"/g, '');
}
