/** Which table and which column is which after a migration, noted so that nodes may be migrated in any order. */
import { keepNames, Names, type TableNames, withRenamedColumns } from '../capture/names.ts';
import { renameUnsaid } from '../capture/unsaid.ts';
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { describeTable, type Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { moveTable, respellColumn, respellTable } from './internal-names.ts';
import type { CheckedMigration, Renaming } from './options.ts';
import { columnNamed, type Pair } from './rows.ts';

/** A name under which others know a table or a column of this node. */
export interface Alias {
  table: string;
  /** Absent where it is the table's own. */
  column?: string;
  was: string;
  /** Changes still travel under it. */
  sent: boolean;
}

export function listAliases(db: Connection): Alias[] {
  return Names.read(db)
    .list()
    .flatMap(({ name: table, was, sentAs, columns }) => [
      ...was.map((one) => ({ table, was: one, sent: one === sentAs })),
      ...columns.flatMap((column) =>
        column.was.map((one) => ({ table, column: column.name, was: one, sent: one === column.sentAs })),
      ),
    ]);
}

/** Nothing travels under an old name any more. */
export function dropAliases(db: Connection): void {
  for (const names of Names.read(db).list()) {
    const columns = names.columns.map((column) => ({ ...column, sentAs: undefined }));
    keepNames(db, { ...names, sentAs: undefined, columns });
  }
}

/** After the statements of a migration: a table has another name. */
export function noteTable(db: Connection, was: Table[], [from, to]: Renaming): void {
  const given = `renameTable says that "${from}" is "${to}" now`;
  if (exists(db, from) && fold(from) !== fold(to)) throw refused(`${given}, and "${from}" is still there`);
  if (!exists(db, to)) throw refused(`${given}, and there is no "${to}"`);
  moveTable(db, was.find(({ name }) => fold(name) === fold(from))?.name ?? from, describeTable(db, to).name);
}

/** And its columns: which were renamed, which are gone. Refuses what could be either. */
export function noteColumns(db: Connection, was: Table[], options: CheckedMigration): void {
  const tables = was.map((table) => [table, describedAfter(db, table, options)] as const);
  for (const name of options.named) {
    const known = tables.some(([before, now]) => [before.name, now.name].some((one) => fold(one) === fold(name)));
    if (!known) throw refused(`columns of "${name}" are named, and no such table is synced here`);
  }
  for (const [before, now] of tables) {
    const renamed = options.renamedIn(before.name, now.name);
    for (const renaming of renamed) checkRenaming(before, now, renaming);
    const gone = goneFrom(before, now, renamed, options.droppedIn(before.name, now.name));
    const names = withRenamedColumns(Names.read(db).of(now.name), renamed);
    checkTaken(now, names);
    // One that is back is found there among those that were gone, and what others have in it is asked for.
    const dropped = [...new Set([...names.dropped, ...gone])];
    keepNames(db, { ...names, name: now.name, dropped, lost: names.lost.filter((name) => !gone.includes(name)) });
    renameUnsaid(db, now.name, renamed);
  }
}

/** What waits is spelt as everything will be from now on. */
export function respell(db: Connection, { was, now, becomes }: Pair): void {
  respellTable(db, was.wireName, now.wireName);
  for (const column of was.columns) {
    const there = becomes(column);
    if (there) respellColumn(db, now, column.wireName, there.wireName);
  }
}

function describedAfter(db: Connection, table: Table, options: CheckedMigration): Table {
  const to = options.renameTable.find(([from]) => fold(from) === fold(table.name))?.[1] ?? table.name;
  if (exists(db, to)) return describeTable(db, to);
  throw refused(
    `the synced table "${table.name}" is gone`,
    'if it has another name now, say so in renameTable; to give it up, attach without it first',
  );
}

function checkRenaming(before: Table, now: Table, [from, to]: Renaming): void {
  const given = `rename says that "${from}" of "${now.name}" is "${to}" now`;
  if (columnNamed(now, from)) throw refused(`${given}, and "${from}" is still there`);
  if (!columnNamed(now, to)) throw refused(`${given}, and there is no column "${to}"`);
  if (columnNamed(before, from) && columnNamed(before, to)) {
    throw refused(`${given}, but both were there before`, 'then it was dropped, and not renamed');
  }
}

/** The columns that are not there any more. Where others have come in their place, nobody can tell a new name from a new column. */
function goneFrom(before: Table, now: Table, renamed: Renaming[], dropped: string[]): string[] {
  const isRenamed = (name: string, side: 0 | 1): boolean => renamed.some((one) => fold(one[side]) === fold(name));
  const gone = before.columns.map(({ name }) => name).filter((name) => !columnNamed(now, name) && !isRenamed(name, 0));
  const fresh = now.columns.map(({ name }) => name).filter((name) => !columnNamed(before, name) && !isRenamed(name, 1));
  const unsaid = gone.filter((name) => !dropped.some((one) => fold(one) === fold(name)));
  for (const name of dropped) {
    if (columnNamed(now, name)) throw refused(`drop names "${name}" of "${now.name}", and it is still there`);
  }
  const [name] = unsaid;
  if (name !== undefined && fresh.length > 0) {
    throw refused(
      `"${now.name}" has lost "${name}" and got "${fresh.join('", "')}"`,
      `say which it is: rename: { ${now.name}: { ${name}: '${fresh[0]}' } }, or drop: { ${now.name}: ['${name}'] }`,
    );
  }
  return [...gone, ...dropped].map(fold);
}

/** An old name that changes still travel under cannot be that of another column. */
function checkTaken(now: Table, names: TableNames): void {
  for (const { name, sentAs } of names.columns) {
    if (sentAs === undefined || !columnNamed(now, sentAs)) continue;
    throw refused(
      `"${now.name}" has got a column "${sentAs}", the name under which "${name}" still travels`,
      'drop the alias first, when every node is migrated: rowcast aliases -drop',
    );
  }
}

function exists(db: Connection, table: string): boolean {
  const sql = "SELECT 1 AS n FROM main.sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE";
  return db.get(sql, table) !== undefined;
}

function refused(problem: string, hint = 'nothing was changed'): RowcastError {
  return new RowcastError('INVALID_MIGRATION', problem, { hint });
}
