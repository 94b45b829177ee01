/**
 * What a node or a hub holds, as a comparison sees it: for every id of a table a live row, be it hidden by a UNIQUE value,
 * or a tombstone. A node's is compare/sqlite-ledger.ts, a hub's hub/sqlite-ledger.ts; a peer's is asked for by remote.ts.
 */
import type { Affinity } from '../sqlite/schema.ts';
import type { Body } from '../wire/body.ts';
import type { Id, Range } from './ids.ts';

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

export interface Sight {
  entries: Entry[];
  /** Of the ids: those whose changes are here and not yet with the other side. */
  undelivered: Id[];
  /** Of the ids: those for which a change was received that cannot be applied here; a dead letter keeps it. */
  parked: Id[];
  /** As in the outline, at this moment. */
  floor?: number | undefined;
}

/** How much one piece of a walk holds. */
export interface Portion {
  rows: number;
  bytes: number;
}

/** The canonical texts of a range, to be hashed in this order. */
export interface Spelt {
  rows: number;
  texts: Uint8Array[];
}

/** Rows as the body of a batch, and the ids of those that did not fit into it. */
export interface Parcel {
  body: Body;
  count: number;
  rest: Id[];
}

export interface Ledger {
  outline(): Eventually<Outline[]>;
  /** Where a piece of the range ends that is no larger than a portion; null where all of it is one. */
  cut(table: string, range: Range, portion: Portion): Eventually<Id | null>;
  /** Tombstones up to `floor` are left out: one of the sides may have collected its own. */
  spell(table: string, columns: Columns, range: Range, floor?: number): Eventually<Spelt>;
  /** What is in a range, in the order of the ids. */
  list(table: string, columns: Columns, range: Range): Eventually<Entry[]>;
  /** What is known of these ids. `other` is the node, or the peer's address, that asks or is asked. */
  look(table: string, columns: Columns, ids: Id[], other: string | undefined): Eventually<Sight>;
  /** The first of these rows that fit into one batch, as its body; what is returned is on disk. */
  changes(table: string, ids: Id[], batchId: number, portion: Portion): Eventually<Parcel>;
  /** Resolves when everything that was read so far would survive a power cut. */
  flushed(): Eventually<void>;
}

/** One range a turn: about a millisecond for rows of ordinary size. */
export const PIECE: Portion = { rows: 1_000, bytes: 256 * 1024 };

/** Versions of single rows cost more each, because every line is hashed by itself. */
export const LIST_PIECE: Portion = { rows: 250, bytes: 256 * 1024 };

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
