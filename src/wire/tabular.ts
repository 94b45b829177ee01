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
/** Of one row: no reader takes more. */
const VALUES_MAX = 99;
/** The first row of a body is within this, where the form is worth it. */
const FIRST_BYTES = 4 * ROW_BYTES_MAX;

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
const CLOSE = bytesOf(']}');

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** The bytes of a number, of true, false and null. */
const IN_SCALAR = kindOf(/[\w.+-]/);
const BETWEEN = kindOf(/[, \t\r\n]/);

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
 * and undefined where a row is not a value for each column.
 */
export function plainForm(text: string, head: TabularHead, rows: number, max: number): Body | 'too-large' | undefined {
  const [from, to] = [tabularSpelling(head), plainSpelling(head)];
  const most = Math.min(max, Math.max(PLAIN_FREE_BYTES, text.length * PLAIN_RATIO_MAX));
  if (text.length + lengthOf(to, rows) - lengthOf(from, rows) > most) return 'too-large';
  return respelt(Buffer.from(text, 'latin1'), rows, from, to);
}

function madeTabular(body: Body, changes: number): Body | undefined {
  const first = Buffer.from(body.buffer, body.byteOffset, Math.min(body.byteLength, FIRST_BYTES));
  const head = plainHead(first.toString('latin1'));
  if (!head) return undefined;
  const [from, to] = [plainSpelling(head), tabularSpelling(head)];
  return lengthOf(to, changes) < lengthOf(from, changes) ? respelt(body, changes, from, to) : undefined;
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

/**
 * The same values, otherwise spelt; undefined where the body is not so many rows that are all spelt like `from`. Byte by byte:
 * as text, and by a pattern, every batch would leave a megabyte behind that has to be cleared up.
 */
function respelt(body: Uint8Array, rows: number, from: Spelling, to: Spelling): Body | undefined {
  const length = body.byteLength + lengthOf(to, rows) - lengthOf(from, rows);
  // So many rows like the first would be longer than all of it.
  if (length < 0) return undefined;
  const [froms, tos] = [from, to].map(({ leads, end }) => [...leads, end].map(bytesOf)) as [DataView[], DataView[]];
  const bytes = new DataView(body.buffer, body.byteOffset, body.byteLength);
  const spelt = new Uint8Array(length);
  let at = behind(bytes, 0, bytesOf(from.head));
  let end = put(spelt, 0, bytesOf(to.head));
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < froms.length; i++) {
      const begin = behind(bytes, at, froms[i] as DataView);
      if (begin < 0) return undefined;
      end = put(spelt, end, tos[i] as DataView);
      // Behind the last value comes what ends the row, and between two rows a comma; of others than nodes, white space too.
      const isLast = i + 1 === froms.length;
      at = isLast ? copyAll(BETWEEN, bytes, begin, spelt, end) : copyValue(bytes, begin, spelt, end);
      if (at < 0) return undefined;
      end += at - begin;
    }
  }
  if (behind(bytes, at, CLOSE) !== body.byteLength) return undefined;
  put(spelt, end, CLOSE);
  return spelt;
}

/** The place behind what should stand at that one; -1 where something else does. */
function behind(bytes: DataView, at: number, expected: DataView): number {
  const { byteLength } = expected;
  if (at < 0 || at + byteLength > bytes.byteLength) return -1;
  let i = 0;
  // Most of a body is this, and four bytes are compared in the time of one.
  for (; i + 4 <= byteLength; i += 4) if (bytes.getInt32(at + i) !== expected.getInt32(i)) return -1;
  for (; i < byteLength; i++) if (bytes.getUint8(at + i) !== expected.getUint8(i)) return -1;
  return at + byteLength;
}

/** The place behind the value that begins there; -1 where none does. The end of a string is the first bare quote. */
function copyValue(bytes: DataView, begin: number, into: Uint8Array, place: number): number {
  const { byteLength } = bytes;
  if (begin >= byteLength || bytes.getUint8(begin) !== QUOTE) {
    const end = copyAll(IN_SCALAR, bytes, begin, into, place);
    return end > begin ? end : -1;
  }
  into[place] = QUOTE;
  let to = place + 1;
  for (let at = begin + 1; at < byteLength; at++) {
    const byte = bytes.getUint8(at);
    into[to++] = byte;
    if (byte === QUOTE) return at + 1;
    // The character after it belongs to it.
    if (byte === BACKSLASH && ++at < byteLength) into[to++] = bytes.getUint8(at);
  }
  return -1;
}

/** All bytes of that kind from there on; the place behind them. */
function copyAll(kind: Uint8Array, bytes: DataView, begin: number, into: Uint8Array, place: number): number {
  let at = begin;
  for (let to = place; at < bytes.byteLength; at++) {
    const byte = bytes.getUint8(at);
    if (kind[byte] !== 1) return at;
    into[to++] = byte;
  }
  return at;
}

function put(spelt: Uint8Array, at: number, written: DataView): number {
  for (let i = 0; i < written.byteLength; i++) spelt[at + i] = written.getUint8(i);
  return at + written.byteLength;
}

function kindOf(pattern: RegExp): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => Number(pattern.test(String.fromCharCode(byte))));
}

/** One character per byte. */
function bytesOf(text: string): DataView {
  const { buffer, byteOffset, byteLength } = Buffer.from(text, 'latin1');
  return new DataView(buffer, byteOffset, byteLength);
}

function executed(pattern: RegExp, text: string): RegExpExecArray | null {
  try {
    return pattern.exec(text);
  } catch {
    return null;
  }
}
