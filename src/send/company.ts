/**
 * What a node does about who it hears: a peer that was replaced, or has gone back, is seeded; what came from a database that
 * is gone is passed on; and where it is itself a copy, it takes an identity of its own.
 */
import type { Clock } from '../clock.ts';
import type { Emitter, EventName, RowcastEvents } from '../events.ts';
import { type Finding, Identity, isNews, type Other } from '../identity/identity.ts';
import { note } from '../identity/last-heard.ts';
import { ANOTHER_DATABASE, Turns, TWO_DATABASES } from '../identity/turns.ts';
import type { Connection } from '../sqlite/connection.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { ROWCAST_HEADER } from '../wire/protocol.ts';
import {
  AT_URLS,
  beginSeed,
  compareAllPeers,
  movePeer,
  noteDatabase,
  noteRemoved,
  peersOf,
  peersThatMayBe,
  stateOf,
} from './peers.ts';
import type { Company } from './shipment.ts';

export interface CompanyOptions {
  /** The node id. */
  id: string;
  random: () => number;
  clock: Clock;
  events: Emitter;
  /** All that was captured here before has reached every peer. */
  low(): number;
  warn(code: string, message: string): void;
}

/** A peer is asked who it is, because of what others say, at most once in so long: anybody can say anything. */
const ASK_AGAIN_MS = 2_000;

export class NodeCompany {
  readonly #db: Connection;
  readonly #o: CompanyOptions;
  readonly #identity: Identity;
  readonly #turns = new Turns();
  readonly #ownUrls = new Set<string>();
  /** What is to be told when the transaction is committed. */
  #told: (() => void)[] = [];
  /** Peers that are to be asked who they are, and when each was last asked for that reason. */
  readonly #toAsk = new Set<string>();
  readonly #askedAt = new Map<string, number>();

  constructor(db: Connection, options: CompanyOptions) {
    this.#db = db;
    this.#o = options;
    this.#identity = new Identity(db, { ...options, atUrls: AT_URLS });
  }

  /** A new attach. */
  begin(): void {
    this.#identity.begin();
  }

  /** Counts a transaction that others can know of. Only in one that is flushed. */
  tick(): void {
    this.#identity.tick();
  }

  problems(): string[] {
    return this.#identity.problems();
  }

  /** The databases that hold an id at present, without this one. */
  others(): Other[] {
    return this.#identity.others();
  }

  /** As the ship loop of one peer knows it. */
  of(peer: string): Company {
    const company = this;
    return {
      introduction: () => this.introduction(peer),
      get isKnown() {
        return company.#knows(peer);
      },
      objection: (said) => this.#objection(peer, said),
      heard: (said) => {
        this.#db.transaction(() => void this.answered(peer, said));
        this.settle();
      },
    };
  }

  /**
   * Among nodes that introduce themselves, each peer is asked, whatever is known of it: one that has lost everything has
   * nothing to send, and whoever has nothing for it would never hear of it.
   */
  #knows(peer: string): boolean {
    try {
      return stateOf(this.#db, peer).inc !== null || this.#identity.knowsOthers();
    } catch {
      return false;
    }
  }

  /** With a request to a peer. */
  introduction(peer: string): string {
    return this.#identity.introduction(stateOf(this.#db, peer).inc);
  }

  /** With the answer to a request. Undefined to a plain peer, and where the database cannot be read. */
  introductionTo(said: string | undefined): string | undefined {
    const sender = readIntroduction(said);
    if (!sender) return undefined;
    try {
      return this.#identity.introduction(sender.inc);
    } catch {
      return undefined;
    }
  }

  /** Somebody asks how this node is, and says who it is: the headers of the answer. */
  hello(said: string): Record<string, string> {
    try {
      const sender = this.#identity.greet(said);
      if (sender && isNews(sender)) this.#doubt(sender);
      this.settle();
    } catch {
      // Not now: whoever asks will say it again.
    }
    const introduction = this.introductionTo(said);
    return introduction === undefined ? {} : { [ROWCAST_HEADER]: introduction };
  }

  /** A request says who sends it. In the transaction of what it brings. */
  requested(said: string, brings: boolean): void {
    this.#told = [];
    const finding = this.#identity.hear(said, { answer: false, brings });
    if (!finding) return;
    if (isNews(finding)) this.#doubt(finding);
    this.#actOn(finding);
  }

  /** The peers that are to be asked who they are, now. */
  toAsk(): string[] {
    if (this.#toAsk.size === 0) return [];
    const now = this.#o.clock.now();
    const isDue = (peer: string): boolean => Math.abs(now - (this.#askedAt.get(peer) ?? -Infinity)) >= ASK_AGAIN_MS;
    const due = [...this.#toAsk].filter(isDue);
    for (const peer of due) {
      this.#toAsk.delete(peer);
      this.#askedAt.set(peer, now);
    }
    return due;
  }

  /**
   * An answer of a peer says who gives it. In the transaction that takes note of it. False where it is no acknowledgement of
   * a shipment of that run: by another database than had the ones before, or by an earlier state of the same.
   */
  answered(peer: string, said: string, run?: number): boolean {
    this.#told = [];
    const { inc: before, run: current } = stateOf(this.#db, peer);
    const finding = this.#identity.hear(said, { answer: true, brings: false });
    if (!finding) return true;
    this.#actOn(finding);
    if (run !== undefined && run !== current) return false;
    // It had ended by then, or is an earlier state that has not said more: what it had may be gone. It is sent again.
    if (finding.kind === 'late') return false;
    if (finding.kind === 'self') this.#isOurselves(peer);
    else if (before === null) this.#adopt(peer, finding);
    else if (before !== finding.inc) {
      // Asked how it is, the other one of two has answered: its acknowledgements are objected to.
      if (this.#turns.isOneOfTwo(peer, finding, this.#o.clock.now())) return false;
      this.#replace(peer, before, finding);
    }
    return stateOf(this.#db, peer).run === current;
  }

  /** After the transaction in which something was heard, and before anything more is said. */
  settle(): void {
    for (const tell of this.#told) tell();
    this.#told = [];
    if (!this.#identity.renew()) return;
    // Whoever hears of the new one may ask in its turn, and finds out then.
    for (const peer of peersThatMayBe(this.#db)) this.#toAsk.add(peer);
    this.#o.events.emit('restored', {});
  }

  #actOn(finding: Finding): void {
    const { id, inc, wentBack, doubtful, compareAll } = finding;
    const now = this.#o.clock.now();
    const peers = wentBack && !doubtful ? peersOf(this.#db, inc) : [];
    for (const peer of peers) beginSeed(this.#db, peer, now);
    if (wentBack && !doubtful) this.#tell('peer-restored', { id, peers });
    if (!compareAll) return;
    compareAllPeers(this.#db, now, peers);
    this.#told.push(() => this.#identity.passedOn(finding));
  }

  /** Somebody says that it is one of our peers, or was: that is asked where these are. */
  #doubt(sender: Pick<Finding, 'id' | 'inc'>): void {
    for (const peer of peersThatMayBe(this.#db, sender)) this.#toAsk.add(peer);
  }

  /** The first time that a database says at this URL who it is; nothing is known of what was there before. */
  #adopt(peer: string, { inc, kind, wentBack }: Finding): void {
    const now = this.#o.clock.now();
    noteDatabase(this.#db, peer, inc);
    if (wentBack) beginSeed(this.#db, peer, now);
    else if (kind === 'same' || kind === 'restarted') movePeer(this.#db, inc, peer, now);
    noteRemoved(this.#db, now);
  }

  #replace(peer: string, before: string, { id, inc }: Finding): void {
    const now = this.#o.clock.now();
    this.#turns.replace(peer, before, inc, now);
    noteDatabase(this.#db, peer, inc);
    // Nobody waits for the one before; where it is elsewhere, it is heard again, and counts again.
    for (const other of this.#identity.others()) if (other.inc === before) note(this.#db, 'forgotten', other.id, now);
    beginSeed(this.#db, peer, now);
    this.#tell('peer-replaced', { peer, id });
  }

  #objection(peer: string, said: string): string | undefined {
    const { inc } = stateOf(this.#db, peer);
    const finding = this.#identity.look(said);
    if (inc === null || !finding || finding.inc === inc) return undefined;
    return this.#turns.isOneOfTwo(peer, finding, this.#o.clock.now()) ? TWO_DATABASES : undefined;
  }

  /** What another database than that of the peer says of its rows is nothing to go by. */
  another(peer: string, said: string): string | undefined {
    const { inc } = stateOf(this.#db, peer);
    const finding = this.#identity.look(said);
    return inc === null || !finding || finding.inc === inc ? undefined : ANOTHER_DATABASE;
  }

  #isOurselves(peer: string): void {
    if (this.#ownUrls.has(peer)) return;
    this.#ownUrls.add(peer);
    this.#o.warn('own-peer', `the peer ${peer} is this database itself: take it out of the peers`);
  }

  #tell<E extends EventName>(name: E, event: RowcastEvents[E]): void {
    this.#told.push(() => this.#o.events.emit(name, event));
  }
}
