/** Which databases have answered at a URL one after the other: two that take turns cannot both be given everything. */
import type { Finding } from './identity.ts';

/** A database that comes back so soon after another one has answered is one of two behind the URL. */
const TWO_DATABASES_MS = 10 * 60_000;

export const TWO_DATABASES = 'two databases answer at this URL in turn: give each a URL of its own';

/** Said of an answer that is about rows. */
export const ANOTHER_DATABASE = 'another database has answered than the one that acknowledges';

/**
 * The same of a backup that was put back, before it is known to be one: what it acknowledged, and what it had set aside, it
 * may not have any more. One that has been started again is no such state.
 */
export const EARLIER_STATE = 'the database has answered as it was before: it was put back, or has ended since';

export function isEarlierState(finding: Pick<Finding, 'kind'> | undefined): boolean {
  return finding?.kind === 'went-back' || finding?.kind === 'late';
}

export class Turns {
  /** By URL: those that others have replaced there, and when. */
  readonly #replaced = new Map<string, Map<string, number>>();

  replace(url: string, before: string, inc: string, now: number): void {
    const replaced = this.#replaced.get(url) ?? new Map<string, number>();
    this.#replaced.set(url, replaced.set(before, now));
    replaced.delete(inc);
  }

  /** One that was put back from a backup is not: it has to be given what it lacks. */
  isOneOfTwo(url: string, { inc, kind }: Pick<Finding, 'inc' | 'kind'>, now: number): boolean {
    const at = this.#replaced.get(url)?.get(inc);
    return at !== undefined && kind !== 'went-back' && Math.abs(now - at) < TWO_DATABASES_MS;
  }
}
