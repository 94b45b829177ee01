/**
 * How many rows went out and came in over the last minutes, for somebody who has only just begun to look. Counted from the
 * events, in steps of five seconds, without a timer: a step in which nothing happens costs nothing.
 */
import type { Clock } from '../clock.ts';

/** A node's manager, or a hub, as far as it is counted. */
export interface Countable {
  on(event: 'attempt', listener: (attempt: { peer: string; changes: number; result: string }) => void): () => void;
  on(event: 'received', listener: (received: { changes: number; status: number }) => void): () => void;
}

export interface RatesSince {
  /** When the counting began: the steps before it are unknown, not empty. */
  began: number;
  stepMs: number;
  /** The step that is going on; step n begins at n times `stepMs`. */
  last: number;
  /** The first step of each list below; all of them end with `last`. */
  from: number;
  received: number[];
  acked: number[];
  /** Acknowledged, by URL. Whoever has acknowledged nothing in these steps is left out. */
  peers: Record<string, number[]>;
}

const STEP_MS = 5_000;
/** Five minutes, and the step that is going on. */
const STEPS_KEPT = 61;

export class Rates {
  readonly #clock: Clock;
  readonly #began: number;
  readonly #received = new Steps();
  readonly #acked = new Steps();
  readonly #peers = new Map<string, Steps>();

  constructor(subject: Countable, clock: Clock) {
    this.#clock = clock;
    this.#began = clock.now();
    subject.on('attempt', ({ peer, result, changes }) => {
      if (result !== 'acked') return;
      const steps = this.#peers.get(peer) ?? new Steps();
      this.#peers.set(peer, steps);
      for (const one of [steps, this.#acked]) one.add(this.#step(), changes);
    });
    subject.on('received', ({ status, changes }) => {
      if (status >= 200 && status < 300) this.#received.add(this.#step(), changes);
    });
  }

  since(step: number): RatesSince {
    const last = this.#step();
    const from = Math.min(last, Math.max(step, last - STEPS_KEPT + 1));
    const peers: Record<string, number[]> = {};
    for (const [url, steps] of this.#peers) {
      if (steps.isEmpty(last)) this.#peers.delete(url);
      const counts = steps.read(from, last);
      if (counts.some((n) => n > 0)) peers[url] = counts;
    }
    const [received, acked] = [this.#received, this.#acked].map((one) => one.read(from, last)) as [number[], number[]];
    return { began: this.#began, stepMs: STEP_MS, last, from, received, acked, peers };
  }

  #step(): number {
    return Math.floor(this.#clock.now() / STEP_MS);
  }
}

/** Counts of the last steps, each in the place that the one before it by STEPS_KEPT had. */
class Steps {
  readonly #counts = new Float64Array(STEPS_KEPT);
  #last = 0;

  add(step: number, n: number): void {
    // A clock that is set back does not count into steps that are over; by more than are kept, it begins anew.
    if (step <= this.#last - STEPS_KEPT) this.#last = 0;
    const now = Math.max(step, this.#last);
    for (let s = Math.max(this.#last + 1, now - STEPS_KEPT + 1); s <= now; s += 1) this.#counts[s % STEPS_KEPT] = 0;
    this.#last = now;
    this.#counts[now % STEPS_KEPT] = (this.#counts[now % STEPS_KEPT] as number) + n;
  }

  read(from: number, to: number): number[] {
    return Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => {
      const step = from + i;
      const isKept = step <= this.#last && step > this.#last - STEPS_KEPT;
      return isKept ? (this.#counts[step % STEPS_KEPT] as number) : 0;
    });
  }

  isEmpty(now: number): boolean {
    return this.#last <= now - STEPS_KEPT;
  }
}
