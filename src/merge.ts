/**
 * Where a conflict is decided: the version order, as SQL.
 *
 * A row's version is (updated_at, is_delete, content) and the greater one wins, on every node, in any order of arrival.
 * That makes applying changes commutative, associative and idempotent, so a batch can be merged set by set (deletions
 * first, because they only ever make room) instead of change by change, and the outcome is the same.
 *
 * Each function takes a `source`: a SELECT that yields `idx, id, ua, r`, one line per change of one table, `id` decoded,
 * `ua` the change's updated_at and `r` its row as JSON. Fast path and careful path differ in their source alone.
 */
import type { Column, Table } from './capture/schema.ts';
import { literal, quote } from './capture/schema.ts';
import { content, decode } from './capture/values.ts';

/** Which key of the wire row goes into which column; every row that a statement reads has exactly these keys. */
export interface Shape {
  fields: { key: string; column: Column }[];
}

/** The shape of a row from a peer with the same schema. */
export function fullShape(table: Table): Shape {
  return { fields: table.columns.map((column) => ({ key: column.name, column })) };
}

/** A deletion that no newer live row contradicts leaves a tombstone, whether or not the row was there. */
export function entombSql(table: Table, source: string): string {
  return (
    `INSERT INTO _tombstones (table_name, row_id, is_delete, version) SELECT ${literal(table.name)}, s.id, 1, s.ua ` +
    `FROM (${source}) AS s WHERE NOT EXISTS (SELECT 1 FROM ${quote(table.name)} AS t WHERE t.${quote(table.id)} = s.id ` +
    `AND t.${quote(table.updatedAt)} > s.ua) ON CONFLICT DO UPDATE SET version = excluded.version WHERE excluded.version > version`
  );
}

/** Removes the live rows that a deletion of this batch beats. A DELETE wins a tie against a live row. */
export function deleteSql(table: Table, source: string): string {
  return (
    `DELETE FROM ${quote(table.name)} WHERE ${quote(table.id)} IN (SELECT s.id FROM (${source}) AS s ` +
    `JOIN ${quote(table.name)} AS t ON t.${quote(table.id)} = s.id WHERE (t.${quote(table.updatedAt)} > s.ua) IS NOT 1)`
  );
}

/**
 * Writes the rows that beat what is there. Never INSERT OR REPLACE: that would cascade through foreign keys, drop rows
 * that share another unique value, and reset the columns that the sender does not have.
 */
export function upsertSql(table: Table, shape: Shape, source: string): string {
  const target = quote(table.name);
  const columns = shape.fields.map(({ column }) => quote(column.name));
  const assignments = columns.filter((name) => name !== quote(table.id)).map((name) => `${name} = excluded.${name}`);
  const updatedAt = quote(table.updatedAt);
  const beats =
    `(${target}.${updatedAt} >= excluded.${updatedAt}) IS NOT 1 OR (excluded.${updatedAt} = ${target}.${updatedAt} ` +
    `AND ${contentOf(shape, 'excluded')} > ${contentOf(shape, target)})`;
  return (
    `INSERT OR ABORT INTO ${target} (${columns.join(', ')}) SELECT ${decodedFields(shape)} FROM (${extracted(shape, source)}) AS s ` +
    `WHERE ${presence(shape)} AND NOT ${entombed(table)} ` +
    `ON CONFLICT (${quote(table.id)}) DO UPDATE SET ${assignments.join(', ')} WHERE ${beats}`
  );
}

/** For a row that exists: SQLite would check NOT NULL of the missing columns before it looks at the conflict. */
export function updateSql(table: Table, shape: Shape, source: string): string {
  const target = quote(table.name);
  const updatedAt = quote(table.updatedAt);
  const assignments = shape.fields.map(({ column }, i) => `${quote(column.name)} = d.d${i}`);
  const incoming = (column: Column): string => `d.d${shape.fields.findIndex((field) => field.column === column)}`;
  return (
    `UPDATE OR ABORT ${target} SET ${assignments.join(', ')} FROM (SELECT ${decodedFields(shape, true)}, s.id AS id, s.ua AS ua ` +
    `FROM (${extracted(shape, source)}) AS s WHERE ${presence(shape)} LIMIT -1) AS d WHERE ${target}.${quote(table.id)} = d.id ` +
    `AND ((${target}.${updatedAt} >= d.ua) IS NOT 1 OR (${target}.${updatedAt} = d.ua AND ` +
    `${content(columnsOf(shape), incoming)} > ${contentOf(shape, target)}))`
  );
}

/** The changes whose row is exactly as they say after the merge: `idx` and `id` of those that won or were in place. */
export function settledUpsertsSql(table: Table, shape: Shape, source: string): string {
  const incoming = (column: Column): string => `d.d${shape.fields.findIndex((field) => field.column === column)}`;
  return (
    `SELECT d.idx AS idx, d.id AS id FROM (SELECT ${decodedFields(shape, true)}, s.id AS id, s.ua AS ua, s.idx AS idx ` +
    `FROM (${extracted(shape, source)}) AS s LIMIT -1) AS d ` +
    `JOIN ${quote(table.name)} AS t ON t.${quote(table.id)} = d.id WHERE t.${quote(table.updatedAt)} = d.ua ` +
    `AND ${content(columnsOf(shape), incoming)} = ${contentOf(shape, 't')}`
  );
}

export function settledDeletesSql(table: Table, source: string): string {
  return (
    `SELECT s.idx AS idx, s.id AS id FROM (${source}) AS s JOIN _tombstones AS g ON g.table_name = ${literal(table.name)} ` +
    `AND g.row_id = s.id AND g.is_delete = 1 WHERE g.version = s.ua ` +
    `AND NOT EXISTS (SELECT 1 FROM ${quote(table.name)} AS t WHERE t.${quote(table.id)} = s.id)`
  );
}

/** Is there a row in the source that lacks one of the shape's keys? */
export function misshapenSql(shape: Shape, source: string): string {
  return `SELECT EXISTS (SELECT 1 FROM (${extracted(shape, source)}) AS s WHERE NOT (${presence(shape)})) AS n`;
}

/** Reads a key of a JSON object as an SQL value; a quote or backslash in the name is more than a JSON path can spell. */
export function field(json: string, key: string): string {
  if (/["\\]/.test(key)) return `(SELECT value FROM json_each(${json}) WHERE key = ${literal(key)})`;
  return `${json} ->> ${literal(`$."${key}"`)}`;
}

function columnsOf(shape: Shape): Column[] {
  return shape.fields.map(({ column }) => column);
}

/** LIMIT -1 keeps SQLite from flattening the subquery, which would extract every value again wherever it is named. */
function extracted(shape: Shape, source: string): string {
  const fields = shape.fields.map(({ key }, i) => `${field('q.r', key)} AS v${i}`);
  return `SELECT q.idx AS idx, q.id AS id, q.ua AS ua, q.r AS r, ${fields.join(', ')} FROM (${source}) AS q LIMIT -1`;
}

function decodedFields(shape: Shape, named = false): string {
  return shape.fields.map((_, i) => (named ? `${decode(`s.v${i}`)} AS d${i}` : decode(`s.v${i}`))).join(', ');
}

/** A NULL is either a JSON null or a missing key; only then is the object asked. */
function presence(shape: Shape): string {
  const checks = shape.fields.map(({ key }, i) => {
    const there = /["\\]/.test(key)
      ? `EXISTS (SELECT 1 FROM json_each(s.r) WHERE key = ${literal(key)})`
      : `json_type(s.r, ${literal(`$."${key}"`)}) IS NOT NULL`;
    return `(s.v${i} IS NOT NULL OR ${there})`;
  });
  return balanced(checks);
}

/** A conjunction as a shallow tree: SQLite limits the depth of an expression. */
function balanced(terms: string[]): string {
  if (terms.length <= 100) return terms.join(' AND ');
  const groups: string[] = [];
  for (let i = 0; i < terms.length; i += 100) groups.push(`(${terms.slice(i, i + 100).join(' AND ')})`);
  return groups.join(' AND ');
}

function contentOf(shape: Shape, source: string): string {
  return content(columnsOf(shape), (column) => `${source}.${quote(column.name)}`);
}

/** An INSERT or UPDATE at or below a tombstone is stale. */
function entombed(table: Table): string {
  return (
    `EXISTS (SELECT 1 FROM _tombstones AS g WHERE g.table_name = ${literal(table.name)} AND g.row_id = s.id ` +
    'AND g.is_delete = 1 AND g.version >= s.ua)'
  );
}
