/** The hub's composition root: a store of newest versions, and the library's own ship loop for every edge. */

import { randomInt } from 'node:crypto';
import { type Clock, systemClock } from '../clock.ts';
import { type Config, checkConfig } from '../config.ts';
import { type DeadLetter, DeadLetters } from '../dead-letters.ts';
import { RowcastError } from '../errors.ts';
import { Emitter, type EventName, type Listener } from '../events.ts';
import type { FlushResult, Received } from '../index.ts';
import { receiving } from '../receive/answer.ts';
import type { RetryResult } from '../receive/retry.ts';
import { Shipper } from '../send/shipper.ts';
import { defaultTransport, givenTransport } from '../send/transport.ts';
import { Connection, type Database } from '../sqlite/connection.ts';
import { featuresOf, requireVersion } from '../sqlite/features.ts';
import { RowCounter } from '../sqlite/row-counter.ts';
import { Census, type Edge, enrolEdges } from './edges.ts';
import { FanOut } from './fan-out.ts';
import { type HubHealth, hubHealth } from './health.ts';
import { EdgeOutbox } from './outbox.ts';
import { retryLetter } from './retry.ts';
import { HubStore } from './store.ts';
import { prepareHubDatabase } from './tables.ts';

export interface HubConfig extends Omit<Config, 'peers'> {
  /** Base URLs of the nodes to serve. */
  edges: string[];
}

/** Everything a node emits but `applied`: a hub has no tables of which an application would want to hear. */
export type HubEventName = Exclude<EventName, 'applied'>;

export interface Hub {
  readonly id: string;
  /** The largest body that it takes. */
  readonly maxBodyBytes: number;
  receive(body: string | Uint8Array, options?: { from?: string | undefined }): Received;
  health(): HubHealth;
  /** Ships now; resolves when every reachable edge has acknowledged what was pending. */
  flush(): Promise<FlushResult>;
  /** Ends the loops; when it resolves, no timer, socket or statement is left. */
  stop(): Promise<void>;
  on<E extends HubEventName>(event: E, listener: Listener<E>): () => void;
  readonly deadLetters: {
    list(options?: { limit?: number; after?: number }): DeadLetter[];
    retry(id: number): RetryResult;
    discard(id: number): void;
  };
  /** How many batches were read from the database, and how many were handed to edges: the difference was shared. */
  readonly fanOut: { readonly reads: number; readonly served: number };
}

/** What comes in together goes out together: edges are woken at once, and then share one batch. */
const LINGER_MS = 5;

/** Relays between nodes. The database must be the hub's own; it is refused where it holds anything else. */
export function createHub(db: Database, config: HubConfig): Hub {
  return new Relay(new Connection(db), config);
}

class Relay implements Hub {
  readonly id: string;
  readonly maxBodyBytes: number;
  readonly deadLetters: Hub['deadLetters'];
  readonly fanOut: FanOut;
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #events = new Emitter();
  readonly #letters: DeadLetters;
  readonly #store: HubStore;
  readonly #counter: RowCounter;
  readonly #census: Census;
  readonly #links: { edge: Edge; shipper: Shipper }[];
  readonly #closeTransport: () => void;
  readonly #stopped = new AbortController();
  #waking: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(db: Connection, given: HubConfig) {
    const config = checkConfig(given, 'hub');
    this.id = config.id;
    this.maxBodyBytes = config.maxBodyBytes;
    this.#db = db;
    this.#clock = config.clock ?? systemClock;
    requireVersion(db);
    prepareHubDatabase(db);
    this.#letters = new DeadLetters(db, this.#clock);
    this.#counter = new RowCounter(db, this.#clock);
    const limits = { bodyBytes: config.maxBodyBytes, batchChanges: Number.MAX_SAFE_INTEGER };
    this.#store = new HubStore(db, this.#letters, limits, featuresOf(db).jsonb);
    this.fanOut = new FanOut(db, { changes: config.batchSize, bytes: config.maxBatchBytes });
    const edges = enrolEdges(db, config.peers);
    const transport = defaultTransport();
    this.#closeTransport = transport.close;
    const sending = config.fetch ? givenTransport(config.fetch, config.get) : transport;
    this.#links = edges.map((edge) => ({
      edge,
      shipper: new Shipper({
        nodeId: config.id,
        peer: edge.url,
        outbox: new EdgeOutbox(db, this.#letters, this.fanOut, edge),
        fetch: sending.fetch,
        get: config.get ?? sending.get,
        untilSent: sending.untilSent,
        clock: this.#clock,
        random: config.random ?? (() => randomInt(2 ** 32) / 2 ** 32),
        events: this.#events,
        batchMs: config.batchMs,
        batchSize: config.batchSize,
        batchBytes: config.maxBatchBytes,
        requestTimeoutMs: config.requestTimeoutMs,
      }),
    }));
    this.#census = new Census(edges, {
      hubId: this.id,
      get: config.get ?? transport.get,
      clock: this.#clock,
      events: this.#events,
      onAsked: (edge) => this.#links.find((link) => link.edge === edge)?.shipper.nudge(),
    });
    this.deadLetters = {
      list: (options) => this.#letters.list(options),
      retry: (id) => this.#retry(id),
      discard: (id) => this.#letters.discard(id),
    };
    this.#events.on('peer-up', ({ peer }) => this.#census.askAgain(peer));
    for (const { shipper } of this.#links) shipper.start();
    this.#census.start();
  }

  receive(body: string | Uint8Array, options: { from?: string | undefined } = {}): Received {
    const self = { events: this.#events, clock: this.#clock, anyOrder: () => true };
    return receiving(self, () => {
      this.#refuseIfStopped();
      // Longer than an id may be: nobody's, and not worth keeping with every row.
      const from = options.from !== undefined && options.from.length <= 200 ? options.from : undefined;
      const { ack, advanced, letters } = this.#store.receive(body, from);
      for (const one of letters) this.#events.emit('dead-letter', one);
      if (advanced) this.#waking ??= this.#wakeAll();
      return ack;
    });
  }

  health(): HubHealth {
    this.#refuseIfStopped();
    return hubHealth(this.id, this.#db, this.#letters, this.#links, this.#counter, this.#clock.now());
  }

  async flush(): Promise<FlushResult> {
    this.#refuseIfStopped();
    const result: FlushResult = { delivered: [], unreachable: [] };
    await Promise.all(
      this.#links.map(async ({ shipper }) => {
        const list = (await shipper.flush()) ? result.delivered : result.unreachable;
        list.push(shipper.peer);
      }),
    );
    return result;
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#end();
    return this.#stopping;
  }

  on<E extends HubEventName>(event: E, listener: Listener<E>): () => void {
    return this.#events.on(event, listener);
  }

  #retry(id: number): RetryResult {
    const result = retryLetter(this.#db, this.#store, this.#letters, id);
    if (result.outcome !== 'kept') this.#waking ??= this.#wakeAll();
    return result;
  }

  async #wakeAll(): Promise<void> {
    await this.#clock.sleep(LINGER_MS, this.#stopped.signal);
    this.#waking = undefined;
    for (const { shipper } of this.#links) shipper.nudge();
  }

  async #end(): Promise<void> {
    this.#counter.stop();
    this.#stopped.abort();
    await Promise.all([this.#waking, this.#census.stop(), ...this.#links.map(({ shipper }) => shipper.stop())]);
    this.#closeTransport();
    try {
      this.#db.release();
    } catch {
      // The caller has closed the database already: then there is nothing left to let go of.
    }
  }

  #refuseIfStopped(): void {
    if (this.#stopping) throw new RowcastError('STOPPED', 'this hub was stopped');
  }
}
