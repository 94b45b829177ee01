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
  const terms = columns
    .toSorted((a, b) => (fold(a.wireName) < fold(b.wireName) ? -1 : 1))
    .map((column): Term => ({ x: expression(column), affinity: column.affinity }));
  const fits = (some: Term[]): string =>
    most === Infinity || some.length === 0 ? 'true' : `${bytes(some)} <= ${most}`;
  const texts = terms.filter(({ affinity }) => affinity === 'TEXT');
  return (
    `CASE WHEN (${shallow(terms.map(isOdd), ' OR ')}) IS NOT TRUE AND ${fits(texts)} THEN ` +
    `${arrays(terms, (some) => `json_array(${some.map(({ x }) => x).join(', ')})`)} WHEN ${fits(terms)} THEN ` +
    `${arrays(terms, (some) => `'[' || ${shallow(some.map(spelt), " || ',' || ")} || ']'`)} END`
  );
}

/** Of JSON that a row is kept in as a whole, between two that know no schema. */
export function wholeLine(text: string, most: number): string {
  const line = `'+' || ${text} || char(10)`;
  return most === Infinity ? line : `CASE WHEN octet_length(r) <= ${most} THEN ${line} END`;
}

/** `SELECT k, version, 0 AS deleted, line` for rows that are JSON: hidden ones, and all of a hub. */
export function jsonLines(columns: Exclude<Columns, null>, source: string, most = Infinity): string {
  const wanted = columnsOf(columns);
  const list = (one: (i: number) => string): string => wanted.map((_, i) => one(i)).join(', ');
  const fits = most === Infinity ? 'true' : `octet_length(r) <= ${most}`;
  const given = `SELECT k, version, iif(${fits}, r, NULL) AS r FROM (${source}) LIMIT -1`;
  // Each step is a query of its own, because the next one names its outcome many times.
  const extracted =
    `SELECT k, version, r IS NULL AS large, ${list((i) => `${extract(wanted[i] as Column)} AS w${i}`)} ` +
    `FROM (${given}) LIMIT -1`;
  const decoded = `SELECT k, version, large, ${list((i) => `${decode(`w${i}`)} AS d${i}`)} FROM (${extracted}) LIMIT -1`;
  const stored =
    `SELECT k, version, large, ${list((i) => `${affine(`d${i}`, (wanted[i] as Column).affinity)} AS a${i}`)} ` +
    `FROM (${decoded}) LIMIT -1`;
  const line = rowLine(wanted, (column) => `a${wanted.indexOf(column)}`);
  return `SELECT k, version, 0 AS deleted, CASE WHEN NOT large THEN ${line} END AS line FROM (${stored})`;
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

function bytes(terms: Term[]): string {
  return `(${shallow(
    terms.map(({ x }) => `iif(${x} COLLATE BINARY >= '', octet_length(${x}), 0)`),
    ' + ',
  )})`;
}

function arrays(terms: Term[], one: (some: Term[]) => string): string {
  const groups: string[] = [];
  for (let i = 0; i < terms.length; i += VALUES_MAX) groups.push(one(terms.slice(i, i + VALUES_MAX)));
  return groups.join(' || ');
}

/** As json_array has it where that can hold the value. */
function spelt({ x }: Term): string {
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

/** Names are the same in any case; the spelling of the one who asks is looked for first, because that is fast. */
function extract({ name }: Column): string {
  // An array or an object is the text of it; json_each would leave a mark on it, by which json_array took it for one.
  const value = "iif(e.type IN ('array', 'object'), e.value || '', e.value)";
  const anyCase = `(SELECT ${value} FROM json_each(r) AS e WHERE lower(e.key) = ${literal(fold(name))} LIMIT 1)`;
  return /["\\]/.test(name) ? anyCase : `coalesce(r ->> ${literal(`$."${name}"`)}, ${anyCase})`;
}
