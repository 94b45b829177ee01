/** The canonical text of a row, as SQL: by it two versions with the same time are ordered, everywhere alike. */

import type { Affinity, Column } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { columnByColumn } from './columns.ts';
import { encode, finite, scaled, wireTextContent } from './values.ts';

/**
 * The given columns in the order of their folded names, each as its wire value in JSON and a newline. JSON text holds no
 * raw newline, so nothing can imitate a column's end. NULL is the empty text, below everything: a column that one node has
 * not filled yet never beats one that another node has.
 */
export function content(columns: Column[], expression: (column: Column) => string): string {
  const sorted = columns.toSorted((a, b) => (fold(a.wireName) < fold(b.wireName) ? -1 : 1));
  const texts = columnByColumn(sorted, expression, contentValue).map(
    ({ from, value }) =>
      `(SELECT group_concat(line, '') FROM (SELECT iif(v IS NULL, '', ${value}) || char(10) AS line FROM (${from})))`,
  );
  return texts.join(' || ');
}

/** The same of a row as it travels, with all its keys; of several spellings of one the first. Null is nothing there too. */
export function contentOfWire(row: string): string {
  return (
    `(SELECT group_concat(line, '') FROM (SELECT ${WIRE_LINE} AS line, min(e.id) FROM json_each(${row}) AS e ` +
    'GROUP BY lower(e.key) ORDER BY lower(e.key)))'
  );
}

/** A line of that, given `e` of json_each: numbers as a node would write them; text is on the wire as it was written. */
export const WIRE_LINE =
  "CASE WHEN e.type = 'null' THEN '' WHEN typeof(e.value) = 'text' THEN " +
  `${wireTextContent('e.value')} ELSE ${contentValue('e.value', 'NUMERIC')} END || char(10)`;

/**
 * One value in the content of a row. A finite REAL stands there as `<m>p<e>`, which is m * 1024^e with 2^52 <= |m| < 2^62:
 * the digits that SQLite prints are not the same in all its versions, and multiplying by a power of two is exact in all.
 */
function contentValue(x: string, affinity: Affinity): string {
  const json = `json_quote(${encode(x, affinity)})`;
  return `CASE WHEN typeof(${x}) = 'real' AND ${finite(x)} AND ${x} <> 0 THEN ${scaled(x)} ELSE ${json} END`;
}
