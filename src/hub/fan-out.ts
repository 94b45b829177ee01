/**
 * Batches for all edges: one reader, which reads and serialises what comes after a place once, for whoever comes there.
 * An edge whose own changes are among them gets the same bytes without those.
 */
import { type Page, Pages } from '../send/pages.ts';
import { BATCH_END, type BatchLimit, type Body } from '../wire/body.ts';
import { tabularForm } from '../wire/tabular.ts';
import type { HubStore, Run, Segment, Seq } from './store.ts';

/** Edges that keep up are no further apart than a few batches; a crowd of new ones goes through them together. */
const KEPT = { pages: 16, bytes: 32 * 1024 * 1024 };

/** What one edge is sent next, and where it then is. */
export type Portion = Pick<Segment, 'end' | 'count' | 'body' | 'origins'>;

interface Kept extends Segment, Page {
  /** The advance up to which it is known that its rows are at their places still. */
  currentAt: number;
  /** That is being asked, as of that advance: however many edges come there meanwhile. */
  asked?: { at: number; isCurrent: Promise<boolean> };
}

/** The limits that edges normally have, of the sizes the least first; only such batches are worth keeping. */
interface Common {
  sizes: readonly [number, ...number[]];
  bytes: number;
}

/** Of at most so many changes. */
interface Reading {
  changes: number;
  segment: Promise<Kept | undefined>;
}

export class FanOut {
  readonly #store: HubStore;
  readonly #common: () => Common;
  #pages = new Pages<Kept>(KEPT);
  /** What is being read, by the place after which it begins: whoever asks meanwhile waits for it. */
  readonly #reading = new Map<Seq, Reading>();
  /** The batch before had a tabular form: the next one will mostly have one, too. */
  #areAlike = true;
  /** How often the store has told that rows may have advanced: without that, what was found still holds. */
  #advances = 0;
  /** Nothing comes after this place, as of that advance. */
  #end: { seq: Seq; at: number } = { seq: Number.POSITIVE_INFINITY, at: 0 };
  /** How often a batch was read from the store, and how often one was handed out: what sharing saves. */
  reads = 0;
  served = 0;

  constructor(store: HubStore, common: () => Common) {
    this.#store = store;
    this.#common = common;
    store.onAdvance(() => {
      this.#advances += 1;
    });
  }

  /** The next changes after `position` that did not come from `except`; undefined where there are none. */
  async next(position: Seq, limit: BatchLimit, except: string | undefined): Promise<Portion | undefined> {
    for (let from = position; ; ) {
      if (this.#isEnd(from)) return undefined;
      const segment = await this.#segment(from, limit);
      // A shorter batch than usual is asked for while refused changes are searched for. It must have its full number.
      if (segment === 'for itself') return this.#read(from, limit, except);
      if (!segment) return undefined;
      this.served += 1;
      if (this.#store.group) this.#readAhead(segment, limit);
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
  async skip(position: Seq, except: string): Promise<Seq> {
    if (this.#isEnd(position)) return position;
    // What was read for another one who is there says whose the next ones are, without a question to the store.
    const reading = this.#reading.get(position);
    const { sizes, bytes } = this.#common();
    const next = (await this.#kept(position, { changes: Math.max(...sizes), bytes })) ?? (await reading?.segment);
    if (next?.runs.some(({ origin }) => origin !== except)) return position;
    return this.#store.skipOwn(position, except, sizes[0]);
  }

  /** The places have other rows by now: what is being read for one of them is not kept either. */
  clear(): void {
    this.#pages = new Pages(KEPT);
    this.#reading.clear();
    this.#advances += 1;
  }

  /** A server reads what comes after a full batch while this process spells and sends that: neither waits for the other. */
  #readAhead({ end, count }: Segment, limit: BatchLimit): void {
    const changes = this.#sizeFor(limit);
    if (changes === undefined || count < changes) return;
    if (this.#isEnd(end) || this.#reading.has(end) || this.#pages.find(end, limit)) return;
    // Where that fails, whoever comes there reads it, and hears of it.
    void this.#begin(end, { changes, bytes: limit.bytes });
  }

  #isEnd(seq: Seq): boolean {
    return this.#end.at === this.#advances && seq >= this.#end.seq;
  }

  async #segment(from: Seq, limit: BatchLimit): Promise<Segment | undefined | 'for itself'> {
    const kept = await this.#kept(from, limit);
    if (kept) return kept;
    const changes = this.#sizeFor(limit);
    if (changes === undefined) return 'for itself';
    const known = this.#reading.get(from);
    return known && known.changes <= changes ? known.segment : this.#begin(from, { changes, bytes: limit.bytes });
  }

  /** How many changes a batch has that an edge of this limit shares with others; undefined where it shares none. */
  #sizeFor(limit: BatchLimit): number | undefined {
    const { sizes, bytes } = this.#common();
    return limit.bytes === bytes ? sizes.findLast((size) => size <= limit.changes) : undefined;
  }

  #begin(from: Seq, limit: BatchLimit): Promise<Kept | undefined> {
    const reading: Reading = { changes: limit.changes, segment: this.#readForAll(from, limit) };
    this.#reading.set(from, reading);
    const over = (): void => {
      if (this.#reading.get(from) === reading) this.#reading.delete(from);
    };
    reading.segment.then(over, over);
    return reading.segment;
  }

  /** What was read for somebody else, where it is still what comes after that place. */
  async #kept(from: Seq, limit: BatchLimit): Promise<Kept | undefined> {
    const pages = this.#pages;
    const kept = pages.find(from, limit);
    if (!kept) return undefined;
    const isCurrent = await this.#isCurrent(kept);
    if (isCurrent) pages.keep(kept);
    else pages.drop(kept);
    return isCurrent ? kept : undefined;
  }

  async #readForAll(from: Seq, limit: BatchLimit): Promise<Kept | undefined> {
    const [pages, at] = [this.#pages, this.#advances];
    const segment = await this.#readAlike(from, limit);
    if (segment) {
      const kept = { ...segment, after: from, currentAt: at };
      pages.keep(kept);
      return kept;
    }
    this.#end = { seq: from, at };
    return undefined;
  }

  /** More than the least only where they are alike: what has no tabular form is applied in one go, whoever receives it. */
  async #readAlike(from: Seq, limit: BatchLimit): Promise<Segment | undefined> {
    const least = { ...limit, changes: this.#common().sizes[0] };
    const isMore = limit.changes > least.changes;
    const segment = await this.#read(from, isMore && !this.#areAlike ? least : limit, undefined);
    if (!segment || !isMore) return segment;
    this.#areAlike = tabularForm(segment.body, segment.count) !== undefined;
    return this.#areAlike || segment.count <= least.changes ? segment : this.#read(from, least, undefined);
  }

  /**
   * Rows leave their place only by advancing; an edge that is behind is not to be led through versions that are over.
   */
  #isCurrent(kept: Kept): boolean | Promise<boolean> {
    const at = this.#advances;
    if (kept.currentAt === at) return true;
    if (kept.asked?.at !== at) kept.asked = { at, isCurrent: this.#askIfCurrent(kept, at) };
    return kept.asked.isCurrent;
  }

  async #askIfCurrent(kept: Kept, at: number): Promise<boolean> {
    try {
      if ((await this.#store.countBetween(kept.after, kept.end)) !== kept.count) return false;
      kept.currentAt = Math.max(at, kept.currentAt);
      return true;
    } finally {
      delete kept.asked;
    }
  }

  async #read(after: Seq, limit: BatchLimit, except: string | undefined): Promise<Segment | undefined> {
    const segment = await this.#store.read(after, limit, except);
    if (segment) this.reads += 1;
    return segment;
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
  return { end, body, count: others.reduce((sum, { count }) => sum + count, 0), origins: others };
}

const COMMA = 0x2c;
const TAIL = new TextEncoder().encode(BATCH_END);
