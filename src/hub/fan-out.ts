/**
 * Batches for all edges. Edges at the same position share one that is read and serialised once; an edge whose own
 * changes are among them gets the same bytes without those. A few of the latest batches are kept, so that memory does
 * not depend on how many edges there are or how slow.
 */
import { BATCH_END, type BatchLimit, type Body } from '../wire/body.ts';
import type { HubStore, Run, Segment, Seq } from './store.ts';

const SEGMENTS_KEPT = 8;
const BYTES_KEPT = 32 * 1024 * 1024;

/** What one edge is sent next, and where it then is. */
export type Portion = Pick<Segment, 'end' | 'count' | 'body'>;

export class FanOut {
  readonly #store: HubStore;
  /** The limits all edges normally have; only such batches are worth keeping. */
  readonly #common: () => BatchLimit;
  /** By the place they begin after, the least recently used first. */
  readonly #kept = new Map<Seq, Segment>();
  /** What is being read, by the same place: whoever asks meanwhile waits for it. */
  readonly #reading = new Map<Seq, Promise<Segment | undefined>>();
  /** How often a batch was read from the store, and how often one was handed out: what sharing saves. */
  reads = 0;
  served = 0;

  constructor(store: HubStore, common: () => BatchLimit) {
    this.#store = store;
    this.#common = common;
  }

  /** The next changes after `position` that did not come from `except`; undefined where there are none. */
  async next(position: Seq, limit: BatchLimit, except: string | undefined): Promise<Portion | undefined> {
    // A shorter batch than usual is asked for while refused changes are searched for. It must have its full number.
    const { changes, bytes } = this.#common();
    const usual = limit.changes === changes && limit.bytes === bytes;
    if (!usual) return this.#read(position, limit, except);
    for (let from = position; ; ) {
      const segment = await this.#segment(from);
      if (!segment) return undefined;
      this.served += 1;
      const own = except !== undefined && segment.runs.some(({ origin }) => origin === except);
      const rest = own ? without(segment, except) : segment;
      if (rest) return rest;
      from = segment.end;
    }
  }

  /**
   * Where to go on after whole batches that came from `except` alone. Serialising these, only to leave them out, would
   * double the cost of an edge that is the only one to write; going further than that, it would leave the others
   * behind and no longer share with them.
   */
  skip(position: Seq, except: string): Promise<Seq> {
    return this.#store.skipOwn(position, except, this.#common().changes);
  }

  async #segment(from: Seq): Promise<Segment | undefined> {
    const kept = this.#kept.get(from);
    if (kept && (await this.#isCurrent(from, kept))) {
      this.#keep(from, kept);
      return kept;
    }
    let reading = this.#reading.get(from);
    if (!reading) {
      reading = this.#read(from, this.#common(), undefined).finally(() => this.#reading.delete(from));
      this.#reading.set(from, reading);
    }
    const segment = await reading;
    if (segment) this.#keep(from, segment);
    else this.#kept.delete(from);
    return segment;
  }

  /**
   * Rows leave their place only by advancing; an edge that is behind is not to be led through versions that are over.
   */
  async #isCurrent(from: Seq, { end, count }: Segment): Promise<boolean> {
    // The limit may have become smaller since it was read.
    return count <= this.#common().changes && (await this.#store.countBetween(from, end)) === count;
  }

  async #read(after: Seq, limit: BatchLimit, except: string | undefined): Promise<Segment | undefined> {
    const segment = await this.#store.read(after, limit, except);
    if (segment) this.reads += 1;
    return segment;
  }

  #keep(from: Seq, segment: Segment): void {
    this.#kept.delete(from);
    this.#kept.set(from, segment);
    let bytes = 0;
    for (const { body } of this.#kept.values()) bytes += body.byteLength;
    for (const [oldest, { body }] of this.#kept) {
      if (this.#kept.size <= SEGMENTS_KEPT && bytes <= BYTES_KEPT) break;
      this.#kept.delete(oldest);
      bytes -= body.byteLength;
    }
  }
}

/**
 * The segment without the changes of one node, copied out of the bytes that are there; undefined where nothing is
 * left.
 */
function without({ end, body: whole, runs }: Segment, except: string): Portion | undefined {
  const others = runs.filter(({ origin }) => origin !== except);
  if (others.length === 0) return undefined;
  const head = whole.subarray(0, (runs[0] as Run).start);
  const size = others.reduce((sum, run) => sum + run.end - run.start + 1, head.byteLength + 1);
  const body: Body = new Uint8Array(size);
  body.set(head);
  let at = head.byteLength;
  others.forEach((run, i) => {
    if (i > 0) body[at++] = COMMA;
    body.set(whole.subarray(run.start, run.end), at);
    at += run.end - run.start;
  });
  body.set(TAIL, at);
  return { end, body, count: others.reduce((sum, { count }) => sum + count, 0) };
}

const COMMA = 0x2c;
const TAIL = new TextEncoder().encode(BATCH_END);
