/**
 * The columns of a row one below the other, as SQL, so that what is done with a value is said once and not once a column:
 * to compile a value in all the forms that it may have takes longer than to run it, and a statement that writes to a
 * table is compiled with all its triggers.
 */

import type { Affinity, Column } from '../sqlite/schema.ts';
import { literal } from '../sqlite/sql.ts';

/** Terms of one UNION ALL: SQLite allows 500. */
const TERMS_MAX = 250;

/**
 * Parts of the columns, in their order. `from` yields a line for each, with its name on the wire as `k` and its value as
 * `v`; `value` is what `form` makes of that, whatever the affinity of the column.
 */
export function columnByColumn(
  columns: Column[],
  expression: (column: Column) => string,
  form: (x: string, affinity: Affinity) => string,
): { from: string; value: string }[] {
  return parts(columns, TERMS_MAX).map((some) => {
    // Affinities differ in what they restore when a value is written: all but BLOB make a number of its decimal text.
    const isMixed = some.some(isBlob) && !some.every(isBlob);
    const terms = some.map((column) => {
      const kind = isMixed ? `, ${isBlob(column) ? 1 : 0} AS b` : '';
      // The plus takes the column's affinity away, by which the values of all the others would be compared, too.
      return `SELECT ${literal(column.wireName)} AS k, +${expression(column)} AS v${kind}`;
    });
    const value = isMixed
      ? `CASE b WHEN 1 THEN ${form('v', 'BLOB')} ELSE ${form('v', 'NUMERIC')} END`
      : form('v', some.every(isBlob) ? 'BLOB' : 'NUMERIC');
    return { from: terms.join(' UNION ALL '), value };
  });
}

export function parts<T>(list: T[], size: number): T[][] {
  const found: T[][] = [];
  for (let i = 0; i < list.length; i += size) found.push(list.slice(i, i + size));
  return found;
}

function isBlob({ affinity }: Column): boolean {
  return affinity === 'BLOB';
}
