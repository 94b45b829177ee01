/**
 * What a node or a hub holds, as a comparison sees it: for every id of a table a live row, be it hidden by a UNIQUE value,
 * or a tombstone. A node's is compare/sqlite-ledger.ts, a hub's hub/sqlite-ledger.ts; a peer's is asked for by remote.ts.
 */
import type { Affinity } from '../sqlite/schema.ts';
import type { Body } from '../wire/body.ts';
import { compareIds, type Id, type Range } from './ids.ts';

export type Eventually<T> = T | Promise<T>;

/**
 * The columns that are compared, with the affinity under which: those that both sides have, as the one of them that has a
 * schema has them. Null where neither has one: then all that a row has, NULLs aside.
 */
export type Columns = Record<string, Affinity> | null;

/** A table as the other side is told of it. */
export interface Outline {
  name: string;
  /** Null where there is no schema: whatever is asked for is looked for in the rows. */
  columns: Columns;
  /** The greatest id; null where nothing is there. */
  last: Id | null;
  /** Tombstones up to this version may have been collected; absent where all are kept. */
  floor?: number;
}

/** The state of one id. */
export interface Entry {
  id: Id;
  version: number;
  deleted: boolean;
  /** Of the content; empty for a deletion. */
  hash: string;
}

/** What is known of single ids. */
export interface Sight {
  entries: Entry[];
  /** Of the ids: those whose changes are here and not yet with the other side. */
  undelivered: Id[];
  /** Of the ids: those for which a change was received that cannot be applied here; a dead letter keeps it. */
  parked: Id[];
  /** Changes of the ids that are kept here until their time has come; see letters/time-limit.ts. */
  early: Early[];
  /** Of the ids: those that did not fit into the portion, of which nothing is said. */
  rest: Id[];
  /** As in the outline, at this moment. */
  floor?: number | undefined;
  /** Absent of a hub, which passes on whatever it is given. */
  nodes?: Nodes | undefined;
}

/** Who has written what may be on one side. */
export interface Nodes {
  self: string;
  /** All that were ever heard there; itself as well where it sends nothing to the other side, which then need not have it. */
  heard: string[];
  /** Of these, the ones without whose word nothing is forgotten: what they wrote before has been delivered. */
  awaited: string[];
}

/**
 * The other side. What was delivered was delivered to a database, and not to whoever has its name: one that was put back to a
 * backup has lost what it got since, and what it had set aside of that.
 */
export interface Counterpart {
  /** The peer's address; of one that asks, its node id. */
  name: string;
  /** How one that asks introduces itself. */
  said?: string | undefined;
}

/** A change that is too far ahead of the clock where it is kept. */
export interface Early {
  id: Id;
  version: number;
}

/** How much is read at once. At least one row is, however large it may be. */
export interface Portion {
  rows: number;
  bytes: number;
}

/** A piece of a range. `end` is the id that it goes up to; null where it goes to the end of the range. */
export interface Piece {
  end: Id | null;
}

/** The canonical lines of a piece, to be hashed in this order. */
export interface Spelt extends Piece {
  rows: number;
  texts: Uint8Array[];
}

export interface Listed extends Piece {
  entries: Entry[];
}

/** Rows as the body of a batch, and the ids of those that did not fit into it. */
export interface Parcel {
  body: Body;
  count: number;
  rest: Id[];
}

export interface Ledger {
  outline(): Eventually<Outline[]>;
  /**
   * Pieces of these ranges, in their order and without a gap, as what is hashed: each no larger than `each`, as many as are
   * together no more than a portion, and at least one. Tombstones up to `floor` are left out: one of the sides may have
   * collected its own.
   */
  spell(
    table: string,
    columns: Columns,
    ranges: Range[],
    each: Portion,
    portion: Portion,
    floor?: number,
  ): Eventually<Spelt[]>;
  /** The same as what there is, in the order of the ids. */
  list(table: string, columns: Columns, ranges: Range[], portion: Portion): Eventually<Listed[]>;
  /** What is known of the first of these ids. `other` asks, or is asked. */
  look(table: string, columns: Columns, ids: Id[], other: Counterpart | undefined, portion: Portion): Eventually<Sight>;
  /** The first of these rows that fit into one batch, as its body; what is returned is on disk. */
  changes(table: string, ids: Id[], batchId: number, portion: Portion): Eventually<Parcel>;
  /** Resolves when everything that was read so far would survive a power cut. */
  flushed(): Eventually<void>;
}

/** What both sides tell the hash of first. */
export const LARGE_RANGE: Portion = { rows: 1_000, bytes: 256 * 1024 };

/** Of a large one that differs: small enough to tell of every row in it. */
export const SMALL_RANGE: Portion = { rows: 32, bytes: 256 * 1024 };

/**
 * Rows with more bytes of text and blobs than these are measured before they are read. Of all others a portion of 1,024 is
 * a megabyte at the most, and needs no measuring.
 */
export const ORDINARY_ROW_BYTES = 1024;

export function smaller(a: Portion, b: Portion): Portion {
  return { rows: Math.min(a.rows, b.rows), bytes: Math.min(a.bytes, b.bytes) };
}

/** The first of these rows that make a batch; one goes in any case, however large it is. */
export function firstThatFit(rows: { id: Id; bytes: number }[], portion: Portion): { fitting: Id[]; rest: Id[] } {
  let bytes = 0;
  let count = 0;
  for (const row of rows) {
    bytes += row.bytes;
    if (count > 0 && (count >= portion.rows || bytes > portion.bytes)) break;
    count += 1;
  }
  const ids = rows.map(({ id }) => id);
  return { fitting: ids.slice(0, count), rest: ids.slice(count) };
}

/**
 * The same of ids of which there may be anything or nothing, looked at so many at a time: to measure all of them for the
 * first would take longer than the batch. `measure` says what there is of some.
 */
export function fittingAmong(
  ids: Id[],
  portion: Portion,
  measure: (some: Id[]) => { id: Id; bytes: number }[],
): { fitting: Id[]; rest: Id[] } {
  for (let left = [...ids].sort(compareIds); left.length > 0; left = left.slice(portion.rows)) {
    const { fitting, rest } = firstThatFit(measure(left.slice(0, portion.rows)), portion);
    if (fitting.length > 0) return { fitting, rest: [...rest, ...left.slice(portion.rows)] };
  }
  return { fitting: [], rest: [] };
}

/** How many of the first of `sizes`, which has `k` and `bytes`, come to no more than the bytes that are bound last. */
export function fittingSql(sizes: string): string {
  const sums = `SELECT sum(bytes) OVER (ORDER BY k ROWS UNBOUNDED PRECEDING) AS total FROM (${sizes})`;
  return `SELECT count(*) AS n FROM (${sums}) WHERE total <= ?`;
}

/** The bytes of a portion as SQLite takes them: a portion may be without a limit. */
export function atMost({ bytes }: Portion): number {
  return Math.min(bytes, Number.MAX_SAFE_INTEGER);
}
