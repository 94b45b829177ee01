/**
 * Batches are compressed where the link is what costs: gzip at its fastest takes one or two milliseconds for a thousand
 * rows and shrinks them to between a quarter and a tenth. Every answer of a peer says whether it reads gzip (RFC 7694),
 * and the sender measures the link itself. Nothing is agreed on beforehand: a peer that knows nothing of this gets
 * plain bodies.
 *
 * A busy machine looks like a slow link, and there compression makes it busier still. So a few slow answers are not enough,
 * and the first compressed bodies are a trial: where they were not much faster, it is not their length that takes time.
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

/** One slow answer may be a stall. Several in a row are taken for a link when they took this long together. */
const SLOW_ANSWERS = 2;
const SLOW_MS = 200;

/** After so many compressed bodies it is asked whether they were that much faster than the plain ones before. */
const TRIAL_BODIES = 4;
const TRIAL_FASTER = 2;

/** After a trial that has failed, so many plain bodies go before the next; then twice as many. */
const TRIAL_AFTER = 64;
const TRIAL_AFTER_MAX = 4_096;

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
  /** Bytes of the body before it was compressed. */
  size: number;
  /** It is in the tabular form. */
  isTabular?: true;
  headers: Record<string, string>;
}

export function plain(body: Bytes): Packed {
  return { body, gzip: false, size: body.byteLength, headers: {} };
}

/** Answers in a row: how many, to how many bytes before any compression, in how many milliseconds. */
class Way {
  answers = 0;
  ms = 0;
  #bytes = 0;

  add(bytes: number, ms: number): void {
    this.answers += 1;
    this.#bytes += bytes;
    this.ms += Math.max(ms, 0);
  }

  /** Did as many bytes take it no more than that part of the time? */
  isFaster(times: number, than: Way): boolean {
    return this.ms * times * than.#bytes <= than.ms * this.#bytes;
  }
}

/** What the sender knows of the way to one peer, and whether that earns compression. */
export class Link {
  #announced = false;
  #off = false;
  /** Slow answers to plain bodies, in a row. */
  #slow = new Way();
  /** Answers to compressed bodies since the last plain one. */
  #trial = new Way();
  /** Plain bodies until compression may be tried again, and how many there will be after the next trial that fails. */
  #untilTrial = 0;
  #trialAfter = TRIAL_AFTER;
  /** Compressed bodies since the last plain one, and how many there may be. */
  #compressed = 0;
  #probeAfter = PROBE_AFTER;
  #failedCompressed = false;
  /** Bodies in a row that failed compressed and passed plain. */
  #compressedFailures = 0;

  /** As the latest plain body of some size has shown. */
  get isSlow(): boolean {
    return this.#slow.answers > 0;
  }

  /** A body as it is to be sent in its attempt number `attempt`, from 0; never larger than it was. */
  async pack(body: Bytes, attempt: number): Promise<Packed> {
    if (!this.#earns(body, attempt)) return plain(body);
    const smaller = await compressed(body);
    if (!smaller || smaller.byteLength >= body.byteLength) return plain(body);
    return { body: smaller, gzip: true, size: body.byteLength, headers: { 'content-encoding': 'gzip' } };
  }

  /** Any complete answer: whether the peer reads gzip is what its latest one says. */
  heard(acceptEncoding: string | null | undefined): void {
    this.#announced = /(^|[,\s])gzip(?!\s*;\s*q=0(\.0*)?\s*(,|$))/i.test(acceptEncoding ?? '');
  }

  /** A body was acknowledged `ms` after it was sent; `applyMs` of that are the peer's own. */
  acked({ body, gzip, size }: Packed, ms: number, applyMs = 0): void {
    if (gzip) {
      this.#compressed += 1;
      this.#compressedFailures = 0;
      this.#tried(size, ms - applyMs);
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
    if (this.#off || !this.#announced || body.byteLength < BODY_BYTES_MIN) return false;
    if (this.#slow.answers < SLOW_ANSWERS || this.#slow.ms < SLOW_MS || this.#untilTrial > 0) return false;
    // What did not arrive compressed is tried plain, and the other way round: neither may be what stands in the way.
    return attempt % 2 === 0 && this.#compressed < this.#probeAfter;
  }

  #measured(bytes: number, ms: number): void {
    const slow = ms >= WAY_MS_MIN && bytes / ms < SLOW_BYTES_PER_MS;
    if (!slow) this.#probeAfter = PROBE_AFTER;
    else if (this.#compressed >= this.#probeAfter) this.#probeAfter = Math.min(2 * this.#probeAfter, PROBE_AFTER_MAX);
    if (slow) this.#slow.add(bytes, ms);
    else this.#slow = new Way();
    this.#compressed = 0;
    this.#trial = new Way();
    if (this.#untilTrial > 0) this.#untilTrial -= 1;
  }

  #tried(bytes: number, ms: number): void {
    this.#trial.add(bytes, ms);
    if (this.#trial.answers !== TRIAL_BODIES) return;
    if (this.#trial.isFaster(TRIAL_FASTER, this.#slow)) {
      this.#trialAfter = TRIAL_AFTER;
      return;
    }
    this.#untilTrial = this.#trialAfter;
    this.#trialAfter = Math.min(2 * this.#trialAfter, TRIAL_AFTER_MAX);
  }
}
