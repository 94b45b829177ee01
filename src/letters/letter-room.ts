/**
 * How many received changes that cannot be applied are kept. They are a stranger's gift: 0.8 MB on the wire became 316 MB
 * on disk. Beyond the limit nothing is dropped; the sender is answered 503, keeps its batch, and tries again.
 */
import { type Clock, passedSince } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';

export interface LetterLimits {
  letters: number;
  bytes: number;
}

export const LETTERS_MAX: { sender: LetterLimits; all: LetterLimits } = {
  sender: { letters: 100_000, bytes: 256 * 1024 * 1024 },
  all: { letters: 250_000, bytes: 1024 * 1024 * 1024 },
};

/** Characters of a reason: it may quote what a stranger has sent, thousands of times. */
export const REASON_MAX = 500;

/** Counting reads every letter's line, so a sender that is over the limit is counted anew once in this time. */
const COUNTED_AGAIN_MS = 10_000;

/**
 * After a count, half of what was free may be taken before there is another, and never less than this: then the limit is
 * kept to within a batch, and a sender whose every row leaves a letter is counted a few times, not with each batch.
 */
const UNCOUNTED: LetterLimits = { letters: 1_000, bytes: 1024 * 1024 };

/** Senders whose room is remembered. */
const SENDERS_MAX = 1_000;

export class LetterRoom {
  readonly #count: CountLetters;
  readonly #clock: Clock;
  /** What each sender, and all of them together, may still take before there is another count. */
  readonly #left = new Map<string | undefined, LetterLimits>();
  #full: { from: string | undefined; reason: string; at: number } | undefined;

  constructor(count: CountLetters, clock: Clock) {
    this.#count = count;
    this.#clock = clock;
  }

  /** Why somebody is being put off, for health(); undefined where nobody is. */
  get problem(): string | undefined {
    return this.#isFull() ? this.#full?.reason : undefined;
  }

  /**
   * Throws where there is no room for letters of this sender. Inside the transaction that has just kept so many of them, of
   * about so many bytes.
   */
  claim(from: string | undefined, kept: LetterLimits): void {
    if (kept.letters === 0) return;
    const known = this.#isFull() && (this.#full?.from === from || this.#full?.from === EVERYBODY);
    if (known) throw this.#refusal();
    // What is rolled back later stays taken: then the next count is only the sooner.
    if (this.#take(from, kept) && this.#take(EVERYBODY, kept)) return;
    const over = this.#over(from);
    this.#full = over && { ...over, at: this.#clock.now() };
    if (over) throw this.#refusal();
  }

  #take(who: string | undefined, kept: LetterLimits): boolean {
    const left = this.#left.get(who);
    if (!left || left.letters < kept.letters || left.bytes < kept.bytes) return false;
    left.letters -= kept.letters;
    left.bytes -= kept.bytes;
    return true;
  }

  #isFull(): boolean {
    return this.#full !== undefined && passedSince(this.#clock, this.#full.at) < COUNTED_AGAIN_MS;
  }

  #over(from: string | undefined): { from: string | undefined; reason: string } | undefined {
    const { sender, all } = LETTERS_MAX;
    const { ofSender, ofAll } = this.#count(from);
    if (exceeds(ofSender, sender)) {
      this.#left.delete(from);
      const who = from === undefined ? 'senders without an id' : `node ${JSON.stringify(from)}`;
      return { from, reason: `${LEAD} from ${who}: ${REMEDY}` };
    }
    if (exceeds(ofAll, all)) return { from: EVERYBODY, reason: `${LEAD}: ${REMEDY}` };
    if (this.#left.size >= SENDERS_MAX) this.#left.clear();
    this.#left.set(from, halfOf(sender, ofSender));
    this.#left.set(EVERYBODY, halfOf(all, ofAll));
    return undefined;
  }

  #refusal(): RowcastError {
    return new RowcastError('TOO_MANY_LETTERS', this.#full?.reason as string);
  }
}

/** What is kept of one sender, and of all. */
export type CountLetters = (from: string | undefined) => { ofSender: LetterLimits; ofAll: LetterLimits };

/**
 * In one pass: it reads them all. Without the rows that a UNIQUE value hides: their letters only list what is kept
 * elsewhere.
 */
export function countLetters(db: Connection): CountLetters {
  return (from) => {
    const bytes = 'coalesce(octet_length(d.row_data), 0) + coalesce(octet_length(i.change), 0)';
    const found = db.get<Record<'letters' | 'bytes' | 'ownLetters' | 'ownBytes', number>>(
      `SELECT count(*) AS letters, coalesce(sum(bytes), 0) AS bytes, coalesce(sum(own), 0) AS ownLetters, ` +
        `coalesce(sum(iif(own, bytes, 0)), 0) AS ownBytes FROM (SELECT i.peer IS ? AS own, ${bytes} AS bytes ` +
        'FROM main._dead_letter_info AS i JOIN main._dead_letter AS d USING (dead_id) ' +
        "WHERE i.direction = 'in' AND i.code IS NOT 'unique' LIMIT -1)",
      from ?? null,
    );
    const { letters = 0, bytes: all = 0, ownLetters = 0, ownBytes = 0 } = found ?? {};
    return { ofSender: { letters: ownLetters, bytes: ownBytes }, ofAll: { letters, bytes: all } };
  };
}

/** No node has this id: ids have no spaces. */
const EVERYBODY = 'all senders';
const LEAD = 'too many changes that cannot be applied are kept';
const REMEDY = 'nothing more that needs keeping is taken until some are retried or discarded';

/** Of what is free. */
function halfOf(most: LetterLimits, counted: LetterLimits): LetterLimits {
  return {
    letters: Math.max(UNCOUNTED.letters, (most.letters - counted.letters) / 2),
    bytes: Math.max(UNCOUNTED.bytes, (most.bytes - counted.bytes) / 2),
  };
}

function exceeds(counted: LetterLimits, most: LetterLimits): boolean {
  return counted.letters > most.letters || counted.bytes > most.bytes;
}
