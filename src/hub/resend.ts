/**
 * Tables that a node asks for again, because rows of it may have been deleted or written while nobody was looking. Each
 * goes to all edges, at most once in ten minutes, whoever asks and however often: it costs far more than a request. What
 * is asked for too early waits in the store, where it outlasts the process: of a group, whoever is left goes on with it.
 */
import { type Clock, passedSince } from '../clock.ts';
import { ALL_TABLES, namesAsked } from '../send/asked-tables.ts';
import { nextTurn } from '../send/transport.ts';
import type { HubStore } from './store.ts';

const EVERY_MS = 10 * 60_000;
/** How often it is looked whether something that waits is due; what has failed is tried again then. */
const LOOK_MS = 1_000;
/** How often it is looked what another process of the group was asked for, and has not come to. */
const LEFT_MS = 60_000;

export interface ResendOptions {
  clock: Clock;
  stopped: AbortSignal;
  onError(error: unknown): void;
}

export class Resends {
  readonly #store: HubStore;
  readonly #o: ResendOptions;
  readonly #waiting = new Set<string>();
  readonly #servedAt = new Map<string, number>();
  /** The last table in line; undefined where none is. */
  #last: Promise<void> | undefined;
  /** Since when each has been waiting in the store, as far as was seen here. */
  #askedAt = new Map<string, number>();

  constructor(store: HubStore, options: ResendOptions) {
    this.#store = store;
    this.#o = options;
  }

  /** Goes on with what an earlier process was asked for. */
  start(tables: string[]): void {
    for (const name of tables) void this.#serve(name);
  }

  /** In a group: what has waited for longer than anybody who is alive lets it wait was asked of one that is gone. */
  async watch(): Promise<void> {
    const { clock, stopped } = this.#o;
    while (!stopped.aborted) {
      await clock.sleep(LEFT_MS, stopped);
      if (stopped.aborted) return;
      // Where the store cannot be read, it is looked again.
      const asked = await this.#store.askedFor().catch(() => [...this.#askedAt.keys()]);
      this.#askedAt = new Map(asked.map((name) => [name, this.#askedAt.get(name) ?? clock.now()]));
      this.start(asked.filter((name) => passedSince(clock, this.#askedAt.get(name) as number) > EVERY_MS));
    }
  }

  /**
   * `header` is what a request has said; whatever is no list of tables asks for nothing. Resolves when the question is safe:
   * whoever asks has an answer then, and does not ask again.
   */
  async ask(header: string): Promise<void> {
    const known = await this.#store.tables();
    const asked = namesAsked(header);
    const wanted = asked === ALL_TABLES ? known : known.filter((name) => asked.includes(name));
    if (wanted.length === 0) return;
    await this.#store.noteAsked(wanted);
    this.start(wanted);
  }

  async #serve(name: string): Promise<void> {
    if (this.#waiting.has(name)) return;
    this.#waiting.add(name);
    const { clock, stopped, onError } = this.#o;
    while (!this.#isDue(name) && !stopped.aborted) await clock.sleep(LOOK_MS, stopped);
    // Whoever asks from now on is not served by this.
    this.#waiting.delete(name);
    if (stopped.aborted) return;
    this.#servedAt.set(name, clock.now());
    try {
      await this.#inTurn(() => this.#store.touchTable(name));
    } catch (error) {
      if (stopped.aborted) return;
      onError(error);
      this.#servedAt.delete(name);
      await clock.sleep(LOOK_MS, stopped);
      await this.#serve(name);
    }
  }

  /** One after the other, each in a turn of the event loop: there may be thousands of them, and others wait. */
  #inTurn(touch: () => Promise<void>): Promise<void> {
    const unlessStopped = async (): Promise<void> => (this.#o.stopped.aborted ? undefined : touch());
    const touched = this.#last ? this.#last.then(nextTurn).then(unlessStopped) : touch();
    const last = touched
      .catch(() => {})
      .then(() => {
        if (this.#last === last) this.#last = undefined;
      });
    this.#last = last;
    return touched;
  }

  /** By a clock that has jumped, in either direction, it is due as well. */
  #isDue(name: string): boolean {
    return passedSince(this.#o.clock, this.#servedAt.get(name) ?? -Infinity) >= EVERY_MS;
  }
}
