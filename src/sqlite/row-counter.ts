/** How many rows a table has, without ever blocking for long. */
import type { Clock } from '../clock.ts';
import type { Connection } from './connection.ts';
import { inMain, quote } from './sql.ts';

/** Rows counted in one go; about half a millisecond. */
export const COUNT_AT_ONCE = 10_000;

/** Counts large tables a slice at a time, between health() calls, because count(*) of a million rows blocks for 65 ms. */
export class RowCounter {
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #known = new Map<string, number>();
  readonly #counting = new Set<string>();
  #stopped = false;

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  count(table: string, id: string): number {
    const sql = `SELECT count(*) AS n FROM (SELECT 1 FROM ${inMain(table)} LIMIT ${COUNT_AT_ONCE})`;
    const few = Number(this.#db.get(sql)?.n);
    if (few < COUNT_AT_ONCE) return few;
    if (!this.#counting.has(table)) void this.#countSlowly(table, id);
    return Math.max(this.#known.get(table) ?? 0, few);
  }

  stop(): void {
    this.#stopped = true;
  }

  async #countSlowly(table: string, id: string): Promise<void> {
    this.#counting.add(table);
    const slice = (bound: string): string =>
      `SELECT count(*) AS n, max(id) AS last FROM (SELECT ${quote(id)} AS id FROM ${inMain(table)} WHERE ${quote(id)} ${bound} ORDER BY ${quote(id)} LIMIT 5000)`;
    try {
      let total = 0;
      let found = this.#db.get<{ n: number; last: string | null }>(slice('IS NOT NULL'));
      while (found && found.n > 0 && found.last !== null) {
        total += found.n;
        await this.#clock.sleep(1);
        if (this.#stopped) return;
        found = this.#db.get<{ n: number; last: string | null }>(slice('> ?'), found.last);
      }
      this.#known.set(table, total);
    } catch {
      // The table went away or the database was closed meanwhile: the next health() call says so.
    } finally {
      this.#counting.delete(table);
    }
  }
}
