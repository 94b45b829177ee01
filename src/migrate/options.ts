/** What can be said of a migration besides its statements, checked before anything is touched. */
import { RowcastError } from '../errors.ts';
import type { Database } from '../sqlite/connection.ts';
import { fold } from '../sqlite/sql.ts';

/** The statements: a text of SQL, or a function that runs them on the database that it is given, without awaiting anything. */
export type Migration = string | ((db: Database) => void);

export interface MigrateOptions {
  /** Columns that have another name afterwards, by table: `{ items: { name: 'title' } }`. */
  rename?: Record<string, Record<string, string>>;
  /** Tables that have another name afterwards: `{ items: 'things' }`. */
  renameTable?: Record<string, string>;
  /** Columns that are gone for good, by table; only needed where the table gets others at the same time. */
  drop?: Record<string, string[]>;
  /** Tables that are to be synced from now on; name them to `attach` as well the next time. */
  addTables?: string[];
  /**
   * Find the rows that the statements change and send them. Default true. `false` spares a copy of the synced tables, and
   * refuses a migration that has written rows after all.
   */
  backfill?: boolean;
}

/** An old name and a new one. */
export type Renaming = readonly [from: string, to: string];

export interface CheckedMigration {
  renameTable: Renaming[];
  addTables: string[];
  backfill: boolean;
  /** The columns of a table, by any of its names, that have another name afterwards. */
  renamedIn(...names: string[]): Renaming[];
  droppedIn(...names: string[]): string[];
  /** The tables for which columns are named. */
  named: string[];
}

const KNOWN = ['rename', 'renameTable', 'drop', 'addTables', 'backfill'];

export function readOptions(migration: Migration, given: MigrateOptions): CheckedMigration {
  if (typeof migration !== 'string' && typeof migration !== 'function') {
    throw wrong('a migration must be SQL, or a function that runs it');
  }
  if (!isObject(given)) throw wrong('the options of a migration must be an object');
  for (const key of Object.keys(given)) {
    if (!KNOWN.includes(key)) throw wrong(`migrate has no option "${key}"`, `it has ${KNOWN.join(', ')}`);
  }
  const { rename = {}, renameTable = {}, drop = {}, addTables = [], backfill = true } = given;
  if (typeof backfill !== 'boolean') throw wrong('option "backfill" must be true or false');
  if (!isRecordOf(rename, isNames)) {
    throw wrong('option "rename" must say { table: { old: "new" } }');
  }
  if (!isNames(renameTable)) throw wrong('option "renameTable" must say { old: "new" }');
  if (!isRecordOf(drop, isList)) throw wrong('option "drop" must say { table: ["column"] }');
  if (!isList(addTables)) throw wrong('option "addTables" must be a list of tables');
  for (const [table, columns] of Object.entries(rename)) {
    for (const name of Object.keys(columns)) if (isKey(name)) throw keyRenamed(table, name);
  }
  const of = <T>(record: Record<string, T>, names: string[]): T[] =>
    Object.entries(record).flatMap(([table, value]) => (names.some((one) => fold(one) === fold(table)) ? [value] : []));
  return {
    renameTable: Object.entries(renameTable),
    addTables,
    backfill,
    renamedIn: (...names) => of(rename, names).flatMap((columns) => Object.entries(columns)),
    droppedIn: (...names) => of(drop, names).flat(),
    named: [...Object.keys(rename), ...Object.keys(drop)],
  };
}

function isKey(name: string): boolean {
  return ['id', 'updated_at'].includes(fold(name));
}

function keyRenamed(table: string, name: string): RowcastError {
  return wrong(`"${name}" of "${table}" cannot be renamed`, 'every synced table has id and updated_at');
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isRecordOf<T>(value: unknown, isOne: (one: unknown) => one is T): value is Record<string, T> {
  return isObject(value) && Object.values(value).every(isOne);
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

function isNames(value: unknown): value is Record<string, string> {
  return isObject(value) && Object.values(value).every(isName) && Object.keys(value).every(isName);
}

function isList(value: unknown): value is string[] {
  return Array.isArray(value) && value.every(isName);
}

function wrong(message: string, hint?: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message, hint === undefined ? {} : { hint });
}
