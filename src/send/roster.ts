/** The peers of a node while it runs: who they are, a loop for each, and which of them are to be sent anything. */

import type { Registry } from '../capture/registry.ts';
import type { Clock } from '../clock.ts';
import { checkPeer, type PeerOptions, refuseStranger } from '../config.ts';
import { unlessRefused } from '../errors.ts';
import type { Emitter } from '../events.ts';
import { LATE_MS } from '../identity/identity.ts';
import type { Connection } from '../sqlite/connection.ts';
import { Attachment } from './attachment.ts';
import type { BacklogBound } from './backlog.ts';
import { Convoy, type ConvoyOptions } from './convoy.ts';
import { Crowd } from './crowd.ts';
import { flushAll, Loop } from './loop.ts';
import { noteRemoved, passOnLate } from './passing-on.ts';
import { beginSeed, enrolPeers, pausedPeers, setPaused, stateOf } from './peers.ts';
import { canPrune, pruneChanges } from './prune.ts';
import type { PeerCondition, Shipper } from './shipper.ts';

export interface PeerStatus {
  url: string;
  state: PeerCondition;
  /** Nothing is sent to it, until it is resumed. */
  paused: boolean;
  /** It was away for too long: when it is back it is given the whole state. */
  stale: boolean;
  /** It is being given the whole state. */
  snapshot: boolean;
}

/** The peers at run time. They are not kept: after a restart, those of the configuration are the peers again. */
export interface Peers {
  /** Ships to this one as well, which is given everything. One that is a peer already stays as it is. */
  add(peer: string | PeerOptions): void;
  /** Keeps nothing for it any more; resolves when its loop has ended. */
  remove(url: string): Promise<void>;
  /** Sends it nothing, also after a restart, until `resume` or `remove`; resolves when nothing is on its way. */
  pause(url: string): Promise<void>;
  resume(url: string): void;
  /** Gives it everything once more. */
  reseed(url: string): void;
  list(): PeerStatus[];
}

/** What the loops of all peers share. */
export interface LoopParts {
  attachment: Attachment;
  convoy: Convoy;
  crowd: Crowd;
}

export interface RosterOptions extends Omit<ConvoyOptions, 'prune'> {
  /** The node id. */
  id: string;
  db: Connection;
  registry: Registry;
  clock: Clock;
  events: Emitter;
  bound: BacklogBound;
  /** Changes after this one are still to be told of in this process. */
  seenUpTo(): number;
  warn(code: string, message: string): void;
  /** The loop of a peer, not yet started. */
  shipper(url: string, parts: LoopParts): Shipper;
  /** It is none of the peers any more. */
  onRemoved(url: string): void;
}

export class Roster implements Peers {
  readonly #o: RosterOptions;
  readonly #attachment: Attachment;
  readonly #convoy: Convoy;
  readonly #crowd = new Crowd(() => this.#loops.length);
  #urls: string[];
  #loops: Loop[] = [];
  /** When it was last looked at what came late. */
  #lateAt: number;
  /** The loops of peers that were removed, until they have ended. */
  readonly #leaving = new Map<string, Promise<void>>();

  constructor(peers: string[], options: RosterOptions) {
    this.#o = options;
    this.#urls = peers;
    this.#lateAt = options.clock.now();
    const { db, id: nodeId, clock, seenUpTo, warn } = options;
    this.#attachment = new Attachment(db, { nodeId, peers: () => this.#urls, clock, seenUpTo, warn });
    const prune = (): void => pruneChanges(db, this.#urls, seenUpTo());
    this.#convoy = new Convoy(db, { ...options, prune });
  }

  get urls(): string[] {
    return this.#urls;
  }

  get shippers(): Shipper[] {
    return this.#loops.map(({ shipper }) => shipper);
  }

  shipperOf(url: string): Shipper | undefined {
    return this.#loops.find((loop) => loop.url === url)?.shipper;
  }

  /** Makes room for the peers in the database. */
  enter(): void {
    this.enrol();
    this.noteRemoved();
  }

  enrol(): void {
    enrolPeers(this.#o.db, this.#o.registry, this.#attachment);
  }

  /**
   * At the start, and when another process on the file has gone, which may have been this one before a crash: one that was a
   * peer before and is none now may have brought something here and to nobody else.
   */
  noteRemoved(): void {
    const { db, clock } = this.#o;
    db.transaction(() => noteRemoved(db, clock.now()));
  }

  /** Another state of the file is under this process; `besides` is done in a transaction. */
  beginAnew(besides: () => void): void {
    this.#convoy.clear();
    this.#o.db.forgetDamage();
    this.#o.registry.remake(besides);
    this.enrol();
  }

  start(): void {
    this.#loops = this.#urls.map((url) => this.#loop(url));
    this.#follow();
  }

  add(peer: string | PeerOptions): void {
    const url = checkPeer(peer);
    if (this.#urls.includes(url)) return;
    const paused = this.#change([...this.#urls, url]);
    this.#loops.push(this.#loop(url));
    this.#follow(paused);
  }

  async remove(peer: string): Promise<void> {
    const loop = this.#find(peer);
    const { url } = loop;
    const { db, clock } = this.#o;
    const others = this.#urls.filter((other) => other !== url);
    this.#change(others, () => {
      setPaused(db, url, false);
      noteRemoved(db, clock.now());
    });
    this.#loops = this.#loops.filter((other) => other !== loop);
    loop.end();
    this.#o.onRemoved(url);
    const { ended } = loop;
    this.#leaving.set(url, ended);
    await ended;
    if (this.#leaving.get(url) === ended) this.#leaving.delete(url);
  }

  async pause(peer: string): Promise<void> {
    const loop = this.#find(peer);
    this.#setPaused(loop.url, true);
    await loop.ended;
  }

  resume(peer: string): void {
    this.#setPaused(this.#find(peer).url, false);
  }

  reseed(peer: string): void {
    const { url, shipper } = this.#find(peer);
    const { db, clock } = this.#o;
    const begin = (): void => {
      // A stale one is given everything as it is, when it is back; until then nothing is kept for it.
      if (!stateOf(db, url).stale) beginSeed(db, url, clock.now(), 'manual');
    };
    // A person has said so, who would not be asked again after a power cut.
    db.transaction(begin, { durable: true });
    shipper.nudge();
  }

  list(): PeerStatus[] {
    const { db } = this.#o;
    const paused = pausedPeers(db);
    return this.#loops.map(({ url, shipper }) => {
      const { stale, tailFrom } = stateOf(db, url);
      const snapshot = tailFrom !== null && !stale;
      return { url, state: shipper.condition, paused: paused.has(url), stale, snapshot };
    });
  }

  /**
   * Looks after the peers of this process and of the others on the file, and after what is kept for them. Where nobody has
   * touched the database since the last time (`isQuiet`), only time can bring anything new.
   */
  tick(isQuiet: boolean): void {
    const { db, bound, events, registry } = this.#o;
    registry.watch(isQuiet);
    if (!isQuiet || this.#attachment.hasOthers) {
      this.#follow();
      const left = this.#attachment.watch();
      const isKnown = this.#attachment.isEntered() && this.#attachment.knowsAllPeers();
      if (left || !isKnown) this.enrol();
      if (left) this.noteRemoved();
    }
    this.#passOnLate();
    const found = bound.check(this.#away());
    for (const stale of found) events.emit('peer-stale', stale);
    if (isQuiet && found.length === 0) return;
    if (canPrune(db, this.#urls)) db.transaction(() => pruneChanges(db, this.#urls, this.#o.seenUpTo()));
  }

  /** Asks these who they are. */
  ask(urls: string[]): void {
    for (const { url, shipper } of this.#loops) if (urls.includes(url)) shipper.askNow();
  }

  nudge(): void {
    for (const { shipper } of this.#loops) shipper.nudge();
  }

  /** The URLs of those that have acknowledged everything that was pending, and of those that have not. */
  flush(): Promise<{ delivered: string[]; unreachable: string[] }> {
    return flushAll(this.#loops);
  }

  async stop(): Promise<void> {
    for (const loop of this.#loops) loop.end();
    await Promise.all([...this.#loops.map(({ ended }) => ended), ...this.#leaving.values()]);
  }

  /** Never rejects. */
  leave(): Promise<void> {
    return this.#attachment.leave(() => this.#o.registry.leave());
  }

  #loop(url: string): Loop {
    const parts = { attachment: this.#attachment, convoy: this.#convoy, crowd: this.#crowd };
    return new Loop(url, () => this.#o.shipper(url, parts), this.#leaving.get(url));
  }

  #find(peer: string): Loop {
    const url = checkPeer(peer);
    return this.#loops.find((one) => one.url === url) ?? refuseStranger(url, this.#urls, 'peer');
  }

  /**
   * The peers are these, here and for whoever else is attached to the file; or, where that fails, those from before. It tells
   * who of them is paused, read in the same transaction: nothing that can fail comes after it.
   */
  #change(urls: string[], besides: () => void = () => {}): Set<string> {
    const before = this.#urls;
    this.#urls = urls;
    let paused = new Set<string>();
    const alsoRead = (): void => {
      besides();
      paused = pausedPeers(this.#o.db);
    };
    try {
      enrolPeers(this.#o.db, this.#o.registry, this.#attachment, alsoRead);
    } catch (error) {
      this.#urls = before;
      throw error;
    }
    return paused;
  }

  /** An incident outlives whatever ends this process. */
  #setPaused(url: string, isPaused: boolean): void {
    const { db } = this.#o;
    const change = (): Set<string> => {
      setPaused(db, url, isPaused);
      return pausedPeers(db);
    };
    this.#follow(db.transaction(change, { durable: true }));
  }

  /** Who is paused is in the database: another process may have said so. */
  #follow(paused = pausedPeers(this.#o.db)): void {
    for (const loop of this.#loops) {
      if (paused.has(loop.url)) loop.end();
      else loop.begin();
    }
  }

  #passOnLate(): void {
    const now = this.#o.clock.now();
    if (Math.abs(now - this.#lateAt) < LATE_MS) return;
    passOnLate(this.#o.db, now);
    this.#lateAt = now;
  }

  #away(): string[] {
    return this.#loops
      .filter(({ shipper, isRunning }) => !isRunning || shipper.condition === 'down')
      .map(({ url }) => url);
  }
}

/** The roster for callers: `refuseIfStopped` throws where nothing of it can be changed any more. */
export function forCallers(roster: Roster, db: Connection, refuseIfStopped: () => void): Peers {
  const running = <A extends unknown[], R>(verb: (...args: A) => R): ((...args: A) => R) =>
    unlessRefused(refuseIfStopped, (...args) => db.patiently(() => verb(...args)));
  const later = (verb: (url: string) => Promise<void>): ((url: string) => Promise<void>) => {
    return async (url) => running(verb)(url);
  };
  return {
    add: running((peer) => roster.add(peer)),
    remove: later((url) => roster.remove(url)),
    pause: later((url) => roster.pause(url)),
    resume: running((url) => roster.resume(url)),
    reseed: running((url) => roster.reseed(url)),
    list: running(() => roster.list()),
  };
}
