/** What the ship loop of one edge sends: everything above its position that it did not bring itself. */
import type { RowRef } from '../events.ts';
import type { IsPaid, Outbox } from '../send/shipment.ts';
import type { Forbidden } from '../send/verdict.ts';
import { type BatchLimit, plainBody } from '../wire/body.ts';
import type { Edge } from './edges.ts';
import type { FanOut } from './fan-out.ts';
import type { EdgeEnd, EdgeShipment, HubStore } from './store.ts';

export class EdgeOutbox implements Outbox<EdgeEnd> {
  readonly #store: HubStore;
  readonly #fanOut: FanOut;
  readonly #edge: Edge;
  readonly #doubt: () => void;

  /** `doubt` has the edge asked who it is. */
  constructor(store: HubStore, fanOut: FanOut, edge: Edge, doubt: () => void) {
    this.#store = store;
    this.#fanOut = fanOut;
    this.#edge = edge;
    this.#doubt = doubt;
  }

  get isReady(): boolean {
    return this.#edge.asked;
  }

  /** Everything here was flushed to disk before it was acknowledged to its sender; there is nothing left to flush. */
  async next(limit: BatchLimit, previous?: EdgeShipment, acked?: EdgeShipment): Promise<EdgeShipment | undefined> {
    if (acked) await this.ack(acked);
    const { ownOrigin, generation } = this.#edge;
    const end = previous?.end;
    const from = end?.generation === generation ? end.seq : await this.#skipOwn(ownOrigin, generation);
    const portion = await this.#fanOut.next(from, limit, ownOrigin);
    if (!portion) return undefined;
    const { count, origins } = portion;
    // Until it has said that it is Rowcast, an edge may be anybody who goes by the contract.
    const body = this.#edge.inc === undefined ? plainBody(portion.body) : portion.body;
    return { batchId: portion.end, body, count, origins, end: { seq: portion.end, generation } };
  }

  async ack(shipment: EdgeShipment): Promise<void> {
    const { said, end } = shipment;
    // One that used to introduce itself has answered without: it may be another by now.
    if (said === undefined && this.#edge.inc !== undefined) this.#doubt();
    shipment.counts = await this.#edge.acknowledged(end, said);
  }

  /** The letters first: what the position has passed would not be found again. */
  async setAside(shipment: EdgeShipment, reason: string, attempts: number): Promise<RowRef[]> {
    const rows = await this.#store.letters.setAside(shipment, { peer: this.#edge.url, reason, attempts });
    await this.#edge.advance(shipment.end);
    return rows;
  }

  forbid(shipment: EdgeShipment, forbidden: Forbidden[]): Promise<RowRef[]> {
    return this.#store.letters.forbid(shipment, { peer: this.#edge.url, forbidden });
  }

  single(shipment: EdgeShipment, index: number): Promise<EdgeShipment> {
    return this.#store.single(shipment, index);
  }

  /** Those of its own among them are passed over with what comes after them. */
  async owed(): Promise<IsPaid> {
    const upTo = await this.#store.latest();
    return () => this.#edge.position >= upTo;
  }

  /** A hub keeps and sends nothing else of a deletion. */
  bare(): undefined {
    return undefined;
  }

  async #skipOwn(ownOrigin: string | undefined, generation: number): Promise<number> {
    const { position } = this.#edge;
    if (ownOrigin === undefined) return position;
    const seq = await this.#fanOut.skip(position, ownOrigin);
    await this.#edge.advance({ seq, generation });
    return seq;
  }
}
