/**
 * Rows that nobody has captured, and that show no time: they were written with the triggers off, or while `syncing` was left
 * at 1. Nothing is known of when that was, so such a row has no version, and no order among what others have written. Whoever
 * comes upon one, in a comparison, in a walk for a peer or where a peer's change meets it, has it recorded first: it gets the
 * version that the triggers would have given it, had it been written at that moment.
 *
 * A row that has a stamp is none of these. The application may not let the stamp in, and the row shows no time for ever.
 */
import type { Connection, Value } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { literal } from '../sqlite/sql.ts';
import { exactString } from '../wire/exact-text.ts';
import { TIMESTAMP_MAX, TIMESTAMP_MIN } from '../wire/protocol.ts';
import { decode, idForWire } from '../wire/values.ts';
import { recordAnew } from './stamps.ts';
import { idOf, timeOf } from './versions.ts';

/**
 * True of a row that has a version, as SQL that is cheap enough to be asked of every row, for who needs no truth value in the
 * other case: it may be NULL. `nearly` is cheaper still, and true of fractions as well. `stamps`: there may be some.
 */
export function hasVersion(table: Table, row: string, stamps: boolean): { is: string; nearly: string } {
  const time = timeOf(table, row);
  const nearly = `${time} BETWEEN ${TIMESTAMP_MIN} AND ${TIMESTAMP_MAX}`;
  const is = `(${nearly} AND ${time} = CAST(${time} AS INTEGER))`;
  if (!stamps) return { is, nearly };
  const stamp = `s.table_name = ${literal(table.name)} AND s.row_id = ${idOf(table, row)}`;
  const either = `(${is} OR EXISTS (SELECT 1 FROM main._stamps AS s WHERE ${stamp}))`;
  return { is: either, nearly: either };
}

/** True of one that has none, and never NULL. */
export function hasNoVersion(table: Table, row: string, stamps: boolean): string {
  return `${hasVersion(table, row, stamps).is} IS NOT TRUE`;
}

export class Uncaptured {
  readonly #db: Connection;
  readonly #warn: (code: string, message: string) => void;
  /** How many rows of each table. */
  readonly #recorded = new Map<string, number>();

  constructor(db: Connection, warn: (code: string, message: string) => void) {
    this.#db = db;
    this.#warn = warn;
  }

  /** Records those of the rows that `ids` selects. Inside a transaction; then they have stamps, which are pending. */
  record(table: Table, ids: string, ...params: Value[]): boolean {
    const id = idOf(table, 't');
    const found = this.#db.all<{ id: Uint8Array }>(
      `SELECT ${idForWire(id)} AS id FROM ${table.target} AS t ` +
        `WHERE ${id} IN (${ids}) AND ${id} IS NOT NULL AND ${hasNoVersion(table, 't', true)}`,
      ...params,
    );
    if (found.length === 0) return false;
    // By their ids, because with the stamp that each gets first it is no such row any more.
    const listed = JSON.stringify(found.map((row) => exactString(row.id)));
    recordAnew(this.#db, table, `${id} IN (SELECT ${decode('value')} FROM json_each(?))`, listed);
    this.#recorded.set(table.name, (this.#recorded.get(table.name) ?? 0) + found.length);
    return true;
  }

  /** Runs a transaction, tried again where it has to be: what was recorded is told when it is committed. */
  during<T>(run: () => T): T {
    this.#recorded.clear();
    const result = run();
    for (const [name, n] of this.#recorded) {
      const [rows, were] = n === 1 ? ['a row', 'it was'] : [`${n} rows`, 'they were'];
      this.#warn(
        'uncaptured',
        `table "${name}" had ${rows} without a usable "updated_at" that nobody had captured: ${were} recorded as if ` +
          'written now; were triggers off, or "syncing" set in _meta?',
      );
    }
    this.#recorded.clear();
    return result;
  }
}
