/** The keys of a node or a hub at work: its door, and a bond for each of those to whom it sends. */
import { type CheckedAuth, Keyring } from '../auth/keys.ts';
import { Trust } from '../auth/trust.ts';
import type { Clock } from '../clock.ts';
import type { Rights } from '../wire/rights.ts';
import { Bond } from './bond.ts';
import { Pins, type PinsOptions } from './pins.ts';
import type { Ask } from './transport.ts';

export interface BondsOptions extends Pick<PinsOptions, 'kept' | 'keep' | 'warn'> {
  nodeId: string;
  clock: Clock;
  get: Ask;
  /** The node with this id has answered at that URL. */
  onAnswer?(peer: string, nodeId: string | null): void;
}

/** What health() says of a peer where there are keys. */
export interface BondHealth {
  /** The node that must answer there; null while that is not known. */
  pinned: string | null;
  /** Has it shown the key? `exempt`: it need not. */
  signed: 'yes' | 'not-yet' | 'exempt';
  /** How far its clock is ahead of this one, where that mattered. */
  clock_offset_ms: number;
}

export class Bonds {
  readonly trust: Trust;
  readonly keyring: Keyring;
  readonly #o: BondsOptions;
  readonly #pins: Pins;
  readonly #bonds = new Map<string, Bond>();

  constructor(auth: CheckedAuth, options: BondsOptions) {
    const { nodeId, clock, warn } = options;
    this.#o = options;
    this.keyring = new Keyring(auth);
    this.trust = new Trust(this.keyring, { id: nodeId, clock, warn });
    this.#pins = new Pins({ ...options, keyring: this.keyring });
  }

  of(peer: string): Bond {
    const { nodeId, clock, get, warn, onAnswer } = this.#o;
    const parts = { nodeId, peer, keyring: this.keyring, pins: this.#pins, clock, get, warn };
    const bond = this.#bonds.get(peer) ?? new Bond({ ...parts, onAnswer: (id) => onAnswer?.(peer, id) });
    this.#bonds.set(peer, bond);
    return bond;
  }

  healthOf(peer: string): BondHealth {
    return { pinned: this.#pins.idAt(peer) ?? null, ...this.of(peer).state };
  }

  /** What the node at this URL may write here, where it is asked for rows; undefined: everything. */
  rightsAt(peer: string): Rights | undefined {
    return this.of(peer).isExempt ? undefined : this.keyring.rightsOf(this.#pins.idAt(peer) ?? '', peer);
  }

  /** Another process has seen the key of this node there. */
  remember(peer: string, id: string): void {
    this.#pins.remember(peer, id);
  }

  /** It is none of the peers any more. */
  forget(peer: string): void {
    this.#bonds.delete(peer);
    this.#pins.forget(peer);
  }
}
