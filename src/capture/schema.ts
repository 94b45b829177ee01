/** What a table looks like to Rowcast, and whether it can be synced at all. */
import type { Connection } from '../database.ts';
import { RowcastError } from '../errors.ts';

/** SQLite's five column affinities; BLOB is the one that converts nothing. */
export type Affinity = 'TEXT' | 'INTEGER' | 'REAL' | 'NUMERIC' | 'BLOB';

export interface Column {
  name: string;
  affinity: Affinity;
  /** NOT NULL without a default: a row cannot be inserted without it. */
  required: boolean;
}

export interface UniqueConstraint {
  /** Each column with the collation under which it is unique. */
  columns: { name: string; collation: string }[];
}

export interface Table {
  name: string;
  /** Stored columns in declaration order; generated ones are left out. */
  columns: Column[];
  /** The columns' own spelling of the two that the protocol needs. */
  id: string;
  updatedAt: string;
  /** An expression that names one physical row even while `id` is NULL, e.g. `rowid`. */
  rowKey: string;
  uniques: UniqueConstraint[];
  /** How many triggers of the application may write to this table, or be fired by it; see triggers.ts. */
  writers: number;
  warnings: string[];
}

export const INTERNAL_TABLES = [
  '_changes',
  '_meta',
  '_dead_letter',
  '_dead_letter_info',
  '_peer_state',
  '_tombstones',
  '_floors',
  '_replaced',
] as const;

export const TRIGGER_PREFIX = '_rowcast_';

export function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

export function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** Names compare as SQLite compares them: ASCII letters without case, everything else byte for byte. */
export function fold(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/** Describes one table of the main database, or refuses it with the remedy. */
export function describeTable(db: Connection, requested: string): Table {
  const refuse = (problem: string, hint: string): never => {
    throw new RowcastError('INVALID_TABLE', `table ${JSON.stringify(requested)} ${problem}`, { hint });
  };
  if (fold(requested).startsWith('sqlite_') || INTERNAL_TABLES.some((name) => name === fold(requested))) {
    refuse('is an internal table', 'name the tables of your application');
  }
  const listed = db.get<{ name: string; type: string; wr: number; strict: number }>(
    "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE",
    requested,
  );
  if (!listed) return refuse('does not exist', 'create it before attach, and check the spelling');
  if (listed.type !== 'table') {
    refuse(
      `is a ${listed.type} table or view`.replace('view table or view', 'view'),
      'sync the ordinary table behind it',
    );
  }

  const info = db.all<{ name: string; type: string; pk: number; hidden: number; nn: number; dflt: string | null }>(
    'SELECT name, type, pk, hidden, "notnull" AS nn, dflt_value AS dflt FROM pragma_table_xinfo(?, \'main\') ORDER BY cid',
    listed.name,
  );
  const columns = info
    .filter((column) => column.hidden === 0)
    .map((column) => ({
      name: column.name,
      affinity: affinityOf(column.type, listed.strict === 1),
      required: column.nn === 1 && column.dflt === null,
    }));

  const key = info.filter((column) => column.pk > 0);
  const id = columns.find((column) => fold(column.name) === 'id');
  if (!id || key.length !== 1 || fold(key[0]?.name ?? '') !== 'id' || id.affinity !== 'TEXT') {
    return refuse('has no TEXT primary key "id"', 'declare id TEXT PRIMARY KEY and fill it with a UUID');
  }
  const updatedAt = columns.find((column) => fold(column.name) === 'updated_at');
  if (updatedAt?.affinity !== 'INTEGER') {
    return refuse('has no INTEGER column "updated_at"', 'add updated_at INTEGER, milliseconds since the epoch');
  }

  const indexes = uniqueIndexes(db, listed.name);
  const keyCollation = indexes.find((index) => index.primary)?.columns[0]?.collation ?? 'BINARY';
  if (fold(keyCollation) !== 'binary') {
    refuse(
      `compares "id" with collation ${keyCollation}`,
      'ids must differ on every node alike: use the default, BINARY',
    );
  }
  const names = new Set(info.map((column) => fold(column.name)));
  const rowid = ['rowid', '_rowid_', 'oid'].find((alias) => !names.has(alias));
  const table: Table = {
    name: listed.name,
    columns,
    id: id.name,
    updatedAt: updatedAt.name,
    rowKey: listed.wr === 0 && rowid ? rowid : quote(id.name),
    uniques: indexes
      .filter((index) => !index.primary && index.trackable)
      .map(({ columns: parts }) => ({ columns: parts })),
    writers: writersOf(db, listed.name),
    warnings: [],
  };
  for (const index of indexes) {
    if (index.primary) continue;
    const what = index.columns.map((column) => column.name).join(', ') || 'an expression';
    table.warnings.push(
      `table "${listed.name}" has a second UNIQUE constraint (${what}): rows inserted concurrently with one value cannot ` +
        'both live, and the later one to arrive is parked',
    );
  }
  for (const trigger of unguardedTriggers(db, listed.name)) {
    table.warnings.push(
      `trigger "${trigger}" on "${listed.name}" also fires while received changes are applied: give it ` +
        "WHEN (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 unless that is what you want",
    );
  }
  return table;
}

/** SQLite's rules for the declared type; in a STRICT table ANY converts nothing. */
function affinityOf(declared: string, strict: boolean): Affinity {
  const type = declared.toUpperCase();
  if (strict && type === 'ANY') return 'BLOB';
  if (type.includes('INT')) return 'INTEGER';
  if (/CHAR|CLOB|TEXT/.test(type)) return 'TEXT';
  if (type === '' || type.includes('BLOB')) return 'BLOB';
  if (/REAL|FLOA|DOUB/.test(type)) return 'REAL';
  return 'NUMERIC';
}

interface UniqueIndex extends UniqueConstraint {
  primary: boolean;
  /** Partial and expression indexes cannot be looked up from a trigger's NEW row by columns alone. */
  trackable: boolean;
}

function uniqueIndexes(db: Connection, table: string): UniqueIndex[] {
  const indexes = db.all<{ name: string; origin: string; partial: number }>(
    'SELECT name, origin, partial FROM pragma_index_list(?) WHERE "unique" = 1',
    table,
  );
  return indexes.map((index) => {
    const parts = db.all<{ name: string | null; coll: string }>(
      'SELECT name, coll FROM pragma_index_xinfo(?) WHERE key = 1 ORDER BY seqno',
      index.name,
    );
    return {
      primary: index.origin === 'pk',
      trackable: index.partial === 0 && parts.every((part) => part.name !== null),
      columns: parts.map((part) => ({ name: part.name ?? 'an expression', collation: part.coll })),
    };
  });
}

/** More than this on one stack is nothing that anybody writes. */
const WRITERS_MAX = 8;

/** Every trigger that names the table, on whichever table it is, temporary ones included: a guess on the safe side. */
function writersOf(db: Connection, table: string): number {
  const triggers = db.all<{ name: string; sql: string | null }>(
    "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' UNION ALL SELECT name, sql FROM sqlite_temp_schema WHERE type = 'trigger'",
  );
  const naming = triggers.filter(
    ({ name, sql }) => !name.startsWith(TRIGGER_PREFIX) && fold(sql ?? '').includes(fold(table)),
  );
  return Math.min(naming.length, WRITERS_MAX);
}

function unguardedTriggers(db: Connection, table: string): string[] {
  return db
    .all<{ name: string; sql: string }>(
      "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE",
      table,
    )
    .filter(({ name, sql }) => !name.startsWith(TRIGGER_PREFIX) && !/\bsyncing\b/i.test(sql))
    .map(({ name }) => name);
}
