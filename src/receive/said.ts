/** What a batch has said of columns of which nobody had said yet what is in them here: see capture/unsaid.ts. */
import type { Connection } from '../sqlite/connection.ts';
import type { Column, Table } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import type { BatchDocument } from '../wire/read-batch.ts';
import { unsaidColumns } from '../wire/told-json.ts';
import { affine, decode, storedId } from '../wire/values.ts';

/** Is there a row in which something is not known? */
export function isAnythingUnsaid(db: Connection, tables: Table[]): boolean {
  const sql = 'SELECT 1 AS n FROM main._unsaid WHERE table_name = ? LIMIT 1';
  return tables.some(({ unsaid }) => unsaid !== undefined && db.get(sql, unsaid.of) !== undefined);
}

/** The batch has been merged, in this transaction. */
export function heedSaid(db: Connection, tables: Table[], { json }: BatchDocument): void {
  for (const table of tables) for (const column of unsaidColumns(table)) heedColumn(db, table, column, json);
}

/** Known from here on is a value that a change at the time of its row has brought, or found there. */
function heedColumn(db: Connection, table: Table, column: Column, json: BatchDocument['json']): void {
  const aliases = [...table.aliases].filter(([, to]) => to === column).map(([alias]) => alias);
  const keys = [fold(column.name), ...aliases].map(literal).join(', ');
  const field = (key: string): string => `SELECT e.atom FROM json_each(c, '$.row') AS e WHERE ${key} LIMIT 1`;
  const named = (name: string): string => `(${field(`e.key = ${literal(name)} COLLATE NOCASE`)})`;
  const isColumn = `lower(e.key) IN (${keys})`;
  const changes =
    `SELECT ${named(table.id)} AS id, ${named(table.updatedAt)} AS time, (${field(isColumn)}) AS v FROM ` +
    "(SELECT iif(type = 'object', value, '{}') AS c FROM json_each(?, '$.changes') WHERE type = 'object' LIMIT -1) " +
    "WHERE c ->> '$.op' <> 'DELETE' AND (c ->> '$.table') COLLATE NOCASE IN (SELECT value FROM json_each(?)) " +
    `AND EXISTS (${field(isColumn)}) LIMIT -1`;
  const decoded = `SELECT ${storedId('s.id')} AS id, s.time AS time, ${decode('s.v')} AS v FROM (${changes}) AS s LIMIT -1`;
  const [id, time, value] = [table.id, table.updatedAt, column.name].map((name) => `t.${quote(name)}`);
  db.run(
    'DELETE FROM main._unsaid WHERE table_name = ? AND column_name = ? AND row_id IN (' +
      `SELECT ${id} FROM (${decoded}) AS d JOIN ${table.target} AS t ON ${id} = d.id ` +
      `WHERE ${time} = d.time AND ${value} COLLATE BINARY IS ${affine('d.v', column.affinity)})`,
    table.unsaid?.of ?? table.name,
    column.name,
    json,
    JSON.stringify([table.name, ...table.was].map(fold)),
  );
}
