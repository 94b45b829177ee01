/** Second chances: dead letters tried again, by hand or because the schema has caught up. */

import type { Registry } from '../capture/registry.ts';
import type { DeadLetter, DeadLetters } from '../dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import { fold, quote } from '../sqlite/sql.ts';
import { batchText } from '../wire/body.ts';
import { TIMESTAMP_MAX } from '../wire/protocol.ts';

import { decode } from '../wire/values.ts';
import type { Applied, Applier } from './apply.ts';

/** What came of a retry. `queued`: on its way to the peers again. `kept`: it failed again and stays a letter. */
export type RetryResult = { outcome: 'queued' | 'applied' | 'kept'; reason?: string };

/** Letters in one automatic attempt: a bounded transaction, however many there are. */
const RETRIES_AT_ONCE = 200;
const RETRY_CHARACTERS = 256 * 1024;

export class Replayer {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;
  readonly #applier: Applier;
  #interrupted = false;
  /** The last letter that the automatic attempts have come to. */
  #triedUpTo = 0;

  constructor(db: Connection, registry: Registry, letters: DeadLetters, applier: Applier) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
    this.#applier = applier;
  }

  retry(id: number): RetryResult {
    return this.#retry(id, new Set());
  }

  #retry(id: number, filled: Set<string>): RetryResult {
    const letter = this.#letters.get(id);
    return letter.direction === 'out' ? this.#queue(letter) : this.#applyAgain(letter, filled);
  }

  /** Replays what became a letter for want of a table or a column that is there now, newest version first: it decides. */
  replayUnknown(): void {
    const ready = this.#letters
      .received(['unknown-table', 'unknown-column'])
      .filter(({ table }) => table !== null && this.#registry.get(table) !== undefined)
      .sort((a, b) => timeOf(b.change) - timeOf(a.change));
    const filled = new Set<string>();
    this.#interrupted = ready.length > 0;
    for (const { id } of ready) this.#retry(id, filled);
    this.#interrupted = false;
  }

  /** Goes on with a replay that a lock or a full disk has broken off: the schema will not change again to start it. */
  resume(): void {
    if (this.#interrupted) this.replayUnknown();
  }

  /**
   * Tries the changes that a constraint forbade once more, as one batch. What is in the way is often gone by then: the
   * deletion that frees a UNIQUE value can come from another sender, and later than the insert that needs it.
   */
  retryConstraints(): Applied | undefined {
    const letters = this.#nextConstraints();
    if (letters.length === 0) return undefined;
    const result = this.#applier.apply(batchText(0, letters.map(({ change }) => change).join(',')), undefined, true);
    const still = new Set(result.ack.rejected?.map(({ index }) => index));
    const settled = letters.filter((_, index) => !still.has(index));
    const waiting = result.ack.rejected?.filter(({ code }) => code !== 'constraint') ?? [];
    if (settled.length + waiting.length === 0) return undefined;
    this.#db.transaction(() => {
      // The constraint is satisfied; what is left is a column that is not here yet.
      for (const { index, code, message } of waiting) {
        this.#letters.countRetry((letters[index] as { id: number }).id, code, message);
      }
      for (const { id, unknownColumns } of settled) if (unknownColumns === null) this.#letters.remove(id);
    });
    for (const { id, unknownColumns } of settled) if (unknownColumns !== null) this.retry(id);
    return { ...result, letters: [] };
  }

  /** A bounded number of letters, each time the next ones: many that are hopeless do not keep the others from their turn. */
  #nextConstraints(): ReturnType<DeadLetters['received']> {
    const after = this.#letters.received(['constraint'], { after: this.#triedUpTo, limit: RETRIES_AT_ONCE });
    const found =
      after.length > 0 ? after : this.#letters.received(['constraint'], { after: 0, limit: RETRIES_AT_ONCE });
    let bytes = 0;
    const fitting = found.filter(({ change }, i) => {
      bytes += change.length;
      return i === 0 || bytes <= RETRY_CHARACTERS;
    });
    this.#triedUpTo = fitting.at(-1)?.id ?? 0;
    return fitting;
  }

  /** It goes to every peer once more; those that have it already find it in place. */
  #queue(letter: DeadLetter): RetryResult {
    if (letter.rowId === null) return { outcome: 'kept', reason: 'the row has no id' };
    this.#db.transaction(() => {
      this.#db.run(
        `INSERT INTO _changes (op, table_name, row_id, row_data) SELECT ?, ?, ${decode('v')}, ? FROM (SELECT ? AS v)`,
        letter.op,
        letter.table,
        letter.row,
        letter.rowId,
      );
      this.#letters.remove(letter.id);
    });
    return { outcome: 'queued' };
  }

  #applyAgain(letter: DeadLetter, filled: Set<string>): RetryResult {
    const kept = this.#letters.changeOf(letter.id);
    if (!kept) return { outcome: 'kept', reason: 'the change itself was not kept' };
    const { ack } = this.#applier.apply(batchText(0, kept.change), letter.peer ?? undefined, false);
    const [rejection] = ack.rejected ?? [];
    if (rejection) {
      this.#db.transaction(() => this.#letters.countRetry(letter.id, rejection.code, rejection.message));
      return { outcome: 'kept', reason: rejection.message };
    }
    // A row that still is this version becomes it in full. One that has moved on has been sent without the value, so the
    // value goes out as a write of its own.
    this.#applier.syncing(() => this.#fill(letter, kept, '=', filled));
    this.#db.transaction(() => {
      for (const row of this.#fill(letter, kept, '>', filled)) filled.add(row);
      this.#letters.remove(letter.id);
    });
    return { outcome: 'applied' };
  }

  /**
   * The known columns of this change were merged when it came; the unknown ones were never decided by anybody. Where the
   * column still has what ALTER TABLE gave it, nobody who knows it has written the row since, and the value stands.
   */
  #fill(
    letter: DeadLetter,
    kept: { change: string; unknownColumns: string | null },
    age: '=' | '>',
    filled: Set<string>,
  ): string[] {
    const table = letter.table === null ? undefined : this.#registry.get(letter.table);
    if (!table || kept.unknownColumns === null) return [];
    const t = quote(table.updatedAt);
    const advanced = age === '>' ? `, ${t} = min(${TIMESTAMP_MAX}, ${t} + 1)` : '';
    return (JSON.parse(kept.unknownColumns) as string[]).map((key) => {
      const column = table.columns.find((candidate) => fold(candidate.name) === fold(key));
      const place = JSON.stringify([table.name, letter.rowId, fold(key)]);
      // What a newer letter has said of this column stands, even where it says NULL.
      if (!column || filled.has(place)) return place;
      this.#db.run(
        `UPDATE ${quote(table.name)} SET ${quote(column.name)} = (SELECT ${decode('v')} FROM (SELECT e.atom AS v FROM json_each(?, '$.row') AS e WHERE e.key = ?))${advanced} ` +
          `WHERE ${quote(table.id)} = (SELECT ${decode('v')} FROM (SELECT ? AS v)) AND ${t} ${age} ? ` +
          `AND ${quote(column.name)} COLLATE BINARY IS (${column.fallback})`,
        kept.change,
        key,
        letter.rowId,
        timeOf(kept.change),
      );
      return place;
    });
  }
}

function timeOf(change: string): number {
  const row = (JSON.parse(change) as { row?: Record<string, unknown> | null } | null)?.row ?? {};
  const key = Object.keys(row).find((name) => fold(name) === 'updated_at');
  return key === undefined ? 0 : Number(row[key]);
}
