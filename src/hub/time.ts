/** A hub and its clock: what was too far ahead is merged in its time, and a clock that cannot be right is told. */
import type { Clock } from '../clock.ts';
import { asFailure, RowcastError } from '../errors.ts';
import type { Emitter } from '../events.ts';
import { ClockFloor } from '../receive/clock-floor.ts';
import type { HubStore } from './store.ts';

/** How often it is looked whether the time of a change has come, and what the clock says. */
const WATCH_MS = 1_000;

export interface HubTimeOptions {
  clock: Clock;
  maxAheadMs: number;
  /** The greatest time that was noted. */
  noted: number | undefined;
  events: Emitter;
  stopped: AbortSignal;
}

export class HubTime extends ClockFloor {
  readonly #store: HubStore;
  readonly #o: HubTimeOptions;
  #told = false;

  constructor(store: HubStore, options: HubTimeOptions) {
    super(options.clock, options.maxAheadMs, options.noted);
    this.#store = store;
    this.#o = options;
  }

  /** Resolves when the hub is stopped. */
  async watch(warnings: { code: string; message: string }[]): Promise<void> {
    const { clock, events, stopped } = this.#o;
    // Nobody can listen before the caller has the hub.
    await clock.sleep(0, stopped);
    for (const warning of warnings) events.emit('warning', warning);
    while (!stopped.aborted) {
      await clock.sleep(WATCH_MS, stopped);
      if (stopped.aborted) return;
      try {
        await this.#store.company.look();
        await this.#lookAfter();
        while (!stopped.aborted && (await this.#store.release())) await clock.sleep(0, stopped);
      } catch (error) {
        // A lock: it is tried again, and there is nothing to tell.
        if (!(error instanceof RowcastError))
          events.emit('error', asFailure('looking after the clock and the letters failed', error));
      }
    }
  }

  async #lookAfter(): Promise<void> {
    const time = this.look();
    if (time !== undefined) {
      await this.#store.noteClock(time);
      this.noted = time;
    }
    const { problem } = this;
    if (problem === undefined) return;
    if (!this.#told) this.#o.events.emit('warning', { code: 'clock', message: problem });
    this.#told = true;
    // What was noted may be wrong itself, and a person may have taken it away.
    this.noted = (await this.#store.clock()) ?? 0;
  }
}
