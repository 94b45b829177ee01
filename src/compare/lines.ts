/**
 * The canonical line of a row or a tombstone, as SQL: what is hashed. For a row that is the content by which the version
 * order decides a tie, `updated_at` included; for a tombstone its id and its version.
 *
 * A source of these statements is a SELECT that yields `k`, the id as it stands here, `version`, and `r`, a row as JSON.
 */
import { createHash } from 'node:crypto';
import type { Affinity, Column } from '../sqlite/schema.ts';
import { fold, literal } from '../sqlite/sql.ts';
import { affine, content, decode, encode } from '../wire/values.ts';
import type { Columns } from './ledger.ts';

/** A row's line; nothing that a column can hold looks like the end of it. */
export function rowLine(text: string): string {
  return `'+' || ${text} || char(10)`;
}

export function tombstoneLine(wireId: string, version: string): string {
  return `'-' || json_quote(${wireId}) || char(10) || ${version} || char(10)`;
}

/** `SELECT k, version, 0 AS deleted, line` for rows that are JSON: hidden ones, and all of a hub. */
export function jsonLines(columns: Exclude<Columns, null>, source: string): string {
  const wanted = columnsOf(columns);
  const list = (one: (i: number) => string): string => wanted.map((_, i) => one(i)).join(', ');
  // Each step is a query of its own, because the next one names its outcome many times.
  const extracted = `SELECT k, version, ${list((i) => `${extract(wanted[i] as Column)} AS w${i}`)} FROM (${source}) LIMIT -1`;
  const decoded = `SELECT k, version, ${list((i) => `${decode(`w${i}`)} AS d${i}`)} FROM (${extracted}) LIMIT -1`;
  const stored =
    `SELECT k, version, ${list((i) => `${affine(`d${i}`, (wanted[i] as Column).affinity)} AS a${i}`)} ` +
    `FROM (${decoded}) LIMIT -1`;
  const text = content(wanted, (column) => `a${wanted.indexOf(column)}`);
  return `SELECT k, version, 0 AS deleted, ${rowLine(text)} AS line FROM (${stored})`;
}

/** The same for tombstones; `wire` is the id as it travels. */
export function tombstoneLines(source: string, wire = encode('k', 'TEXT')): string {
  return `SELECT k, version, 1 AS deleted, ${tombstoneLine(wire, 'version')} AS line FROM (${source})`;
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

/** Names are the same in any case; the spelling of the one who asks is looked for first, because that is fast. */
function extract({ name }: Column): string {
  const anyCase = `(SELECT e.value FROM json_each(r) AS e WHERE lower(e.key) = ${literal(fold(name))} LIMIT 1)`;
  return /["\\]/.test(name) ? anyCase : `coalesce(r ->> ${literal(`$."${name}"`)}, ${anyCase})`;
}

/** Six bytes: two versions of one row at one time, of which one in 2^48 pairs would look the same. */
export function hashOf(line: string | Uint8Array): string {
  return createHash('sha1').update(line).digest('hex').slice(0, 12);
}
