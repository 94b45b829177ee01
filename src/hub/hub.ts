/** The hub's composition root: a store of newest versions, and the library's own ship loop for every edge. */

import type { Trust } from '../auth/trust.ts';
import { chance } from '../chance.ts';
import { type Clock, systemClock } from '../clock.ts';
import type { Answered, AnswerOptions } from '../compare/answer.ts';
import type { VerifyNote, VerifySummary } from '../compare/notes.ts';
import type { VerifyOptions, VerifyResult } from '../compare/verify.ts';
import { type CheckedConfig, type Config, checkConfig, checkSettings, replaceKeys, type Settings } from '../config.ts';
import type { DeadLetter } from '../dead-letters.ts';
import { RowcastError } from '../errors.ts';
import { Emitter, type EventName, type Listener } from '../events.ts';
import { Faults } from '../faults.ts';
import type { FlushResult, Received } from '../index.ts';
import type { Facts } from '../observe/facts.ts';
import { asFailure, type ReceiveOptions, receiving } from '../receive/answer.ts';
import type { RetryResult } from '../receive/retry.ts';
import { type BondHealth, Bonds } from '../send/bonds.ts';
import { flushAll } from '../send/loop.ts';
import type { Company } from '../send/shipment.ts';
import { type Pace, Shipper } from '../send/shipper.ts';
import { type Ask, transportFor } from '../send/transport.ts';
import { Connection, type Database } from '../sqlite/connection.ts';
import { ROWCAST_HEADER } from '../wire/protocol.ts';
import { HubComparisons, notesOf } from './comparisons.ts';
import { type Edge, enrolEdges } from './edges.ts';
import { FanOut } from './fan-out.ts';
import { type HubHealth, hubHealth } from './health.ts';
import { EdgeIdentities } from './identities.ts';
import { EdgeOutbox } from './outbox.ts';
import { Resends } from './resend.ts';
import { retryLetter } from './retry.ts';
import { EdgeRoster, type Edges } from './roster.ts';
import { SqliteHubStore } from './sqlite-store.ts';
import type { Found, HubStore } from './store.ts';

/**
 * A hub has no `maxBacklog`: it keeps the newest version of every row, and nothing for the sake of an edge. Nor has it
 * `tombstones`: it keeps every deletion, and nothing else of the row.
 */
export interface HubConfig extends Omit<Config, 'peers' | 'maxBacklog' | 'tombstones'> {
  /** Base URLs of the nodes to serve. */
  edges: string[];
}

/** Those of its settings that can be changed while it runs. */
export type HubSettings = Omit<Settings, 'maxBacklog'>;

/**
 * Everything a node emits but `applied` and `visible`, since a hub has no tables of which an application would want to hear,
 * `peer-stale`, since an edge can be away for as long as it likes, and `tombstones-collected`.
 */
export type HubEventName = Exclude<EventName, 'applied' | 'visible' | 'peer-stale' | 'tombstones-collected'>;

export interface Hub {
  readonly id: string;
  receive(body: string | Uint8Array, options?: ReceiveOptions): Promise<Received>;
  /** The largest body that `receive` takes. */
  readonly maxBodyBytes: number;
  /** Its keys, where it was given `auth`: `rowcast/http` lets in whom they let in. */
  readonly trust: Trust | undefined;
  health(): Promise<HubHealth>;
  /** health(), and what a dashboard draws beside it: letters by cause, sizes. */
  status(): Promise<HubHealth & Facts>;
  /** For a `/health` route of your own: takes the request's `x-rowcast`, returns the headers that the answer has besides. */
  hello(said: string): Promise<Record<string, string>>;
  /** Ships now; resolves when every reachable edge has acknowledged what was pending. */
  flush(): Promise<FlushResult>;
  /** Compares with an edge, or with all of them, and tells what differs; with `repair`, puts it right. */
  verify(edge?: string | undefined, options?: VerifyOptions): Promise<VerifyResult[]>;
  /** For the caller's own routes `/sync/compare` and `/sync/fetch`. */
  answer(path: string, body: string | Uint8Array, options?: AnswerOptions): Promise<Answered>;
  /** Ends the loops; when it resolves, no timer, socket or statement is left. */
  stop(): Promise<void>;
  on<E extends HubEventName>(event: E, listener: Listener<E>): () => void;
  /** Changes settings at once; those that are not given stay as they are. */
  configure(settings: HubSettings): void;
  /** Adding and removing edges, and pausing them, while the hub runs. */
  readonly edges: Edges;
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
  const { id, maxBodyBytes, random = chance } = config;
  const store = new SqliteHubStore(new Connection(db), { clock, maxBodyBytes, id, random });
  try {
    await store.open();
    const edges = await enrolEdges(store, config.peers);
    const kept = { askedFor: await store.askedFor(), verified: await notesOf(store).read() };
    return new Relay(store, edges, kept, { ...config, clock });
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** What an earlier process has left to be done. */
interface Kept {
  askedFor: string[];
  verified: Map<string, VerifyNote>;
}

class Relay implements Hub {
  readonly id: string;
  readonly maxBodyBytes: number;
  readonly deadLetters: Hub['deadLetters'];
  readonly edges: Edges;
  readonly fanOut: FanOut;
  readonly #clock: Clock;
  readonly #events = new Emitter();
  readonly #faults: Faults;
  readonly #store: HubStore;
  readonly #identities: EdgeIdentities;
  readonly #roster: EdgeRoster;
  /** What can be changed at run time; the loops look at it again and again. */
  readonly #pace: Pace;
  readonly #closeTransport: () => void;
  readonly #stopped = new AbortController();
  readonly #resends: Resends;
  readonly #comparisons: HubComparisons;
  /** Where there are keys. */
  readonly #bonds: Bonds | undefined;
  #waking: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(store: HubStore, edges: Edge[], kept: Kept, config: CheckedConfig & { clock: Clock }) {
    this.id = config.id;
    this.maxBodyBytes = config.maxBodyBytes;
    this.#store = store;
    this.#clock = config.clock;
    this.#faults = new Faults(config.clock);
    this.#resends = new Resends(store, {
      clock: config.clock,
      stopped: this.#stopped.signal,
      onError: (error) => this.#events.emit('error', asFailure(error)),
    });
    const { batchMs, batchSize, maxBatchBytes, requestTimeoutMs } = config;
    const pace: Pace = { batchMs, batchSize, maxBatchBytes, requestTimeoutMs };
    this.#pace = pace;
    this.fanOut = new FanOut(store, () => ({ changes: pace.batchSize, bytes: pace.maxBatchBytes }));
    const sending = transportFor(config);
    // A given fetch need not be able to ask who an edge is.
    const asking = sending.get ? sending : transportFor({});
    this.#closeTransport = () => {
      sending.close();
      asking.close();
    };
    this.#bonds =
      config.auth &&
      new Bonds(config.auth, {
        nodeId: this.id,
        clock: this.#clock,
        get: asking.get as Ask,
        kept: new Map(edges.flatMap(({ url, pinned }) => (pinned === undefined ? [] : [[url, pinned]]))),
        keep: (url, id) => store.pinEdge(url, id),
        warn: (code, message) => queueMicrotask(() => this.#events.emit('warning', { code, message })),
      });
    const shipper = (edge: Edge): Shipper =>
      new Shipper({
        nodeId: config.id,
        peer: edge.url,
        outbox: new EdgeOutbox(store, this.fanOut, edge),
        company: companyOf(store, edge),
        fetch: sending.fetch,
        get: sending.get,
        untilSent: sending.untilSent,
        clock: this.#clock,
        random: config.random ?? chance,
        events: this.#events,
        faults: this.#faults,
        pace,
        bond: this.#bonds?.of(edge.url),
      });
    this.#identities = new EdgeIdentities(edges, {
      hubId: this.id,
      get: asking.get as Ask,
      introduction: (url) => store.company.toEdge(url),
      bond: (url) => this.#bonds?.of(url),
      clock: this.#clock,
      events: this.#events,
      onAsked: (edge) => this.#roster.nudge(edge),
    });
    const refuseIfStopped = (): void => this.#refuseIfStopped();
    const onRemoved = (url: string): void => this.#bonds?.forget(url);
    this.#roster = new EdgeRoster(edges, { store, identities: this.#identities, shipper, onRemoved, refuseIfStopped });
    this.edges = this.#roster;
    this.#comparisons = new HubComparisons(store, {
      config,
      clock: this.#clock,
      events: this.#events,
      random: config.random ?? chance,
      stopped: this.#stopped.signal,
      fetch: sending.fetch,
      bond: (url) => this.#bonds?.of(url),
      links: () => this.#roster.links.map(({ edge, loop }) => ({ edge, shipper: loop.shipper })),
      remembered: kept.verified,
    });
    this.deadLetters = {
      list: (options) => store.letters.list(options),
      retry: (id) => retryLetter(store, id),
      discard: async (id) => {
        await store.letters.get(id);
        await store.letters.remove(id);
      },
    };
    store.company.onFound((found) => this.#found(found));
    store.onAdvance(() => {
      this.#waking ??= this.#wakeAll();
    });
    this.#events.on('peer-up', ({ peer }) => this.#identities.askAgain(peer));
    this.#roster.start();
    this.#identities.start();
    this.#resends.start(kept.askedFor);
    this.#comparisons.start();
  }

  receive(body: string | Uint8Array, options: ReceiveOptions = {}): Promise<Received> {
    let introduction: string | undefined;
    const self = { events: this.#events, faults: this.#faults, clock: this.#clock, introduction: () => introduction };
    return receiving(self, { body, from: options.from }, async () => {
      this.#refuseIfStopped();
      const { from, said } = options;
      const sender = from !== undefined && from.length <= ID_LENGTH_MAX ? from : undefined;
      const plain = said === undefined;
      const { ack, letters, changes } = await this.#store.receive(body, { from: sender, said, plain });
      if (said !== undefined) introduction = await this.#store.company.toSender(said);
      for (const one of letters) this.#events.emit('dead-letter', one);
      if (options.sendAgain !== undefined) await this.#resends.ask(options.sendAgain);
      return { ack, changes };
    });
  }

  get trust(): Trust | undefined {
    return this.#bonds?.trust;
  }

  async hello(said: string): Promise<Record<string, string>> {
    this.#refuseIfStopped();
    await this.#store.company.hello(said);
    const introduction = await this.#store.company.toSender(said);
    return introduction === undefined ? {} : { [ROWCAST_HEADER]: introduction };
  }

  /** The store has taken note of it already. */
  #found(found: Found): void {
    const events = this.#events;
    if (found.kind === 'restored') events.emit('restored', {});
    if (found.kind === 'doubted') for (const url of found.urls) this.#identities.askBack(url);
    if (found.kind === 'peer-replaced') {
      this.#seeded([found.url]);
      events.emit('peer-replaced', { peer: found.url, id: found.id });
    }
    if (found.kind === 'peer-restored') {
      this.#seeded(found.urls);
      events.emit('peer-restored', { id: found.id, peers: found.urls });
    }
  }

  /** These begin anew. */
  #seeded(urls: string[]): void {
    for (const { edge } of this.#roster.links) {
      if (urls.includes(edge.url))
        void edge.refresh().then(
          () => this.#roster.nudge(edge),
          () => {},
        );
    }
  }

  async health(): Promise<HubHealth> {
    this.#refuseIfStopped();
    const verified = (url: string): VerifySummary | undefined => this.#comparisons.summaryOf(url);
    const bonded = (url: string): BondHealth | undefined => this.#bonds?.healthOf(url);
    const faults = this.#faults.problems();
    return hubHealth({
      id: this.id,
      store: this.#store,
      links: this.#roster.links,
      faults,
      now: this.#clock.now(),
      verified,
      bonded,
    });
  }

  async status(): Promise<HubHealth & Facts> {
    return { ...(await this.health()), ...(await this.#store.facts()) };
  }

  async flush(): Promise<FlushResult> {
    this.#refuseIfStopped();
    return flushAll(this.#roster.loops);
  }

  configure(settings: HubSettings): void {
    this.#refuseIfStopped();
    const checked = checkSettings(settings, 'hub');
    replaceKeys(this.#bonds?.keyring, checked.auth);
    Object.assign(this.#pace, checked.settings);
    this.#roster.nudge();
  }

  async verify(edge?: string | undefined, options: VerifyOptions = {}): Promise<VerifyResult[]> {
    this.#refuseIfStopped();
    return this.#comparisons.verify(edge, options);
  }

  async answer(path: string, body: string | Uint8Array, options: AnswerOptions = {}): Promise<Answered> {
    this.#refuseIfStopped();
    const answered = await this.#comparisons.answer(path, body, options);
    const self = options.said === undefined ? undefined : await this.#store.company.toSender(options.said);
    return self === undefined ? answered : { ...answered, headers: { ...answered.headers, [ROWCAST_HEADER]: self } };
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
    this.#roster.nudge();
  }

  async #end(): Promise<void> {
    this.#stopped.abort();
    await Promise.all([this.#waking, this.#identities.stop(), this.#comparisons.stop(), this.#roster.stop()]);
    this.#closeTransport();
    await this.#store.close();
  }

  #refuseIfStopped(): void {
    if (this.#stopping) throw new RowcastError('STOPPED', 'this hub was stopped');
  }
}

/** What the ship loop of an edge says, and does with what it hears. */
function companyOf({ company }: HubStore, edge: Edge): Company {
  return {
    introduction: () => company.toEdge(edge.url),
    get isKnown() {
      return edge.inc !== undefined;
    },
    objection: (said) => company.objection(edge.url, said),
    heard: async (said) => void (await edge.answered(said, edge.generation)),
  };
}
