/** Letters that are tried again, some at a time: how, and what comes of it. One that is hopeless never holds up the others. */
import { messageOf, RowcastError } from '../errors.ts';
import { isMachineFault } from '../sqlite/result-codes.ts';

/**
 * What came of a retry. `queued`: on its way to the peers again. `kept`: it failed again and stays a letter. `gone`: it was
 * none any more, as when the retry of another letter has brought what it waited for.
 */
export type RetryResult = { outcome: 'queued' | 'applied' | 'kept' | 'gone'; reason?: string };

/** How letters are applied again: as their own sender's, and nobody wants to hear of the letters among them once more. */
export const AGAIN = { isRowcast: true, wantLetters: false, again: true };

export const NOT_KEPT = 'the change itself was not kept';

/**
 * Tries these together; where that fails by one of them, each half by itself, until that one is alone: `hopeless` says what becomes of
 * it. `attempt` changes nothing where it throws, or what it may do twice. What says nothing about the letters, as a lock does, is thrown.
 */
export function triedTogether<L>(
  letters: L[],
  attempt: (some: L[]) => RetryResult[],
  hopeless: (letter: L, reason: string) => RetryResult,
): RetryResult[] {
  if (letters.length === 0) return [];
  try {
    return attempt(letters);
  } catch (error) {
    if (!isOfTheLetters(error)) throw error;
    if (letters.length === 1) return [hopeless(letters[0] as L, messageOf(error))];
    const middle = letters.length >> 1;
    const halves = [letters.slice(0, middle), letters.slice(middle)];
    return halves.flatMap((half) => triedTogether(half, attempt, hopeless));
  }
}

/** Is it one of them that cannot be read, or written? */
function isOfTheLetters(error: unknown): boolean {
  if (error instanceof RowcastError) return error.code === 'INVALID_BATCH' || error.code === 'BODY_TOO_LARGE';
  return !isMachineFault(error);
}
