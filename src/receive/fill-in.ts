/** Columns that letters have spoken of and that are here now: what was kept for them is put into the rows. */
import type { Registry } from '../capture/registry.ts';
import { sayFilled } from '../capture/unsaid.ts';
import type { DeadLetters, Waiting } from '../letters/dead-letters.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import { orAbort, type Table } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import { batchText } from '../wire/body.ts';
import { TIMESTAMP_MAX } from '../wire/protocol.ts';
import { BOUND_ID, decode, storedId } from '../wire/values.ts';
import { announceFilled } from './announce.ts';
import type { Applier } from './apply.ts';
import { KeptOut } from './kept-out.ts';
import { fieldOf, type Shape, type Source, settledUpsertsSql } from './merge.ts';
import { columnFor, matchKeys } from './plan.ts';
import { AGAIN, type RetryResult } from './tried.ts';

export class FillIn {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;
  readonly #applier: Applier;
  /** Letters about columns that are here have been found to wait for their rows. */
  areHidden = false;

  constructor(db: Connection, registry: Registry, letters: DeadLetters, applier: Applier) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
    this.#applier = applier;
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
  fill(letters: Waiting[]): RetryResult[] {
    const plans = letters.map((letter) => this.#fillPlan(letter));
    const due = plans.filter(({ columns }) => columns.length > 0);
    const keptOut = new Map<Fill, string>();
    const attempt = (plan: Fill, fill: () => void): void => {
      try {
        fill();
      } catch (error) {
        if (!(error instanceof KeptOut)) throw error;
        keptOut.set(plan, `${error.message}; retry this when the trigger lets it`);
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
          this.areHidden = true;
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
    const keys = [...(JSON.parse(letter.unknownColumns ?? '[]') as string[])];
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
    const { shape } = matchKeys(table, keysOfRow(letter.change));
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

/** Throws where there is no row: what is kept would be taken for filled in. */
function keysOfRow(change: string): string[] {
  const { row } = JSON.parse(change) as { row: unknown };
  if (typeof row === 'object' && row !== null && !Array.isArray(row)) return Object.keys(row);
  throw new Error('the row of the change cannot be read');
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
