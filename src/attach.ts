/** The composition root: checks what it is given, installs capture, starts a loop per peer, returns the manager. */
import type { Trust } from './auth/trust.ts';
import { tidy } from './capture/mend.ts';
import { Registry } from './capture/registry.ts';
import { type Clock, endOfMany, systemClock } from './clock.ts';
import type { Answered, AnswerOptions } from './compare/answer.ts';
import type { VerifyOptions, VerifyResult } from './compare/verify.ts';
import {
  type CheckedConfig,
  type CheckedSettings,
  type Config,
  checkConfig,
  checkSettings,
  checkTables,
  replaceTrust,
  type Settings,
} from './config.ts';
import { RowcastError } from './errors.ts';
import { Emitter, type EventName, type Listener, warningLater } from './events.ts';
import { Changes } from './feed/changes.ts';
import type { Feed } from './feed/page.ts';
import { type Health, health } from './health.ts';
import { chance } from './identity/chance.ts';
import type { Conflicts } from './journal/conflicts.ts';
import { NodeJournal } from './journal/node-journal.ts';
import type { Why } from './journal/why.ts';
import { DeadLetters } from './letters/dead-letters.ts';
import { TimeLimit } from './letters/time-limit.ts';
import type { FlushResult, Manager } from './manager.ts';
import { aliasesFor, migrate, type Subject } from './migrate/migrate.ts';
import type { MigrateOptions, Migration } from './migrate/options.ts';
import { Faults } from './observe/faults.ts';
import { type Status, statusOf } from './observe/status.ts';
import { type Heard, present, type Received, type ReceiveOptions, receiving, type Taken } from './receive/answer.ts';
import { Applier, tellCommitted, wantedBy } from './receive/apply.ts';
import { NodeClockFloor } from './receive/clock-floor.ts';
import { lettersFor, Retry } from './receive/retry.ts';
import { RetryLoop } from './receive/retry-loop.ts';
import { askedFor } from './send/asked-tables.ts';
import { BacklogBound } from './send/backlog.ts';
import { BacklogAge } from './send/backlog-age.ts';
import { NodeCompany, type Sent } from './send/company.ts';
import { Comparisons } from './send/comparisons.ts';
import { Lines } from './send/lines.ts';
import { OneWay } from './send/one-way.ts';
import { PeerOutbox } from './send/outbox.ts';
import { askForTables, Requests, resendTables } from './send/resend.ts';
import { forCallers, type LoopParts, type Peers, Roster } from './send/roster.ts';
import { Shipper } from './send/shipper.ts';
import { Connection, type Database } from './sqlite/connection.ts';
import { Stillness } from './sqlite/look.ts';
import { RowCounter } from './sqlite/row-counter.ts';
import { tickingEvery } from './sqlite/ticking.ts';
import { NodeTombstones } from './tombstones/node-tombstones.ts';
import { bodyOf } from './wire/body.ts';
import { type Change, ROWCAST_HEADER, senderId } from './wire/protocol.ts';

/** Captures every write to `tables` and keeps them the same on all peers. */
export function attach(db: Database, config: Config, tables: string[]): Manager {
  return new Attached(db, checkConfig(config), checkTables(tables));
}

class Attached implements Manager {
  readonly id: string;
  readonly maxBodyBytes: number;
  readonly deadLetters: Manager['deadLetters'];
  readonly aliases: Manager['aliases'];
  readonly conflicts: Conflicts;
  readonly trust: Trust | undefined;
  readonly #handle: Database;
  readonly peers: Peers;
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #random: () => number;
  /** What can be changed at run time; the loops look at it again and again. */
  readonly #settings: CheckedSettings;
  readonly #events = new Emitter();
  readonly #faults: Faults;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;
  readonly #journal: NodeJournal;
  readonly #applier: Applier;
  readonly #retry: Retry;
  readonly #retrying: RetryLoop;
  readonly #counter: RowCounter;
  readonly #age: BacklogAge;
  readonly #oneWay: OneWay;
  readonly #roster: Roster;
  readonly #lines: Lines;
  readonly #stopped = endOfMany();
  readonly #stillness: Stillness;
  readonly #watching: Promise<void>;
  readonly #requests: Requests;
  readonly #company: NodeCompany;
  readonly #floor: NodeClockFloor;
  readonly #comparisons: Comparisons;
  readonly #tombstones: NodeTombstones;
  readonly #changes: Changes;
  #stopping: Promise<void> | undefined;

  constructor(handle: Database, config: CheckedConfig, tables: string[]) {
    const db = new Connection(handle);
    this.#handle = handle;
    this.id = config.id;
    this.maxBodyBytes = config.maxBodyBytes;
    this.#db = db;
    this.#stillness = new Stillness(db);
    const { batchMs, batchSize, maxBatchBytes, requestTimeoutMs, maxBacklog, conflicts, maxAheadMs } = config;
    this.#settings = { batchMs, batchSize, maxBatchBytes, requestTimeoutMs, maxBacklog, conflicts };
    this.#clock = config.clock ?? systemClock;
    this.#random = config.random ?? chance;
    this.#faults = new Faults(this.#clock, db);
    const warn = warningLater(this.#events);
    const peers = (): string[] => this.#roster.urls;
    this.#oneWay = new OneWay(config.id, peers, warn);
    const named = { tables, warn, time: this.#clock };
    this.#registry = new Registry(db, {
      ...named,
      onRefresh: () => this.#retrying.schemaChanged(),
      onUnseen: (unseen, ask) => {
        resendTables(db, unseen, { ask, now: this.#clock.now() });
        this.#changes.unseen();
      },
      onBack: (back) => askForTables(db, back),
      onAdopt: (adopted) => this.#changes.adopt(adopted),
    });
    const around = { id: config.id, random: this.#random, clock: this.#clock, events: this.#events, warn, maxAheadMs };
    this.#letters = new DeadLetters(db, this.#clock, new TimeLimit(this.#clock, maxAheadMs));
    const anew = (): void => this.#roster.beginAnew(() => this.#changes.beginAnew());
    this.#company = new NodeCompany(db, { ...around, onAnotherFile: anew, low: (to) => this.#tombstones.lowFor(to) });
    const kept = { registry: this.#registry, letters: this.#letters, limits: () => this.#settings.conflicts };
    const calls = { refuseIfStopped: (): void => this.#refuseIfStopped(), onWrite: (): void => this.nudge() };
    this.#journal = new NodeJournal(db, { ...around, ...kept, ...calls });
    this.conflicts = this.#journal.conflicts;
    this.#changes = new Changes(db, { ...around, ...kept, option: config.feed, arrivals: this.#journal.arrivals });
    const applying = { bodyBytes: config.maxBodyBytes, self: this.#company };
    this.#applier = new Applier(db, this.#registry, this.#letters, this.#journal.journal, applying);
    this.#retry = new Retry(db, this.#registry, this.#letters, this.#applier);
    this.#retrying = new RetryLoop(this.#retry, this.#registry, this.#clock, this.#events);
    this.#counter = new RowCounter(db, this.#clock);
    this.#registry.install();
    this.#floor = new NodeClockFloor(db, this.#clock, maxAheadMs, warn);
    this.#company.begin();
    this.#applier.prepare();
    this.#age = new BacklogAge(db, this.#clock);
    const sources = { db, registry: this.#registry, clock: this.#clock };
    const limits = (): CheckedSettings['maxBacklog'] => this.#settings.maxBacklog;
    this.#roster = new Roster(config.peers, {
      ...around,
      ...sources,
      company: this.#company,
      onRead: this.#journal.left,
      bound: new BacklogBound({ ...sources, counter: this.#counter, age: this.#age, limits }),
      seenUpTo: () => this.#changes.seenUpTo,
      shipper: (...of) => this.#shipper(...of),
      nextTurn: () => this.#lines.transport.untilSent(),
      onRemoved: (url) => this.#lines.bonds?.forget(url),
    });
    this.#roster.enter();
    this.#requests = new Requests(db, this.#clock);
    this.#age.note();
    const keeping = { keep: config.keepTombstonesMs, company: this.#company, peers, age: this.#age };
    this.#tombstones = new NodeTombstones({ ...sources, letters: this.#letters }, { ...around, ...keeping });
    this.#retrying.schemaChanged();

    const onAnswer = (peer: string, id: string | null | undefined): void => {
      this.#oneWay.heard(peer, id);
      if (id) this.#comparisons.heard(peer, id);
    };
    this.#lines = new Lines(config, db, { clock: this.#clock, warn, onAnswer });
    this.trust = this.#lines.bonds?.trust;
    this.#comparisons = new Comparisons(db, {
      ...around,
      ...kept,
      config,
      stopped: this.#stopped.signal,
      fetch: (peer, ...request) => this.#lines.fetch(peer, ...request),
      peers,
      shipper: (peer) => this.#roster.shipperOf(peer),
      company: this.#company,
      bond: (peer) => this.#lines.bonds?.of(peer),
      take: (peer, body) => void this.#apply(body, { rights: this.#lines.bonds?.rightsAt(peer) }, { isRowcast: true }),
    });
    this.peers = forCallers(this.#roster, db, calls.refuseIfStopped);
    this.deadLetters = lettersFor(db, this.#letters, this.#retry, calls);
    this.aliases = aliasesFor(db, (change) => this.#change(change));
    this.#roster.start();
    this.#retrying.start();
    const loop = { clock: this.#clock, stopped: this.#stopped.signal, events: this.#events };
    db.yieldBy(loop);
    this.#watching = tickingEvery(TICK_MS, loop, () => this.#tick());
  }

  applyChanges(changes: Change[]): number {
    this.#refuseIfStopped();
    const body = bodyOf(changes);
    return this.#db.patiently(() => this.#apply(body, {}, this.#company.sent(undefined, true))).ack.applied;
  }

  receive(body: string | Uint8Array, given: ReceiveOptions = {}): Received {
    const options = present(given);
    const introduction = () => (this.#stopping ? undefined : this.#company.introductionTo(options.said));
    const self = { db: this.#db, events: this.#events, faults: this.#faults, clock: this.#clock, introduction };
    return receiving(self, { ...options, body }, () => {
      this.#refuseIfStopped();
      this.#floor.refuseIfBehind();
      const asked = this.#applier.isBegun(body) ? undefined : options.sendAgain;
      if (asked !== undefined) this.#requests.note(askedFor(this.#registry.list(), asked));
      return this.#apply(body, { ...options, from: senderId(options.from) }, this.#company.sent(options.said));
    });
  }

  hello(given?: string | null): Record<string, string> {
    this.#refuseIfStopped();
    const { said } = present({ said: given });
    return said === undefined ? {} : this.#company.hello(said);
  }

  health(): Health {
    this.#refuseIfStopped();
    const kept = { db: this.#db, registry: this.#registry, letters: this.#letters, company: this.#company };
    return health({
      ...kept,
      nodeId: this.id,
      clockProblem: this.#floor.problem,
      faults: this.#faults,
      shippers: this.#roster.shippers,
      counter: this.#counter,
      age: this.#age,
      comparisons: this.#comparisons,
      heldBy: this.#tombstones.heldBy,
      bonded: (peer) => this.#lines.bonds?.healthOf(peer),
      now: this.#clock.now(),
    });
  }

  status(): Status {
    return statusOf(this.health(), { db: this.#db, registry: this.#registry, counter: this.#counter });
  }

  async flush(): Promise<FlushResult> {
    this.#refuseIfStopped();
    await this.#retrying.caughtUp();
    return this.#roster.flush();
  }

  async verify(peer?: string | undefined, options: VerifyOptions = {}): Promise<VerifyResult[]> {
    this.#refuseIfStopped();
    return this.#comparisons.verify(peer, options);
  }

  async answer(path: string, body: string | Uint8Array, given: AnswerOptions = {}): Promise<Answered> {
    this.#refuseIfStopped();
    const options = present(given);
    const answered = await this.#comparisons.answer(path, body, options);
    const self = this.#stopping ? undefined : this.#company.introductionTo(options.said);
    return self === undefined ? answered : { ...answered, headers: { ...answered.headers, [ROWCAST_HEADER]: self } };
  }

  forget(id: string): void {
    this.#refuseIfStopped();
    this.#db.patiently(() => this.#tombstones.forget(id));
  }

  why(table: string, id: string): Why {
    this.#refuseIfStopped();
    return this.#journal.why(table, id);
  }

  nudge(): void {
    this.#roster.nudge();
  }

  configure(settings: Settings): void {
    this.#refuseIfStopped();
    const { bonds, transport } = this.#lines;
    Object.assign(this.#settings, replaceTrust(checkSettings(settings), bonds?.keyring, transport));
    this.nudge();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#end();
    return this.#stopping;
  }

  async detach(): Promise<void> {
    await this.stop();
    await this.#registry.uninstall();
    this.#db.release();
  }

  migrate(migration: Migration, options?: MigrateOptions): void {
    this.#change((subject) => migrate(subject, migration, options));
  }

  get feed(): Feed | undefined {
    return this.#changes.feed;
  }

  on<E extends EventName>(event: E, listener: Listener<E>): () => void {
    if (event === 'change' && !this.#stopping) this.#db.patiently(() => this.#changes.listen());
    return this.#events.on(event, listener);
  }

  #apply(body: string | Uint8Array, told: Heard<ReceiveOptions>, sent: Sent): Taken {
    const by = { from: told.from, ...sent, ...wantedBy(this.#events) };
    const { event, letters, ...taken } = this.#changes.receiving(by.from, () =>
      this.#applier.applyInParts(body, { ...told, ...by }, told.atOnce),
    );
    if (!event) return taken;
    if (taken.ack.rejected?.some(({ code }) => code === 'constraint')) this.#retrying.soon();
    try {
      this.#company.settle();
    } finally {
      tellCommitted(this.#events, { event, letters });
      this.#changes.tell();
      this.#retrying.cameBack(this.#applier.takeCameBack());
    }
    this.#oneWay.received(told.from);
    return taken;
  }

  #change(change: (subject: Subject) => void): void {
    this.#refuseIfStopped();
    this.#db.patiently(() => change({ db: this.#db, handle: this.#handle, registry: this.#registry }));
    this.#retrying.soon();
    this.nudge();
  }

  #shipper(peer: string, { attachment, convoy, crowd }: LoopParts): Shipper {
    const outbox = new PeerOutbox(this.#db, this.#registry, this.#letters, peer, attachment, this.#company, convoy);
    return new Shipper({
      nodeId: this.id,
      peer,
      outbox: this.#comparisons.seeding(peer, outbox),
      company: this.#company.of(peer),
      fetch: (...request) => this.#lines.fetch(peer, ...request),
      get: this.#lines.transport.get,
      untilSent: this.#lines.transport.untilSent,
      clock: this.#clock,
      random: this.#random,
      events: this.#events,
      faults: this.#faults,
      pace: this.#settings,
      bond: this.#lines.bonds?.of(peer),
      crowd,
    });
  }

  /** Three look-ups, as long as nobody has touched anything. */
  #tick(): void {
    this.#stillness.look((isQuiet) => {
      if (!isQuiet) this.#look();
      this.#faults.tick(isQuiet);
      this.#age.tick();
      this.#floor.tick();
      this.#changes.tick(isQuiet);
      if (this.#retrying.releaseDue(isQuiet)) this.nudge();
      this.#roster.tick(isQuiet);
      this.#roster.ask(this.#company.toAsk());
      this.#requests.serve();
      this.#comparisons.tick();
      this.#tombstones.tick();
      this.#journal.journal.tick();
    });
  }

  /** What somebody may have done to the schema and the rows. */
  #look(): void {
    this.#registry.refresh();
    this.#company.look();
    for (const letter of this.#applier.settleUnique()) this.#events.emit('dead-letter', letter);
    this.#retrying.cameBack(this.#applier.takeCameBack());
    tidy(this.#db);
  }

  async #end(): Promise<void> {
    this.#counter.stop();
    this.#stopped.abort();
    await Promise.all([this.#watching, this.#retrying.stop(), this.#comparisons.stop(), this.#roster.stop()]);
    this.#lines.transport.close();
    await this.#roster.leave();
    try {
      this.#applier.release();
      this.#changes.stop();
      this.#db.release();
    } catch {
      // The application has closed the database already: then there is nothing left to let go of.
    }
  }

  #refuseIfStopped(): void {
    if (!this.#stopping) return;
    throw new RowcastError('STOPPED', 'this manager was stopped', { hint: 'call attach again' });
  }
}

/** How often the schema and the company in this file are looked at: soon enough for a person, seldom enough for a CPU. */
export const TICK_MS = 40;
