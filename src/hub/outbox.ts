/** What the ship loop of one edge sends: everything above its position that it did not bring itself. */

import type { DeadLetters } from '../dead-letters.ts';
import type { RowRef } from '../events.ts';
import type { Shipment } from '../send/courier.ts';
import { setAsideChanges, singleChange } from '../send/outbox.ts';
import type { Outbox } from '../send/shipper.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Edge } from './edges.ts';
import type { BatchLimit, End, FanOut } from './fan-out.ts';

/** An answer may come from a node that has meanwhile been replaced by another: it says nothing of how far that one is. */
interface EdgeEnd extends End {
  generation: number;
}

export class EdgeOutbox implements Outbox {
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
  next(limit: BatchLimit, previous?: Shipment, acked?: Shipment): Shipment | undefined {
    if (acked) this.ack(acked);
    const { asked, ownId, generation } = this.#edge;
    if (!asked) return undefined;
    const end = previous?.end as EdgeEnd | undefined;
    const from = end?.generation === generation ? end.seq : this.#skipOwn(ownId);
    const shipment = this.#fanOut.next(from, limit, ownId);
    return shipment && { ...shipment, end: { ...(shipment.end as End), generation } satisfies EdgeEnd };
  }

  ack(shipment: Shipment): void {
    this.#db.transaction(() => this.#advance(shipment));
  }

  setAside(shipment: Shipment, reason: string, attempts: number): RowRef[] {
    return this.#db.transaction(() => {
      const rows = setAsideChanges(this.#db, this.#letters, shipment, { peer: this.#edge.url, reason, attempts });
      this.#advance(shipment);
      return rows;
    });
  }

  single(shipment: Shipment, index: number): Shipment {
    return singleChange(this.#db, shipment, index);
  }

  #skipOwn(ownId: string | undefined): number {
    const { position } = this.#edge;
    const from = this.#fanOut.skip(position, ownId);
    if (from > position) this.#db.transaction(() => this.#edge.advance(from));
    return from;
  }

  #advance(shipment: Shipment): void {
    const { seq, generation } = shipment.end as EdgeEnd;
    if (generation === this.#edge.generation) this.#edge.advance(seq);
  }
}
