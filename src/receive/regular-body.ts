/**
 * Recognises a body that a node has written, by its text alone.
 *
 * A pattern spells a change out from its first brace to its last: op, table, every key of its row in its order, an id of
 * plain text, a time in range. It is made of the table's columns or, where a body has other ones, as those of a node whose
 * schema is another have, of the keys of the first row. Where every change of the body fits the pattern of its table, nothing
 * is left for SQL to check, and checking there, per row and per key, would cost more than the merge itself. Any other body,
 * such as one with white space, is not wrong: its changes are looked at one by one.
 *
 * The body is known to be JSON by now, so a pattern only has to tell strings from numbers and where they end.
 */
import { isDeepStrictEqual as isDeepEqual } from 'node:util';
import type { Table } from '../sqlite/schema.ts';
import { BATCH_END } from '../wire/body.ts';
import { ROW_ID_BYTES_MAX } from '../wire/protocol.ts';
import { namesIn, rowsBegin, type TabularHead } from '../wire/tabular.ts';
import { columnFor } from './plan.ts';

/** What the batch holds for one table. */
export interface RegularPart {
  table: Table;
  writes: number;
  deletions: number;
  /** Of the rows that are written, all alike. Of those that are deleted only the id and the time count. */
  spelling: Spelling;
}

/** How the rows of a table are spelt. */
export interface Spelling {
  keys: string[];
  /** The keys are the columns of the table, in their order. */
  fits: boolean;
  idKey: string;
  timeKey: string;
  pattern: RegExp;
}

/** Spellings of one table, made for the same `before`: that of its columns, and the last one of others. */
interface Known {
  before: number;
  own: Spelling | undefined;
  other?: Spelling;
  /** Of its rows in the tabular form, without and with what they have seen. */
  tabular?: RegExp;
  tabularBased?: RegExp;
}

export class RegularBodies {
  readonly #tableOf: (name: string) => Table | undefined;
  readonly #known = new WeakMap<Table, Known>();

  constructor(tableOf: (name: string) => Table | undefined) {
    this.#tableOf = tableOf;
  }

  /** The tables of a regular body, all of whose times are before `before`, or undefined. `text` has one character per byte. */
  recognise(text: string, before: number): RegularPart[] | undefined {
    const parts = new Map<Table, RegularPart>();
    let at = HEAD.exec(text)?.[0].length ?? -1;
    let part: RegularPart | undefined;
    while (at > 0) {
      if (!part || !fits(part.spelling.pattern, text, at)) {
        part = this.#partAt(text, at, before, parts);
        if (!part) return undefined;
      }
      const end = part.spelling.pattern.lastIndex;
      if (end - at > ROW_ID_BYTES_MAX && hasLongId(text.slice(at, end), part.spelling.idKey)) return undefined;
      if (text.charCodeAt(at + OP_OFFSET) === LETTER_D) part.deletions += 1;
      else part.writes += 1;
      at = end;
      if (text.charCodeAt(at) !== COMMA) return text.length === at + 2 ? [...parts.values()] : undefined;
      at += 1;
    }
    return undefined;
  }

  /**
   * The same of a tabular body, whose columns are those of its table; others are read in the plain form. Where each of its
   * rows ends is noted in `ends`.
   */
  recogniseTabular(text: string, head: TabularHead, before: number, ends?: number[]): RegularPart[] | undefined {
    const named = namesIn(head);
    const table = this.#tableOf(named.table);
    const spelling = table && this.#knownOf(table, before).own;
    if (!spelling || !isDeepEqual(named.columns, spelling.keys)) return undefined;
    const pattern = this.#tabularPattern(table, spelling, head.based, before);
    let writes = 0;
    for (let at = rowsBegin(head); fits(pattern, text, at); at = pattern.lastIndex + 1) {
      if (pattern.lastIndex - at > ROW_ID_BYTES_MAX) return undefined;
      writes += 1;
      ends?.push(pattern.lastIndex);
      if (text.charCodeAt(pattern.lastIndex) === COMMA) continue;
      const isEnd = text.length === pattern.lastIndex + BATCH_END.length;
      return isEnd ? [{ table, writes, deletions: 0, spelling }] : undefined;
    }
    return undefined;
  }

  /** The part to which the change at that place belongs; its pattern has been found to fit. */
  #partAt(text: string, at: number, before: number, parts: Map<Table, RegularPart>): RegularPart | undefined {
    TABLE.lastIndex = at;
    const name = TABLE.exec(text)?.[1];
    const table = name === undefined ? undefined : this.#tableOf(fromBytes(name));
    if (!table) return undefined;
    const part = parts.get(table);
    if (part && fits(part.spelling.pattern, text, at)) return part;
    // What was deleted so far may have been spelt in another way: as a tombstone, with two keys. Once, or patterns would be
    // made for change after change.
    if (part && (part.writes > 0 || !part.spelling.fits)) return undefined;
    const spelling = this.#spellingAt(text, at, before, table);
    if (!spelling || !fits(spelling.pattern, text, at)) return undefined;
    if (part) return isKeyedAlike(part.spelling, spelling) ? Object.assign(part, { spelling }) : undefined;
    const begun: RegularPart = { table, writes: 0, deletions: 0, spelling };
    parts.set(table, begun);
    return begun;
  }

  #spellingAt(text: string, at: number, before: number, table: Table): Spelling | undefined {
    const known = this.#knownOf(table, before);
    if (known.own && fits(known.own.pattern, text, at)) return known.own;
    const keys = keysAt(text, at);
    if (!keys) return undefined;
    if (known.other && isDeepEqual(known.other.keys, keys)) return known.other;
    const spelling = spellingOf(table, keys, before);
    if (spelling && !spelling.fits) known.other = spelling;
    return spelling;
  }

  #tabularPattern(table: Table, spelling: Spelling, based: boolean, before: number): RegExp {
    const known = this.#knownOf(table, before);
    const made = (based ? known.tabularBased : known.tabular) ?? tabularPattern(spelling, based, timesBefore(before));
    if (based) known.tabularBased = made;
    else known.tabular = made;
    return made;
  }

  #knownOf(table: Table, before: number): Known {
    const known = this.#known.get(table);
    if (known?.before === before) return known;
    const columns = table.columns.map(({ wireName }) => wireName);
    const made = { before, own: spellingOf(table, columns, before) };
    this.#known.set(table, made);
    return made;
  }
}

/** What a regular body begins with. */
export const HEAD = /^\{"batch_id":\d+,"changes":\[/;
/** A name that needs no escape in JSON; others are for the other way. */
export const TABLE = /\{"op":"[A-Z]+","table":"([^"\\]+)"/y;
const OP_OFFSET = '{"op":"'.length;
const LETTER_D = 'D'.charCodeAt(0);
const COMMA = ','.charCodeAt(0);

/** The pattern of a very wide row would be larger than an engine takes. */
const KEYS_MAX = 200;

/** An id that is neither encoded (`$`) nor could be mistaken for nested JSON, and has no escapes. */
const ID = String.raw`"[^"\\$[{][^"\\]*"`;
/** A string, or a number, true, false or null. The end of a string is the first bare quote. */
const VALUE = String.raw`(?:"[^"\\]*(?:\\.[^"\\]*)*"|[\w.+-]+)`;

/** A change up to its row; a pair of that, with what follows. */
const ROW = /\{"op":"[A-Z]+","table":"[^"\\]+","row":\{/y;
const FIELD = new RegExp(String.raw`"[^"\\]+":${VALUE}[,}]`, 'y');

/** How a regular body begins to say what an update has seen. The longer a text, the sooner it is found not to be there. */
export const SEEN_IN_REGULAR = '},"old_id":null,"base":';

/** And how a tabular one does. */
export const SEEN_IN_TABULAR = '"],"base":true,"rows":[';

/** What an update has seen, and who made it: for the journal, which looks at both once more. */
const SEEN = String.raw`(?:,"base":-?\d{1,15}(?:,"origin":"[^"\\]{1,200}")?)?`;

/**
 * The whole numbers from ten, which is neither true nor false, to below `end`, as a pattern: digit by digit, all that is
 * less in this one after being the same before it. So that a time is far ahead costs no comparison of its own.
 */
function timesBefore(end: number): string {
  const digits = String(Math.max(end, 10));
  const less = [...digits].map((digit, at) => {
    const [least, most] = [at === 0 ? 1 : 0, Number(digit) - 1];
    const rest = digits.length - 1 - at;
    return most < least ? '' : `${digits.slice(0, at)}[${least}-${most}]${rest > 0 ? `\\d{${rest}}` : ''}`;
  });
  // Last, because nearly all times have the most digits.
  const shorter = digits.length > 2 ? `[1-9]\\d{1,${digits.length - 2}}` : '';
  const all = [...less, shorter].filter((one) => one !== '');
  return all.length === 0 ? '(?!)' : `(?:${all.join('|')})`;
}

function spellingOf(table: Table, keys: string[], before: number): Spelling | undefined {
  if (keys.length > KEYS_MAX) return undefined;
  const keyOf = (column: string): string | undefined => {
    const [key, ...others] = keys.filter((one) => columnFor(table, one)?.name === column);
    return others.length === 0 ? key : undefined;
  };
  const [idKey, timeKey] = [keyOf(table.id), keyOf(table.updatedAt)];
  if (idKey === undefined || timeKey === undefined) return undefined;
  const columns = table.columns.map(({ wireName }) => wireName);
  const pattern = patternFor(table.wireName, { keys, idKey, timeKey }, timesBefore(before));
  return { keys, idKey, timeKey, pattern, fits: isDeepEqual(keys, columns) };
}

function patternFor(table: string, row: Pick<Spelling, 'keys' | 'idKey' | 'timeKey'>, time: string): RegExp {
  const name = jsonText(table);
  const { keys, idKey, timeKey } = row;
  const spelt = (id: string): string =>
    keys.map((key) => `${jsonText(key)}:${key === idKey ? id : key === timeKey ? time : VALUE}`).join(',');
  // A snapshot sends tombstones with nothing but the id and the time.
  const buried = `${jsonText(idKey)}:(${ID}),${jsonText(timeKey)}:${time}`;
  return new RegExp(
    String.raw`\{"op":"(?:(?:INSERT|UPDATE)","table":${name},"row":\{${spelt(ID)}\},"old_id":null${SEEN}` +
      String.raw`|DELETE","table":${name},"row":\{(?:${spelt(`(${ID})`)}\},"old_id":\1|${buried}\},"old_id":\2))\}`,
    'y',
  );
}

function tabularPattern({ keys, idKey, timeKey }: Spelling, based: boolean, time: string): RegExp {
  const values = keys.map((key) => (key === idKey ? ID : key === timeKey ? time : VALUE));
  return new RegExp(String.raw`\[${[...values, ...(based ? [String.raw`-?\d{1,15}`] : [])].join(',')}\]`, 'y');
}

/**
 * For who has no table: changes to this one whose rows have these keys, of which two are `id` and `updated_at`. What is captured
 * are op, row, id and time as those keys stand in the row, `old_id`, and what was seen.
 */
export function changePattern(table: string, keys: string[]): RegExp {
  const captured = new Map([
    ['id', `(${ID})`],
    ['updated_at', String.raw`([1-9]\d{1,15})`],
  ]);
  const row = keys.map((key) => `${jsonText(key)}:${captured.get(key) ?? VALUE}`).join(',');
  return new RegExp(
    String.raw`\{"op":"(INSERT|UPDATE|DELETE)","table":${jsonText(table)},"row":(\{${row}\}),` +
      String.raw`"old_id":(null|${ID})(?:,"base":(0|-?[1-9]\d{0,14})(?:,"origin":"[^"\\]{1,200}")?)?\}`,
    'y',
  );
}

/** The keys of the row of the change at that place, where they need no escapes and its values are scalars. */
export function keysAt(text: string, at: number): string[] | undefined {
  const keys: string[] = [];
  if (!fits(ROW, text, at)) return undefined;
  for (let next = ROW.lastIndex; keys.length < KEYS_MAX; next = FIELD.lastIndex) {
    if (!fits(FIELD, text, next)) return undefined;
    keys.push(fromBytes(text.slice(next + 1, text.indexOf('"', next + 1))));
    if (text.charAt(FIELD.lastIndex - 1) === '}') return keys;
  }
  return undefined;
}

/** Do both call the id and the time alike? */
export function isKeyedAlike(one: Spelling, other: Spelling): boolean {
  return one.idKey === other.idKey && one.timeKey === other.timeKey;
}

/** Looked for only in a change that is long enough. Within a text there are no bare quotes, so this is the key itself. */
function hasLongId(change: string, idKey: string): boolean {
  const key = `${Buffer.from(JSON.stringify(idKey)).toString('latin1')}:"`;
  const begin = change.indexOf(key) + key.length;
  return change.indexOf('"', begin) - begin > ROW_ID_BYTES_MAX;
}

export function fromBytes(text: string): string {
  return Buffer.from(text, 'latin1').toString();
}

/** As it stands in the body: JSON, one character per byte, with nothing left that means something in a pattern. */
function jsonText(name: string): string {
  return Buffer.from(JSON.stringify(name))
    .toString('latin1')
    .replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}

function fits(pattern: RegExp, text: string, at: number): boolean {
  pattern.lastIndex = at;
  return guarded(() => pattern.test(text)) ?? false;
}

/** What a pattern captures at that place. */
export function executed(pattern: RegExp, text: string, at: number): RegExpExecArray | undefined {
  pattern.lastIndex = at;
  return guarded(() => pattern.exec(text)) ?? undefined;
}

/** An engine keeps a place to return to for every escape of a text, and throws where millions are more than it can hold. */
function guarded<T>(match: () => T): T | undefined {
  try {
    return match();
  } catch {
    return undefined;
  }
}
