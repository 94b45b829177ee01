/**
 * The tabular form of a batch: its rows as arrays, in the order of columns that are named once. For writes of one kind to one
 * table, between nodes of Rowcast; half of such a body would otherwise be names that both of them have.
 *
 *   {"batch_id":7,"op":"INSERT","table":"items","columns":["id","updated_at"],"rows":[["a",1],["b",2]]}
 *
 * Values stand there as they do in the plain form, byte for byte. So each form is made of the other without a look at what the
 * values mean, and a body is the same again when it comes back: whoever does not read this form reads the plain one.
 */
import type { Body } from './body.ts';

/** What a tabular body says before its rows. Names have one character per byte, as they stand there between their quotes. */
export interface TabularHead {
  batchId: string;
  op: 'INSERT' | 'UPDATE';
  table: string;
  columns: string[];
  /** Behind its columns each row has what the update has seen. */
  based: boolean;
}

/** How a body is spelt around the values of its rows, which have commas between them. */
interface Spelling {
  head: string;
  /** What stands before each value of a row. */
  leads: string[];
  /** What stands behind the last one. */
  end: string;
}

/** In a longer row the names are a small part. */
const ROW_BYTES_MAX = 2_000;
/** A replacement names no more than 99 groups. */
const VALUES_MAX = 99;

/** A small body may become this much in the plain form, and a larger one so many times its size. */
const PLAIN_FREE_BYTES = 1024 * 1024;
const PLAIN_RATIO_MAX = 16;

/** A name that needs no escapes: there is one way to spell it. */
const NAME = String.raw`"[^"\\]+"`;
/** The end of a string is the first bare quote. */
const VALUE = String.raw`(?:"[^"\\]*(?:\\.[^"\\]*)*"|[\w.+-]+)`;

const PLAIN = new RegExp(
  String.raw`^\{"batch_id":(\d+),"changes":\[\{"op":"(INSERT|UPDATE)","table":(${NAME}),"row":` +
    String.raw`\{(${NAME}:${VALUE}(?:,${NAME}:${VALUE})*)\},"old_id":null(,"base":)?`,
);
const FIELD = new RegExp(`(${NAME}):${VALUE}`, 'g');
const TABULAR = new RegExp(
  String.raw`^\{"batch_id":(\d+),"op":"(INSERT|UPDATE)","table":(${NAME}),` +
    String.raw`"columns":\[(${NAME}(?:,${NAME})*)\](,"base":true)?,"rows":\[`,
);
const CLOSE = ']}';

/** Bodies are never written to after they were made, and one may go to several peers. */
const made = new WeakMap<Body, { tabular: Body | undefined }>();

/** A plain body with so many changes in the tabular form; undefined where it has none, or where that is not worth it. */
export function tabularForm(body: Body, changes: number): Body | undefined {
  const known = made.get(body);
  if (known) return known.tabular;
  const tabular = changes > 1 && body.byteLength <= changes * ROW_BYTES_MAX ? madeTabular(body, changes) : undefined;
  made.set(body, { tabular });
  return tabular;
}

/** What a body says before its rows, where it is a tabular one; `text` has one character per byte. */
export function tabularHead(text: string): TabularHead | undefined {
  const found = executed(TABULAR, text);
  if (!found) return undefined;
  const [, batchId = '', op, table = '', names = '', based] = found;
  const columns = names.slice(1, -1).split('","');
  const head = { batchId, op: op as TabularHead['op'], table: table.slice(1, -1), columns, based: based !== undefined };
  return hasFew(head) ? head : undefined;
}

/** The name of its table, and of its columns, as text. */
export function namesIn({ table, columns }: TabularHead): { table: string; columns: string[] } {
  const asText = (name: string): string => Buffer.from(name, 'latin1').toString();
  return { table: asText(table), columns: columns.map(asText) };
}

/** Where the rows of a tabular body begin. */
export function rowsBegin(head: TabularHead): number {
  return tabularSpelling(head).head.length;
}

/**
 * A tabular body of so many rows in the plain form; `too-large` where that has more than `max` bytes, or is out of proportion,
 * and undefined where a row is not a value for each column. Of a part, the proportion is that of the `whole`.
 */
export function plainForm(
  text: string,
  head: TabularHead,
  rows: number,
  max: number,
  whole = text.length,
): Body | 'too-large' | undefined {
  if (!fitsPlain(text, head, rows, max, whole)) return 'too-large';
  return respelt(text, rows, tabularSpelling(head), plainSpelling(head));
}

/** Is it neither, in the plain form? */
export function fitsPlain(text: string, head: TabularHead, rows: number, max: number, whole = text.length): boolean {
  const most = Math.min(max, Math.max(PLAIN_FREE_BYTES, whole * PLAIN_RATIO_MAX));
  return text.length + lengthOf(plainSpelling(head), rows) - lengthOf(tabularSpelling(head), rows) <= most;
}

function madeTabular(body: Body, changes: number): Body | undefined {
  const text = Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('latin1');
  const head = plainHead(text);
  if (!head) return undefined;
  const [from, to] = [plainSpelling(head), tabularSpelling(head)];
  return lengthOf(to, changes) < lengthOf(from, changes) ? respelt(text, changes, from, to) : undefined;
}

/** As the first change of a plain body has it. */
function plainHead(text: string): TabularHead | undefined {
  const found = executed(PLAIN, text);
  if (!found) return undefined;
  const [, batchId = '', op, table = '', row = '', base] = found;
  const columns = [...row.matchAll(FIELD)].map(([, name = '']) => name.slice(1, -1));
  const head = { batchId, op: op as TabularHead['op'], table: table.slice(1, -1), columns, based: base !== undefined };
  return hasFew(head) ? head : undefined;
}

function hasFew({ columns, based }: TabularHead): boolean {
  return columns.length + Number(based) <= VALUES_MAX;
}

function plainSpelling({ batchId, op, table, columns, based }: TabularHead): Spelling {
  const leads = columns.map((name, i) => `${i === 0 ? `{"op":"${op}","table":"${table}","row":{` : ','}"${name}":`);
  const old = '},"old_id":null';
  return {
    head: `{"batch_id":${batchId},"changes":[`,
    leads: based ? [...leads, `${old},"base":`] : leads,
    end: based ? '}' : `${old}}`,
  };
}

function tabularSpelling({ batchId, op, table, columns, based }: TabularHead): Spelling {
  const names = columns.map((name) => `"${name}"`).join(',');
  const base = based ? ',"base":true' : '';
  return {
    head: `{"batch_id":${batchId},"op":"${op}","table":"${table}","columns":[${names}]${base},"rows":[`,
    leads: ['[', ...Array<string>(columns.length - (based ? 0 : 1)).fill(',')],
    end: ']',
  };
}

/** Bytes of a body of so many rows beside their values, the commas between them, and what closes it. */
function lengthOf({ head, leads, end }: Spelling, rows: number): number {
  return head.length + rows * (leads.join('').length + end.length);
}

/** The same values, otherwise spelt; undefined where the body is not so many rows that are all spelt like `from`. */
function respelt(text: string, rows: number, from: Spelling, to: Spelling): Body | undefined {
  if (!text.startsWith(from.head) || !text.endsWith(CLOSE)) return undefined;
  const values = text.slice(from.head.length);
  const { pattern, replacement } = replacing(from, to);
  let spelt: string;
  try {
    spelt = values.replace(pattern, replacement);
  } catch {
    // An engine keeps a place to return to for every escape of a text, and millions are more than it can hold.
    return undefined;
  }
  // Whatever was not replaced is of another length.
  const length = text.length + lengthOf(to, rows) - lengthOf(from, rows);
  if (to.head.length + spelt.length !== length) return undefined;
  // Written where it stays: joined to one text first, and copied to an array afterwards, every byte would be moved thrice.
  const body = new Uint8Array(length);
  const bytes = Buffer.from(body.buffer);
  bytes.write(to.head, 0, 'latin1');
  bytes.write(spelt, to.head.length, 'latin1');
  return body;
}

interface Replacing {
  pattern: RegExp;
  replacement: string;
}

/** The latest: an engine makes a pattern fast when it is used again. */
const known = new Map<string, Replacing>();
const KNOWN_MAX = 32;

function replacing(from: Spelling, to: Spelling): Replacing {
  const key = [...from.leads, from.end, ...to.leads, to.end].join('\n');
  const found = known.get(key);
  if (found) return found;
  if (known.size >= KNOWN_MAX) known.clear();
  const pattern = new RegExp(from.leads.map((lead) => `${escaped(lead)}(${VALUE})`).join('') + escaped(from.end), 'g');
  const inPlace = (text: string): string => text.replaceAll('$', '$$$$');
  const one = {
    pattern,
    replacement: to.leads.map((lead, i) => `${inPlace(lead)}$${i + 1}`).join('') + inPlace(to.end),
  };
  known.set(key, one);
  return one;
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}

function executed(pattern: RegExp, text: string): RegExpExecArray | null {
  try {
    return pattern.exec(text);
  } catch {
    return null;
  }
}
