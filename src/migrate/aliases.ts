/** Which table and which column is which after a migration, noted so that nodes may be migrated in any order. */
import { freeing } from '../capture/former-names.ts';
import { hadBefore, keepNames, Names, type TableNames, withRenamedColumns } from '../capture/names.ts';
import { renameUnsaid } from '../capture/unsaid.ts';
import { named, RowcastError, suggest } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { describeTable, type Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { moveTable, respellColumn, respellLost, respellTable } from './internal-names.ts';
import type { CheckedMigration, Renaming } from './options.ts';
import { columnNamed, type Pair } from './rows.ts';

/** A name under which others know a table or a column of this node, or knew one that is gone. */
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

/** How an alias is named to whoever asks for it: `orders`, or `items.name`. */
export function spelt({ table, column, was }: Alias): string {
  return column === undefined ? was : `${table}.${was}`;
}

/** Nobody has anything under that name any more: it is no longer understood here, and free. */
export function forgetAlias(db: Connection, name: unknown): void {
  const known = listAliases(db);
  const isMeant = (one: Alias): boolean => typeof name === 'string' && fold(spelt(one)) === fold(name);
  const gone = goneColumns(db).find(isMeant);
  if (gone) {
    forgetGone(db, gone);
    return;
  }
  const alias = known.find(isMeant);
  if (!alias) {
    throw new RowcastError('INVALID_OPTION', `no table or column here had the name ${named(name)} before`, {
      hint: known.length === 0 ? 'none had another name' : `those that had one: ${known.map(spelt).join(', ')}`,
    });
  }
  const { table, column, was, sent } = alias;
  const now = column === undefined ? `"${table}"` : `"${column}" of "${table}"`;
  if (sent) {
    const hint = 'send the new names first, when every node is migrated: rowcast aliases -drop; nothing was changed';
    throw new RowcastError('INVALID_MIGRATION', `${now} still travels as "${was}"`, { hint });
  }
  const names = Names.read(db).of(table);
  refuseUnderLetters(db, names, alias);
  const without = (some: string[]): string[] => some.filter((one) => one !== was);
  if (column === undefined) keepNames(db, { ...names, was: without(names.was) });
  else {
    respellLost(db, table, was, column);
    const columns = names.columns.map((one) => (one.name === column ? { ...one, was: without(one.was) } : one));
    keepNames(db, { ...names, columns });
  }
}

/** Columns that are gone, under the names that they had. */
function goneColumns(db: Connection): (Alias & { column: string })[] {
  return Names.read(db)
    .list()
    .flatMap(({ name: table, dropped, lost }) =>
      [...dropped, ...lost].map((column) => ({ table, column, was: column, sent: false })),
    );
}

function forgetGone(db: Connection, alias: Alias & { column: string }): void {
  const names = Names.read(db).of(alias.table);
  refuseUnderLetters(db, names, alias);
  const without = (some: string[]): string[] => some.filter((one) => one !== alias.column);
  keepNames(db, { ...names, dropped: without(names.dropped), lost: without(names.lost) });
}

function refuseUnderLetters(db: Connection, names: TableNames, alias: Alias): void {
  const letters = lettersUnder(db, names, alias);
  if (letters === 0) return;
  const { table, column, was } = alias;
  const now = column === undefined ? `"${table}"` : `"${column}" of "${table}"`;
  const problem = `${letters} dead ${letters === 1 ? 'letter speaks' : 'letters speak'} of ${now} as "${was}"`;
  throw refused(problem, 'retry or discard them first: rowcast dead-letters; nothing was changed');
}

/** After the statements of a migration: a table has another name. */
export function noteTable(db: Connection, was: Table[], [from, to]: Renaming): void {
  const given = `renameTable says that "${from}" is "${to}" now`;
  if (exists(db, from) && fold(from) !== fold(to)) throw refused(`${given}, and "${from}" is still there`);
  if (!exists(db, to)) throw refused(`${given}, and there is no "${to}"`);
  const former = Names.read(db).presentName(to);
  if (former !== undefined && fold(former) !== fold(from)) {
    throw refused(
      `${given}, and "${former}" had that name before: others may still have rows of it there`,
      freeing(to),
    );
  }
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
    checkGone(Names.read(db).of(now.name), renamed);
    const gone = goneFrom(before, now, renamed, options.droppedIn(before.name, now.name));
    const names = withRenamedColumns(Names.read(db).of(now.name), renamed);
    checkTaken(before, now, names);
    // One that is back is found there among those that were gone, and what others have in it is asked for.
    const dropped = [...new Set([...names.dropped, ...gone])];
    // What is gone does not travel.
    const columns = names.columns.map((one) => (gone.includes(fold(one.name)) ? { ...one, sentAs: undefined } : one));
    keepNames(db, { ...names, columns, dropped, lost: names.lost.filter((name) => !gone.includes(name)) });
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
  if (fold(from) === fold(to)) {
    throw refused(`${given}, which differs in case alone`, 'leave it out of rename: names are the same in any case');
  }
  if (columnNamed(now, from)) throw refused(`${given}, and "${from}" is still there`);
  if (!columnNamed(now, to)) throw refused(`${given}, and there is no column "${to}"`);
  if (!columnNamed(before, from) && !columnNamed(before, to)) {
    throw refused(
      `${given}, and there was no column "${from}"${suggest(
        from,
        before.columns.map(({ name }) => name),
      )}`,
    );
  }
  if (columnNamed(before, from) && columnNamed(before, to)) {
    throw refused(`${given}, but both were there before`, 'then it was dropped, and not renamed');
  }
}

/** Nor is the name of a column that is gone free for one that is renamed: what others have under both would become one. */
function checkGone(names: TableNames, renamed: Renaming[]): void {
  const gone = [...names.dropped, ...names.lost];
  const [from, to] = renamed.find(([, name]) => gone.includes(fold(name))) ?? [];
  if (from === undefined || to === undefined) return;
  throw refused(
    `"${from}" of "${names.name}" has got the name "${to}", which a column had that is gone: a node that still has that one, ` +
      `a hub or a backup has its values under it, and those would come into "${from}"`,
    freeing(`${names.name}.${to}`),
  );
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

/** A name that a column had before cannot be that of another: not while changes travel under it, nor afterwards. */
function checkTaken(before: Table, now: Table, names: TableNames): void {
  for (const column of names.columns) {
    const { name, sentAs } = column;
    if (sentAs !== undefined && columnNamed(now, sentAs)) {
      throw refused(
        `"${now.name}" has got a column "${sentAs}", the name under which "${name}" still travels`,
        'drop the alias first, when every node is migrated: rowcast aliases -drop',
      );
    }
    const fresh = now.columns.find((one) => hadBefore(column, one.name) && !columnNamed(before, one.name));
    if (!fresh) continue;
    throw refused(
      `"${now.name}" has got a column "${fresh.name}", the name that "${name}" had before: a hub or a backup may still ` +
        `have values of "${name}" under it, and those would come into the new column`,
      freeing(`${now.name}.${fresh.name}`),
    );
  }
}

/** Dead letters that have kept it under its old name: what is new under that name would be given them. */
function lettersUnder(db: Connection, names: TableNames, { column, was }: Alias): number {
  const tables = column === undefined ? [was] : [names.name, ...names.was];
  const row = "json_each(iif(json_valid(d.row_data), d.row_data, '{}'))";
  const has = column === undefined ? '' : `AND EXISTS (SELECT 1 FROM ${row} AS e WHERE e.key = ? COLLATE NOCASE)`;
  const sql =
    'SELECT count(*) AS n FROM main._dead_letter AS d JOIN main._dead_letter_info AS i ON i.dead_id = d.dead_id ' +
    `WHERE i.table_name COLLATE NOCASE IN (SELECT value FROM json_each(?)) ${has}`;
  return Number(db.get(sql, JSON.stringify(tables), ...(column === undefined ? [] : [was]))?.n);
}

function exists(db: Connection, table: string): boolean {
  const sql = "SELECT 1 AS n FROM main.sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE";
  return db.get(sql, table) !== undefined;
}

function refused(problem: string, hint = 'nothing was changed'): RowcastError {
  return new RowcastError('INVALID_MIGRATION', problem, { hint });
}
