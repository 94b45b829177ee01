/**
 * How many changes the next batch may have. A receiver applies a batch in one go, and its event loop stands still for as
 * long; it tells how long that was, by its own clock, and the sender keeps it short. The network's share is not counted: a
 * distant peer is not a slow one.
 */

/** Below this an apply is short enough for more; above the other it is too long, whatever else the machine is doing. */
const SHORT_MS = 10;
const LONG_MS = 15;

/**
 * Never below this: a request and its flushes to disk cost both sides together as much as some five hundred changes. And an
 * apply also takes long where a machine has too much to do, which smaller batches would only make more.
 */
const LEAST = 500;

export interface Answered {
  /** Changes in the batch. */
  changes: number;
  /** How long they kept the receiver; undefined from a peer that does not say. */
  applyMs: number | undefined;
}

/**
 * From `size`, within `limit`. Down by a quarter and up by an eighth, so that a single long apply (a checkpoint falls on
 * one commit in several) is made good by the next few. A batch that was not full says nothing about a larger one, and one
 * that is larger than `size` was read ahead, before the latest step down.
 */
export function nextBatchSize(size: number, limit: number, { changes, applyMs }: Answered): number {
  if (applyMs === undefined || (applyMs <= SHORT_MS && changes === size)) {
    return Math.min(limit, size + Math.max(1, size >> 3));
  }
  if (applyMs <= LONG_MS || changes > size) return size;
  return Math.max(Math.min(LEAST, size), changes - (changes >> 2));
}
