/** Makes the rows of one database those of another that has the same schema: the connection stays, and all it has prepared. */
import type { Raw, RawStatement } from './disk.ts';

interface Target {
  exec(sql: string): unknown;
  prepare(sql: string): RawStatement;
}

interface Table {
  name: string;
  columns: string[];
  /** In the order of which its rows are written again: what is read without an order comes as it did. */
  order: string;
}

export function isSameSchema(one: Raw, other: Raw): boolean {
  const read = (raw: Raw, sql: string): string =>
    (raw.prepare(sql).all() as object[]).map((row) => Object.values(row).join(' ')).join('\n');
  return [
    'PRAGMA schema_version',
    'PRAGMA user_version',
    'SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name',
  ].every((sql) => read(one, sql) === read(other, sql));
}

/** `from` reads integers as bigints: every value keeps its storage class. */
export function takeOver(from: Raw, to: Target): void {
  const tables = tablesIn(from);
  const isNode = tables.some(({ name }) => name === '_meta');
  const copy = (table: Table): void => {
    for (const row of rowsOf(from, table)) insert(to, table, row);
  };
  // As long as it is 1, triggers capture nothing.
  const syncing = "INSERT OR REPLACE INTO _meta (key, value) VALUES ('syncing', 1)";
  to.exec('BEGIN');
  if (isNode) to.prepare(syncing).run();
  for (const { name } of tables) if (name !== '_meta') to.prepare(`DELETE FROM "${name}"`).run();
  for (const table of tables) if (!isLast(table)) copy(table);
  // SQLite itself has counted meanwhile.
  for (const table of tables.filter(isLast)) {
    to.prepare(`DELETE FROM "${table.name}"`).run();
    copy(table);
  }
  to.exec('COMMIT');
}

function isLast({ name }: Table): boolean {
  return name === '_meta' || name === 'sqlite_sequence';
}

function tablesIn(raw: Raw): Table[] {
  const listed = raw
    .prepare(
      'SELECT t.name AS name, t.wr AS wr, json_group_array(c.name) AS columns FROM pragma_table_list AS t, ' +
        "pragma_table_info(t.name) AS c WHERE t.schema = 'main' AND t.type = 'table' AND t.name <> 'sqlite_schema' " +
        'GROUP BY t.name ORDER BY t.name',
    )
    .all() as { name: string; wr: bigint; columns: string }[];
  return listed.map(({ name, wr, columns }) => ({
    name,
    columns: JSON.parse(columns) as string[],
    order: wr === 0n ? 'ORDER BY rowid' : '',
  }));
}

/** Each value after its storage class. */
function rowsOf(raw: Raw, { name, columns, order }: Table): unknown[][] {
  const typed = columns.map((column, i) => `typeof("${column}") AS t${i}, "${column}" AS v${i}`);
  const rows = raw.prepare(`SELECT ${typed.join(', ')} FROM "${name}" ${order}`).all() as object[];
  return rows.map((row) => Object.values(row));
}

function insert(to: Target, { name, columns }: Table, row: unknown[]): void {
  // A real number that is whole would be an integer to one of the bindings.
  const places = columns.map((_, i) => (row[2 * i] === 'real' ? 'CAST(? AS REAL)' : '?'));
  const named = columns.map((column) => `"${column}"`);
  const values = columns.map((_, i) => row[2 * i + 1]);
  to.prepare(`INSERT INTO "${name}" (${named.join(', ')}) VALUES (${places.join(', ')})`).run(...values);
}
