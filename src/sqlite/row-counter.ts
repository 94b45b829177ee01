/**
 * How many rows a table has. Counting takes 30 to 65 ms a million rows, and nobody may be kept waiting for that: in one go
 * are counted only so many as take a few milliseconds. What is more is counted in the background, a slice at a time, with a
 * turn for everybody else after each; until that has come to its end for the first time, the number is what has been
 * counted so far, and is said to be that.
 *
 * The number is exact for as long as nobody has written since it was taken, and always where all that is asked for in one
 * look is no more than EXACT_ROWS. A larger table that is written to is counted again in the background while somebody goes
 * on asking: its number is then some seconds old.
 */
import { type Clock, endOfMany, passedSince } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Connection, Value } from './connection.ts';
import { waitingAtMost } from './look.ts';
import { isCode } from './result-codes.ts';
import { inMain, quote } from './sql.ts';

/** Counted at once in one look, of all tables together; about two milliseconds. */
export const EXACT_ROWS = 50_000;
/** So many of each are, whatever the others have taken of that. */
const LEAST_ROWS = 1_000;
/** To read a whole row, where there is no index in which its id is one of many on a page, is as much work as so many ids. */
const WIDE_ROWS = 10;
const SLICE_ROWS = 5_000;

/** Between two counts in the background: this, or ten times what the last one took. */
const PAUSE_MS = 1_000;
const PAUSE_FACTOR = 10;
/** Background counts end when nobody has asked for this long. */
const ASKED_WITHIN_MS = 120_000;

/** What is counted: a synced table, as it is described, or one of ours. */
export interface Countable {
  name: string;
  /** The column by whose order it is walked. */
  id: string;
  /** Where ids may be NULL: an expression that tells such rows apart. */
  rowKey?: string;
  /** Only the rows with that value, of a table that is in the order of this column and then of `id`. */
  part?: { column: string; value: string };
  /** Only the rows for which this holds, as SQL; all of them are read. */
  only?: string;
}

export interface Counted {
  rows: number;
  /** There are more, or at least were: it has not been counted to the end yet. */
  atLeast: boolean;
}

/** How many rows count, and how many were read for that, or are to be. */
interface Found {
  rows: number;
  read: number;
}

interface Count extends Counted, Found {
  of: Countable;
  /** What the database was like when they were counted; undefined where it changed meanwhile. */
  stamp: string | undefined;
  askedAt: number;
  isRunning: boolean;
}

/** Where a slice ends: a value with its storage class, as no binding could hand it over unharmed. */
interface Place {
  kind: string;
  last: Uint8Array;
}

export class RowCounter {
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #counts = new Map<string, Count>();
  readonly #stopped = endOfMany();
  /** Rows that may still be counted at once in this look. */
  #room = EXACT_ROWS;
  /** When the last of those that wait for it has had its turn. */
  #lastTurn: Promise<void> = Promise.resolve();

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Somebody begins to ask, in one turn of the event loop: in it so many rows are counted at once, and no more. */
  beginLook(): void {
    this.#room = EXACT_ROWS;
  }

  /** `uncommitted`: the application has a transaction open, and may take back what is counted now. */
  count(of: Countable, uncommitted = false): Counted {
    const key = of.part ? `${of.name} ${of.part.value}` : of.name;
    const known = this.#counts.get(key);
    const count = known ?? { of, rows: 0, read: 0, atLeast: true, stamp: undefined, askedAt: 0, isRunning: false };
    const stamp = this.#stamp();
    count.of = of;
    if (known && count.stamp === stamp) return told(count);
    const weight = isWide(of) ? WIDE_ROWS : 1;
    const room = Math.max(Math.floor(this.#room / weight), known ? 0 : LEAST_ROWS);
    if (!known || count.read <= room) {
      const found = this.#upTo(of, room);
      this.#room = Math.max(0, this.#room - found.read * weight);
      this.#counts.set(key, count);
      if (found.read <= room) {
        Object.assign(count, { ...found, atLeast: false, stamp: uncommitted ? undefined : stamp });
        return told(count);
      }
      // It has become larger than it was when it was counted, if it ever was.
      if (found.rows > count.rows) Object.assign(count, { rows: found.rows, atLeast: true });
      Object.assign(count, { read: Math.max(count.read, found.read), stamp: undefined });
    }
    // The table may be gone: that is told, and not a number.
    if (known && !count.isRunning) this.#upTo(of, 0);
    count.askedAt = this.#clock.now();
    if (!count.isRunning) void this.#keepCurrent(count);
    return told(count);
  }

  stop(): void {
    this.#stopped.abort();
  }

  /**
   * Changes with every write: `data_version` with those of other connections, `total_changes()` with our own rows, and
   * `schema_version` with our own tables.
   */
  #stamp(): string {
    const pragma = (name: string): unknown => Object.values(this.#db.get(`PRAGMA main.${name}`) ?? {})[0];
    const own = this.#db.get('SELECT total_changes() AS n')?.n;
    return `${pragma('data_version')} ${pragma('schema_version')} ${own}`;
  }

  async #keepCurrent(count: Count): Promise<void> {
    count.isRunning = true;
    try {
      while (!this.#stopped.signal.aborted && passedSince(this.#clock, count.askedAt) < ASKED_WITHIN_MS) {
        const began = this.#clock.now();
        // Whoever has asked is answered first.
        await this.#turn();
        if (this.#stopped.signal.aborted) return;
        if (this.#stamp() !== count.stamp) await this.#recount(count);
        if (this.#stopped.signal.aborted) return;
        const pause = Math.max(PAUSE_MS, PAUSE_FACTOR * passedSince(this.#clock, began));
        // The machine may have slept in the middle of it.
        await this.#clock.sleep(Math.min(pause, ASKED_WITHIN_MS), this.#stopped.signal);
      }
    } catch {
      // The table went away or the database was closed meanwhile: the next who asks is told so.
    } finally {
      count.isRunning = false;
    }
  }

  /** Resolves when everybody else has had a turn; of several counts one goes on in each. */
  #turn(): Promise<void> {
    this.#lastTurn = this.#lastTurn.then(() => this.#clock.sleep(1, this.#stopped.signal));
    return this.#lastTurn;
  }

  /** No more are read than one more than `most`. */
  #upTo(of: Countable, most: number): Found {
    const { where, values } = within(of);
    const from = `FROM ${inMain(of.name)} WHERE ${where}`;
    if (of.only !== undefined) return this.#among(of, `${from} LIMIT ${most + 1}`, values);
    // To step over them is less work than to count them, and to count all of a table is less than to count some of it.
    const isMore = this.#db.get(`SELECT 1 AS n ${from} LIMIT 1 OFFSET ${most}`, ...values) !== undefined;
    const rows = isMore ? most + 1 : Number(this.#db.get(`SELECT count(*) AS n ${from}`, ...values)?.n);
    return { rows, read: rows };
  }

  async #recount(count: Count): Promise<void> {
    const stamp = this.#stamp();
    let [rows, read] = [0, 0];
    let isUncommitted = false;
    for (const walk of walksOf(count.of)) {
      for (let place: Place | undefined; ; ) {
        const slice = await this.#patiently(() => this.#slice(walk, place));
        if (slice === undefined) return;
        isUncommitted ||= this.#db.isInTransaction === true;
        rows += slice.rows;
        read += slice.read;
        if (count.atLeast) count.rows = Math.max(count.rows, rows);
        if (slice.end === undefined) break;
        place = slice.end;
        await this.#turn();
        if (this.#stopped.signal.aborted) return;
      }
    }
    const isStill = !isUncommitted && this.#stamp() === stamp;
    Object.assign(count, { rows, read, atLeast: false, stamp: isStill ? stamp : undefined });
  }

  /** Without waiting for a lock of somebody else's, during which nothing else would go on; undefined where it is over. */
  async #patiently<T>(read: () => T): Promise<T | undefined> {
    while (!this.#stopped.signal.aborted) {
      try {
        return waitingAtMost(this.#db, 0, read);
      } catch (error) {
        const isBusy = error instanceof RowcastError && error.code === 'DATABASE_BUSY';
        if (!isBusy && !isCode(error, 'BUSY', 'LOCKED')) throw error;
        await this.#clock.sleep(PAUSE_MS, this.#stopped.signal);
      }
    }
    return undefined;
  }

  /** The next rows of a walk; `end` is where they end, and undefined where no more follow. */
  #slice({ of, key, where, values, most }: Walk, after: Place | undefined): Found & { end?: Place } {
    const bounds = after ? ` AND ${key} > ${BOUNDS[after.kind] ?? BOUNDS.number}` : '';
    const params = after ? [...values, after.last] : values;
    const from = `FROM ${inMain(of.name)} WHERE ${where}${bounds} ORDER BY ${key}`;
    const place = `SELECT typeof(${key}) AS kind, CAST(${key} AS BLOB) AS last`;
    const end = this.#db.get<Place>(`${place} ${from} LIMIT 1 OFFSET ${most - 1}`, ...params);
    if (end && of.only === undefined) return { rows: most, read: most, end };
    return { ...this.#among(of, `${from} LIMIT ${most}`, params), ...(end && { end }) };
  }

  /** Of rows that are named by what follows a SELECT. */
  #among({ only = 'true' }: Countable, from: string, params: Value[]): Found {
    const some = `SELECT ${only} AS counts ${from}`;
    const sql = `SELECT count(iif(counts, 1, NULL)) AS rows, count(*) AS read FROM (${some})`;
    return this.#db.get<Found>(sql, ...params) as unknown as Found;
  }
}

/** A way through a table by one of its keys. */
interface Walk {
  of: Countable;
  key: string;
  where: string;
  values: Value[];
  most: number;
}

function walksOf(of: Countable): Walk[] {
  const id = quote(of.id);
  const { where, values } = within(of);
  // An id lies among others in an index of its own, or in one of a part; otherwise whole rows lie there.
  const isNarrow = of.part !== undefined || hasNulls(of);
  const most = isNarrow ? SLICE_ROWS : SLICE_ROWS / WIDE_ROWS;
  const ids = { of, key: id, where: `${where} AND ${id} IS NOT NULL`, values, most };
  if (!hasNulls(of)) return [ids];
  return [{ ...ids, key: of.rowKey as string, where: `${where} AND ${id} IS NULL` }, ids];
}

function hasNulls({ rowKey, id }: Countable): boolean {
  return rowKey !== undefined && rowKey !== quote(id);
}

/** Is there nothing to count by but the rows themselves? */
function isWide({ rowKey, id, only }: Countable): boolean {
  return only !== undefined || rowKey === quote(id);
}

function within({ part }: Countable): { where: string; values: Value[] } {
  return part ? { where: `${quote(part.column)} = ?`, values: [part.value] } : { where: 'true', values: [] };
}

/** A place as SQL, by its kind: it is bound as bytes, because a string or a number could not hold all of them. */
const BOUNDS: Record<string, string> = {
  text: 'CAST(? AS TEXT)',
  blob: '?',
  number: 'CAST(CAST(? AS TEXT) AS NUMERIC)',
};

function told({ rows, atLeast }: Counted): Counted {
  return { rows, atLeast };
}

/** Of which of some numbers there are more, by their names; nothing where all are counted. */
export function atLeastOf<T extends string>(counted: Record<T, Counted>): { at_least?: T[] } {
  const names = (Object.keys(counted) as T[]).filter((name) => counted[name].atLeast);
  return names.length > 0 ? { at_least: names } : {};
}
