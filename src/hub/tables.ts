/** The hub's own database: the newest version of every row, and how far each edge is. Nobody else's tables belong in it. */
import { LETTER_TABLES } from '../dead-letters.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { isCode } from '../sqlite/result-codes.ts';

/**
 * A row's newest version takes a new `seq` each time it advances. Everything above an edge's position, in this order, is
 * therefore at once the latest changes, the catch-up of an edge that was away for a month, and the whole state for a new one.
 * `seq` is the rowid, so what is sent together lies together; it never comes again, because no row is ever removed.
 * Names of tables are the same in any case, as they are for SQLite.
 */
const DEFINITIONS: Record<string, string> = {
  _hub_rows:
    'CREATE TABLE _hub_rows (seq INTEGER PRIMARY KEY, op TEXT NOT NULL, table_name TEXT NOT NULL COLLATE NOCASE, row_id TEXT NOT NULL, ' +
    'updated_at INTEGER NOT NULL, origin TEXT, row_data TEXT NOT NULL, UNIQUE (table_name, row_id))',
  _hub_live: "CREATE VIEW _hub_live AS SELECT seq FROM _hub_rows WHERE op <> 'DELETE'",
  _hub_edges: 'CREATE TABLE _hub_edges (url TEXT PRIMARY KEY, position INTEGER NOT NULL DEFAULT 0, node_id TEXT)',
};

/** Creates what is missing. Throws a RowcastError where the file is damaged, or holds anything but a hub. */
export function prepareHubDatabase(db: Connection): void {
  const found = guarded(() => {
    const damage = db.get('PRAGMA quick_check(1)');
    const verdict = String(Object.values(damage ?? {})[0]).replace(/\s+/g, ' ');
    if (verdict !== 'ok') throw refused(`is damaged: ${verdict}`);
    return db.all<{ name: string; sql: string | null }>(
      "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    );
  });
  const foreign = found.filter(({ name }) => !(name in DEFINITIONS) && !(name in LETTER_TABLES));
  if (foreign.length > 0) {
    const names = foreign.slice(0, 3).map(({ name }) => `"${name}"`);
    throw refused(`is not a hub's: it holds ${names.join(', ')}${foreign.length > 3 ? ' and more' : ''}`);
  }
  const other = found.find(({ name, sql }) => DEFINITIONS[name] !== undefined && DEFINITIONS[name] !== sql);
  if (other) throw refused(`was made by another version of the hub: "${other.name}" differs`);
  db.transaction(() => {
    for (const [name, sql] of Object.entries(DEFINITIONS)) if (!found.some((one) => one.name === name)) db.exec(sql);
    for (const [name, columns] of Object.entries(LETTER_TABLES))
      db.exec(`CREATE TABLE IF NOT EXISTS ${name} ${columns}`);
  });
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
