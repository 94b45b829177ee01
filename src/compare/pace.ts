/** How much of the event loop's time a comparison may take, how much of it at once, and when it has to end. */
import type { Clock } from '../clock.ts';
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

/** What is read at once: begins small, is doubled after each turn that took no time, and halved after one that did. */
const SLOW_MS = 2;
const ROWS = { first: 32, least: 8, most: 1_024 };
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
  #rows = ROWS.first;

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
   * Works, and lets everybody else have their turn when that has taken a while. `cost`: a row takes so many times as long as
   * one that is hashed among others.
   */
  async turn<T>(work: (portion: Portion) => T | Promise<T>, cost = 1): Promise<T> {
    this.check();
    const began = this.#clock.now();
    this.#read += this.#rows;
    const result = await this.#patiently(() => work({ rows: Math.ceil(this.#rows / cost), bytes: BYTES }));
    const took = Math.max(0, this.#clock.now() - began);
    this.#rows = took >= SLOW_MS ? Math.max(ROWS.least, this.#rows >> 1) : Math.min(ROWS.most, this.#rows * 2);
    this.#worked(took);
    this.#turns += 1;
    const isEnough = this.#busyMs >= REST_MS || this.#turns >= TURNS_MAX || this.#read + this.#rows > REST_ROWS;
    if (isEnough) await this.#rest();
    return result;
  }

  /** The peer was kept busy for so long. */
  async afterPeer(busyMs: number): Promise<void> {
    this.#worked(busyMs);
    await this.#rest();
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

  async #rest(): Promise<void> {
    const ms = Math.floor(this.#busyMs * (1 / this.#share - 1));
    this.#busyMs = 0;
    this.#turns = 0;
    this.#read = 0;
    await this.sleep(ms);
  }
}
