/**
 * How one batch gets to one peer and what the peer says of it. Its answers also teach about the link (is it worth
 * compressing for?) and about the peer (does it keep up? is it a Rowcast, which can be asked how it is?).
 */
import type { Clock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import {
  ACCEPT_HEADER,
  ANY_ORDER_HEADER,
  APPLY_MS_HEADER,
  HEALTH_PATH,
  ROWCAST_HEADER,
  SEND_AGAIN_HEADER,
} from '../wire/protocol.ts';
import type { Bond } from './bond.ts';
import { Link, type Packed, plain } from './link.ts';
import { askHealth, NoAnswer, nodeIdIn, type PeerAnswer, postBatch } from './request.ts';
import type { Company, Shipment } from './shipment.ts';
import type { Ask, Post } from './transport.ts';
import { judge, type Verdict } from './verdict.ts';

/** On its way to the peer. */
export interface Sent<P> {
  shipment: Shipment<P>;
  packed: Packed;
  verdict: Promise<Verdict>;
  /** Takes the request back: whether it has arrived is then not known. */
  withdraw(): void;
}

/** One request with a batch, when it is over. */
export interface Attempt {
  batchId: number;
  changes: number;
  /** As it travelled: compressed, where it was. */
  bytes: number;
  encoding: 'gzip' | 'identity';
  ms: number;
  result: Verdict['kind'];
}

export interface CourierOptions {
  nodeId: string;
  peer: string;
  company: Company;
  fetch: Post;
  /** Undefined where nothing but POST can be sent. */
  get: Ask | undefined;
  /** Resolves when a request that was just begun is on its way. */
  untilSent: () => Promise<void>;
  clock: Clock;
  pace: { readonly requestTimeoutMs: number };
  /** Where there are keys. */
  bond?: Bond | undefined;
  /** Aborted when nothing more is to be sent; it ends what is on its way. */
  stopped: AbortSignal;
  onAttempt(attempt: Attempt): void;
}

/** What asking for `/health` has brought: `unknown` is an answer that says neither. */
export type Pulse =
  | { kind: 'alive'; nodeId: string; said: string | null }
  | { kind: 'silent'; reason: string }
  | { kind: 'unknown' };

/** An answer within this part of what is allowed is a swift one. */
const SWIFT = 0.1;

/**
 * After this many consecutive failures of a second batch under way, assume a proxy that allows one, and stop
 * pipelining.
 */
const SECOND_FAILURES_MAX = 3;

/** How long a `/health` may take. Five in a row have to fail before that means anything. */
const HEALTH_MS = 2_500;

const NO_SUCH_PAGE = new Set([404, 405]);

export class Courier<P> {
  readonly #o: CourierOptions;
  readonly #link = new Link();
  /** The latest answer was a swift acknowledgement, by a peer that takes batches in any order. */
  #swift = false;
  #secondFailures = 0;
  /** Its latest acknowledgement carried headers of ours. */
  #isRowcast = false;
  /** It has no `/health`. */
  #withoutHealth = false;
  #answeredAt = 0;

  constructor(options: CourierOptions) {
    this.#o = options;
  }

  /** A second batch may be under way. On a slow link two would only keep each other waiting. */
  get mayPipeline(): boolean {
    return this.#swift && !this.#link.isSlow && this.#secondFailures < SECOND_FAILURES_MAX;
  }

  /** When the peer gave its latest complete answer, to whatever; 0 before the first. */
  get answeredAt(): number {
    return this.#answeredAt;
  }

  /** A peer that has not shown itself to be a Rowcast is never sent anything but batches. */
  get mayAsk(): boolean {
    return (this.#isRowcast || this.#o.company.isKnown) && !this.#withoutHealth && this.#o.get !== undefined;
  }

  /** Its latest acknowledgement has shown that it is a Rowcast: it may be asked more than to take a batch. */
  get isRowcast(): boolean {
    return this.#isRowcast;
  }

  /** Resolves when the request is on its way: what comes next may keep the event loop for some milliseconds. */
  async begin(shipment: Shipment<P>, attempt: number, place: 'first' | 'second'): Promise<Sent<P>> {
    const packed = await this.#link.pack(shipment.body, attempt);
    const request = new AbortController();
    const verdict = this.#post(shipment, packed, request.signal, place);
    if (attempt === 0) await this.#o.untilSent();
    return { shipment, packed, verdict, withdraw: () => request.abort() };
  }

  /** As it is, uncompressed, until there is an answer. */
  send(shipment: Shipment<P>): Promise<Verdict> {
    return this.#post(shipment, plain(shipment.body), undefined, 'first');
  }

  /** Not the changes may be to blame for a refusal but how they were sent. */
  refusedCompressed(): void {
    this.#link.refused();
  }

  /** Asks the peer how it is. */
  async ask(): Promise<Pulse> {
    const { get, peer, company, clock, stopped, bond } = this.#o;
    if (!get) return { kind: 'unknown' };
    try {
      const options = { clock, stopped, timeoutMs: HEALTH_MS, bond };
      const { status, body, header } = await askHealth(get, peer, await company.introduction(), options);
      const nodeId = nodeIdIn(body);
      if (nodeId !== undefined) {
        this.#answeredAt = clock.now();
        return { kind: 'alive', nodeId, said: header(ROWCAST_HEADER) };
      }
      if (NO_SUCH_PAGE.has(status)) this.#withoutHealth = true;
      // Somebody is there who has no /health, or none for us; what answers in a dead peer's place says 5xx, or
      // anything.
      if (status >= 400 && status < 500) return { kind: 'unknown' };
      return { kind: 'silent', reason: `HTTP ${status} to ${HEALTH_PATH}, and no health in it` };
    } catch (error) {
      const withdrawn = error instanceof NoAnswer && error.withdrawn;
      return withdrawn ? { kind: 'unknown' } : { kind: 'silent', reason: messageOf(error) };
    }
  }

  async #post(
    shipment: Shipment<P>,
    packed: Packed,
    withdrawn: AbortSignal | undefined,
    place: 'first' | 'second',
  ): Promise<Verdict> {
    const { nodeId, peer, company, fetch, clock, stopped, bond } = this.#o;
    const { requestTimeoutMs: timeoutMs } = this.#o.pace;
    const asks = shipment.asks === undefined ? {} : { [SEND_AGAIN_HEADER]: shipment.asks };
    const headers = { ...packed.headers, ...asks };
    const began = clock.now();
    let verdict: Verdict;
    try {
      const introduction = await company.introduction();
      const batch = { nodeId, introduction, body: packed.body, count: shipment.count, headers };
      const answer = await postBatch(fetch, peer, batch, {
        clock,
        timeoutMs,
        stopped,
        bond,
        ...(withdrawn && { withdrawn }),
      });
      verdict = await this.#weighed(
        judge({ ...answer, applyMs: answer.header(APPLY_MS_HEADER) }, shipment.batchId),
        answer,
      );
      this.#learn(answer, verdict, packed, place, began);
    } catch (error) {
      this.#swift = false;
      verdict = { kind: 'unreachable', reason: messageOf(error) };
      // What was taken back says nothing of the link.
      if (error instanceof NoAnswer && error.withdrawn) return verdict;
      if (place === 'second') this.#secondFailures += 1;
      this.#link.failed(packed);
    }
    this.#o.onAttempt({
      batchId: shipment.batchId,
      changes: shipment.count,
      bytes: packed.body.byteLength,
      encoding: packed.gzip ? 'gzip' : 'identity',
      ms: Math.max(0, clock.now() - began),
      result: verdict.kind,
    });
    return verdict;
  }

  /** An acknowledgement with the word of who gives it; worth nothing where that one is not who it should be. */
  async #weighed(verdict: Verdict, answer: PeerAnswer): Promise<Verdict> {
    const said = answer.header(ROWCAST_HEADER);
    if (verdict.kind !== 'acked' || said === null) return verdict;
    const reason = await this.#o.company.objection(said);
    return reason === undefined ? { ...verdict, said } : { kind: 'unreachable', reason };
  }

  #learn(answer: PeerAnswer, verdict: Verdict, packed: Packed, place: 'first' | 'second', began: number): void {
    const now = this.#o.clock.now();
    // The time in which the peer still had the batch before is not this one's.
    const ms = Math.max(0, now - Math.max(began, this.#answeredAt));
    this.#answeredAt = now;
    const accepts = answer.header(ACCEPT_HEADER);
    this.#link.heard(accepts);
    const acked = verdict.kind === 'acked';
    const anyOrder = answer.header(ANY_ORDER_HEADER) === '1';
    this.#swift = acked && anyOrder && ms <= SWIFT * this.#o.pace.requestTimeoutMs;
    if (place === 'second') this.#secondFailures = acked ? 0 : this.#secondFailures + 1;
    if (verdict.kind === 'acked') {
      this.#isRowcast = anyOrder || accepts === 'gzip' || verdict.applyMs !== undefined;
      this.#link.acked(packed, ms, verdict.applyMs);
    } else {
      this.#link.failed(packed);
    }
  }
}
