/**
 * Ids as they travel, in the one order that all sides walk them in: that of their bytes on the wire.
 *
 * A node has an id as it is, a hub as it travels, and the two sort differently: a blob travels as `$blob:<hex>`, text that
 * begins like one of the wire's prefixes as `$text:<the text>`. Everything else is the same in both. So a range on the wire
 * is up to five parts of a node's own order, of which all but one are empty nearly always.
 */
import type { Value } from '../sqlite/connection.ts';
import { literal } from '../sqlite/sql.ts';
import { PREFIXES } from '../wire/exact-text.ts';

/** An id as it travels. */
export type Id = string;
/** An id as it stands in a table. */
export type OwnId = string | Uint8Array;

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
}

const BLOB = '$blob:';
const TEXT = '$text:';
/** Text that begins so is escaped on the wire. */
const ESCAPED = PREFIXES;

export function toWire(own: OwnId): Id {
  if (typeof own !== 'string') return BLOB + Buffer.from(own).toString('hex').toUpperCase();
  return ESCAPED.some((prefix) => own.startsWith(prefix)) ? TEXT + own : own;
}

/** Is it spelt as every node would spell it? */
export function isId(text: string): boolean {
  if (text.startsWith(BLOB)) return /^([0-9A-F]{2})*$/.test(text.slice(BLOB.length));
  if (text.startsWith(TEXT)) return ESCAPED.some((prefix) => text.startsWith(prefix, TEXT.length));
  return !ESCAPED.some((prefix) => text.startsWith(prefix));
}

/** By bytes: JavaScript compares halves of surrogate pairs, and then some characters come in another order. */
export function compareIds(a: Id, b: Id): number {
  return a === b ? 0 : Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** Does a table have after it, in its own order, everything that comes after it on the wire? */
export function isInLastPart(id: Id): boolean {
  return id >= LAST_PART;
}

const LAST_PART = '$text;';

/** Begins and ends on the wire, the end excluded; how a bound is spelt here; and what else must hold. */
interface Segment {
  from: string;
  to: string | undefined;
  bind(wire: Id): string;
  /** SQL for a bound parameter. */
  bound: string;
  begins(column: string): string;
  ends(column: string): string;
  also?(column: string): string;
}

const itself = (wire: Id): string => wire;
const beginsLike = (column: string, prefixes: string[]): string =>
  prefixes.map((prefix) => `${column} GLOB '${prefix}*'`).join(' OR ');

const SEGMENTS: Segment[] = [
  plainText('', '$blob:'),
  {
    from: '$blob:',
    to: '$blob;',
    bind: (wire) => wire.slice(BLOB.length),
    bound: 'unhex(?)',
    begins: (column) => `${column} >= x''`,
    ends: () => 'true',
  },
  { ...plainText('$blob;', '$text:'), also: (column) => `NOT (${beginsLike(column, ['$bytes:', '$int:', '$real:'])})` },
  {
    from: '$text:',
    to: '$text;',
    bind: (wire) => wire.slice(TEXT.length),
    bound: '?',
    begins: (column) => `${column} >= '$blob:'`,
    ends: (column) => `${column} < '$text;'`,
    also: (column) => `(${beginsLike(column, ESCAPED)})`,
  },
  plainText(LAST_PART, undefined),
];

function plainText(from: string, to: string | undefined): Segment {
  return {
    from,
    to,
    bind: itself,
    bound: '?',
    begins: (column) => `${column} >= ${literal(from)}`,
    // Blobs come after all text.
    ends: (column) => `${column} < ${to === undefined ? "x''" : literal(to)}`,
  };
}

/** The parts of a node's own order that make up a range on the wire, in the order of the wire. */
export function partsOf({ after, upTo }: Range): Part[] {
  const parts: Part[] = [];
  for (const { from, to, bind, bound, begins, ends, also } of SEGMENTS) {
    const isBefore = after !== null && to !== undefined && after >= to;
    const isBehind = upTo !== null && upTo < from;
    if (isBefore || isBehind) continue;
    const low = after !== null && after >= from ? bind(after) : undefined;
    const high = upTo !== null && (to === undefined || upTo < to) ? bind(upTo) : undefined;
    parts.push({
      where: (column) =>
        [
          low === undefined ? begins(column) : `${column} > ${bound}`,
          high === undefined ? ends(column) : `${column} <= ${bound}`,
          ...(also ? [also(column)] : []),
        ].join(' AND '),
      params: [low, high].filter((one) => one !== undefined),
    });
  }
  return parts;
}
