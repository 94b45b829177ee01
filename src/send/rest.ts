/** The pauses of a loop, between two passes and after an attempt that has failed, and who may end them early. */
import { alarm, type Clock } from '../clock.ts';
import type { Crowd } from './crowd.ts';

/** The delays after the first to the fifth failure; the sixth attempt belongs to the next tick. */
export const BACKOFF_MS = [50, 100, 200, 400, 800];
export const ATTEMPTS = BACKOFF_MS.length;

export class Rest {
  readonly #clock: Clock;
  readonly #stopped: AbortSignal;
  readonly #crowd: Crowd | undefined;
  /** Called since the latest pass began: that pass may have looked before. */
  #nudged = false;
  #woken = false;
  /** Ends the present pause; undefined while there is none. */
  #end: (() => void) | undefined;
  #heedsWake = true;

  constructor(clock: Clock, stopped: AbortSignal, crowd?: Crowd) {
    this.#clock = clock;
    this.#stopped = stopped;
    this.#crowd = crowd;
  }

  /** Where many loops want to go on at once: resolves when this one may. */
  async turn(): Promise<void> {
    await this.#crowd?.enter();
  }

  /** After so many failures in a row. Nobody ends it early. */
  async backOff(failures: number): Promise<void> {
    await this.#clock.sleep(BACKOFF_MS[Math.min(failures, ATTEMPTS) - 1] as number, this.#stopped);
    await this.turn();
  }

  /** A pass begins: what it has not seen yet it will see. Before it looks, never after. */
  begin(): void {
    this.#nudged = false;
    this.#woken = false;
  }

  /** Ends whatever pause there is, or keeps the next one from beginning. */
  nudge(): void {
    this.#nudged = true;
    this.#end?.();
  }

  /** The same, but for the pause that is made for a peer that is down. */
  wake(): void {
    this.#woken = true;
    if (this.#heedsWake) this.#end?.();
  }

  async pause(ms: number): Promise<void> {
    if (this.#nudged || this.#woken || this.#stopped.aborted) return;
    await this.#timed(ms);
  }

  async pauseForDown(ms: number): Promise<void> {
    if (this.#nudged || this.#stopped.aborted) return;
    this.#heedsWake = false;
    await this.#timed(ms);
    this.#heedsWake = true;
  }

  /** Until somebody calls: without a timer, so that it costs nothing. */
  async sleep(): Promise<void> {
    if (this.#nudged || this.#woken || this.#stopped.aborted) return;
    await new Promise<void>((resolve) => {
      this.#end = resolve;
    });
    this.#end = undefined;
  }

  async #timed(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const turnOff = alarm(this.#clock, ms, resolve);
      this.#end = () => {
        turnOff();
        resolve();
      };
    });
    this.#end = undefined;
  }
}
