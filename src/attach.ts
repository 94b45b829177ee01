/** The composition root: checks what it is given, installs capture, starts a loop per peer, returns the manager. */

import { idsAreBehind, keepIdsAbove } from './capture/change-ids.ts';
import { Registry } from './capture/registry.ts';
import { type Clock, systemClock } from './clock.ts';
import type { Answered, AnswerOptions } from './compare/answer.ts';
import type { VerifyOptions, VerifyResult } from './compare/verify.ts';
import { type CheckedConfig, type Config, checkConfig, checkTables } from './config.ts';
import { type DeadLetter, DeadLetters } from './dead-letters.ts';
import { RowcastError } from './errors.ts';
import { Emitter, type EventName, type Listener } from './events.ts';
import { type Health, health } from './health.ts';
import { asFailure, type Received, type ReceiveOptions, receiving, type Taken } from './receive/answer.ts';
import { Applier } from './receive/apply.ts';
import { Retry, type RetryResult } from './receive/retry.ts';
import { RetryLoop } from './receive/retry-loop.ts';
import { Attachment } from './send/attachment.ts';
import { BacklogAge } from './send/backlog-age.ts';
import { Comparisons } from './send/comparisons.ts';
import { OneWay } from './send/one-way.ts';
import { PeerOutbox } from './send/outbox.ts';
import { enrolPeers } from './send/peers.ts';
import { askedFor, Requests, resendTables } from './send/resend.ts';
import { Shipper } from './send/shipper.ts';
import { defaultTransport, type Fetch, givenTransport, type Transport } from './send/transport.ts';
import { Connection, type Database } from './sqlite/connection.ts';
import { RowCounter } from './sqlite/row-counter.ts';
import { batchText } from './wire/body.ts';
import { type Change, NODE_ID_HEADER } from './wire/protocol.ts';

export interface FlushResult {
  /** Peers that have acknowledged everything that was pending. */
  delivered: string[];
  /** Peers that could not be reached; the changes stay for them. */
  unreachable: string[];
}

export interface Manager {
  /** Applies received changes, last write wins. Returns how many won or were already in place. */
  applyChanges(changes: Change[]): number;
  /** Applies a raw request body. The fast and exact way, which `/sync` should use. */
  receive(body: string | Uint8Array, options?: ReceiveOptions): Received;
  health(): Health;
  /**
   * Ships now; resolves when every reachable peer has acknowledged what was pending, and every dead letter that a change of
   * the schema has made possible has been tried again.
   */
  flush(): Promise<FlushResult>;
  /**
   * Compares every synced table with a peer, or with all of them, and tells what differs; with `repair`, puts it right. What
   * is on its way is waited for, so writes may go on meanwhile.
   */
  verify(peer?: string | undefined, options?: VerifyOptions): Promise<VerifyResult[]>;
  /** For the caller's own routes `/sync/compare` and `/sync/fetch`, by which peers compare with this node. */
  answer(path: string, body: string | Uint8Array, options?: AnswerOptions): Promise<Answered>;
  /** Wakes the loops without waiting for the next tick. */
  nudge(): void;
  /** Ends the loops; when it resolves, no timer, socket or statement is left. Capture goes on. */
  stop(): Promise<void>;
  /** Stops, and removes the triggers: writes are no longer captured. */
  detach(): Promise<void>;
  on<E extends EventName>(event: E, listener: Listener<E>): () => void;
  readonly deadLetters: {
    list(options?: { limit?: number; after?: number }): DeadLetter[];
    retry(id: number): RetryResult;
    discard(id: number): void;
  };
  readonly id: string;
  /** The largest body that it takes; `rowcast/http` reads no further. */
  readonly maxBodyBytes: number;
}

/** Captures every write to `tables` and keeps them the same on all peers. */
export function attach(db: Database, config: Config, tables: string[]): Manager {
  return new Attached(new Connection(db), checkConfig(config), checkTables(tables));
}

class Attached implements Manager {
  readonly id: string;
  readonly maxBodyBytes: number;
  readonly deadLetters: Manager['deadLetters'];
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #config: CheckedConfig;
  readonly #events = new Emitter();
  readonly #registry: Registry;
  readonly #letters: DeadLetters;
  readonly #applier: Applier;
  readonly #retry: Retry;
  readonly #retrying: RetryLoop;
  readonly #counter: RowCounter;
  readonly #age: BacklogAge;
  readonly #oneWay: OneWay;
  readonly #shippers: Shipper[];
  readonly #transport: Transport;
  readonly #stopped = new AbortController();
  readonly #watching: Promise<void>;
  readonly #attachment: Attachment;
  readonly #requests: Requests;
  readonly #comparisons: Comparisons;
  #stopping: Promise<void> | undefined;

  constructor(db: Connection, config: CheckedConfig, tables: string[]) {
    this.id = config.id;
    this.maxBodyBytes = config.maxBodyBytes;
    this.#db = db;
    this.#config = config;
    this.#clock = config.clock ?? systemClock;
    this.#oneWay = new OneWay(config.id, config.peers, (code, message) => this.#warn(code, message));
    this.#registry = new Registry(db, {
      tables,
      warn: (code, message) => this.#warn(code, message),
      onRefresh: () => this.#retrying.schemaChanged(),
      onUnseen: (unseen, ask) => resendTables(db, unseen, { ask, now: this.#clock.now() }),
    });
    this.#attachment = new Attachment(db, {
      nodeId: config.id,
      peers: () => config.peers,
      clock: this.#clock,
      warn: (code, message) => this.#warn(code, message),
    });
    this.#letters = new DeadLetters(db, this.#clock);
    this.#applier = new Applier(db, this.#registry, this.#letters, config.maxBodyBytes);
    this.#retry = new Retry(db, this.#registry, this.#letters, this.#applier);
    this.#retrying = new RetryLoop(this.#retry, this.#registry, this.#clock, this.#events);
    this.#counter = new RowCounter(db, this.#clock);
    this.#registry.install();
    enrolPeers(db, this.#registry, this.#attachment);
    this.#requests = new Requests(db, this.#clock);
    this.#age = new BacklogAge(db, this.#clock);
    this.#age.note();
    this.#retrying.schemaChanged();

    this.#transport = config.fetch ? givenTransport(config.fetch, config.get) : defaultTransport();
    this.#comparisons = new Comparisons(db, {
      registry: this.#registry,
      config,
      clock: this.#clock,
      events: this.#events,
      stopped: this.#stopped.signal,
      random: config.random ?? Math.random,
      fetch: (peer, url, init) => this.#fetch(peer, url, init),
      shippers: () => this.#shippers,
      take: (body) => void this.#apply(body, undefined, true),
    });
    this.#shippers = config.peers.map((peer) => this.#shipper(peer));
    this.deadLetters = {
      list: (options) => this.#letters.list(options),
      retry: (id) => this.#retryOne(id),
      discard: (id) => this.#letters.discard(id),
    };
    for (const shipper of this.#shippers) shipper.start();
    this.#retrying.start();
    this.#watching = this.#watch();
  }

  applyChanges(changes: Change[]): number {
    this.#refuseIfStopped();
    if (!Array.isArray(changes)) throw new RowcastError('INVALID_BATCH', 'changes must be an array');
    const list = JSON.stringify(changes, exactIntegers).slice(1, -1);
    return this.#apply(batchText(0, list), undefined, true).ack.applied;
  }

  receive(body: string | Uint8Array, options: ReceiveOptions = {}): Received {
    const self = { events: this.#events, clock: this.#clock, anyOrder: () => true };
    return receiving(self, { body, from: options.from }, () => {
      this.#refuseIfStopped();
      if (options.sendAgain !== undefined) this.#requests.note(askedFor(this.#registry.list(), options.sendAgain));
      return this.#apply(body, options.from, options.said !== undefined);
    });
  }

  health(): Health {
    this.#refuseIfStopped();
    return health({
      nodeId: this.id,
      db: this.#db,
      registry: this.#registry,
      letters: this.#letters,
      shippers: this.#shippers,
      counter: this.#counter,
      age: this.#age,
      verified: (peer) => this.#comparisons.summaryOf(peer),
      now: this.#clock.now(),
    });
  }

  async flush(): Promise<FlushResult> {
    this.#refuseIfStopped();
    const result: FlushResult = { delivered: [], unreachable: [] };
    await this.#retrying.caughtUp();
    await Promise.all(
      this.#shippers.map(async (shipper) => {
        const list = (await shipper.flush()) ? result.delivered : result.unreachable;
        list.push(shipper.peer);
      }),
    );
    return result;
  }

  async verify(peer?: string | undefined, options: VerifyOptions = {}): Promise<VerifyResult[]> {
    this.#refuseIfStopped();
    return this.#comparisons.verify(peer, options);
  }

  async answer(path: string, body: string | Uint8Array, options: AnswerOptions = {}): Promise<Answered> {
    this.#refuseIfStopped();
    return this.#comparisons.answer(path, body, options);
  }

  nudge(): void {
    for (const shipper of this.#shippers) shipper.nudge();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#end();
    return this.#stopping;
  }

  async detach(): Promise<void> {
    await this.stop();
    this.#registry.uninstall();
    this.#db.release();
  }

  on<E extends EventName>(event: E, listener: Listener<E>): () => void {
    return this.#events.on(event, listener);
  }

  #apply(body: string | Uint8Array, from: string | undefined, isRowcast: boolean): Taken {
    const { ack, event, letters, changes } = this.#applier.apply(body, {
      from,
      isRowcast,
      wantRows: this.#events.has('applied'),
      wantLetters: this.#events.has('dead-letter'),
    });
    if (ack.rejected?.some(({ code }) => code === 'constraint')) this.#retrying.soon();
    this.#oneWay.received(from);
    for (const one of letters) this.#events.emit('dead-letter', one);
    this.#events.emit('applied', event);
    return { ack, changes };
  }

  #retryOne(id: number): RetryResult {
    const result = this.#retry.one(id);
    if (result.outcome === 'queued') this.nudge();
    return result;
  }

  #shipper(peer: string): Shipper {
    const { id, batchMs, batchSize, maxBatchBytes, requestTimeoutMs, random } = this.#config;
    const outbox = new PeerOutbox(this.#db, this.#registry, this.#letters, peer, this.#attachment);
    return new Shipper({
      nodeId: id,
      peer,
      outbox: this.#comparisons.seeding(peer, outbox),
      fetch: (url, init) => this.#fetch(peer, url, init),
      get: this.#config.get ?? this.#transport.get,
      untilSent: this.#transport.untilSent,
      clock: this.#clock,
      random: random ?? Math.random,
      events: this.#events,
      batchMs,
      batchSize,
      batchBytes: maxBatchBytes,
      requestTimeoutMs,
    });
  }

  async #fetch(peer: string, url: string, init: Parameters<Fetch>[1]): ReturnType<Fetch> {
    const answer = await this.#transport.fetch(url, init);
    const id = answer.headers?.get(NODE_ID_HEADER);
    this.#oneWay.heard(peer, id);
    if (id) this.#comparisons.heard(peer, id);
    return answer;
  }

  /** Nobody can listen before attach returns, so what it has to say waits for the caller's turn to end. */
  #warn(code: string, message: string): void {
    queueMicrotask(() => this.#events.emit('warning', { code, message }));
  }

  /** The loop beside those of the peers, and the only one where there are none. */
  async #watch(): Promise<void> {
    let told: string | undefined;
    while (!this.#stopped.signal.aborted) {
      await this.#clock.sleep(TICK_MS, this.#stopped.signal);
      if (this.#stopped.signal.aborted) return;
      try {
        this.#tick();
        told = undefined;
      } catch (error) {
        const failure = error instanceof RowcastError ? error : asFailure(error);
        // Somebody else has the database for a moment; and what lasts is said once.
        const passing = failure.code === 'IN_TRANSACTION' || failure.code === 'DATABASE_BUSY';
        if (!passing && failure.message !== told) this.#events.emit('error', failure);
        if (!passing) told = failure.message;
      }
    }
  }

  /** A few look-ups, as long as nobody has touched anything. */
  #tick(): void {
    this.#age.tick();
    this.#registry.refresh();
    for (const letter of this.#applier.settleUnique()) this.#events.emit('dead-letter', letter);
    if (idsAreBehind(this.#db)) this.#db.transaction(() => keepIdsAbove(this.#db));
    const left = this.#attachment.watch();
    if (left || !this.#attachment.isEntered()) enrolPeers(this.#db, this.#registry, this.#attachment);
    this.#requests.serve();
    this.#comparisons.tick();
  }

  async #end(): Promise<void> {
    this.#counter.stop();
    this.#stopped.abort();
    await Promise.all([
      this.#watching,
      this.#retrying.stop(),
      this.#comparisons.stop(),
      ...this.#shippers.map((shipper) => shipper.stop()),
    ]);
    this.#transport.close();
    try {
      this.#attachment.leave();
      this.#applier.release();
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

/** A bigint in a row given to applyChanges: JSON where it is exact, the wire's form for large integers where not. */
function exactIntegers(_key: string, value: unknown): unknown {
  if (typeof value !== 'bigint') return value;
  return Number.isSafeInteger(Number(value)) ? Number(value) : `$int:${value}`;
}
