/**
 * How one batch gets to one peer and what the peer says of it: a POST with a limit of time, and what is learnt on the way
 * of the link (is it worth compressing for?) and of the peer (does it keep up?).
 */
import type { Clock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import {
  ACCEPT_HEADER,
  ANY_ORDER_HEADER,
  APPLY_MS_HEADER,
  NODE_ID_HEADER,
  ROWCAST_HEADER,
  SYNC_PATH,
} from '../wire/protocol.ts';
import { Link, type Packed, plain } from './link.ts';
import { judge, type Verdict } from './verdict.ts';

/** Changes on their way to one peer, serialised once. */
export interface Shipment {
  batchId: number;
  body: Uint8Array<ArrayBuffer>;
  count: number;
  /** Where the outbox continues after it; the loop does not look inside. */
  end: unknown;
}

/** On its way to the peer. */
export interface Sent {
  shipment: Shipment;
  packed: Packed;
  request: AbortController;
  verdict: Promise<Verdict>;
}

/** The part of `fetch` that shipping needs; the global one fits. */
export type Fetch = (
  url: string,
  init: {
    method: 'POST';
    headers: Record<string, string>;
    body: Uint8Array<ArrayBuffer>;
    redirect: 'manual';
    signal: AbortSignal;
  },
) => Promise<{ status: number; text(): Promise<string>; headers?: { get(name: string): string | null } }>;

export interface CourierOptions {
  nodeId: string;
  peer: string;
  fetch: Fetch;
  /** Resolves when a request that was just begun is on its way. */
  turn: () => Promise<void>;
  clock: Clock;
  requestTimeoutMs: number;
  /** Aborted when nothing more is to be sent; it ends what is on its way. */
  stopped: AbortSignal;
}

/** An answer within this part of what is allowed is a swift one. */
const SWIFT = 0.1;

/** So often in a row a second batch must fail until something on the way is taken to allow only one at a time. */
const STRIKES = 3;

export class Courier {
  readonly #o: CourierOptions;
  readonly #link = new Link();
  /** The latest answer was a swift acknowledgement, by a peer that takes batches in any order. */
  #swift = false;
  /** Second batches that failed, in a row. */
  #strikes = 0;
  #answeredAt = 0;

  constructor(options: CourierOptions) {
    this.#o = options;
  }

  /** A second batch may be under way. On a slow link two would only keep each other waiting. */
  get keepsUp(): boolean {
    return this.#swift && !this.#link.isSlow && this.#strikes < STRIKES;
  }

  /** Resolves when the request is on its way: what comes next may keep the event loop for some milliseconds. */
  async begin(shipment: Shipment, attempt: number, place: 'first' | 'second'): Promise<Sent> {
    const packed = await this.#link.pack(shipment.body, attempt);
    const request = new AbortController();
    const sent = { shipment, packed, request, verdict: this.#post(shipment, packed, request, place) };
    if (attempt === 0) await this.#o.turn();
    return sent;
  }

  /** As it is, uncompressed, until there is an answer. */
  send(shipment: Shipment): Promise<Verdict> {
    return this.#post(shipment, plain(shipment.body), new AbortController(), 'first');
  }

  /** Not the changes may be to blame for a refusal but how they were sent. */
  refusedCompressed(): void {
    this.#link.refused();
  }

  async #post(
    shipment: Shipment,
    packed: Packed,
    request: AbortController,
    place: 'first' | 'second',
  ): Promise<Verdict> {
    const cancel = (): void => request.abort();
    this.#o.stopped.addEventListener('abort', cancel, { once: true });
    // A transport that does not heed the signal must not hold up the loop, or its end.
    const aborted = new Promise<never>((_, reject) => {
      request.signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true });
    });
    aborted.catch(() => {});
    const timer = new AbortController();
    let timedOut = false;
    void this.#o.clock.sleep(this.#o.requestTimeoutMs, timer.signal).then(() => {
      if (timer.signal.aborted) return;
      timedOut = true;
      request.abort();
    });
    try {
      if (this.#o.stopped.aborted) return { kind: 'unreachable', reason: 'stopped' };
      const began = this.#o.clock.now();
      const answering = this.#o
        .fetch(this.#o.peer + SYNC_PATH, {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            ...packed.headers,
            [NODE_ID_HEADER]: this.#o.nodeId,
            [ROWCAST_HEADER]: `id=${this.#o.nodeId}`,
          },
          body: packed.body,
          redirect: 'manual',
          signal: request.signal,
        })
        .then(async (response) => ({
          status: response.status,
          body: await response.text(),
          applyMs: response.headers?.get(APPLY_MS_HEADER),
          anyOrder: response.headers?.get(ANY_ORDER_HEADER),
          accepts: response.headers?.get(ACCEPT_HEADER),
        }));
      const answer = await Promise.race([answering, aborted]);
      const verdict = judge(answer, shipment.batchId);
      this.#link.heard(answer.accepts);
      const now = this.#o.clock.now();
      // The time in which the peer still had the batch before is not this one's.
      const ms = Math.max(0, now - Math.max(began, this.#answeredAt));
      this.#answeredAt = now;
      const acked = verdict.kind === 'acked';
      this.#swift = acked && answer.anyOrder === '1' && ms <= SWIFT * this.#o.requestTimeoutMs;
      if (place === 'second') this.#strikes = acked ? 0 : this.#strikes + 1;
      if (verdict.kind === 'acked') this.#link.acked(packed, ms, verdict.applyMs);
      else this.#link.failed(packed);
      return verdict;
    } catch (error) {
      this.#swift = false;
      // What was taken back says nothing of the link.
      const failed = timedOut || !request.signal.aborted;
      if (failed && place === 'second') this.#strikes += 1;
      if (failed) this.#link.failed(packed);
      const reason = timedOut ? `no answer within ${this.#o.requestTimeoutMs} ms` : messageOf(error);
      return { kind: 'unreachable', reason };
    } finally {
      timer.abort();
      this.#o.stopped.removeEventListener('abort', cancel);
    }
  }
}
