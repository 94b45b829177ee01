/**
 * How many changes the next batch may have. A receiver applies a batch in one go and its event loop stands still
 * meanwhile; it says how long that took, by its own clock, and the sender keeps it short. The network's share is not
 * counted, because a distant peer is not a slow one.
 */

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
  /** How long they kept the receiver; undefined from a peer that does not say. */
  applyMs: number | undefined;
}

/**
 * From `size`, within `limit`. Down by a quarter and up by an eighth, so that a single long apply (a checkpoint falls
 * on one commit in several) is made good by the next few. A batch that was less than half full says nothing about a larger
 * one, and one that is larger than `size` was read ahead, before the latest step down.
 */
export function nextBatchSize(size: number, limit: number, { changes, applyMs }: Answered): number {
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
