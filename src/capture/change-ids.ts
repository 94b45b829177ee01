/** The numbers of `_changes`: never given twice, whatever has been shipped, set aside or deleted meanwhile. */
import type { Connection } from '../sqlite/connection.ts';

/** Whatever is no longer in the table had at most this id: it was shipped or set aside, and that is noted, or acknowledged. */
const LAST_GONE =
  "max(CAST(coalesce((SELECT value FROM _meta WHERE key = 'last_change_id'), 0) AS INTEGER), coalesce((SELECT max(last_acked) FROM _peer_state), 0))";
const LAST_CHANGE_ID = `max(coalesce((SELECT max(change_id) FROM _changes), 0), ${LAST_GONE})`;

/**
 * The id of a single change about to be recorded. NULL is SQLite's own choice, one above the greatest there is, which
 * keepChangeIdsAbove sees to it is great enough; only where the table is empty does it have to be told.
 */
export const NEXT_CHANGE_ID = `iif(EXISTS (SELECT 1 FROM _changes), NULL, ${LAST_GONE} + 1)`;

/** The same where one statement records several: it looks into the table before it writes the first of them. */
export const NEXT_CHANGE_IDS = `${LAST_CHANGE_ID} + row_number() OVER ()`;

export function lastChangeId(db: Connection): number {
  return Number(db.get(`SELECT ${LAST_CHANGE_ID} AS n`)?.n);
}

/** Of a change that is about to be shipped: its id is not given again, even when the table is empty. In a transaction. */
export function noteLastId(db: Connection, last: number): void {
  db.run(
    "INSERT INTO _meta (key, value) VALUES ('last_change_id', CAST(? AS INTEGER)) ON CONFLICT DO UPDATE SET value = excluded.value " +
      "WHERE (typeof(value) = 'integer' AND value >= excluded.value) IS NOT 1",
    last,
  );
}

/**
 * No id up to this one is given again. Where there are changes, new ids follow the greatest of theirs; so if that is less,
 * because the ones above it were taken out, it becomes this one. To be sent again under another number does no harm.
 */
export function keepChangeIdsAbove(db: Connection, last: number): void {
  noteLastId(db, last);
  db.run(
    'UPDATE _changes SET change_id = CAST(? AS INTEGER) WHERE change_id = (SELECT max(change_id) FROM _changes) AND change_id < ?',
    last,
    last,
  );
}
