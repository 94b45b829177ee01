/**
 * How many changes of one batch may be looked at one by one: those that are not of the usual form, that cannot be applied,
 * or that have to wait. Each costs ten times what an ordinary one does, and forty bytes suffice for one: 400,000 of them, in
 * 80 kB of gzip, took twenty seconds and a gigabyte. A batch within the ceiling of the protocol is never refused for it.
 */
import { RowcastError } from '../errors.ts';
import { BATCH_CHANGES_MAX } from '../wire/protocol.ts';

export const SINGLY_MAX = BATCH_CHANGES_MAX;

/** Throws where a batch has more of them. Asked before they are read, where that can be known. */
export function checkSingly(changes: number): void {
  if (changes <= SINGLY_MAX) return;
  const what = 'changes that cannot be applied as they are, or are not of the usual form';
  throw new RowcastError('BODY_TOO_LARGE', `the batch has more than ${SINGLY_MAX} ${what}: send fewer at a time`);
}
