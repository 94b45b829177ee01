/**
 * Batches are compressed where the link is what costs: gzip at its fastest takes one or two milliseconds for a thousand
 * rows and shrinks them to between a quarter and a tenth. Every answer of a peer says whether it reads gzip (RFC 7694),
 * and the sender measures the link itself. Nothing is agreed on beforehand: a peer that knows nothing of this gets
 * plain bodies.
 */
import { type Bytes, compressed } from '../wire/gzip.ts';

/** Smaller bodies stay plain: they fit into a few packets, which take the same time half full. */
const BODY_BYTES_MIN = 4 * 1024;

/**
 * A link on which a body makes less than this a millisecond is slow: 5 MB/s, its latency included. Measured: at 10
 * Mbit/s a backlog takes 0.4 of the time, at 50 0.6, at 100 0.8 to 0.9, from 200 on as long as before; for a tenth more
 * CPU.
 */
const SLOW_BYTES_PER_MS = 5_000;

/** A shorter way than this is not worth shortening, and may be a timer or a busy machine instead of a link. */
const WAY_MS_MIN = 12;

/** One slow answer may be a stall; two are a link. */
const SLOW_ANSWERS = 2;

/** After this many compressed bodies, a plain one shows whether the link is still slow; then after twice as many. */
const PROBE_AFTER = 64;
const PROBE_AFTER_MAX = 1_024;

/**
 * After this many bodies in a row that failed compressed and passed plain, assume that it is the compression that
 * fails.
 */
const COMPRESSED_FAILURES_MAX = 3;

/** How a body travels. */
export interface Packed {
  body: Bytes;
  gzip: boolean;
  headers: Record<string, string>;
}

export function plain(body: Bytes): Packed {
  return { body, gzip: false, headers: {} };
}

/** What the sender knows of the way to one peer, and whether that earns compression. */
export class Link {
  #announced = false;
  #off = false;
  /** Slow answers to plain bodies, in a row. */
  #slow = 0;
  /** Compressed bodies since the last plain one, and how many there may be. */
  #compressed = 0;
  #probeAfter = PROBE_AFTER;
  #failedCompressed = false;
  /** Bodies in a row that failed compressed and passed plain. */
  #compressedFailures = 0;

  /** As the latest plain body of some size has shown. */
  get isSlow(): boolean {
    return this.#slow > 0;
  }

  /** A body as it is to be sent in its attempt number `attempt`, from 0; never larger than it was. */
  async pack(body: Bytes, attempt: number): Promise<Packed> {
    if (!this.#earns(body, attempt)) return plain(body);
    const smaller = await compressed(body);
    if (!smaller || smaller.byteLength >= body.byteLength) return plain(body);
    return { body: smaller, gzip: true, headers: { 'content-encoding': 'gzip' } };
  }

  /** Any complete answer: whether the peer reads gzip is what its latest one says. */
  heard(acceptEncoding: string | null | undefined): void {
    this.#announced = /(^|[,\s])gzip(?!\s*;\s*q=0(\.0*)?\s*(,|$))/i.test(acceptEncoding ?? '');
  }

  /** A body was acknowledged `ms` after it was sent; `applyMs` of that are the peer's own. */
  acked({ body, gzip }: Packed, ms: number, applyMs = 0): void {
    if (gzip) {
      this.#compressed += 1;
      this.#compressedFailures = 0;
    } else if (body.byteLength >= BODY_BYTES_MIN) {
      this.#measured(body.byteLength, ms - applyMs);
    }
    if (!gzip && this.#failedCompressed && ++this.#compressedFailures === COMPRESSED_FAILURES_MAX) this.#off = true;
    this.#failedCompressed = false;
  }

  /** Not acknowledged, for whatever reason. */
  failed({ gzip }: Packed): void {
    this.#failedCompressed ||= gzip;
  }

  /** The peer, or somebody before it, refuses what it said it would read: not again, as long as this loop lives. */
  refused(): void {
    this.#off = true;
  }

  #earns(body: Bytes, attempt: number): boolean {
    if (this.#off || !this.#announced || body.byteLength < BODY_BYTES_MIN || this.#slow < SLOW_ANSWERS) return false;
    // What did not arrive compressed is tried plain, and the other way round: neither may be what stands in the way.
    return attempt % 2 === 0 && this.#compressed < this.#probeAfter;
  }

  #measured(bytes: number, ms: number): void {
    const slow = ms >= WAY_MS_MIN && bytes / ms < SLOW_BYTES_PER_MS;
    if (!slow) this.#probeAfter = PROBE_AFTER;
    else if (this.#compressed >= this.#probeAfter) this.#probeAfter = Math.min(2 * this.#probeAfter, PROBE_AFTER_MAX);
    this.#slow = slow ? this.#slow + 1 : 0;
    this.#compressed = 0;
  }
}
