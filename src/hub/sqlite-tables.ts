/** The hub's own database: the newest version of every row, how far each edge is, and nobody else's tables. */

import { messageOf, RowcastError } from '../errors.ts';
import { IDENTITY_TABLES } from '../identity/tables.ts';
import { LETTER_INDEXES, LETTER_TABLES } from '../letters/dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import { isCode } from '../sqlite/result-codes.ts';
import { TIMESTAMP_MAX } from '../wire/protocol.ts';

/**
 * A row's newest version takes a new `seq` each time it advances. Everything above an edge's position, in this order,
 * is therefore the latest changes for one that keeps up, the catch-up of one that was away, and the whole state for a
 * new one. `seq` is the rowid, so what is sent together lies together; it never comes again, because no row is ever
 * removed. Names of tables are the same in any case, as they are for SQLite.
 */
const DEFINITIONS: Record<string, string> = {
  _hub_rows:
    'CREATE TABLE _hub_rows (seq INTEGER PRIMARY KEY, op TEXT NOT NULL, table_name TEXT NOT NULL COLLATE NOCASE, ' +
    'row_id TEXT NOT NULL, updated_at INTEGER NOT NULL, origin TEXT, row_data TEXT NOT NULL, base INTEGER, ' +
    'writer TEXT, UNIQUE (table_name, row_id))',
  _hub_live: "CREATE VIEW _hub_live AS SELECT seq FROM _hub_rows WHERE op <> 'DELETE'",
  _hub_edges:
    'CREATE TABLE _hub_edges (url TEXT PRIMARY KEY, position INTEGER NOT NULL DEFAULT 0, node_id TEXT, ' +
    'paused INTEGER NOT NULL DEFAULT 0, inc TEXT, anew_upto INTEGER NOT NULL DEFAULT 0, pinned TEXT)',
  _hub_asked: 'CREATE TABLE _hub_asked (table_name TEXT PRIMARY KEY COLLATE NOCASE)',
  _hub_clock: 'CREATE TABLE _hub_clock (noted INTEGER NOT NULL)',
  _hub_verified: 'CREATE TABLE _hub_verified (url TEXT PRIMARY KEY, note TEXT NOT NULL) WITHOUT ROWID',
};

/** Whoever sends is looked for among the edges, of which there may be thousands. */
const EDGE_INDEXES: Record<string, string> = { _hub_edges_inc: 'ON _hub_edges (inc)' };
const INDEXES: Record<string, string> = { ...LETTER_INDEXES, ...EDGE_INDEXES };

/** Of earlier formats. */
const ROWS_WITHOUT_WRITER = DEFINITIONS._hub_rows?.replace(' writer TEXT,', '');
const ROWS_WITHOUT_BASE = ROWS_WITHOUT_WRITER?.replace(' base INTEGER,', '');

/** Those that have few rows, however many the hub has. */
const SMALL = new Set(['_hub_edges', '_hub_asked', '_hub_clock', '_hub_verified']);

/** Those that a node has, too. */
const SHARED_TABLES: Record<string, string> = { ...LETTER_TABLES, ...IDENTITY_TABLES };

/**
 * In `PRAGMA user_version`. 1: a deleted row is its id and its version, and nothing of its content. 2: an edge may be
 * paused. 3: an edge is known by the database that answers. 4: what is remembered of a database has its seal. 5: an edge is
 * held to the node that has shown the key. 6: a letter may wait for its time. 7: a row has what its latest change has seen. 8: and
 * who made it, where that is not who brought it. 9: an edge is found by its database. 10: of a database it is kept what was
 * said in its name.
 */
export const FORMAT = 10;

/**
 * A file up to this size is checked whole before it is used, in a fraction of a second. Of a larger one only the small
 * tables are: damage among the rows then shows where it is met, as an error, a 503 and a problem in health.
 */
const CHECKED_BYTES = 64 * 1024 * 1024;

/** What a deletion leaves of its row, given the expressions of its id and its version. */
export function tombstone(id: string, updatedAt: string): string {
  return `json_object('id', ${id}, 'updated_at', ${updatedAt})`;
}

/** The same of a row of `_hub_rows`. */
export function deletedContent(): string {
  return tombstone('row_id', 'updated_at');
}

export function formatOf(db: Connection): number {
  return pragma(db, 'user_version');
}

/**
 * Creates what is missing. Throws a RowcastError where the file is damaged, or holds anything but a hub. Returns how many
 * rows of an earlier hub were above the ceiling of versions.
 */
export function prepareHubDatabase(db: Connection, now: number): number {
  const found = guarded(() => {
    const schema = db.all<{ name: string; sql: string | null }>(
      "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    );
    checkForDamage(
      db,
      schema.map(({ name }) => name),
    );
    return schema;
  });
  const known = (name: string): boolean => name in DEFINITIONS || name in SHARED_TABLES || name in INDEXES;
  const foreign = found.filter(({ name }) => !known(name));
  if (foreign.length > 0) {
    const names = foreign.slice(0, 3).map(({ name }) => `"${name}"`);
    throw refused(`is not a hub's: it holds ${names.join(', ')}${foreign.length > 3 ? ' and more' : ''}`);
  }
  const format = formatOf(db);
  const isEarlier = format < FORMAT;
  if (format > FORMAT) throw refused(`was made by a newer version of the hub: its format is ${format}, not ${FORMAT}`);
  // The edges and rows of an earlier format have fewer columns, and are given the new ones below.
  const isKept = (name: string): boolean => DEFINITIONS[name] !== undefined && !(name === '_hub_edges' && format < 5);
  const isOf = (name: string, sql: string | null): boolean =>
    DEFINITIONS[name] === sql ||
    (name === '_hub_rows' && format < 7 && sql === ROWS_WITHOUT_BASE) ||
    (name === '_hub_rows' && format < 8 && sql === ROWS_WITHOUT_WRITER);
  const other = found.find(({ name, sql }) => isKept(name) && !isOf(name, sql));
  if (other) throw refused(`was made by another version of the hub: "${other.name}" differs`);
  const above = db.transaction(() => {
    for (const [name, sql] of Object.entries(DEFINITIONS)) if (!found.some((one) => one.name === name)) db.exec(sql);
    for (const [name, columns] of Object.entries(SHARED_TABLES))
      db.exec(`CREATE TABLE IF NOT EXISTS ${name} ${columns}`);
    const isThere = (table: string): boolean => found.some(({ name }) => name === table);
    if (format < 5 && isThere('_hub_edges')) rebuild(db, '_hub_edges', DEFINITIONS._hub_edges as string);
    if (format < 10 && isThere('_nodes')) rebuild(db, '_nodes', `CREATE TABLE _nodes ${IDENTITY_TABLES._nodes}`);
    if (format < 6 && isThere('_dead_letter_info')) {
      rebuild(db, '_dead_letter_info', `CREATE TABLE _dead_letter_info ${LETTER_TABLES._dead_letter_info}`);
    }
    if (format < 8 && isThere('_hub_rows')) addMissing(db);
    for (const [name, sql] of Object.entries(INDEXES)) db.exec(`CREATE INDEX IF NOT EXISTS ${name} ${sql}`);
    // What a hub of format 0 has kept of deleted rows is removed later, and the format is raised then: sqlite-forget.ts.
    const isClean = format >= 1 || !found.some(({ name }) => name === '_hub_rows');
    if (isClean && isEarlier) db.exec(`PRAGMA user_version = ${FORMAT}`);
    return format < FORMAT ? heedCeiling(db, now) : 0;
  });
  // What is overwritten is gone from the file, too: whoever deletes a row may have to erase it.
  db.exec('PRAGMA secure_delete = ON');
  return above;
}

/**
 * Versions that nobody could ever write above are brought to the present, as every node does with its own: below them, what
 * the nodes have made of theirs would be stale here, and go to nobody.
 */
function heedCeiling(db: Connection, now: number): number {
  const present = 'CAST(? AS INTEGER)';
  db.run(
    `UPDATE _hub_rows SET updated_at = ${present}, row_data = json_set(row_data, '$.updated_at', ${present}), ` +
      `origin = NULL, seq = seq + (SELECT max(seq) FROM _hub_rows) WHERE updated_at > ${TIMESTAMP_MAX}`,
    now,
    now,
  );
  return db.changes();
}

/** Keeps what the table has of the columns that it should have. */
function rebuild(db: Connection, table: string, sql: string): void {
  const columns = (): string[] => db.all<{ name: string }>('SELECT name FROM pragma_table_info(?)', table).map(nameOf);
  const before = columns();
  const named = before.map((name) => `"${name}" AS "${name}"`).join(', ');
  db.exec(`CREATE TEMP TABLE _rowcast_before AS SELECT ${named} FROM main.${table}`);
  db.exec(`DROP TABLE main.${table}`);
  db.exec(sql);
  const kept = columns()
    .filter((name) => before.includes(name))
    .join(', ');
  db.exec(`INSERT INTO main.${table} (${kept}) SELECT ${kept} FROM temp._rowcast_before`);
  db.exec('DROP TABLE temp._rowcast_before');
}

/** A hub of format 0 stays of that format until it has removed the content of what was deleted: it may have them already. */
function addMissing(db: Connection): void {
  const has = db.all<{ name: string }>("SELECT name FROM pragma_table_info('_hub_rows')").map(nameOf);
  const later = { base: 'base INTEGER', writer: 'writer TEXT' };
  for (const [name, column] of Object.entries(later)) {
    if (!has.includes(name)) db.exec(`ALTER TABLE _hub_rows ADD COLUMN ${column}`);
  }
}

function nameOf({ name }: { name: string }): string {
  return name;
}

function checkForDamage(db: Connection, names: string[]): void {
  const small = pragma(db, 'page_count') * pragma(db, 'page_size') <= CHECKED_BYTES;
  const tables = names.filter((name) => SMALL.has(name) || name in SHARED_TABLES);
  for (const check of small ? ['quick_check(1)'] : tables.map((name) => `quick_check("${name}")`)) {
    const verdict = String(Object.values(db.get(`PRAGMA ${check}`) ?? {})[0]).replace(/\s+/g, ' ');
    if (verdict !== 'ok') throw refused(`is damaged: ${verdict}`);
  }
}

function pragma(db: Connection, name: string): number {
  return Number(Object.values(db.get(`PRAGMA ${name}`) ?? {})[0]);
}

function guarded<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof RowcastError) throw error;
    if (isCode(error, 'NOTADB')) throw refused('is not a SQLite database', error);
    throw refused(`is damaged: ${messageOf(error)}`, error);
  }
}

function refused(problem: string, cause?: unknown): RowcastError {
  return new RowcastError('INVALID_DATABASE', `the database ${problem}`, {
    hint: 'give the hub a file of its own; a new one is filled by its edges',
    ...(cause !== undefined && { cause }),
  });
}
