/** How much of the event loop's time a comparison may take, how much of it at once, and when it has to end. */
import { type Clock, preciseNow } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Portion } from './ledger.ts';
import { CannotCompare } from './remote.ts';

/**
 * Everybody else has a turn after so much, whichever comes first: a clock of whole milliseconds cannot tell how long what
 * takes less than two of them takes, but rows can be counted.
 */
const REST_MS = 1;
export const REST_ROWS = 1_024;
const TURNS_MAX = 64;
/**
 * No turn, and no answer to a question, is rested for as if it had taken longer: a machine that has slept in the middle of it,
 * a clock that has jumped or a peer that says so would have it rest for days, and nobody else is compared with meanwhile.
 */
const WORKED_MS_MAX = 1_000;

/**
 * What is read at once: begins small, and is then as much as would take so long by what a row took in the faster one of the
 * last two turns, at most twice as much and no less than half. One slow turn alone says nothing: the machine did something
 * else in the middle of it.
 */
const AIM_MS = 2;
const ROWS = { first: 32, least: 8, most: REST_ROWS };
const BYTES = 256 * 1024;

/** While the application has a transaction open, what is there is not known; it is asked so often, after so long. */
const BUSY_MS = 20;
const BUSY_MAX = 250;

export class Pace {
  readonly #clock: Clock;
  readonly #share: number;
  readonly #stopped: AbortSignal;
  readonly #given: AbortSignal | undefined;
  /** Worked since the last rest, and what of it has been rested for. */
  #busyMs = 0;
  #turns = 0;
  /** Read since the last rest, at the most. */
  #read = 0;
  /** What is read at once, and the milliseconds that a row took in the last turn, by what a row is said to cost. */
  readonly #learnt = new Map<number, { rows: number; rowMs: number }>();

  /**
   * `share` is the part of the time that is worked: 1 is without a rest, 0.1 rests nine times as long as it works. It ends
   * when `stopped` is aborted, or the signal that the caller has given.
   */
  constructor(clock: Clock, share: number, stopped: AbortSignal, given?: AbortSignal) {
    this.#clock = clock;
    this.#share = share;
    this.#stopped = stopped;
    this.#given = given;
  }

  /**
   * Reads a portion, and lets everybody else have their turn when that has taken a while. `cost`: a row takes so many times as
   * long as one that is hashed among others. What costs the same is taken for the same kind of work.
   */
  async turn<T>(work: (portion: Portion) => T | Promise<T>, cost = 1): Promise<T> {
    const { rows, rowMs: before } = this.#learnt.get(cost) ?? { rows: ROWS.first, rowMs: 0 };
    this.#read += rows;
    const { result, took } = await this.#timed(() => work({ rows: Math.ceil(rows / cost), bytes: BYTES }));
    const rowMs = took / rows;
    const wanted = Math.min(rows * 2, Math.max(rows / 2, AIM_MS / Math.min(rowMs, before)));
    const next = Math.floor(Math.min(ROWS.most, Math.max(ROWS.least, wanted)));
    this.#learnt.set(cost, { rows: next, rowMs });
    await this.#after(took, next);
    return result;
  }

  /** The same with work that is as much as it is, from which nothing is learnt. */
  async once<T>(work: () => T | Promise<T>): Promise<T> {
    const { result, took } = await this.#timed(work);
    await this.#after(took, 0);
    return result;
  }

  async #timed<T>(work: () => T | Promise<T>): Promise<{ result: T; took: number }> {
    this.check();
    const began = preciseNow(this.#clock);
    const result = await this.#patiently(work);
    return { result, took: Math.max(0, preciseNow(this.#clock) - began) };
  }

  async #after(took: number, next: number): Promise<void> {
    this.#worked(took);
    this.#turns += 1;
    const isEnough = this.#busyMs >= REST_MS || this.#turns >= TURNS_MAX || this.#read + next > REST_ROWS;
    if (isEnough) await this.rest();
  }

  /** The peer was kept busy for so long. */
  async afterPeer(busyMs: number): Promise<void> {
    this.#worked(busyMs);
    await this.rest();
  }

  #worked(ms: number): void {
    this.#busyMs += Math.min(Math.max(0, ms), WORKED_MS_MAX);
  }

  async sleep(ms: number): Promise<void> {
    await this.#clock.sleep(ms, this.#stopped);
    this.check();
  }

  check(): void {
    if (this.#stopped.aborted || this.#given?.aborted) throw new CannotCompare('stopped');
  }

  async #patiently<T>(work: () => T | Promise<T>): Promise<T> {
    for (let tried = 1; ; tried++) {
      try {
        return await work();
      } catch (error) {
        const code = error instanceof RowcastError ? error.code : undefined;
        if ((code !== 'IN_TRANSACTION' && code !== 'DATABASE_BUSY') || tried === BUSY_MAX) throw error;
        await this.sleep(BUSY_MS);
      }
    }
  }

  /** Everybody else has a turn, and as much time as is theirs of what was worked. */
  async rest(): Promise<void> {
    const ms = Math.ceil(this.#busyMs * (1 / this.#share - 1));
    this.#busyMs = 0;
    this.#turns = 0;
    this.#read = 0;
    await this.sleep(ms);
  }
}
