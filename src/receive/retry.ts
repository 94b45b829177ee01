/** Second chances: dead letters tried again, by hand, because the schema has caught up, or because time has passed. */

import type { Registry } from '../capture/registry.ts';
import { sayFilled } from '../capture/unsaid.ts';
import { messageOf } from '../errors.ts';
import { checkLetterNumber, type DeadLetter, type DeadLetters, type Waiting } from '../letters/dead-letters.ts';
import { type Connection, TransactionLost, type Value } from '../sqlite/connection.ts';
import { isMachineFault } from '../sqlite/result-codes.ts';
import { orAbort, type Table } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import { batchText } from '../wire/body.ts';
import { TIMESTAMP_MAX } from '../wire/protocol.ts';
import { BOUND_ID, decode, storedId } from '../wire/values.ts';
import { announceFilled } from './announce.ts';
import type { Applied, Applier } from './apply.ts';
import { KeptOut } from './kept-out.ts';
import { fieldOf, type Shape, type Source, settledUpsertsSql } from './merge.ts';
import { columnFor, matchKeys } from './plan.ts';

/**
 * What came of a retry. `queued`: on its way to the peers again. `kept`: it failed again and stays a letter. `gone`: it was
 * none any more, as when the retry of another letter has brought what it waited for.
 */
export type RetryResult = { outcome: 'queued' | 'applied' | 'kept' | 'gone'; reason?: string };

/** The letters of a node, for its caller. */
export function lettersFor(db: Connection, letters: DeadLetters, retry: Retry, onQueued: () => void) {
  return {
    list: (options?: { limit?: number; after?: number }): DeadLetter[] => letters.list(options),
    retry: (id: number): RetryResult => {
      const result = db.patiently(() => retry.one(checkLetterNumber(id)));
      if (result.outcome === 'queued') onQueued();
      return result;
    },
    discard: (id: number): void => db.patiently(() => letters.discard(checkLetterNumber(id))),
  };
}

/** Letters in one automatic attempt: a bounded transaction, however many there are. */
const PAGE = { limit: 200, characters: 256 * 1024 };
/** Letters that are looked at for whether their table and column are here now. */
const LOOK = 5_000;

/** How letters are applied again: as their own sender's, and nobody wants to hear of the letters among them once more. */
const AGAIN = { isRowcast: true, wantLetters: false, again: true };

export class Retry {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;
  readonly #applier: Applier;
  /** The last letter that has been looked at since the schema changed; undefined where all have been. */
  #lookedUpTo: number | undefined;
  /** Since then, letters about columns that are here have been found to wait for their rows. */
  #areHidden = false;
  /** The last letter that the automatic attempts at constraints have come to. */
  #triedUpTo = 0;

  constructor(db: Connection, registry: Registry, letters: DeadLetters, applier: Applier) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
    this.#applier = applier;
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
    if (waiting?.change == null) return { outcome: 'kept', reason: 'the change itself was not kept' };
    if (waiting.code === 'unknown-column') return this.#fillIn([waiting])[0] as RetryResult;
    return this.#applyAgain([waiting], false).results[0] as RetryResult;
  }

  /** From here on letters may be possible that were not before. */
  schemaChanged(): void {
    this.#lookedUpTo = 0;
    this.#areHidden = false;
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
    const page = ids.slice(0, PAGE.limit).flatMap((id) => this.#letters.waitingOf(id) ?? []);
    const within = fitting(page);
    this.#fillIn(within.filter(({ code }) => code === 'unknown-column'));
    this.#applyAgain(
      within.filter(({ code }) => code !== 'unknown-column'),
      false,
    );
    this.#lookedUpTo = within.length < ids.length ? within.at(-1)?.id : (upTo ?? undefined);
    this.#applier.lateLetters.areWaiting = this.isBehind || this.#areHidden;
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
        for (const { id } of lost) this.#letters.countRetry(id, 'bad-change', 'the change itself was not kept');
      });
    }
    const whole = due.filter(({ change }) => change !== null);
    return this.#applyAgain(whole, true).applied;
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

  /**
   * Fills in columns that are here now. No later change than that of such a letter spoke of the column. So the value is the
   * row's where nobody who knows the column has written it since: it still has what ALTER TABLE gave it, and the row has not
   * been deleted in between. A row that still is this version becomes it in full. One that is another of the same time was
   * chosen without the column, so the two are compared once more. One that has moved on has been sent without the value,
   * so the value goes out as a write of its own.
   *
   * A column that has been here all the time under another name is another matter: see `#overwrite`.
   */
  #fillIn(letters: Waiting[]): RetryResult[] {
    const plans = letters.map((letter) => this.#fillPlan(letter));
    const due = plans.filter(({ columns }) => columns.length > 0);
    const keptOut = new Map<Fill, string>();
    const attempt = (plan: Fill, fill: () => void): void => {
      try {
        this.#db.savepoint(fill);
      } catch (error) {
        if (error instanceof TransactionLost || isMachineFault(error)) throw error;
        // A constraint that the column has, or a trigger: the letters behind it must not wait for that.
        keptOut.set(plan, `${messageOf(error)}; retry this when the table takes it`);
      }
    };
    if (due.length > 0) {
      this.#applier.syncing(() => {
        for (const plan of due) if (this.#stands(plan, 'all')) attempt(plan, () => this.#fill(plan, '='));
      });
      const tied = due.filter((plan) => this.#stands(plan, 'time') && !this.#stands(plan, 'all'));
      if (tied.length > 0)
        this.#applier.apply(batchText(0, tied.map(({ letter }) => letter.change).join(',')), {
          ...AGAIN,
          from: undefined,
          wantRows: false,
        });
    }
    return this.#db.transaction(() =>
      plans.map((plan): RetryResult => {
        const { letter, left } = plan;
        if (this.#isHidden(plan)) {
          this.#areHidden = true;
          return { outcome: 'kept', reason: 'its row is hidden by another; it waits until that changes' };
        }
        if (this.#stands(plan, 'all')) attempt(plan, () => this.#overwrite(plan));
        attempt(plan, () => this.#fill(plan, '>'));
        const ignored = keptOut.get(plan);
        if (ignored !== undefined) {
          this.#letters.countRetry(letter.id, 'unknown-column', ignored);
          return { outcome: 'kept', reason: ignored };
        }
        if (left.length === 0) {
          this.#letters.remove(letter.id);
          return { outcome: 'applied' };
        }
        const names = left.map((key) => JSON.stringify(key)).join(', ');
        const reason = `table "${letter.table}" has no column ${names} here; the others were applied`;
        this.#letters.stillUnknown(letter.id, left, reason);
        if (plan.columns.length === 0) this.#letters.countRetry(letter.id, 'unknown-column', reason);
        return { outcome: 'kept', reason };
      }),
    );
  }

  /** A row that is not in its table has no place for the value yet. */
  #isHidden({ letter, table }: Fill): boolean {
    if (!table || table.uniques.length === 0 || letter.rowId === null) return false;
    const sql = `SELECT 1 AS n FROM main._hidden WHERE table_name = ? AND row_id = ${BOUND_ID}`;
    return this.#db.get(sql, table.name, letter.rowId) !== undefined;
  }

  #fillPlan(letter: Waiting): Fill {
    const table = letter.table === null ? undefined : this.#registry.get(letter.table);
    const keys = JSON.parse(letter.unknownColumns ?? '[]') as string[];
    const columns: Fill['columns'] = [];
    const left: string[] = [];
    const counts = table && table.aliases.size > 0 ? this.#countingKeys(letter, table) : undefined;
    for (const key of keys) {
      const column = table && columnFor(table, key);
      if (column && (!counts || counts.has(key))) columns.push({ key, column });
      else if (column) continue;
      else if (!table?.dropped.has(fold(key))) left.push(key);
    }
    return { letter, table, columns, left };
  }

  /** Is the row what the letter's change says in all columns but the new ones, or at least of its time? */
  #stands({ letter, table, columns }: Fill, what: 'all' | 'time'): boolean {
    if (!table || letter.change === null) return false;
    const { shape } = matchKeys(table, Object.keys((JSON.parse(letter.change) as { row: object }).row));
    const isKey = ({ column: { name } }: Shape['fields'][number]): boolean =>
      name === table.id || name === table.updatedAt;
    const isNew = ({ column }: Shape['fields'][number]): boolean => columns.some((one) => one.column === column);
    const fields = shape.fields.filter((field) => (what === 'time' ? isKey(field) : !isNew(field)));
    const known: Shape = { fields };
    const source: Source = {
      sql: "SELECT 0 AS idx, json_extract(?, '$.row') AS r",
      columns: ['idx', 'r'],
      id: storedId(fieldOf(known, table.id)),
      ua: fieldOf(known, table.updatedAt),
    };
    return this.#db.get(settledUpsertsSql(table, known, source), letter.change) !== undefined;
  }

  /** A row may have a column under two of its names: see matchKeys. */
  #countingKeys({ change }: Waiting, table: Table): Set<string> {
    const keys = this.#db.all<{ key: string }>("SELECT key FROM json_each(?, '$.row')", change);
    const { shape } = matchKeys(
      table,
      keys.map(({ key }) => key),
    );
    return new Set(shape.fields.map(({ key }) => key));
  }

  #fill(plan: Fill, age: '=' | '>'): void {
    const { table } = plan;
    if (!table) return;
    const t = quote(table.updatedAt);
    const advanced = age === '>' ? `, ${t} = min(${TIMESTAMP_MAX}, ${t} + 1)` : '';
    const { change, rowId } = plan.letter;
    let isNews = false;
    for (const { key, column } of plan.columns) {
      const name = quote(column.name);
      const is = `t.${t} ${age} f.time AND t.${name} COLLATE BINARY IS (${column.fallback})`;
      this.#set(table, `${name} = f.value${advanced}`, is, [change, key, rowId]);
      if (this.#db.changes() > 0 && sayFilled(this.#db, table, column, rowId)) isNews = true;
    }
    // The column was gone here and is back. Others may have dropped it as well, and whoever has sent the letter, too.
    if (isNews && age === '=') announceFilled(this.#db, table, rowId);
  }

  /** Writes what a letter has for one key into its row, where the row is as `is` says. */
  #set(table: Table, values: string, is: string, params: Value[]): void {
    const wanted = `(${wantedSql(table)}) AS f WHERE t.${quote(table.id)} = f.row_id AND ${is}`;
    const isDue = table.ignores && this.#db.get(`SELECT 1 AS n FROM ${table.target} AS t, ${wanted}`, ...params);
    this.#db.run(`UPDATE${orAbort(table)} ${table.target} AS t SET ${values} FROM ${wanted}`, ...params);
    if (isDue && this.#db.changes() === 0) throw new KeptOut(table);
  }

  /**
   * The letter spoke of a renamed column by the name that it did not have here. What stands in the column is from before
   * that change, wherever the row is still at its version; so the value is written, as a write of this node's, just above it.
   */
  #overwrite({ letter, table, columns }: Fill): void {
    if (!table) return;
    const renamed = new Set(table.aliases.values());
    const time = quote(table.updatedAt);
    let above = 0;
    for (const { key, column } of columns.filter((one) => renamed.has(one.column))) {
      const name = quote(column.name);
      const values = `${name} = f.value, ${time} = min(${TIMESTAMP_MAX}, t.${time} + 1)`;
      const is = `t.${time} = f.time + ? AND t.${name} COLLATE BINARY IS NOT f.value`;
      this.#set(table, values, is, [letter.change, key, letter.rowId, above]);
      // Another column of the same letter finds the row there.
      above += Math.min(1, this.#db.changes());
    }
  }
}

interface Fill {
  letter: Waiting;
  table: Table | undefined;
  columns: { key: string; column: Table['columns'][number] }[];
  /** Keys for which there is still no column. */
  left: string[];
}

/** As many as make a bounded body. */
function fitting(letters: Waiting[]): Waiting[] {
  let characters = 0;
  return letters.filter(({ change }, i) => {
    characters += change?.length ?? 0;
    return i === 0 || characters <= PAGE.characters;
  });
}

/** One line with the value of a letter for one key, its row and its time; none where the row was deleted since. */
function wantedSql(table: Table): string {
  const time = "(SELECT e.atom FROM json_each(w.change, '$.row') AS e WHERE lower(e.key) = 'updated_at')";
  const deleted =
    `EXISTS (SELECT 1 FROM main._tombstones AS g WHERE g.table_name = ${literal(table.name)} ` +
    'AND g.row_id = w.row_id AND g.version >= w.time)';
  const value =
    `SELECT ${decode('v')} FROM ` +
    "(SELECT e.atom AS v FROM json_each(w.change, '$.row') AS e WHERE e.key = w.key LIMIT 1)";
  return (
    `SELECT (${value}) AS value, row_id, time FROM (SELECT w.change AS change, w.key AS key, w.row_id AS row_id, ${time} AS time FROM ` +
    `(SELECT ? AS change, ? AS key, ${BOUND_ID} AS row_id LIMIT -1) AS w LIMIT -1) AS w ` +
    `WHERE NOT ${deleted} LIMIT -1`
  );
}
