/** Time that stands still until a test moves it, and that remembers every pause it was asked for. */
import { TICK_MS } from '../../src/attach.ts';
import type { Clock } from '../../src/clock.ts';

interface Sleeper {
  at: number;
  wake(): void;
}

export class VirtualClock implements Clock {
  /** Every requested sleep in order, request timeouts included; not the steady tick beside the loops. */
  readonly requested: number[] = [];
  /** Sleeps for which this says true end at once and take the time along: for tests of outcomes, not of delays. */
  skip: (ms: number) => boolean;
  #now = 1_700_000_000_000;
  readonly #sleepers = new Set<Sleeper>();

  constructor(skip: (ms: number) => boolean = () => false) {
    this.skip = skip;
  }

  now(): number {
    return this.#now;
  }

  /** How many sleeps are neither over nor aborted. */
  get pending(): number {
    return this.#sleepers.size;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (ms !== TICK_MS) this.requested.push(ms);
    if (signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const sleeper: Sleeper = {
        at: this.#now + ms,
        wake: () => {
          this.#sleepers.delete(sleeper);
          signal?.removeEventListener('abort', sleeper.wake);
          resolve();
        },
      };
      this.#sleepers.add(sleeper);
      signal?.addEventListener('abort', sleeper.wake, { once: true });
      if (ms === TICK_MS || !this.skip(ms)) return;
      setTimeout(() => {
        this.#now = Math.max(this.#now, sleeper.at);
        sleeper.wake();
      }, 0);
    });
  }

  /** Time passes while somebody works: nobody wakes up meanwhile. */
  shift(ms: number): void {
    this.#now += ms;
  }

  /** Somebody sets the clock back; no pause ends later for it. */
  setBack(ms: number): void {
    this.#now -= ms;
    for (const sleeper of this.#sleepers) sleeper.at -= ms;
  }

  /** Moves time on, from one sleeper to the next, and lets each do what it woke up for. */
  async advance(ms: number): Promise<void> {
    await settle();
    const end = this.#now + ms;
    for (;;) {
      const due = [...this.#sleepers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      this.#now = Math.max(this.#now, due.at);
      due.wake();
      await settle();
    }
    this.#now = Math.max(this.#now, end);
  }

  /** Moves time on in one go, as a machine that was suspended does: whoever is due wakes up once. */
  async jump(ms: number): Promise<void> {
    await settle();
    this.#now += ms;
    await this.advance(0);
  }
}

/** Lets everything run that waits for nothing but its turn. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
}
