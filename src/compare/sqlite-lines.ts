/**
 * What a node holds of a table, as SQL: its rows, the rows that a UNIQUE value hides, and its tombstones, each by the id of
 * its own, and no id twice.
 */
import { RowcastError } from '../errors.ts';
import type { Value } from '../sqlite/connection.ts';
import type { Column, Table } from '../sqlite/schema.ts';
import { fold, literal, quote, shallow } from '../sqlite/sql.ts';
import { changeSql } from '../wire/body.ts';
import { exactString } from '../wire/exact-text.ts';
import { TIMESTAMP_MIN } from '../wire/protocol.ts';
import { toldJson } from '../wire/told-json.ts';
import { affine, decode, encode, idForWire } from '../wire/values.ts';
import { BEFORE_LAST_PART, type Id } from './ids.ts';
import type { Columns, Entry } from './ledger.ts';
import { canBePlain, columnsOf, hashOf, jsonLines, POINT, plainLine, rowLine, tombstoneLines } from './lines.ts';

/** Where the ids of a statement come from: a part of the order, or a list that is bound. */
export interface Choice {
  where(column: string): string;
  params: Value[];
}

/** Rows, hidden rows or tombstones: the id, and where they are. */
export interface Source {
  k: string;
  from: string;
}

/** The ids of a JSON array that is bound, as they stand in a table. */
export const LISTED = `SELECT ${decode('value')} FROM json_each(?)`;

export function listed(ids: Id[]): Choice {
  return { where: (column) => `${column} IN (${LISTED})`, params: [JSON.stringify(ids)] };
}

const LIMIT = 'LIMIT CAST(? AS INTEGER)';

/** A choice is made three times: among the rows, the hidden ones and the tombstones. */
export function threeTimes({ params }: Choice): Value[] {
  return [...params, ...params, ...params];
}

export function sourcesOf(
  table: Table,
  choice: Choice,
  floor?: number,
): { rows: Source; hidden: Source; tombstones: Source } {
  const name = literal(table.name);
  const row = `t.${quote(table.id)} COLLATE BINARY`;
  const live = (id: string): string => `EXISTS (SELECT 1 FROM ${table.target} AS t WHERE ${row} = ${id})`;
  const above = floor === undefined ? '' : ` AND g.version > ${floor}`;
  const isHidden = (id: string): string =>
    `EXISTS (SELECT 1 FROM main._hidden AS o WHERE o.table_name = ${name} AND o.row_id = ${id})`;
  return {
    rows: { k: row, from: `FROM ${table.target} AS t WHERE ${choice.where(row)}` },
    hidden: {
      k: 'h.row_id',
      from:
        `FROM main._hidden AS h WHERE h.table_name = ${name} AND ${choice.where('h.row_id')} ` +
        `AND NOT ${live('h.row_id')}`,
    },
    tombstones: {
      k: 'g.row_id',
      from:
        `FROM main._tombstones AS g WHERE g.table_name = ${name} AND ${choice.where('g.row_id')} ` +
        `AND NOT ${live('g.row_id')} AND NOT ${isHidden('g.row_id')}${above}`,
    },
  };
}

/**
 * What there is besides rows. Hidden rows are JSON: to prepare what reads them takes several times as long as all the rest,
 * and there hardly ever are any.
 */
export type Besides = 'nothing' | 'tombstones' | 'hidden rows';

/** What there is of these at all, so that nothing is prepared, and put in order, for what is not there; binds three times. */
export function presenceOf(table: Table, { where }: Choice): string {
  const own = (name: string): string =>
    `EXISTS (SELECT 1 FROM main.${name} AS o WHERE o.table_name = ${literal(table.name)} AND ${where('o.row_id')})`;
  const rows = `EXISTS (SELECT 1 FROM ${table.target} AS t WHERE ${where(`t.${quote(table.id)} COLLATE BINARY`)})`;
  const besides = `CASE WHEN ${own('_hidden')} THEN 'hidden rows' WHEN ${own('_tombstones')} THEN 'tombstones' ELSE 'nothing' END`;
  return `SELECT ${rows} AS rows, ${besides} AS besides`;
}

/** A row where there is anything before the last part of the order. */
export function anyBeforeLastPart(table: Table): string {
  const presences = BEFORE_LAST_PART.map((part) => presenceOf(table, part));
  return `SELECT 1 AS n FROM (${presences.join(' UNION ALL ')}) WHERE rows OR besides <> 'nothing'`;
}

/** What is spelt: `version` is that of a row `t` as SQL; a row with more than `most` bytes has no line. */
export interface Wanted {
  columns: Columns;
  version: string;
  most: number;
  /** What there is at the most. */
  besides: Besides;
  /** Tombstones up to there are left out. */
  floor?: number | undefined;
}

/** In place of the line of a row that is too large for one. No line has it: JSON spells it out. */
const NO_LINE = 0;

/**
 * The lines of the first rows of a choice, as many as is bound, as one text, where there is nothing but rows: `rows` and
 * `found`. Nothing but the line leaves the inner query, and nothing else is counted: every further column costs a tenth of
 * it all, and so does a further count. The last id is looked up at less than that.
 */
export function joinedRows(table: Table, choice: Choice, wanted: Wanted): string {
  return joined(table, choice, `ifnull(${lineOf(table, wanted)}, char(${NO_LINE}))`);
}

/** The same at five sixths of the cost, where it turns out that nothing of them is odd: see `arePlain`. */
export function plainRows(table: Table, choice: Choice, wanted: Wanted): string {
  const [asked, expression] = askedOf(table, wanted);
  return joined(table, choice, plainLine(asked, expression, wanted.most, `char(${NO_LINE})`));
}

export function mayBePlain(table: Table, columns: Columns): boolean {
  return canBePlain(sharedColumns(table, columns).map(({ asked }) => asked));
}

function joined(table: Table, choice: Choice, line: string): string {
  const { rows } = sourcesOf(table, choice);
  const lines = `SELECT ${line} AS line ${rows.from} ORDER BY ${rows.k} ${LIMIT}`;
  return `SELECT count(*) AS rows, CAST(group_concat(line, '') AS BLOB) AS found FROM (${lines})`;
}

/** Has each of the joined rows a line? */
export function haveLines(found: Uint8Array | null): boolean {
  return found === null || !bufferOf(found).includes(NO_LINE);
}

/** Are these, spelt without a look, what they would be with one? */
export function arePlain(found: Uint8Array | null): boolean {
  return haveLines(found) && (found === null || !bufferOf(found).includes(POINT));
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** `id` of the row that has as many before it as is bound, as it travels. */
export function idOfRow(table: Table, choice: Choice): string {
  const { k, from } = sourcesOf(table, choice).rows;
  return `SELECT ${idForWire(k)} AS id ${from} ORDER BY ${k} LIMIT 1 OFFSET CAST(? AS INTEGER)`;
}

function lineOf(table: Table, wanted: Wanted): string {
  return rowLine(...askedOf(table, wanted), wanted.most);
}

/** The columns that are asked for, and how a row has each. */
function askedOf(table: Table, { columns, version }: Wanted): [Column[], (asked: Column) => string] {
  const wanted = sharedColumns(table, columns);
  return [
    wanted.map(({ asked }) => asked),
    (asked) => stored(table, wanted.find((one) => one.asked === asked)?.own as Column, asked, version),
  ];
}

/** `k`, `version`, `deleted`, `line` of each, in the order of `k`: the first of them, as many as is bound. */
export function linesOf(table: Table, choice: Choice, all: Wanted): string {
  const { columns, version, most, besides, floor } = all;
  const wanted = sharedColumns(table, columns);
  const { rows, hidden, tombstones } = sourcesOf(table, choice, floor);
  const line = lineOf(table, all);
  const live = `SELECT ${rows.k} AS k, ${version} AS version, 0 AS deleted, ${line} AS line ${rows.from}`;
  if (besides === 'nothing') return `${live} ORDER BY k ${LIMIT}`;
  const dead = tombstoneLines(`SELECT ${tombstones.k} AS k, g.version AS version ${tombstones.from}`);
  if (besides === 'tombstones') return `${live} UNION ALL ${dead} ORDER BY k ${LIMIT}`;
  const json = Object.fromEntries(wanted.map(({ asked }) => [asked.name, asked.affinity]));
  // They are sorted after they are spelt: without a limit of their own all would be spelt for the first of them.
  const first = `SELECT h.row_id AS k, h.version AS version, h.row_data AS r ${hidden.from} ORDER BY h.row_id ${LIMIT}`;
  return `${live} UNION ALL ${jsonLines(json, first, most)} UNION ALL ${dead} ORDER BY k ${LIMIT}`;
}

/** What that binds. */
export function linesParams({ params }: Choice, besides: Besides, rows: number): Value[] {
  if (besides === 'nothing') return [...params, rows];
  return besides === 'tombstones' ? [...params, ...params, rows] : [...params, ...params, rows, ...params, rows];
}

/** What is read of lines: all of them as one text, or each by itself. */
export const OF_LINES = {
  plain: plainRows,
  rows: joinedRows,
  joined: (...of: Parameters<typeof linesOf>) =>
    `SELECT count(*) AS rows, count(line) AS lines, ${idForWire('max(k)')} AS last, ` +
    `CAST(group_concat(line, '') AS BLOB) AS found FROM (${linesOf(...of)})`,
  listed: (...of: Parameters<typeof linesOf>) =>
    `SELECT ${idForWire('k')} AS id, version, deleted, CAST(line AS BLOB) AS line FROM (${linesOf(...of)})`,
};

export interface JoinedRows {
  rows: number;
  found: Uint8Array | null;
}

export interface SpeltPart extends JoinedRows {
  lines: number;
  last: Uint8Array | null;
}

export interface ListedRow {
  id: Uint8Array;
  version: number;
  deleted: number;
  line: Uint8Array | null;
}

export function entryOf({ id, version, deleted, line }: ListedRow): Entry {
  const isDeleted = deleted === 1;
  return {
    id: exactString(id),
    // A time that is none (a text, a fraction) is below all others: an answer with one that is no number is read by nobody.
    version: Number.isSafeInteger(Number(version)) ? Number(version) : TIMESTAMP_MIN,
    deleted: isDeleted,
    hash: isDeleted || line === null ? '' : hashOf(line),
  };
}

/** `k` alone, at a fraction of the cost. */
export function idsOf(table: Table, choice: Choice): string {
  const sources = Object.values(sourcesOf(table, choice)).map(({ k, from }) => `SELECT ${k} AS k ${from}`);
  return `${sources.join(' UNION ALL ')} ORDER BY k`;
}

/** `k` and about how many bytes it makes, in the order of `k`. */
export function sizesOf(table: Table, choice: Choice): string {
  const { rows, hidden, tombstones } = sourcesOf(table, choice);
  const lengths = table.columns.map(({ name }) => `coalesce(octet_length(t.${quote(name)}), 4)`);
  const names = table.columns.reduce((sum, { name }) => sum + Buffer.byteLength(name) + 6, 60);
  return [
    `SELECT ${rows.k} AS k, ${shallow(lengths, ' + ')} + ${names} AS bytes ${rows.from}`,
    `SELECT ${hidden.k} AS k, octet_length(h.row_data) + 60 AS bytes ${hidden.from}`,
    `SELECT ${tombstones.k} AS k, 2 * octet_length(g.row_id) + 120 AS bytes ${tombstones.from} ORDER BY k`,
  ].join(' UNION ALL ');
}

/** `change` of each, which brings the other side to what is here, in the order of the ids. */
export function changesOf(table: Table, choice: Choice, version: string): string {
  const { rows, hidden, tombstones } = sourcesOf(table, choice);
  const name = literal(table.wireName);
  const row = toldJson(table, 't', { column: table.updatedAt, by: version });
  const id = encode('g.row_id', 'TEXT');
  const tombstone = `json_object(${literal(table.id)}, ${id}, ${literal(table.updatedAt)}, g.version)`;
  const insert = (json: string): string => changeSql({ op: "'INSERT'", table: name, row: json, oldId: "'null'" });
  const remove = changeSql({ op: "'DELETE'", table: name, row: tombstone, oldId: `json_quote(${id})` });
  const all = [
    `SELECT ${rows.k} AS k, ${insert(row)} AS change ${rows.from}`,
    `SELECT ${hidden.k} AS k, ${insert('h.row_data')} AS change ${hidden.from}`,
    `SELECT ${tombstones.k} AS k, ${remove} AS change ${tombstones.from}`,
  ];
  return `SELECT change FROM (${all.join(' UNION ALL ')}) ORDER BY k`;
}

/** The columns that are asked for, as the asker and as this table has them. */
export function sharedColumns(table: Table, columns: Columns): { asked: Column; own: Column }[] {
  if (columns === null) return table.columns.map((own) => ({ asked: own, own }));
  return columnsOf(columns).map((asked) => {
    const own = table.columns.find(({ wireName }) => fold(wireName) === fold(asked.name));
    if (own) return { asked, own };
    throw new RowcastError('INVALID_TABLE', `table "${table.name}" has no column ${JSON.stringify(asked.name)} here`);
  });
}

function stored(table: Table, own: Column, asked: Column, version: string): string {
  if (own.name === table.updatedAt) return version;
  const value = `t.${quote(own.name)}`;
  return own.affinity === asked.affinity ? value : affine(value, asked.affinity);
}
