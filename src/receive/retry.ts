/** Second chances: dead letters tried again, by hand, because the schema has caught up, or because time has passed. */

import type { Registry } from '../capture/registry.ts';
import { unlessRefused } from '../errors.ts';
import { checkLetterNumber, type DeadLetter, type DeadLetters, type Waiting } from '../letters/dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import { fold } from '../sqlite/sql.ts';
import { batchText } from '../wire/body.ts';
import { storedId } from '../wire/values.ts';
import type { Applied, Applier } from './apply.ts';
import { FillIn } from './fill-in.ts';
import { AGAIN, NOT_KEPT, type RetryResult, triedTogether } from './tried.ts';

/** The letters of a node, for its caller. */
export function lettersFor(
  db: Connection,
  letters: DeadLetters,
  retry: Retry,
  { refuseIfStopped, onWrite }: { refuseIfStopped(): void; onWrite(): void },
) {
  return {
    list: unlessRefused(refuseIfStopped, (options?: { limit?: number; after?: number }): DeadLetter[] =>
      letters.list(options),
    ),
    retry: unlessRefused(refuseIfStopped, (id: number): RetryResult => {
      const result = db.patiently(() => retry.one(checkLetterNumber(id)));
      if (result.outcome === 'queued') onWrite();
      return result;
    }),
    discard: unlessRefused(refuseIfStopped, (id: number): void =>
      db.patiently(() => letters.discard(checkLetterNumber(id))),
    ),
  };
}

/** Letters in one automatic attempt: a bounded transaction, however many there are. */
const PAGE = { limit: 200, characters: 256 * 1024 };
/** Letters that are looked at for whether their table and column are here now. */
const LOOK = 5_000;

export class Retry {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;
  readonly #applier: Applier;
  readonly #fillIn: FillIn;
  /** The last letter that has been looked at since the schema changed; undefined where all have been. */
  #lookedUpTo: number | undefined;
  /** The last letter that the automatic attempts at constraints have come to. */
  #triedUpTo = 0;

  constructor(db: Connection, registry: Registry, letters: DeadLetters, applier: Applier) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
    this.#applier = applier;
    this.#fillIn = new FillIn(db, registry, letters, applier);
  }

  /** Tries one letter, whatever it waits for. */
  one(id: number): RetryResult {
    if (this.#letters.isGone(id)) return { outcome: 'gone' };
    const letter = this.#letters.get(id);
    // What it waits for may have come since the last look at the schema, and then this may be all it takes.
    this.#registry.refresh();
    if (!this.#letters.has(id)) return { outcome: 'applied' };
    if (letter.direction === 'out') return this.#queue(letter);
    // It comes back by itself as soon as it may.
    if (letter.code === 'unique') return { outcome: 'kept', reason: letter.reason ?? 'hidden' };
    const waiting = this.#letters.waitingOf(id);
    return this.#tryPossible(waiting ? [waiting] : [])[0] ?? { outcome: 'kept', reason: NOT_KEPT };
  }

  /** From here on letters may be possible that were not before. */
  schemaChanged(): void {
    this.#lookedUpTo = 0;
    this.#fillIn.areHidden = false;
    this.#applier.lateLetters.areWaiting = true;
  }

  /** Are there letters left to look at since the schema changed? */
  get isBehind(): boolean {
    return this.#lookedUpTo !== undefined;
  }

  /**
   * Tries the next letters whose table and column are here now. A page is a bounded piece of work; the caller yields
   * between two. Where it throws, the same page is due again.
   */
  nextPage(): void {
    if (this.#lookedUpTo === undefined) return;
    const tables = this.#registry.list().flatMap(({ name, was, columns, aliases, dropped }) =>
      [name, ...was].map((one) => ({
        name: fold(one),
        columns: [...columns.map((column) => fold(column.name)), ...aliases.keys(), ...dropped],
      })),
    );
    const { ids, upTo } = this.#letters.nowPossible(tables, { after: this.#lookedUpTo, limit: LOOK });
    const within = this.#fitting(ids);
    this.#tryPossible(within.filter(({ code }) => code === 'unknown-column'));
    this.#tryPossible(within.filter(({ code }) => code !== 'unknown-column'));
    this.#lookedUpTo = within.length < ids.length ? within.at(-1)?.id : (upTo ?? undefined);
    this.#applier.lateLetters.areWaiting = this.isBehind || this.#fillIn.areHidden;
  }

  /**
   * Tries changes that could not be written once more, as one batch. What was in the way may be gone by then: a row that
   * a trigger of the application asks for can come from another sender, and later than the one that needs it.
   */
  constraints(): Applied | undefined {
    const page = this.#nextConstraints();
    const { applied, results } = this.#applyAgain(page, true);
    return results.some(({ outcome }) => outcome === 'applied') ? applied : undefined;
  }

  /** The least version of a change that waits for its time; undefined where none does. */
  nextVersion(): number | undefined {
    return this.#letters.nextVersion();
  }

  /** Has the time of that version come? */
  isDue(version: number | undefined): boolean {
    return this.#letters.isDue(version);
  }

  /** Merges the next changes whose time was too far ahead and has come, as if they came now. */
  release(): Applied | undefined {
    const due = this.#letters.due(PAGE);
    const lost = due.filter(({ change }) => change === null);
    if (lost.length > 0) {
      this.#db.transaction(() => {
        for (const { id } of lost) this.#letters.countRetry(id, 'bad-change', NOT_KEPT);
      });
    }
    const whole = due.filter(({ change }) => change !== null);
    return this.#applyAgain(whole, true).applied;
  }

  /** Of one kind: either what they say of columns is filled in, or they are applied. */
  #tryPossible(letters: Waiting[]): RetryResult[] {
    const attempt = (some: Waiting[]): RetryResult[] => {
      if (some.some(({ change }) => change === null)) throw new Error(NOT_KEPT);
      return some[0]?.code === 'unknown-column' ? this.#fillIn.fill(some) : this.#applyAgain(some, false).results;
    };
    return triedTogether(letters, attempt, ({ id, code, change }, why) => {
      const reason = change === null ? why : `${why}; retry this when nothing is in the way any more`;
      this.#db.transaction(() => this.#letters.countRetry(id, code, reason));
      return { outcome: 'kept', reason };
    });
  }

  /** The first of these, as many as make a bounded body. */
  #fitting(ids: number[]): Waiting[] {
    const found: Waiting[] = [];
    let characters = 0;
    for (const id of ids.slice(0, PAGE.limit)) {
      const letter = this.#letters.waitingOf(id);
      characters += letter?.change?.length ?? 0;
      if (found.length > 0 && characters > PAGE.characters) break;
      if (letter) found.push(letter);
    }
    return found;
  }

  /** Each time the next ones: many that are hopeless do not keep the others from their turn. */
  #nextConstraints(): Waiting[] {
    const next = this.#letters.waiting('constraint', { after: this.#triedUpTo, ...PAGE });
    const found = next.length > 0 ? next : this.#letters.waiting('constraint', { after: 0, ...PAGE });
    this.#triedUpTo = found.at(-1)?.id ?? 0;
    return found.filter(({ change }) => change !== null);
  }

  /** It goes to every peer once more; those that have it already find it in place. */
  #queue(letter: DeadLetter): RetryResult {
    if (letter.rowId === null) return { outcome: 'kept', reason: 'the row has no id' };
    this.#db.transaction(() => {
      this.#db.run(
        'INSERT INTO main._changes (op, table_name, row_id, row_data) ' +
          `SELECT d.op, i.table_name, ${storedId('d.row_id')}, d.row_data ` +
          'FROM main._dead_letter AS d LEFT JOIN main._dead_letter_info AS i ON i.dead_id = d.dead_id WHERE d.dead_id = ?',
        letter.id,
      );
      this.#letters.remove(letter.id);
    });
    return { outcome: 'queued' };
  }

  /**
   * Applies letters as one batch. One that lands has no letter any more; what it says of columns that are not here has
   * become a letter about those. One that fails again is counted.
   *
   * Of changes that had to wait for their time, what wins is also recorded for all peers, in the same transaction: a node
   * that has joined meanwhile was given everything but these, and who wrote them may be gone. The letters go after that; if
   * the process dies in between, the changes are found in place, and told once more.
   */
  #applyAgain(letters: Waiting[], wantRows: boolean): { applied?: Applied; results: RetryResult[] } {
    if (letters.length === 0) return { results: [] };
    const body = batchText(0, letters.map(({ change }) => change).join(','));
    const [peer, ...others] = new Set(letters.map((letter) => letter.peer));
    const from = others.length === 0 ? (peer ?? undefined) : undefined;
    const announce = letters.some(({ version }) => version !== null);
    const applied = this.#applier.apply(body, { ...AGAIN, announce, from, wantRows });
    const rejected = new Map(applied.ack.rejected?.map((one) => [one.index, one]));
    const results = letters.map((_, index): RetryResult => {
      const rejection = rejected.get(index);
      return rejection ? { outcome: 'kept', reason: rejection.message } : { outcome: 'applied' };
    });
    this.#db.transaction(() => {
      for (const [index, { id, code }] of letters.entries()) {
        const rejection = rejected.get(index);
        if (!rejection || rejection.code === 'unknown-column') this.#letters.remove(id);
        // A constraint that still stands is tried every minute: what counts is that it does, not how often.
        else if (!wantRows || rejection.code !== code) this.#letters.countRetry(id, rejection.code, rejection.message);
      }
    });
    return { applied, results };
  }
}
