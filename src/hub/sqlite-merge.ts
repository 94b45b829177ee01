/**
 * The version order of receive/merge.ts without a schema: a row is the JSON text it came as.
 *
 * A version is (updated_at, is_delete, content), the greater one wins. The content is computed from the wire values,
 * which are what a node computes it from as well, so hub and nodes decide a tie alike.
 */

import { pathOf } from '../sqlite/sql.ts';
import { isVersion } from '../wire/body.ts';
import { contentOfWire, WIRE_LINE } from '../wire/content.ts';
import { ROW_KEYS_MAX, TABLE_NAME_BYTES_MAX, TIMESTAMP_MAX } from '../wire/protocol.ts';
import { tombstone } from './sqlite-tables.ts';

/**
 * Merges the changes of `source` into `_hub_rows`; bound are the last seq, the sender's id, and what the source binds.
 * A change that does not advance its row is not written, keeps its old seq, and so goes nowhere.
 */
export function mergeSql(source: string): string {
  return (
    'INSERT INTO _hub_rows AS t (seq, op, table_name, row_id, updated_at, origin, base, row_data) ' +
    'SELECT CAST(? AS INTEGER) + 1 + s.idx, s.op, s.tbl, s.id, s.ua, ?, s.base, ' +
    `${storedRow('s')} FROM (${source}) AS s WHERE true ` +
    'ON CONFLICT (table_name, row_id) DO UPDATE SET seq = excluded.seq, op = excluded.op, ' +
    'table_name = excluded.table_name, updated_at = excluded.updated_at, ' +
    // A row that was put together from two is news to its sender as well.
    `origin = iif(${isWhole('t.row_data', 'excluded.row_data')}, excluded.origin, NULL), ` +
    // And what one of the two writers has seen says nothing of it.
    `base = iif(${isWhole('t.row_data', 'excluded.row_data')}, excluded.base, NULL), ` +
    // Who made it is noted afterwards, where that is not who brought it.
    'writer = NULL, ' +
    `row_data = ${mergedRow('t.row_data', 'excluded.row_data')} ` +
    'WHERE excluded.updated_at > t.updated_at OR (excluded.updated_at = t.updated_at AND t.op <> ' +
    `'DELETE' AND (excluded.op = 'DELETE' OR (excluded.row_data <> t.row_data AND ` +
    `${contentOfWire('excluded.row_data')} > ${contentWithin('t.row_data', 'excluded.row_data')})))`
  );
}

/** What is stored of a change. */
export function storedRow(s: string): string {
  return `iif(${s}.op = 'DELETE', ${tombstone(`${s}.id`, `${s}.ua`)}, ${s}.row)`;
}

/**
 * One line per row of `source`: how many changes it has, the last one's index, and whether its newest version is the
 * one that stands.
 */
export function tallySql(source: string): string {
  return (
    'SELECT lower(s.tbl) AS tbl, s.id AS id, count(*) AS n, max(s.idx) AS last, ' +
    'max(coalesce(t.updated_at = s.ua AND ' +
    "iif(s.op = 'DELETE', t.op = 'DELETE', t.op <> 'DELETE' AND (t.row_data = s.row OR " +
    `${contentOfWire('s.row')} = ${contentWithin('t.row_data', 's.row')})), 0)) AS placed FROM (${source}) AS s ` +
    'LEFT JOIN _hub_rows AS t ON t.table_name = s.tbl AND t.row_id = s.id GROUP BY lower(s.tbl), s.id'
  );
}

/**
 * The changes of a body; bound are the body, and the greatest time that is taken. What is regular needs no second look;
 * JSONB is read several times as fast as text. An id of more than `idBytes` is not regular.
 */
export function changesSql(jsonb: boolean, large: boolean, idBytes: number): { regular: string; irregular: string } {
  const isRegular = regularSql(idBytes);
  const [each, extract] = jsonb ? ['jsonb_each', 'jsonb_extract'] : ['json_each', 'json_extract'];
  const at = (key: string): string => pathOf(`$.${key}`, large);
  // What is passed from one to the next is copied: what only irregular ones are asked for is not there for the others.
  const all = (more: string): string => {
    const change =
      `SELECT key AS idx, type AS kind, value AS whole, iif(type = 'object', value, NULL) AS c ` +
      `FROM ${each}(?, '$.changes') LIMIT -1`;
    const fields =
      `SELECT idx, c ->> ${at('op')} AS op, c ->> ${at('table')} AS tbl, c ->> ${at('old_id')} AS old_id, ` +
      `c ->> ${at('base')} AS said, iif(json_type(c, ${at('row')}) = 'object', ${extract}(c, ${at('row')}), NULL) AS r` +
      `${more && ', kind, whole, c'} FROM (${change}) LIMIT -1`;
    return (
      `SELECT idx, op, tbl, old_id, ${BASE} AS base, r ->> ${at('id')} AS id, r ->> ${at('updated_at')} AS ua, ` +
      `json(r) AS row${more} FROM (${fields}) LIMIT -1`
    );
  };
  return {
    regular: `SELECT idx, op, tbl, id, ua, row, base FROM (${all('')}) WHERE ${isRegular}`,
    irregular:
      `SELECT idx, kind, CAST(op AS TEXT) AS op, json_type(c, ${at('op')}) AS op_type, CAST(tbl AS TEXT) AS tbl, ` +
      `json_type(c, ${at('table')}) AS tbl_type, json_type(c, ${at('row')}) AS row_type, ` +
      `CAST(old_id AS TEXT) AS old_id, json_type(c, ${at('old_id')}) AS old_type, base, ` +
      '(SELECT json_group_array(key) FROM json_each(r)) AS keys, row, ' +
      "CASE WHEN kind IN ('object', 'array') THEN json(whole) WHEN kind IN ('true', 'false') THEN kind " +
      'ELSE json_quote(whole) END AS change, ' +
      `CAST(coalesce(r ->> ${at('id')}, old_id) AS TEXT) AS id FROM (${all(', kind, whole, c, r')}) WHERE (${isRegular}) IS NOT 1 ORDER BY idx`,
  };
}

/** `source` without the changes whose indexes are bound, after all else, as a JSON array. */
export function exceptSql(source: string): string {
  return `SELECT idx, op, tbl, id, ua, row, base FROM (${source}) WHERE idx NOT IN (SELECT value FROM json_each(?))`;
}

/** One change that was looked at already: index, op, table, id, updated_at, row and what it has seen are bound. */
export const ONE_CHANGE =
  'SELECT CAST(? AS INTEGER) AS idx, ? AS op, ? AS tbl, ? AS id, CAST(? AS INTEGER) AS ua, ? AS row, CAST(? AS INTEGER) AS base';

/** What an update says that it has seen; NULL where that is none. */
const BASE = `iif(op = 'UPDATE' AND ${isVersion('said')}, said, NULL)`;

/**
 * Nested JSON reads as text that begins with a bracket, encoded ids begin with `$`, true and false read as 1 and 0:
 * all of these are looked at one by one.
 */
function regularSql(idBytes: number): string {
  return (
    `op IN ('INSERT', 'UPDATE', 'DELETE') AND ${scalarText('tbl')} AND tbl <> '' ` +
    `AND ${scalarText('id')} AND NOT (id >= '$' AND id < '%') ` +
    `AND typeof(ua) = 'integer' AND (ua BETWEEN 2 AND ? OR ua BETWEEN -${TIMESTAMP_MAX} AND -1) ` +
    "AND (op <> 'DELETE' OR old_id = id) " +
    // Bytes, not characters: length() counts no further than a NUL.
    `AND length(CAST(tbl AS BLOB)) <= ${TABLE_NAME_BYTES_MAX} ` +
    // A short row has neither too many keys nor too long an id.
    `AND (length(row) <= 10000 OR (SELECT count(*) FROM json_each(row)) <= ${ROW_KEYS_MAX}) ` +
    `AND (length(row) <= ${Math.floor(idBytes / 4)} OR length(CAST(id AS BLOB)) <= ${idBytes})`
  );
}

function scalarText(x: string): string {
  return `typeof(${x}) = 'text' AND NOT (${x} >= '[' AND ${x} < '\\') AND NOT (${x} >= '{' AND ${x} < '|')`;
}

/**
 * A row is updated in the columns that were sent; others, which the sender does not have, keep what they have. The
 * values of both are taken as they are written: `->` gives back a number or text in the very bytes it came in.
 */
function mergedRow(present: string, sent: string): string {
  return (
    `CASE WHEN ${isWhole(present, sent)} THEN ${sent} ELSE substr(${sent}, 1, length(${sent}) - 1) || ` +
    "(SELECT group_concat(',' || json_quote(e.key) || ':' || " +
    `coalesce(${present} -> e.fullkey, json_quote(e.value)), '') FROM (${missing(present, sent)} ORDER BY id) AS e) ` +
    "|| '}' END"
  );
}

/** True where the sent row has every column that is known of it. */
function isWhole(present: string, sent: string): string {
  return (
    `(t.op = 'DELETE' OR excluded.op = 'DELETE' OR ${keysOf(present)} = ${keysOf(sent)} ` +
    `OR NOT EXISTS (${missing(present, sent)}))`
  );
}

/** What the sent row has not. Both are read once: looked up key by key, it would be read for every key of the other. */
function missing(present: string, sent: string): string {
  const all =
    `SELECT id AS id, key AS key, fullkey AS fullkey, value AS value, 0 AS sent FROM json_each(${present}) ` +
    `UNION ALL SELECT NULL, key, NULL, NULL, 1 FROM json_each(${sent})`;
  // Each column by a name that it is given: what it is called otherwise depends on the application's pragmas.
  const columns = 'id AS id, key AS key, fullkey AS fullkey, value AS value';
  const told = `SELECT ${columns}, max(sent) OVER (PARTITION BY lower(key)) AS is_sent FROM (${all})`;
  return `SELECT ${columns} FROM (${told}) WHERE is_sent = 0`;
}

function keysOf(row: string): string {
  return `(SELECT group_concat(key, char(10)) FROM json_each(${row}))`;
}

/** The content of a row for the keys of `sent` alone; what it does not have counts as null. */
function contentWithin(row: string, sent: string): string {
  const lines =
    `SELECT lower(e.key) AS name, ${WIRE_LINE} AS line, 0 AS sent, min(e.id) FROM json_each(${row}) AS e GROUP BY 1 ` +
    `UNION ALL SELECT lower(key), NULL, 1, NULL FROM json_each(${sent})`;
  return (
    "(SELECT group_concat(line, '') FROM (SELECT coalesce(max(line), char(10)) AS line " +
    `FROM (${lines}) GROUP BY name HAVING max(sent) = 1 ORDER BY name))`
  );
}
