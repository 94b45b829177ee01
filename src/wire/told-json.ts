/**
 * A row as others are told of it, as SQL: without the columns of which nobody has said yet what is in them here.
 *
 * A column that was dropped and is back has its default in every row. That is what ALTER TABLE has given it, and nobody's
 * word: other nodes may have kept the column, and what was written to it. So it is left out of what is told of the row, as
 * by a node that has not got the column, until somebody says something of it: see capture/unsaid.ts.
 */
import type { Column, Table } from '../sqlite/schema.ts';
import { literal, quote } from '../sqlite/sql.ts';
import { type Replacement, rareRowJson, rowJson } from './row-json.ts';

type Told = Pick<Table, 'columns' | 'id' | 'unsaid'>;

/** The columns of a table in which some rows may have what nobody has said; nearly always none. */
export function unsaidColumns({ columns, unsaid }: Pick<Told, 'columns' | 'unsaid'>): Column[] {
  return unsaid ? columns.filter(({ name }) => unsaid.columns.includes(name)) : [];
}

/** True of a row in which a column has what ALTER TABLE gave it, and nobody has said so. */
export function isUnsaid(table: Told, { name, fallback }: Column, source: string, notes = 'main._unsaid'): string {
  const noted =
    `u.table_name = ${literal(table.unsaid?.of ?? '')} AND u.column_name = ${literal(name)} ` +
    `AND u.row_id = ${source}.${quote(table.id)}`;
  return (
    `(${source}.${quote(name)} COLLATE BINARY IS (${fallback}) ` +
    `AND EXISTS (SELECT 1 FROM ${notes} AS u WHERE ${noted}))`
  );
}

export function toldJson(table: Told, source: string, replace?: Replacement): string {
  return withoutUnsaid(table, source, rowJson(table, source, replace), 'main._unsaid');
}

/** The same for triggers, which cannot name a database. */
export function toldByTrigger(table: Told, source: string, replace: Replacement, spell = rowJson): string {
  return withoutUnsaid(table, source, spell(table, source, replace), '_unsaid');
}

export function rarelyTold(table: Told, source: string, replace: Replacement): string {
  return toldByTrigger(table, source, replace, rareRowJson);
}

function withoutUnsaid(table: Told, source: string, row: string, notes: string): string {
  const columns = unsaidColumns(table);
  if (columns.length === 0) return row;
  const unsaid = columns.map((column) => isUnsaid(table, column, source, notes));
  const isSaid = columns.map(({ wireName }, i) => `NOT (e.key = ${literal(wireName)} AND ${unsaid[i]})`);
  // Each value in the very bytes in which it stands there, and in its place.
  const left =
    "(SELECT '{' || group_concat(json_quote(key) || ':' || value, ',') || '}' FROM " +
    '(SELECT e.key AS key, coalesce(o.j -> e.fullkey, json_quote(e.value)) AS value ' +
    `FROM json_each(o.j) AS e WHERE ${isSaid.join(' AND ')} ORDER BY e.id))`;
  return `(SELECT iif(${unsaid.join(' OR ')}, ${left}, o.j) FROM (SELECT ${row} AS j LIMIT -1) AS o)`;
}
