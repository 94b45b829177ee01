/**
 * A row as JSON text, as SQL: each column by its name on the wire, with the value that `encode` makes of it.
 *
 * A row whose values are all ordinary, which comparisons alone decide, is an object of its columns as they are. Any other
 * is put together column by column, by way of the one expression that knows every form.
 */

import type { Affinity, Column, Table } from '../sqlite/schema.ts';
import { conjunction, literal, quote } from '../sqlite/sql.ts';
import { columnByColumn, parts } from './columns.ts';
import { encode, finite, isPrintedExactly, plainText, SAFE } from './values.ts';

/** Pairs per json_object call: SQLite before 3.48 allows 127 arguments. */
const PAIRS_MAX = 60;

/** Of a table nothing else counts. */
type Columns = Pick<Table, 'columns'>;

/** Puts another expression, an integer that JSON carries, in a column's place. */
export interface Replacement {
  column: string;
  by: string;
}

/** For what is written or read often. `source` is NEW, OLD or a table's alias. */
export function rowJson(table: Columns, source: string, replace?: Replacement): string {
  const kept = table.columns.filter(({ name }) => name !== replace?.column);
  // Where a value is NULL its comparisons are, too, and JSON carries it as it is. As a condition alone, SQLite ends each
  // comparison with a jump; as a value, which IS NOT 0 makes of it, it takes twice the steps.
  const isOrdinary = conjunction(kept.map((column) => ordinary(columnOf(column, source), column.affinity)));
  const pairs = table.columns.map((column) => {
    if (column.name === replace?.column) return `${literal(column.wireName)}, ${replace.by}`;
    const value = columnOf(column, source);
    return `${literal(column.wireName)}, ${isText(column) ? plainText(value) : value}`;
  });
  const plain = joined(parts(pairs, PAIRS_MAX).map((some) => `json_object(${some.join(', ')})`));
  return `CASE WHEN NOT ${isOrdinary} THEN ${rareRowJson(table, source, replace)} ELSE ${plain} END`;
}

/** The same text of the same row, for statements that mostly have nothing to do: shorter to compile, and longer to run. */
export function rareRowJson(table: Columns, source: string, replace?: Replacement): string {
  const expression = (column: Column): string =>
    column.name === replace?.column ? replace.by : columnOf(column, source);
  const lines = columnByColumn(table.columns, expression, encode);
  return joined(lines.map(({ from, value }) => `(SELECT json_group_object(k, ${value}) FROM (${from}))`));
}

/** True or NULL only of a value for which `encode` yields the value itself. */
function ordinary(x: string, affinity: Affinity): string {
  switch (affinity) {
    case 'TEXT':
      return `(${x} COLLATE BINARY >= '%' AND ${x} < x'' OR ${x} COLLATE BINARY < '$')`;
    case 'INTEGER':
    case 'NUMERIC':
      return `(${x} BETWEEN -${SAFE} AND ${SAFE} AND ${x} = CAST(${x} AS INTEGER))`;
    case 'REAL':
      return `(${finite(x)} AND ${isPrintedExactly(x)})`;
    case 'BLOB':
      return `(${x} COLLATE BINARY >= '%' AND ${x} < x'')`;
  }
}

/** Is an ordinary value of the column text? */
function isText({ affinity }: Column): boolean {
  return affinity === 'TEXT' || affinity === 'BLOB';
}

function columnOf(column: Column, source: string): string {
  return `${source}.${quote(column.name)}`;
}

/** Several objects as one. No value ends in a brace (they are scalars), so trimming takes exactly the object's own. */
function joined(objects: string[]): string {
  if (objects.length === 1) return objects[0] as string;
  return objects
    .map((object, i) => {
      const opened = i === 0 ? object : `substr(${object}, 2)`;
      return i === objects.length - 1 ? opened : `rtrim(${opened}, '}')`;
    })
    .join(" || ',' || ");
}
