/**
 * What the ship loop works with, and what it asks of whoever brings the changes: the library for a node, the hub for an
 * edge.
 */
import type { RowRef } from '../events.ts';
import type { BatchLimit, Body } from '../wire/body.ts';
import type { OriginRun } from '../wire/origins.ts';
import type { Forbidden } from './verdict.ts';

/**
 * Changes on their way to one peer, serialised once. `P` is a position in the outbox, into which the loop does not
 * look.
 */
export interface Shipment<P> {
  batchId: number;
  body: Body;
  count: number;
  /** Where the outbox continues after it. */
  end: P;
  /**
   * Tables that the peer is asked to send in its turn: the value of a header, and the change that it must have before, which tells
   * one such question from the next.
   */
  asks?: { header: string; after: number | null };
  /** Who has made the changes; undefined where this node has. Not told to a plain peer. */
  origins?: OriginRun[] | undefined;
  /** Once it is acknowledged: how the one who did introduces itself. */
  said?: string;
  /**
   * Set by the outbox when it has noted the acknowledgement: false where that is worth nothing, because another database
   * has given it, or because the peer is being given everything anew since it was sent.
   */
  counts?: boolean;
}

type Eventually<T> = T | Promise<T>;

/** What the ship loop says of its own side with each request, and what it does with what the peer says of itself. */
export interface Company {
  /** The value of the header. */
  introduction(): Eventually<string>;
  /** The peer, or another one, has introduced itself: it may be asked how it is, even if it was not heard of yet. */
  readonly isKnown: boolean;
  /** Whoever acknowledged last at this URL has introduced himself, now or before the latest start. */
  readonly isIntroduced: boolean;
  /** Why an acknowledgement by this one is worth nothing; undefined where it is. */
  objection(said: string): Eventually<string | undefined>;
  /** The peer has introduced itself, and acknowledges nothing. */
  heard(said: string): Eventually<void>;
}

export type IsPaid = () => Eventually<boolean>;

/** Where the changes for one peer come from. Each of these may take its time. */
export interface Outbox<P> {
  /**
   * False while it is not known yet what the peer is to be sent: nothing is, and nobody is told that it has everything.
   * The loop is nudged when that has changed.
   */
  readonly isReady?: boolean;
  /**
   * The next changes for the peer: after `previous`, or after what has been acknowledged. What it returns is on disk
   * here already, so that a power cut cannot take back a write that a peer has. `acked` is noted on the way, whether or
   * not there is more.
   */
  next(limit: BatchLimit, previous?: Shipment<P>, acked?: Shipment<P>): Eventually<Shipment<P> | undefined>;
  /** The peer has it. */
  ack(shipment: Shipment<P>): Eventually<void>;
  /** The peer will not have it: make dead letters of its changes, and go on after it. */
  setAside(shipment: Shipment<P>, reason: string, attempts: number): Eventually<RowRef[]>;
  /**
   * The peer has acknowledged it, without these of its changes, which it has neither applied nor kept: make dead letters of
   * them before the acknowledgement is noted. Returns those that were made.
   */
  forbid(shipment: Shipment<P>, forbidden: Forbidden[]): Eventually<RowRef[]>;
  /** The same shipment reduced to its change number `index`; undefined where it cannot be taken apart. */
  single(shipment: Shipment<P>, index: number): Eventually<Shipment<P> | undefined>;
  /** A single deletion without the row that it has deleted; undefined where it is none, or has no such row. */
  bare(shipment: Shipment<P>): Eventually<Shipment<P> | undefined>;
  /**
   * What there is to send at this moment, as a question that can be asked later: has the peer got all of that? Absent where
   * only an outbox that is empty can tell.
   */
  owed?(): Eventually<IsPaid>;
}

/** The shipment, with the word of the one that has it. */
export function acknowledged<P>(shipment: Shipment<P>, { said }: { said?: string }): Shipment<P> {
  return said === undefined ? shipment : { ...shipment, said };
}
