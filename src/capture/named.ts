/**
 * Which tables are named by whom. Several may be attached to one file at a time, with a table each, or an old program beside
 * a new one that has more: what is captured, sent and received is what they name together, and each of them does all of it.
 * So each has an entry in `_meta` while it is attached, and an attach takes the triggers of a table away only where nobody
 * who is there names it.
 *
 * A process that ends without stop() leaves its entry behind. The others ask by a number in it, which whoever is alive sets
 * back with its next look. After a minute of questions without an answer it is taken out. They are counted in the file, so
 * that programs that run for seconds get there as well; and counted instead of timed, so that a machine which has slept is
 * given the time to answer. Where it was wrong, because the process was merely suspended, that one enters again.
 */
import type { Connection } from '../sqlite/connection.ts';
import { fold } from '../sqlite/sql.ts';
import { capturedTables } from './capture-record.ts';
import { ownTriggers, tableExists } from './installed-triggers.ts';
import { hasMeta, Names } from './names.ts';

export interface Time {
  now(): number;
  sleep(ms: number): Promise<void>;
}

interface Entry {
  /** Grows with every attach. */
  number: number;
  tables: string[];
  /** How often it has answered. */
  beat: number;
  /** When it was last asked, and how often since its latest answer. */
  asked: number;
  times: number;
  text: string;
}

const PREFIX = 'attached:';
const COUNTER = 'attaches';
/** How often one is asked whose tables are kept for it alone; and one that keeps nothing but its entry. */
const ASK_MS = 5_000;
const SELDOM_MS = 60_000;
const GONE_AFTER = 12;
/** For so long an answer is waited for where somebody does wait. */
const ANSWER_MS = 5_000;
const STEP_MS = 40;

export class Naming {
  readonly #db: Connection;
  readonly #time: Time;
  #number: number | undefined;
  #tables: string[] = [];
  #hasOthers = false;
  /** Those that were there before and have given no sign since, with what they named: to that they may be dead. */
  readonly #silent = new Map<number, Entry>();
  /** What one that was dead had named, and this one does not, in lower case. */
  readonly #over = new Set<string>();

  constructor(db: Connection, time: Time) {
    this.#db = db;
    this.#time = time;
  }

  /** In the transaction that makes the triggers: these are its tables. What is said is on the file with them, or not at all. */
  enter(tables: string[]): void {
    this.#tables = tables;
    const { own, others: found } = this.#read();
    const others = this.#number === undefined ? found.filter((other) => !this.#replaces(other)) : found;
    if (this.#number === undefined) for (const other of others) this.#silent.set(other.number, other);
    this.#hasOthers = others.length > 0;
    if (own && isSameList(own.tables, tables)) return;
    this.#number = own?.number ?? this.#nextNumber();
    this.#put({ beat: 0, asked: 0, times: 0, ...own, number: this.#number, tables });
  }

  /**
   * A process that is killed and started again and again would leave an entry each time. One with the same tables says nothing
   * that its own does not, so it takes the place of that; whoever is alive there enters again with its next look.
   */
  #replaces({ number, tables }: Entry): boolean {
    if (!isSameList(tables, this.#tables)) return false;
    this.#db.run('DELETE FROM main._meta WHERE key = ?', `${PREFIX}${number}`);
    return true;
  }

  /** The transaction was taken back; `number` is what it was before. */
  takeBack(number: number | undefined): void {
    this.#number = number;
  }

  get number(): number | undefined {
    return this.#number;
  }

  leave(): void {
    if (this.#number !== undefined) this.#db.run('DELETE FROM main._meta WHERE key = ?', `${PREFIX}${this.#number}`);
  }

  /**
   * The tables that are synced beside those of its own. While it runs these are also such as nobody names any more: whoever
   * has stopped may be about to start again, and what is written meanwhile must not go unseen. The next attach decides.
   */
  besides(): string[] {
    if (!hasMeta(this.#db)) return [];
    const named = this.#read().others.flatMap(({ tables }) => tables);
    return this.#number === undefined ? named : [...named, ...this.#captured().filter((name) => !this.#over.has(name))];
  }

  /** Looks at the others; alone, it writes nothing. True where the triggers, or its own entry, have to be put right. */
  watch(isQuiet: boolean): boolean {
    if (isQuiet && !this.#hasOthers && this.#over.size === 0) return false;
    const { own, others } = this.#read();
    this.#hasOthers = others.length > 0;
    if (!own) return true;
    if (own.times > 0) this.#replace(own, { beat: own.beat + 1, times: 0 });
    const there = new Set(others.map(({ number }) => number));
    for (const number of this.#silent.keys()) if (!there.has(number)) this.#silent.delete(number);
    if (!this.#hasOthers && this.#over.size === 0) return false;
    const present = this.#presentNames();
    const stay = others.filter((other) => !this.#isGone(other, present));
    const later = stay.filter(({ number }) => number > own.number);
    for (const name of later.flatMap(({ tables }) => tables)) this.#over.delete(present(name));
    if (this.#over.size === 0) return false;
    const named = new Set(stay.flatMap(({ tables }) => tables.map(present)));
    return this.#captured().some((name) => this.#over.has(name) && !named.has(name));
  }

  /** The tables, in lower case, of those who are still there. Who gives no answer for a while is not. */
  async heldByOthers(): Promise<Set<string>> {
    const asked = new Map<number, number>();
    const ask = (): void => {
      for (const other of this.#read().others) {
        asked.set(other.number, other.beat);
        this.#replace(other, { asked: this.#time.now(), times: other.times + 1 });
      }
    };
    this.#db.patiently(ask);
    for (let waited = 0; ; waited += STEP_MS) {
      const { others } = this.#read();
      const answered = others.filter(({ number, beat }) => asked.get(number) !== beat);
      if (answered.length === others.length || waited >= ANSWER_MS) {
        const present = this.#presentNames();
        return new Set(answered.flatMap(({ tables }) => tables.map(present)));
      }
      await this.#time.sleep(STEP_MS);
    }
  }

  /** Asks it where that is due. True where it was asked often enough, and is taken out. */
  #isGone(other: Entry, present: (name: string) => string): boolean {
    const since = this.#silent.get(other.number);
    if (since && since.beat !== other.beat) this.#silent.delete(other.number);
    const own = new Set(this.#tables.map(present));
    const kept = other.tables.map(present).filter((name) => !own.has(name));
    const now = this.#time.now();
    if (Math.abs(now - other.asked) < (kept.length > 0 ? ASK_MS : SELDOM_MS)) return false;
    if (other.times < GONE_AFTER) {
      this.#replace(other, { asked: now, times: other.times + 1 });
      return false;
    }
    const isOut = this.#write(
      'DELETE FROM main._meta WHERE key = ? AND value = ?',
      `${PREFIX}${other.number}`,
      other.text,
    );
    // One that was alive meanwhile may only have crashed: what it named is kept, as of one that has stopped.
    if (isOut && this.#silent.delete(other.number)) for (const name of kept) this.#over.add(name);
    return isOut;
  }

  /** Those that have triggers of ours, and were not given them under another name. */
  #captured(): string[] {
    const captured = new Set(capturedTables(this.#db));
    const there = new Set(ownTriggers(this.#db).map(({ tbl_name }) => fold(tbl_name)));
    return [...there].filter((name) => captured.has(name));
  }

  #presentNames(): (name: string) => string {
    const names = Names.read(this.#db);
    return (name) => fold((!tableExists(this.#db, name) && names.presentName(name)) || name);
  }

  #read(): { own: Entry | undefined; others: Entry[] } {
    const rows = this.#db.all<{ number: string; text: unknown }>(
      `SELECT substr(key, ${PREFIX.length + 1}) AS number, value AS text FROM main._meta ` +
        `WHERE key >= '${PREFIX}' AND key < 'attached;'`,
    );
    const entries = rows.flatMap(({ number, text }) => parsed(Number(number), text) ?? []);
    return {
      own: entries.find(({ number }) => number === this.#number),
      others: entries.filter(({ number }) => number !== this.#number),
    };
  }

  #nextNumber(): number {
    this.#db.run(
      `INSERT INTO main._meta (key, value) VALUES ('${COUNTER}', 1) ON CONFLICT DO UPDATE SET value = value + 1`,
    );
    return Number(this.#db.get('SELECT value FROM main._meta WHERE key = ?', COUNTER)?.value);
  }

  #put({ number, ...entry }: Omit<Entry, 'text'>): void {
    this.#db.run(
      'INSERT INTO main._meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value',
      `${PREFIX}${number}`,
      textOf(entry),
    );
  }

  /** Unless somebody else has written there since it was read. */
  #replace(entry: Entry, by: Partial<Entry>): void {
    const sql = 'UPDATE main._meta SET value = ? WHERE key = ? AND value = ?';
    this.#write(sql, textOf({ ...entry, ...by }), `${PREFIX}${entry.number}`, entry.text);
  }

  #write(sql: string, ...params: string[]): boolean {
    return this.#db.transaction(() => {
      this.#db.run(sql, ...params);
      return this.#db.get('SELECT changes() AS n')?.n !== 0;
    });
  }
}

function textOf({ tables, beat, asked, times }: Omit<Entry, 'text' | 'number'>): string {
  return JSON.stringify({ tables, beat, asked, times });
}

function isSameList(one: string[], other: string[]): boolean {
  return JSON.stringify(one.toSorted()) === JSON.stringify(other.toSorted());
}

/** A person may have written anything there. */
function parsed(number: number, text: unknown): Entry | undefined {
  try {
    const { tables, beat, asked, times } = JSON.parse(String(text)) as Partial<Entry>;
    const isWhole = [number, beat, asked, times].every(Number.isFinite);
    if (!isWhole || !Array.isArray(tables) || !tables.every((name) => typeof name === 'string')) return undefined;
    return { number, tables, beat, asked, times, text } as Entry;
  } catch {
    return undefined;
  }
}
