/** What a table looks like to Rowcast, and whether it can be synced at all. */

import { messageOf, RowcastError } from '../errors.ts';
import type { Connection } from './connection.ts';
import { isMachineFault } from './result-codes.ts';
import { GAP } from './reused.ts';
import { fold, inMain, literal, quote } from './sql.ts';
import { type UniqueConstraint, uniqueIndexes } from './unique-indexes.ts';

/** SQLite's five column affinities; BLOB is the one that converts nothing. */
export type Affinity = 'TEXT' | 'INTEGER' | 'REAL' | 'NUMERIC' | 'BLOB';

export interface Column {
  name: string;
  /** The key under which its values travel: its name, or one that it had before and that other nodes still have. */
  wireName: string;
  affinity: Affinity;
  /** NOT NULL without a default: a row cannot be inserted without it. */
  required: boolean;
  /** What ALTER TABLE ADD COLUMN gives to the rows that exist: the declared default, as SQL. */
  fallback: string;
}

export interface Table {
  name: string;
  /** The name under which its changes travel. */
  wireName: string;
  /** Names that the table had before; its changes may come under each of them. */
  was: string[];
  /** Names that columns had before, in lower case, and the columns that they are now. */
  aliases: Map<string, Column>;
  /** Columns that were dropped on purpose, in lower case: what others say of them is not missed. */
  dropped: Set<string>;
  /** The table in a statement of ours: of the main database, whatever temporary table has the same name. */
  target: string;
  /** Stored columns in declaration order; generated ones are left out. */
  columns: Column[];
  /** The names of the generated ones. */
  generated: string[];
  /** The columns' own spelling of the two that the protocol needs. */
  id: string;
  updatedAt: string;
  /** An expression that names one physical row even while `id` is NULL, e.g. `rowid`. */
  rowKey: string;
  /** The names under which a statement may give a row its rowid; none in a table without. */
  rowids: string[];
  uniques: UniqueConstraint[];
  /** How many triggers of the application may write to this table, or be fired by it. */
  writers: number;
  /** A trigger of the application may end a write to this table without a word, by RAISE(IGNORE). */
  ignores: boolean;
  /** A trigger of the application fires for received rows, and what it does may depend on the statement that writes them. */
  fires: boolean;
  /** A constraint of the table, other than its key, may say itself, by ON CONFLICT, what becomes of a row that breaks it. */
  conflicts: boolean;
  warnings: string[];
  /**
   * No tombstone above it was ever collected: what is not live here and comes at or below it may have been deleted.
   * Undefined where tombstones are kept for ever; see capture/floors.ts.
   */
  floor?: number;
  /** Where columns were gone and are back: these, and the table's own name, under which it is noted of which rows. */
  unsaid?: { of: string; columns: string[] };
}

export const INTERNAL_TABLES = [
  '_changes',
  '_meta',
  '_dead_letter',
  '_dead_letter_info',
  '_peer_state',
  '_attachments',
  '_nodes',
  '_names',
  '_tombstones',
  '_stamps',
  '_replaced',
  '_hidden',
  '_unsaid',
  '_conflicts',
  '_arrivals',
] as const;

const COLUMNS_MAX = 1_990;

export const TRIGGER_PREFIX = '_rowcast_';

/**
 * Behind UPDATE or INSERT, in a statement of ours: a constraint of the application's may ask for more than that the statement
 * fails, and would remove another row or leave this one out. Not where none does, because it also counts for what its triggers do.
 */
export function orAbort({ conflicts }: Table): string {
  return conflicts ? ' OR ABORT' : '';
}

/** A condition on the schema table: a trigger, and not one of ours, whose long texts are not worth reading here. */
export const OTHERS_TRIGGER = `type = 'trigger' AND substr(name, 1, ${TRIGGER_PREFIX.length}) <> '${TRIGGER_PREFIX}'`;

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
      wireName: column.name,
      affinity: affinityOf(column.type, listed.strict === 1),
      required: column.nn === 1 && column.dflt === null,
      fallback: fallbackOf(column.dflt),
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

  // A statement that merges a batch has a few columns of its own beside the table's, and SQLite allows 2,000 in all.
  if (columns.length > COLUMNS_MAX) {
    refuse(`has ${columns.length} columns`, `at most ${COLUMNS_MAX} can be synced: move some to a table of their own`);
  }

  const names = new Set(info.map((column) => fold(column.name)));
  const indexes = uniqueIndexes(db, listed.name, names);
  // The key's own is how ids are told apart, the column's is how they are compared: two ids must differ in both.
  const keyCollation = indexes.find((index) => index.primary)?.columns[0]?.collation ?? 'BINARY';
  for (const collation of [keyCollation, collationOf(db, listed.name, id.name)]) {
    if (fold(collation) === 'binary') continue;
    refuse(`compares "id" with collation ${collation}`, 'ids must differ on every node alike: use the default, BINARY');
  }
  const rowids = listed.wr === 0 ? ['rowid', '_rowid_', 'oid'].filter((alias) => !names.has(alias)) : [];
  const unguarded = unguardedTriggers(db, listed.name);
  const table: Table = {
    name: listed.name,
    wireName: listed.name,
    was: [],
    aliases: new Map(),
    dropped: new Set(),
    target: `main.${quote(listed.name)}`,
    columns,
    generated: info.filter((column) => column.hidden > 1).map(({ name }) => name),
    id: id.name,
    updatedAt: updatedAt.name,
    rowKey: rowids[0] ?? quote(id.name),
    rowids,
    uniques: indexes
      .filter((index) => !index.primary)
      .map(({ columns: parts, where }) => ({ columns: parts, ...(where !== undefined && { where }) })),
    writers: writersOf(db, listed.name),
    ignores: triggersOn(db, listed.name).some(({ sql }) => mayIgnore(sql)),
    fires: canTell(db, unguarded),
    conflicts: /\bconflict\b/i.test(declarationOf(db, listed.name).replace(KEY_CLAUSE, '')),
    warnings: [],
  };
  for (const { name, sql } of unguarded) {
    const remedy = "WHEN (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1";
    table.warnings.push(
      `trigger "${name}" on "${listed.name}" also fires while received changes are applied: give it ${remedy} ` +
        (setsTime(sql)
          ? 'as it sets "updated_at", and otherwise the row gets another version on every node that receives it'
          : mayIgnore(sql)
            ? 'unless received changes that it ends by RAISE(IGNORE) are to become dead letters'
            : 'unless that is what you want'),
    );
  }
  table.warnings.push(...columns.flatMap(({ name, fallback }) => unknownDefault(db, listed.name, name, fallback)));
  return table;
}

/**
 * A default may call a function that only another connection has. Nobody notices before a change comes without that column,
 * and that one can then not be applied. SQLite looks functions up when it compiles: nothing is called here.
 */
function unknownDefault(db: Connection, table: string, column: string, fallback: string): string[] {
  if (!fallback.includes('(')) return [];
  try {
    db.all(`EXPLAIN SELECT ${fallback}`);
    return [];
  } catch (error) {
    if (isMachineFault(error)) throw error;
    return [
      `the DEFAULT of "${table}"."${column}" means nothing to this connection (${messageOf(error)}), so batches from nodes ` +
        'that lack the column cannot be applied: give the connection that function before attach',
    ];
  }
}

/**
 * What stands behind DEFAULT, as an expression for our own statements. A name alone, quoted or not, is text there, and would be
 * a column here; and a comment must not take our bracket with it.
 */
function fallbackOf(dflt: string | null): string {
  const told = dflt?.trim() ?? 'NULL';
  const [, double, grave, square, bare] = LONE_NAME.exec(told) ?? [];
  const name = double?.replaceAll('""', '"') ?? grave?.replaceAll('``', '`') ?? square ?? bare;
  if (name !== undefined) return literal(name);
  return told.includes('--') ? `${told}\n` : told;
}

const LONE_NAME =
  /^(?:"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|\[([^\]]*)\]|(?!(?:null|true|false|current_(?:time|date|timestamp))$)([a-z_\u0080-\uffff][\w$\u0080-\uffff]*))$/i;

/**
 * How a column is compared where no statement says otherwise. No pragma tells it, but the first part of a UNION decides what
 * the others' values are equal to; EXPLAIN would tell the name, and keeps the table locked on bun:sqlite.
 */
function collationOf(db: Connection, table: string, column: string): string {
  const differ = (a: string, b: string): boolean =>
    Number(
      db.get(
        `SELECT count(*) AS n FROM (SELECT ${quote(column)} FROM ${inMain(table)} WHERE 0 ` +
          `UNION SELECT ${literal(a)} UNION SELECT ${literal(b)})`,
      )?.n,
    ) === 2;
  if (!differ('a', 'A')) return 'NOCASE';
  if (!differ('a', 'a ')) return 'RTRIM';
  return differ('a', 'á') && differ('ä', 'Ä') && differ('1', '01') ? 'BINARY' : 'of its own';
}

/** As SQLite keeps it: the text of CREATE TABLE, comments included. */
export function declarationOf(db: Connection, table: string): string {
  const declared = db.get<{ sql: string }>(
    "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE",
    table,
  );
  return declared?.sql ?? '';
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

/** Every trigger that names the table, on whichever table it is, temporary ones included: a guess on the safe side. */
function writersOf(db: Connection, table: string): number {
  const triggers = db.all<{ name: string; sql: string | null }>(
    `SELECT name, sql FROM main.sqlite_schema WHERE ${OTHERS_TRIGGER} UNION ALL SELECT name, sql FROM temp.sqlite_schema WHERE ${OTHERS_TRIGGER}`,
  );
  return triggers.filter(({ sql }) => fold(sql ?? '').includes(fold(table))).length;
}

/** Does it set `updated_at`, whatever the write has brought? One that asks for it first stands back where changes bring it. */
function setsTime(sql: string): boolean {
  const [head = ''] = sql.split(/\bbegin\b/i);
  return !/\bupdated_at\b/i.test(head) && /\bset\b(?:(?!\bwhere\b)[^;])*?[\s,("'`[]updated_at["'`\]]?\s*=/i.test(sql);
}

/**
 * Can they tell an UPSERT from an INSERT or UPDATE of its own? Those BEFORE INSERT see one too many; and what the statement says
 * of conflicts goes before what is said by a trigger, by those that it fires, and by the tables that these write to.
 */
function canTell(db: Connection, triggers: { sql: string }[]): boolean {
  const heads = triggers.map(({ sql }) => sql.split(/\bbegin\b/i)[0] ?? '').filter((head) => WRITES.test(head));
  if (heads.length === 0) return false;
  const isAfter = (head: string): boolean => /\bafter\b/i.test(head) && !/\bbefore\b/i.test(head);
  if (heads.some((head) => /\binsert\b/i.test(head) && !isAfter(head))) return true;
  const of = (schema: string): string =>
    `SELECT sql FROM ${schema}.sqlite_schema WHERE type = 'table' OR (${OTHERS_TRIGGER})`;
  const all = db.all<{ sql: string | null }>(`${of('main')} UNION ALL ${of('temp')}`);
  return all.some(({ sql }) => CONFLICT_CLAUSE.test(sql ?? ''));
}

/** Of the key itself, which no row of ours breaks: what is there is updated. */
const KEY_CLAUSE = new RegExp(
  `\\bprimary${GAP}key${GAP}(?:\\(${GAP}[^()]*\\)|\\basc\\b|\\bdesc\\b)?${GAP}on${GAP}conflict\\b`,
  'i',
);

/** In what stands before BEGIN; a name there may have the words, too. One that does not say when it fires does so BEFORE. */
const WRITES = /\b(?:insert|update)\b/i;

const CONFLICT_CLAUSE = new RegExp(
  `\\bconflict\\b|\\breplace${GAP}into\\b|\\bor\\b${GAP}(?:rollback|abort|fail|ignore|replace)\\b`,
  'i',
);

/** A guess on the safe side: comments may stand between the words. */
function mayIgnore(sql: string): boolean {
  return /\braise\b/i.test(sql) && /\bignore\b/i.test(sql);
}

function unguardedTriggers(db: Connection, table: string): { name: string; sql: string }[] {
  return triggersOn(db, table).filter(({ sql }) => !/\bsyncing\b/i.test(sql));
}

/** Temporary ones included: received changes are applied by the connection that has them. */
function triggersOn(db: Connection, table: string): { name: string; sql: string }[] {
  const of = (schema: string): string =>
    `SELECT name, sql, tbl_name FROM ${schema}.sqlite_schema WHERE ${OTHERS_TRIGGER}`;
  const all = `${of('main')} UNION ALL ${of('temp')}`;
  return db.all(`SELECT name, sql FROM (${all}) WHERE tbl_name = ? COLLATE NOCASE`, table);
}

/** Does any table of the database have one? */
export function hasForeignKeys(db: Connection): boolean {
  const sql =
    "SELECT 1 AS n FROM main.sqlite_schema AS m, pragma_foreign_key_list(m.name, 'main') WHERE m.type = 'table' LIMIT 1";
  return db.get(sql) !== undefined;
}
