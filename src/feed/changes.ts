/**
 * Tells what has changed, to listeners of `change` and to readers of the feed, whoever wrote it.
 *
 * What transactions of ours write is noted in them (touched.ts); what the application writes is read from `_changes` on the
 * next tick, and is not deleted there before. Where the file has a feed (feed-table.ts), both go into it, in the transaction
 * in which they are noted or read: so it has every row that was changed, whatever ends the process, and whoever else writes
 * to the file. Without a feed they are told, and forgotten. Where nobody listens either, there is none of this.
 */
import { lastChangeId } from '../capture/change-ids.ts';
import type { Registry } from '../capture/registry.ts';
import { messageOf } from '../errors.ts';
import type { Emitter, RowcastEvents, RowRef } from '../events.ts';
import type { Connection } from '../sqlite/connection.ts';
import { isMachineFault } from '../sqlite/result-codes.ts';
import type { Table } from '../sqlite/schema.ts';
import { FeedTable, type Line } from './feed-table.ts';
import { localWrites } from './local.ts';
import type { CheckedFeed } from './options.ts';
import type { Feed } from './page.ts';
import { FeedReader } from './reader.ts';
import { TouchedRows } from './touched.ts';

export interface ChangesOptions {
  registry: Registry;
  events: Emitter;
  random: () => number;
  option: CheckedFeed;
  /** Tells whether another process on the file has received something. */
  arrivals: { haveComeElsewhere(): boolean };
  warn(code: string, message: string): void;
}

type Told = RowcastEvents['change'];

/** So many pages of the application's writes are read on one tick. */
const PAGES_MAX = 10;

export class Changes {
  readonly #db: Connection;
  readonly #o: ChangesOptions;
  readonly #table: FeedTable;
  readonly #touched: TouchedRows;
  readonly #reader: FeedReader;
  /** What the caller has asked for is done once; afterwards the file says whether there is a feed. */
  #isBegun = false;
  #isOn = false;
  /** Somebody has listened for `change`. */
  #isHeard = false;
  /** Up to which change the application's writes were told, and up to which line of the feed; undefined before. */
  #toldUpTo: number | undefined;
  #toldLine: number | undefined;
  /** The sender of the batch that is being applied. */
  #sender: string | undefined;
  #uncommitted: Told[] = [];
  #uncommittedUpTo: number | undefined;
  #committed: Told[] = [];
  #isBehind = false;

  constructor(db: Connection, options: ChangesOptions) {
    this.#db = db;
    this.#o = options;
    this.#table = new FeedTable(db, options.random);
    this.#touched = new TouchedRows(db);
    this.#reader = new FeedReader(db, this.#table, options.registry);
  }

  /** For readers; undefined where there is none. */
  get feed(): Feed | undefined {
    return this.#isOn ? this.#reader : undefined;
  }

  /** Changes after this one are still to be told of, and are not to be deleted. What the feed has seen the file says. */
  get seenUpTo(): number {
    return this.#toldUpTo ?? Number.MAX_SAFE_INTEGER;
  }

  /** The tables are these now. In the transaction that has made triggers for them; whether there is a feed may be new, too. */
  adopt(tables: Table[]): void {
    const { option } = this.#o;
    const there = this.#table.exists();
    if (!this.#isBegun && option && !there) this.#table.create(lastChangeId(this.#db), option.keep);
    if (!this.#isBegun && option && there) this.#table.keep(option.keep);
    if (!this.#isBegun && option === false && there) this.#table.drop();
    this.#isBegun = true;
    this.#isOn = this.#table.exists();
    if (!this.#isOn) this.#table.forget();
    this.#db.ending = this.#isOn || this.#isHeard ? this.#ending : undefined;
    if (this.#isOn && this.#table.isReshaped(shapeOf(tables))) this.#table.begin();
    if (this.#isOn || this.#isHeard) this.#touched.watch(tables);
  }

  /** Rows may have changed that nobody has seen. In a transaction. */
  unseen(): void {
    if (this.#table.exists()) this.#table.begin();
    else if (this.#isHeard) this.#uncommitted.push(MISSED);
  }

  /** Another state of the file is under this process: what has changed by that nobody knows. In a transaction. */
  beginAnew(): void {
    this.unseen();
    if (this.#toldUpTo !== undefined) this.#uncommittedUpTo = lastChangeId(this.#db);
  }

  /** Somebody listens for `change` from now on. */
  listen(): void {
    if (this.#isHeard && this.#o.events.has('change')) return;
    this.#isHeard = true;
    // What a transaction of the application's has recorded until now is told when it is committed.
    const before = this.#db.isInTransaction === true ? 0 : lastChangeId(this.#db);
    this.#toldUpTo = this.#isOn ? undefined : before;
    this.#o.arrivals.haveComeElsewhere();
    if (this.#isOn) this.#toldLine = this.#table.last();
    this.#db.ending = this.#ending;
    this.#watch();
  }

  /** Runs `fn`, whose writes come from that node. */
  receiving<T>(sender: string | undefined, fn: () => T): T {
    if (this.#isOn || this.#isHeard) this.#watch();
    this.#sender = sender;
    try {
      return fn();
    } finally {
      this.#sender = undefined;
    }
  }

  /** After the versions of the application's writes were written into its rows. */
  tick(isQuiet: boolean): void {
    if (!this.#isOn && !this.#isHeard) return;
    if (!this.#isOn && !this.#o.events.has('change')) {
      this.#forget();
      return;
    }
    // What is not committed is told to nobody.
    if ((isQuiet && !this.#isBehind) || this.#db.isInTransaction === true) return;
    this.#watch();
    this.#isBehind = true;
    if (!this.#isOn && this.#o.arrivals.haveComeElsewhere()) this.#committed.push(MISSED);
    for (let page = 0; page < PAGES_MAX && this.#isBehind; page++) this.#isBehind = this.#readLocal();
    this.tell();
  }

  /** What is committed. Outside of any transaction. */
  tell(): void {
    if (this.#isOn) this.#tellLines();
    for (const one of this.#committed.splice(0)) this.#o.events.emit('change', one);
  }

  stop(): void {
    this.#reader.stop();
    this.#db.ending = undefined;
    if (this.#isOn || this.#isHeard) this.#touched.release();
  }

  /** Nobody listens any more. */
  #forget(): void {
    this.#isHeard = false;
    this.#toldUpTo = undefined;
    this.#db.ending = undefined;
    if (this.#db.isInTransaction !== true) this.#touched.release();
  }

  #watch(): void {
    const tables = this.#o.registry.list();
    if (this.#touched.isWatching(tables) || this.#db.isInTransaction === true) return;
    this.#db.transaction(() => this.#touched.watch(tables));
  }

  /** At the end of every transaction of ours, in it. */
  readonly #ending = (): (() => void) => {
    const found = this.#take();
    if (found) {
      // What was written here before comes before it.
      while (this.#noteLocal());
      this.#note({ local: false, sender: this.#sender, ...found });
    }
    const told = this.#uncommitted;
    const upTo = this.#uncommittedUpTo;
    this.#uncommitted = [];
    this.#uncommittedUpTo = undefined;
    return () => {
      this.#committed.push(...told);
      if (upTo !== undefined) this.#toldUpTo = upTo;
    };
  };

  #take(): { rows: string; count: number } | undefined {
    try {
      return this.#touched.take();
    } catch (error) {
      if (isMachineFault(error)) throw error;
      // Somebody has taken the temporary table away, in the middle of it all: what it had is not known.
      this.unseen();
      return undefined;
    }
  }

  #note(line: Line): void {
    if (this.#isOn) this.#store(line);
    else if (this.#o.events.has('change')) this.#uncommitted.push(this.#told(line));
  }

  /** A feed that somebody has dropped must not keep batches from being applied. */
  #store(line: Line): void {
    try {
      this.#table.append(line);
    } catch (error) {
      if (isMachineFault(error) || this.#table.exists()) throw error;
      this.#isOn = false;
      this.#o.warn('feed-lost', `the feed is gone: ${messageOf(error)}; it begins anew when the node is started again`);
    }
  }

  /** One page of the application's writes, if there are any; true where there may be another. */
  #readLocal(): boolean {
    return lastChangeId(this.#db) !== this.#upTo && this.#db.transaction(() => this.#noteLocal());
  }

  /** In a transaction. */
  #noteLocal(): boolean {
    const found = localWrites(this.#db, this.#upTo, lastChangeId(this.#db));
    if (!found) return false;
    const { upTo, more, missed, ...rows } = found;
    if (missed) this.unseen();
    if (rows.count > 0) this.#note({ local: true, sender: undefined, ...rows });
    if (this.#isOn) this.#table.seen(upTo);
    // Where this is taken back, it is told once more.
    else this.#uncommittedUpTo = upTo;
    return more;
  }

  /** The last change of the application's that was noted. */
  get #upTo(): number {
    return this.#isOn ? this.#table.upTo : (this.#uncommittedUpTo ?? this.#toldUpTo ?? 0);
  }

  #tellLines(): void {
    const last = this.#table.last();
    if (last === this.#toldLine) return;
    const before = this.#toldLine ?? last;
    this.#toldLine = last;
    this.#reader.wake();
    if (!this.#o.events.has('change')) return;
    if (last < before) this.#o.events.emit('change', MISSED);
    for (const { local, sender, rows } of this.#table.after(Math.min(before, last), LINES_MAX)) {
      if (local === null) this.#o.events.emit('change', MISSED);
      else {
        const line = { local: local === 1, sender: sender ?? undefined, rows, count: 0 };
        this.#o.events.emit('change', this.#told(line));
      }
    }
  }

  #told({ local, sender, rows }: Line): Told {
    const list = JSON.parse(rows) as [RowRef['op'], string, string][];
    const name = (table: string): string => this.#o.registry.get(table)?.name ?? table;
    return { local, from: sender, rows: list.map(([op, table, id]) => ({ op, table: name(table), id })) };
  }
}

const LINES_MAX = 1_000_000;
const MISSED: Told = { local: true, from: undefined, rows: [], missed: true };

function shapeOf(tables: Table[]): string {
  const shapes = tables.map(({ name, columns }) => [name, ...columns.map((column) => column.name)]);
  return JSON.stringify(shapes.sort(([a], [b]) => ((a as string) < (b as string) ? -1 : 1)));
}
