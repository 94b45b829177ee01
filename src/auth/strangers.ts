/**
 * What those may take of a node who have shown no key: so much of its time that whoever has one never waits for them.
 *
 * To refuse one costs next to nothing, a thousand in a second do not. Beyond a hundred a second each waits for its turn, with
 * nothing of its body read; it holds its connection, of which there is a bounded number, and comes back the later.
 */
import { type Clock, passedSince } from '../clock.ts';

/** Unsigned requests under way at a time, where unsigned ones are taken at all. */
export const UNSIGNED_MAX = 8;

const REFUSALS_A_SECOND = 100;
/** As many at once need not wait, and nobody waits longer than this. */
const FREE_MS = 1_000;
const WAIT_MS_MAX = 10_000;

/** How old what strangers are told of `/health` may be. */
const SAID_MS = 1_000;

export class Strangers {
  readonly #clock: Clock;
  /** When the last of those who wait has its turn. */
  #lastTurn = Number.NEGATIVE_INFINITY;
  #underWay = 0;
  #said: { at: number; answer: Promise<unknown> } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Resolves when one more may be refused. */
  async turn(): Promise<void> {
    const now = this.#clock.now();
    const next = Math.max(this.#lastTurn, now - FREE_MS) + 1_000 / REFUSALS_A_SECOND;
    // A clock that was set back has left a turn in the future behind.
    this.#lastTurn = Math.min(next, now + WAIT_MS_MAX);
    if (this.#lastTurn > now) await this.#clock.sleep(this.#lastTurn - now);
  }

  /** False where as many are under way as may be; otherwise `leave` has to follow. */
  enter(): boolean {
    if (this.#underWay >= UNSIGNED_MAX) return false;
    this.#underWay += 1;
    return true;
  }

  leave(): void {
    this.#underWay -= 1;
  }

  /** The same for all who ask within a second: what one of them costs, all of them cost. */
  told<T>(make: () => Promise<T>): Promise<T> {
    const now = this.#clock.now();
    if (!this.#said || passedSince(this.#clock, this.#said.at) >= SAID_MS) this.#said = { at: now, answer: make() };
    return this.#said.answer as Promise<T>;
  }
}
