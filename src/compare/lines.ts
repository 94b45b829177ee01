/**
 * The canonical line of a row or a tombstone, as SQL: what is hashed. A live row is `[<value>,...]`, the columns in the
 * order of their folded names, `updated_at` included; a tombstone is its id and its version. The values are told apart
 * exactly as the version order tells contents apart that were written at one time.
 *
 * SQLite writes the array of an ordinary row in one call. What JSON cannot hold, and what the versions of SQLite print
 * differently, is spelt out value by value: a row with a blob or a fraction costs two to three times as much.
 *
 * A source of these statements is a SELECT that yields `k`, the id as it stands here, `version`, and `r`, a row as JSON.
 */
import { hash } from 'node:crypto';
import type { Affinity, Column } from '../sqlite/schema.ts';
import { fold, literal, shallow } from '../sqlite/sql.ts';
import { affine, decode, encode, finite, scaled } from '../wire/values.ts';
import type { Columns } from './ledger.ts';

/** A value of a row: an expression that is cheap to name more than once, and what its column makes of values. */
interface Term {
  x: string;
  affinity: Affinity;
}

/** Values in one array: SQLite before 3.48 allows 127 arguments. A row of more columns is several arrays. */
const VALUES_MAX = 100;

/** A row's line. Of a row with more than `most` bytes of text and blobs it is NULL. */
export function rowLine(columns: Column[], expression: (column: Column) => string, most = Infinity): string {
  const terms = inOrder(columns, expression);
  // As what a WHEN asks, each of these is a jump; made a value of, as by IS NOT TRUE, all of them are worked out.
  const isUnusual = shallow([...terms.map(isOdd), ...isLarge(terms, most)], ' OR ');
  const fits = most === Infinity ? 'true' : `${bytes(terms)} <= ${most}`;
  return (
    `CASE WHEN ${isUnusual} THEN CASE WHEN ${fits} THEN ` +
    `${arrays(terms, (some) => `'[' || ${shallow(some.map(spelt), " || ',' || ")} || ']'`)} END ` +
    `ELSE ${arrays(terms, array)} END`
  );
}

/**
 * A row's line in the fewest steps, where nothing of it is odd. Fractions are not looked for: each of them, an infinite one as
 * well, is printed with a point, so that lines without one are right. Blobs are, since those that happen to be JSONB would be
 * printed as what they mean. `unusual` is said in place of a row that has one, or more than `most` bytes.
 */
export function plainLine(
  columns: Column[],
  expression: (column: Column) => string,
  most: number,
  unusual: string,
): string {
  const terms = inOrder(columns, expression);
  // In a column of numbers text of any length may stand, or a blob; both are greater than all of them, and to ask that costs least.
  const strange = terms.map(({ x, affinity }) => (affinity === 'TEXT' ? `${x} >= x''` : `${x} > ${GREATEST - 1n}`));
  const isUnusual = shallow([...strange, ...isLarge(terms, most)], ' OR ');
  return `CASE WHEN ${isUnusual} THEN ${unusual} ELSE ${arrays(terms, array)} END`;
}

/** A column of fractions, or one that is as likely as not to hold blobs, makes every line an odd one. */
export function canBePlain(columns: Column[]): boolean {
  return columns.every(({ affinity }) => affinity !== 'REAL' && affinity !== 'BLOB');
}

/** In lines that were spelt so: something may be a fraction, or it is text with a point in it. */
export const POINT = '.';

const GREATEST = 2n ** 63n - 1n;

/** Of JSON that a row is kept in as a whole, between two that know no schema. */
export function wholeLine(text: string, most: number): string {
  const line = `'+' || ${text} || char(10)`;
  return most === Infinity ? line : `CASE WHEN octet_length(r) <= ${most} THEN ${line} END`;
}

/**
 * `SELECT k, version, 0 AS deleted, line` for rows that are JSON: hidden ones, and all of a hub. Each value is looked up by
 * its name, which is fast where there are few; in a row of two thousand, for as many, it takes seconds. There all of
 * them are found in one pass.
 */
export function jsonLines(columns: Exclude<Columns, null>, source: string, most = Infinity): string {
  const wanted = columnsOf(columns);
  const fits = most === Infinity ? 'true' : `octet_length(r) <= ${most}`;
  const given = `SELECT k, version, iif(${fits}, r, NULL) AS r FROM (${source}) LIMIT -1`;
  const isWide = `octet_length(r) > ${NARROW_BYTES} AND (SELECT count(*) FROM json_each(r)) > ${NARROW_KEYS}`;
  const line =
    wanted.length > VALUES_MAX
      ? inOnePass(wanted)
      : `CASE WHEN ${isWide} THEN ${inOnePass(wanted)} ELSE (${byName(wanted)}) END`;
  return `SELECT k, version, 0 AS deleted, CASE WHEN r IS NOT NULL THEN ${line} END AS line FROM (${given})`;
}

/** A row of no more bytes has no more keys than this, or few more. */
const NARROW_BYTES = 2_000;
const NARROW_KEYS = 300;

/** A query for the line of `r`. */
function byName(wanted: Column[]): string {
  const list = (one: (i: number) => string): string => wanted.map((_, i) => one(i)).join(', ');
  // Each step is a query of its own, because the next one names its outcome many times.
  const extracted = `SELECT ${list((i) => `${extract(wanted[i] as Column)} AS w${i}`)} LIMIT -1`;
  const decoded = `SELECT ${list((i) => `${decode(`w${i}`)} AS d${i}`)} FROM (${extracted}) LIMIT -1`;
  const stored =
    `SELECT ${list((i) => `${affine(`d${i}`, (wanted[i] as Column).affinity)} AS a${i}`)} ` +
    `FROM (${decoded}) LIMIT -1`;
  return `SELECT ${rowLine(wanted, (column) => `a${wanted.indexOf(column)}`)} FROM (${stored})`;
}

/** The same of all values at once. As in `extract`, the spelling of the one who asks counts before any other. */
function inOnePass(wanted: Column[]): string {
  const names = wanted
    .toSorted(byWireName)
    .map(({ name, affinity }) => `[${[fold(name), name, affinity].map((text) => JSON.stringify(text)).join()}]`);
  const named =
    'SELECT key AS n, value ->> 0 AS folded, value ->> 1 AS name, value ->> 2 AS affinity ' +
    `FROM json_each(${literal(`[${names.join()}]`)}) LIMIT -1`;
  const keys = `SELECT e.key AS key, ${VALUE} AS v, min(e.id) AS id FROM json_each(r) AS e GROUP BY e.key LIMIT -1`;
  const both =
    `SELECT n, folded, name, affinity, NULL AS key, NULL AS v, NULL AS id FROM (${named}) UNION ALL ` +
    `SELECT NULL, lower(key), NULL, NULL, key, v, id FROM (${keys})`;
  const one = (column: string): string => `max(${column}) OVER same AS ${column}`;
  const together =
    `SELECT ${one('n')}, ${one('name')}, ${one('affinity')}, folded, key, v, id FROM (${both}) ` +
    'WINDOW same AS (PARTITION BY folded) LIMIT -1';
  // The other columns are those of the line that has the least.
  const rank = 'CASE WHEN key IS NULL THEN 9e15 WHEN key = name AND v IS NOT NULL THEN -1 ELSE id END';
  const values = `SELECT n, affinity, v AS w, min(${rank}) FROM (${together}) WHERE n IS NOT NULL GROUP BY folded LIMIT -1`;
  const decoded = `SELECT n, affinity, ${decode('w')} AS d FROM (${values}) LIMIT -1`;
  const kinds = [...new Set(wanted.map(({ affinity }) => affinity))];
  const stored = kinds.map((affinity) => `WHEN ${literal(affinity)} THEN ${affine('d', affinity)}`);
  const texts =
    `SELECT n, ${spelt({ x: 'a' })} AS t FROM ` +
    `(SELECT n, CASE affinity ${stored.join(' ')} END AS a FROM (${decoded}) ORDER BY n LIMIT -1) LIMIT -1`;
  const parts = `SELECT '[' || group_concat(t, ',') || ']' AS part FROM (${texts}) GROUP BY n / ${VALUES_MAX} ORDER BY n / ${VALUES_MAX} LIMIT -1`;
  return `(SELECT group_concat(part, '') FROM (${parts}))`;
}

/** The same for tombstones; `wire` is the id as it travels. */
export function tombstoneLines(source: string, wire = encode('k', 'TEXT')): string {
  const line = `'-' || json_quote(${wire}) || char(10) || version || char(10)`;
  return `SELECT k, version, 1 AS deleted, ${line} AS line FROM (${source})`;
}

export function columnsOf(columns: Record<string, Affinity>): Column[] {
  return Object.entries(columns).map(([name, affinity]) => ({
    name,
    wireName: name,
    affinity,
    required: false,
    fallback: 'NULL',
  }));
}

/** Six bytes: two versions of one row at one time, of which one in 2^48 pairs would look the same. */
export function hashOf(line: Uint8Array): string {
  return hash('sha1', line, 'hex').slice(0, 12);
}

/** True where json_array would fail, or print a fraction in digits of its own; NULL is never odd. */
function isOdd({ x, affinity }: Term): string {
  switch (affinity) {
    case 'TEXT':
      return `${x} >= x''`;
    case 'INTEGER':
    case 'NUMERIC':
      return `${x} <> CAST(${x} AS INTEGER)`;
    case 'REAL':
      return `${x} IS NOT NULL`;
    case 'BLOB':
      return `${x} >= x'' OR typeof(${x}) = 'real'`;
  }
}

/**
 * True where those have too many bytes that are not odd and may have many: what is text in a column of numbers is odd. In
 * so few steps because it is asked of every row.
 */
function isLarge(terms: Term[], most: number): string[] {
  const long = terms.filter(({ affinity }) => affinity === 'TEXT' || affinity === 'BLOB');
  if (most === Infinity || long.length === 0) return [];
  const lengths = long.map(({ x }) => `ifnull(octet_length(${x}), 0)`);
  return [`${shallow(lengths, ' + ')} > ${most}`];
}

function bytes(terms: Term[]): string {
  return `(${shallow(
    terms.map(({ x }) => `iif(${x} COLLATE BINARY >= '', octet_length(${x}), 0)`),
    ' + ',
  )})`;
}

function inOrder(columns: Column[], expression: (column: Column) => string): Term[] {
  return columns.toSorted(byWireName).map((column): Term => ({ x: expression(column), affinity: column.affinity }));
}

function array(terms: Term[]): string {
  return `json_array(${terms.map(({ x }) => x).join(', ')})`;
}

function arrays(terms: Term[], one: (some: Term[]) => string): string {
  const groups: string[] = [];
  for (let i = 0; i < terms.length; i += VALUES_MAX) groups.push(`(${one(terms.slice(i, i + VALUES_MAX))})`);
  return groups.join(' || ');
}

/** As json_array has it where that can hold the value. */
function spelt({ x }: Pick<Term, 'x'>): string {
  return (
    `CASE WHEN ${x} IS NULL THEN 'null' WHEN ${x} >= x'' THEN 'x' || hex(${x}) ` +
    `WHEN ${x} COLLATE BINARY >= '' THEN json_quote(${x} || '') WHEN typeof(${x}) = 'integer' THEN ${x} ` +
    `WHEN ${x} = 0 THEN '0.0' WHEN ${finite(x)} THEN ${real(x)} WHEN ${x} > 0 THEN '9e999' ELSE '-9e999' END`
  );
}

/** The powers of 1024 by which the fractions of daily life become whole numbers, without the steps of `scaled`. */
const USUAL = [-5, -4, -6, -3];

function real(x: string): string {
  const usual = USUAL.map((e) => {
    const [from, to] = [2 ** (52 + 10 * e), 2 ** (62 + 10 * e)];
    const whole = `CAST(${x}${' * 1024.0'.repeat(-e)} AS INTEGER)`;
    return `WHEN abs(${x}) >= ${from} AND abs(${x}) < ${to} THEN ${whole} || 'p${e}'`;
  });
  return `CASE ${usual.join(' ')} ELSE ${scaled(x)} END`;
}

/** An array or an object is the text of it; json_each would leave a mark on it, by which json_array took it for one. */
const VALUE = "iif(e.type IN ('array', 'object'), e.value || '', e.value)";

/** Names are the same in any case; the spelling of the one who asks is looked for first, because that is fast. */
function extract({ name }: Column): string {
  const anyCase = `(SELECT ${VALUE} FROM json_each(r) AS e WHERE lower(e.key) = ${literal(fold(name))} LIMIT 1)`;
  return /["\\]/.test(name) ? anyCase : `coalesce(r ->> ${literal(`$."${name}"`)}, ${anyCase})`;
}

function byWireName(a: Column, b: Column): number {
  return fold(a.wireName) < fold(b.wireName) ? -1 : 1;
}
