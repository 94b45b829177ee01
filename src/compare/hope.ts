/** Rows that are read without a look at single values, where it turns out that none was needed: see `plainLine`. */
import { messageOf } from '../errors.ts';
import type { Table } from '../sqlite/schema.ts';
import type { Columns } from './ledger.ts';
import { arePlain, type JoinedRows, mayBePlain } from './sqlite-lines.ts';

/** After a piece in which one was needed so many are not tried, because what is odd is seldom alone. */
const ODD_PIECES = 32;

/** What SQLite says to a blob in an array. */
const NO_JSON = /JSON cannot hold BLOB/i;

export class Hope {
  /** How many pieces of a table are not to be tried. */
  readonly #odd = new WeakMap<Table, number>();

  /** Undefined where something may be odd: then it has to be read with a look. */
  of(table: Table, columns: Columns, read: () => JoinedRows): JoinedRows | undefined {
    const odd = this.#odd.get(table) ?? (mayBePlain(table, columns) ? 0 : Infinity);
    this.#odd.set(table, Math.max(0, odd - 1));
    if (odd > 0) return undefined;
    try {
      const joined = read();
      if (arePlain(joined.found)) return joined;
    } catch (error) {
      if (!NO_JSON.test(messageOf(error))) throw error;
    }
    this.#odd.set(table, ODD_PIECES);
    return undefined;
  }
}
