/**
 * How many rows a table has. Counting takes 33 to 65 ms a million rows, so only the first count of a large table is done
 * in one go.
 *
 * The number is exact at the first call, for as long as nobody has written since it was taken, and always for a table
 * of up to EXACT_ROWS rows. A larger one that is written to is counted again in the background, a slice at a time,
 * while somebody goes on asking: its number is then some seconds old.
 */
import type { Clock } from '../clock.ts';
import type { Connection } from './connection.ts';
import { inMain, quote } from './sql.ts';

/** Counted at once whenever it has changed; about two milliseconds. */
export const EXACT_ROWS = 50_000;
const SLICE_ROWS = 5_000;

/** Between two counts in the background: this, or ten times what the last one took. */
const PAUSE_MS = 1_000;
const PAUSE_FACTOR = 10;
/** Background counts end when nobody has asked for this long. */
const ASKED_WITHIN_MS = 120_000;

interface Part {
  column: string;
  value: string;
}

interface Count {
  key: string;
  table: string;
  id: string;
  part: Part | undefined;
  rows: number;
  /** What the database was like when they were counted; undefined where it changed meanwhile. */
  stamp: string | undefined;
  askedAt: number;
  isRunning: boolean;
}

export class RowCounter {
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #counts = new Map<string, Count>();
  readonly #stopped = new AbortController();

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  /**
   * `uncommitted`: the application has a transaction open, and may take back what is counted now. `part`: only the rows with
   * that value, of a table whose primary key is this column and then `id`.
   */
  count(table: string, id: string, uncommitted = false, part?: Part): number {
    const key = part ? `${table} ${part.value}` : table;
    const known = this.#counts.get(key);
    const count = known ?? { key, table, id, part, rows: 0, stamp: undefined, askedAt: 0, isRunning: false };
    const stamp = this.#stamp();
    if (known && count.stamp === stamp) return count.rows;
    if (!known || count.rows <= EXACT_ROWS) {
      count.rows = this.#all(count);
      count.stamp = uncommitted ? undefined : stamp;
      this.#counts.set(key, count);
      return count.rows;
    }
    count.askedAt = this.#clock.now();
    if (!count.isRunning) void this.#keepCurrent(count);
    return count.rows;
  }

  stop(): void {
    this.#stopped.abort();
  }

  /**
   * Changes with every write: `data_version` with those of other connections, `total_changes()` with our own rows, and
   * `schema_version` with our own tables.
   */
  #stamp(): string {
    const pragma = (name: string): unknown => Object.values(this.#db.get(`PRAGMA main.${name}`) ?? {})[0];
    const own = this.#db.get('SELECT total_changes() AS n')?.n;
    return `${pragma('data_version')} ${pragma('schema_version')} ${own}`;
  }

  async #keepCurrent(count: Count): Promise<void> {
    count.isRunning = true;
    try {
      while (!this.#stopped.signal.aborted && this.#clock.now() - count.askedAt < ASKED_WITHIN_MS) {
        const began = this.#clock.now();
        if (this.#stamp() !== count.stamp) await this.#recount(count);
        if (this.#stopped.signal.aborted) return;
        const took = this.#clock.now() - began;
        await this.#clock.sleep(Math.max(PAUSE_MS, PAUSE_FACTOR * took), this.#stopped.signal);
      }
    } catch {
      // The table went away or the database was closed meanwhile: the next health() call says so.
      this.#counts.delete(count.key);
    } finally {
      count.isRunning = false;
    }
  }

  #all({ table, part }: Count): number {
    const { where, values } = within(part);
    return Number(this.#db.get(`SELECT count(*) AS n FROM ${inMain(table)} WHERE ${where}`, ...values)?.n);
  }

  async #recount(count: Count): Promise<void> {
    const stamp = this.#stamp();
    const id = quote(count.id);
    const { where, values } = within(count.part);
    const from = `FROM ${inMain(count.table)} WHERE ${where}`;
    const slice = (bound: string): string =>
      'SELECT count(*) AS n, max(id) AS last FROM ' +
      `(SELECT ${id} AS id ${from} AND ${id} ${bound} ORDER BY ${id} LIMIT ${SLICE_ROWS})`;
    // Rows without an id are few, and found by the same index.
    let rows = Number(this.#db.get(`SELECT count(*) AS n ${from} AND ${id} IS NULL`, ...values)?.n);
    let found = this.#db.get<{ n: number; last: string | null }>(slice('IS NOT NULL'), ...values);
    while (found && found.n > 0 && found.last !== null) {
      rows += found.n;
      await this.#clock.sleep(1, this.#stopped.signal);
      if (this.#stopped.signal.aborted) return;
      found = this.#db.get<{ n: number; last: string | null }>(slice('> ?'), ...values, found.last);
    }
    count.rows = rows;
    count.stamp = this.#stamp() === stamp ? stamp : undefined;
  }
}

function within(part: Part | undefined): { where: string; values: string[] } {
  return part ? { where: `${quote(part.column)} = ?`, values: [part.value] } : { where: 'true', values: [] };
}
