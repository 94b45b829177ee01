/**
 * Letters about a column that wait although the column is here: more than fit into one page, or of a row that is hidden.
 * Nobody can tell a NULL that somebody has written since from the one that ALTER TABLE has left. So a change that is later
 * than such a letter and speaks of its column makes the letter void for it.
 */
import type { Registry } from '../capture/registry.ts';
import { valid } from '../capture/versions.ts';
import type { DeadLetters } from '../letters/dead-letters.ts';
import { rowPrint, timeIn } from '../letters/unknown-columns.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import type { BatchDocument } from '../wire/read-batch.ts';
import { canonicalId, storedId } from '../wire/values.ts';
import { columnFor, matchKeys } from './plan.ts';

interface Spoken {
  id: number;
  reason: string;
  unknownColumns: string;
  /** The keys of the row that is later than the letter. */
  keys: string;
}

export class LateLetters {
  /** Where there are none, nobody looks for them. */
  areWaiting = false;
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;

  constructor(db: Connection, registry: Registry, letters: DeadLetters) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
  }

  /** A batch has been merged, in this transaction. */
  heed({ json }: BatchDocument): void {
    if (!this.areWaiting) return;
    for (const table of this.#registry.list()) {
      for (const letter of this.#spokenOf(table, json)) this.#makeVoid(table, letter);
      for (const { id } of this.#deletedBy(table, json)) this.#letters.remove(id);
    }
  }

  /** Letters of rows that the batch has deleted: there is nothing left of which a column could be filled in. */
  #deletedBy(table: Table, json: BatchDocument['json']): { id: number }[] {
    const id = storedId('s.id');
    const isThere = (source: string, column: string): string =>
      `SELECT 1 FROM ${source} AS t WHERE t.${column} = ${id}`;
    const named = `AND t.table_name = ${literal(table.name)}`;
    const changes =
      `SELECT c ->> '$.old_id' AS id FROM (${OBJECTS}) ` +
      "WHERE c ->> '$.op' = 'DELETE' AND (c ->> '$.table') COLLATE NOCASE IN (SELECT value FROM json_each(?)) LIMIT -1";
    return this.#db.all<{ id: number }>(
      `SELECT DISTINCT i.dead_id AS id FROM (${changes}) AS s ` +
        `JOIN main._dead_letter_info AS i ON i.fingerprint = ? || ${canonicalId('s.id')} ` +
        'JOIN main._dead_letter AS d ON d.dead_id = i.dead_id ' +
        `WHERE EXISTS (${isThere('main._tombstones', 'row_id')} ${named} AND t.version >= ${timeIn('d.row_data')}) ` +
        `AND NOT EXISTS (${isThere(table.target, quote(table.id))}) ` +
        `AND NOT EXISTS (${isThere('main._hidden', 'row_id')} ${named})`,
      json,
      JSON.stringify([table.name, ...table.was].map(fold)),
      rowPrint(table.name, ''),
    );
  }

  /** Letters of rows that stand at a later change of the batch, or above that. */
  #spokenOf(table: Table, json: BatchDocument['json']): Spoken[] {
    const names = [table.name, ...table.was].map(fold);
    const field = (name: string): string =>
      `(SELECT e.atom FROM json_each(c, '$.row') AS e WHERE e.key = ${literal(name)} COLLATE NOCASE LIMIT 1)`;
    const keys = "(SELECT json_group_array(e.key) FROM json_each(c, '$.row') AS e)";
    const changes =
      `SELECT ${field(table.id)} AS id, ${field(table.updatedAt)} AS time, ${keys} AS keys FROM (${OBJECTS}) ` +
      "WHERE c ->> '$.op' <> 'DELETE' AND (c ->> '$.table') COLLATE NOCASE IN (SELECT value FROM json_each(?)) LIMIT -1";
    return this.#db.all<Spoken>(
      'SELECT i.dead_id AS id, i.reason AS reason, i.unknown_columns AS unknownColumns, s.keys AS keys ' +
        `FROM (${changes}) AS s JOIN main._dead_letter_info AS i ON i.fingerprint = ? || ${canonicalId('s.id')} ` +
        'JOIN main._dead_letter AS d ON d.dead_id = i.dead_id ' +
        `WHERE s.time > ${timeIn('d.row_data')} AND ${standsAtLeastAt(table, 's.time')}`,
      json,
      JSON.stringify(names),
      rowPrint(table.name, ''),
    );
  }

  #makeVoid(table: Table, { id, reason, unknownColumns, keys }: Spoken): void {
    const said = matchKeys(table, JSON.parse(keys) as string[]).shape.fields.map(({ column }) => column);
    const isSaid = (key: string): boolean => said.some((column) => column === columnFor(table, key));
    const left = (JSON.parse(unknownColumns) as string[]).filter((key) => !isSaid(key));
    if (left.length === 0) this.#letters.remove(id);
    else this.#letters.stillUnknown(id, left, reason);
  }
}

const OBJECTS =
  "SELECT iif(type = 'object', value, '{}') AS c FROM json_each(?, '$.changes') WHERE type = 'object' LIMIT -1";

/** True of a change `s` whose row, visible or hidden, is of that time or a later one: what was refused has said nothing. */
function standsAtLeastAt(table: Table, time: string): string {
  const id = storedId('s.id');
  const shown = `t.${quote(table.updatedAt)}`;
  return (
    `(EXISTS (SELECT 1 FROM ${table.target} AS t WHERE t.${quote(table.id)} = ${id} ` +
    `AND ${valid(shown)} AND ${shown} >= ${time}) ` +
    `OR EXISTS (SELECT 1 FROM main._hidden AS h WHERE h.table_name = ${literal(table.name)} ` +
    `AND h.row_id = ${id} AND h.version >= ${time}))`
  );
}
