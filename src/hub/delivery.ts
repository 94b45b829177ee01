/** The library's own ship loop for an edge, with what the loops of thousands of edges share. */
import type { Clock } from '../clock.ts';
import type { Emitter } from '../events.ts';
import type { Faults } from '../observe/faults.ts';
import { sharedBatchSizes } from '../send/batch-size.ts';
import type { Bond } from '../send/bond.ts';
import { Places } from '../send/places.ts';
import type { Company } from '../send/shipment.ts';
import { type Pace, Shipper, type Told } from '../send/shipper.ts';
import type { Transport } from '../send/transport.ts';
import type { Edge } from './edges.ts';
import { FanOut } from './fan-out.ts';
import { EdgeOutbox } from './outbox.ts';
import type { HubStore } from './store.ts';

/** Requests with batches that are under way at once. */
const PLACES = 256;

/**
 * A request to an edge that is down costs the hub a fifth of a millisecond, at most so often that all of them together
 * take a few percent of a core; and each is tried at least every half minute.
 */
const REST_MS_AN_EDGE = 5;
const REST_MS_MAX = 30_000;

export interface DeliveryOptions {
  nodeId: string;
  transport: Transport;
  clock: Clock;
  random: () => number;
  events: Emitter;
  faults: Faults;
  pace: Pace;
  stopped: AbortSignal;
  /** Where there are keys. */
  bond(url: string): Bond | undefined;
  /** An edge is to be asked who it is. */
  doubt(url: string): void;
}

export class Delivery {
  readonly fanOut: FanOut;
  readonly #store: HubStore;
  readonly #o: DeliveryOptions;
  readonly #told: Told;
  readonly #down = new Set<string>();

  constructor(store: HubStore, options: DeliveryOptions) {
    const { events, pace, clock, stopped } = options;
    this.#store = store;
    this.#o = options;
    this.fanOut = new FanOut(store, () => ({ sizes: sharedBatchSizes(pace.batchSize), bytes: pace.maxBatchBytes }));
    const restMs = (): number => Math.max(pace.batchMs, Math.min(REST_MS_MAX, REST_MS_AN_EDGE * this.#down.size));
    this.#told = { places: new Places(PLACES, clock, stopped), restMs };
    events.on('peer-down', ({ peer }) => this.#down.add(peer));
    events.on('peer-up', ({ peer }) => this.forget(peer));
  }

  /** The loop of an edge, not yet started. */
  shipper(edge: Edge): Shipper {
    const { transport, doubt, bond, ...shared } = this.#o;
    const { fetch, get, untilSent } = transport;
    return new Shipper({
      ...shared,
      peer: edge.url,
      outbox: new EdgeOutbox(this.#store, this.fanOut, edge, () => doubt(edge.url)),
      company: new EdgeCompany(this.#store, edge),
      fetch,
      get,
      untilSent,
      bond: bond(edge.url),
      told: this.#told,
    });
  }

  /** It is down no longer, or no edge. */
  forget(url: string): void {
    this.#down.delete(url);
  }
}

/** What the ship loop of an edge says, and does with what it hears. A class, since thousands of objects with getters are large. */
class EdgeCompany implements Company {
  readonly #store: HubStore;
  readonly #edge: Edge;

  constructor(store: HubStore, edge: Edge) {
    this.#store = store;
    this.#edge = edge;
  }

  get isKnown(): boolean {
    return this.#edge.inc !== undefined;
  }

  get isIntroduced(): boolean {
    return this.#edge.inc !== undefined;
  }

  introduction(): Promise<string> {
    return this.#store.company.toEdge(this.#edge.url);
  }

  objection(said: string): Promise<string | undefined> {
    return this.#store.company.objection(this.#edge.url, said);
  }

  heard(said: string): Promise<void> {
    return this.#edge.answered(said);
  }
}
