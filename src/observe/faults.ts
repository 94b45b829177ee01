/**
 * What has failed at writing to the database, until it has succeeded again: a disk that is full lets a transaction begin and
 * end, and only who wants to write something finds out.
 */
import type { Clock } from '../clock.ts';
import { RowcastError } from '../errors.ts';

/** Whoever fails tries again within seconds; where nobody does, nobody knows whether it would still fail. */
const LASTS_MS = 60_000;

export class Faults {
  readonly #clock: Clock;
  /** By what was tried. */
  readonly #failed = new Map<string, { message: string; at: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Somebody else's lock, a body that is no batch and the like are no faults of the database. */
  failed(what: string, error: unknown): void {
    if (!(error instanceof RowcastError) || error.code !== 'DATABASE_FAILED') return;
    this.#failed.set(what, { message: error.message, at: this.#clock.now() });
  }

  succeeded(what: string): void {
    this.#failed.delete(what);
  }

  problems(): string[] {
    const now = this.#clock.now();
    for (const [what, { at }] of this.#failed) if (Math.abs(now - at) >= LASTS_MS) this.#failed.delete(what);
    return [...new Set([...this.#failed.values()].map(({ message }) => message))];
  }
}
