/**
 * How long requests may take: one sleep of the clock for all that are under way, however many. A timer for each, which is hardly
 * ever needed, would cost as much as reading the answer.
 */
import type { Clock } from '../clock.ts';

interface Waiting {
  at: number;
  ms: number;
  act(): void;
}

export class Deadlines {
  readonly #clock: Clock;
  readonly #waiting = new Set<Waiting>();
  /** Until the first of them; there is none where nothing waits. */
  #sleep: { at: number; end: AbortController } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Calls `act` after so long, unless what it returns is called before. */
  after(ms: number, act: () => void): () => void {
    const one = { at: this.#clock.now() + ms, ms, act };
    this.#waiting.add(one);
    if (!this.#sleep || one.at < this.#sleep.at) this.#watch(one);
    return () => {
      // Who sleeps for others finds out by itself that this one is over.
      if (this.#waiting.delete(one) && this.#waiting.size === 0) this.#wake();
    };
  }

  #wake(): void {
    this.#sleep?.end.abort(OVER);
    this.#sleep = undefined;
  }

  #watch({ at, ms }: Waiting): void {
    this.#wake();
    const sleep = { at, end: new AbortController() };
    this.#sleep = sleep;
    // By a clock that was set back nobody waits for longer than he would have.
    const left = Math.min(ms, Math.max(0, at - this.#clock.now()));
    void this.#clock.sleep(left, sleep.end.signal).then(() => {
      if (this.#sleep === sleep) this.#due(at);
    });
  }

  #due(at: number): void {
    this.#sleep = undefined;
    const due = [...this.#waiting].filter((one) => one.at <= at);
    for (const one of due) this.#waiting.delete(one);
    for (const { act } of due) act();
    const [first, ...others] = this.#waiting;
    if (first && !this.#sleep) this.#watch(others.reduce((least, one) => (one.at < least.at ? one : least), first));
  }
}

/** Why a sleep is not needed any more. Without a reason, Node would make an error with a stack. */
const OVER = 'over';

const known = new WeakMap<Clock, Deadlines>();

/** Those of whoever goes by this clock. */
export function deadlinesOf(clock: Clock): Deadlines {
  const found = known.get(clock) ?? new Deadlines(clock);
  known.set(clock, found);
  return found;
}
