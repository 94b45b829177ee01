/**
 * How far ahead of the local clock the time of a received change may be. One that is further ahead is a wrong clock's or a
 * wrong unit's, and would beat everything that honest clocks write until then. It is neither lowered nor dropped, since
 * nodes that did so would differ: it is kept as a dead letter, `future-stamp`, and merged when its time is near enough.
 * Waiting is delay, and the merge does not care for delay.
 */
import type { Clock } from '../clock.ts';
import { TIMESTAMP_MAX } from '../wire/protocol.ts';

/** Times that can be told from a text end before the year 2192. */
const REGULAR_MAX = 7_000_000_000_000;
/** To so many milliseconds is the bound rounded that a pattern is made of; less than the shortest `maxAheadMs`. */
const STEP_MS = 10_000;

export class TimeLimit {
  readonly #clock: Clock;
  readonly #maxAheadMs: number;
  #regularBelow = 0;

  /** `maxAheadMs` 0: everything is taken, however far ahead it is. */
  constructor(clock: Clock, maxAheadMs: number) {
    this.#clock = clock;
    this.#maxAheadMs = maxAheadMs;
  }

  /** The greatest time that is taken at this moment. */
  get latest(): number {
    if (this.#maxAheadMs === 0) return TIMESTAMP_MAX;
    return Math.min(TIMESTAMP_MAX, this.#clock.now() + this.#maxAheadMs);
  }

  /**
   * A time that is not above `latest`, and above every honest one; it stays the same for half of what is allowed, so that
   * what is made of it, such as a pattern, is seldom made anew.
   */
  regularBelow(latest: number): number {
    if (this.#maxAheadMs === 0) return REGULAR_MAX;
    if (this.#regularBelow > latest || this.#regularBelow < latest - this.#maxAheadMs / 2) {
      this.#regularBelow = Math.min(REGULAR_MAX, Math.floor(latest / STEP_MS) * STEP_MS);
    }
    return this.#regularBelow;
  }

  /** When a change of that version is merged here; null where it is at once. */
  dueAt(version: number): number | null {
    return this.#maxAheadMs === 0 ? null : version - this.#maxAheadMs;
  }

  /** Why a change waits. */
  reasonFor(version: number): string {
    const due = new Date(version - this.#maxAheadMs).toISOString();
    return `updated_at ${version} is too far ahead of the clock here; it is applied when that says ${due}`;
  }
}
