/**
 * Migrations of the nodes' schemas, each node in its own time. Whatever a table or a column is called on a node, here it
 * has the name from before: what is asked is whether the rows are the same.
 */
import type { MigrateOptions } from '../../src/index.ts';
import type { WireChange, WireRow } from '../support/model.ts';
import type { Disk, TableName } from './disk.ts';
import { stream, weighted } from './random.ts';

/**
 * `alter`: the application adds a column by itself. `rebuild`: it makes the table anew with one more column, and the triggers
 * are gone with the old one. `add`, `fill`: by `migrate`, which also writes to the column. `rename`, `rename-table`: by
 * `migrate`. `alter-rename`: the application renames a column by itself.
 *
 * With `-default` the column is NOT NULL, and its default is below whatever is written to it, as '' and 0 mostly are; with
 * `-middle` it is above some of that.
 *
 * `drop`: a column goes, by `migrate`. `rebuild-drop`: the application would drop it by itself, which SQLite refuses while our
 * triggers name the column, and makes the table anew without it.
 */
export type Migration =
  | 'alter'
  | 'rebuild'
  | 'add'
  | 'fill'
  | 'rename'
  | 'alter-rename'
  | 'rename-table'
  | 'drop'
  | 'rebuild-drop'
  | `${'alter' | 'add' | 'fill'}-default`
  | `${'alter' | 'add' | 'fill'}-middle`;

export const MIGRATIONS: [Migration, number][] = [
  ['alter', 6],
  ['rebuild', 2],
  ['add', 3],
  ['fill', 3],
  ['rename', 3],
  ['alter-rename', 2],
  ['rename-table', 3],
];

/** What becomes of a seed's migration in some of the schedules: drawn on its own, so that the others stay what they are. */
const ALSO: Partial<Record<Migration, [Migration, number][]>> = {
  alter: [
    ['alter', 3],
    ['alter-default', 2],
    ['alter-middle', 1],
  ],
  add: [
    ['add', 3],
    ['add-default', 2],
    ['add-middle', 1],
  ],
  rebuild: [
    ['rebuild', 1],
    ['rebuild-drop', 1],
  ],
  rename: [
    ['rename', 1],
    ['drop', 1],
  ],
  'rename-table': [
    ['rename-table', 2],
    ['drop', 1],
  ],
  fill: [
    ['fill', 3],
    ['fill-default', 2],
    ['fill-middle', 1],
  ],
};

export function migrationOf(seed: number): Migration {
  const drawn = weighted(stream(seed, 'migration'), MIGRATIONS);
  return weighted(stream(seed, 'migration', 'also'), ALSO[drawn] ?? [[drawn, 1]]);
}

/** The column that a node has after its migration. */
export const NEW_COLUMN = 'extra';

/** Nodes have different columns until all are migrated; otherwise only the names differ. */
export function addsColumn(migration: Migration | undefined): boolean {
  return migration !== undefined && /^(alter|rebuild|add|fill)(?!-rename|-drop)/.test(migration);
}

/** The column that a node has until its migration. In the end it is nobody's, and what is in it counts nowhere here. */
export const OLD_COLUMN = 'score';

export function dropsColumn(migration: Migration | undefined): boolean {
  return migration === 'drop' || migration === 'rebuild-drop';
}

/** Is the column still there? */
export function hasOldColumn({ migrated, migration }: Disk): boolean {
  return !(migrated && dropsColumn(migration));
}

/** What the new column has in a row whose writer has said nothing of it. */
export function unsaidIn(migration: Migration | undefined): string | null {
  if (migration?.endsWith('-default')) return '';
  return isMiddling(migration) ? 'y' : null;
}

/**
 * Is the default above some of what is written? Then a row that has it, and another one of the same time that has what
 * somebody has written there, do not come to the same wherever they meet: docs/migrations.md says so.
 */
export function isMiddling(migration: Migration | undefined): boolean {
  return migration?.endsWith('-middle') ?? false;
}

/** As CREATE TABLE and ADD COLUMN say it. */
export function newColumnSql(migration: Migration | undefined): string {
  const unsaid = unsaidIn(migration);
  return `${NEW_COLUMN} TEXT${unsaid === null ? '' : ` NOT NULL DEFAULT '${unsaid}'`}`;
}

/** What is given to `migrate`. Undefined where the application does it by itself. */
export function migrationFor(migration: Migration): { sql: string; options: MigrateOptions } | undefined {
  const add = `ALTER TABLE items ADD COLUMN ${newColumnSql(migration)}`;
  switch (migration) {
    case 'add':
    case 'add-default':
    case 'add-middle':
      return { sql: add, options: { backfill: false } };
    case 'fill':
    case 'fill-default':
    case 'fill-middle':
      return { sql: `${add}; UPDATE items SET ${NEW_COLUMN} = 'was ' || id WHERE value IS NOT NULL`, options: {} };
    case 'rename':
      return { sql: RENAME, options: { rename: { items: { name: 'title' } } } };
    case 'drop':
      return { sql: DROP, options: SAID_TO_BE_DROPPED };
    case 'rename-table':
      return { sql: 'ALTER TABLE items RENAME TO things', options: { renameTable: { items: 'things' } } };
    default:
      return undefined;
  }
}

/** What tells a node that a column which it does not have will not come. */
export const SAID_TO_BE_DROPPED: MigrateOptions = { drop: { items: [OLD_COLUMN] } };

/** What the application runs by itself. */
export function ownStatements(migration: Migration, rebuilt: string[]): string[] {
  if (migration === 'rebuild' || migration === 'rebuild-drop') return rebuilt;
  return [migration === 'alter-rename' ? RENAME : `ALTER TABLE items ADD COLUMN ${newColumnSql(migration)}`];
}

export const DROP = `ALTER TABLE items DROP COLUMN ${OLD_COLUMN}`;
const RENAME = 'ALTER TABLE items RENAME COLUMN name TO title';

/** Is the schema on a disk the newer one? */
export function isMigrated(disk: Disk): boolean {
  if (disk.migration === undefined || disk.kind === 'hub') return false;
  if (disk.migration === 'rename-table')
    return disk.all("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'things'").length > 0;
  const has = (column: string): boolean =>
    disk.all("SELECT 1 FROM pragma_table_info('items') WHERE name = ?", column).length > 0;
  if (dropsColumn(disk.migration)) return has('id') && !has(OLD_COLUMN);
  return has(addsColumn(disk.migration) ? NEW_COLUMN : 'title');
}

/** What a table is called on a disk. */
export function tableOn({ migrated, migration }: Disk, table: TableName): string {
  return migrated && migration === 'rename-table' && table === 'items' ? 'things' : table;
}

/** The table that has this name on a disk or on the wire. */
export function tableNamed(name: string): TableName {
  return (name === 'things' ? 'items' : name) as TableName;
}

/** What a column of a table is called on a disk. */
export function columnOn({ migrated, migration }: Disk, table: TableName, column: string): string {
  const isRenamed = migrated && (migration === 'rename' || migration === 'alter-rename');
  return isRenamed && table === 'items' && column === 'name' ? 'title' : column;
}

/** A change as it travels, under whichever of the names. */
export function inOldNames(change: WireChange, migration: Migration | undefined): WireChange {
  const { table, row } = change;
  if (table === 'things') return { ...change, table: 'items' };
  if (!row || (!('title' in row) && !dropsColumn(migration))) return change;
  return { ...change, row: withOldNames(row, migration) };
}

/** The row of one, without a column that goes. */
export function withOldNames(given: WireRow, migration: Migration | undefined): WireRow {
  const { title, ...row } = given;
  if (title !== undefined) return { ...row, name: title };
  if (!dropsColumn(migration)) return row;
  const { [OLD_COLUMN]: _, ...left } = row;
  return left;
}

/** A statement of the application's, in the names that a disk has. */
export function spelt(disk: Disk, sql: string): string {
  const column = columnOn(disk, 'items', 'name');
  return sql.replaceAll(/\bname\b/g, column).replaceAll(/\bitems\b/g, tableOn(disk, 'items'));
}
