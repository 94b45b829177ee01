/**
 * Values on the wire, as SQL expressions: `encode` turns a column into what JSON can carry, and `decode` turns it back.
 *
 * JSON has no bytes, no infinities, and its integers stop being exact at 2^53 in most readers. What it cannot carry
 * travels as a string: a plain decimal where the column's affinity restores it, a `$`-prefixed one where nothing would.
 * Text that happens to begin like one of our prefixes is escaped with `$text:`. Text that is not UTF-8 keeps its bytes
 * here; exact-text.ts spells it out where it leaves.
 *
 * A REAL is written as SQLite prints it where that reads back as the same number, and with 17 digits where not: SQLite
 * before 3.53 prints 15, and rounds. Triggers stay in the file whichever SQLite opens it next, so they ask as they run.
 * (Those versions also convert numbers beyond about 1e-80 and 1e110 inexactly, in both directions.)
 *
 * The expressions run inside the application's own write. The first branch of each CASE is therefore the ordinary value,
 * decided by comparisons alone: numbers sort below text and text below blobs, so `x >= x''` means "is a blob",
 * `x >= '$' AND x < '%'` means "is text that begins with $", and text from `%` on is neither.
 */

import { RowcastError } from '../errors.ts';
import type { Affinity } from '../sqlite/schema.ts';
import { PREFIXES } from './exact-text.ts';

/** The greatest integer that every reader of JSON takes for what it is. */
export const SAFE = Number.MAX_SAFE_INTEGER;
const REAL_MAX = '1.7976931348623157e308';

export function encode(x: string, affinity: Affinity): string {
  switch (affinity) {
    case 'TEXT':
      return (
        `CASE WHEN ${x} COLLATE BINARY >= '%' AND ${x} < x'' THEN ${plainText(x)} ` +
        `WHEN ${x} >= x'' THEN ${blob(x)} WHEN ${dollar(x)} THEN ${escaped(x)} ELSE ${plainText(x)} END`
      );
    case 'INTEGER':
    case 'NUMERIC':
      return (
        `CASE WHEN ${x} BETWEEN -${SAFE} AND ${SAFE} AND typeof(${x}) = 'integer' THEN ${x} ` +
        `ELSE ${unusual(x, affinity)} END`
      );
    case 'REAL':
      return `CASE WHEN ${finite(x)} AND ${isPrintedExactly(x)} THEN ${x} ELSE ${unusual(x, affinity)} END`;
    case 'BLOB':
      return unusual(x, affinity);
  }
}

/** The inverse of `encode`; `x` must be cheap to name more than once. */
export function decode(x: string): string {
  return (
    `CASE WHEN ${dollar(x)} THEN CASE ` +
    // By way of bytes: substr of text would stop at a NUL character.
    `WHEN ${x} GLOB '$text:*' THEN CAST(substr(CAST(${x} AS BLOB), 7) AS TEXT) ` +
    `WHEN ${x} GLOB '$blob:*' AND ${isWhole(x)} THEN coalesce(unhex(substr(${x}, 7)), ${x}) ` +
    `WHEN ${x} GLOB '$bytes:*' AND ${isWhole(x)} THEN coalesce(${ofBytes(x)}, ${x}) ` +
    `WHEN ${x} GLOB '$int:*' THEN CAST(substr(${x}, 6) AS INTEGER) ` +
    `WHEN ${x} GLOB '$real:*' THEN CAST(substr(${x}, 7) AS REAL) ` +
    `ELSE ${x} END ELSE ${x} END`
  );
}

/** An id as the key column stores it. */
export function storedId(wire: string): string {
  const value = decode(wire);
  return `CASE WHEN ${dollar(wire)} THEN iif(typeof(${value}) = 'blob', ${value}, CAST(${value} AS TEXT)) ELSE ${wire} END`;
}

/** The same of an id that is bound. */
export const BOUND_ID = `(SELECT ${storedId('v')} FROM (SELECT ? AS v LIMIT -1))`;

/**
 * An id in the one form in which every node would write it; only those that begin with `$` have several, and of these
 * the ones that are bytes are left to `inOneSpelling`.
 */
export function canonicalId(wire: string): string {
  const anew = `(SELECT ${encode('x', 'TEXT')} FROM (SELECT ${storedId(wire)} AS x LIMIT -1))`;
  return `CASE WHEN ${dollar(wire)} THEN CASE WHEN ${isBytes(wire)} THEN ${wire} ELSE ${anew} END ELSE ${wire} END`;
}

/** A stored id on its way to JavaScript, as bytes: `exactString` makes of them what travels. */
export function idForWire(x: string): string {
  return `CAST(${encode(x, 'TEXT')} AS BLOB)`;
}

/** The content of text on the wire that is bytes: the text itself, as a node has it. */
export function wireTextContent(x: string): string {
  return `json_quote(CASE WHEN ${isBytes(x)} THEN ${encode(ofBytes(x), 'TEXT')} ELSE ${x} || '' END)`;
}

/** What a column of that affinity holds after `x` was written to it, where there is no column at hand to write it to. */
export function affine(x: string, affinity: Affinity): string {
  // Text is equal to itself as a number only where all of it is one.
  const number = (as: string): string => `iif(${x} = CAST(${x} AS NUMERIC), CAST(${x} AS ${as}), ${x})`;
  switch (affinity) {
    case 'TEXT':
      return `iif(typeof(${x}) IN ('integer', 'real'), CAST(${x} AS TEXT), ${x})`;
    case 'REAL':
      return `CASE typeof(${x}) WHEN 'integer' THEN CAST(${x} AS REAL) WHEN 'text' THEN ${number('REAL')} ELSE ${x} END`;
    case 'INTEGER':
    case 'NUMERIC':
      return (
        `CASE typeof(${x}) WHEN 'real' THEN iif(${x} = CAST(${x} AS INTEGER), CAST(${x} AS INTEGER), ${x}) ` +
        `WHEN 'text' THEN ${number('NUMERIC')} ELSE ${x} END`
      );
    case 'BLOB':
      return x;
  }
}

export function scaled(x: string): string {
  const [low, high] = [2n ** 52n, 2n ** 62n];
  return (
    `(WITH RECURSIVE f(m, e) AS (SELECT ${x}, 0 UNION ALL ` +
    `SELECT iif(abs(m) < ${low}, m * 1024.0, m / 1024.0), iif(abs(m) < ${low}, e - 1, e + 1) ` +
    `FROM f WHERE abs(m) < ${low} OR abs(m) >= ${high}) ` +
    `SELECT CAST(m AS INTEGER) || 'p' || e FROM f WHERE abs(m) >= ${low} AND abs(m) < ${high})`
  );
}

export function finite(x: string): string {
  return `${x} BETWEEN -${REAL_MAX} AND ${REAL_MAX}`;
}

export function isPrintedExactly(x: string): string {
  return `CAST(CAST(${x} AS TEXT) AS REAL) = ${x}`;
}

/** A finite REAL; 17 digits tell any two of them apart. */
function real(x: string): string {
  return `CASE WHEN ${isPrintedExactly(x)} THEN ${x} ELSE json(printf('%!.17g', ${x})) END`;
}

function unusual(x: string, affinity: Affinity): string {
  const integer =
    affinity === 'BLOB'
      ? `CASE WHEN ${x} BETWEEN -${SAFE} AND ${SAFE} THEN ${x} ELSE '$int:' || ${x} END`
      : `CAST(${x} AS TEXT)`;
  const infinity = (sign: string): string => (affinity === 'BLOB' ? `'$real:${sign}9e999'` : `'${sign}9e999'`);
  return (
    `CASE typeof(${x}) WHEN 'integer' THEN ${integer} ` +
    `WHEN 'real' THEN CASE WHEN ${x} > ${REAL_MAX} THEN ${infinity('')} ` +
    `WHEN ${x} < -${REAL_MAX} THEN ${infinity('-')} ELSE ${real(x)} END ` +
    `WHEN 'blob' THEN ${blob(x)} ` +
    `WHEN 'text' THEN CASE WHEN ${dollar(x)} THEN ${escaped(x)} ELSE ${plainText(x)} END END`
  );
}

function blob(x: string): string {
  return `'$blob:' || hex(${x})`;
}

function dollar(x: string): string {
  return `(${x} COLLATE BINARY >= '$' AND ${x} COLLATE BINARY < '%')`;
}

function escaped(x: string): string {
  const prefixed = PREFIXES.map((prefix) => `${x} GLOB '${prefix}*'`).join(' OR ');
  return `CASE WHEN ${prefixed} THEN '$text:' || ${x} ELSE ${plainText(x)} END`;
}

/** The concatenation drops the JSON subtype that json() leaves on a value: without it json_object would nest the value. */
export function plainText(x: string): string {
  return `${x} || ''`;
}

function isBytes(x: string): string {
  return `(${x} GLOB '$bytes:*' AND ${isWhole(x)} AND ${ofBytes(x)} IS NOT NULL)`;
}

/** NULL where it is not hexadecimal. */
function ofBytes(x: string): string {
  return `CAST(unhex(substr(${x}, 8)) AS TEXT)`;
}

/** ASCII without a NUL character: unhex would stop there, and take what it has read for all. */
function isWhole(x: string): string {
  return `length(${x}) = octet_length(${x})`;
}

/**
 * A value in a row given to applyChanges, for JSON: a bigint in the wire's form where JSON has none. What JSON would make something
 * else of without a word is refused.
 */
export function exactValue(this: unknown, key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : `$int:${value}`;
  // A Buffer has been made an object by now.
  const given = (this as Record<string, unknown>)[key];
  const refuse = (what: string, hint: string): never => {
    throw new RowcastError('INVALID_BATCH', `${JSON.stringify(key)} is ${what}`, {
      hint: `${hint}; nothing was changed`,
    });
  };
  if (ArrayBuffer.isView(given) || given instanceof ArrayBuffer) {
    refuse('bytes, which JSON cannot hold', 'give them as "$blob:" and their hexadecimal digits');
  }
  if (typeof value === 'number' && !Number.isFinite(value)) {
    refuse(
      `${value}, which JSON cannot hold`,
      'SQLite has no NaN, it is null there; infinity is "9e999", and "-9e999"',
    );
  }
  return value;
}
