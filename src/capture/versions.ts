/**
 * The version of a row, as SQL. It is the row's `updated_at`, or its stamp in `_stamps` where that is greater: a stamp is
 * the version that Rowcast has given to a write which brought none above the last, until it is written into the row.
 */

import type { Table } from '../sqlite/schema.ts';
import { literal, quote } from '../sqlite/sql.ts';
import { TIMESTAMP_MAX, TIMESTAMP_MIN } from '../wire/protocol.ts';
import { rarelyTold, toldByTrigger } from '../wire/told-json.ts';

/** A missing flag row means capture: losing a change is worse than sending one too many. */
export const NOT_SYNCING = "(SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1";

/**
 * As many rows does SET_SYNCING change, one row as many times: for the statement after it, `changes()` says this number,
 * as it seldom does for a statement of the application.
 */
const SYNCING_CHANGES = 7;

/**
 * Stands before what a trigger looks up for the application's write alone, and the gate behind it: of a row that comes from
 * a peer nothing is looked up then but the flag. It decides nothing, because it is true wherever the gate is.
 */
export const SEEMS_LOCAL = `(changes() <> ${SYNCING_CHANGES} OR ${NOT_SYNCING})`;

/** Between the two nothing is captured. Both in one transaction, so that no other connection ever sees the flag set. */
export const SET_SYNCING =
  `INSERT INTO main._meta (key, value) VALUES ${Array(SYNCING_CHANGES).fill("('syncing', 1)").join(', ')} ` +
  'ON CONFLICT DO UPDATE SET value = 1';
export const RESET_SYNCING = "UPDATE main._meta SET value = 0 WHERE key = 'syncing'";

/** SQLite's clock, in milliseconds; julianday works in every version, and only the rare paths ask for the time. */
export const NOW = "CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)";

/** An integer in range. Of what a column of INTEGER affinity can hold in that range, only a fraction is not one. */
export function valid(x: string): string {
  return `((${x} BETWEEN ${TIMESTAMP_MIN} AND ${TIMESTAMP_MAX} AND ${x} = CAST(${x} AS INTEGER)) IS TRUE)`;
}

export function timeOf(table: Table, row: string): string {
  return `${row}.${quote(table.updatedAt)}`;
}

export function idOf(table: Table, row: string): string {
  return `${row}.${quote(table.id)}`;
}

/** A row of `_stamps`, `_tombstones` or `_hidden`. */
export function isOf(table: Table, id: string): string {
  return `table_name = ${literal(table.name)} AND row_id = ${id}`;
}

/** The version of `row`, which is NEW, OLD or an alias; the present where it has none. */
export function versionOf(table: Table, row: string): string {
  const time = timeOf(table, row);
  const stamp =
    `SELECT version FROM _stamps WHERE ${isOf(table, idOf(table, row))} ` +
    `AND NOT (${valid(time)} AND ${time} > version)`;
  return `coalesce((${stamp}), iif(${valid(time)}, ${time}, ${NOW}))`;
}

/** The greatest version that a row is known to have had, by its stamp `s` and by what else is given; each may be NULL. */
export function lastVersion(also: string): string {
  return `max(coalesce(s.version, ${TIMESTAMP_MIN}), coalesce(${also}, ${TIMESTAMP_MIN}))`;
}

/** The version that an id had when it was last seen elsewhere than in the table: deleted, or hidden by a UNIQUE value. */
export function tombstoneOf(table: Table, id: string): string {
  const tombstone = `SELECT version FROM _tombstones WHERE ${isOf(table, id)}`;
  if (table.uniques.length === 0) return `(${tombstone})`;
  return `(SELECT max(version) FROM (${tombstone} UNION ALL SELECT version FROM _hidden WHERE ${isOf(table, id)}))`;
}

/** That, or the floor: what an id may have been before its tombstone was collected. */
export function lastDeletion(table: Table, id: string): string {
  const last = tombstoneOf(table, id);
  return table.floor === undefined ? last : `max(coalesce(${last}, ${table.floor}), ${table.floor})`;
}

/** Notes versions that a row must stay above. `select` yields an id and a version. */
export function noteStamp(table: Table, select: { id: string; version: string; from: string }): string {
  return (
    'INSERT INTO _stamps (table_name, row_id, version) ' +
    `SELECT ${literal(table.name)}, ${select.id}, ${select.version} ${select.from} ` +
    'ON CONFLICT DO UPDATE SET version = max(version, excluded.version), refused = NULL'
  );
}

/**
 * Two statements: the rows `t` that match `where` get a stamp, and are recorded as they stand, with it for `updated_at`. A
 * row that is above `last` by its own time has moved on meanwhile, and whoever moved it has recorded it.
 */
export function recordStamped(table: Table, op: 'INSERT' | 'UPDATE', row: Stamped): string[] {
  const time = timeOf(table, 't');
  const id = idOf(table, 't');
  return [
    noteStampOf(table, row),
    'INSERT INTO _changes (op, table_name, row_id, row_data) ' +
      `SELECT '${op}', ${literal(table.wireName)}, ${id}, ` +
      `${rarelyTold(table, 't', { column: table.updatedAt, by: `coalesce(s.version, ${presentIfInvalid(time)})` })} ` +
      `${withStamps(table)} ` +
      // A row without an id has no stamp; it is recorded so that a letter can say so.
      `WHERE ${row.where} AND (${id} IS NULL OR NOT (${valid(time)} AND ${time} > s.version))`,
  ];
}

/**
 * The same of an update, which also says what it has seen: `last`, where the row still has the id `old`. It is recorded
 * before it gets its stamp, because after that nobody knows the stamp before. Within one trigger both see one time.
 */
export function recordStampedUpdate(table: Table, old: string, row: Stamped): string[] {
  const time = timeOf(table, 't');
  const id = idOf(table, 't');
  const version = `iif(${id} IS NULL, ${presentIfInvalid(time)}, ${stampOf(row)})`;
  const base = `iif(${id} IS ${old}, nullif(${row.last}, ${TIMESTAMP_MIN}), NULL)`;
  return [
    'INSERT INTO _changes (op, table_name, row_id, row_data, base) ' +
      `SELECT 'UPDATE', ${literal(table.wireName)}, ${id}, ` +
      `${toldByTrigger(table, 't', { column: table.updatedAt, by: version })}, ${base} ` +
      `${withStamps(table)} WHERE ${row.where} AND (${id} IS NULL OR ${isBehind(table, row)})`,
    noteStampOf(table, row),
  ];
}

/** Rows `t` with their stamps `s`, the version that they must be above, and the one that they would like to have. */
interface Stamped {
  where: string;
  last: string;
  wanted: string;
}

function noteStampOf(table: Table, row: Stamped): string {
  const id = idOf(table, 't');
  const from = `${withStamps(table)} WHERE ${row.where} AND ${id} IS NOT NULL AND ${isBehind(table, row)}`;
  return noteStamp(table, { id, version: stampOf(row), from });
}

/** Every row has one stamp at the most. */
function withStamps(table: Table): string {
  const stamp = `s.table_name = ${literal(table.name)} AND s.row_id = ${idOf(table, 't')}`;
  return `FROM ${quote(table.name)} AS t LEFT JOIN _stamps AS s ON ${stamp}`;
}

function stampOf({ wanted, last }: Stamped): string {
  return `min(${TIMESTAMP_MAX}, max(${wanted}, ${last} + 1))`;
}

function isBehind(table: Table, { last }: Stamped): string {
  const time = timeOf(table, 't');
  return `NOT (${valid(time)} AND ${time} > ${last})`;
}

export function presentIfInvalid(time: string): string {
  return `iif(${valid(time)}, ${time}, ${NOW})`;
}
