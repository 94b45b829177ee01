/**
 * Rows that show no time and that nobody has captured: they were written with the triggers off, or while `syncing` was left
 * at 1, or a trigger of the application has taken the time from a received row. Such a row has no version, and so no order
 * among what others have written: no comparison can put it right. It is left as it is, and whoever runs the node is told, by
 * a warning and by its health, until it has been written once more.
 */
import { idOf, isOf, timeOf, valid } from '../capture/versions.ts';
import type { Id } from '../compare/ids.ts';
import { LISTED } from '../compare/sqlite-lines.ts';
import type { Emitter } from '../events.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold, quote } from '../sqlite/sql.ts';
import { exactString } from '../wire/exact-text.ts';
import { idForWire } from '../wire/values.ts';

/** So many are named; of more it is said how many there are. */
const NAMED_MAX = 3;
/** So many are remembered of a table: the rest is found again when these have been seen to. */
const KEPT_MAX = 1_000;

export class UncapturedRows {
  readonly #db: Connection;
  readonly #events: Emitter;
  /** By the folded name of the table. */
  readonly #found = new Map<string, Set<Id>>();

  constructor(db: Connection, events: Emitter) {
    this.#db = db;
    this.#events = events;
  }

  /** These ids are looked at by a comparison, of either side. Not inside a transaction: listeners are called. */
  look(table: Table, ids: Id[]): void {
    const known = this.#found.get(fold(table.name)) ?? new Set();
    const found = this.#among(table, ids).filter((id) => !known.has(id));
    const news = found.slice(0, Math.max(0, KEPT_MAX - known.size));
    if (news.length === 0) return;
    this.#found.set(fold(table.name), new Set([...known, ...news]));
    this.#events.emit('warning', { code: 'not-captured', message: told(table, news) });
  }

  /** Of those that were found, the ones that are so still. */
  problems(tables: Table[]): string[] {
    const left = tables.map((table) => ({
      table,
      ids: this.#among(table, [...(this.#found.get(fold(table.name)) ?? [])]),
    }));
    this.#found.clear();
    for (const { table, ids } of left) if (ids.length > 0) this.#found.set(fold(table.name), new Set(ids));
    return left.flatMap(({ table, ids }) => (ids.length > 0 ? [told(table, ids)] : []));
  }

  #among(table: Table, ids: Id[]): Id[] {
    if (ids.length === 0) return [];
    const id = idOf(table, 't');
    const stamp = `SELECT 1 FROM main._stamps WHERE ${isOf(table, id)}`;
    const sql =
      `SELECT ${idForWire(id)} AS id FROM ${table.target} AS t ` +
      `WHERE ${id} COLLATE BINARY IN (${LISTED}) AND NOT ${valid(timeOf(table, 't'))} AND NOT EXISTS (${stamp})`;
    const rows = this.#db.all<{ id: Uint8Array }>(sql, JSON.stringify(ids));
    return rows.map((row) => exactString(row.id));
  }
}

function told(table: Table, ids: Id[]): string {
  const rows = ids.slice(0, NAMED_MAX).map((id) => JSON.stringify(id.slice(0, 100)));
  const more = ids.length > NAMED_MAX ? ` and ${ids.length - NAMED_MAX} more` : '';
  return (
    `table "${table.name}": ${rows.join(', ')}${more} ${WHY}: ` +
    `UPDATE ${quote(table.name)} SET ${quote(table.updatedAt)} = NULL WHERE ...`
  );
}

const WHY =
  'cannot be compared: no usable time, and not captured. Was the row written with the triggers off, or with "syncing" left ' +
  'at 1 in _meta? No peer has it as it is here. Write it once more';
