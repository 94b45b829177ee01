/** What a message tells the database that it goes to of what that has said itself: see claim.ts. */
import type { Connection } from '../sqlite/connection.ts';
import type { Remembered } from '../wire/introduction.ts';
import { claimed } from './claim.ts';
import { type Known, withClaims } from './nodes.ts';

/** Of so many databases, where nobody knows which of them will read it. */
const TOLD_OF = 8;

/**
 * `known` is what is remembered of the one that it goes to. Where a URL has never answered, any of them may be there: what it
 * then remembers of this database is later than what was heard of it, so it counts as told, and must have been.
 */
export function claimsFor(db: Connection, to: string | null | undefined, known: Known | undefined): Remembered[] {
  if (known) return claimed(known);
  return to == null ? withClaims(db, TOLD_OF).flatMap(claimed) : [];
}
