/**
 * What every request to one peer carries, and what every answer of it must prove, where there are keys. An answer that
 * does not prove it is no answer, whatever it says: nobody on the way can have changes pruned, or set aside.
 */
import { verifyAnswer } from '../auth/answers.ts';
import { contentDigest } from '../auth/digest.ts';
import type { Keyring } from '../auth/keys.ts';
import { type SentRequest, signRequest } from '../auth/requests.ts';
import type { Clock } from '../clock.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { HEALTH_PATH, NODE_ID_HEADER, ROWCAST_HEADER } from '../wire/protocol.ts';
import type { Pins } from './pins.ts';
import type { Ask } from './transport.ts';

export interface BondOptions {
  nodeId: string;
  peer: string;
  keyring: Keyring;
  pins: Pins;
  clock: Clock;
  /** How the peer is asked to show the key, before anything else is sent to it. */
  get: Ask;
  /** The node with this id has answered, and has proved it where it must. */
  onAnswer?: (nodeId: string | null) => void;
  warn(code: string, message: string): void;
}

/** A request that is to be signed. */
export interface Unsigned {
  method: 'GET' | 'POST';
  path: string;
  headers: Record<string, string>;
  body?: Uint8Array;
}

/** A complete answer, of which nothing is believed yet. */
export interface RawAnswer {
  status: number;
  bytes: Uint8Array;
  header(name: string): string | null;
}

type Attempt = (headers: Record<string, string>) => Promise<RawAnswer>;

/** The answer proves nothing. */
export class NotProven extends Error {
  /** Somebody on the way says that the request is too large; who that is may be slow, or silent, just as well. */
  readonly isTooLarge: boolean;

  constructor(message: string, isTooLarge = false) {
    super(message);
    this.isTooLarge = isTooLarge;
  }
}

/** Beyond this a clock is told of. */
const SKEW_MS = 60_000;

/** Bodies that several peers are sent are hashed once. They are never written to after they were made. */
const digests = new WeakMap<Uint8Array, string>();

export class Bond {
  readonly #o: BondOptions;
  /** The latest answer was proven. */
  #proven = false;
  /** How far the peer's clock is ahead of ours, as it says; for the time in signatures, and for nothing else. */
  #offsetMs = 0;
  #skewTold = false;

  constructor(options: BondOptions) {
    this.#o = options;
  }

  /** The peer cannot sign, and its answers need not be: nothing of this concerns them. What it sends is another matter. */
  get isExempt(): boolean {
    return this.#o.keyring.keyFor(this.#o.peer) === undefined;
  }

  get get(): Ask {
    return this.#o.get;
  }

  /** For health. */
  get state(): { signed: 'yes' | 'not-yet' | 'exempt'; clock_offset_ms: number } {
    const signed = this.#o.pins.hasSigned(this.#o.peer) ? 'yes' : 'not-yet';
    return { signed: this.isExempt ? 'exempt' : signed, clock_offset_ms: this.#offsetMs };
  }

  /**
   * Sends a request by `attempt` and returns its answer once that is proven. Throws NotProven. `hello` asks the peer to show
   * the key: no row goes to an address that has not.
   */
  async exchange(request: Unsigned, attempt: Attempt, hello: () => Promise<unknown>): Promise<RawAnswer> {
    if (request.path !== HEALTH_PATH && !this.#proven && this.#mustSign) await hello();
    for (let isAgain = false; ; isAgain = true) {
      const sent = this.#signed(request);
      const answer = await this.#answered(sent, attempt, request.body?.byteLength);
      if (isAgain || !this.#hasSetClock(answer)) return answer;
    }
  }

  /** After whatever goes wrong somebody else may be there: the peer has to show the key again. */
  async #answered(sent: SentRequest, attempt: Attempt, length: number | undefined): Promise<RawAnswer> {
    try {
      const answer = await attempt(sent.headers);
      await this.#prove(sent, answer);
      if (isOfAnotherLength(answer, length)) throw new NotProven('HTTP 413 for a larger body than was sent', true);
      return answer;
    } catch (error) {
      this.#proven = false;
      throw error;
    }
  }

  /** While unsigned answers are accepted, only of those that have never signed. */
  get #mustSign(): boolean {
    const { keyring, pins, peer } = this.#o;
    return keyring.mode === 'require' || pins.hasSigned(peer);
  }

  #signed({ method, path, headers: given, body }: Unsigned): SentRequest {
    const { nodeId, keyring, peer, clock } = this.#o;
    // An answer that is unpacked on the way to us is not what was signed.
    const headers = { ...given, [NODE_ID_HEADER]: nodeId, 'accept-encoding': 'identity' };
    const sent = signRequest(
      keyring,
      { method, path, headers, peer, ...(body && { digest: digestOf(body) }) },
      { now: clock.now() + this.#offsetMs },
    );
    return { ...sent, headers: { ...headers, ...sent.headers } };
  }

  async #prove(sent: SentRequest, { status, bytes, header }: RawAnswer): Promise<void> {
    const { pins, peer, onAnswer, keyring, nodeId } = this.#o;
    const verified = verifyAnswer(sent, { status, header, body: bytes });
    if (verified.kind === 'unsigned' && !this.#mustSign) return onAnswer?.(header(NODE_ID_HEADER));
    if (verified.kind === 'unsigned') throw new NotProven(`HTTP ${status} without a signature`, status === 413);
    if (verified.kind === 'forged') throw new NotProven(`HTTP ${status} that is not believed, ${verified.reason}`);
    const introduced = readIntroduction(header(ROWCAST_HEADER))?.id ?? verified.nodeId;
    if (introduced !== verified.nodeId) {
      throw new NotProven(`node ${JSON.stringify(verified.nodeId)} answers, and introduces another`);
    }
    // Otherwise one node could be taken for another, and for what that one may do.
    if (!keyring.isFor(sent.key, verified.nodeId, nodeId)) {
      const who = `node ${JSON.stringify(verified.nodeId)} answers with the key "${sent.key.id}"`;
      throw new NotProven(`${who}, which is not for it: name it in "nodes" of that key if it is to have it`);
    }
    const objection = await pins.objection(peer, verified.nodeId);
    if (objection !== undefined) throw new NotProven(objection);
    this.#proven = true;
    onAnswer?.(verified.nodeId);
  }

  /** True where the peer says that our time is wrong by its clock: then the same is sent again by that. */
  #hasSetClock({ status, bytes }: RawAnswer): boolean {
    const now = status === 401 ? clockIn(bytes) : undefined;
    if (now === undefined) return false;
    const { clock, peer, warn } = this.#o;
    this.#offsetMs = now * 1_000 - clock.now();
    const isSkewed = Math.abs(this.#offsetMs) > SKEW_MS;
    if (isSkewed && !this.#skewTold) {
      const seconds = Math.round(Math.abs(this.#offsetMs) / 1_000);
      const where = this.#offsetMs > 0 ? 'ahead of' : 'behind';
      warn('clock-skew', `the clock of ${peer} is ${seconds} s ${where} this one: set the one that is wrong`);
    }
    this.#skewTold = isSkewed;
    return true;
  }
}

/** A peer that goes by the length that was announced says which: somebody on the way may have announced another. */
export function isOfAnotherLength(
  { status, bytes }: Pick<RawAnswer, 'status' | 'bytes'>,
  length: number | undefined,
): boolean {
  if (status !== 413) return false;
  try {
    const { length: announced } = JSON.parse(Buffer.from(bytes).toString()) as { length?: unknown };
    return announced !== undefined && announced !== length;
  } catch {
    return false;
  }
}

function digestOf(body: Uint8Array): string {
  const known = digests.get(body) ?? contentDigest(body);
  digests.set(body, known);
  return known;
}

function clockIn(bytes: Uint8Array): number | undefined {
  try {
    const { error, now } = JSON.parse(Buffer.from(bytes).toString()) as { error?: unknown; now?: unknown };
    return error === 'clock' && Number.isSafeInteger(now) ? (now as number) : undefined;
  } catch {
    return undefined;
  }
}
