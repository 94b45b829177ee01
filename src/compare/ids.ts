/**
 * Ids as they travel, in the one order that all sides walk them in: that of their bytes on the wire. An id that is not
 * UTF-8 travels as `$bytes:<hex>` and has its place where the bytes have it that are meant.
 *
 * A node has an id as it is, a hub as it travels, and the two sort differently: a blob travels as `$blob:<hex>`, text that
 * begins like one of the wire's prefixes as `$text:<the text>`. Everything else is the same in both. So a range on the wire
 * is up to five parts of a node's own order, of which all but one are empty nearly always.
 */
import type { Value } from '../sqlite/connection.ts';
import { literal } from '../sqlite/sql.ts';
import { inOneSpelling, PREFIXES } from '../wire/exact-text.ts';

/** An id as it travels. */
export type Id = string;
/** The bytes by which ids are ordered, a character for each. */
export type Key = string;

/** The ids after one and up to another; null is the beginning, or the end. */
export interface Range {
  after: Id | null;
  upTo: Id | null;
}

export const EVERYTHING: Range = { after: null, upTo: null };

/** A part of a node's own order: a condition on the column, and what it binds. */
export interface Part {
  where(column: string): string;
  params: Value[];
  /** The same without an end, which costs a comparison for each row: for whoever knows that what it wants is within. */
  open: { where(column: string): string; params: Value[] };
}

const BLOB = '$blob:';
const TEXT = '$text:';
const BYTES = '$bytes:';
/** Text that begins so is escaped on the wire. */
const ESCAPED = PREFIXES;

/** Is it spelt as every node would spell it? */
export function isId(text: string): boolean {
  if (text.startsWith(BLOB)) return /^([0-9A-F]{2})*$/.test(text.slice(BLOB.length));
  if (text.startsWith(TEXT)) return isEscaped(text.slice(TEXT.length));
  if (text.startsWith(BYTES)) return inOneSpelling(text) === text;
  return !isEscaped(text);
}

export function keyOf(id: Id): Key {
  if (!id.startsWith(BYTES)) return Buffer.from(id).toString('latin1');
  const meant = Buffer.from(id.slice(BYTES.length), 'hex').toString('latin1');
  return isEscaped(meant) ? TEXT + meant : meant;
}

export function compareIds(a: Id, b: Id): number {
  if (a === b) return 0;
  // JavaScript compares halves of surrogate pairs, and then some characters come in another order than their bytes.
  const isPlain = !UNLIKE_ITS_BYTES.test(a) && !UNLIKE_ITS_BYTES.test(b);
  return (isPlain ? a < b : keyOf(a) < keyOf(b)) ? -1 : 1;
}

const UNLIKE_ITS_BYTES = /^\$bytes:|[\uD800-\uFFFF]/;

/** Does a table have after it, in its own order, everything that comes after it on the wire? */
export function isInLastPart(id: Id): boolean {
  return keyOf(id) >= LAST_PART;
}

const LAST_PART = '$text;';

/** What a table has in its own order before the text of that part, and after all text: all of the parts before it. */
export const BEFORE_LAST_PART: Pick<Part, 'where' | 'params'>[] = [
  { where: (column) => `${column} < '${LAST_PART}'`, params: [] },
  { where: (column) => `${column} >= x''`, params: [] },
];

function isEscaped(text: string): boolean {
  return ESCAPED.some((prefix) => text.startsWith(prefix));
}

/** Begins and ends on the wire, the end excluded; how a bound is spelt here; and what else must hold. */
interface Segment {
  from: Key;
  to: Key | undefined;
  bind(bound: Key): Value;
  /** SQL for a bound parameter. */
  bound: string;
  begins(column: string): string;
  ends(column: string): string;
  also?(column: string): string;
}

const beginsLike = (column: string, prefixes: string[]): string =>
  prefixes.map((prefix) => `${column} GLOB '${prefix}*'`).join(' OR ');

/** Text is bound as bytes, because a string could not hold all of it. */
const AS_TEXT = 'CAST(? AS TEXT)';

const SEGMENTS: Segment[] = [
  plainText('', BLOB),
  {
    from: BLOB,
    to: '$blob;',
    bind: (bound) => Buffer.from(bound.slice(BLOB.length), 'hex'),
    bound: '?',
    begins: (column) => `${column} >= x''`,
    ends: () => 'true',
  },
  { ...plainText('$blob;', TEXT), also: (column) => `NOT (${beginsLike(column, [BYTES, '$int:', '$real:'])})` },
  {
    from: TEXT,
    to: LAST_PART,
    bind: (bound) => Buffer.from(bound.slice(TEXT.length), 'latin1'),
    bound: AS_TEXT,
    begins: (column) => `${column} >= '$blob:'`,
    ends: (column) => `${column} < '$text;'`,
    also: (column) => `(${beginsLike(column, ESCAPED)})`,
  },
  plainText(LAST_PART, undefined),
];

function plainText(from: Key, to: Key | undefined): Segment {
  return {
    from,
    to,
    bind: (bound) => Buffer.from(bound, 'latin1'),
    bound: AS_TEXT,
    begins: (column) => `${column} >= ${literal(from)}`,
    // Blobs come after all text.
    ends: (column) => `${column} < ${to === undefined ? "x''" : literal(to)}`,
  };
}

/** The parts of a node's own order that make up a range on the wire, in the order of the wire. */
export function partsOf(range: Range): Part[] {
  const after = range.after === null ? null : keyOf(range.after);
  const upTo = range.upTo === null ? null : keyOf(range.upTo);
  const parts: Part[] = [];
  for (const { from, to, bind, bound, begins, ends, also } of SEGMENTS) {
    const isBefore = after !== null && to !== undefined && after >= to;
    const isBehind = upTo !== null && upTo < from;
    if (isBefore || isBehind) continue;
    const low = after !== null && after >= from ? bind(after) : undefined;
    const high = upTo !== null && (to === undefined || upTo < to) ? bind(upTo) : undefined;
    const beginning = (column: string): string => (low === undefined ? begins(column) : `${column} > ${bound}`);
    const end = (column: string): string => (high === undefined ? ends(column) : `${column} <= ${bound}`);
    const rest = (column: string): string[] => (also ? [also(column)] : []);
    parts.push({
      where: (column) => [beginning(column), end(column), ...rest(column)].join(' AND '),
      params: [low, high].filter((one) => one !== undefined),
      open: {
        where: (column) => [beginning(column), ...rest(column)].join(' AND '),
        params: low === undefined ? [] : [low],
      },
    });
  }
  return parts;
}
