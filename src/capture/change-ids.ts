/** The ids of `_changes`: AUTOINCREMENT gives none twice, and here it is seen to that none is below a watermark. */
import type { Connection } from '../sqlite/connection.ts';

/** A person may have written anything into a watermark; what no change can have as its id says nothing of what a peer has. */
const isNoId = (column: string): string =>
  `NOT (typeof(${column}) = 'integer' AND ${column} BETWEEN 0 AND ${Number.MAX_SAFE_INTEGER})`;
const WRITTEN_OVER = `${isNoId('last_acked')} OR (tail_from IS NOT NULL AND ${isNoId('tail_from')})`;

/** The greatest id that anybody may have been told of: as a watermark, or by an earlier build in `_meta`. */
const KNOWN =
  'max(coalesce((SELECT max(last_acked) FROM main._peer_state), 0), ' +
  'coalesce((SELECT max(tail_from) FROM main._peer_state), 0), ' +
  "coalesce((SELECT CAST(value AS INTEGER) FROM main._meta WHERE key = 'last_change_id'), 0))";

/** What AUTOINCREMENT has handed out; a person may have deleted it, or written anything else there. */
const SEQUENCE = "coalesce((SELECT max(CAST(seq AS INTEGER)) FROM main.sqlite_sequence WHERE name = '_changes'), 0)";

/** The greatest id given so far: the next change gets one above. */
export function lastChangeId(db: Connection): number {
  return Number(db.get(`SELECT max(coalesce((SELECT max(change_id) FROM main._changes), 0), ${SEQUENCE}) AS n`)?.n);
}

/**
 * The same, for whoever keeps it as a position. Where ids are behind another one that is left as it is, for `keepIdsAbove`
 * to see. In a transaction.
 */
export function givenUpTo(db: Connection): number {
  const last = lastChangeId(db);
  if (!idsAreBehind(db)) noteGiven(db, last);
  return last;
}

/** Could the next change get an id that a peer has already acknowledged, or is it unknown what one has? */
export function idsAreBehind(db: Connection): boolean {
  const isUnknown = `EXISTS (SELECT 1 FROM main._peer_state WHERE ${WRITTEN_OVER})`;
  return db.get(`SELECT 1 AS n WHERE ${SEQUENCE} < ${KNOWN} OR ${isUnknown}`) !== undefined;
}

/**
 * No id up to the greatest known one is given from here on. Where the sequence had been below a watermark, ids were given
 * that a peer may seem to have: then all changes that are there get new ones, in their order. To be sent again under
 * another id does no harm, and neither does it to send all that waits to a peer of which nothing is known. `atLeast` is what
 * the sequence was before the table was rebuilt. In a transaction.
 */
export function keepIdsAbove(db: Connection, atLeast = 0): void {
  db.run(
    `UPDATE main._peer_state SET last_acked = iif(${isNoId('last_acked')}, 0, last_acked), ` +
      `tail_from = iif(tail_from IS NOT NULL AND ${isNoId('tail_from')}, 0, tail_from) WHERE ${WRITTEN_OVER}`,
  );
  if (atLeast > 0) noteGiven(db, atLeast);
  if (idsAreBehind(db)) {
    const known = Number(
      db.get(`SELECT max(${KNOWN}, coalesce((SELECT max(change_id) FROM main._changes), 0)) AS n`)?.n,
    );
    noteGiven(db, known);
    db.run('UPDATE main._changes SET change_id = change_id + CAST(? AS INTEGER)', known);
    db.run('UPDATE main._peer_state SET asks_after = asks_after + CAST(? AS INTEGER)', known);
  }
  // An id that was written by hand, or moved by us, is above the sequence.
  noteGiven(db, lastChangeId(db));
  db.run("DELETE FROM main._meta WHERE key = 'last_change_id'");
}

/** Of a table that has AUTOINCREMENT, its own or another implementation's; 0 for one that has not. */
export function sequenceOf(db: Connection, table: string): number {
  const known = db.get("SELECT 1 AS n FROM main.sqlite_schema WHERE name = 'sqlite_sequence'");
  const sql = 'SELECT coalesce(max(CAST(seq AS INTEGER)), 0) AS n FROM main.sqlite_sequence WHERE name = ?';
  return known ? Number(db.get(sql, table)?.n) : 0;
}

/**
 * Nobody is told of an id, and none is deleted, before it is noted as given. AUTOINCREMENT does that at the end of a statement;
 * one that fails under OR FAIL, or by RAISE(FAIL), leaves what it has written and ends before that. In a transaction.
 */
export function noteGiven(db: Connection, last: number): void {
  const there = db.get<{ fits: number }>(
    "SELECT min((typeof(seq) = 'integer' AND seq >= ?) IS 1) AS fits FROM main.sqlite_sequence WHERE name = '_changes'",
    last,
  );
  if (there?.fits === 1) return;
  db.exec("DELETE FROM main.sqlite_sequence WHERE name = '_changes'");
  db.run("INSERT INTO main.sqlite_sequence (name, seq) VALUES ('_changes', CAST(? AS INTEGER))", last);
}
