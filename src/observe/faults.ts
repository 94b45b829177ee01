/**
 * Why what is written here would not last: what has failed at writing to the database, until it has succeeded again: a disk that is full lets a transaction begin and
 * end, and only who wants to write something finds out; and a file that was moved away under the process.
 */
import type { Clock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { OpenFile } from '../sqlite/open-file.ts';

/** Whoever fails tries again within seconds; where nobody does, nobody knows whether it would still fail. */
const LASTS_MS = 60_000;

export class Faults {
  readonly #clock: Clock;
  readonly #file: OpenFile | undefined;
  /** By what was tried. */
  readonly #failed = new Map<string, { message: string; at: number }>();

  /** Without a database of its own, as a hub whose store looks after that. */
  constructor(clock: Clock, db?: Connection) {
    this.#clock = clock;
    this.#file = db && new OpenFile(db);
  }

  /** Somebody else's lock, a body that is no batch and the like are no faults of the database. */
  failed(what: string, error: unknown): void {
    if (!(error instanceof RowcastError) || error.code !== 'DATABASE_FAILED') return;
    this.#failed.set(what, { message: error.message, at: this.#clock.now() });
  }

  succeeded(what: string): void {
    this.#failed.delete(what);
  }

  /** Nothing is acknowledged that would be lost with the process. */
  refuseIfMoved(): void {
    this.#file?.refuseIfMoved();
  }

  problems(): string[] {
    const now = this.#clock.now();
    for (const [what, { at }] of this.#failed) if (Math.abs(now - at) >= LASTS_MS) this.#failed.delete(what);
    const moved = this.#file?.problem;
    const failed = [...this.#failed.values()].map(({ message }) => message);
    return [...new Set(moved === undefined ? failed : [moved, ...failed])];
  }
}
