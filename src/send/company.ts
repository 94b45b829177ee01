/**
 * What a node does about who it hears: a peer that was replaced, or has gone back, is seeded; what came from a database that
 * is gone is passed on; and where it is itself a copy, it takes an identity of its own.
 */
import type { Clock } from '../clock.ts';
import type { Nodes } from '../compare/ledger.ts';
import type { Emitter, EventName, RowcastEvents } from '../events.ts';
import { type Finding, Identity, isNews, LATE_MS, type Other } from '../identity/identity.ts';
import { isNobodyAwaited, isUnawaitedOne, noted, noteForgotten, noteUnawaited } from '../identity/last-heard.ts';
import { ANOTHER_DATABASE, EARLIER_STATE, isEarlierState, Turns, TWO_DATABASES } from '../identity/turns.ts';
import type { Connection } from '../sqlite/connection.ts';
import { yielding } from '../sqlite/yielding.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { ROWCAST_HEADER } from '../wire/protocol.ts';
import { OF_ANY_ATTACHMENT } from './attachment.ts';
import {
  compareAllPeers,
  isNoMorePlain,
  notePlainBrought,
  noteRemoved,
  passOnOfStrangers,
  Strangers,
} from './passing-on.ts';
import {
  AT_URLS,
  beginRunsAnew,
  beginSeed,
  databaseAt,
  movePeer,
  noteDatabase,
  notePlain,
  peersOf,
  peersThatMayBe,
} from './peers.ts';
import type { Company } from './shipment.ts';

/** A batch that somebody has sent. What was fetched nobody has brought: it has no `note`, which is to be called in its transaction. */
export interface Sent {
  isRowcast: boolean;
  note?: (applied: number) => void;
}

export interface CompanyOptions {
  /** The node id. */
  id: string;
  random: () => number;
  clock: Clock;
  /** What is dated further ahead is not let in. */
  maxAheadMs: number;
  events: Emitter;
  /** All that was captured here before has reached every peer, as a database with this `inc` is told. */
  low(to: string | null | undefined): number | undefined;
  warn(code: string, message: string): void;
  /** Another state of the file, or another file, was put under this process: what it holds of it in memory is worth nothing. */
  onAnotherFile(): void;
}

/** A peer is asked who it is, because of what others say, at most once in so long: anybody can say anything. */
const ASK_AGAIN_MS = 2_000;

export class NodeCompany {
  readonly #db: Connection;
  readonly #o: CompanyOptions;
  readonly #identity: Identity;
  readonly #strangers: Strangers;
  readonly #turns = new Turns();
  readonly #ownUrls = new Set<string>();
  /** What is to be told when the transaction is committed. */
  #told: (() => void)[] = [];
  /** Peers that are to be asked who they are, and when each was last asked for that reason. */
  readonly #toAsk = new Set<string>();
  readonly #askedAt = new Map<string, number>();

  constructor(db: Connection, options: CompanyOptions) {
    this.#db = db;
    this.#strangers = new Strangers(db);
    this.#o = options;
    this.#identity = new Identity(db, {
      ...options,
      atUrls: AT_URLS,
      anotherFile: () => beginRunsAnew(db, options.random()),
    });
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

  /**
   * Whoever may have brought something here. Nobody waits for one that was forgotten, or for which nothing is kept; and of what
   * was forgotten without it, it is known again when all that it had by then has been delivered, by itself: another database
   * under its name never had that.
   */
  nodes(): Nodes {
    const others = this.others();
    const left = leftDatabases(this.#db);
    const isAwaited = ({ id, inc, heardAt = -Infinity, low = -Infinity }: Other): boolean => {
      const times = (['forgotten', 'unawaited'] as const).map((what) => noted(this.#db, what, id) ?? -Infinity);
      const since = Math.max(...times);
      const isDelivered = heardAt >= since && low > since && isUnawaitedOne(this.#db, id, inc);
      return !left.has(inc) && (since === -Infinity || isDelivered);
    };
    const idsOf = (some: Other[]): string[] => some.map(({ id }) => id);
    const awaited = isNobodyAwaited(this.#db) ? [] : others.filter(isAwaited);
    return { self: this.#o.id, heard: idsOf(others), awaited: idsOf(awaited) };
  }

  /** As the ship loop of one peer knows it. */
  of(peer: string): Company {
    const company = this;
    return {
      introduction: () => yielding(this.#db, () => this.introduction(peer)),
      get isKnown() {
        return company.knows(peer);
      },
      get isIntroduced() {
        return company.isRowcast(peer);
      },
      objection: (said) => this.#objection(peer, said),
      heard: async (said) => {
        const told = await yielding(this.#db, () =>
          this.#db.transaction(() => {
            this.answered(peer, said);
            return this.untold();
          }),
        );
        await yielding(this.#db, () => this.settle(told.splice(0)));
      },
    };
  }

  /**
   * Among nodes that introduce themselves, each peer is asked, whatever is known of it: one that has lost everything has
   * nothing to send, and whoever has nothing for it would never hear of it.
   */
  knows(peer: string): boolean {
    try {
      return this.#identity.knowsOthers() || this.isRowcast(peer);
    } catch {
      return false;
    }
  }

  /** Has whoever acknowledges there said that it is Rowcast? */
  isRowcast(peer: string): boolean {
    try {
      return databaseAt(this.#db, peer).inc !== null;
    } catch {
      return false;
    }
  }

  /** Is the file what it was when this process last saw it? In a transaction, of which that is then true. */
  get isSameFile(): boolean {
    return this.#identity.isSameFile;
  }

  /** With a request to a peer. */
  introduction(peer: string): string {
    this.look();
    return this.#identity.introduction(databaseAt(this.#db, peer).inc);
  }

  /**
   * With the answer to a request, which was taken note of before. Undefined to a plain peer, and where the database cannot be
   * read.
   */
  introductionTo(said: string | undefined): string | undefined {
    const sender = readIntroduction(said);
    if (!sender) return undefined;
    try {
      return this.#identity.introduction(sender.inc, 'tabular');
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

  /** A request says who sends it, or does not. */
  sent(said: string | undefined, isRowcast = said !== undefined): Sent {
    return { isRowcast, note: (applied) => this.#requested(said, applied) };
  }

  #requested(said: string | undefined, applied: number): void {
    this.#told = [];
    const finding = this.#identity.hear(said, { answer: false, brings: true });
    if (!finding) {
      if (applied > 0) notePlainBrought(this.#db);
      return;
    }
    if (isNews(finding)) this.#doubt(finding);
    // What was sent before its latest start may have been taken from it since, by a backup that was put back.
    const isLate = finding.kind === 'late' || this.#isFromBefore(finding);
    this.#actOn({ ...finding, compareAll: finding.compareAll || isLate });
    // It may have ended before anybody could ask it, and this be all that is left of it.
    const isStranger = this.#identity.isNewHere(finding.id) && peersOf(this.#db, finding.inc).length === 0;
    if (isStranger) this.#strangers.brought(this.#o.clock.now());
  }

  /**
   * Another database is where this one was, and what it had brought was passed on when that was found: what it sent until then
   * may come later. One that is elsewhere is no longer gone.
   */
  #isFromBefore({ id, inc }: Finding): boolean {
    const at = noted(this.#db, 'forgotten', id);
    return at !== undefined && Math.abs(this.#o.clock.now() - at) < LATE_MS && peersOf(this.#db, inc).length === 0;
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
   * An answer of a peer says who gives it, or does not. In the transaction that takes note of it. False where it is no acknowledgement of
   * a shipment of that run: by another database than had the ones before, or by an earlier state of the same.
   */
  answered(peer: string, said: string | undefined, run?: number): boolean {
    this.#told = [];
    const { inc: before, run: current, plain } = databaseAt(this.#db, peer);
    const finding = this.#identity.hear(said, { answer: true, brings: false });
    if (!finding) {
      if (before === null && plain === null) this.#isPlain(peer);
      return true;
    }
    this.#actOn(finding);
    if (run !== undefined && run !== current) return false;
    // It had ended by then, or is an earlier state that has not said more: what it had may be gone. It is sent again.
    if (finding.kind === 'late') return false;
    if (finding.kind === 'self') this.#isOurselves(peer);
    else if (before === null) this.#adopt(peer, finding, plain !== null);
    else if (before !== finding.inc) {
      // Asked how it is, the other one of two has answered: its acknowledgements are objected to.
      if (this.#turns.isOneOfTwo(peer, finding, this.#o.clock.now())) return false;
      this.#replace(peer, before, finding);
    } else if (!finding.wentBack && !finding.compareAll) {
      return true;
    }
    return databaseAt(this.#db, peer).run === current;
  }

  /** At the end of what is only a part of a transaction: what is to be told when that is committed. */
  untold(): (() => void)[] {
    const told = this.#told;
    this.#told = [];
    return told;
  }

  /** After the transaction in which something was heard, and before anything more is said. */
  settle(told = this.untold()): void {
    for (const tell of told) tell();
    this.look();
  }

  /** Takes another identity where it has to, and lets go of what is not true of this file. */
  look(): void {
    const renewal = this.#identity.renew();
    if (renewal === 'none') return;
    if (renewal !== 'renewed') this.#o.onAnotherFile();
    if (renewal === 'elsewhere') return;
    // Whoever hears of the new one may ask in its turn, and finds out then.
    for (const peer of peersThatMayBe(this.#db)) this.#toAsk.add(peer);
    this.#o.events.emit('restored', {});
  }

  #actOn(finding: Finding): void {
    const { id, inc, wentBack, doubtful, compareAll, tookOver } = finding;
    const now = this.#o.clock.now();
    // Of what the one before had written, only others may have some, and nobody delivers it for that one.
    if (tookOver !== undefined) noteUnawaited(this.#db, id, tookOver, now);
    const peers = wentBack && !doubtful ? peersOf(this.#db, inc) : [];
    for (const peer of peers) beginSeed(this.#db, peer, now, 'restored');
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
  #adopt(peer: string, { inc, kind, wentBack }: Finding, wasPlain: boolean): void {
    const now = this.#o.clock.now();
    noteDatabase(this.#db, peer, inc);
    if (wentBack) beginSeed(this.#db, peer, now, 'restored');
    else if (wasPlain) isNoMorePlain(this.#db, peer, now);
    else if (kind === 'same' || kind === 'restarted') movePeer(this.#db, inc, peer, now);
    this.#isHeard(now);
  }

  /** Somebody was waited for, to know who is gone. */
  #isHeard(now: number): void {
    noteRemoved(this.#db, now);
    passOnOfStrangers(this.#db, now);
  }

  /** The first time that somebody answers there, and does not say who it is: nobody waits for that any more. */
  #isPlain(peer: string): void {
    notePlain(this.#db, peer);
    this.#isHeard(this.#o.clock.now());
  }

  #replace(peer: string, before: string, { id, inc }: Finding): void {
    const now = this.#o.clock.now();
    this.#turns.replace(peer, before, inc, now);
    noteDatabase(this.#db, peer, inc);
    // Nobody waits for the one before; where it is elsewhere, it is heard again, and counts again.
    for (const other of this.#identity.others()) if (other.inc === before) noteForgotten(this.#db, other.id, now);
    beginSeed(this.#db, peer, now, 'replaced');
    // What the one before had brought here, it may have brought to nobody else.
    compareAllPeers(this.#db, now, [peer]);
    this.#tell('peer-replaced', { peer, id });
  }

  #objection(peer: string, said: string): string | undefined {
    if (!this.#isAnother(peer, said)) return undefined;
    const finding = this.#identity.look(said);
    return finding && this.#turns.isOneOfTwo(peer, finding, this.#o.clock.now()) ? TWO_DATABASES : undefined;
  }

  /** What another database than that of the peer says of its rows is nothing to go by, nor what an earlier state of it says. */
  another(peer: string, said: string): string | undefined {
    if (this.#isAnother(peer, said)) return ANOTHER_DATABASE;
    return isEarlierState(this.#identity.look(said)) ? EARLIER_STATE : undefined;
  }

  #isAnother(peer: string, said: string): boolean {
    const { inc } = databaseAt(this.#db, peer);
    const speaker = readIntroduction(said)?.inc;
    return inc !== null && speaker !== undefined && speaker !== inc;
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

/** Databases for which nothing is kept: they were peers once, or are away for so long that they count as stale. */
export function leftDatabases(db: Connection): Set<string> {
  const inUse = `stale IS NOT 1 AND ${OF_ANY_ATTACHMENT}`;
  const rows = db.all<{ inc: string }>(
    'SELECT inc FROM main._peer_state WHERE inc IS NOT NULL EXCEPT ' +
      `SELECT inc FROM main._peer_state WHERE ${inUse}`,
  );
  return new Set(rows.map(({ inc }) => inc));
}
