/** The hub's composition root: a store of newest versions, and the library's own ship loop for every edge. */

import { randomInt } from 'node:crypto';
import { type Clock, systemClock } from '../clock.ts';
import type { Answered, AnswerOptions } from '../compare/answer.ts';
import type { VerifyNote, VerifySummary } from '../compare/notes.ts';
import type { VerifyOptions, VerifyResult } from '../compare/verify.ts';
import { type CheckedConfig, type Config, checkConfig } from '../config.ts';
import type { DeadLetter } from '../dead-letters.ts';
import { RowcastError } from '../errors.ts';
import { Emitter, type EventName, type Listener } from '../events.ts';
import type { FlushResult, Received } from '../index.ts';
import { asFailure, type ReceiveOptions, receiving } from '../receive/answer.ts';
import type { RetryResult } from '../receive/retry.ts';
import { Shipper } from '../send/shipper.ts';
import { defaultTransport, givenTransport } from '../send/transport.ts';
import { Connection, type Database } from '../sqlite/connection.ts';
import { HubComparisons, notesOf } from './comparisons.ts';
import { type Edge, enrolEdges } from './edges.ts';
import { FanOut } from './fan-out.ts';
import { type HubHealth, hubHealth } from './health.ts';
import { EdgeIdentities } from './identities.ts';
import { EdgeOutbox } from './outbox.ts';
import { Resends } from './resend.ts';
import { retryLetter } from './retry.ts';
import { SqliteHubStore } from './sqlite-store.ts';
import type { HubStore } from './store.ts';

export interface HubConfig extends Omit<Config, 'peers'> {
  /** Base URLs of the nodes to serve. */
  edges: string[];
}

/** Everything a node emits but `applied`: a hub has no tables of which an application would want to hear. */
export type HubEventName = Exclude<EventName, 'applied'>;

export interface Hub {
  readonly id: string;
  receive(body: string | Uint8Array, options?: ReceiveOptions): Promise<Received>;
  /** The largest body that `receive` takes. */
  readonly maxBodyBytes: number;
  health(): Promise<HubHealth>;
  /** Ships now; resolves when every reachable edge has acknowledged what was pending. */
  flush(): Promise<FlushResult>;
  /** Compares with an edge, or with all of them, and tells what differs; with `repair`, puts it right. */
  verify(edge?: string | undefined, options?: VerifyOptions): Promise<VerifyResult[]>;
  /** For the caller's own routes `/sync/compare` and `/sync/fetch`. */
  answer(path: string, body: string | Uint8Array, options?: AnswerOptions): Promise<Answered>;
  /** Ends the loops; when it resolves, no timer, socket or statement is left. */
  stop(): Promise<void>;
  on<E extends HubEventName>(event: E, listener: Listener<E>): () => void;
  readonly deadLetters: {
    list(options?: { limit?: number; after?: number }): Promise<DeadLetter[]>;
    retry(id: number): Promise<RetryResult>;
    discard(id: number): Promise<void>;
  };
  /** How many batches were read from the database, and how many were handed to edges: the difference was shared. */
  readonly fanOut: { readonly reads: number; readonly served: number };
}

/** What comes in together goes out together: edges are woken at once, and then share one batch. */
const LINGER_MS = 5;

/** Longer than an id may be: nobody's, and not worth keeping with every row. */
const ID_LENGTH_MAX = 200;

/** Relays between nodes. The database must be the hub's own; it is refused where it holds anything else. */
export async function createHub(db: Database, given: HubConfig): Promise<Hub> {
  const config = checkConfig(given, 'hub');
  const clock = config.clock ?? systemClock;
  const store = new SqliteHubStore(new Connection(db), { clock, maxBodyBytes: config.maxBodyBytes });
  try {
    await store.open();
    const edges = await enrolEdges(store, config.peers);
    return new Relay(store, edges, { ...config, clock }, await notesOf(store).read());
  } catch (error) {
    await store.close();
    throw error;
  }
}

class Relay implements Hub {
  readonly id: string;
  readonly maxBodyBytes: number;
  readonly deadLetters: Hub['deadLetters'];
  readonly fanOut: FanOut;
  readonly #clock: Clock;
  readonly #events = new Emitter();
  readonly #store: HubStore;
  readonly #identities: EdgeIdentities;
  readonly #links: { edge: Edge; shipper: Shipper }[];
  readonly #closeTransport: () => void;
  readonly #stopped = new AbortController();
  readonly #resends: Resends;
  readonly #comparisons: HubComparisons;
  #waking: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(
    store: HubStore,
    edges: Edge[],
    config: CheckedConfig & { clock: Clock },
    remembered: Map<string, VerifyNote>,
  ) {
    this.id = config.id;
    this.maxBodyBytes = config.maxBodyBytes;
    this.#store = store;
    this.#resends = new Resends(store, config.clock, this.#stopped.signal);
    this.#clock = config.clock;
    this.fanOut = new FanOut(store, { changes: config.batchSize, bytes: config.maxBatchBytes });
    const transport = defaultTransport();
    this.#closeTransport = transport.close;
    const sending = config.fetch ? givenTransport(config.fetch, config.get) : transport;
    this.#links = edges.map((edge) => ({
      edge,
      shipper: new Shipper({
        nodeId: config.id,
        peer: edge.url,
        outbox: new EdgeOutbox(store, this.fanOut, edge),
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
    this.#comparisons = new HubComparisons(store, {
      config,
      clock: this.#clock,
      events: this.#events,
      random: config.random ?? (() => randomInt(2 ** 32) / 2 ** 32),
      stopped: this.#stopped.signal,
      fetch: sending.fetch,
      links: this.#links,
      remembered,
    });
    const shippers = new Map(this.#links.map(({ edge, shipper }) => [edge, shipper]));
    this.#identities = new EdgeIdentities(edges, {
      hubId: this.id,
      get: config.get ?? transport.get,
      clock: this.#clock,
      events: this.#events,
      onAsked: (edge) => shippers.get(edge)?.nudge(),
    });
    this.deadLetters = {
      list: (options) => store.letters.list(options),
      retry: (id) => retryLetter(store, id),
      discard: async (id) => {
        await store.letters.get(id);
        await store.letters.remove(id);
      },
    };
    store.onAdvance(() => {
      this.#waking ??= this.#wakeAll();
    });
    this.#events.on('peer-up', ({ peer }) => this.#identities.askAgain(peer));
    for (const { shipper } of this.#links) shipper.start();
    this.#identities.start();
    this.#comparisons.start();
  }

  receive(body: string | Uint8Array, options: ReceiveOptions = {}): Promise<Received> {
    const self = { events: this.#events, clock: this.#clock, anyOrder: () => true };
    return receiving(self, { body, from: options.from }, async () => {
      this.#refuseIfStopped();
      const { from, said } = options;
      const sender = from !== undefined && from.length <= ID_LENGTH_MAX ? from : undefined;
      const { ack, letters, changes } = await this.#store.receive(body, { from: sender, plain: said === undefined });
      for (const one of letters) this.#events.emit('dead-letter', one);
      if (options.sendAgain !== undefined) this.#sendAgain(options.sendAgain);
      return { ack, changes };
    });
  }

  /** Beside the answer: whoever asks has been acknowledged already. */
  #sendAgain(header: string): void {
    void this.#resends.ask(header).catch((error) => {
      if (!this.#stopped.signal.aborted) this.#events.emit('error', asFailure(error));
    });
  }

  async health(): Promise<HubHealth> {
    this.#refuseIfStopped();
    const verified = (url: string): VerifySummary | undefined => this.#comparisons.summaryOf(url);
    return hubHealth(this.id, this.#store, this.#links, this.#clock.now(), verified);
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

  async verify(edge?: string | undefined, options: VerifyOptions = {}): Promise<VerifyResult[]> {
    this.#refuseIfStopped();
    return this.#comparisons.verify(edge, options);
  }

  async answer(path: string, body: string | Uint8Array, options: AnswerOptions = {}): Promise<Answered> {
    this.#refuseIfStopped();
    return this.#comparisons.answer(path, body, options);
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#end();
    return this.#stopping;
  }

  on<E extends HubEventName>(event: E, listener: Listener<E>): () => void {
    return this.#events.on(event, listener);
  }

  async #wakeAll(): Promise<void> {
    await this.#clock.sleep(LINGER_MS, this.#stopped.signal);
    this.#waking = undefined;
    for (const { shipper } of this.#links) shipper.nudge();
  }

  async #end(): Promise<void> {
    this.#stopped.abort();
    await Promise.all([
      this.#waking,
      this.#identities.stop(),
      this.#comparisons.stop(),
      ...this.#links.map(({ shipper }) => shipper.stop()),
    ]);
    this.#closeTransport();
    await this.#store.close();
  }

  #refuseIfStopped(): void {
    if (this.#stopping) throw new RowcastError('STOPPED', 'this hub was stopped');
  }
}
