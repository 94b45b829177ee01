/**
 * Recognises a body that a node with the same schema has written, by its text alone.
 *
 * A pattern made of the table's columns spells a change out from its first brace to its last: op, table, every column in
 * its order, an id of plain text, a time in range. Where every change of the body fits its pattern, nothing is left for the
 * statements of the merge to check, and checking in SQL, per row and per column, would cost more than the merge itself. Any
 * other body, such as one with white space or columns in another order, is not wrong: it goes the careful way.
 *
 * The body is known to be JSON by now, so a pattern only has to tell strings from numbers and where they end.
 */
import type { Table } from '../sqlite/schema.ts';
import { ROW_ID_BYTES_MAX } from '../wire/protocol.ts';

/** What the batch holds for one table. */
export interface RegularPart {
  table: Table;
  writes: number;
  deletions: number;
}

export class RegularBodies {
  readonly #tableOf: (name: string) => Table | undefined;
  readonly #patterns = new WeakMap<Table, { before: number; pattern: RegExp }>();

  constructor(tableOf: (name: string) => Table | undefined) {
    this.#tableOf = tableOf;
  }

  /** The tables of a regular body, all of whose times are before `before`, or undefined. `text` has one character per byte. */
  recognise(text: string, before: number): RegularPart[] | undefined {
    const parts = new Map<Table, RegularPart>();
    let at = HEAD.exec(text)?.[0].length ?? -1;
    let part: RegularPart | undefined;
    let pattern: RegExp | undefined;
    while (at > 0) {
      if (!part || !pattern || !fits(pattern, text, at)) {
        const table = this.#tableAt(text, at);
        if (!table || table === part?.table) return undefined;
        part = parts.get(table) ?? { table, writes: 0, deletions: 0 };
        parts.set(table, part);
        pattern = this.#patternOf(table, before);
        if (!fits(pattern, text, at)) return undefined;
      }
      if (pattern.lastIndex - at > ROW_ID_BYTES_MAX && hasLongId(text.slice(at, pattern.lastIndex), part.table))
        return undefined;
      if (text.charCodeAt(at + OP_OFFSET) === LETTER_D) part.deletions += 1;
      else part.writes += 1;
      at = pattern.lastIndex;
      if (text.charCodeAt(at) !== COMMA) return text.length === at + 2 ? [...parts.values()] : undefined;
      at += 1;
    }
    return undefined;
  }

  #tableAt(text: string, at: number): Table | undefined {
    TABLE.lastIndex = at;
    const name = TABLE.exec(text)?.[1];
    return name === undefined ? undefined : this.#tableOf(Buffer.from(name, 'latin1').toString());
  }

  #patternOf(table: Table, before: number): RegExp {
    const known = this.#patterns.get(table);
    if (known?.before === before) return known.pattern;
    const pattern = table.columns.length > COLUMNS_MAX ? NOTHING : patternFor(table, timesBefore(before));
    this.#patterns.set(table, { before, pattern });
    return pattern;
  }
}

const HEAD = /^\{"batch_id":\d+,"changes":\[/;
/** A name that needs no escape in JSON; others are for the other way. */
const TABLE = /\{"op":"[A-Z]+","table":"([^"\\]+)"/y;
const OP_OFFSET = '{"op":"'.length;
const LETTER_D = 'D'.charCodeAt(0);
const COMMA = ','.charCodeAt(0);

/** The pattern of a very wide table would be larger than an engine takes. */
const COLUMNS_MAX = 200;
const NOTHING = /(?!)/y;

/** An id that is neither encoded (`$`) nor could be mistaken for nested JSON, and has no escapes. */
const ID = String.raw`"[^"\\$[{][^"\\]*"`;
/** A string, or a number, true, false or null. The end of a string is the first bare quote. */
const VALUE = String.raw`(?:"[^"\\]*(?:\\.[^"\\]*)*"|[\w.+-]+)`;

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

function patternFor(table: Table, time: string): RegExp {
  const name = jsonText(table.wireName);
  const row = (id: string): string =>
    table.columns
      .map((column) => {
        const value = column.name === table.id ? id : column.name === table.updatedAt ? time : VALUE;
        return `${jsonText(column.wireName)}:${value}`;
      })
      .join(',');
  // A snapshot sends tombstones with nothing but the id and the time.
  const buried = `${jsonText(table.id)}:(${ID}),${jsonText(table.updatedAt)}:${time}`;
  return new RegExp(
    String.raw`\{"op":"(?:(?:INSERT|UPDATE)","table":${name},"row":\{${row(ID)}\},"old_id":null` +
      String.raw`|DELETE","table":${name},"row":\{(?:${row(`(${ID})`)}\},"old_id":\1|${buried}\},"old_id":\2))\}`,
    'y',
  );
}

/** Looked for only in a change that is long enough. Within a text there are no bare quotes, so this is the key itself. */
function hasLongId(change: string, table: Table): boolean {
  const key = `${JSON.stringify(table.columns.find(({ name }) => name === table.id)?.wireName)}:"`;
  const begin = change.indexOf(key) + key.length;
  return change.indexOf('"', begin) - begin > ROW_ID_BYTES_MAX;
}

/** As it stands in the body: JSON, one character per byte, with nothing left that means something in a pattern. */
function jsonText(name: string): string {
  return Buffer.from(JSON.stringify(name))
    .toString('latin1')
    .replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}

/** An engine keeps a place to return to for every escape of a text, and throws where millions are more than it can hold. */
function fits(pattern: RegExp, text: string, at: number): boolean {
  pattern.lastIndex = at;
  try {
    return pattern.test(text);
  } catch {
    return false;
  }
}
