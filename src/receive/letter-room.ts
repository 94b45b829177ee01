/**
 * How many received changes that cannot be applied are kept. They are a stranger's gift: 0.8 MB on the wire became 316 MB
 * on disk. Beyond the limit nothing is dropped; the sender is answered 503, keeps its batch, and tries again.
 */
import type { Clock } from '../clock.ts';
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

/** Counting reads every letter's line, so a sender that is over the limit is counted anew once in this time. */
const COUNTED_AGAIN_MS = 10_000;

/** So many letters may have come since the last count before there is another. */
const UNCOUNTED_MAX = 1_000;

export class LetterRoom {
  readonly #db: Connection;
  readonly #clock: Clock;
  #uncounted = Number.POSITIVE_INFINITY;
  #full: { from: string | undefined; reason: string; at: number } | undefined;

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Why somebody is being put off, for health(); undefined where nobody is. */
  get problem(): string | undefined {
    return this.#isFull() ? this.#full?.reason : undefined;
  }

  /** Throws where there is no room for letters of this sender. Inside the transaction that has just kept `letters` of them. */
  claim(from: string | undefined, letters: number): void {
    if (letters === 0) return;
    this.#uncounted += letters;
    const known = this.#isFull() && (this.#full?.from === from || this.#full?.from === EVERYBODY);
    if (known) throw this.#refusal();
    if (this.#uncounted <= UNCOUNTED_MAX) return;
    const over = this.#over(from);
    // What is rolled back now has to be counted again.
    if (!over) this.#uncounted = 0;
    this.#full = over && { ...over, at: this.#clock.now() };
    if (over) throw this.#refusal();
  }

  #isFull(): boolean {
    return this.#full !== undefined && this.#clock.now() - this.#full.at < COUNTED_AGAIN_MS;
  }

  #over(from: string | undefined): { from: string | undefined; reason: string } | undefined {
    const { sender, all } = LETTERS_MAX;
    if (exceeds(this.#count('AND i.peer IS ?', from ?? null), sender)) {
      const who = from === undefined ? 'senders without an id' : `node ${JSON.stringify(from)}`;
      return { from, reason: `${LEAD} from ${who}: ${REMEDY}` };
    }
    if (exceeds(this.#count(''), all)) return { from: EVERYBODY, reason: `${LEAD}: ${REMEDY}` };
    return undefined;
  }

  /** Without the rows that a UNIQUE value hides: their letters only list what is kept elsewhere. */
  #count(condition: string, ...params: (string | null)[]): LetterLimits {
    const sql =
      'SELECT count(*) AS letters, coalesce(sum(octet_length(d.row_data)), 0) + coalesce(sum(octet_length(i.change)), 0) ' +
      'AS bytes FROM main._dead_letter_info AS i JOIN main._dead_letter AS d USING (dead_id) ' +
      `WHERE i.direction = 'in' AND i.code IS NOT 'unique' ${condition}`;
    return this.#db.get<LetterLimits & Record<string, never>>(sql, ...params) as LetterLimits;
  }

  #refusal(): RowcastError {
    return new RowcastError('TOO_MANY_LETTERS', this.#full?.reason as string);
  }
}

/** No node has this id: ids have no spaces. */
const EVERYBODY = 'all senders';
const LEAD = 'too many changes that cannot be applied are kept';
const REMEDY = 'nothing more that needs keeping is taken until some are retried or discarded';

function exceeds(counted: LetterLimits, most: LetterLimits): boolean {
  return counted.letters > most.letters || counted.bytes > most.bytes;
}
