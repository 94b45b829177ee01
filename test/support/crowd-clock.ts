/**
 * Virtual time for a crowd: whoever is due at the same millisecond wakes up together, so that a thousand sleepers cost one
 * step and not a thousand.
 */
import type { Clock } from '../../src/clock.ts';
import { settle } from './virtual-clock.ts';

export class CrowdClock implements Clock {
  /** How many sleeps were asked for. */
  requested = 0;
  /** How many are neither over nor aborted. */
  pending = 0;
  #now = 1_700_000_000_000;
  readonly #due = new Map<number, Set<() => void>>();
  readonly #settled: () => Promise<void>;

  /** `settled` resolves when nobody does anything but sleep. */
  constructor(settled: () => Promise<void> = settle) {
    this.#settled = settled;
  }

  now(): number {
    return this.#now;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    this.requested += 1;
    if (signal?.aborted) return Promise.resolve();
    this.pending += 1;
    const at = this.#now + Math.max(1, Math.ceil(ms));
    return new Promise((resolve) => {
      const sleepers = this.#due.get(at) ?? new Set();
      this.#due.set(at, sleepers);
      const wake = (): void => {
        if (!sleepers.delete(wake)) return;
        if (sleepers.size === 0 && this.#due.get(at) === sleepers) this.#due.delete(at);
        this.pending -= 1;
        signal?.removeEventListener('abort', wake);
        resolve();
      };
      sleepers.add(wake);
      signal?.addEventListener('abort', wake, { once: true });
    });
  }

  async advance(ms: number): Promise<void> {
    await this.#settled();
    const end = this.#now + ms;
    for (;;) {
      const next = Math.min(...this.#due.keys());
      if (next > end) break;
      this.#now = next;
      for (const wake of [...(this.#due.get(next) ?? [])]) wake();
      await this.#settled();
    }
    this.#now = end;
  }
}
