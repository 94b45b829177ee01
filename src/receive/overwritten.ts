/** What a batch is about to replace without having seen it: the statement that notes it in the conflict journal. */
import { NOTE_INTO, type Notes } from '../journal/journal.ts';
import type { Column, Table } from '../sqlite/schema.ts';
import { BOUND_NUMBER, literal, quote, shallow } from '../sqlite/sql.ts';
import { rowJson } from '../wire/row-json.ts';
import { fieldIn, type Shape } from './merge.ts';
import { type Group, STAGE } from './stage.ts';

/**
 * The changes that say what they have seen. `sql` yields a line `s` for each, with at least `base`; the others are expressions
 * over that line. `row`, as JSON, and `origin` are asked for where something is noted, and not for every change.
 */
interface Seen {
  sql: string;
  id: string;
  ua: string;
  row: string;
  origin: string;
  /** Of rows that are arrays: see `Source`. */
  order?: readonly Column[];
}

/** Those of a regular body, which is bound. `where` leaves out those of other tables. */
export function seenInBody(table: Table, where: string): Seen {
  const keyOf = (column: string): string => table.columns.find(({ name }) => name === column)?.wireName ?? column;
  const field = (c: string, column: string): string => `${c} ->> ${literal(`$.row."${keyOf(column)}"`)}`;
  const fields = `value AS c, value ->> '$.base' AS base, ${field('value', table.id)} AS id`;
  return {
    sql: `SELECT ${fields} FROM jsonb_each(?, '$.changes')${where} LIMIT -1`,
    id: 's.id',
    // Only few are asked for: those of rows that stand above what the change has seen.
    ua: field('s.c', table.updatedAt),
    row: "jsonb_extract(s.c, '$.row')",
    origin: "s.c ->> '$.origin'",
  };
}

/** Those of a group of the careful way, whose number is bound. */
const SEEN_IN_GROUP: Seen = {
  sql: `SELECT id, ua, r, base, origin FROM ${STAGE} WHERE grp = ? AND base IS NOT NULL LIMIT -1`,
  id: 's.id',
  ua: 's.ua',
  row: 's.r',
  origin: 's.origin',
};

/** How many rows of a tabular body are meant, and how many before them are not. */
export const ROWS_BOUND = `${BOUND_NUMBER} OFFSET ${BOUND_NUMBER}`;

/** Those of a tabular body, whose rows have what they have seen behind the columns of their table; bound, and which rows. */
export function seenInRows(table: Table): Seen {
  const at = (column: string): string => `'$[${table.columns.findIndex(({ name }) => name === column)}]'`;
  const fields = `value AS r, value ->> '$[${table.columns.length}]' AS base, value ->> ${at(table.id)} AS id`;
  return {
    sql: `SELECT ${fields} FROM jsonb_each(?, '$.rows') LIMIT ${ROWS_BOUND}`,
    id: 's.id',
    ua: `s.r ->> ${at(table.updatedAt)}`,
    row: 's.r',
    origin: 'NULL',
    order: table.columns,
  };
}

/**
 * Notes what a group of the careful way is about to replace. Who brings a letter again, or fewer columns than there are, may
 * bring what is here already: a tie says nothing then.
 */
export function noteOverwritten(
  notes: Notes | undefined,
  { table, shape, extra, number }: Group,
  isAgain: boolean,
  hasHidden: () => boolean,
): void {
  if (!notes || !shape) return;
  const whole = !isAgain && extra.length === 0 && shape.fields.length === table.columns.length;
  notes.take(table, overwrittenSql(table, whole ? shape : undefined, SEEN_IN_GROUP), number);
  if (hasHidden()) notes.take(table, overwrittenHiddenSql(table, SEEN_IN_GROUP), number);
}

/**
 * Bound are the present time and the sender, and then what the source binds. The source also has `base`, what a change has
 * seen, and `origin`, who made it. Beside a row that stands, a deletion may lose: to an update of a row that its writer saw
 * alive at or below the version of the deletion.
 */
export function overwrittenSql(table: Table, shape: Shape | undefined, source: Seen): string {
  const time = `t.${quote(table.updatedAt)}`;
  const isThere = `t.${quote(table.id)} IS NOT NULL`;
  const newer = `(${source.ua}) > ${time}`;
  const replaced = `${time} > s.base AND (${shape ? `${newer} OR ${tied(table, shape, source)}` : newer})`;
  const undeleted = `g.version >= s.base AND (${source.ua}) > g.version${notHidden(table, source)}`;
  return (
    `${NOTE_INTO} SELECT CAST(? AS INTEGER), coalesce(${source.origin}, ?), ${literal(table.name)}, ` +
    `coalesce(t.${quote(table.id)}, g.row_id), coalesce(${time}, g.version), iif(${isThere}, ${rowJson(table, 't')}, NULL), ` +
    `${source.ua}, s.base FROM (${source.sql}) AS s ` +
    `LEFT JOIN ${table.target} AS t ON t.${quote(table.id)} = ${source.id} ` +
    `LEFT JOIN main._tombstones AS g ON NOT (${isThere}) AND g.table_name = ${literal(table.name)} ` +
    `AND g.row_id = ${source.id} WHERE s.base IS NOT NULL AND iif(${isThere}, ${replaced}, ${undeleted})`
  );
}

/** The same of rows that a UNIQUE value keeps out of their table. */
function overwrittenHiddenSql(table: Table, source: Seen): string {
  return (
    `${NOTE_INTO} SELECT CAST(? AS INTEGER), coalesce(${source.origin}, ?), h.table_name, h.row_id, h.version, h.row_data, ` +
    `${source.ua}, s.base FROM (${source.sql}) AS s CROSS JOIN main._hidden AS h ` +
    `WHERE h.table_name = ${literal(table.name)} AND h.row_id = ${source.id} ` +
    `AND h.version > s.base AND ${source.ua} > h.version`
  );
}

/**
 * Two writes of one time. Where they differ in nothing but columns in which nothing has been written here, it is one and the
 * same write that came before the column did. Which of two is the greater is left to the merge.
 */
function tied(table: Table, shape: Shape, source: Seen): string {
  const differs = shape.fields
    .filter(({ column }) => column.name !== table.id && column.name !== table.updatedAt)
    .map((field) => {
      const { name, fallback } = field.column;
      const here = `t.${quote(name)} COLLATE BINARY`;
      return `(${here} IS NOT ${fieldIn(source.row, field, source)} AND ${here} IS NOT (${fallback}))`;
    });
  if (differs.length === 0) return 'false';
  return `((${source.ua}) = t.${quote(table.updatedAt)} AND (${shallow(differs, ' OR ')}))`;
}

function notHidden(table: Table, source: Seen): string {
  if (table.uniques.length === 0) return '';
  const hidden = `h.table_name = ${literal(table.name)} AND h.row_id = ${source.id}`;
  return ` AND NOT EXISTS (SELECT 1 FROM main._hidden AS h WHERE ${hidden})`;
}
