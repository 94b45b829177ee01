/** The tables that Rowcast keeps in the application's database, and how it takes over those of another implementation. */

import { RowcastError } from '../errors.ts';
import { IDENTITY_TABLES } from '../identity/tables.ts';
import { JOURNAL_INDEXES, JOURNAL_TABLES } from '../journal/tables.ts';
import { LETTER_INDEXES, LETTER_TABLES } from '../letters/dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import { fold, inMain, literal, quote } from '../sqlite/sql.ts';
import { adoptChanges, type Spelt } from './adopt.ts';
import { keepIdsAbove, sequenceOf } from './change-ids.ts';

/**
 * Nothing in `_changes` may be able to fail: it is written inside the application's own statement. AUTOINCREMENT, because
 * a watermark is one of its ids: an id that begins again after a drain would be below what the peers have acknowledged,
 * and whoever writes to the table, an old trigger or a person, must get one above.
 */
const DEFINITIONS = {
  // BLOB is how a column says that it takes everything as it comes; tools that read schemas trip over one that says nothing.
  _meta: '(key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID',
  _tombstones: '(table_name TEXT, row_id TEXT, version INTEGER, PRIMARY KEY (table_name, row_id)) WITHOUT ROWID',
  // Versions that are not yet in the rows' own updated_at, see stamps.ts. Refused: the application does not let them in.
  _stamps:
    '(table_name TEXT, row_id TEXT, version INTEGER, refused INTEGER, PRIMARY KEY (table_name, row_id)) WITHOUT ROWID',
  _replaced:
    '(table_name TEXT, row_id TEXT, version INTEGER, row_data TEXT, PRIMARY KEY (table_name, row_id)) WITHOUT ROWID',
  ...LETTER_TABLES,
  // Rows that a stronger one with the same UNIQUE value keeps out of their table; see receive/unique.ts. blocked_by is that
  // row, as it was at blocked_version; dead_id is the letter that lists the hidden one.
  _hidden:
    '(table_name TEXT, row_id TEXT, version INTEGER, row_data TEXT, blocked_by TEXT, blocked_version INTEGER, ' +
    'dead_id INTEGER, PRIMARY KEY (table_name, row_id)) WITHOUT ROWID',
  // Rows in which a column that was gone and is back has what nobody has said: see unsaid.ts.
  _unsaid:
    '(table_name TEXT, column_name TEXT, row_id TEXT, PRIMARY KEY (table_name, column_name, row_id)) WITHOUT ROWID',
  // tail_from is set while a snapshot is under way: the position in _changes from which to go on after it. snapshot_of
  // names its tables as a JSON array, NULL means all of them; snapshot_run tells one walk from the next. A paused peer is
  // sent nothing; for a stale one nothing is kept, and it is seeded when it is back. inc is the database that acknowledged
  // last at this URL; removed is set once it is known that the peer was taken out of the configuration; again is set while
  // a seed waits for the present one to end. asks names tables that it is to be asked for, as soon as it has the change
  // asks_after. pinned is the id of the node that has shown the key there. plain is set where somebody has answered who does
  // not say which database it is.
  _peer_state:
    '(peer_url TEXT PRIMARY KEY, last_acked INTEGER DEFAULT 0, shipped INTEGER DEFAULT 0, tail_from INTEGER, ' +
    'snapshot_table TEXT, snapshot_after TEXT, snapshot_of TEXT, snapshot_run INTEGER DEFAULT 0, asks TEXT, asks_after INTEGER, ' +
    'paused INTEGER DEFAULT 0, stale INTEGER DEFAULT 0, inc TEXT, removed INTEGER, again INTEGER, pinned TEXT, plain INTEGER)',
  // Who is attached to this file, by configuration: a change is kept until the peers of all of them have it.
  _attachments: '(node_id TEXT, peers TEXT, beat INTEGER DEFAULT 0, PRIMARY KEY (node_id, peers)) WITHOUT ROWID',
  ...IDENTITY_TABLES,
  ...JOURNAL_TABLES,
  // Last, because adopting another implementation's changes may write dead letters. base is the version that an update
  // has seen, for the journal of whoever receives it; it stands last, so that ALTER TABLE can add it.
  _changes:
    '(change_id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, table_name TEXT, row_id TEXT, row_data TEXT, base INTEGER)',
};

type InternalTable = keyof typeof DEFINITIONS;

const NAMES = Object.keys(DEFINITIONS) as InternalTable[];

/** The columns by which a table of another shape is known to be ours, of an earlier build, or another implementation's. */
const KNOWN_BY: Record<InternalTable, string[]> = {
  _meta: ['key', 'value'],
  _tombstones: ['table_name', 'row_id', 'version'],
  _stamps: ['table_name', 'row_id', 'version', 'refused'],
  _replaced: ['table_name', 'row_id', 'version', 'row_data'],
  _dead_letter: ['dead_id', 'op', 'row_id', 'row_data'],
  _dead_letter_info: ['dead_id', 'direction', 'code', 'reason'],
  _hidden: ['table_name', 'row_id', 'version', 'row_data', 'blocked_by', 'blocked_version', 'dead_id'],
  _unsaid: ['table_name', 'column_name', 'row_id'],
  _peer_state: [],
  _attachments: ['node_id', 'peers', 'beat'],
  _nodes: ['inc', 'id', 'boot', 'before', 't0', 'tick', 'back', 'self'],
  _names: ['id', 'inc'],
  _arrivals: ['arrival_id', 'at', 'sender', 'origins', 'brought'],
  _conflicts: ['conflict_id', 'at', 'table_name', 'row_id', 'lost_version', 'lost_row', 'won_version'],
  _changes: ['change_id', 'op', 'row_id', 'row_data'],
};

/** Columns that another shape may have besides; where there is no list, any. */
const MAY_HAVE: Partial<Record<InternalTable, string[]>> = {
  _meta: [],
  // Of an early build; and where they are collected.
  _tombstones: ['is_delete', 'day'],
  _stamps: [],
  _replaced: [],
  _hidden: [],
  _unsaid: [],
  _attachments: [],
  _names: [],
  _arrivals: [],
};

/**
 * Creates what is missing and rebuilds what has another shape, keeping its rows. Runs inside the installer's transaction.
 * Returns which of those have been made anew without which nobody knows any more what was written or deleted here.
 */
export function installInternalTables(db: Connection, syncedTables: Spelt[]): string[] {
  const found = objectsNamedAsOurs(db);
  const there = (name: string): SchemaObject[] => found.filter((one) => fold(one.name) === name);
  const other = NAMES.filter((name) => !isOurs(there(name), name));
  if (other.length > 0) refuseHub(db);
  for (const name of other) refuseForeign(db, name, there(name));
  const dropped = REMEMBER.filter((name) => there(name).length === 0 && wasInstalled(db, there('_meta').length > 0));
  for (const name of other) {
    const [existing] = there(name);
    if (!existing) db.exec(definitionOf(name));
    else if (name === '_changes' && isWithoutBase(existing))
      db.exec('ALTER TABLE main._changes ADD COLUMN base INTEGER');
    else rebuild(db, name, existing.name, syncedTables);
  }
  db.exec('CREATE INDEX IF NOT EXISTS main._stamps_pending ON _stamps (table_name) WHERE refused IS NULL');
  const indexes = { ...LETTER_INDEXES, ...JOURNAL_INDEXES };
  for (const [name, sql] of Object.entries(indexes)) db.exec(`CREATE INDEX IF NOT EXISTS main.${name} ${sql}`);
  db.exec(
    "INSERT INTO main._meta (key, value) VALUES ('syncing', 0) ON CONFLICT DO UPDATE SET value = 0 WHERE value IS NOT 0",
  );
  keepIdsAbove(db);
  return dropped;
}

/** With a node's tables in it a hub does not begin on its file any more. */
function refuseHub(db: Connection): void {
  if (!db.get("SELECT 1 AS n FROM main.sqlite_schema WHERE name = '_hub_rows'")) return;
  throw new RowcastError('INVALID_DATABASE', "the database is a hub's", { hint: 'give the node a file of its own' });
}

/** What is waiting to be sent, and what was deleted. Every build had both. */
const REMEMBER = ['_changes', '_tombstones'];

/** A tool that makes the database fit its own list of tables drops those that are not on it. */
function wasInstalled(db: Connection, hasMeta: boolean): boolean {
  return hasMeta && db.get("SELECT 1 AS n FROM main._meta WHERE key = 'verified_schema'") !== undefined;
}

/** Once tombstones are collected they have a day: see floors.ts. */
const WITH_DAY = DEFINITIONS._tombstones.replace('version INTEGER', 'version INTEGER, day INTEGER');

function definitionOf(name: InternalTable, withDay = false): string {
  return `CREATE TABLE ${inMain(name)} ${name === '_tombstones' && withDay ? WITH_DAY : DEFINITIONS[name]}`;
}

/** Whatever has one of their names; a trigger may have one beside the table. */
function objectsNamedAsOurs(db: Connection): SchemaObject[] {
  return db.all<SchemaObject>(
    'SELECT type, name, sql FROM main.sqlite_schema ' +
      `WHERE name COLLATE NOCASE IN (${NAMES.map(literal).join(', ')}) ORDER BY type`,
  );
}

interface SchemaObject {
  type: string;
  name: string;
  sql: string;
}

/** SQLite keeps the text from the name on, without what stood before it. */
function isOurs(objects: SchemaObject[], name: InternalTable): boolean {
  const [only, ...others] = objects;
  if (only?.type !== 'table' || others.length > 0) return false;
  const forms = name === '_tombstones' ? [DEFINITIONS[name], WITH_DAY] : [DEFINITIONS[name]];
  return forms.some((form) => normalised(only.sql) === normalised(`CREATE TABLE ${quote(name)} ${form}`));
}

/** Of an earlier build: a backlog of millions of changes need not be copied for a column that they have nothing in. */
function isWithoutBase({ sql }: SchemaObject): boolean {
  return normalised(sql) === normalised(`CREATE TABLE _changes ${DEFINITIONS._changes.replace(', base INTEGER', '')}`);
}

/** An application may have a table of its own by such a name: it is not ours to rebuild, and nothing of it is touched. */
function refuseForeign(db: Connection, name: InternalTable, objects: SchemaObject[]): void {
  const refuse = (what: string): never => {
    throw new RowcastError('INVALID_DATABASE', `the database has ${what} named "${name}", a name that Rowcast needs`, {
      hint: 'rename it, or keep the synced tables in a database file of their own; nothing was changed',
    });
  };
  for (const { type } of objects) if (type !== 'table') refuse(type === 'index' ? 'an index' : `a ${type}`);
  if (objects.length === 0) return;
  const kind = db.get(
    "SELECT type FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE",
    name,
  )?.type;
  if (kind !== 'table') refuse(`a ${kind} table`);
  const columns = columnsOf(db, name).map(fold);
  const needed = KNOWN_BY[name];
  const allowed = MAY_HAVE[name];
  const known =
    needed.every((column) => columns.includes(column)) &&
    (!allowed || columns.every((column) => needed.includes(column) || allowed.includes(column)));
  // Which columns another implementation gives to its peers is up to it; that they are peers must show.
  const peers = name !== '_peer_state' || columns.some((column) => /peer|url|node/.test(column));
  if (!known || !peers) refuse(`a table of another shape (${columns.join(', ')})`);
}

/** By way of a temporary copy: renaming a table would rewrite every trigger that names it, the application's own included. */
function rebuild(db: Connection, name: InternalTable, called: string, syncedTables: Spelt[]): void {
  const before = 'temp._rowcast_before';
  const columns = columnsOf(db, name);
  // Dropping the table forgets it.
  const sequence = sequenceOf(db, called);
  const named = columns.map((column) => `${quote(column)} AS ${quote(column)}`).join(', ');
  db.exec(`CREATE TEMP TABLE _rowcast_before AS SELECT ${named} FROM ${inMain(called)}`);
  db.exec(`DROP TABLE ${inMain(called)}`);
  db.exec(definitionOf(name, columns.map(fold).includes('day')));
  const list = columnsOf(db, name)
    .filter((column) => columns.some((theirs) => fold(theirs) === column))
    .map(quote)
    .join(', ');
  if (list !== '') {
    db.exec(`INSERT INTO ${inMain(name)} (${list}) SELECT ${list} FROM ${before} WHERE true ON CONFLICT DO NOTHING`);
  }
  if (name === '_changes') {
    keepIdsAbove(db, sequence);
    adoptChanges(db, before, columns, syncedTables);
  }
  db.exec(`DROP TABLE ${before}`);
}

function columnsOf(db: Connection, table: string): string[] {
  const columns = db.all<{ name: string }>("SELECT name FROM pragma_table_info(?, 'main')", table);
  return columns.map((column) => column.name);
}

function normalised(sql: string): string {
  return sql.replace(/\s+|"/g, '');
}
