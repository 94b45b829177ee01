/**
 * The time of the oldest row behind a place. Places say in which order rows came, and not how old they are: what an edge brings
 * that was away is older than what has come before it. So all rows behind the place count, and the first one says nothing.
 *
 * To read them all at each look would cost too much where an edge is far behind. They are read a slice at a look, and what was
 * found holds for as long as the place does not go back: rows only leave their places for later ones, and new ones come last.
 * It may then tell of a row that has left since, which is the time of nothing any more, but never later than it should; so
 * it is read again and again, and what was found last counts.
 */
import type { Seq } from './store.ts';

/** Rows that are read at a look, beside those that are new: a few milliseconds. */
export const SLICE = 10_000;

/** What is to be read: the next rows after a place. */
export interface Asked {
  after: Seq;
  limit: number;
}

export interface Read {
  /** How many there were: fewer than were asked for where there are no more. */
  rows: number;
  /** Where to go on, since nothing comes at or below it any more; null where that is where it began. */
  end: Seq | null;
  /** The time of the oldest of them. */
  oldest: number | null;
}

/** All rows after `from`, up to `upTo`. */
interface Walk {
  from: Seq;
  upTo: Seq;
  oldest: number;
}

export class OldestBehind {
  readonly #slice: number;
  /** That has come to the end. */
  #known: Walk | undefined;
  #next: Walk | undefined;

  constructor(slice = SLICE) {
    this.#slice = slice;
  }

  /** The places have other rows. */
  forget(): void {
    this.#known = undefined;
    this.#next = undefined;
  }

  /**
   * Yields what is to be read, and is given what was found. Returns the time, which is infinite where there is no row behind
   * the place, or undefined while not all of them were read.
   */
  *look(position: Seq): Generator<Asked, number | undefined, Read> {
    const next = isOn(this.#next, position) ? this.#next : begin(position);
    this.#next = next;
    if (yield* this.#goOn(next)) {
      this.#known = next;
      this.#next = undefined;
      return next.oldest;
    }
    const known = this.#known;
    if (known === undefined || known.from > position) return undefined;
    while (!(yield* this.#goOn(known)));
    return known.oldest;
  }

  /** True at the end. */
  *#goOn(walk: Walk): Generator<Asked, boolean, Read> {
    const { rows, end, oldest } = yield { after: walk.upTo, limit: this.#slice };
    walk.oldest = Math.min(walk.oldest, oldest ?? Infinity);
    walk.upTo = Math.max(walk.upTo, end ?? 0);
    return rows < this.#slice;
  }
}

function begin(position: Seq): Walk {
  return { from: position, upTo: position, oldest: Infinity };
}

/** It is under way, and what it has read is not all passed already. */
function isOn(walk: Walk | undefined, position: Seq): walk is Walk {
  return walk !== undefined && walk.from <= position && position < walk.upTo;
}
