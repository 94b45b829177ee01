/**
 * Which signed requests were seen already. A request is good for a window around its `created`, so it is remembered by
 * that: when the window is over, nobody can repeat it, and it is forgotten. There is room for a bounded number. Where it
 * does not suffice, the oldest second goes, and from then on that second and everything before it counts as too old: what
 * was forgotten cannot be repeated either. Whoever is told so signs again, by the receiver's clock.
 */

/** How far `created` may be from the receiver's clock, in seconds. */
export const WINDOW_S = 300;

export const NONCES_MAX = 131_072;

export class Nonces {
  readonly #max: number;
  readonly #bySecond = new Map<number, Set<string>>();
  #size = 0;
  #prunedAt = -Infinity;
  #tooOld = -Infinity;

  constructor(max: number = NONCES_MAX) {
    this.#max = max;
  }

  get size(): number {
    return this.#size;
  }

  /** Is `created` within the window, and after everything that had to be forgotten? In seconds. */
  isTimely(created: number, now: number): boolean {
    // A clock that was set back has left a bound in the future behind, which would refuse everybody.
    const tooOld = this.#tooOld <= now ? this.#tooOld : -Infinity;
    return Math.abs(created - now) <= WINDOW_S && created > tooOld;
  }

  /** True the first time. Only for what is timely and signed: a stranger must not be able to fill it. */
  take(nonce: string, created: number, now: number): boolean {
    this.#forget(now);
    const seen = this.#bySecond.get(created) ?? new Set<string>();
    if (seen.has(nonce)) return false;
    this.#bySecond.set(created, seen.add(nonce));
    this.#size += 1;
    if (this.#size > this.#max) {
      const oldest = Math.min(...this.#bySecond.keys());
      this.#drop(oldest);
      this.#tooOld = Math.max(oldest, this.#tooOld <= now ? this.#tooOld : -Infinity);
    }
    return true;
  }

  #forget(now: number): void {
    if (now === this.#prunedAt) return;
    this.#prunedAt = now;
    for (const second of [...this.#bySecond.keys()]) if (Math.abs(second - now) > WINDOW_S) this.#drop(second);
  }

  #drop(second: number): void {
    this.#size -= this.#bySecond.get(second)?.size ?? 0;
    this.#bySecond.delete(second);
  }
}
