/** Statements that are kept spelt for a table: to spell one takes longer than to run it for a few rows. */
import type { Table } from '../sqlite/schema.ts';

/** A few for each peer that has other columns. */
const SPELT_MAX = 200;

export class SpeltStatements {
  readonly #tables = new WeakMap<Table, Map<string, string>>();

  of(table: Table, key: string, spell: () => string): string {
    let known = this.#tables.get(table);
    if (!known || known.size > SPELT_MAX) {
      known = new Map();
      this.#tables.set(table, known);
    }
    let sql = known.get(key);
    if (sql === undefined) {
      sql = spell();
      known.set(key, sql);
    }
    return sql;
  }
}
