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
import { hashPiece } from '../compare/hashing.ts';
import { compareIds, type Id, type Range } from '../compare/ids.ts';
import { type Columns, type Ledger, type Outline, PIECE, type Portion } from '../compare/ledger.ts';
import { Pace } from '../compare/pace.ts';
import { CannotCompare, type Remote } from '../compare/remote.ts';
import { type Exchange, fetchRows, newerSide, sharedColumns } from '../compare/verify.ts';
import { type Suspect, suspectsOf } from '../compare/walk.ts';
import type { RowRef } from '../events.ts';
import type { Connection } from '../sqlite/connection.ts';
import { fold } from '../sqlite/sql.ts';
import type { BatchLimit } from '../wire/body.ts';
import { advancePeer, type PeerPosition, type PeerState, stateOf } from './peers.ts';
import { inScope } from './resend.ts';
import type { Outbox, Shipment } from './shipment.ts';
import { COMPARED, inOrder, type SnapshotPosition, WALKED } from './snapshot.ts';

type PeerShipment = Shipment<PeerPosition>;

export interface SeedOptions {
  peer: string;
  /** It has shown that it is Rowcast. */
  isRowcast(): boolean;
  sides(): { ledger: Ledger; remote: Remote; exchange: Exchange };
  clock: Clock;
  stopped: AbortSignal;
}

/** Ranges whose hashes are asked for at once. */
const TOGETHER = 16;

/** What is known of the peer during one seed. */
interface Run {
  number: number;
  /** Undefined where it cannot be compared with. */
  theirs: Outline[] | undefined;
  /** Tables, folded, of which it has nothing: they are given as in a snapshot. */
  walked: Set<string>;
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
    if (stateOf(this.#db, this.#o.peer).tailFrom === null || !this.#o.isRowcast()) {
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

  single(shipment: PeerShipment, index: number): PeerShipment | Promise<PeerShipment> {
    return this.#inner.single(shipment, index);
  }

  async #compareOn(limit: BatchLimit, previous: PeerShipment | undefined): Promise<PeerShipment | undefined> {
    const state = stateOf(this.#db, this.#o.peer);
    const run = await this.#runOf(state);
    if (run.theirs === undefined) return this.#inner.next(limit, previous);
    const own = inOrder(inScope(await this.#pace.turn(() => this.#o.sides().ledger.outline()), state.scope));
    for (let position = positionOf(state, previous); ; ) {
      const place = placeIn(own, position);
      if (!place) return this.#walkFrom(limit, previous, state, { section: WALKED, after: null });
      const { table, after } = place;
      const there = run.theirs.find(({ name }) => fold(name) === fold(table.name));
      if (after === null && (there?.last ?? null) === null) run.walked.add(fold(table.name));
      if (run.walked.has(fold(table.name))) {
        const begun = position.section === null || position.section.startsWith(COMPARED);
        const from = begun ? { section: `rows:${table.name}`, after: null } : position;
        return this.#walkFrom(limit, previous, state, from);
      }
      const step = await this.#step(limit, state, run, table, after);
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
      if (!(error instanceof CannotCompare) || !error.isPlain) return { number, theirs: undefined, walked: new Set() };
    }
    this.#run = { number, theirs, walked: new Set() };
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
  ): Promise<{ shipment?: Omit<PeerShipment, 'end'>; after: Id | null }> {
    const { ledger, remote, exchange } = this.#o.sides();
    const sides = { ledger, remote, exchange, pace: this.#pace };
    const portion = { rows: Math.min(limit.changes, PIECE.rows), bytes: Math.min(limit.bytes, PIECE.bytes) };
    const columns = sharedColumns(table, run.theirs as Outline[]);
    const { ranges, hashes, end } = await this.#ranges(sides, table.name, columns ?? null, from, portion);
    const ids: Id[] = [];
    let upTo = end;
    try {
      if (columns === undefined) throw new CannotCompare('the peer does not have the table');
      const theirs = await remote.hashes(table.name, columns, ranges);
      const odd = ranges.filter((_, i) => hashes[i] !== theirs[i]);
      for await (const found of suspectsOf(sides, table.name, columns, odd)) {
        ids.push(...found.filter((one) => newerSide(one) !== 'there').map(({ id }) => id));
        await fetchInParts(
          sides,
          table.name,
          found.filter((one) => newerSide(one) !== 'here'),
        );
      }
    } catch (error) {
      if (!(error instanceof CannotCompare) || this.#o.stopped.aborted) throw error;
      // Whoever cannot say what it has is given all of it.
      const [range] = ranges as [Range];
      upTo = range.upTo;
      const all = await this.#pace.turn(() => ledger.list(table.name, columns ?? null, range));
      ids.splice(0, ids.length, ...all.map(({ id }) => id));
    }
    return await this.#parcel(ledger, limit, state, table.name, ids.sort(compareIds), upTo);
  }

  async #ranges(
    { ledger, pace }: { ledger: Ledger; pace: Pace },
    table: string,
    columns: Columns,
    from: Id | null,
    portion: Portion,
  ): Promise<{ ranges: Range[]; hashes: string[]; end: Id | null }> {
    const ranges: Range[] = [];
    const hashes: string[] = [];
    let after = from;
    while (ranges.length < TOGETHER) {
      const begin = after;
      const upTo = await pace.turn(() => ledger.cut(table, { after: begin, upTo: null }, portion));
      const range = { after: begin, upTo };
      ranges.push(range);
      hashes.push(await pace.turn(() => hashPiece(ledger, table, columns, range)));
      after = upTo;
      if (upTo === null) break;
    }
    return { ranges, hashes, end: after };
  }

  /** As many of these rows as fit into one batch. Where some do not, it goes on after the last that did. */
  async #parcel(
    ledger: Ledger,
    limit: BatchLimit,
    { tailFrom }: PeerState,
    table: string,
    ids: Id[],
    upTo: Id | null,
  ): Promise<{ shipment?: Omit<PeerShipment, 'end'>; after: Id | null }> {
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
function placeIn(
  tables: Outline[],
  { section, after }: SnapshotPosition,
): { table: Outline; after: Id | null } | undefined {
  if (section === WALKED) return undefined;
  const [, kind, name] = /^(\w+:)(.*)$/s.exec(section ?? '') ?? [];
  // A table that is gone says nothing of where it was: from the beginning, then.
  const table = tables.find((one) => one.name === name) ?? tables[0];
  if (!table) return undefined;
  return { table, after: kind === COMPARED && table.name === name ? (after as Id | null) : null };
}
