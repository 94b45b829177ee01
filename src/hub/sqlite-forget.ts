/**
 * An earlier hub kept deleted rows with all that was in them. Their content is removed from its file while the hub is at
 * work, a slice at a time; until that is done, what is read for an edge leaves it out (sqlite-read.ts).
 */
import type { Clock } from '../clock.ts';
import type { Connection } from '../sqlite/connection.ts';
import { deletedContent, FORMAT, formatOf } from './sqlite-tables.ts';

/** Rows in one transaction: a few milliseconds, in which no batch is taken. */
const SLICE = 5_000;
/** After a failure (a lock, a full disk), which health reports by itself. */
const AGAIN_MS = 1_000;

export class Forgetting {
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Begins where the file may hold any such row. */
  start(): void {
    if (formatOf(this.#db) < FORMAT) this.#running ??= this.#run();
  }

  /** Resolves when nothing is left to forget, or it was stopped. */
  async done(): Promise<void> {
    await this.#running;
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  /** Rows only ever take a higher place, so what is not behind the walk is still before it. */
  async #run(): Promise<void> {
    let after: number | undefined = Number.MIN_SAFE_INTEGER;
    while (after !== undefined && !this.#stop.signal.aborted) {
      await this.#clock.sleep(0, this.#stop.signal);
      if (this.#stop.signal.aborted) return;
      try {
        after = this.#slice(after);
      } catch {
        await this.#clock.sleep(AGAIN_MS, this.#stop.signal);
      }
    }
  }

  /** Where the slice ended; undefined when it was the last, and the file says so. */
  #slice(after: number): number | undefined {
    return this.#db.transaction(() => {
      const slice = `SELECT seq FROM _hub_rows WHERE seq > ? ORDER BY seq LIMIT ${SLICE}`;
      const end = this.#db.get<{ seq: number | null }>(`SELECT max(seq) AS seq FROM (${slice})`, after)?.seq;
      if (end == null) {
        this.#db.exec(`PRAGMA user_version = ${FORMAT}`);
        return undefined;
      }
      this.#db.run(
        `UPDATE _hub_rows SET row_data = ${deletedContent()} ` +
          `WHERE seq > ? AND seq <= ? AND op = 'DELETE' AND row_data <> ${deletedContent()}`,
        after,
        end,
      );
      return end;
    });
  }
}
