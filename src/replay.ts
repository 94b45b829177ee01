/** Second chances: dead letters tried again, by hand or because the schema has caught up. */
import type { Applied, Applier } from './apply.ts';
import type { Registry } from './capture/registry.ts';
import { fold, quote } from './capture/schema.ts';
import { decode } from './capture/values.ts';
import type { Connection } from './database.ts';
import type { DeadLetter, DeadLetters } from './dead-letters.ts';

/** What came of a retry. `queued`: on its way to the peers again. `kept`: it failed again and stays a letter. */
export type RetryResult = { outcome: 'queued' | 'applied' | 'kept'; reason?: string };

/** Letters in one automatic attempt: a bounded transaction, however many there are. */
const RETRIES_AT_ONCE = 200;

export class Replayer {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;
  readonly #applier: Applier;

  constructor(db: Connection, registry: Registry, letters: DeadLetters, applier: Applier) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
    this.#applier = applier;
  }

  retry(id: number): RetryResult {
    const letter = this.#letters.get(id);
    return letter.direction === 'out' ? this.#queue(letter) : this.#applyAgain(letter);
  }

  /** Replays what was parked for want of a table or a column that is there now, oldest version first. */
  replayParked(): void {
    const ready = this.#letters
      .parked(['unknown-table', 'unknown-column'])
      .filter(({ table }) => table !== null && this.#registry.get(table) !== undefined)
      .sort((a, b) => timeOf(a.change) - timeOf(b.change));
    for (const { id } of ready) this.retry(id);
  }

  /**
   * Tries the changes that a constraint forbade once more, as one batch. What is in the way is often gone by then: the
   * deletion that frees a UNIQUE value can come from another sender, and later than the insert that needs it.
   */
  retryConstraints(): Applied | undefined {
    const letters = this.#letters.parked(['constraint']).slice(0, RETRIES_AT_ONCE);
    if (letters.length === 0) return undefined;
    const result = this.#applier.apply(
      `{"batch_id":0,"changes":[${letters.map(({ change }) => change).join(',')}]}`,
      undefined,
      true,
    );
    const still = new Set(result.ack.rejected?.map(({ index }) => index));
    const settled = letters.filter((_, index) => !still.has(index));
    if (settled.length === 0) return undefined;
    this.#db.transaction(() => {
      for (const { id } of settled) this.#letters.remove(id);
    });
    return { ...result, parked: [] };
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

  #applyAgain(letter: DeadLetter): RetryResult {
    const parked = this.#letters.parkedChange(letter.id);
    if (!parked) return { outcome: 'kept', reason: 'the change itself was not kept' };
    const { ack } = this.#applier.apply(`{"batch_id":0,"changes":[${parked.change}]}`, letter.peer ?? undefined, false);
    const [rejection] = ack.rejected ?? [];
    if (rejection) {
      this.#db.transaction(() => this.#letters.countRetry(letter.id, rejection.code, rejection.message));
      return { outcome: 'kept', reason: rejection.message };
    }
    this.#applier.syncing(() => {
      this.#fill(letter, parked);
      this.#letters.remove(letter.id);
    });
    return { outcome: 'applied' };
  }

  /**
   * The known columns of this change were merged when it came; the unknown ones were never decided by anybody. Whoever
   * wrote the row since then did so without knowing the column either, so its value stands unless the row is gone.
   */
  #fill(letter: DeadLetter, parked: { change: string; unknownColumns: string | null }): void {
    const table = letter.table === null ? undefined : this.#registry.get(letter.table);
    if (!table || parked.unknownColumns === null) return;
    for (const key of JSON.parse(parked.unknownColumns) as string[]) {
      const column = table.columns.find((candidate) => fold(candidate.name) === fold(key));
      if (!column) continue;
      this.#db.run(
        `UPDATE ${quote(table.name)} SET ${quote(column.name)} = (SELECT ${decode('v')} FROM (SELECT e.atom AS v FROM json_each(?, '$.row') AS e WHERE e.key = ?)) ` +
          `WHERE ${quote(table.id)} = (SELECT ${decode('v')} FROM (SELECT ? AS v)) AND ${quote(table.updatedAt)} >= ?`,
        parked.change,
        key,
        letter.rowId,
        timeOf(parked.change),
      );
    }
  }
}

function timeOf(change: string): number {
  const row = (JSON.parse(change) as { row?: Record<string, unknown> | null } | null)?.row ?? {};
  const key = Object.keys(row).find((name) => fold(name) === 'updated_at');
  return key === undefined ? 0 : Number(row[key]);
}
