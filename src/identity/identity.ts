/**
 * Who this database is, and what it remembers of others: `_nodes` and `_names`. It belongs to the file and not to a
 * process, so it is read from there each time; two processes on one file are one node to everybody else.
 */
import { createHash } from 'node:crypto';
import type { Clock } from '../clock.ts';
import type { Connection } from '../sqlite/connection.ts';
import { type Introduction, introduce, numberOf, readIntroduction, type Self } from '../wire/introduction.ts';
import { earlier, isBehind, isCopyOf, type Judgement, judge, type Memory } from './judge.ts';

export interface IdentityOptions {
  /** The node id. */
  id: string;
  random: () => number;
  clock: Clock;
  /**
   * Everything that was captured before has reached every peer: what is said of that to a database, or of ourselves where
   * none is named. Undefined: nothing.
   */
  low(to?: string | null): number | undefined;
}

/** Another database that holds an id, and what was heard of it since the start. */
export interface Other {
  id: string;
  inc: string;
  low: number | undefined;
  heardAt: number | undefined;
}

/** Who has spoken, and what follows from it for whoever is to act on it. */
export interface Finding {
  id: string;
  inc: string;
  /** `self`: this very database. `copy`: another one under our identity. */
  kind: Judgement['kind'] | 'self' | 'copy';
  /** It was found out just now that it is an earlier state of itself: what it acknowledged it may not have. */
  wentBack: boolean;
  /** What came under its id, from it or from the database that had the id before, may not be everywhere. */
  compareAll: boolean;
}

/** A message of a database whose id another one has taken over may come so late; after that, both are alive. */
const LATE_MS = 60_000;
/** How long an id that two use is a problem after it was last noticed. */
const TWICE_MS = 10 * 60_000;

export class Identity {
  readonly #db: Connection;
  readonly #o: IdentityOptions;
  /** As last read; the file has the last word. */
  #inc = '';
  /** An identity that must be given up: it is another's as well. */
  #renewing: string | undefined;
  readonly #began: number;
  /** What was last heard of a database, by its inc. */
  readonly #heard = new Map<string, { low: number | undefined; at: number }>();
  /** When an id was taken over by another database, and when two were last seen to use it. */
  readonly #takenOver = new Map<string, number>();
  readonly #usedTwice = new Map<string, number>();

  constructor(db: Connection, options: IdentityOptions) {
    this.#db = db;
    this.#o = options;
    this.#began = options.clock.now();
  }

  /** A new attach. Flushed: what is told of it must survive. */
  begin(): void {
    this.#db.transaction(
      () => {
        const own = this.#findOwn();
        if (!own) {
          this.#create({ boot: this.#boot(1), before: [], t0: 0, tick: 0 });
          return;
        }
        this.#db.run(
          'UPDATE main._nodes SET id = ?, boot = ?, before = ?, t0 = tick WHERE inc = ?',
          this.#o.id,
          this.#boot(numberOf(own.boot) + 1),
          earlier(own).join(' '),
          own.inc,
        );
      },
      { durable: true },
    );
  }

  /** Counts a transaction that others can know of. Only in one that is flushed. */
  tick(): void {
    const sql = 'UPDATE main._nodes SET tick = tick + 1 WHERE inc = ? AND self = 1 RETURNING tick';
    if (!this.#db.get(sql, this.#inc)) this.#db.get(sql, this.#own().inc);
  }

  /** What a message says of this database, and of what is remembered of the one that it goes to. */
  introduction(to: string | null | undefined): string {
    const { inc, boot, t0, tick } = this.#own();
    const you = to == null || to === inc ? undefined : this.#find(to);
    return introduce({
      id: this.#o.id,
      inc,
      boot,
      t0,
      tick,
      low: this.#o.low(to),
      ...(to != null && you && { you: { inc: to, tick: you.tick, boot: you.boot } }),
    });
  }

  /**
   * Takes note of what a message says. In a transaction, that of what the message has brought. `brings`: it has brought
   * changes. Undefined where it says nothing of the kind.
   */
  hear(header: string | null | undefined, { brings }: { brings: boolean }): Finding | undefined {
    const said = readIntroduction(header);
    if (!said) return undefined;
    const own = this.#own();
    const { id, inc } = said;
    if (said.you?.inc === own.inc && isBehind(own, said.you)) this.#renewing = own.inc;
    if (inc === own.inc) {
      if (isCopyOf(own, said)) this.#renewing = own.inc;
      return { id, inc, kind: said.boot === own.boot ? 'self' : 'copy', wentBack: false, compareAll: false };
    }
    const known = this.#find(inc);
    const judgement = judge(said, known);
    if (judgement.kind !== 'late') {
      this.#remember(said, judgement.remember, known);
      // A hub that was started again says nothing until its edges have spoken: what it said before still holds.
      this.#heard.set(inc, { low: said.low ?? this.saidBy(inc), at: this.#o.clock.now() });
    }
    const wentBack = judgement.kind === 'went-back' && !judgement.again;
    const compareAll = this.#note(said, { wentBack, brings, holdsItFirst: known?.id !== id });
    return { id, inc, kind: judgement.kind, wentBack, compareAll };
  }

  /** Who a message is from, without taking note of it. */
  look(header: string): Pick<Finding, 'inc' | 'kind'> | undefined {
    const said = readIntroduction(header);
    if (!said) return undefined;
    const own = this.#own();
    if (said.inc === own.inc) return { inc: said.inc, kind: said.boot === own.boot ? 'self' : 'copy' };
    return { inc: said.inc, kind: judge(said, this.#find(said.inc)).kind };
  }

  /**
   * Takes a new identity where the present one was found to be another's as well; true where it did. After the transaction
   * in which that was heard, and flushed by itself, before anything more is said.
   */
  renew(): boolean {
    const given = this.#renewing;
    if (given === undefined) return false;
    const renewed = this.#db.transaction(
      () => {
        const own = this.#own();
        // Another process on the same file may have done it.
        if (own.inc !== given) return false;
        this.#db.run('DELETE FROM main._nodes WHERE inc = ?', given);
        this.#create({ ...own, t0: own.tick });
        return true;
      },
      { durable: true },
    );
    this.#renewing = undefined;
    return renewed;
  }

  /** Somebody else has introduced itself here. */
  knowsOthers(): boolean {
    return this.#db.get('SELECT 1 AS n FROM main._nodes WHERE self IS NULL LIMIT 1') !== undefined;
  }

  /** What a database last said of what it still has to send; undefined where it has not, since the start. */
  saidBy(inc: string): number | undefined {
    return this.#heard.get(inc)?.low;
  }

  /** The databases that hold an id at present, without this one. */
  others(): Other[] {
    const names = this.#db.all<{ id: string; inc: string }>('SELECT id, inc FROM main._names ORDER BY id');
    return names.map(({ id, inc }) => {
      const heard = this.#heard.get(inc);
      return { id, inc, low: heard?.low, heardAt: heard?.at };
    });
  }

  problems(): string[] {
    const now = this.#o.clock.now();
    for (const [id, at] of this.#usedTwice) if (Math.abs(now - at) >= TWICE_MS) this.#usedTwice.delete(id);
    return [...this.#usedTwice.keys()].map(
      (id) => `node id ${JSON.stringify(id)} is used by two databases: give one of them another id`,
    );
  }

  #remember({ inc, id }: Introduction, memory: Memory, known: Known | undefined): void {
    if (known && known.id === id && known.boot === memory.boot && known.back === memory.back) {
      if (memory.tick > known.tick) this.#db.run('UPDATE main._nodes SET tick = ? WHERE inc = ?', memory.tick, inc);
      return;
    }
    const { boot, before, t0, tick, back } = memory;
    this.#db.run(
      'INSERT INTO main._nodes (inc, id, boot, before, t0, tick, back) VALUES (?, ?, ?, ?, ?, ?, ?) ' +
        'ON CONFLICT DO UPDATE SET id = excluded.id, boot = excluded.boot, before = excluded.before, ' +
        't0 = excluded.t0, tick = excluded.tick, back = excluded.back',
      inc,
      id,
      boot,
      before.join(' '),
      t0,
      tick,
      back,
    );
  }

  /** Notes which database has an id; true where what came under that id may not be everywhere. */
  #note({ id, inc }: Introduction, heard: { wentBack: boolean; brings: boolean; holdsItFirst: boolean }): boolean {
    const now = this.#o.clock.now();
    if (id === this.#o.id) {
      this.#usedTwice.set(id, now);
      return heard.wentBack;
    }
    const holder = this.#db.get('SELECT inc FROM main._names WHERE id = ?', id)?.inc;
    if (holder === inc) return heard.wentBack;
    if (holder === undefined || heard.holdsItFirst || heard.wentBack) {
      this.#db.run(
        'INSERT INTO main._names (id, inc) VALUES (?, ?) ON CONFLICT DO UPDATE SET inc = excluded.inc',
        id,
        inc,
      );
      this.#takenOver.set(id, now);
      return holder !== undefined;
    }
    // It had the id before. What it has sent until it ended may arrive after the one that took over has been heard.
    if (Math.abs(now - (this.#takenOver.get(id) ?? this.#began)) < LATE_MS) return heard.brings;
    this.#usedTwice.set(id, now);
    return false;
  }

  #own(): Known {
    const own = this.#findOwn();
    if (own) return own;
    // Somebody has taken it away: then this is a new database to everybody else.
    this.#create({ boot: this.#boot(1), before: [], t0: 0, tick: 0 });
    return this.#find(this.#inc) as Known;
  }

  #findOwn(): Known | undefined {
    const known = this.#find(this.#inc);
    if (known?.self === 1) return known;
    const inc = this.#db.get<{ inc: string }>('SELECT inc FROM main._nodes WHERE self = 1')?.inc;
    this.#inc = inc ?? '';
    return inc === undefined ? undefined : this.#find(inc);
  }

  #find(inc: string): Known | undefined {
    const row = this.#db.get<Omit<Known, 'before'> & { before: string }>(
      'SELECT inc, id, boot, before, t0, tick, back, self FROM main._nodes WHERE inc = ?',
      inc,
    );
    return row && { ...row, before: row.before === '' ? [] : row.before.split(' ') };
  }

  #create({ boot, before, t0, tick }: Omit<Self, 'inc'> & { before: string[] }): void {
    this.#inc = this.#drawn('inc', 16);
    this.#db.run(
      'INSERT INTO main._nodes (inc, id, boot, before, t0, tick, self) VALUES (?, ?, ?, ?, ?, ?, 1)',
      this.#inc,
      this.#o.id,
      boot,
      before.join(' '),
      t0,
      tick,
    );
  }

  #boot(number: number): string {
    return `${number}-${this.#drawn(`boot ${number}`, 8)}`;
  }

  /** Hex digits by chance. The id goes in as well: two nodes whose chance is the same must not be one. */
  #drawn(what: string, digits: number): string {
    const { id, random } = this.#o;
    const chance = [random(), random(), random()].join(' ');
    return createHash('sha256').update(`${id} ${what} ${chance}`).digest('hex').slice(0, digits);
  }
}

interface Known extends Memory {
  inc: string;
  id: string;
  self: number | null;
}
