/**
 * A row as JSON text, as SQL: each column by its name on the wire, with the value that `encode` makes of it.
 *
 * SQLite compiles every trigger of a table with each statement that writes to it, and to compile a value in all the forms
 * it may have takes longer than to run it. So those forms are said once and not once a column: a row whose values are all
 * ordinary, which comparisons alone decide, is an object of its columns as they are. Any other is put together
 * column by column, by way of the one expression that knows every form.
 */

import type { Affinity, Column, Table } from '../sqlite/schema.ts';
import { conjunction, literal, quote } from '../sqlite/sql.ts';
import { encode, finite, isPrintedExactly, plainText, SAFE } from './values.ts';

/** Pairs per json_object call: SQLite before 3.48 allows 127 arguments. */
const PAIRS_MAX = 60;

/** Terms of one UNION ALL: SQLite allows 500. */
const TERMS_MAX = 250;

/** Of a table nothing else counts. */
type Columns = Pick<Table, 'columns'>;

/** Puts another expression, an integer that JSON carries, in a column's place. */
interface Replacement {
  column: string;
  by: string;
}

/** For what is written or read often. `source` is NEW, OLD or a table's alias. */
export function rowJson(table: Columns, source: string, replace?: Replacement): string {
  const kept = table.columns.filter(({ name }) => name !== replace?.column);
  // Where a value is NULL its comparisons are, too, and JSON carries it as it is.
  const isOrdinary = `${conjunction(kept.map((column) => ordinary(columnOf(column, source), column.affinity)))} IS NOT 0`;
  const pairs = table.columns.map((column) => {
    if (column.name === replace?.column) return `${literal(column.wireName)}, ${replace.by}`;
    const value = columnOf(column, source);
    return `${literal(column.wireName)}, ${isText(column) ? plainText(value) : value}`;
  });
  const plain = joined(parts(pairs, PAIRS_MAX).map((some) => `json_object(${some.join(', ')})`));
  return `CASE WHEN ${isOrdinary} THEN ${plain} ELSE ${rareRowJson(table, source, replace)} END`;
}

/** The same text of the same row, for statements that mostly have nothing to do: shorter to compile, and longer to run. */
export function rareRowJson(table: Columns, source: string, replace?: Replacement): string {
  // Affinities differ in what they restore when a value is written: all but BLOB make a number of its decimal text.
  const isMixed = new Set(table.columns.map(isBlob)).size > 1;
  const terms = table.columns.map((column) => {
    const value = column.name === replace?.column ? replace.by : columnOf(column, source);
    // The plus takes the column's affinity away: a union has that of its first term, and would compare by it.
    return `SELECT ${literal(column.wireName)} AS k, +${value} AS v${isMixed ? `, ${isBlob(column) ? 1 : 0} AS b` : ''}`;
  });
  const any = isMixed
    ? `CASE b WHEN 1 THEN ${encode('v', 'BLOB')} ELSE ${encode('v', 'NUMERIC')} END`
    : encode('v', isBlob(table.columns[0] as Column) ? 'BLOB' : 'NUMERIC');
  const objects = parts(terms, TERMS_MAX).map(
    (some) => `(SELECT json_group_object(k, ${any}) FROM (${some.join(' UNION ALL ')}))`,
  );
  return joined(objects);
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

function isBlob({ affinity }: Column): boolean {
  return affinity === 'BLOB';
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

function parts<T>(list: T[], size: number): T[][] {
  const found: T[][] = [];
  for (let i = 0; i < list.length; i += size) found.push(list.slice(i, i + size));
  return found;
}
