/**
 * A machine: a disk, a clock that may be wrong, and the process that runs on it, a node or a hub. The process is real
 * Rowcast; all it has of the world are a database handle, a clock and a fetch, and each of them can fail it.
 */
import type { AuthOptions } from '../../src/auth/index.ts';
import type { Clock } from '../../src/clock.ts';
import type { Outgoing } from '../../src/http/bridge.ts';
import { respond } from '../../src/http/respond.ts';
import { createHub, type Hub } from '../../src/hub/hub.ts';
import type { Edges } from '../../src/hub/roster.ts';
import { attach, type Manager, type MigrateOptions, type Peers, type VerifyResult } from '../../src/index.ts';
import type { Database, Statement } from '../../src/sqlite/connection.ts';
import { PROBE } from '../../src/sqlite/unfinished.ts';
import { ROWCAST_HEADER } from '../../src/wire/protocol.ts';
import { versionOf, type WireChange, type WireRow } from '../support/model.ts';
import { type Disk, type TableName, tablesOf } from './disk.ts';
import { TURNED_AWAY } from './keys.ts';
import { Looks } from './looks.ts';
import { isMigrated, tableOn } from './migration.ts';
import { covers, versionOnMachine } from './mixed.ts';
import type { Network } from './network.ts';
import { compareOnHub, idIn, type Key, keyOf, saidPlainly, tableIn, type Version, Versions } from './oracle.ts';
import { commitsFailUntil, isMixed, type Plan } from './plan.ts';
import { type Random, stream } from './random.ts';
import { isCaptured, rowsOf, versionOn, versionOnHub } from './rows.ts';
import type { Timeline } from './timeline.ts';

/** What a machine needs of the world around it. */
export interface Surroundings {
  plan: Plan;
  timeline: Timeline;
  network: Network;
  trace(line: string): void;
  /** A table that was without its triggers has them again, as of this commit. `unseen` are its rows from before that. */
  onSeenAgain(machine: Machine, table: TableName, unseen: Map<Key, WireRow>): void;
  /** A machine says that it, or another one, has lost something. */
  onAlarm(machine: Machine, event: Alarm): void;
}

const ALARMS = ['restored', 'peer-replaced', 'peer-restored'] as const;
export type Alarm = (typeof ALARMS)[number];

/** Thrown into a process that has ceased to exist; whatever it does with it has no effect any more. */
export class ProcessGone extends Error {}

/** Where a process is going to die: before or after its next `calls`-th use of the database. */
interface Fuse {
  calls: number;
  after: boolean;
  burn(): void;
}

/** A write of the application's that a power cut may take back. */
interface Unflushed {
  key: Key;
  version: Version;
  lost: boolean;
}

/** The moment at which time begins. */
export const EPOCH = 1_700_000_000_000;

export class Machine {
  readonly name: string;
  url: string;
  /** As which it is attached: its name, or that of the machine whose file it was given a copy of. */
  id: string;
  readonly kind: 'node' | 'hub';
  readonly disk: Disk;
  /** URLs of its peers, or of its edges. */
  peers: string[] = [];
  process: Process | undefined;
  /** Its keys, where it has any. */
  auth: AuthOptions | undefined;
  /** The peers of another process that is attached to the same file; undefined where there is none. */
  secondPeers: string[] | undefined;
  second: Process | undefined;
  /** That one has ended in order, and nothing has to be kept for its peers. */
  secondLeft = false;
  /** Tables that were rebuilt, and whose writes nobody captures for the moment, with the rows that they have. */
  readonly unseen = new Map<TableName, Map<Key, WireRow>>();
  /** Every version that this machine has committed, of its own or received. */
  versions: Versions;
  /** A transaction of the application is open across events. */
  held = false;
  /** Its process is coming to an end. */
  restarting = false;
  /** BEGIN fails until then: another process has the lock. */
  lockedUntil = -1;
  /** Its tables or its position may have changed since somebody looked. */
  touched = false;
  /** Another process of the same machine that writes as soon as the database is free. */
  intruder: (() => void) | undefined;
  /** Does it take part in the comparison at the end? */
  counts = true;
  /** It is gone for good. */
  retired = false;
  /** Power cuts so far. */
  cuts = 0;
  /** Rowcast has been installed on its disk. */
  ready = false;
  /** Edges that it was asked to give everything once more, and whose position has not gone back yet. */
  readonly reseeds = new Set<string>();
  /** How often it may find that it is not what it was: put back from a backup, copied, or a copy. */
  pasts = 0;
  /** When its loops look at the database. */
  readonly looks: Looks;
  #offsetMs = 0;
  #durableVersions: Versions;
  readonly #world: Surroundings;
  /** Not all have the same columns: then it is not enough to know the latest version of a row. */
  readonly #mixed: boolean;
  readonly #random: Random;
  /** Decides which of its commits fail, where some do. */
  readonly #commits: Random;

  constructor(kind: 'node' | 'hub', name: string, disk: Disk, world: Surroundings) {
    this.kind = kind;
    this.name = name;
    this.url = `http://${name}`;
    this.id = name;
    this.disk = disk;
    this.#world = world;
    this.#mixed = isMixed(world.plan);
    this.versions = this.#nothing(this.#mixed);
    this.#durableVersions = this.#nothing(false);
    this.#random = stream(world.plan.seed, 'machine', name);
    this.#commits = stream(world.plan.seed, 'commits', name);
    this.looks = new Looks(world.timeline, world.plan.batchMs);
    const { skew } = world.plan.faults;
    if (skew !== undefined) this.offsetMs = Math.round((this.#random.next() * 2 - 1) * skew);
    if (world.plan.faults['power-cut'] !== undefined) disk.keepImages();
    disk.onCommit = () => {
      this.looks.touch();
      if (!disk.migrated) this.noteSchema();
      this.#lookForTriggers();
      if (this.commitsItself) this.#noteReceived();
    };
    disk.onDurable = () => {
      this.#durableVersions = new Versions(this.versions);
      this.notDurable = [];
    };
  }

  #nothing(keepsHistory: boolean): Versions {
    return new Versions(undefined, keepsHistory, this.kind === 'hub' ? compareOnHub : undefined);
  }

  /** The changes of the requests that it is working on: two may come at once. */
  readonly receiving = new Set<WireChange[]>();
  /** The changes that it was sent for the asking. */
  fetched: WireChange[] = [];
  /** It is its own process that commits, and not another one. */
  commitsItself = false;
  /** What the application has committed and a power cut may still take back. */
  notDurable: Unflushed[] = [];

  /**
   * The version of a row that a power cut at this moment would leave; where not all have the same columns, any that it has
   * come from. Known only where power cuts are planned.
   */
  durableVersions(key: Key): Version[] {
    const latest = this.#durableVersions.get(key);
    return latest ? [latest, ...this.#durableVersions.history(key)] : [];
  }

  /** Every peer for which it has to keep what that has not acknowledged. */
  get configured(): string[] {
    const second = this.second && !this.secondLeft ? this.second.peers : [];
    return [...new Set([...this.#startedWith, ...second])];
  }

  #startedWith: string[] = [];

  /** Its process may have been told of other peers since it began. */
  noteRoster(): void {
    const urls = this.kind === 'hub' ? undefined : this.process?.urls;
    if (urls) this.#startedWith = urls;
    this.touched = true;
  }

  /** Is its schema the newer one? */
  get migrated(): boolean {
    return this.disk.migrated;
  }

  noteSchema(): void {
    const before = this.disk.migrated;
    this.disk.migrated = isMigrated(this.disk);
    if (this.disk.migrated && !before) this.fillsIn = true;
  }

  /** It has got a column, and may not yet have filled in what it has kept for it. */
  fillsIn = false;

  /** Notes what the tables without triggers hold after something was written to them. */
  noteUnseen(table: TableName): void {
    this.unseen.set(table, rowsOf(this.disk, table));
  }

  /** What of the present request is there by now; it may have committed something else, and die before it comes to that. */
  #noteReceived(): void {
    for (const change of [...[...this.receiving].flat(), ...this.fetched]) {
      const id = String(change.op === 'DELETE' ? change.old_id : change.row.id);
      const table = change.table as TableName;
      const has = this.kind === 'hub' ? versionOnHub(this.disk, table, id) : versionOn(this.disk, table, id);
      if (covers(this, keyOf(table, id), has, versionOf(change))) this.versions.mergeChange(change);
    }
  }

  /** Has it been attached? A disk that was lost is replaced by one with triggers that nobody has made. */
  hasCaptured(table: TableName): boolean {
    const sql = "SELECT 1 FROM _meta WHERE key = ? AND typeof(value) = 'text'";
    return this.ready && this.disk.all(sql, `capture:${table}`).length > 0;
  }

  #lookForTriggers(): void {
    for (const [table, rows] of this.unseen) {
      if (!isCaptured(this.disk, table)) continue;
      this.unseen.delete(table);
      this.#world.onSeenAgain(this, table, rows);
    }
  }

  /** How far its clock is ahead. */
  get offsetMs(): number {
    return this.#offsetMs;
  }

  set offsetMs(ms: number) {
    this.#offsetMs = ms;
    this.looks.touch();
  }

  /** By the machine's own clock. */
  now(): number {
    const { coarse } = this.#world.plan.faults;
    const exact = EPOCH + Math.floor(this.#world.timeline.now) + this.offsetMs;
    return coarse === undefined ? exact : exact - (exact % coarse);
  }

  /**
   * The last page of a transaction finds no room: it is taken back whole, whatever it has made. For a while after the other
   * trouble, too: most of what comes in comes then.
   */
  isCommitFailing(): boolean {
    const { plan, timeline } = this.#world;
    const rate = timeline.now < commitsFailUntil(plan) ? plan.faults.commit : undefined;
    return rate !== undefined && this.#commits.next() < rate;
  }

  /** Starts the process. Where the disk does not allow it, tries again later, as whoever supervises a process would. */
  start(): void {
    if (this.process || this.retired) return;
    this.disk.connect();
    this.#startedWith = this.peers;
    const process = new Process(this, this.#world, this.peers);
    this.process = process;
    const failed = (error: unknown): void => {
      if (!process.dead && !isDiskTrouble(error)) throw error;
      this.#world.trace(`${this.name} cannot start`);
      if (this.process === process) this.crash();
      this.#world.timeline.in(500, () => this.start());
    };
    const begun = (): void => {
      this.ready = true;
      this.#world.trace(`${this.name} starts with ${this.peers.length} peers`);
    };
    try {
      // A hub takes some turns to begin, a node none.
      const beginning = process.begin();
      if (beginning) void beginning.then(begun, failed);
      else {
        begun();
        this.startSecond();
      }
    } catch (error) {
      failed(error);
    }
  }

  /** The other process that is attached to the same file, where there is one. */
  startSecond(): void {
    const before = this.second?.dead ? undefined : this.second;
    if (!this.secondPeers || !this.process || (before && !before.ending)) return;
    // It would find the database locked, or the one before it still there.
    if (this.disk.inTransaction || before) {
      this.#world.timeline.in(100, () => this.startSecond());
      return;
    }
    const process = new Process(this, this.#world, this.secondPeers);
    try {
      void process.begin();
      this.second = process;
      this.secondLeft = false;
      this.#world.trace(`${this.name} has a second process with ${this.secondPeers.length} peers`);
    } catch (error) {
      if (!process.dead && !isDiskTrouble(error)) throw error;
      process.dead = true;
      this.#world.timeline.in(500, () => this.startSecond());
    }
  }

  /** It ends, in order or at once; what it has been attached with holds until it is known to have gone. */
  async endSecond(orderly: boolean): Promise<void> {
    const process = this.second;
    if (!process || process.dead) return;
    if (orderly) {
      process.ending = true;
      await process.stop();
      if (process.dead) return;
      this.secondLeft = true;
    }
    process.dead = true;
    this.touched = true;
  }

  /** The process ends between two instructions; the disk keeps what was committed. */
  crash(): void {
    if (!this.process) return;
    this.process.dead = true;
    this.process = undefined;
    if (this.second) this.second.dead = true;
    this.held = false;
    this.restarting = false;
    this.intruder = undefined;
    this.touched = true;
    this.disk.disconnect();
  }

  /** The machine loses power: what was not flushed is lost as well. */
  cutPower(): void {
    this.crash();
    this.cuts += 1;
    this.disk.cutPower();
    const table = this.kind === 'hub' ? '_hub_rows' : '_meta';
    this.ready = this.disk.all('SELECT 1 FROM sqlite_schema WHERE name = ?', table).length > 0;
    this.noteSchema();
    this.versions = new Versions(this.#durableVersions);
    for (const table of [...this.unseen.keys()]) this.#noteTriggers(table);
    for (const write of this.notDurable) this.#noteLost(write);
    this.notDurable = [];
  }

  /** A write may have reached the disk before anybody could say that it has: a migration flushes its own. */
  #noteLost(write: Unflushed): void {
    const { key, version } = write;
    const has = this.ready ? versionOnMachine(this, tableIn(key), idIn(key)) : undefined;
    write.lost = !covers(this, key, has, version);
    if (!write.lost) this.versions.merge(key, version);
  }

  /** Another image is on its disk, while nothing runs. */
  putBack(image: Uint8Array): void {
    this.disk.putBack(image);
    this.noteSchema();
    const table = this.kind === 'hub' ? '_hub_rows' : '_meta';
    this.ready = this.disk.all('SELECT 1 FROM sqlite_schema WHERE name = ?', table).length > 0;
    this.versions = this.#nothing(this.#mixed);
    this.#durableVersions = this.#nothing(false);
    this.notDurable = [];
    this.touched = true;
    if (!this.ready) this.unseen.clear();
    else if (this.kind === 'node') for (const table of tablesOf(this.disk.kind)) this.#noteTriggers(table);
  }

  /** Another image has come: are the writes to this table captured? */
  #noteTriggers(table: TableName): void {
    if (isCaptured(this.disk, table)) this.unseen.delete(table);
    else this.noteUnseen(table);
  }

  /** Ends in an orderly way, and starts again with what is then its configuration. */
  async restart(): Promise<void> {
    const process = this.process;
    if (!process) return;
    this.restarting = true;
    if (this.second) await this.endSecond(true);
    await process.stop();
    if (process.dead) return;
    this.restarting = false;
    this.crash();
    this.start();
  }
}

/** One run of the program on a machine. */
export class Process {
  dead = false;
  /** It was told to end in order, and has not yet. */
  ending = false;
  readonly machine: Machine;
  readonly handle: Handle;
  /** With which it is configured. */
  readonly peers: string[];
  readonly #world: Surroundings;
  #replica: Manager | Hub | undefined;
  #beginning: Promise<void> | undefined;

  constructor(machine: Machine, world: Surroundings, peers: string[]) {
    this.machine = machine;
    this.peers = peers;
    this.#world = world;
    this.handle = new Handle(this, world);
  }

  begin(): Promise<void> | undefined {
    const { plan, network } = this.#world;
    const random = stream(plan.seed, 'process', this.machine.name, this.#world.timeline.happened);
    const common = {
      id: this.machine.id,
      clock: this.#clock(),
      fetch: network.fetchOf(this),
      get: network.getOf(this),
      random: () => random.next(),
      batchMs: plan.batchMs,
      batchSize: plan.batchSize,
      requestTimeoutMs: plan.requestTimeoutMs,
      ...(this.machine.auth && { auth: this.machine.auth }),
      // Where months pass, a comparison by itself would put right whatever was forgotten.
      ...(plan.futures && { verify: false as const }),
    };
    // Most of them: whoever does not is as welcome.
    const forgets = plan.forgets && stream(plan.seed, 'forgets', this.machine.name).chance(0.8);
    if (this.machine.kind === 'hub') {
      this.#beginning = createHub(this.handle, { ...common, edges: this.peers }).then((hub) => {
        this.#replica = hub;
        this.#listen(hub);
      });
      return this.#beginning;
    }
    const { bound } = plan.faults;
    const backlog = bound === undefined ? {} : { maxBacklog: { changes: bound } };
    this.#replica = attach(
      this.handle,
      { ...common, ...backlog, ...(forgets && { tombstones: { keep: '24h' } }), peers: this.peers },
      this.#tables(random),
    );
    this.#listen(this.#replica as Manager);
    return undefined;
  }

  /** After a table was renamed, an application may well go on naming it as before; and a second one may have fewer. */
  #tables(random: Random): string[] {
    const { disk, name, secondPeers } = this.machine;
    const all = tablesOf(disk.kind);
    const fewer = stream(this.#world.plan.seed, 'tables', name, this.#world.timeline.happened);
    const drawn = this.peers === secondPeers && fewer.chance(0.5) ? all.filter(() => fewer.chance(0.5)) : all;
    return (drawn.length > 0 ? drawn : all).map((table) => (random.chance(0.5) ? tableOn(disk, table) : table));
  }

  #listen(replica: Manager | Hub): void {
    for (const event of ALARMS) (replica as Hub).on(event, () => this.#world.onAlarm(this.machine, event));
    if (this.machine.kind === 'hub') return;
    (replica as Manager).on('tombstones-collected', ({ removed }) =>
      this.#world.trace(`${this.machine.name} forgets ${removed} deletions`),
    );
  }

  get roster(): Peers | Edges | undefined {
    if (this.dead || !this.#replica) return undefined;
    return this.machine.kind === 'hub' ? (this.#replica as Hub).edges : (this.#replica as Manager).peers;
  }

  /** The peers that a node has at the moment; undefined where that cannot be told. */
  get urls(): string[] | undefined {
    try {
      return (this.roster as Peers | undefined)?.list().map(({ url }) => url);
    } catch {
      return undefined;
    }
  }

  /** False where there is nobody who could be told. */
  configure(settings: { auth: AuthOptions }): boolean {
    if (this.dead || !this.#replica) return false;
    this.#replica.configure(settings);
    return true;
  }

  get letters(): Manager['deadLetters'] | Hub['deadLetters'] | undefined {
    return this.#replica?.deadLetters;
  }

  /** A batch that comes to a node out of nowhere; its status. */
  receive(body: string): number | undefined {
    return (this.#replica as Manager | undefined)?.receive(body).status;
  }

  /** Runs statements and does what they ask of Rowcast, in one transaction. */
  migrate(sql: string, options: MigrateOptions): void {
    if (this.dead || !this.#replica) throw new ProcessGone();
    (this.#replica as Manager).migrate(sql, options);
  }

  /** From now on it sends the names that tables and columns have here. */
  sendNewNames(): void {
    (this.#replica as Manager).aliases.drop();
  }

  /** Compares with a peer and puts right what differs. */
  verify(peer: string): Promise<VerifyResult[]> {
    return (this.#replica as Manager).verify(peer, { repair: true });
  }

  nudge(): void {
    (this.#replica as Partial<Manager> | undefined)?.nudge?.();
  }

  async stop(): Promise<void> {
    await this.#beginning?.catch(() => {});
    await this.#replica?.stop();
  }

  /** A request has come in. `committed` tells whether the changes were: a process may die after that and before its answer. */
  async answer(
    path: string,
    body: Uint8Array | undefined,
    changes: WireChange[],
    headers: Record<string, string>,
  ): Promise<Outgoing & { committed: boolean }> {
    const { disk } = this.machine;
    const { plan } = this.#world;
    this.machine.looks.touch();
    await this.#beginning?.catch(() => {});
    if (!this.#replica) return { status: 503, headers: {}, body: '', committed: false };
    const before = disk.commits;
    const given = headers[ROWCAST_HEADER] === undefined ? saidPlainly(changes) : changes;
    this.machine.receiving.add(given);
    const outgoing = await respond(
      this.#replica as Manager,
      { clock: this.#waiting(), ...(plan.atOnce !== undefined && { atOnce: plan.atOnce }) },
      {
        method: body ? 'POST' : 'GET',
        path,
        header: (name) => headers[name],
        read: (_, tap) => {
          if (body) tap?.(body);
          return Promise.resolve(body ?? new Uint8Array());
        },
        hold: () => true,
      },
    );
    this.machine.receiving.delete(given);
    // What it has acknowledged it must have, whatever can be seen.
    if (outgoing.status === 200) for (const change of given) this.machine.versions.mergeChange(change);
    return { ...outgoing, committed: disk.commits > before && !TURNED_AWAY.has(outgoing.status) };
  }

  /** By which a request waits: one that has died meanwhile finds that out when it uses its database again. */
  #waiting(): Clock {
    const sleep = (ms: number): Promise<void> => new Promise((resolve) => this.#world.timeline.in(ms, resolve));
    return { now: () => this.machine.now(), sleep };
  }

  #clock(): Clock {
    return {
      now: () => this.machine.now(),
      sleep: (ms, signal) => {
        if (signal?.aborted) return Promise.resolve();
        return new Promise((resolve) => {
          const done = (): void => {
            planned.cancel();
            signal?.removeEventListener('abort', done);
            if (!this.dead) resolve();
          };
          const planned = this.machine.looks.in(ms, done);
          signal?.addEventListener('abort', done, { once: true });
        });
      },
    };
  }
}

function mayWrite(sql: string): boolean {
  return sql.startsWith('COMMIT') || sql.startsWith('INSERT') || sql.startsWith('DELETE');
}

const LETS_GO = 'DROP TABLE IF EXISTS temp._rowcast_stage';

/** The database as a process sees it: every use of it may be its last. */
export class Handle implements Database {
  fuse: Fuse | undefined;
  readonly #process: Process;
  readonly #disk: Disk;
  readonly #world: Surroundings;

  constructor(process: Process, world: Surroundings) {
    this.#process = process;
    this.#disk = process.machine.disk;
    this.#world = world;
  }

  exec(sql: string): void {
    // Nobody is in the middle of a statement here, and no schedule is about it.
    if (sql === PROBE) return;
    // The last thing that a process does. Where there is another one on the connection, that has to notice.
    const isLast = sql === LETS_GO && !this.#process.machine.secondPeers;
    const call = isLast ? this.#disk.emptyTemporary : this.#disk.exec;
    this.#use(call as (...params: unknown[]) => void, this.#disk, [sql], mayWrite(sql), sql);
  }

  prepare(sql: string): Statement {
    const statement = this.#disk.prepare(sql);
    const writes = mayWrite(sql);
    return {
      run: (...params) => this.#use(statement.run, statement, params, writes),
      get: (...params) => this.#use(statement.get, statement, params, writes),
      all: (...params) => this.#use(statement.all, statement, params, writes),
    };
  }

  get transaction(): Database['transaction'] {
    return this.#disk.transaction;
  }

  get inTransaction(): boolean {
    return this.#disk.inTransaction;
  }

  /** Makes a call to the database, unless this process is dead, or dies now or then. */
  #use<T>(call: (...params: unknown[]) => T, of: unknown, params: unknown[], writes: boolean, executed = ''): T {
    if (this.#process.dead) throw new ProcessGone();
    const { machine } = this.#process;
    const fuse = this.fuse;
    if (fuse) fuse.calls -= 1;
    if (fuse?.calls === 0 && !fuse.after) this.#burn(fuse);
    if (executed === 'BEGIN IMMEDIATE') this.#others(machine);
    if (executed === 'COMMIT' && machine.isCommitFailing()) {
      this.#disk.exec('ROLLBACK');
      throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
    }
    if (writes) machine.touched = true;
    machine.commitsItself = true;
    let result: T;
    try {
      result = Reflect.apply(call, of, params);
    } finally {
      machine.commitsItself = false;
    }
    if (fuse?.calls === 0 && fuse.after) this.#burn(fuse);
    return result;
  }

  #burn(fuse: Fuse): never {
    fuse.burn();
    throw new ProcessGone();
  }

  /** Other processes that use the same database. */
  #others(machine: Machine): void {
    if (!this.#disk.inTransaction) {
      const intruder = machine.intruder;
      machine.intruder = undefined;
      // What this process has asked for its next commit is nothing that another one has.
      const { synchronous } = this.#disk;
      this.#disk.synchronous = 1;
      intruder?.();
      this.#disk.synchronous = synchronous;
    }
    if (machine.lockedUntil > this.#world.timeline.now) {
      throw Object.assign(new Error('database is locked'), { code: 'SQLITE_BUSY' });
    }
  }
}

/** The database is locked, full or read-only: conditions that pass. */
export function isDiskTrouble(error: unknown): boolean {
  const codes = [error, (error as { cause?: unknown } | null)?.cause].map(
    (e) => (e as { code?: unknown } | null)?.code,
  );
  return codes.some((code) => typeof code === 'string' && /^SQLITE_(BUSY|FULL|READONLY)|^DATABASE_BUSY/.test(code));
}
