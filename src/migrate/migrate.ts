/**
 * A migration: the application's own statements, run in one transaction together with all that Rowcast has to do about
 * them. Whatever is thrown on the way takes everything back, the triggers included.
 */
import type { Registry } from '../capture/registry.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Connection, Database } from '../sqlite/connection.ts';
import { TEMPORARY } from '../sqlite/open-file.ts';
import { isCode } from '../sqlite/result-codes.ts';
import { INTERNAL_TABLES, type Table } from '../sqlite/schema.ts';
import { fold, inMain, literal } from '../sqlite/sql.ts';
import { type Alias, dropAliases, forgetAlias, listAliases, noteColumns, noteTable, respell } from './aliases.ts';
import { ForeignKeys } from './foreign-keys.ts';
import { type CheckedMigration, type MigrateOptions, type Migration, readOptions } from './options.ts';
import { Before, columnNamed, type Pair } from './rows.ts';
import { isFrame, isRollback, statementsIn } from './statements.ts';

/** The database that is migrated: `handle` is the application's own, and the same connection as `db`. */
export interface Subject {
  db: Connection;
  handle: Database;
  registry: Registry;
  /** Told what is being done: each of these may take long. */
  at?(phase: string): void;
}

export function migrate(subject: Subject, migration: Migration, given: MigrateOptions = {}): void {
  const { db, handle, registry, at = () => {} } = subject;
  const options = readOptions(migration, given);
  const before = new Before(db);
  const foreignKeys = new ForeignKeys(db);
  const counts = new Map<Table, number>();
  let was: Table[] = [];
  let hasRun = false;
  const change = (): void =>
    registry.change({
      added: options.addTables,
      before: (tables) => {
        at('noting how the rows are');
        was = tables;
        foreignKeys.note();
        if (options.backfill) before.keep(tables);
        else for (const table of tables) counts.set(table, rowsIn(db, table));
      },
      alter: () => {
        const written = rowsWritten(db);
        const ours = tablesOfOurs(db);
        run({ db, handle, at }, migration);
        hasRun = true;
        refuseWithoutOurs(ours, tablesOfOurs(db));
        if (!options.backfill && rowsWritten(db) !== written) throw rowsChanged();
        for (const renaming of options.renameTable) noteTable(db, was, renaming);
        noteColumns(db, was, options);
      },
      after: (now) => {
        at('finding the rows that have changed');
        const leftOut: string[] = [];
        for (const pair of was.map((table) => pairOf(table, now, options))) {
          respell(db, pair);
          leftOut.push(...before.recordChanges(pair));
          if (!options.backfill && rowsIn(db, pair.now) !== counts.get(pair.was)) throw rowsChanged();
        }
        before.release();
        foreignKeys.check();
        return leftOut.map((message) => ['left-out', message]);
      },
    });
  guarded(registry, () => {
    try {
      change();
    } catch (error) {
      // What the migration itself has thrown is the caller's.
      throw hasRun && isCode(error, 'ERROR') ? cannotGoOn(error) : error;
    }
  });
}

/** From here on changes travel under the names that tables and columns have here. The old ones are still understood. */
export function sendNewNames({ db, registry }: Omit<Subject, 'handle'>): void {
  let was: Table[] = [];
  guarded(registry, () =>
    registry.change({
      added: [],
      before: (tables) => {
        was = tables;
      },
      alter: () => dropAliases(db),
      after: (now) => {
        for (const table of was) respell(db, pairOf(table, now, readOptions('', {})));
        return [];
      },
    }),
  );
}

/** Nobody has anything under these names any more, all of them or none: they are no longer understood here, and free. */
export function forgetNames({ db, registry }: Omit<Subject, 'handle'>, names: unknown[]): void {
  const alter = (): void => names.forEach((name) => void forgetAlias(db, name));
  guarded(registry, () => registry.change({ added: [], before: () => {}, alter, after: () => [] }));
}

/** What a manager offers of these; `change` runs them on its database. */
export function aliasesFor(db: Connection, change: (work: (subject: Subject) => void) => void) {
  return {
    list: (): Alias[] => listAliases(db),
    drop: (): void => change(sendNewNames),
    forget: (name: string): void => change((subject) => forgetNames(subject, [name])),
  };
}

/**
 * A migration that has ended the transaction by itself has left the tables without triggers. They are put back at once;
 * that they were away is then noticed as it always is.
 */
function guarded(registry: Registry, change: () => void): void {
  try {
    change();
  } catch (error) {
    try {
      registry.refresh();
    } catch {
      // The next tick tries again, and says what is wrong.
    }
    throw error;
  }
}

function run({ db, handle, at }: Required<Omit<Subject, 'registry'>>, migration: Migration): void {
  db.exec('SAVEPOINT rowcast_migration');
  if (typeof migration === 'string') runStatements(db, migration, at);
  else refuseAwaiting(migration(handle) as unknown);
  try {
    db.exec('RELEASE rowcast_migration');
  } catch (error) {
    throw new RowcastError('INVALID_MIGRATION', 'the migration has ended the transaction that it was run in', {
      hint: 'leave BEGIN, COMMIT and ROLLBACK out; what it had done until then may stand, so look at the tables',
      cause: error,
    });
  }
}

function runStatements(db: Connection, sql: string, at: (phase: string) => void): void {
  const end = sql.indexOf('\0');
  if (end >= 0) {
    throw new RowcastError(
      'INVALID_MIGRATION',
      `the SQL has a NUL as its character ${end + 1}, and SQLite reads no further`,
      {
        hint: 'save it as UTF-8, without NUL; nothing was changed',
      },
    );
  }
  const statements = [...statementsIn(sql)].filter((statement) => !isFrame(statement));
  const rollback = statements.findIndex(isRollback);
  if (rollback >= 0) {
    throw new RowcastError(
      'INVALID_MIGRATION',
      `statement ${rollback + 1} of ${statements.length} is ${statements[rollback]}`,
      {
        hint: 'a migration is one transaction, and what fails takes all of it back: leave it out; nothing was changed',
      },
    );
  }
  for (const [i, statement] of statements.entries()) {
    at(`statement ${i + 1} of ${statements.length}`);
    try {
      db.exec(statement);
    } catch (error) {
      const shown = statement.length > SHOWN ? `${statement.slice(0, SHOWN)}...` : statement;
      throw new RowcastError('INVALID_MIGRATION', `${messageOf(error)}, in: ${shown}`, {
        hint: isCode(error, 'FULL') ? NO_ROOM : 'nothing was changed',
        cause: error,
      });
    }
  }
}

const SHOWN = 300;

/** The rows as they were are kept there until the end. */
const NO_ROOM = `make room on the disk of the database, or ${TEMPORARY}; nothing was changed`;

function refuseAwaiting(result: unknown): void {
  if (typeof (result as Promise<unknown> | undefined)?.then !== 'function') return;
  // Whatever becomes of it, the answer is this one.
  (result as Promise<unknown>).then(undefined, () => {});
  throw new RowcastError('INVALID_MIGRATION', 'the migration is asynchronous', {
    hint: 'it must be done when it returns; nothing was changed by it until its first await',
  });
}

function pairOf(was: Table, tables: Table[], options: CheckedMigration): Pair {
  const to = options.renameTable.find(([from]) => fold(from) === fold(was.name))?.[1] ?? was.name;
  const now = tables.find(({ name }) => fold(name) === fold(to)) as Table;
  const renamed = options.renamedIn(was.name, now.name);
  return {
    was,
    now,
    becomes: ({ name }) => columnNamed(now, renamed.find(([from]) => fold(from) === fold(name))?.[1] ?? name),
  };
}

/** Counts no change of the schema, and no row that a dropped table takes along. */
function rowsWritten(db: Connection): number {
  return Number(db.get('SELECT total_changes() AS n')?.n);
}

function rowsIn(db: Connection, table: Table): number {
  return Number(db.get(`SELECT count(*) AS n FROM ${inMain(table.name)}`)?.n);
}

function tablesOfOurs(db: Connection): Map<string, string> {
  const names = INTERNAL_TABLES.map(literal).join(', ');
  const all = db.all<{ name: string; sql: string }>(
    `SELECT name, sql FROM main.sqlite_schema WHERE type = 'table' AND name IN (${names})`,
  );
  return new Map(all.map(({ name, sql }) => [name, sql]));
}

/** They would be made anew without what they held: a tool that makes a database fit its own list of tables drops them. */
function refuseWithoutOurs(before: Map<string, string>, now: Map<string, string>): void {
  for (const [name, sql] of before) {
    if (now.get(name) !== sql) throw cannotGoOn(`it has ${now.has(name) ? 'changed' : 'dropped'} the table ${name}`);
  }
}

function cannotGoOn(cause: unknown): RowcastError {
  return new RowcastError('INVALID_MIGRATION', `replication cannot go on after the migration: ${messageOf(cause)}`, {
    hint: 'leave the tables and triggers alone whose names begin with _; nothing was changed',
    cause,
  });
}

function rowsChanged(): RowcastError {
  return new RowcastError('INVALID_MIGRATION', 'the migration has changed rows, and backfill is false', {
    hint: 'leave backfill out: then these rows are found and sent; nothing was changed',
  });
}
