/**
 * A seed is a comparison first. A peer that may lack anything mostly lacks little: it is walked by id as in a snapshot, but
 * range by range both sides say a hash, and of those that differ only the rows are sent that are newer here. Rows that are
 * newer there are fetched.
 *
 * A plain peer, one that has not shown yet what it is, and a table of which it has nothing get the snapshot. The position is
 * kept as for a snapshot, and a range counts as given when the peer says that it has the same, which it says of nothing that
 * a power cut could take back.
 */
import type { Clock } from '../clock.ts';
import { withoutForgotten } from '../compare/forgotten.ts';
import { hashPiece } from '../compare/hashing.ts';
import { compareIds, type Id, isInLastPart, type Range } from '../compare/ids.ts';
import { type Columns, type Outline, PIECE, type Portion } from '../compare/ledger.ts';
import { Pace } from '../compare/pace.ts';
import { CannotCompare, type Remote } from '../compare/remote.ts';
import type { SqliteLedger } from '../compare/sqlite-ledger.ts';
import { type Exchange, fetchRows, floorOf, newerSide, sharedColumns } from '../compare/verify.ts';
import { type Suspect, suspectsOf } from '../compare/walk.ts';
import { RowcastError } from '../errors.ts';
import type { RowRef } from '../events.ts';
import type { Connection } from '../sqlite/connection.ts';
import { fold } from '../sqlite/sql.ts';
import type { BatchLimit } from '../wire/body.ts';
import { advancePeer, beginWaitingSeed, isBeingSeeded, type PeerPosition, type PeerState, stateOf } from './peers.ts';
import { inScope } from './resend.ts';
import type { Outbox, Shipment } from './shipment.ts';
import { COMPARED, inOrder, type SnapshotPosition, WALKED } from './snapshot.ts';

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

/** A range of which both sides have told their hash. */
interface Compared {
  range: Range;
  /** `absent`: nothing of it is there. */
  outcome: 'same' | 'differs' | 'absent';
}

/** What is known of the peer during one seed. */
interface Run {
  number: number;
  /** The ranges after the present position that were compared already, and their table. */
  ahead: { table: string; ranges: Compared[] };
  /** Undefined where it cannot be compared with. */
  theirs: Outline[] | undefined;
  /** Tables, folded, that are given as in a snapshot: from where the peer's ends, or all of it. */
  walked: Map<string, 'rest' | 'all'>;
}

export class SeedOutbox implements Outbox<PeerPosition> {
  readonly #db: Connection;
  readonly #inner: Outbox<PeerPosition>;
  readonly #o: SeedOptions;
  readonly #pace: Pace;
  #run: Run | undefined;

  constructor(db: Connection, inner: Outbox<PeerPosition>, options: SeedOptions) {
    this.#db = db;
    this.#inner = inner;
    this.#o = options;
    this.#pace = new Pace(options.clock, 1, options.stopped);
  }

  async next(limit: BatchLimit, previous?: PeerShipment, acked?: PeerShipment): Promise<PeerShipment | undefined> {
    if (!previous) beginWaitingSeed(this.#db, this.#o.peer, this.#o.clock.now());
    if (!isBeingSeeded(this.#db, this.#o.peer) || !this.#o.isRowcast()) {
      return this.#inner.next(limit, previous, acked);
    }
    if (acked) await this.#inner.ack(acked);
    try {
      return await this.#compareOn(limit, previous);
    } catch (error) {
      if (error instanceof CannotCompare && this.#o.stopped.aborted) return undefined;
      throw error;
    }
  }

  ack(shipment: PeerShipment): void | Promise<void> {
    return this.#inner.ack(shipment);
  }

  setAside(shipment: PeerShipment, reason: string, attempts: number): RowRef[] | Promise<RowRef[]> {
    return this.#inner.setAside(shipment, reason, attempts);
  }

  single(shipment: PeerShipment, index: number): ReturnType<Outbox<PeerPosition>['single']> {
    return this.#inner.single(shipment, index);
  }

  async #compareOn(limit: BatchLimit, previous: PeerShipment | undefined): Promise<PeerShipment | undefined> {
    const state = stateOf(this.#db, this.#o.peer);
    const run = await this.#runOf(state);
    if (run.theirs === undefined) return this.#inner.next(limit, previous);
    const own = inOrder(inScope(await this.#pace.turn(() => this.#o.sides().ledger.tables()), state.scope));
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
      this.#persist(state.run, position);
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
    this.#persist(state.run, position);
    return this.#inner.next(limit);
  }

  #persist(run: number, position: SnapshotPosition): void {
    this.#db.transaction(() => advancePeer(this.#db, this.#o.peer, { kind: 'snapshot', run, position }));
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
    const { ledger } = sides;
    const columns = sharedColumns(table, run.theirs as Outline[]);
    // What it has no column for it keeps aside for later, and it cannot say whether it has.
    if (!columns || Object.keys(columns).length < Object.keys(table.columns ?? {}).length) return 'not-comparable';
    const terms: Terms = { columns, floor: floorOf(table, run.theirs as Outline[]), own: table.floor };
    const ids: Id[] = [];
    let upTo = from;
    try {
      const { ahead } = run;
      if (ahead.table !== table.name || ahead.ranges[0]?.range.after !== from) {
        const last = run.theirs?.find(({ name }) => fold(name) === fold(table.name))?.last ?? null;
        run.ahead = { table: table.name, ranges: await this.#compared(sides, table.name, terms, from, limit, last) };
      }
      // As many as make one batch; what is known of the others is kept for the next.
      for (let next = run.ahead.ranges[0]; next && ids.length < limit.changes; next = run.ahead.ranges[0]) {
        ids.push(...(await this.#toSend(sides, table.name, terms, next)));
        upTo = next.range.upTo;
        run.ahead.ranges.shift();
      }
    } catch (error) {
      if (isAboutTheTable(error)) return 'not-comparable';
      if (!(error instanceof CannotCompare) || this.#o.stopped.aborted) throw error;
      // Whoever cannot say what it has is given all of it.
      const begin = upTo;
      upTo = await this.#pace.turn(() => ledger.cut(table.name, { after: begin, upTo: null }, portionOf(limit)));
      const range = { after: begin, upTo };
      try {
        ids.push(...(await this.#pace.turn(() => ledger.ids(table.name, range))));
      } catch (odd) {
        if (isAboutTheTable(odd)) return 'not-comparable';
        throw odd;
      }
    }
    const parcel = await this.#parcel(ledger, limit, state, table.name, ids.sort(compareIds), upTo);
    // What did not fit is looked at once more.
    if (parcel.after !== upTo) run.ahead.ranges = [];
    return parcel;
  }

  /** The next ranges, up to where the peer has anything at all. */
  async #compared(
    { ledger, remote, pace }: Sides,
    table: string,
    { columns, floor }: Terms,
    from: Id | null,
    limit: BatchLimit,
    last: Id | null,
  ): Promise<Compared[]> {
    const ranges: Range[] = [];
    const hashes: string[] = [];
    for (let after = from; ranges.length < TOGETHER; ) {
      const begin = after;
      const upTo = await pace.turn(() => ledger.cut(table, { after: begin, upTo: null }, portionOf(limit)));
      const range = { after: begin, upTo };
      ranges.push(range);
      hashes.push(await pace.turn(() => hashPiece(ledger, table, columns, range, floor)));
      if (upTo === null || hasNothingAfter(last, upTo)) break;
      after = upTo;
    }
    const theirs = await remote.hashes(table, columns, ranges, floor);
    return ranges.map((range, i) => ({
      range,
      outcome: theirs[i] === hashes[i] ? 'same' : theirs[i]?.startsWith('0:') ? 'absent' : 'differs',
    }));
  }

  /** What of a range is newer here; what is newer there is fetched, and what was deleted here long ago is deleted there. */
  async #toSend(sides: Sides, table: string, terms: Terms, { range, outcome }: Compared): Promise<Id[]> {
    const { columns, floor, own } = terms;
    if (outcome === 'same') return [];
    if (outcome === 'absent') return await this.#pace.turn(() => sides.ledger.ids(table, range));
    const ids: Id[] = [];
    for await (const found of suspectsOf(sides, table, columns, floor, [range])) {
      ids.push(...found.filter((one) => newerSide(one) !== 'there').map(({ id }) => id));
      const newer = found.filter((one) => newerSide(one) !== 'here');
      await fetchInParts(sides, table, await withoutForgotten(sides, table, columns, newer, own));
    }
    return ids;
  }

  /** As many of these rows as fit into one batch. Where some do not, it goes on after the last that did. */
  async #parcel(
    ledger: SqliteLedger,
    limit: BatchLimit,
    { tailFrom }: PeerState,
    table: string,
    ids: Id[],
    upTo: Id | null,
  ): Promise<Step> {
    const batchId = Math.max(1, tailFrom ?? 1);
    const room = { rows: limit.changes, bytes: limit.bytes };
    for (let some = ids.slice(0, limit.changes); some.length > 0; ) {
      const rows = some;
      const { body, count, rest } = await this.#pace.turn(() => ledger.changes(table, rows, batchId, room));
      if (rest.length > 0) {
        some = some.slice(0, Math.max(1, some.length - rest.length));
        continue;
      }
      const after = some.length < ids.length ? (some.at(-1) as Id) : upTo;
      return count === 0 ? { after } : { shipment: { batchId, body, count }, after };
    }
    return { after: upTo };
  }
}

/** A table by the name that it has here, and as the peer is told of it. */
type Own = ReturnType<SqliteLedger['tables']>[number];

/** What the peer is to be sent next, and where to go on; null is the end of the table. */
interface Step {
  shipment?: Omit<PeerShipment, 'end'>;
  after: Id | null;
}

/** What is compared of a table. */
interface Terms {
  columns: Columns;
  /** Up to there one of the sides may have collected its tombstones; and this one. */
  floor: number | undefined;
  own: number | undefined;
}

type Sides = ReturnType<SeedOptions['sides']> & { pace: Pace };

function runOf(number: number, theirs: Outline[] | undefined): Run {
  return { number, theirs, walked: new Map(), ahead: { table: '', ranges: [] } };
}

/** Of ids that are no UTF-8 only a snapshot can send the rows. */
function isAboutTheTable(error: unknown): boolean {
  return error instanceof RowcastError && error.code === 'INVALID_TABLE';
}

function portionOf({ changes, bytes }: BatchLimit): Portion {
  return { rows: Math.min(changes, PIECE.rows), bytes: Math.min(bytes, PIECE.bytes) };
}

/** The peer's table ends before that: from there on it is given everything as in a snapshot. */
function hasNothingAfter(last: Id | null, after: Id | null): boolean {
  if (last === null) return true;
  return after !== null && isInLastPart(after) && compareIds(last, after) <= 0;
}

/** Ids in one question. */
const FETCHED_TOGETHER = 500;

async function fetchInParts(sides: Parameters<typeof fetchRows>[0], table: string, suspects: Suspect[]): Promise<void> {
  for (let i = 0; i < suspects.length; i += FETCHED_TOGETHER) {
    await fetchRows(sides, table, suspects.slice(i, i + FETCHED_TOGETHER));
  }
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
