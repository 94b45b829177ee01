/**
 * Tables that a node asks for again, because rows of it may have been deleted or written while nobody was looking. Each
 * goes to all edges, at most once in ten minutes, whoever asks and however often: it costs far more than a request.
 */
import type { Clock } from '../clock.ts';
import { ALL_TABLES, namesAsked } from '../send/resend.ts';
import type { HubStore } from './store.ts';

const EVERY_MS = 10 * 60_000;

export class Resends {
  readonly #store: HubStore;
  readonly #clock: Clock;
  readonly #stopped: AbortSignal;
  readonly #waiting = new Set<string>();
  readonly #servedAt = new Map<string, number>();

  constructor(store: HubStore, clock: Clock, stopped: AbortSignal) {
    this.#store = store;
    this.#clock = clock;
    this.#stopped = stopped;
  }

  /** `header` is what a request has said; whatever is no list of tables asks for nothing. */
  async ask(header: string): Promise<void> {
    const known = await this.#store.tables();
    const asked = namesAsked(header);
    const wanted = asked === ALL_TABLES ? known : known.filter((name) => asked.includes(name));
    await Promise.all(wanted.map((name) => this.#serve(name)));
  }

  async #serve(name: string): Promise<void> {
    if (this.#waiting.has(name)) return;
    this.#waiting.add(name);
    const early = (this.#servedAt.get(name) ?? -Infinity) + EVERY_MS - this.#clock.now();
    if (early > 0) await this.#clock.sleep(Math.min(early, EVERY_MS), this.#stopped);
    this.#waiting.delete(name);
    if (this.#stopped.aborted) return;
    this.#servedAt.set(name, this.#clock.now());
    await this.#store.touchTable(name);
  }
}
