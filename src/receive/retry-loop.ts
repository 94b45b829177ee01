/** The slow loop beside the fast ones: most of what could not be applied becomes possible by itself. */
import type { Registry } from '../capture/registry.ts';
import type { Clock } from '../clock.ts';
import { asFailure, RowcastError } from '../errors.ts';
import type { Emitter, RowcastEvents } from '../events.ts';
import { AGAIN_MS, isHeld } from '../sqlite/yielding.ts';
import type { Retry } from './retry.ts';

/** How often letters are tried again: every second at first, every minute when nothing has come of it. */
const RETRY_MS = 1_000;
const RETRY_MS_MAX = 64_000;
/** A page waits for somebody else's lock so often, before it is left to the loop. */
const HELD_MAX = 250;

export class RetryLoop {
  readonly #retry: Retry;
  readonly #registry: Registry;
  readonly #clock: Clock;
  readonly #events: Emitter;
  readonly #stop = new AbortController();
  #wake = new AbortController();
  #delay = RETRY_MS;
  /** The least version that waits for its time. */
  #nextVersion: number | undefined;
  #running: Promise<void> | undefined;
  #catchingUp: Promise<void> | undefined;
  /** How often in a row the present page could not be tried because somebody else had the lock. */
  #held = 0;

  constructor(retry: Retry, registry: Registry, clock: Clock, events: Emitter) {
    this.#retry = retry;
    this.#registry = registry;
    this.#clock = clock;
    this.#events = events;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#wake.abort();
    await Promise.all([this.#running, this.#catchingUp]);
  }

  /** There is a new letter: the pause that has grown for the old ones is not for it. */
  soon(): void {
    if (this.#delay <= RETRY_MS) return;
    this.#delay = RETRY_MS;
    this.#wake.abort();
  }

  /** The schema has changed: the first page of letters at once, the others one by one with room for others in between. */
  schemaChanged(): void {
    this.#retry.schemaChanged();
    if (this.#page()) this.#catchingUp ??= this.#catchUp();
  }

  /**
   * Merges the next changes whose time has come, where there are any: a page at a time, a bounded piece of work. True where
   * something is to be sent. `isQuiet`: nobody has written since it was last asked, so only time can have passed.
   */
  releaseDue(isQuiet: boolean): boolean {
    if (!isQuiet) this.#nextVersion = this.#retry.nextVersion();
    const released = this.#retry.isDue(this.#nextVersion) ? this.#retry.release() : undefined;
    if (!released) return false;
    for (const letter of released.letters) this.#events.emit('dead-letter', letter);
    this.#events.emit('applied', released.event);
    return true;
  }

  /** Rows that were hidden are in their table again: what is kept of their columns can be filled in. */
  cameBack(rows: RowcastEvents['visible']['rows']): void {
    if (rows.length === 0) return;
    this.schemaChanged();
    this.#events.emit('visible', { rows });
  }

  /** Resolves when every letter that a change of the schema has made possible has been tried. */
  async caughtUp(): Promise<void> {
    await this.#catchingUp;
  }

  /** Tries one page; true when more are due. What fails stays due, and the loop comes back to it. */
  #page(): boolean {
    try {
      this.#retry.nextPage();
      this.#held = 0;
      return this.#retry.isBehind;
    } catch (error) {
      this.#report(error);
      this.#held = isHeld(error) ? this.#held + 1 : 0;
      return this.#held > 0 && this.#held < HELD_MAX;
    }
  }

  async #catchUp(): Promise<void> {
    do await this.#clock.sleep(this.#held > 0 ? AGAIN_MS : 0, this.#stop.signal);
    while (!this.#stop.signal.aborted && this.#page());
    this.#held = 0;
    this.#catchingUp = undefined;
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      this.#wake = new AbortController();
      await this.#clock.sleep(this.#delay, this.#wake.signal);
      if (this.#stop.signal.aborted) return;
      // Woken: the shorter pause begins now.
      if (this.#wake.signal.aborted) continue;
      try {
        // With no peers and nothing received, nobody else would notice a schema change.
        this.#registry.refresh();
        if (this.#retry.isBehind && this.#page()) this.#catchingUp ??= this.#catchUp();
        const applied = this.#retry.constraints();
        if (applied) this.#events.emit('applied', applied.event);
        this.#delay = applied ? RETRY_MS : Math.min(this.#delay * 2, RETRY_MS_MAX);
      } catch (error) {
        this.#report(error);
        if (isHeld(error)) this.#delay = RETRY_MS;
      }
    }
  }

  /** A lock, or a transaction of the application: it will be tried again, and there is nothing to tell. */
  #report(error: unknown): void {
    if (!(error instanceof RowcastError))
      this.#events.emit('error', asFailure('letters could not be tried again', error));
  }
}
