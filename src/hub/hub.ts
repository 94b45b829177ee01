/** The hub's composition root: a store of newest versions, and the library's own ship loop for every edge. */

import type { Trust } from '../auth/trust.ts';
import { type Clock, endOfMany, systemClock } from '../clock.ts';
import type { Answered, AnswerOptions } from '../compare/answer.ts';
import type { VerifyNote, VerifySummary } from '../compare/notes.ts';
import type { VerifyOptions, VerifyResult } from '../compare/verify.ts';
import { type CheckedConfig, checkConfig, checkSettings, replaceTrust } from '../config.ts';
import { asFailure, RowcastError } from '../errors.ts';
import { Emitter, type Listener, type RowcastEvents, warningLater } from '../events.ts';
import { chance } from '../identity/chance.ts';
import type { FlushResult, Received } from '../index.ts';
import type { Why } from '../journal/why.ts';
import type { Facts } from '../observe/facts.ts';
import { Faults } from '../observe/faults.ts';
import { present, type ReceiveOptions, receiving } from '../receive/answer.ts';
import { type BondHealth, Bonds } from '../send/bonds.ts';
import { flushAll } from '../send/loop.ts';
import type { Pace, Shipper } from '../send/shipper.ts';
import type { TlsOptions } from '../send/tls.ts';
import { Together } from '../send/together.ts';
import { type Ask, transportFor } from '../send/transport.ts';
import { Connection, type Database } from '../sqlite/connection.ts';
import { ROWCAST_HEADER, senderId } from '../wire/protocol.ts';
import type { Hub, HubConfig, HubEventName, HubSettings } from './api.ts';
import { HubComparisons, notesOf } from './comparisons.ts';
import { Delivery } from './delivery.ts';
import { type Answers, Edge, enrolEdges } from './edges.ts';
import type { FanOut } from './fan-out.ts';
import { GroupEdges } from './group-edges.ts';
import { type HubHealth, hubHealth, hubReadiness } from './health.ts';
import { EdgeIdentities } from './identities.ts';
import { Ownership } from './ownership.ts';
import { Resends } from './resend.ts';
import { lettersOf } from './retry.ts';
import { EdgeRoster, type Edges } from './roster.ts';
import { SqliteHubStore } from './sqlite-store.ts';
import type { EdgeRow, Found, HubStore } from './store.ts';
import { HubTime } from './time.ts';

export type { Hub, HubConfig, HubEventName, HubSettings } from './api.ts';

/** What comes in together goes out together: edges are woken at once, and then share one batch. */
const LINGER_MS = 5;

/** Relays between nodes. The database must be the hub's own; it is refused where it holds anything else. */
export async function createHub(db: Database, given: HubConfig): Promise<Hub> {
  const config = checkConfig(given, 'hub');
  const clock = config.clock ?? systemClock;
  const { id, maxBodyBytes, maxAheadMs, random = chance } = config;
  return relayOn(new SqliteHubStore(new Connection(db), { clock, maxBodyBytes, maxAheadMs, id, random }), config);
}

/** On a store that is not open yet, and is closed when the hub is stopped. */
export async function relayOn(store: HubStore, config: CheckedConfig): Promise<Hub> {
  const { clock = systemClock } = config;
  try {
    const warnings = await store.open();
    const edges = await enrolEdges(store, config.peers);
    const kept = {
      askedFor: await store.askedFor(),
      verified: await notesOf(store).read(),
      clock: await store.clock(),
      warnings,
    };
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
  clock: number | undefined;
  warnings: RowcastEvents['warning'][];
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
  readonly #secure: (tls: TlsOptions) => void;
  readonly #closeTransport: () => void;
  readonly #stopped = endOfMany();
  readonly #resends: Resends;
  readonly #comparisons: HubComparisons;
  readonly #watching: Promise<void>;
  readonly #time: HubTime;
  /** Where several processes share the edges. */
  readonly #ownership: Ownership | undefined;
  /** Where there are keys. */
  readonly #bonds: Bonds | undefined;
  #waking: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(store: HubStore, rows: EdgeRow[], kept: Kept, config: CheckedConfig & { clock: Clock }) {
    this.id = config.id;
    this.maxBodyBytes = config.maxBodyBytes;
    this.#store = store;
    this.#clock = config.clock;
    this.#faults = new Faults(config.clock);
    this.#resends = new Resends(store, {
      clock: config.clock,
      stopped: this.#stopped.signal,
      onError: (error) => this.#events.emit('error', asFailure('rows could not be sent again', error)),
    });
    const { batchMs, batchSize, maxBatchBytes, requestTimeoutMs } = config;
    const pace: Pace = { batchMs, batchSize, maxBatchBytes, requestTimeoutMs };
    this.#pace = pace;
    const sending = transportFor(config);
    const answers: Answers = new Together(sending.untilSent, (all) => store.answered(all));
    const edges = rows.map((row) => new Edge(store, answers, row));
    // A given fetch need not be able to ask who an edge is.
    const asking = sending.get ? sending : transportFor({});
    this.#secure = sending.secure;
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
        warn: warningLater(this.#events),
      });
    const delivery = new Delivery(store, {
      nodeId: this.id,
      transport: sending,
      clock: this.#clock,
      random: config.random ?? chance,
      events: this.#events,
      faults: this.#faults,
      pace,
      stopped: this.#stopped.signal,
      bond: (url) => this.#bonds?.of(url),
      doubt: (url) => this.#identities.askBack(url),
    });
    this.fanOut = delivery.fanOut;
    this.#identities = new EdgeIdentities(edges, {
      hubId: this.id,
      get: asking.get as Ask,
      introduction: (url) => store.company.toEdge(url),
      bond: (url) => this.#bonds?.of(url),
      clock: this.#clock,
      events: this.#events,
      answeredAt: ({ url }) => this.#shipper(url)?.answeredAt ?? 0,
      onLeft: (inc) => store.company.left(inc),
      onAsked: ({ url }) => this.#shipper(url)?.nudge(),
      onAnew: ({ url }) => this.#shipper(url)?.nudge(),
      onAnswer: ({ url }, isAlive) => {
        const shipper = this.#shipper(url);
        if (isAlive) shipper?.alive();
        else if (shipper?.condition !== 'down') shipper?.askNow();
      },
    });
    this.#roster = new EdgeRoster(edges, {
      store,
      answers,
      identities: this.#identities,
      shipper: (edge) => delivery.shipper(edge),
      onTaken: ({ url, pinned }) => {
        if (pinned !== undefined) this.#bonds?.remember(url, pinned);
      },
      onRemoved: (url) => {
        this.#bonds?.forget(url);
        delivery.forget(url);
      },
      nextTurn: sending.untilSent,
      refuseIfStopped: () => this.#refuseIfStopped(),
    });
    const group = store.group && { store, group: store.group, roster: this.#roster, clock: this.#clock };
    this.#ownership = group && new Ownership(group, () => this.#refuseIfStopped());
    this.edges = this.#ownership ? new GroupEdges(store, this.#roster, this.#ownership) : this.#roster;
    this.#comparisons = new HubComparisons(store, {
      config,
      clock: this.#clock,
      events: this.#events,
      random: config.random ?? chance,
      stopped: this.#stopped.signal,
      fetch: sending.fetch,
      bond: (url) => this.#bonds?.of(url),
      rightsAt: (url) => this.#bonds?.rightsAt(url),
      links: () => this.#roster.links,
      link: (url) => this.#roster.find(url),
      remembered: kept.verified,
    });
    this.deadLetters = lettersOf(store);
    store.company.onFound((found) => this.#found(found));
    store.onAdvance(() => {
      this.#waking ??= this.#wakeAll();
    });
    // Who introduces itself has said with the very answer who it is.
    this.#events.on('peer-up', ({ peer }) => {
      if (this.#roster.find(peer)?.edge.inc === undefined) this.#identities.askAgain(peer);
    });
    this.#roster.start();
    this.#ownership?.start();
    this.#identities.start();
    this.#resends.start(kept.askedFor);
    if (group) void this.#resends.watch();
    this.#comparisons.start();
    const { maxAheadMs } = config;
    const inTime = { clock: config.clock, maxAheadMs, events: this.#events, stopped: this.#stopped.signal };
    this.#time = new HubTime(store, { ...inTime, noted: kept.clock });
    this.#watching = this.#time.watch(kept.warnings);
  }

  receive(body: string | Uint8Array, given: ReceiveOptions = {}): Promise<Received> {
    const options = present(given);
    let introduction: string | undefined;
    const self = { events: this.#events, faults: this.#faults, clock: this.#clock, introduction: () => introduction };
    return receiving(self, { body, from: options.from }, async () => {
      this.#refuseIfStopped();
      this.#time.refuseIfBehind();
      const { from, said, rights, origins } = options;
      const sender = senderId(from);
      const plain = said === undefined;
      const { ack, letters, changes } = await this.#store.receive(body, { from: sender, said, plain, rights, origins });
      if (said !== undefined) introduction = await this.#store.company.toSender(said);
      for (const one of letters) this.#events.emit('dead-letter', one);
      if (options.sendAgain !== undefined) await this.#resends.ask(options.sendAgain);
      return { ack, changes };
    });
  }

  get trust(): Trust | undefined {
    return this.#bonds?.trust;
  }

  async hello(said?: string | null): Promise<Record<string, string>> {
    this.#refuseIfStopped();
    const { said: heard } = present({ said });
    if (heard === undefined) return {};
    await this.#store.company.hello(heard);
    const introduction = await this.#store.company.toSender(heard);
    return introduction === undefined ? {} : { [ROWCAST_HEADER]: introduction };
  }

  /** The store has taken note of it already. */
  #found(found: Found): void {
    const events = this.#events;
    // A hub that is being stopped begins nothing.
    const tell = (error: unknown): void => {
      if (!this.#stopping) events.emit('error', asFailure('edges could not begin anew', error));
    };
    if (found.kind === 'another-file') {
      this.fanOut.clear();
      this.#roster.beginAnew().catch(tell);
    }
    if (found.kind === 'restored') events.emit('restored', {});
    if (found.kind === 'doubted') for (const url of found.urls) this.#identities.askBack(url);
    if (found.kind === 'peer-replaced') {
      this.#roster.refresh([found.url]).catch(tell);
      events.emit('peer-replaced', { peer: found.url, id: found.id });
    }
    if (found.kind === 'peer-restored') {
      this.#roster.refresh(found.urls).catch(tell);
      events.emit('peer-restored', { id: found.id, peers: found.urls });
    }
  }

  #shipper(url: string): Shipper | undefined {
    return this.#roster.find(url)?.loop.shipper;
  }

  async health(): Promise<HubHealth> {
    return hubHealth(this.#seen());
  }

  async readiness(): Promise<HubHealth> {
    return hubReadiness(this.#seen());
  }

  #seen(): Parameters<typeof hubHealth>[0] {
    this.#refuseIfStopped();
    const verified = (url: string): VerifySummary | undefined => this.#comparisons.summaryOf(url);
    const bonded = (url: string): BondHealth | undefined => this.#bonds?.healthOf(url);
    const lasting = [this.#time.problem, this.#ownership?.problem].filter(isSaid);
    const faults = [...this.#faults.problems(), ...this.#comparisons.problems(), ...lasting];
    return {
      id: this.id,
      store: this.#store,
      links: this.#roster.links,
      faults,
      usedTwice: this.#identities.usedTwice(),
      clock: this.#clock,
      verified,
      bonded,
    };
  }

  async status(): Promise<HubHealth & Facts> {
    return { ...(await this.health()), ...(await this.#store.facts()) };
  }

  async why(table: string, id: string): Promise<Why> {
    this.#refuseIfStopped();
    return this.#store.why(table, id);
  }

  async flush(): Promise<FlushResult> {
    this.#refuseIfStopped();
    return flushAll(this.#roster.loops);
  }

  configure(settings: HubSettings): void {
    this.#refuseIfStopped();
    const checked = checkSettings(settings, 'hub');
    const changed = replaceTrust(checked, this.#bonds?.keyring, { secure: this.#secure });
    Object.assign(this.#pace, changed);
    this.#roster.nudge();
  }

  async verify(edge?: string | undefined, options: VerifyOptions = {}): Promise<VerifyResult[]> {
    this.#refuseIfStopped();
    return this.#comparisons.verify(edge, options);
  }

  async answer(path: string, body: string | Uint8Array, given: AnswerOptions = {}): Promise<Answered> {
    this.#refuseIfStopped();
    const options = present(given);
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
    if (!this.#stopped.signal.aborted) this.#roster.wake();
  }

  async #end(): Promise<void> {
    this.#stopped.abort();
    await this.#ownership?.stop();
    await Promise.all([
      this.#waking,
      this.#watching,
      this.#identities.stop(),
      this.#comparisons.stop(),
      this.#roster.stop(),
    ]);
    this.#closeTransport();
    await this.#store.close();
  }

  #refuseIfStopped(): void {
    if (this.#stopping) throw new RowcastError('STOPPED', 'this hub was stopped');
  }
}

function isSaid(problem: string | undefined): problem is string {
  return problem !== undefined;
}
