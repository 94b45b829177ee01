/**
 * Who this database is, and what it remembers of others: `_nodes` and `_names`. It belongs to the file and not to a
 * process, so it is read from there each time; two processes on one file are one node to everybody else.
 */
import type { Clock } from '../clock.ts';
import type { Connection } from '../sqlite/connection.ts';
import { type Introduction, introduce, numberOf, readIntroduction } from '../wire/introduction.ts';
import { PeerClocks } from './clocks.ts';
import { type Finding, type Hearing, isNews, type Noted, type Other, type Renewal } from './finding.ts';
import { Heard } from './heard.ts';
import { judge, type Memory } from './judge.ts';
import { speaksOfLater } from './later.ts';
import { Lineage } from './lineage.ts';
import { boots, findNode, type GoneOn, goneOn, type Known, noteClaim, rememberNode, tickNode } from './nodes.ts';
import { drawn, sealOf } from './seal.ts';
import { noteAt, STRANGERS_KEPT } from './strangers.ts';
import { claimsFor } from './told-claims.ts';
import { isUsedTwice, UsedTwice } from './twice.ts';

export { type Finding, isNews, type Other, type Renewal } from './finding.ts';

export interface IdentityOptions {
  /** The node id. */
  id: string;
  random: () => number;
  clock: Clock;
  /** What is dated further ahead of the clock is not let in; 0: everything is. */
  maxAheadMs: number;
  /** A query for the databases (`inc`) that acknowledge at a URL of ours: these can be asked themselves. */
  atUrls: string;
  /**
   * Everything that was captured before has reached every peer: what is said of that to a database. Undefined: nothing.
   */
  low(to: string | null | undefined): number | undefined;
  /** How many others are remembered; whoever brings them here each time may want more, and forgets them himself. */
  strangersKept?: number;
  /** What is known of one that goes on, where somebody keeps that elsewhere: see `goesOn`. */
  goingOn?(inc: string): Known | undefined;
  /** Other processes hear for it, too: of one that was not heard here nobody knows whether it is alive. */
  othersHear?: boolean;
  /** Another state was put under this process. In the transaction in which that takes an identity of its own. */
  anotherFile?(): void;
}

/** A message of a database whose id, or whose place, another one has taken over may come so late; after that, both are alive. */
export const LATE_MS = 60_000;

export class Identity {
  readonly #db: Connection;
  readonly #o: IdentityOptions;
  /** As last read; the file has the last word. */
  #inc = '';
  /** An identity that must be given up: it is another's as well. */
  #renewing: string | undefined;
  /** A message that speaks of a later state of this database than it was when that came. */
  #doubt: Introduction | undefined;
  readonly #lineage = new Lineage();
  readonly #clocks: PeerClocks;
  /** The file does not go on from where this process has seen it. */
  #isAnotherFile = false;
  readonly #began: number;
  readonly #heard: Heard;
  /** When an id was taken over by another database. */
  readonly #takenOver = new Map<string, number>();
  readonly usedTwice = new UsedTwice();
  /** The attach for which what a database brought was last passed on: once for a request that says so, and its answer. */
  readonly #passedOn = new Map<string, string>();
  /** No more than so many are at no URL of ours; before the first count there may be any number. */
  #strangersMax: number;

  constructor(db: Connection, options: IdentityOptions) {
    this.#db = db;
    this.#o = options;
    this.#strangersMax = this.#strangersKept;
    this.#began = options.clock.now();
    this.#clocks = new PeerClocks(options.maxAheadMs);
    this.#heard = new Heard(options.clock);
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
          'UPDATE main._nodes SET id = ?, seal = coalesce(seal, ?), boot = ?, before = ?, t0 = tick WHERE inc = ?',
          this.#o.id,
          this.#secret(),
          this.#boot(numberOf(own.boot) + 1),
          boots(own),
          own.inc,
        );
      },
      { durable: true },
    );
  }

  /** Counts a transaction that others can know of. Only in one that is flushed. */
  tick(): void {
    const was = tickNode(this.#db, this.#inc) ?? tickNode(this.#db, this.self().inc);
    if (was && !this.#lineage.goesOn(was)) this.#isAnotherFile = true;
  }

  /** Is the file what it was when this process last saw it? In a transaction, of which that is then true. */
  get isSameFile(): boolean {
    const own = this.#findOwn();
    return own !== undefined && this.#lineage.goesOn(own);
  }

  /** What a message says of this database, and of what is remembered of the one that it goes to. */
  introduction(to: string | null | undefined, reads?: Introduction['reads']): string {
    const own = this.self();
    const { inc, boot, t0, tick } = own;
    const you = to == null || to === inc ? undefined : (this.#o.goingOn?.(to) ?? findNode(this.#db, to));
    return introduce({
      id: this.#o.id,
      inc,
      boot,
      t0,
      tick,
      seal: sealOf(own, { boot, tick }),
      low: this.#o.low(to),
      reads,
      ...(to != null && you && { you: { inc: to, tick: you.tick, boot: you.boot, seal: you.seal ?? undefined } }),
      claims: claimsFor(this.#db, to, you),
    });
  }

  /**
   * Takes note of what a message says. In a transaction, that of what the message has brought. Undefined where it says
   * nothing of the kind.
   */
  hear(header: string | null | undefined, hearing: Hearing): Finding | undefined {
    const said = readIntroduction(header);
    if (!said) return undefined;
    const own = this.self();
    const { id, inc } = said;
    this.#hearOfSelf(said, own);
    if (inc === own.inc) {
      const kind = said.boot === own.boot ? 'self' : 'copy';
      return { id, inc, boot: said.boot, kind, wentBack: false, doubtful: false, compareAll: false };
    }
    const known = findNode(this.#db, inc);
    const judgement = judge(said, known);
    const { kind } = judgement;
    const wentBack = kind === 'went-back' && !judgement.again;
    // That it goes on is nothing that it could not have said. Another attach is: an answer of the one before would be late.
    const isOdd = isNews({ kind }) || known?.id !== id;
    const doubtful = isOdd && !hearing.answer && this.#isAtUrl(inc);
    if (kind !== 'late' && !doubtful) {
      rememberNode(this.#db, said, judgement.remember, known, own);
      if (!known && ++this.#strangersMax > this.#strangersKept) this.#forgetStrangers();
    } else if (known && kind === 'restarted') noteClaim(this.#db, said, known);
    if (kind !== 'late' && (hearing.answer || !this.#isAtUrl(inc))) this.#heard.note(said);
    // Anybody can make a request that says so: it counts where we have asked.
    if (hearing.answer && said.low !== undefined) this.#clocks.note(inc, said.low, this.#o.clock.now());
    const { passOn, tookOver } = this.#note(said, { wentBack, brings: hearing.brings, holdsItFirst: known?.id !== id });
    const compareAll = passOn && !(wentBack && this.#passedOn.get(inc) === said.boot);
    return { id, inc, boot: said.boot, kind, wentBack, doubtful, compareAll, tookOver };
  }

  /**
   * The same for the answer of one of which all that is known is given, by whoever keeps that: what has changed, where it goes
   * on and says nothing else. Undefined where there is more to it: then it is for `hear`.
   */
  goesOn(said: Introduction, known: Known, own = this.self()): { changed: GoneOn | undefined } | undefined {
    const judgement = judge(said, known);
    const isOther = said.id !== known.id || said.inc === own.inc || said.id === this.#o.id;
    if (isOther || judgement.kind !== 'same') return undefined;
    this.#hearOfSelf(said, own);
    this.#heard.note(said);
    if (said.low !== undefined) this.#clocks.note(said.inc, said.low, this.#o.clock.now());
    return { changed: goneOn(said, judgement.remember, known, own) };
  }

  /** What a database brought is on its way to all: that need not be found twice of one attach. After the commit. */
  passedOn({ inc, boot }: Pick<Finding, 'inc' | 'boot'>): void {
    if (this.#passedOn.size >= STRANGERS_KEPT) this.#passedOn.clear();
    this.#passedOn.set(inc, boot);
  }

  /** Somebody asks who we are. What it says of itself is noted when it answers us; what it says of us has our own seal. */
  greet(header: string): Pick<Finding, 'id' | 'inc' | 'kind'> | undefined {
    const said = readIntroduction(header);
    if (said) this.#hearOfSelf(said, this.self());
    return this.look(header);
  }

  /** The id was first heard, or taken over by another database, a moment ago or as this process began: more may still come. */
  isNewHere(id: string): boolean {
    return Math.abs(this.#o.clock.now() - (this.#takenOver.get(id) ?? this.#began)) < LATE_MS;
  }

  /** False where a message speaks for a database that is known here under another id. */
  isNamed(header: string): boolean {
    const said = readIntroduction(header);
    const known = said && findNode(this.#db, said.inc);
    return known === undefined || known.id === said?.id;
  }

  /** Who a message is from, without taking note of it. */
  look(header: string): Pick<Finding, 'id' | 'inc' | 'kind'> | undefined {
    const said = readIntroduction(header);
    if (!said) return undefined;
    const own = this.self();
    const { id, inc } = said;
    if (inc === own.inc) return { id, inc, kind: said.boot === own.boot ? 'self' : 'copy' };
    return { id, inc, kind: judge(said, findNode(this.#db, inc)).kind };
  }

  /**
   * Takes a new identity where the present one was found to be another's as well, or where another file, or an earlier state
   * of this one, was put under this process. After the transaction in which that was heard, flushed by itself, and before
   * anything more is said.
   */
  renew(): Renewal {
    const seen = this.#see();
    if (seen === 'another' || this.#isEarlierThan(this.#doubt)) this.#renewing = this.#inc;
    this.#doubt = undefined;
    const given = this.#renewing;
    if (given === undefined) return seen === 'renewed' ? 'elsewhere' : 'none';
    const renewed = this.#db.transaction(
      () => {
        const own = this.self();
        // Another process on the same file may have done it.
        if (own.inc !== given) return false;
        this.#db.run('DELETE FROM main._nodes WHERE inc = ?', given);
        this.#create({ ...own, t0: own.tick });
        if (this.#isAnotherFile) this.#o.anotherFile?.();
        return true;
      },
      { durable: true },
    );
    const renewal = this.#isAnotherFile ? 'another-file' : 'renewed';
    this.#renewing = undefined;
    this.#isAnotherFile = false;
    this.#see();
    return renewed ? renewal : 'elsewhere';
  }

  /** The file as it is, committed. */
  #see(): 'same' | 'renewed' | 'another' {
    const own = this.#findOwn();
    const seen = own ? this.#lineage.see(own) : 'same';
    this.#isAnotherFile ||= seen === 'another';
    return this.#isAnotherFile ? 'another' : seen;
  }

  /** Another process has given it another identity, and has seen to what follows. */
  readonly follow = (): void => this.#lineage.beginAnew();

  /** Somebody says that this is to be another database. */
  renewNow(): void {
    this.renewNext();
    this.renew();
  }

  /** What `renew` has done was undone: it is to be done again. */
  renewNext(): void {
    this.#renewing = this.#findOwn()?.inc;
  }

  /** Somebody knows of a later state: `renew` finds out whether that is still so. */
  get isInDoubt(): boolean {
    return this.#doubt !== undefined;
  }

  /** Somebody else has introduced itself here. */
  knowsOthers(): boolean {
    return this.#db.get('SELECT 1 AS n FROM main._nodes WHERE self IS NULL LIMIT 1') !== undefined;
  }

  /** What was heard since the start is over; it will be heard again. */
  readonly forgetHeard = (): void => this.#heard.clear();

  /** What a database last said of what it still has to send; undefined where it has not, since the start. */
  saidBy(inc: string): number | undefined {
    return this.#heard.lowOf(inc);
  }

  /** The databases that hold an id at present, without this one. */
  others(): Other[] {
    const names = this.#db.all<{ id: string; inc: string }>('SELECT id, inc FROM main._names ORDER BY id');
    return names.map(({ id, inc }) => {
      const heard = this.#heard.as(id, inc);
      return { id, inc, low: heard?.low, heardAt: heard?.at };
    });
  }

  /** Without the ids of which it is `told` already that two databases use them. */
  problems(told?: ReadonlySet<string>): string[] {
    const now = this.#o.clock.now();
    const ids = this.usedTwice.ids(now, (inc) => findNode(this.#db, inc)?.id);
    const twice = ids.filter((id) => !told?.has(id)).map(isUsedTwice);
    const clock = this.#clocks.problem(now);
    return clock === undefined ? twice : [...twice, clock];
  }

  #hearOfSelf(said: Introduction, own: Known): void {
    if (speaksOfLater(said, own)) this.#doubt = said;
  }

  #isEarlierThan(said: Introduction | undefined): boolean {
    const own = said && this.#findOwn();
    return own !== undefined && speaksOfLater(said as Introduction, own);
  }

  /**
   * Of those that are at no URL of ours, the ones that were heard of longest ago. One that comes back is new to us: it is not
   * told what was remembered of it, and what it brought before is not passed on when its id is another's by then; the next
   * comparison finds that. To count them takes a look at all, so it is done when there may be too many.
   */
  #forgetStrangers(): void {
    const strangers = `self IS NULL AND inc NOT IN (${this.#o.atUrls})`;
    const known = Number(this.#db.get(`SELECT count(*) AS n FROM main._nodes WHERE ${strangers}`)?.n);
    this.#strangersMax = Math.min(known, this.#strangersKept);
    if (known <= this.#strangersKept) return;
    const oldest = `SELECT inc FROM main._nodes WHERE ${strangers} ORDER BY heard LIMIT ${known - this.#strangersKept}`;
    const forgotten = this.#db.all<{ inc: string }>(`DELETE FROM main._nodes WHERE inc IN (${oldest}) RETURNING inc`);
    for (const { inc } of forgotten) this.#heard.forget(inc);
    this.#db.run('DELETE FROM main._names WHERE inc NOT IN (SELECT inc FROM main._nodes)');
  }

  get #strangersKept(): number {
    return this.#o.strangersKept ?? STRANGERS_KEPT;
  }

  #isAtUrl(inc: string): boolean {
    return this.#db.get(`SELECT 1 AS n FROM (${this.#o.atUrls}) WHERE inc = ? LIMIT 1`, inc) !== undefined;
  }

  /** Notes which database has an id. `passOn`: what came under that id may not be everywhere. */
  #note({ id, inc }: Introduction, heard: { wentBack: boolean; brings: boolean; holdsItFirst: boolean }): Noted {
    const now = this.#o.clock.now();
    if (id === this.#o.id) {
      this.usedTwice.note(id, [inc], now);
      return { passOn: heard.wentBack };
    }
    const holder = this.#db.get<{ inc: string }>('SELECT inc FROM main._names WHERE id = ?', id)?.inc;
    if (holder === inc) return { passOn: heard.wentBack };
    // One that was given another id since holds it no more.
    const isHeld = holder !== undefined && (findNode(this.#db, holder)?.id ?? id) === id;
    if (!isHeld || heard.holdsItFirst || heard.wentBack) {
      this.#db.run(
        'INSERT INTO main._names (id, inc) VALUES (?, ?) ON CONFLICT DO UPDATE SET inc = excluded.inc',
        id,
        inc,
      );
      noteAt(this.#takenOver, id, now);
      return { passOn: holder !== undefined, tookOver: holder };
    }
    // It had the id before. What it has sent until it ended may arrive after the one that took over has been heard.
    if (Math.abs(now - (this.#takenOver.get(id) ?? this.#began)) < LATE_MS) return { passOn: heard.brings };
    // One that is gone uses it no more, however long the other goes on.
    const heardAt = this.#heard.as(id, holder)?.at ?? (this.#o.othersHear ? now : -Infinity);
    this.usedTwice.note(id, [holder, inc], heardAt);
    return { passOn: false };
  }

  /** As it is. */
  self(): Known {
    const own = this.#findOwn();
    if (own) return own;
    // Somebody has taken it away: then this is a new database to everybody else.
    this.#create({ boot: this.#boot(1), before: [], t0: 0, tick: 0 });
    return findNode(this.#db, this.#inc) as Known;
  }

  #findOwn(): Known | undefined {
    const known = findNode(this.#db, this.#inc);
    if (known?.self === 1) return known;
    const inc = this.#db.get<{ inc: string }>('SELECT inc FROM main._nodes WHERE self = 1')?.inc;
    this.#inc = inc ?? '';
    return inc === undefined ? undefined : findNode(this.#db, inc);
  }

  #create({ boot, before, t0, tick }: Pick<Memory, 'boot' | 'before' | 't0' | 'tick'>): void {
    this.#inc = drawn('inc', 16, this.#o);
    this.#db.run(
      'INSERT INTO main._nodes (inc, id, boot, before, t0, tick, seal, self) VALUES (?, ?, ?, ?, ?, ?, ?, 1)',
      this.#inc,
      this.#o.id,
      boot,
      before.join(' '),
      t0,
      tick,
      this.#secret(),
    );
  }

  readonly #secret = (): string => drawn('secret', 32, this.#o);
  readonly #boot = (number: number): string => `${number}-${drawn(`boot ${number}`, 8, this.#o)}`;
}
