/**
 * The loops of a process look at its database every few milliseconds, and find mostly that nobody has touched it. Of such
 * looks a schedule would have hundreds, and nothing would come of them: so the longer nobody has touched a machine, the
 * longer its loops sleep, as on a machine that has much else to do. As soon as anybody touches it (a commit, a request, an
 * answer, a clock that is set), none sleeps longer than it has asked for.
 */
import { TICK_MS } from '../../src/attach.ts';
import type { Planned, Timeline } from './timeline.ts';

/** However quiet it is. */
const LONGEST_MS = 800;

interface Look {
  /** For how long it has asked to sleep. */
  ms: number;
  at: number;
  planned: Planned;
  run(): void;
}

export class Looks {
  readonly #timeline: Timeline;
  readonly #batchMs: number;
  readonly #sleeping = new Set<Look>();
  #touchedAt = 0;

  constructor(timeline: Timeline, batchMs: number) {
    this.#timeline = timeline;
    this.#batchMs = batchMs;
  }

  touch(): void {
    const { now } = this.#timeline;
    if (this.#touchedAt === now) return;
    this.#touchedAt = now;
    for (const look of this.#sleeping) {
      if (look.at <= now + look.ms) continue;
      look.planned.cancel();
      this.#plan(look, look.ms);
    }
  }

  /** As `Timeline.in`, for what a process sleeps. */
  in(ms: number, run: () => void): Planned {
    // The loops are known by their pauses: nothing else sleeps for just so long. See plan.ts.
    if (ms !== TICK_MS && ms !== this.#batchMs) return this.#timeline.in(ms, run);
    const look: Look = { ms, at: 0, planned: { cancel: () => {} }, run };
    this.#sleeping.add(look);
    const quietMs = this.#timeline.now - this.#touchedAt;
    this.#plan(look, Math.max(ms, Math.min(quietMs, LONGEST_MS)));
    return {
      cancel: () => {
        this.#sleeping.delete(look);
        look.planned.cancel();
      },
    };
  }

  #plan(look: Look, ms: number): void {
    look.at = this.#timeline.now + ms;
    look.planned = this.#timeline.in(ms, () => {
      this.#sleeping.delete(look);
      look.run();
    });
  }
}
