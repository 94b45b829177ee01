/**
 * What the ship loop works with, and what it asks of whoever brings the changes: the library for a node, the hub for an
 * edge.
 */
import type { RowRef } from '../events.ts';
import type { BatchLimit, Body } from '../wire/body.ts';

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
  /** Tables that the peer is asked to send in its turn; the value of a header. */
  asks?: string;
}

type Eventually<T> = T | Promise<T>;

/** Where the changes for one peer come from. Each of these may take its time. */
export interface Outbox<P> {
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
  /** The same shipment reduced to its change number `index`; undefined where it cannot be taken apart. */
  single(shipment: Shipment<P>, index: number): Eventually<Shipment<P> | undefined>;
}
