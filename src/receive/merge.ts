/**
 * Where a conflict is decided: the version order, as SQL.
 *
 * A row's version is (updated_at, is_delete, content) and the greater one wins, on every node, in any order of arrival.
 * That makes applying changes commutative, associative and idempotent, so a batch can be merged set by set instead of
 * change by change, and the outcome is the same.
 */

import { dayOf } from '../capture/floors.ts';
import { valid } from '../capture/versions.ts';
import { type Column, orAbort, type Table } from '../sqlite/schema.ts';
import { conjunction, literal, pathOf, quote } from '../sqlite/sql.ts';
import { content } from '../wire/content.ts';
import { isUnsaid, unsaidColumns } from '../wire/told-json.ts';
import { affine, decode } from '../wire/values.ts';

/** Which key of the wire row goes into which column. */
export interface Shape {
  fields: { key: string; column: Column }[];
}

/**
 * The changes a statement works on. `sql` yields one line per change with at least `idx` and `r`, its row as JSON; `id`,
 * `ua` (the change's updated_at) are expressions over that line, named `s`, which also has each field of the shape as
 * `s.v0`, `s.v1` and so on.
 */
export interface Source {
  sql: string;
  /** What it yields: named one by one, because `*` gives other names where the application has asked for long ones. */
  columns: string[];
  id: string;
  ua: string;
  /** The values are known to need no decoding. */
  verbatim?: boolean;
  /** Its rows may be so large that copies of them count: see `pathOf`. */
  large?: boolean;
  /** There may be rows in its table whose version is a stamp that was refused: what they show as their time may be none. */
  unsure?: boolean;
  /** Its rows are arrays, with the values of these columns in their order. */
  order?: readonly Column[];
}

/** The shape of a row from a peer with the same schema. */
export function fullShape(table: Table): Shape {
  return { fields: table.columns.map((column) => ({ key: column.wireName, column })) };
}

/** Has the shape every column without which the table takes no row? */
export function isInsertable(table: Table, shape: Shape): boolean {
  const supplied = new Set(shape.fields.map(({ column }) => column));
  return table.columns.every((column) => !column.required || supplied.has(column));
}

/** The time that `row` shows. One that is none beats nothing: what loses to the row's stamp was left out before. */
function shown(table: Table, row: string, { unsure }: Source): string {
  const time = `${row}.${quote(table.updatedAt)}`;
  return unsure ? `iif(${valid(time)}, ${time}, NULL)` : time;
}

/** A deletion that no newer live row contradicts leaves a tombstone, whether or not the row was there. */
export function entombSql(table: Table, source: Source): string {
  const day = dayOf(table);
  return (
    `INSERT INTO main._tombstones (table_name, row_id, version${day.column}) ` +
    `SELECT ${literal(table.name)}, ${source.id}, ${source.ua}${day.value} ` +
    `FROM (${extracted(keyShape(table), source)}) AS s WHERE NOT EXISTS (SELECT 1 FROM ${table.target} AS t ` +
    `WHERE t.${quote(table.id)} = ${source.id} AND ${shown(table, 't', source)} > ${source.ua})${notHiddenAbove(table, source)}${news(table, source)} ` +
    `ON CONFLICT DO UPDATE SET version = excluded.version${day.update} WHERE excluded.version > version`
  );
}

/** A row that a UNIQUE value keeps out of its table must not come in by the side; whether there is any is asked once. */
function notHidden(table: Table, source: Source): string {
  if (table.uniques.length === 0) return '';
  const hidden = `main._hidden WHERE table_name = ${literal(table.name)}`;
  return (
    ` AND NOT ((SELECT EXISTS (SELECT 1 FROM ${hidden})) ` +
    `AND EXISTS (SELECT 1 FROM ${hidden} AND row_id = ${source.id}))`
  );
}

/** And it is as live as any: an older deletion says nothing of it. */
function notHiddenAbove(table: Table, source: Source): string {
  if (table.uniques.length === 0) return '';
  return (
    ` AND NOT EXISTS (SELECT 1 FROM main._hidden AS h WHERE h.table_name = ${literal(table.name)} ` +
    `AND h.row_id = ${source.id} AND h.version > ${source.ua})`
  );
}

/** Removes the live rows that a deletion of this batch beats. A DELETE wins a tie against a live row. */
export function deleteSql(table: Table, source: Source): string {
  return `DELETE FROM ${table.target} WHERE ${quote(table.id)} IN (${beatenByDeletesSql(table, source)})`;
}

/** The live rows that a deletion beats. After the merge there are none, unless a trigger has kept them. */
export function beatenByDeletesSql(table: Table, source: Source): string {
  return (
    `SELECT t.${quote(table.id)} FROM (${extracted(keyShape(table), source)}) AS s ` +
    `JOIN ${table.target} AS t ON t.${quote(table.id)} = ${source.id} ` +
    `WHERE (${shown(table, 't', source)} > ${source.ua}) IS NOT 1`
  );
}

/**
 * Writes the rows that beat what is there. Never INSERT OR REPLACE: that would cascade through foreign keys, drop rows
 * that share another unique value, and reset the columns that the sender does not have.
 */
export function upsertSql(table: Table, shape: Shape, source: Source): string {
  // Under an alias: a table may itself be named "excluded".
  const target = '_present';
  const columns = shape.fields.map(({ column }) => quote(column.name));
  const assignments = columns.filter((name) => name !== quote(table.id)).map((name) => `${name} = excluded.${name}`);
  const updatedAt = quote(table.updatedAt);
  const beats =
    `(${shown(table, target, source)} >= excluded.${updatedAt}) IS NOT 1 OR (excluded.${updatedAt} = ${target}.${updatedAt} ` +
    `AND NOT (${sameValues(table, shape, target)}) AND ${outweighs(table, shape, target, (column) => `excluded.${quote(column.name)}`)})`;
  return (
    `INSERT${conflictOf(table)} INTO ${table.target} AS ${target} (${columns.join(', ')}) SELECT ${decodedFields(shape, source).join(', ')} ` +
    `FROM (${extracted(shape, source)}) AS s WHERE NOT ${entombed(table, source)}${notHidden(table, source)}${mayComeIn(table, source)} ` +
    `ON CONFLICT (${quote(table.id)}) DO UPDATE SET ${assignments.join(', ')} WHERE ${beats}`
  );
}

/** For a row that exists: SQLite would check NOT NULL of the missing columns before it looks at the conflict. */
export function updateSql(table: Table, shape: Shape, source: Source): string {
  const target = '_present';
  const updatedAt = quote(table.updatedAt);
  // Not the id, which it has: triggers that are for its change alone are not to fire.
  const assignments = shape.fields.flatMap(({ column }, i) =>
    column.name === table.id ? [] : [`${quote(column.name)} = d.d${i}`],
  );
  // UPDATE has no `excluded`, in which the columns' affinities are applied already; a tie is decided by what is stored.
  const fields = shape.fields.map(({ column }, i) => `${affine(`d${i}`, column.affinity)} AS d${i}`);
  const rows = `SELECT ${fields.join(', ')}, id, ua FROM (${decoded(shape, source)}) LIMIT -1`;
  return (
    `UPDATE${conflictOf(table)} ${table.target} AS ${target} SET ${assignments.join(', ')} FROM (${rows}) AS d ` +
    `WHERE ${target}.${quote(table.id)} = d.id AND ((${shown(table, target, source)} >= d.ua) IS NOT 1 OR (${target}.${updatedAt} = d.ua AND ` +
    `${outweighs(table, shape, target, decodedIn(shape))}))`
  );
}

/**
 * The writes that would still win. The merge leaves none, unless a trigger has kept them out. `those` that only update say
 * nothing of a row that is not there.
 */
export function unwrittenSql(table: Table, shape: Shape, source: Source, those: 'all' | 'updates' = 'all'): string {
  const asked: Source = { ...source, id: 'd.id', ua: 'd.ua' };
  const fields = shape.fields.map(({ column }, i) => `${affine(`d${i}`, column.affinity)} AS d${i}`);
  const rows = `SELECT ${fields.join(', ')}, id, ua FROM (${decoded(shape, source)}) LIMIT -1`;
  const [id, updatedAt] = [`t.${quote(table.id)}`, `t.${quote(table.updatedAt)}`];
  return (
    `SELECT d.id FROM (${rows}) AS d LEFT JOIN ${table.target} AS t ON ${id} = d.id ` +
    `WHERE NOT ${entombed(table, asked)}${notHidden(table, asked)}${mayComeIn(table, asked)} ` +
    `AND ${those === 'all' ? `(${id} IS NULL OR ` : `(${id} IS NOT NULL AND `}((${shown(table, 't', source)} >= d.ua) IS NOT 1 ` +
    `OR (${updatedAt} = d.ua AND ${outweighs(table, shape, 't', decodedIn(shape))})))`
  );
}

/**
 * The writes at the version of a row that does not show it, because the application refuses the stamp, and that do not beat its
 * content. Its time is left out: both have one, whatever the row shows.
 */
export function outweighedSql(table: Table, shape: Shape, source: Source): string {
  const fields = shape.fields.map(({ column }, i) => `${affine(`d${i}`, column.affinity)} AS d${i}`);
  const rows = `SELECT ${fields.join(', ')}, id, ua, idx FROM (${decoded(shape, source)}) LIMIT -1`;
  const others = { fields: shape.fields.filter(({ column }) => column.name !== table.updatedAt) };
  return (
    `SELECT d.idx AS idx FROM (${rows}) AS d JOIN ${table.target} AS t ON t.${quote(table.id)} = d.id ` +
    `JOIN main._stamps AS g ON g.table_name = ${literal(table.name)} AND g.row_id = d.id ` +
    `WHERE g.version = d.ua AND NOT (${outweighs(table, others, 't', decodedIn(shape))})`
  );
}

/** The changes whose row is exactly as they say after the merge: `idx` of those that won or were in place. */
export function settledUpsertsSql(table: Table, shape: Shape, source: Source): string {
  return (
    `SELECT d.idx AS idx FROM (${decoded(shape, source)}) AS d JOIN ${table.target} AS t ON t.${quote(table.id)} = d.id ` +
    `WHERE ${upsertInPlace(table, shape)}`
  );
}

export function settledDeletesSql(table: Table, source: Source): string {
  return (
    `SELECT d.idx AS idx FROM (${decoded(keyShape(table), source)}) AS d LEFT JOIN ${table.target} AS t ` +
    `ON t.${quote(table.id)} = d.id WHERE ${deleteInPlace(table)}`
  );
}

/**
 * How many changes of a table are `applied`. A row whose newest version in this batch is the one that stands counts with
 * all its changes, so the same batch gets the same answer however often it is sent.
 */
export function tallySql(table: Table, shape: Shape, source: Source): string {
  return (
    'SELECT coalesce(sum(iif(placed, n, 0)), 0) AS applied FROM (SELECT count(*) AS n, max(placed) AS placed ' +
    // Decided before the rows are grouped: only the outcome goes through the sorter, not the columns.
    `FROM (SELECT d.id AS id, ${inPlace(table, shape)} AS placed FROM (${decoded(shape, source, ', s.op AS op')}) AS d ` +
    `LEFT JOIN ${table.target} AS t ON t.${quote(table.id)} = d.id LIMIT -1) GROUP BY id)`
  );
}

/** One line where two changes of a row have the same time. */
export function tiesSql(table: Table, source: Source): string {
  return (
    `SELECT 1 AS n FROM (SELECT ${source.id} AS id, ${source.ua} AS ua FROM (${extracted(keyShape(table), source)}) AS s ` +
    'LIMIT -1) GROUP BY id, ua HAVING count(*) > 1 LIMIT 1'
  );
}

/** The changes that `tallySql` counts as applied, with their op and id. */
export function settledRowsSql(table: Table, shape: Shape, source: Source): string {
  return (
    `SELECT op, ${literal(table.name)} AS "table", id FROM (SELECT d.idx AS idx, d.op AS op, d.id AS id, ` +
    `max(${inPlace(table, shape)}) OVER (PARTITION BY d.id) AS placed ` +
    `FROM (${decoded(shape, source, ', s.op AS op')}) AS d ` +
    `LEFT JOIN ${table.target} AS t ON t.${quote(table.id)} = d.id) WHERE placed ORDER BY idx`
  );
}

/**
 * The writes that nobody can judge any more: at or below the floor, of a row that is not live here. It may be one that was
 * deleted, and whose tombstone was collected. Asked after the merge: what the batch itself has brought is live.
 */
export function belowFloorSql(table: Table, source: Source): string {
  const of = `g.table_name = ${literal(table.name)} AND g.row_id = ${source.id}`;
  return (
    `SELECT s.idx AS idx FROM (${extracted(keyShape(table), source)}) AS s ` +
    `WHERE ${source.ua} <= ${table.floor} AND NOT ${isLive(table, source)} ` +
    `AND NOT EXISTS (SELECT 1 FROM main._hidden AS g WHERE ${of}) ` +
    `AND NOT EXISTS (SELECT 1 FROM main._tombstones AS g WHERE ${of} AND g.version >= ${source.ua})`
  );
}

/** Where tombstones are collected, only a row that is live here takes a version that is not above the floor. */
function mayComeIn(table: Table, source: Source): string {
  return table.floor === undefined ? '' : ` AND (${source.ua} > ${table.floor} OR ${isLive(table, source)})`;
}

/** A deletion at or below the floor, of what is not here at all, is known already: it leaves no new tombstone. */
function news(table: Table, source: Source): string {
  if (table.floor === undefined) return '';
  const noted = (where: string): string =>
    `EXISTS (SELECT 1 FROM main.${where} AS g WHERE g.table_name = ${literal(table.name)} AND g.row_id = ${source.id})`;
  const known = [isLive(table, source), noted('_tombstones'), noted('_hidden')].join(' OR ');
  return ` AND (${source.ua} > ${table.floor} OR ${known})`;
}

function isLive(table: Table, source: Source): string {
  return `EXISTS (SELECT 1 FROM ${table.target} AS l WHERE l.${quote(table.id)} = ${source.id})`;
}

/** The two columns that every deletion has. */
export function keyShape(table: Table): Shape {
  return {
    fields: table.columns
      .filter(({ name }) => name === table.id || name === table.updatedAt)
      .map((column) => ({ key: column.wireName, column })),
  };
}

/** Where a column of the shape stands among `s.v0`, `s.v1`, ... */
export function fieldOf(shape: Shape, column: string): string {
  return `s.v${shape.fields.findIndex((f) => f.column.name === column)}`;
}

/** LIMIT -1 keeps SQLite from flattening the subquery, which would extract every value again wherever it is named. */
function extracted(shape: Shape, source: Source): string {
  const fields = shape.fields.map((field, i) => `${fieldIn('q.r', field, source)} AS v${i}`);
  const own = source.columns.map((name) => `q.${name} AS ${name}`);
  return `SELECT ${[...own, ...fields].join(', ')} FROM (${source.sql}) AS q LIMIT -1`;
}

/** Reads a field of a row, be it an object or an array, as an SQL value. */
export function fieldIn(
  row: string,
  { key, column }: Shape['fields'][number],
  of: Pick<Source, 'order' | 'large'>,
): string {
  if (!of.order) return extract(row, key, of.large);
  return `${row} ->> ${pathOf(`$[${of.order.indexOf(column)}]`, of.large === true)}`;
}

/** Reads a key of a JSON object as an SQL value; a quote or backslash in the name is more than a JSON path can spell. */
export function extract(json: string, key: string, large = false): string {
  if (isPathSafe(key)) return `${json} ->> ${pathOf(`$."${key}"`, large)}`;
  // With the sign it is no column of json_each, whose affinity would keep a comparison from converting it.
  return `(SELECT +value FROM json_each(${json}) WHERE key = ${literal(key)} LIMIT 1)`;
}

function isPathSafe(key: string): boolean {
  return !/["\\]/.test(key);
}

function decodedFields(shape: Shape, source: Source): string[] {
  return shape.fields.map((_, i) => (source.verbatim ? `s.v${i}` : decode(`s.v${i}`)));
}

/** The changes with their fields as SQL values `d.d0`, `d.d1`, ..., and `d.id`, `d.ua`, `d.idx`. */
function decoded(shape: Shape, source: Source, more = ''): string {
  const fields = decodedFields(shape, source).map((value, i) => `${value} AS d${i}`);
  return (
    `SELECT ${fields.join(', ')}, ${source.id} AS id, ${source.ua} AS ua, s.idx AS idx${more} ` +
    `FROM (${extracted(shape, source)}) AS s LIMIT -1`
  );
}

function inPlace(table: Table, shape: Shape): string {
  return `iif(d.op = 'DELETE', ${deleteInPlace(table)}, coalesce(${upsertInPlace(table, shape)}, 0))`;
}

/** Compared column by column, because that gives the wire's value the column's affinity, as storing it did. */
function upsertInPlace(table: Table, shape: Shape): string {
  const same = shape.fields.map(
    ({ column }, i) => `t.${quote(column.name)} COLLATE BINARY IS ${asStored(column, `d.d${i}`)}`,
  );
  return `(t.${quote(table.updatedAt)} = d.ua AND ${conjunction(same)})`;
}

/** A comparison does not round an integer beyond 2^53 as storing it in a REAL column does. */
function asStored(column: Column, x: string): string {
  return column.affinity === 'REAL' ? affine(x, 'REAL') : x;
}

function deleteInPlace(table: Table): string {
  const noted = (version: string): string =>
    `EXISTS (SELECT 1 FROM main._tombstones AS g WHERE g.table_name = ${literal(table.name)} ` +
    `AND g.row_id = d.id AND g.version ${version} d.ua)`;
  const collected = table.floor === undefined ? '' : ` OR (d.ua <= ${table.floor} AND NOT ${noted('>')})`;
  const isGone = collected === '' ? noted('=') : `(${noted('=')}${collected})`;
  return `(t.${quote(table.id)} IS NULL AND ${isGone})`;
}

function columnsOf(shape: Shape): Column[] {
  return shape.fields.map(({ column }) => column);
}

/**
 * Of two versions with one time: true where `other` is the greater. A column of which nobody has said yet what is in it
 * here decides nothing (capture/unsaid.ts), and where all the rest is not above, whoever says something of it wins.
 */
function outweighs(table: Table, shape: Shape, target: string, other: (column: Column) => string): string {
  const own = (column: Column): string => `${target}.${quote(column.name)}`;
  const columns = columnsOf(shape);
  const unsaid = unsaidColumns(table).filter((column) => columns.includes(column));
  const masked = (value: (column: Column) => string) => (column: Column) =>
    unsaid.includes(column) ? `iif(${isUnsaid(table, column, target)}, NULL, ${value(column)})` : value(column);
  const [theirs, ours] = [content(columns, masked(other)), content(columns, masked(own))];
  if (unsaid.length === 0) return `${theirs} > ${ours}`;
  const news = unsaid.map(
    (column) => `(${isUnsaid(table, column, target)} AND ${other(column)} COLLATE BINARY IS NOT ${own(column)})`,
  );
  return `(${theirs} > ${ours} OR ((${news.join(' OR ')}) AND ${theirs} = ${ours}))`;
}

function decodedIn(shape: Shape): (column: Column) => string {
  return (column) => `d.d${shape.fields.findIndex((field) => field.column === column)}`;
}

/** What a statement says of conflicts also counts for what the triggers do that it fires: then it says no more than it must. */
export function conflictOf(table: Table): string {
  return table.fires ? orAbort(table) : ' OR ABORT';
}

/** An INSERT or UPDATE at or below a tombstone is stale. Whether there are any at all is asked once per statement. */
export function entombed(table: Table, source: Pick<Source, 'id' | 'ua'>): string {
  const any = `(SELECT EXISTS (SELECT 1 FROM main._tombstones WHERE table_name = ${literal(table.name)}))`;
  return (
    `(${any} AND EXISTS (SELECT 1 FROM main._tombstones AS g WHERE g.table_name = ${literal(table.name)} AND g.row_id = ${source.id} ` +
    `AND g.version >= ${source.ua}))`
  );
}

/**
 * True where writing the row would change nothing, so that a change that is sent again is not worth comparing as text.
 * Where a column takes numbers as they come, 1 and 1.0 are equal and yet different content; those are left to the text.
 */
function sameValues(table: Table, shape: Shape, target: string): string {
  const others = columnsOf(shape).filter(({ name }) => name !== table.id && name !== table.updatedAt);
  const same = others.map(({ name, affinity }) => {
    const [a, b] = [`excluded.${quote(name)}`, `${target}.${quote(name)}`];
    const exact = affinity === 'BLOB' || affinity === 'NUMERIC';
    return `${a} COLLATE BINARY IS ${b}${exact ? ` AND typeof(${a}) = typeof(${b}) AND typeof(${a}) <> 'real'` : ''}`;
  });
  return same.length === 0 ? 'true' : conjunction(same);
}
