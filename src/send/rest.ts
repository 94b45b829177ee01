/** The pauses of a loop between two passes, and who may end them early. */
import { alarm, type Clock } from '../clock.ts';

export class Rest {
  readonly #clock: Clock;
  readonly #stopped: AbortSignal;
  /** Called since the latest pass began: that pass may have looked before. */
  #nudged = false;
  #woken = false;
  /** Ends the present pause; undefined while there is none. */
  #end: (() => void) | undefined;
  #heedsWake = true;

  constructor(clock: Clock, stopped: AbortSignal) {
    this.#clock = clock;
    this.#stopped = stopped;
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
