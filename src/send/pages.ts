/**
 * Batches that were read and serialised for one peer and go to the next that comes to the same place, as the same bytes.
 * A few of them, and of bounded size: memory does not depend on how many peers there are, or how slow.
 */
import type { BatchLimit, Body } from '../wire/body.ts';

/** The changes that come after a place. */
export interface Page {
  after: number;
  count: number;
  body: Body;
}

export class Pages<P extends Page> {
  readonly #max: { pages: number; bytes: number };
  /** The latest used last. */
  #kept: P[] = [];

  constructor(max: { pages: number; bytes: number }) {
    this.#max = max;
  }

  /** What comes after a place, where it is here and within the limit. A search for refused changes reads for itself. */
  find(after: number, limit: BatchLimit): P | undefined {
    if (limit.suspect) return undefined;
    const fits = ({ count, body }: P): boolean => count <= limit.changes && body.byteLength <= limit.bytes;
    return this.#kept.findLast((page) => page.after === after && fits(page));
  }

  /** Also for one that was used again. */
  keep(page: P): void {
    if (this.#kept.at(-1) === page) return;
    const others = this.#kept.filter((other) => other !== page);
    this.#kept = [...others, page];
    let bytes = this.#kept.reduce((sum, { body }) => sum + body.byteLength, 0);
    while (this.#kept.length > this.#max.pages || bytes > this.#max.bytes)
      bytes -= (this.#kept.shift() as P).body.byteLength;
  }

  drop(page: P): void {
    this.#kept = this.#kept.filter((other) => other !== page);
  }

  clear(): void {
    this.#kept = [];
  }
}
