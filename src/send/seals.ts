/** The keys of a node or a hub at work: its door, and a seal for each of those to whom it sends. */
import { type CheckedAuth, Keyring } from '../auth/keys.ts';
import { Trust } from '../auth/trust.ts';
import type { Clock } from '../clock.ts';
import type { Rights } from '../wire/rights.ts';
import { Pins, type PinsOptions } from './pins.ts';
import { Seal } from './seal.ts';
import type { Ask } from './transport.ts';

export interface SealsOptions extends Pick<PinsOptions, 'kept' | 'keep' | 'warn'> {
  nodeId: string;
  clock: Clock;
  get: Ask;
  /** The node with this id has answered at that URL. */
  onAnswer?(peer: string, nodeId: string | null): void;
}

/** What health() says of a peer where there are keys. */
export interface SealHealth {
  /** The node that must answer there; null while that is not known. */
  pinned: string | null;
  /** Has it shown the key? `exempt`: it need not. */
  signed: 'yes' | 'not-yet' | 'exempt';
  /** How far its clock is ahead of this one, where that mattered. */
  clock_offset_ms: number;
}

export class Seals {
  readonly trust: Trust;
  readonly keyring: Keyring;
  readonly #o: SealsOptions;
  readonly #pins: Pins;
  readonly #seals = new Map<string, Seal>();

  constructor(auth: CheckedAuth, options: SealsOptions) {
    const { nodeId, clock, warn } = options;
    this.#o = options;
    this.keyring = new Keyring(auth);
    this.trust = new Trust(this.keyring, { id: nodeId, clock, warn });
    this.#pins = new Pins({ ...options, keyring: this.keyring });
  }

  of(peer: string): Seal {
    const { nodeId, clock, get, warn, onAnswer } = this.#o;
    const parts = { nodeId, peer, keyring: this.keyring, pins: this.#pins, clock, get, warn };
    const seal = this.#seals.get(peer) ?? new Seal({ ...parts, onAnswer: (id) => onAnswer?.(peer, id) });
    this.#seals.set(peer, seal);
    return seal;
  }

  healthOf(peer: string): SealHealth {
    return { pinned: this.#pins.idAt(peer) ?? null, ...this.of(peer).state };
  }

  /** What the node at this URL may write here, where it is asked for rows; undefined: everything. */
  rightsAt(peer: string): Rights | undefined {
    return this.of(peer).isExempt ? undefined : this.keyring.rightsOf(this.#pins.idAt(peer) ?? '');
  }

  /** It is none of the peers any more. */
  forget(peer: string): void {
    this.#seals.delete(peer);
    this.#pins.forget(peer);
  }
}
