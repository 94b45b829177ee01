/** What a node has of rows that the other side does not know of, or that it could not apply itself. */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { exactString } from '../wire/exact-text.ts';
import { idForWire } from '../wire/values.ts';
import type { Id } from './ids.ts';
import { LISTED } from './sqlite-lines.ts';

/** More changes than these that are on their way, and it is not looked which: any of the rows may be among them. */
const LOOKED_THROUGH = 10_000;

/** Of these ids those whose changes are after a position in `_changes`; see SqliteLedgerOptions.watermark. */
export function undeliveredOf(db: Connection, table: Table, ids: Id[], after: number | undefined): Id[] {
  if (after === undefined || ids.length === 0) return [];
  if (after < 0) return ids;
  const pending = 'SELECT table_name, row_id FROM main._changes WHERE change_id > ?';
  const many = db.get<{ n: number }>(`SELECT count(*) AS n FROM (${pending} LIMIT ${LOOKED_THROUGH + 1})`, after);
  if ((many?.n ?? 0) > LOOKED_THROUGH) return ids;
  const rows = db.all<{ id: Uint8Array }>(
    `SELECT ${idForWire('row_id')} AS id FROM (SELECT DISTINCT row_id FROM (${pending}) ` +
      `WHERE table_name COLLATE NOCASE IN (SELECT value FROM json_each(?)) AND row_id IN (${LISTED}))`,
    after,
    JSON.stringify(namesOf(table)),
    JSON.stringify(ids),
  );
  return rows.map(({ id }) => exactString(id));
}

/** Of these ids those for which a change was received that could not be applied. */
export function parkedOf(db: Connection, table: Table, ids: Id[]): Id[] {
  const rows = db.all<{ id: string }>(
    'SELECT DISTINCT d.row_id AS id FROM main._dead_letter_info AS i JOIN main._dead_letter AS d USING (dead_id) ' +
      "WHERE i.direction = 'in' AND i.code NOT IN ('unique', 'unknown-column', 'future-stamp') " +
      'AND i.table_name COLLATE NOCASE IN (SELECT value FROM json_each(?)) AND d.row_id IN (SELECT value FROM json_each(?))',
    JSON.stringify(namesOf(table)),
    JSON.stringify(ids),
  );
  return rows.map(({ id }) => id);
}

/** A change that is on its way has the name that it travels under, and a letter the one that it came under. */
export function namesOf({ name, wireName, was }: Table): string[] {
  return [name, wireName, ...was];
}
