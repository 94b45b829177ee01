/** The version order as far as a comparison knows it of both sides: without the content. */
import type { Entry } from './ledger.ts';
import type { Suspect } from './walk.ts';

/** Undefined where both have the same time, and the content decides. */
export function newerSide({ here, there }: Suspect): 'here' | 'there' | undefined {
  if (!here || !there) return here ? 'here' : 'there';
  const difference = order(here, there);
  return difference === 0 ? undefined : difference > 0 ? 'here' : 'there';
}

/** The version order without the content. */
export function order(a: Entry, b: Entry): number {
  return a.version - b.version || Number(a.deleted) - Number(b.deleted);
}
