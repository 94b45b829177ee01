/** What the ship loop of one edge sends: everything above its position that it did not bring itself. */
import type { RowRef } from '../events.ts';
import type { Outbox } from '../send/shipment.ts';
import type { BatchLimit } from '../wire/body.ts';
import type { Edge } from './edges.ts';
import type { FanOut } from './fan-out.ts';
import type { EdgeEnd, EdgeShipment, HubStore } from './store.ts';

export class EdgeOutbox implements Outbox<EdgeEnd> {
  readonly #store: HubStore;
  readonly #fanOut: FanOut;
  readonly #edge: Edge;

  constructor(store: HubStore, fanOut: FanOut, edge: Edge) {
    this.#store = store;
    this.#fanOut = fanOut;
    this.#edge = edge;
  }

  /** Everything here was flushed to disk before it was acknowledged to its sender; there is nothing left to flush. */
  async next(limit: BatchLimit, previous?: EdgeShipment, acked?: EdgeShipment): Promise<EdgeShipment | undefined> {
    if (acked) await this.ack(acked);
    const { asked, ownOrigin, generation } = this.#edge;
    if (!asked) return undefined;
    const end = previous?.end;
    const from = end?.generation === generation ? end.seq : await this.#skipOwn(ownOrigin, generation);
    const portion = await this.#fanOut.next(from, limit, ownOrigin);
    if (!portion) return undefined;
    const { body, count } = portion;
    return { batchId: portion.end, body, count, end: { seq: portion.end, generation } };
  }

  async ack(shipment: EdgeShipment): Promise<void> {
    const { said, end } = shipment;
    const counts = said === undefined || (await this.#edge.answered(said, end.generation));
    shipment.counts = counts && end.generation === this.#edge.generation;
    if (shipment.counts) await this.#edge.advance(end);
  }

  /** The letters first: what the position has passed would not be found again. */
  async setAside(shipment: EdgeShipment, reason: string, attempts: number): Promise<RowRef[]> {
    const rows = await this.#store.letters.setAside(shipment, { peer: this.#edge.url, reason, attempts });
    await this.#edge.advance(shipment.end);
    return rows;
  }

  single(shipment: EdgeShipment, index: number): Promise<EdgeShipment> {
    return this.#store.single(shipment, index);
  }

  async #skipOwn(ownOrigin: string | undefined, generation: number): Promise<number> {
    const { position } = this.#edge;
    if (ownOrigin === undefined) return position;
    const seq = await this.#fanOut.skip(position, ownOrigin);
    await this.#edge.advance({ seq, generation });
    return seq;
  }
}
