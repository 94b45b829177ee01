/** Rows that are read without a look at single values, where it turns out that none was needed: see `plainLine`. */
import type { Table } from '../sqlite/schema.ts';
import type { Columns } from './ledger.ts';
import { arePlain, type JoinedRows, mayBePlain } from './sqlite-lines.ts';

/** After a piece in which one was needed so many are not tried, because what is odd is seldom alone. */
const ODD_PIECES = 32;

export class Hope {
  /** How many pieces of a table are not to be tried. */
  readonly #odd = new WeakMap<Table, number>();

  /** Undefined where something may be odd: then it has to be read with a look. */
  of(table: Table, columns: Columns, read: () => JoinedRows): JoinedRows | undefined {
    const odd = this.#odd.get(table) ?? (mayBePlain(table, columns) ? 0 : Infinity);
    this.#odd.set(table, Math.max(0, odd - 1));
    if (odd > 0) return undefined;
    const joined = read();
    if (arePlain(joined.found)) return joined;
    this.#odd.set(table, ODD_PIECES);
    return undefined;
  }
}
