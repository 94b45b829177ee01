/**
 * A seed is a comparison first. A peer that may lack anything mostly lacks little: it is walked by id as in a snapshot, but
 * range by range both sides say a hash, and of those that differ only the rows are sent that are newer here. Rows that are
 * newer there are fetched.
 *
 * A plain peer, one that has not shown yet what it is, and a table of which it has nothing get the snapshot. So do ranges
 * among others nearly all of which differ: to tell of the rows would cost more than to send them. The position is
 * kept as for a snapshot, and a range counts as given when the peer says that it has the same, which it says of nothing that
 * a power cut could take back.
 */
import type { Clock } from '../clock.ts';
import { type Exchange, fetchInParts } from '../compare/exchange.ts';
import { withoutForgotten } from '../compare/forgotten.ts';
import { type Hashed, hashNext } from '../compare/hashing.ts';
import { compareIds, type Id, isInLastPart, type Range } from '../compare/ids.ts';
import { LARGE_RANGE, type Outline, type Portion } from '../compare/ledger.ts';
import { Pace } from '../compare/pace.ts';
import { CannotCompare, type Remote } from '../compare/remote.ts';
import type { SqliteLedger } from '../compare/sqlite-ledger.ts';
import { floorOf, sharedColumns } from '../compare/verify.ts';
import { newerSide } from '../compare/versions.ts';
import { type Terms as Compared, suspectsWithin } from '../compare/walk.ts';
import { RowcastError } from '../errors.ts';
import type { RowRef } from '../events.ts';
import type { Connection } from '../sqlite/connection.ts';
import { fold } from '../sqlite/sql.ts';
import { yielding } from '../sqlite/yielding.ts';
import type { BatchLimit } from '../wire/body.ts';
import { madeByOthers } from '../wire/origins.ts';
import { advancePeer, type PeerPosition, type PeerState, stateOf } from './peers.ts';
import { inScope } from './resend.ts';
import type { IsPaid, Outbox, Shipment } from './shipment.ts';
import { COMPARED, inOrder, type SnapshotPosition, WALKED } from './snapshot.ts';
import type { Forbidden } from './verdict.ts';
import { isBeingSeeded } from './waiting-seed.ts';

type PeerShipment = Shipment<PeerPosition>;

export interface SeedOptions {
  peer: string;
  /** It has shown that it is Rowcast. */
  isRowcast(): boolean;
  sides(): { ledger: SqliteLedger; remote: Remote; exchange: Exchange };
  clock: Clock;
  stopped: AbortSignal;
}

/** Ranges whose hashes are asked for at once. */
const TOGETHER = 16;
/** Rows in one batch: what is looked up by id one by one takes longer than what is read in a row. */
const BATCH_ROWS = 500;
const BLIND_MAX = 256;

/** What was found out of the ranges after a position. */
interface Ahead {
  table: string;
  after: Id | null;
  /** The rows that the peer is to be sent, in their order. */
  ids: Id[];
  /** Where the ranges end. */
  upTo: Id | null;
}

/** What is known of the peer during one seed. */
interface Run {
  number: number;
  ahead: Ahead | undefined;
  /** Ranges that are given without a question, because where it was asked most of it was to be told row by row. */
  blind: { left: number; next: number };
  /** Undefined where it cannot be compared with. */
  theirs: Outline[] | undefined;
  /** Tables, folded, that are given as in a snapshot: from where the peer's ends, or all of it. */
  walked: Map<string, 'rest' | 'all'>;
}

export class SeedOutbox implements Outbox<PeerPosition> {
  readonly #db: Connection;
  readonly #inner: Required<Omit<Outbox<PeerPosition>, 'isReady'>>;
  readonly #o: SeedOptions;
  readonly #pace: Pace;
  #run: Run | undefined;
  readonly single: Outbox<PeerPosition>['single'] = (shipment, index) => this.#inner.single(shipment, index);
  readonly bare: Outbox<PeerPosition>['bare'] = (shipment) => this.#inner.bare(shipment);

  constructor(db: Connection, inner: Required<Omit<Outbox<PeerPosition>, 'isReady'>>, options: SeedOptions) {
    this.#db = db;
    this.#inner = inner;
    this.#o = options;
    this.#pace = new Pace(options.clock, 1, options.stopped);
  }

  async next(limit: BatchLimit, previous?: PeerShipment, acked?: PeerShipment): Promise<PeerShipment | undefined> {
    const now = previous ? undefined : this.#o.clock.now();
    const isSeeded = await yielding(this.#db, () => isBeingSeeded(this.#db, this.#o.peer, now));
    if (!isSeeded || !this.#o.isRowcast()) return this.#inner.next(limit, previous, acked);
    if (acked) await this.#inner.ack(acked);
    try {
      return await this.#compareOn(limit, previous);
    } catch (error) {
      if (error instanceof CannotCompare && this.#o.stopped.aborted) return undefined;
      throw error;
    }
  }

  owed(): IsPaid | Promise<IsPaid> {
    return this.#inner.owed();
  }

  ack(shipment: PeerShipment): void | Promise<void> {
    return this.#inner.ack(shipment);
  }

  setAside(shipment: PeerShipment, reason: string, attempts: number): RowRef[] | Promise<RowRef[]> {
    return this.#inner.setAside(shipment, reason, attempts);
  }

  forbid(shipment: PeerShipment, forbidden: Forbidden[]): RowRef[] | Promise<RowRef[]> {
    return this.#inner.forbid(shipment, forbidden);
  }

  async #compareOn(limit: BatchLimit, previous: PeerShipment | undefined): Promise<PeerShipment | undefined> {
    const state = stateOf(this.#db, this.#o.peer);
    const run = await this.#runOf(state);
    if (run.theirs === undefined) return this.#inner.next(limit, previous);
    const own = inOrder(inScope(await this.#pace.once(() => this.#o.sides().ledger.tables()), state.scope));
    for (let position = positionOf(state, previous); ; ) {
      const place = placeIn(own, position);
      if (!place) return this.#walkFrom(limit, previous, state, { section: WALKED, after: null });
      const { table, after } = place;
      const there = run.theirs.find(({ name }) => fold(name) === fold(table.outline.name));
      const isEnd = hasNothingAfter(there?.last ?? null, after);
      const walked = run.walked.get(fold(table.name)) ?? (isEnd ? 'rest' : undefined);
      if (walked) {
        run.walked.set(fold(table.name), walked);
        const begins = position.section === null || position.section.startsWith(COMPARED);
        // Where there is nothing any more of what was given, it is given again.
        const given = there?.last == null || walked === 'all' ? null : after;
        const from = begins ? { section: `rows:${table.name}`, after: given } : position;
        return this.#walkFrom(limit, previous, state, from);
      }
      const step = await this.#step(limit, state, run, table.outline, after);
      if (step === 'not-comparable') {
        run.walked.set(fold(table.name), 'all');
        continue;
      }
      const isOver = step.after === null;
      const index = own.indexOf(table);
      position = isOver
        ? { section: index + 1 < own.length ? COMPARED + own[index + 1]?.name : WALKED, after: null }
        : { section: COMPARED + table.name, after: step.after };
      if (step.shipment) return { ...step.shipment, end: { kind: 'snapshot', run: state.run, position } };
      // While the answer to the last batch is awaited nothing further is given, and the position stays where it is.
      if (previous) return undefined;
      await this.#persist(state.run, position);
    }
  }

  /** What the peer has, asked for once in a seed. */
  async #runOf({ run: number }: PeerState): Promise<Run> {
    if (this.#run?.number === number) return this.#run;
    let theirs: Outline[] | undefined;
    try {
      theirs = await this.#o.sides().remote.outline();
    } catch (error) {
      // Who is away at the moment is found to be so by the batch that follows, and may be asked again after that.
      if (!(error instanceof CannotCompare) || !error.isPlain) return runOf(number, undefined);
    }
    this.#run = runOf(number, theirs);
    return this.#run;
  }

  /** As in a snapshot, from a position on. */
  async #walkFrom(
    limit: BatchLimit,
    previous: PeerShipment | undefined,
    state: PeerState,
    position: SnapshotPosition,
  ): Promise<PeerShipment | undefined> {
    const end = { kind: 'snapshot' as const, run: state.run, position };
    if (previous) return this.#inner.next(limit, { ...previous, end });
    await this.#persist(state.run, position);
    return this.#inner.next(limit);
  }

  async #persist(run: number, position: SnapshotPosition): Promise<void> {
    const end = { kind: 'snapshot' as const, run, position };
    await yielding(this.#db, () => this.#db.transaction(() => advancePeer(this.#db, this.#o.peer, end)));
  }

  /** The next ranges of a table: what of them the peer is to be sent, and where to go on; null is the end of the table. */
  async #step(
    limit: BatchLimit,
    state: PeerState,
    run: Run,
    table: Outline,
    from: Id | null,
  ): Promise<Step | 'not-comparable'> {
    const sides = { ...this.#o.sides(), pace: this.#pace };
    const columns = sharedColumns(table, run.theirs as Outline[]);
    // What it has no column for it keeps aside for later, and it cannot say whether it has.
    if (!columns || Object.keys(columns).length < Object.keys(table.columns ?? {}).length) return 'not-comparable';
    const terms: Terms = { columns, floor: floorOf(table, run.theirs as Outline[]), own: table.floor };
    const last = run.theirs?.find(({ name }) => fold(name) === fold(table.name))?.last ?? null;
    try {
      const known = run.ahead?.table === table.name && run.ahead.after === from ? run.ahead : undefined;
      const ahead = known ?? (await this.#lookAhead(run, sides, table.name, terms, from, limit, last));
      const { shipment, rest } = await this.#parcel(sides.ledger, limit, state, table.name, ahead.ids);
      const after = rest.length > 0 ? (ahead.ids[ahead.ids.length - rest.length - 1] as Id) : ahead.upTo;
      run.ahead = rest.length > 0 ? { ...ahead, after, ids: rest } : undefined;
      return { ...(shipment && { shipment }), after };
    } catch (error) {
      // The schema has changed meanwhile.
      if (error instanceof RowcastError && error.code === 'INVALID_TABLE') return 'not-comparable';
      throw error;
    }
  }

  /** Compares the next ranges. Whoever cannot say what it has is given all of it. */
  async #lookAhead(
    run: Run,
    sides: Sides,
    table: string,
    terms: Terms,
    after: Id | null,
    limit: BatchLimit,
    last: Id | null,
  ): Promise<Ahead> {
    if (run.blind.left > 0) {
      run.blind.left -= 1;
      return this.#allOf(sides.ledger, table, after, limit);
    }
    try {
      const ranges = await this.#hashed(sides, table, terms, after, limit, last);
      const { ids, listed } = await this.#toSend(sides, table, terms, ranges);
      run.blind = blindAfter(run.blind, listed, ranges);
      return { table, after, ids: ids.sort(compareIds), upTo: ranges.at(-1)?.upTo ?? null };
    } catch (error) {
      if (!(error instanceof CannotCompare) || this.#o.stopped.aborted) throw error;
      return this.#allOf(sides.ledger, table, after, limit);
    }
  }

  async #allOf(ledger: SqliteLedger, table: string, after: Id | null, limit: BatchLimit): Promise<Ahead> {
    const { rows } = portionOf(limit);
    const range = { after, upTo: null };
    const { ids, end } = await this.#pace.turn(({ bytes }) => ledger.ids(table, range, { rows, bytes }));
    return { table, after, ids, upTo: end };
  }

  /** What of these ranges is newer here, and of how many rows both have told; what is newer there is fetched, and what was
   * deleted here long ago is deleted there. */
  async #toSend(sides: Sides, table: string, terms: Terms, ranges: Hashed[]): Promise<{ ids: Id[]; listed: number }> {
    const theirs = await sides.remote.hashes(table, terms.columns, ranges, terms.floor);
    const differing = ranges
      .map((range, i) => ({ range, hash: theirs[i] }))
      .filter(({ range, hash }) => hash !== range.hash);
    const isAbsent = ({ hash }: { hash: string | undefined }): boolean => hash?.startsWith('0:') === true;
    const ids: Id[] = [];
    let listed = 0;
    for (const { range } of differing.filter(isAbsent)) ids.push(...(await this.#idsIn(sides.ledger, table, range)));
    const partly = differing.filter((one) => !isAbsent(one)).map(({ range }) => range);
    const onListed = (rows: number): void => {
      listed += rows;
    };
    for await (const found of suspectsWithin(sides, table, terms, partly, onListed)) {
      ids.push(...found.filter((one) => newerSide(one) !== 'there').map(({ id }) => id));
      const newer = found.filter((one) => newerSide(one) !== 'here');
      await fetchInParts(sides, table, await withoutForgotten(sides, table, terms.columns, newer, terms.own));
    }
    return { ids, listed };
  }

  /** The next ranges, up to where the peer has anything at all. */
  async #hashed(
    { ledger, pace }: Sides,
    table: string,
    terms: Terms,
    from: Id | null,
    limit: BatchLimit,
    last: Id | null,
  ): Promise<Hashed[]> {
    const ranges: Hashed[] = [];
    for (let after = from; ranges.length < TOGETHER; ) {
      const range = await hashNext(
        ledger,
        pace,
        table,
        terms.columns,
        { after, upTo: null },
        portionOf(limit),
        terms.floor,
      );
      ranges.push(range);
      after = range.upTo;
      if (after === null || hasNothingAfter(last, after)) break;
    }
    return ranges;
  }

  async #idsIn(ledger: SqliteLedger, table: string, range: Range): Promise<Id[]> {
    const all: Id[] = [];
    for (let { after } = range; ; ) {
      const from = after;
      const { ids, end } = await this.#pace.turn((portion) =>
        ledger.ids(table, { after: from, upTo: range.upTo }, portion),
      );
      all.push(...ids);
      if (end === null) return all;
      after = end;
    }
  }

  /** As many of these rows as fit into one batch; `rest` are the ids after the last of them. */
  async #parcel(
    ledger: SqliteLedger,
    limit: BatchLimit,
    { tailFrom }: PeerState,
    table: string,
    ids: Id[],
  ): Promise<{ shipment?: Omit<PeerShipment, 'end'>; rest: Id[] }> {
    const batchId = Math.max(1, tailFrom ?? 1);
    const room = { rows: Math.min(limit.changes, BATCH_ROWS), bytes: limit.bytes };
    for (let some = ids.slice(0, room.rows); some.length > 0; ) {
      const rows = some;
      const { body, count, rest } = await this.#pace.once(() => ledger.changes(table, rows, batchId, room));
      if (rest.length > 0) {
        some = some.slice(0, Math.max(1, some.length - rest.length));
        continue;
      }
      return {
        ...(count > 0 && { shipment: { batchId, body, count, origins: madeByOthers(count) } }),
        rest: ids.slice(some.length),
      };
    }
    return { rest: [] };
  }
}

/** A table by the name that it has here, and as the peer is told of it. */
type Own = ReturnType<SqliteLedger['tables']>[number];

/** What the peer is to be sent next, and where to go on; null is the end of the table. */
interface Step {
  shipment?: Omit<PeerShipment, 'end'>;
  after: Id | null;
}

interface Terms extends Compared {
  /** Up to there this side may have collected its tombstones. */
  own: number | undefined;
}

type Sides = ReturnType<SeedOptions['sides']> & { pace: Pace };

function runOf(number: number, theirs: Outline[] | undefined): Run {
  return { number, theirs, walked: new Map(), ahead: undefined, blind: { left: 0, next: TOGETHER } };
}

/**
 * To tell of a row costs both sides about as much as to send it. Where more than half of the rows had to be told of, as many
 * ranges are given without a question as were asked for; twice as many where it is so again.
 */
function blindAfter({ next }: Run['blind'], listed: number, ranges: Hashed[]): Run['blind'] {
  const rows = ranges.reduce((sum, range) => sum + range.rows, 0);
  if (ranges.length < TOGETHER || 2 * listed <= rows) return { left: 0, next: TOGETHER };
  return { left: next, next: Math.min(2 * next, BLIND_MAX) };
}

function portionOf({ changes, bytes }: BatchLimit): Portion {
  return { rows: Math.min(changes, LARGE_RANGE.rows), bytes: Math.min(bytes, LARGE_RANGE.bytes) };
}

/** The peer's table ends before that: from there on it is given everything as in a snapshot. */
function hasNothingAfter(last: Id | null, after: Id | null): boolean {
  if (last === null) return true;
  return after !== null && isInLastPart(after) && compareIds(last, after) <= 0;
}

function positionOf({ run, snapshot }: PeerState, previous: PeerShipment | undefined): SnapshotPosition {
  const end = previous?.end;
  return end?.kind === 'snapshot' && end.run === run ? end.position : snapshot;
}

/** The table that a position is in, and the id after which it goes on; undefined at the end of all. */
function placeIn(tables: Own[], { section, after }: SnapshotPosition): { table: Own; after: Id | null } | undefined {
  if (section === WALKED) return undefined;
  const [, kind, name] = /^(\w+:)(.*)$/s.exec(section ?? '') ?? [];
  // A table that is gone says nothing of where it was: from the beginning, then.
  const table = tables.find((one) => one.name === name) ?? tables[0];
  if (!table) return undefined;
  return { table, after: kind === COMPARED && table.name === name ? (after as Id | null) : null };
}
