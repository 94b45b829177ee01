/**
 * How many changes the next batch may have. While a receiver applies a batch, or a part of it, its event loop stands still;
 * it says how long that took, by its own clock, and the sender keeps it short. The network's share is not counted, because
 * a distant peer is not a slow one.
 */

/** As the application has set it, or as the peer's answers allow. */
export type BatchSize = number | 'auto';

/** Where it is not set: how many a peer is sent before it has said how long they take, and if it never does. */
const FIRST = 1_500;
/**
 * And how many at the most. A node applies these in parts (receive/parts.ts), so that what bounds them is the memory for bodies,
 * on either side, and that peers share what was read for one of them (convoy.ts).
 */
const MOST = 4_000;

/** For a peer of which nothing is known. */
export function firstBatchSize(set: BatchSize): number {
  return set === 'auto' ? FIRST : set;
}

/** For one that says how long it takes. */
export function largestBatchSize(set: BatchSize): number {
  return set === 'auto' ? MOST : set;
}

/**
 * Where thousands share what was read for one of them, there are two sizes, and each is sent the larger one that it bears. That
 * is twice the other: a batch says no more of what a peer bears than that.
 */
export function sharedBatchSizes(set: BatchSize): [number, ...number[]] {
  return set === 'auto' ? [FIRST, 2 * FIRST] : [set];
}

/** Batches grow while an apply takes less than SHORT_MS, and shrink when one takes more than LONG_MS. */
const SHORT_MS = 10;
const LONG_MS = 15;

/**
 * Batches never shrink below this: a request and its flushes to disk cost both sides together as much as some five
 * hundred changes. An apply also takes long on a machine that has too much to do, and smaller batches would only add to
 * that.
 */
const LEAST = 500;

/**
 * What takes so long is no machine that is busy but changes that are dear, UNIQUE values that clash or rows of a thousand
 * columns: of these the next batch has as many as take half of it, and requests are not what costs.
 */
const VERY_LONG_MS = 200;
const LEAST_DEAR = 50;

export interface Answered {
  /** Changes in the batch. */
  changes: number;
  /** How long they kept the receiver, or a part of them did; undefined from a peer that does not say. */
  applyMs: number | undefined;
}

/**
 * From `size`, within what was set. Down by a quarter and up by an eighth, so that a single long apply (a checkpoint falls
 * on one commit in several) is made good by the next few. A batch that was less than half full says nothing about a larger
 * one, and one that is larger than `size` was read ahead, before the latest step down.
 */
export function nextBatchSize(size: number, set: BatchSize, { changes, applyMs }: Answered): number {
  const limit = applyMs === undefined ? firstBatchSize(set) : largestBatchSize(set);
  const saysMore = changes <= size && 2 * changes > size;
  if (applyMs === undefined || (saysMore && (applyMs * size) / changes <= SHORT_MS)) {
    return Math.min(limit, size + Math.max(1, size >> 3));
  }
  if (applyMs <= LONG_MS || changes > size) return size;
  if (applyMs > VERY_LONG_MS) {
    const bearable = Math.floor((changes * VERY_LONG_MS) / (2 * applyMs));
    return Math.max(Math.min(LEAST_DEAR, size), bearable);
  }
  return Math.max(Math.min(LEAST, size), changes - (changes >> 2));
}
