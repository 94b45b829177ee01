/** What a node, a hub or a server of its own has of keys at its door: whom it believes, and in whose name it answers. */
import type { Clock } from '../clock.ts';
import { type AnswerToSign, signAnswer } from './answers.ts';
import type { AuthMode, Keyring } from './keys.ts';
import { type RequestToVerify, type Sender, type Verified, verifyRequest } from './requests.ts';
import { Strangers } from './strangers.ts';

export interface TrustOptions {
  /** The node id under which it answers. */
  id: string;
  clock: Clock;
  warn(code: string, message: string): void;
}

/**
 * Requests under way of one sender. It has two batches, a question of a comparison with what that sends, and a `/health`;
 * whoever has more is not ours.
 */
export const UNDER_WAY_MAX = 8;
/** How often an address is told of that was not let in, and how many addresses are remembered for that. */
const TOLD_MS = 60_000;
const ADDRESSES_MAX = 1_000;

export class Trust {
  readonly keyring: Keyring;
  readonly strangers: Strangers;
  readonly #o: TrustOptions;
  readonly #underWay = new Map<string, number>();
  readonly #toldAt = new Map<string, number>();

  constructor(keyring: Keyring, options: TrustOptions) {
    this.keyring = keyring;
    this.#o = options;
    this.strangers = new Strangers(options.clock);
  }

  get id(): string {
    return this.#o.id;
  }

  get mode(): AuthMode {
    return this.keyring.mode;
  }

  verify(request: RequestToVerify): Verified {
    return verifyRequest(this.keyring, request, this.#o.clock.now());
  }

  sign(sender: Sender, answer: AnswerToSign): Record<string, string> {
    return signAnswer(sender, answer, this.#o.clock.now());
  }

  /** False where the sender has as many requests under way as it may; otherwise `leave` has to follow. */
  enter(sender: Sender): boolean {
    const who = nameOf(sender);
    const count = this.#underWay.get(who) ?? 0;
    if (count >= UNDER_WAY_MAX) return false;
    this.#underWay.set(who, count + 1);
    return true;
  }

  leave(sender: Sender): void {
    const who = nameOf(sender);
    const count = (this.#underWay.get(who) ?? 1) - 1;
    if (count > 0) this.#underWay.set(who, count);
    else this.#underWay.delete(who);
  }

  /** Why somebody was not let in, which nobody but the operator is told; once a minute for each address. */
  turnedAway(address: string | undefined, reason: string): void {
    const { clock, warn } = this.#o;
    const now = clock.now();
    const from = address ?? 'an unknown address';
    if (Math.abs(now - (this.#toldAt.get(from) ?? -Infinity)) < TOLD_MS) return;
    if (this.#toldAt.size >= ADDRESSES_MAX) this.#toldAt.clear();
    this.#toldAt.set(from, now);
    warn('not-authenticated', `a request from ${from} was not let in: ${reason}`);
  }
}

function nameOf({ key, nodeId }: Sender): string {
  return `${key.id} ${nodeId}`;
}
