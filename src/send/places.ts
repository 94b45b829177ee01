/**
 * The places for requests that are under way at once, in the order in which they were asked for. Where thousands of loops
 * have something to send at the same moment, the event loop must not make all of those requests before it does anything
 * else, and memory must not hold them all.
 *
 * A request that has no answer after a while gives its place to the next and goes on without it: a crowd of peers that
 * never answer would otherwise hold all places until their requests time out, and delay everybody else.
 */
import type { Clock } from '../clock.ts';

/** An answer mostly takes milliseconds; who takes this long waits for itself alone. */
const LATE_MS = 500;

interface Guest {
  since: number;
  enter(): void;
}

export class Places {
  readonly #max: number;
  readonly #clock: Clock;
  readonly #stopped: AbortSignal;
  /** Those that have a place and those that wait for one, the first first. Who waits has nobody to wait for but these. */
  readonly #inside = new Set<Guest>();
  readonly #waiting = new Set<Guest>();
  #watching = false;

  constructor(max: number, clock: Clock, stopped: AbortSignal) {
    this.#max = max;
    this.#clock = clock;
    this.#stopped = stopped;
  }

  /** Does it when there is a place for it. */
  async pass<T>(work: () => Promise<T>): Promise<T> {
    const guest: Guest = { since: 0, enter: () => {} };
    const entered = new Promise<void>((resolve) => {
      guest.enter = resolve;
    });
    this.#waiting.add(guest);
    this.#admit();
    await entered;
    try {
      return await work();
    } finally {
      // Its place may be another's already.
      if (this.#inside.delete(guest)) this.#admit();
    }
  }

  #admit(): void {
    for (const guest of this.#waiting) {
      if (this.#inside.size >= this.#max) {
        if (!this.#watching) void this.#watch();
        return;
      }
      this.#waiting.delete(guest);
      this.#inside.add(guest);
      guest.since = this.#clock.now();
      guest.enter();
    }
  }

  /** As long as anybody waits: one timer for all. */
  async #watch(): Promise<void> {
    this.#watching = true;
    while (this.#waiting.size > 0 && !this.#stopped.aborted) {
      await this.#clock.sleep(LATE_MS, this.#stopped);
      const now = this.#clock.now();
      for (const guest of this.#inside) {
        if (Math.abs(now - guest.since) < LATE_MS) break;
        this.#inside.delete(guest);
      }
      this.#admit();
    }
    this.#watching = false;
  }
}
