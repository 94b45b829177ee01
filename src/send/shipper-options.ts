/** What the loop of one peer is given to work with. */
import type { Clock } from '../clock.ts';
import type { Emitter } from '../events.ts';
import type { Faults } from '../observe/faults.ts';
import type { BatchSize } from './batch-size.ts';
import type { Bond } from './bond.ts';
import type { Crowd } from './crowd.ts';
import type { Places } from './places.ts';
import type { Company, Outbox } from './shipment.ts';
import type { Ask, Post } from './transport.ts';

export interface ShipperOptions<P> {
  nodeId: string;
  peer: string;
  outbox: Outbox<P>;
  company: Company;
  fetch: Post;
  /** Undefined where nothing but POST can be sent. */
  get: Ask | undefined;
  /** Resolves when a request that was just begun is on its way. */
  untilSent: () => Promise<void>;
  clock: Clock;
  random: () => number;
  events: Emitter;
  faults: Faults;
  pace: Pace;
  /** Where there are keys. */
  bond?: Bond | undefined;
  /** The loops of all peers, where they are not told. */
  crowd?: Crowd | undefined;
  /** Where the loop is told of what there is to send: it sleeps meanwhile, and does not look by itself. */
  told?: Told | undefined;
}

/** For a loop that is one of thousands. */
export interface Told {
  /** The places for requests that are under way at once. */
  places: Places;
  /** How long a peer that is down is left alone, before it is tried again once. */
  restMs(): number;
}

/** How often, how much and how patiently is sent. It may change from one look to the next. */
export interface Pace {
  readonly batchMs: number;
  readonly batchSize: BatchSize;
  readonly maxBatchBytes: number;
  readonly requestTimeoutMs: number;
}
