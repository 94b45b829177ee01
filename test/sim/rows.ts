/** Reads what is on a disk, past Rowcast and by plain SQL alone. */
import { versionOf, type WireRow } from '../support/model.ts';
import { type Disk, type TableName, tablesOf } from './disk.ts';
import {
  addsColumn,
  columnOn,
  dropsColumn,
  NEW_COLUMN,
  OLD_COLUMN,
  tableNamed,
  tableOn,
  withOldNames,
} from './migration.ts';
import { type Key, keyOf, type Version, wireValue } from './oracle.ts';

const COLUMNS: Record<TableName, string[]> = {
  items: ['id', 'name', 'value', 'score', 'anything', 'updated_at'],
  notes: ['id', 'item_id', 'body', 'updated_at'],
  people: ['id', 'email', 'nick', 'gone', 'updated_at'],
};

export function columnsOf({ migrated, migration }: Disk, table: TableName): string[] {
  if (table !== 'items') return COLUMNS[table];
  if (dropsColumn(migration)) return COLUMNS.items.filter((name) => name !== OLD_COLUMN);
  return migrated && addsColumn(migration) ? [...COLUMNS.items, NEW_COLUMN] : COLUMNS.items;
}

const TEXTS = new Map<string, string>();

/** Each value twice: its storage class, and itself in a form that JavaScript can hold. */
function selectSql(disk: Disk, table: TableName): string {
  const key = `${table} ${disk.migrated} ${disk.migration}`;
  const known = TEXTS.get(key);
  if (known) return known;
  const columns = columnsOf(disk, table).map((name) => columnOn(disk, table, name));
  const fields = columns.flatMap((name, i) => [
    `typeof(${name}) AS t${i}`,
    `CASE typeof(${name}) WHEN 'blob' THEN hex(${name}) WHEN 'integer' THEN CAST(${name} AS TEXT) ELSE ${name} END AS v${i}`,
  ]);
  const sql = `SELECT ${fields.join(', ')} FROM ${tableOn(disk, table)} ORDER BY id`;
  TEXTS.set(key, sql);
  return sql;
}

const LAST_READ = new WeakMap<Disk, { state: string; rows: Map<Key, WireRow> }>();

/** The rows of all tables as the wire would carry them, each with its version, whether or not that is in the row yet. */
export function rowsOn(disk: Disk): Map<Key, WireRow> {
  const state = `${disk.state} ${disk.migrated}`;
  const last = LAST_READ.get(disk);
  if (last?.state === state) return last.rows;
  const rows = readRows(disk);
  LAST_READ.set(disk, { state, rows });
  return rows;
}

function readRows(disk: Disk): Map<Key, WireRow> {
  return new Map(tablesOf(disk.kind).flatMap((table) => [...rowsOf(disk, table)]));
}

/** Those of one table. */
export function rowsOf(disk: Disk, table: TableName): Map<Key, WireRow> {
  const columns = columnsOf(disk, table);
  const rows = new Map<Key, WireRow>();
  for (const line of disk.all(selectSql(disk, table))) {
    const row: WireRow = {};
    columns.forEach((name, i) => {
      row[name] = wireValue(line[`t${i}`] as string, line[`v${i}`], name === 'anything');
    });
    rows.set(keyOf(table, String(row.id)), row);
  }
  for (const { table: of, id, version } of stampsOn(disk)) {
    const row = of === tableOn(disk, table) ? rows.get(keyOf(table, id)) : undefined;
    if (row && !(typeof row.updated_at === 'number' && row.updated_at >= version)) row.updated_at = version;
  }
  return rows;
}

/** The versions that may not yet be in the rows themselves. */
function stampsOn(disk: Disk): { table: string; id: string; version: number }[] {
  if (!disk.has('_stamps')) return [];
  return disk
    .all('SELECT table_name, row_id, version FROM _stamps')
    .map((line) => ({ table: String(line.table_name), id: String(line.row_id), version: Number(line.version) }));
}

/** A row that does not show its version. */
export function unstampedOn(disk: Disk): Key | undefined {
  for (const table of tablesOf(disk.kind)) {
    const sql =
      `SELECT s.row_id AS id FROM _stamps AS s JOIN ${tableOn(disk, table)} AS t ON t.id = s.row_id WHERE s.table_name = ? ` +
      "AND NOT (typeof(t.updated_at) = 'integer' AND t.updated_at >= s.version)";
    const [found] = disk.all(sql, tableOn(disk, table));
    if (found) return keyOf(table, String(found.id));
  }
  return undefined;
}

/** Every row with the storage class of every value, as one text. */
export function exactRowsOn(disk: Disk): string {
  const values = (table: TableName): unknown[] => disk.all(selectSql(disk, table)).map((line) => Object.values(line));
  return JSON.stringify(tablesOf(disk.kind).map(values));
}

/** The rows that are not in their table, because a stronger one has a UNIQUE value of theirs. */
export function hiddenOn(disk: Disk): Map<Key, WireRow> {
  if (disk.kind !== 'node-uniques') return new Map();
  const hidden = disk.all('SELECT table_name, row_id, row_data FROM _hidden');
  return new Map(
    hidden.map((line) => [
      keyOf(line.table_name as string, line.row_id as string),
      JSON.parse(line.row_data as string) as WireRow,
    ]),
  );
}

/** Are the writes to this table captured? The application has no triggers of its own. */
export function isCaptured(disk: Disk, table: TableName): boolean {
  return (
    disk.all("SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?", tableOn(disk, table)).length > 0
  );
}

/** As a node tells it that does not have the column, or whose triggers do not know it yet. */
export function withoutNewColumn(version: Version): Version {
  const { [NEW_COLUMN]: _, ...row } = version.row;
  return { ...version, row };
}

/** Do the triggers of `items` record the new column? */
export function knowsNewColumn(disk: Disk): boolean {
  const sql = "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'items' AND instr(sql, ?) > 0";
  return disk.all(sql, NEW_COLUMN).length > 0;
}

/** The table that a row belongs to, by its columns. */
export function tableOfRow(row: WireRow): TableName {
  return 'item_id' in row ? 'notes' : 'email' in row ? 'people' : 'items';
}

/** The version that a node has of a row: its live row, visible or hidden, its tombstone, or none. */
export function versionOn(disk: Disk, table: TableName, id: string): Version | undefined {
  const row = rowsOn(disk).get(keyOf(table, id));
  if (row) return versionOf({ op: 'UPDATE', table, row, old_id: null });
  const hidden = hiddenOn(disk).get(keyOf(table, id));
  if (hidden) return versionOf({ op: 'UPDATE', table, row: hidden, old_id: null });
  const sql = 'SELECT version FROM _tombstones WHERE table_name = ? AND row_id = ?';
  const buried = disk.all(sql, tableOn(disk, table), id)[0];
  return buried && { updatedAt: Number(buried.version), isDelete: true, row: { id } };
}

/** The same of a hub. */
export function versionOnHub(disk: Disk, table: string, id: string): Version | undefined {
  const found = disk.all('SELECT op, row_data FROM _hub_rows WHERE table_name = ? AND row_id = ?', table, id)[0];
  if (!found) return undefined;
  return versionOf({ op: found.op as 'DELETE', table, row: hubRow(disk, found.row_data), old_id: id });
}

/** What it knows to have been deleted, and at which version. */
export function deletionsOn({ kind, disk }: { kind: 'node' | 'hub'; disk: Disk }): { key: Key; version: number }[] {
  const sql =
    kind === 'hub'
      ? "SELECT table_name, row_id, updated_at AS version FROM _hub_rows WHERE op = 'DELETE'"
      : 'SELECT table_name, row_id, version FROM _tombstones';
  return disk.all(sql).map((line) => ({
    key: keyOf(tableNamed(String(line.table_name)), String(line.row_id)),
    version: Number(line.version),
  }));
}

/** A row as a hub keeps it. */
export function hubRow({ migration }: Disk, data: unknown): WireRow {
  return withOldNames(JSON.parse(String(data)) as WireRow, migration);
}
