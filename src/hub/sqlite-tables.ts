/** The hub's own database: the newest version of every row, how far each edge is, and nobody else's tables. */
import { LETTER_TABLES } from '../dead-letters.ts';
import { messageOf, RowcastError } from '../errors.ts';
import { IDENTITY_TABLES } from '../identity/tables.ts';
import type { Connection } from '../sqlite/connection.ts';
import { isCode } from '../sqlite/result-codes.ts';

/**
 * A row's newest version takes a new `seq` each time it advances. Everything above an edge's position, in this order,
 * is therefore the latest changes for one that keeps up, the catch-up of one that was away, and the whole state for a
 * new one. `seq` is the rowid, so what is sent together lies together; it never comes again, because no row is ever
 * removed. Names of tables are the same in any case, as they are for SQLite.
 */
const DEFINITIONS: Record<string, string> = {
  _hub_rows:
    'CREATE TABLE _hub_rows (seq INTEGER PRIMARY KEY, op TEXT NOT NULL, table_name TEXT NOT NULL COLLATE NOCASE, ' +
    'row_id TEXT NOT NULL, updated_at INTEGER NOT NULL, origin TEXT, row_data TEXT NOT NULL, ' +
    'UNIQUE (table_name, row_id))',
  _hub_live: "CREATE VIEW _hub_live AS SELECT seq FROM _hub_rows WHERE op <> 'DELETE'",
  _hub_edges:
    'CREATE TABLE _hub_edges (url TEXT PRIMARY KEY, position INTEGER NOT NULL DEFAULT 0, node_id TEXT, ' +
    'paused INTEGER NOT NULL DEFAULT 0, inc TEXT, anew_upto INTEGER NOT NULL DEFAULT 0, pinned TEXT)',
  _hub_asked: 'CREATE TABLE _hub_asked (table_name TEXT PRIMARY KEY COLLATE NOCASE)',
  _hub_verified: 'CREATE TABLE _hub_verified (url TEXT PRIMARY KEY, note TEXT NOT NULL) WITHOUT ROWID',
};

/** Those that have few rows, however many the hub has. */
const SMALL = new Set(['_hub_edges', '_hub_asked', '_hub_verified']);

/** Those that a node has, too. */
const SHARED_TABLES: Record<string, string> = { ...LETTER_TABLES, ...IDENTITY_TABLES };

/**
 * In `PRAGMA user_version`. 1: a deleted row is its id and its version, and nothing of its content. 2: an edge may be
 * paused. 3: an edge is known by the database that answers. 4: what is remembered of a database has its seal. 5: an edge is
 * held to the node that has shown the key.
 */
export const FORMAT = 5;

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

/** Creates what is missing. Throws a RowcastError where the file is damaged, or holds anything but a hub. */
export function prepareHubDatabase(db: Connection): void {
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
  const foreign = found.filter(({ name }) => !(name in DEFINITIONS) && !(name in SHARED_TABLES));
  if (foreign.length > 0) {
    const names = foreign.slice(0, 3).map(({ name }) => `"${name}"`);
    throw refused(`is not a hub's: it holds ${names.join(', ')}${foreign.length > 3 ? ' and more' : ''}`);
  }
  const format = formatOf(db);
  const isEarlier = format < FORMAT;
  if (format > FORMAT) throw refused(`was made by a newer version of the hub: its format is ${format}, not ${FORMAT}`);
  // The edges of an earlier format have fewer columns, and are given the new ones below.
  const isKept = (name: string): boolean => DEFINITIONS[name] !== undefined && !(name === '_hub_edges' && isEarlier);
  const other = found.find(({ name, sql }) => isKept(name) && DEFINITIONS[name] !== sql);
  if (other) throw refused(`was made by another version of the hub: "${other.name}" differs`);
  db.transaction(() => {
    for (const [name, sql] of Object.entries(DEFINITIONS)) if (!found.some((one) => one.name === name)) db.exec(sql);
    for (const [name, columns] of Object.entries(SHARED_TABLES))
      db.exec(`CREATE TABLE IF NOT EXISTS ${name} ${columns}`);
    if (isEarlier && found.some(({ name }) => name === '_hub_edges'))
      rebuild(db, '_hub_edges', DEFINITIONS._hub_edges as string);
    if (isEarlier && found.some(({ name }) => name === '_nodes'))
      rebuild(db, '_nodes', `CREATE TABLE _nodes ${IDENTITY_TABLES._nodes}`);
    // What a hub of format 0 has kept of deleted rows is removed later, and the format is raised then: sqlite-forget.ts.
    const isClean = format >= 1 || !found.some(({ name }) => name === '_hub_rows');
    if (isClean && isEarlier) db.exec(`PRAGMA user_version = ${FORMAT}`);
  });
  // What is overwritten is gone from the file, too: whoever deletes a row may have to erase it.
  db.exec('PRAGMA secure_delete = ON');
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
