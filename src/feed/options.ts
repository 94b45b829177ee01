/** How much of what has changed is kept for those who read along. */
import { RowcastError } from '../errors.ts';

/** `{keep}`: so many changes of rows are kept. `false`: none, and what was kept is let go of. */
export type FeedOption = { keep?: number } | false;

/** Undefined: as the database says; it may have a feed from before, or by another process. */
export type CheckedFeed = { keep: number } | false | undefined;

export const FEED = {
  keep: {
    default: 100_000,
    min: 1,
    max: 100_000_000,
    help: 'How many changes of rows are kept for readers that come back.',
  },
} as const;

export function checkFeed(given: unknown): CheckedFeed {
  if (given === undefined || given === false) return given;
  const shape = 'option "feed" must be an object {keep}, or false';
  if (typeof given !== 'object' || given === null || Array.isArray(given)) throw wrong(shape);
  const [other] = Object.keys(given).filter((key) => key !== 'keep');
  if (other !== undefined) throw wrong(`${shape}, and has no "${other}"`);
  const { keep = FEED.keep.default } = given as { keep?: unknown };
  const { min, max } = FEED.keep;
  if (typeof keep !== 'number' || !Number.isInteger(keep) || keep < min || keep > max) {
    throw wrong(`option "feed.keep" must be an integer from ${min} to ${max}, not ${String(keep)}`);
  }
  return { keep };
}

function wrong(message: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message);
}
