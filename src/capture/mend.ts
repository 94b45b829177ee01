/** Rows that were written while no trigger of ours was looking, or one that did not know the present schema. */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { conjunction, inMain, literal, quote } from '../sqlite/sql.ts';
import { TIMESTAMP_MAX } from '../wire/protocol.ts';
import { rowJson } from '../wire/row-json.ts';
import { unsaidColumns } from '../wire/told-json.ts';
import { encode } from '../wire/values.ts';
import { idsAreBehind, keepIdsAbove } from './change-ids.ts';
import { recordAnew, tryRefusedAgain } from './stamps.ts';
import { idOf, NOW, timeOf, tombstoneOf, valid, versionOf } from './versions.ts';

/**
 * Rows written between a schema change and the moment it was noticed were captured by triggers that did not know of it, and
 * their changes may lack a column. Such rows are recorded once more, above what was recorded.
 *
 * A row that shows a time above everything that was recorded of it was received since then, and so was one of the same time
 * that says something else: its sender has told it in full, and told once more from here, above that, it would win over
 * what others have written since.
 */
export function recapture(db: Connection, table: Table, since: number): void {
  const complete = table.columns.map((column) => {
    const isTold = hasKey('row_data', column.wireName);
    const isLeftOut = `SELECT 1 FROM main._unsaid AS u WHERE u.column_name = ${literal(column.name)}`;
    const ofRow = `u.table_name = ${literal(table.name)} AND u.row_id = _changes.row_id`;
    return unsaidColumns(table).includes(column) ? `(${isTold} OR EXISTS (${isLeftOut} AND ${ofRow}))` : isTold;
  });
  // `complete` is that of the newest change of a row: beside max(), SQLite takes bare columns from the row that has it.
  const newest =
    `SELECT row_id, max(row_data ->> ${literal(`$."${table.updatedAt}"`)}) AS version, ` +
    `${conjunction(complete)} AS complete, row_data AS recorded FROM main._changes ` +
    `WHERE change_id > ? AND table_name = ${literal(table.wireName)} ` +
    "AND op <> 'DELETE' AND json_valid(row_data) GROUP BY row_id";
  const time = timeOf(table, 'r');
  const isAnother =
    `EXISTS (SELECT 1 FROM json_each(n.recorded) AS was JOIN json_each(${rowJson(table, 'r')}) AS now ` +
    'ON now.key = was.key WHERE now.atom IS NOT was.atom)';
  const isReceived = `${valid(time)} AND (${time} > n.version OR ${time} = n.version AND ${isAnother})`;
  const lacking =
    `SELECT n.row_id FROM (${newest}) AS n JOIN ${inMain(table.name)} AS r ON ${idOf(table, 'r')} = n.row_id ` +
    `WHERE NOT n.complete AND (${isReceived}) IS NOT TRUE`;
  recordAnew(db, table, `${idOf(table, 't')} IN (${lacking})`, since);
}

/** In a path such a name would have to be escaped, which versions of SQLite read differently. */
function hasKey(json: string, key: string): string {
  if (/["\\]/.test(key)) return `EXISTS (SELECT 1 FROM json_each(${json}) AS e WHERE e.key = ${literal(key)})`;
  return `json_type(${json}, ${literal(`$."${key}"`)}) IS NOT NULL`;
}

/** Rows from before the first attach may have no usable time; without one they have no version. How many there were. */
export function stampInvalid(db: Connection, table: Table): number {
  const invalid = `NOT ${valid(timeOf(table, 't'))} AND ${idOf(table, 't')} IS NOT NULL`;
  const found = db.get<{ n: number }>(`SELECT count(*) AS n FROM ${inMain(table.name)} AS t WHERE ${invalid}`);
  if (!found?.n) return 0;
  recordAnew(db, table, invalid);
  return found.n;
}

/** A row that was deleted, and inserted again unseen, stands at or below its tombstone: every peer would call it stale. */
export function liftAboveTombstones(db: Connection, table: Table): void {
  const deleted = `SELECT row_id FROM main._tombstones WHERE table_name = ${literal(table.name)}`;
  // Of a table that is new there are none, and what follows takes a tenth of an attach to prepare.
  if (!db.get(`${deleted} LIMIT 1`)) return;
  const tombstone = tombstoneOf(table, idOf(table, 't'));
  const below = `${idOf(table, 't')} IN (${deleted}) `;
  recordAnew(db, table, `${below} AND ${versionOf(table, 't')} <= ${tombstone}`);
}

/** What writes of the application may have left behind them. A look-up where they have not. */
export function tidy(db: Connection): void {
  if (idsAreBehind(db)) db.transaction(() => keepIdsAbove(db));
}

/** After a change of the schema, what kept a row hidden, or a stamp from its row, may be no constraint any more. */
export function lookAgain(db: Connection): void {
  tryRefusedAgain(db);
  db.run('UPDATE main._hidden SET blocked_by = NULL, blocked_version = NULL WHERE blocked_by IS NOT NULL');
}

/**
 * Once: versions of an earlier build may be above the ceiling, and nobody could ever write above them. They are brought to
 * the present. No peer takes a lower version for a higher one, so each node does this for itself, and the latest of them
 * stands everywhere. Returns warnings, each a code and a message.
 */
export function heedCeiling(db: Connection, tables: Table[]): [string, string][] {
  if (db.get("SELECT 1 AS n FROM main._meta WHERE key = 'ceiling' AND value = ?", TIMESTAMP_MAX)) return [];
  const warnings: [string, string][] = [];
  for (const table of tables) {
    dropAboveCeiling(db, table);
    const deletions = lowerTombstones(db, table);
    const rows = stampInvalid(db, table);
    if (rows + deletions === 0) continue;
    warnings.push([
      'time-above-ceiling',
      `table "${table.name}" had ${rows} rows and ${deletions} deletions dated after the year 2200 or not at all: ` +
        'they were brought to the present; check the unit of "updated_at", it is milliseconds',
    ]);
  }
  db.exec(
    `INSERT INTO main._meta (key, value) VALUES ('ceiling', ${TIMESTAMP_MAX}) ` +
      'ON CONFLICT DO UPDATE SET value = excluded.value',
  );
  return warnings;
}

function lowerTombstones(db: Connection, table: Table): number {
  const above = `table_name = ${literal(table.name)} AND version > ${TIMESTAMP_MAX}`;
  const found = db.get<{ n: number }>(`SELECT count(*) AS n FROM main._tombstones WHERE ${above}`);
  if (!found?.n) return 0;
  const now = Number(db.get(`SELECT ${NOW} AS now`)?.now);
  const id = encode('g.row_id', 'TEXT');
  const row = `json_object(${literal(table.id)}, ${id}, ${literal(table.updatedAt)}, ${now})`;
  const live = `SELECT 1 FROM ${inMain(table.name)} AS t WHERE t.${quote(table.id)} = g.row_id`;
  db.exec(
    `INSERT INTO main._changes (op, table_name, row_id, row_data) SELECT 'DELETE', ` +
      `${literal(table.wireName)}, row_id, ${row} FROM main._tombstones AS g WHERE ${above} AND NOT EXISTS (${live})`,
  );
  db.exec(`UPDATE main._tombstones SET version = ${now} WHERE ${above}`);
  return found.n;
}

/** Changes that are still pending at a time above the ceiling: each is followed by one of the same row in the present. */
function dropAboveCeiling(db: Connection, table: Table): void {
  const time = `(row_data ->> ${literal(`$."${table.updatedAt}"`)})`;
  db.run(
    `DELETE FROM main._changes WHERE table_name = ${literal(table.wireName)} AND json_valid(row_data) ` +
      `AND typeof(${time}) = 'integer' AND ${time} > ${TIMESTAMP_MAX}`,
  );
}
