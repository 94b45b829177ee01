/** What the ship loop of one edge sends: everything above its position that it did not bring itself. */

import type { DeadLetters } from '../dead-letters.ts';
import type { RowRef } from '../events.ts';
import { setAsideChanges, singleChange } from '../send/set-aside.ts';
import type { Outbox, Shipment } from '../send/shipment.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { BatchLimit } from '../wire/body.ts';
import type { Edge } from './edges.ts';
import type { FanOut, RowPosition } from './fan-out.ts';

/**
 * An answer may come from a node that has meanwhile been replaced by another: it says nothing of how far that one is.
 */
interface EdgePosition extends RowPosition {
  generation: number;
}

type EdgeShipment = Shipment<EdgePosition>;

export class EdgeOutbox implements Outbox<EdgePosition> {
  readonly #db: Connection;
  readonly #letters: DeadLetters;
  readonly #fanOut: FanOut;
  readonly #edge: Edge;

  constructor(db: Connection, letters: DeadLetters, fanOut: FanOut, edge: Edge) {
    this.#db = db;
    this.#letters = letters;
    this.#fanOut = fanOut;
    this.#edge = edge;
  }

  /** Everything here was flushed to disk before it was acknowledged to its sender; there is nothing left to flush. */
  next(limit: BatchLimit, previous?: EdgeShipment, acked?: EdgeShipment): EdgeShipment | undefined {
    if (acked) this.ack(acked);
    const { asked, ownId, generation } = this.#edge;
    if (!asked) return undefined;
    const from = previous?.end.generation === generation ? previous.end.seq : this.#skipOwn(ownId);
    const shipment = this.#fanOut.next(from, limit, ownId);
    return shipment && { ...shipment, end: { ...shipment.end, generation } };
  }

  ack(shipment: EdgeShipment): void {
    this.#db.transaction(() => this.#advance(shipment));
  }

  setAside(shipment: EdgeShipment, reason: string, attempts: number): RowRef[] {
    return this.#db.transaction(() => {
      const rows = setAsideChanges(this.#db, this.#letters, shipment, { peer: this.#edge.url, reason, attempts });
      this.#advance(shipment);
      return rows;
    });
  }

  single(shipment: EdgeShipment, index: number): EdgeShipment {
    return singleChange(this.#db, shipment, index);
  }

  #skipOwn(ownId: string | undefined): number {
    const { position } = this.#edge;
    const from = this.#fanOut.skip(position, ownId);
    if (from > position) this.#db.transaction(() => this.#edge.advance(from));
    return from;
  }

  #advance({ end: { seq, generation } }: EdgeShipment): void {
    if (generation === this.#edge.generation) this.#edge.advance(seq);
  }
}
