/**
 * Migrations of the nodes' schemas, each node in its own time. Whatever a table or a column is called on a node, here it
 * has the name from before: what is asked is whether the rows are the same.
 */
import type { MigrateOptions } from '../../src/index.ts';
import type { WireChange, WireRow } from '../support/model.ts';
import type { Disk, TableName } from './disk.ts';

/**
 * `alter`: the application adds a column by itself. `rebuild`: it makes the table anew with one more column, and the triggers
 * are gone with the old one. `add`, `fill`: by `migrate`, which also writes to the column. `rename`, `rename-table`: by
 * `migrate`. `alter-rename`: the application renames a column by itself.
 */
export type Migration = 'alter' | 'rebuild' | 'add' | 'fill' | 'rename' | 'alter-rename' | 'rename-table';

export const MIGRATIONS: [Migration, number][] = [
  ['alter', 6],
  ['rebuild', 2],
  ['add', 3],
  ['fill', 3],
  ['rename', 3],
  ['alter-rename', 2],
  ['rename-table', 3],
];

/** The column that a node has after its migration. */
export const NEW_COLUMN = 'extra';

/** Nodes have different columns until all are migrated; otherwise only the names differ. */
export function addsColumn(migration: Migration | undefined): boolean {
  return migration === 'alter' || migration === 'rebuild' || migration === 'add' || migration === 'fill';
}

/** What is given to `migrate`. Undefined where the application does it by itself. */
export function migrationFor(migration: Migration): { sql: string; options: MigrateOptions } | undefined {
  switch (migration) {
    case 'add':
      return { sql: ADD, options: { backfill: false } };
    case 'fill':
      return { sql: `${ADD}; UPDATE items SET ${NEW_COLUMN} = 'was ' || id WHERE value IS NOT NULL`, options: {} };
    case 'rename':
      return { sql: RENAME, options: { rename: { items: { name: 'title' } } } };
    case 'rename-table':
      return { sql: 'ALTER TABLE items RENAME TO things', options: { renameTable: { items: 'things' } } };
    default:
      return undefined;
  }
}

/** What the application runs by itself. */
export function ownStatements(migration: Migration, rebuilt: string[]): string[] {
  return migration === 'rebuild' ? rebuilt : [migration === 'alter' ? ADD : RENAME];
}

const ADD = `ALTER TABLE items ADD COLUMN ${NEW_COLUMN} TEXT`;
const RENAME = 'ALTER TABLE items RENAME COLUMN name TO title';

/** Is the schema on a disk the newer one? */
export function isMigrated(disk: Disk): boolean {
  if (disk.migration === undefined || disk.kind === 'hub') return false;
  if (disk.migration === 'rename-table')
    return disk.all("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'things'").length > 0;
  const column = addsColumn(disk.migration) ? NEW_COLUMN : 'title';
  return disk.all("SELECT 1 FROM pragma_table_info('items') WHERE name = ?", column).length > 0;
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
export function inOldNames(change: WireChange): WireChange {
  const { table, row } = change;
  if (table === 'things') return { ...change, table: 'items' };
  return row && 'title' in row ? { ...change, row: withOldNames(row) } : change;
}

/** The row of one. */
export function withOldNames({ title, ...row }: WireRow): WireRow {
  return title === undefined ? row : { ...row, name: title };
}

/** A statement of the application's, in the names that a disk has. */
export function spelt(disk: Disk, sql: string): string {
  const column = columnOn(disk, 'items', 'name');
  return sql.replaceAll(/\bname\b/g, column).replaceAll(/\bitems\b/g, tableOn(disk, 'items'));
}
