/**
 * A large batch is applied in parts: each in a transaction of its own that is on disk when it is over, and between two of
 * them everybody else has a turn. So a sender may put into one request what spares both sides requests, and no receiver
 * stands still for longer than a part takes. The acknowledgement follows the last one. Whatever ends it before that, the
 * batch comes again, and what is in place already changes nothing.
 *
 * It is for regular bodies (regular-body.ts) in the tabular form, which Rowcast alone sends: nothing in them can turn out not
 * to be a batch when some of it is applied. They are parsed and recognised once.
 */
import type { Ack, Rejection } from '../wire/protocol.ts';
import type { TabularDocument } from '../wire/read-batch.ts';
import { rowsBegin } from '../wire/tabular.ts';
import type { Merged } from './outcome.ts';
import type { RegularPart } from './regular-body.ts';

/** A part has about as much as this at the most, however few rows that makes. */
const PART_BYTES = 256 * 1024;
/**
 * A larger body, which nobody sends unless it is told to, is applied at once: between two parts it would be in memory several times,
 * and others of its kind with it.
 */
const BODY_BYTES_MAX = 4 * 1024 * 1024;

/** What a body was recognised as, and where each of its rows ends. */
export interface Recognised {
  regular: RegularPart;
  ends: number[];
}

/** A batch of which some parts are applied, and others are not. */
export class Parted {
  readonly document: TabularDocument;
  readonly #bytes: Uint8Array;
  readonly #recognised: Recognised;
  readonly #most: number;
  /** Rows that were applied so far. */
  #rows = 0;
  #step = 1;
  #applied = 0;
  readonly #rejected: Rejection[] = [];

  constructor(body: Uint8Array, document: TabularDocument, recognised: Recognised, parts: number) {
    // A copy, which `slice` of a Buffer is not.
    this.#bytes = new Uint8Array(body);
    this.document = document;
    this.#recognised = recognised;
    this.#most = Math.ceil(document.count / parts);
  }

  /** Nothing was applied yet. */
  get isNew(): boolean {
    return this.#rows === 0;
  }

  get isOver(): boolean {
    return this.#rows === this.document.count;
  }

  /** What came of it so far. */
  get outcome(): { ack: Ack; changes: number; goesOn?: number } {
    const rejected = this.#rejected;
    return {
      ack: { applied: this.#applied, ack: this.document.batchId, ...(rejected.length > 0 && { rejected }) },
      changes: this.document.count,
      ...(!this.isOver && { goesOn: this.#step }),
    };
  }

  /** Somebody else's bytes may be at the same place by now. */
  isStill(body: Uint8Array): boolean {
    return Buffer.compare(this.#bytes, body) === 0;
  }

  /** Fewer were applied than it has, or than there would be if one of the same row had not beaten them. */
  get hasLost(): boolean {
    return this.#applied < this.document.count;
  }

  /** Counted over all parts; what was set aside is not. */
  counted(applied: number): void {
    this.#applied = Math.min(applied, this.document.count - this.#rejected.length);
  }

  /** The next rows, as a batch by themselves, and what it was recognised as. */
  next(): { part: TabularDocument; regular: RegularPart } {
    const { text, count, tabular } = this.document;
    const { regular, ends } = this.#recognised;
    const rows = Math.min(this.#most, count - this.#rows);
    // After the comma behind the row before.
    const begin = this.isNew ? rowsBegin(tabular) : (ends[this.#rows - 1] as number) + 1;
    const part = this.document.part(this.#rows, rows, text.slice(begin, ends[this.#rows + rows - 1]));
    return { part, regular: { ...regular, writes: rows } };
  }

  /** That part was applied, and this came of it. */
  applied(part: TabularDocument, { applied, rejected }: Merged): void {
    this.#step += 1;
    this.#applied += applied;
    this.#rejected.push(...rejected.map((one) => ({ ...one, index: one.index + this.#rows })));
    this.#rows += part.count;
  }
}

/** In how many parts a batch is applied; up to half as many changes again are still one. */
export function partsOf({ count, text, fitsPlain }: TabularDocument, atOnce: number): number {
  // What could not be read in the other way is refused before any of it is applied.
  if (!fitsPlain || text.length > BODY_BYTES_MAX) return 1;
  return Math.min(count, Math.max(Math.round(count / atOnce), Math.round(text.length / PART_BYTES)));
}
