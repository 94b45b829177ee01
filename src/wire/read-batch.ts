/**
 * A request body, held to what a batch is before anything is done with it. SQLite reads it; no row becomes an object.
 */
import { isUtf8 } from 'node:buffer';
import { messageOf, RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { BATCH_END } from './body.ts';
import { fitsPlain, plainForm, rowsBegin, type TabularHead, tabularHead } from './tabular.ts';

export interface BatchLimits {
  bodyBytes: number;
  batchChanges: number;
}

/** The shortest change has some fifty. Many more than that make a body of noughts, and every nought a dead letter. */
const CHANGE_BYTES_MIN = 40;
const CHANGES_UNCHECKED = 10_000;

/** Beyond what Rowcast puts into a batch of ordinary rows. */
const LARGE_BYTES = 256 * 1024;

/** A body that is a batch, in the plain form. */
export interface BatchDocument extends AnyDocument {
  /** Keeps the other form from being taken for this one. */
  tabular?: undefined;
  skip?: undefined;
}

/** A body in the tabular form. What its rows hold has not been looked at yet. */
export interface TabularDocument extends AnyDocument {
  tabular: TabularHead;
  /** Of the rows in `json`, those before the first that is meant; of a whole body there are none. */
  skip: number;
  /** It may be read in the plain form: that is not too large. */
  fitsPlain: boolean;
  /** The same batch in the plain form; throws as `readBatch` does. */
  plain(): BatchDocument;
  /** So many of its rows, after `skip`, whose text is given: a batch of its own, for which nothing is parsed again. */
  part(skip: number, count: number, rows: string): TabularDocument;
}

interface AnyDocument {
  /** As SQLite reads it fastest: JSONB, or the text itself where SQLite is too old for it. */
  json: Uint8Array | string;
  /** Some string begins with `$`, so values may have to be decoded. */
  isEncoded: boolean;
  /** It has room for a row of which no statement should make many copies: see `pathOf`. */
  isLarge: boolean;
  /** The body with one character per byte: what can be told from it is ASCII, and nothing has to be decoded. */
  text: string;
  /** A decimal string where a JavaScript number would not be exact. */
  batchId: number | string;
  count: number;
}

/** Reads a batch in either form as a plain one. Throws a RowcastError that says why when the body is not a batch at all. */
export function readBatch(
  db: Connection,
  jsonb: boolean,
  limits: BatchLimits,
  body: string | Uint8Array,
): BatchDocument {
  const document = readEitherForm(db, jsonb, limits, body);
  return document.tabular ? document.plain() : document;
}

/** The same, for who reads both forms. */
export function readEitherForm(
  db: Connection,
  jsonb: boolean,
  limits: BatchLimits,
  body: string | Uint8Array,
): BatchDocument | TabularDocument {
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) throw invalid('the body must be text or bytes');
  const bytes =
    typeof body === 'string' ? Buffer.from(body) : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (bytes.byteLength > limits.bodyBytes) {
    throw new RowcastError('BODY_TOO_LARGE', `the body has ${bytes.byteLength} bytes, ${limits.bodyBytes} are allowed`);
  }
  if (!isUtf8(bytes)) throw invalid('the body is not valid UTF-8');
  if (bytes.includes(0)) throw invalid('the body is not JSON: it holds a NUL byte');
  const text = bytes.toString('latin1');
  const json = parse(db, jsonb, withoutHalfPairs(bytes, text));
  const tabular = tabularHead(text);
  const list = tabular ? 'rows' : 'changes';
  const head = db.get<Record<string, string | number | null>>(
    `SELECT json_type(d) AS top, json_type(d, '$.batch_id') AS id_type, typeof(d ->> '$.batch_id') AS id_class, ` +
      `CAST(d ->> '$.batch_id' AS TEXT) AS id, json_type(d, '$.${list}') AS list_type, ` +
      `json_array_length(d, '$.${list}') AS n FROM (SELECT ? AS d LIMIT -1)`,
    json,
  );
  if (head?.top !== 'object') throw invalid('the body must be a JSON object {batch_id, changes}');
  if (head.id_type !== 'integer' || head.id_class !== 'integer') throw invalid('batch_id must be a 64-bit integer');
  if (head.list_type !== 'array') throw invalid(`${list} must be an array`);
  const count = Number(head.n);
  const most = limits.batchChanges;
  if (count > most)
    throw new RowcastError(
      'BODY_TOO_LARGE',
      `the batch has ${count} changes, ${most} are allowed: send fewer at a time`,
    );
  if (count > CHANGES_UNCHECKED && count > bytes.byteLength / CHANGE_BYTES_MIN) {
    throw invalid(`the batch has ${count} changes in ${bytes.byteLength} bytes: most of them cannot be changes`);
  }
  const id = String(head.id);
  const isEncoded = text.includes('"$') || text.includes('"\\u0024');
  const isLarge = bytes.byteLength > LARGE_BYTES;
  const batchId = Number.isSafeInteger(Number(id)) ? Number(id) : id;
  const document = { json, text, count, isEncoded, isLarge, batchId };
  if (!tabular) return document;
  const isReadable = fitsPlain(text, tabular, count, limits.bodyBytes);
  // Of a part what counts is the whole: if that fits, none of its parts may turn out to be too large.
  return tabularDocument({ ...document, tabular, skip: 0, fitsPlain: isReadable }, (of, rows) => {
    const plain = plainForm(of, tabular, rows, limits.bodyBytes, text.length);
    return readBatch(db, jsonb, limits, checkedPlain(plain));
  });
}

function tabularDocument(
  values: Omit<TabularDocument, 'plain' | 'part'>,
  plain: (text: string, rows: number) => BatchDocument,
): TabularDocument {
  const { text, count, tabular } = values;
  return {
    ...values,
    plain: () => plain(text, count),
    part: (skip, rows, spelt) => {
      const batch = text.slice(0, rowsBegin(tabular)) + spelt + BATCH_END;
      const isLarge = batch.length > LARGE_BYTES;
      return tabularDocument({ ...values, skip, count: rows, text: batch, isLarge }, plain);
    },
  };
}

function checkedPlain(body: ReturnType<typeof plainForm>): Uint8Array {
  if (body === undefined) throw invalid('a row of a tabular batch must be an array with a value for each column');
  if (body !== 'too-large') return body;
  throw new RowcastError('BODY_TOO_LARGE', 'the batch is too large once its columns are named with every row');
}

/**
 * Half of a surrogate pair can be written as an escape and has no UTF-8 form: SQLite would store bytes that are not
 * text, and an id that JavaScript reads as another one. It becomes U+FFFD, as it does wherever it leaves a node.
 *
 * Byte by byte and in place, because the escape of U+FFFD is as long: sixty megabytes of such halves fit into 85 kB of
 * gzip, and a replacement by pattern took two gigabytes for them.
 */
function withoutHalfPairs(bytes: Buffer, text: string): Buffer {
  // The first look costs next to nothing, and most bodies hold no such escape at all.
  if (!bytes.includes('\\u') || !/\\u[dD][89a-fA-F]/.test(text)) return bytes;
  let whole = bytes;
  // Not by indexOf: a call for each of ten million escapes costs more than the loop.
  for (let at = 0; at < bytes.length; at++) {
    if (bytes[at] !== BACKSLASH) continue;
    const half = surrogateAt(bytes, at);
    if (half === undefined) {
      // The character after it belongs to it: an escaped backslash does not begin the next escape.
      at += 1;
    } else if (half === 'high' && surrogateAt(bytes, at + ESCAPE_BYTES) === 'low') {
      at += 2 * ESCAPE_BYTES - 1;
    } else {
      // The bytes are the caller's.
      if (whole === bytes) whole = Buffer.from(bytes);
      whole.set(REPLACEMENT, at);
      at += ESCAPE_BYTES - 1;
    }
  }
  return whole;
}

const REPLACEMENT = Buffer.from('\\ufffd');
const BACKSLASH = 0x5c;
const ESCAPE_BYTES = 6;

/** Whether an escape begins here that is half of a pair, and which half. */
function surrogateAt(bytes: Buffer, at: number): 'high' | 'low' | undefined {
  if (bytes[at] !== BACKSLASH || bytes[at + 1] !== 0x75 || ((bytes[at + 2] as number) | 0x20) !== 0x64)
    return undefined;
  const third = (bytes[at + 3] as number) | 0x20;
  if (third === 0x38 || third === 0x39 || third === 0x61 || third === 0x62) return 'high';
  return third >= 0x63 && third <= 0x66 ? 'low' : undefined;
}

/** SQLite reads JSON5 as well; json_valid holds the body to JSON proper. */
function parse(db: Connection, jsonb: boolean, body: Uint8Array): string | Uint8Array {
  try {
    const row = db.get<{ ok: number; json: Uint8Array | string }>(
      `SELECT json_valid(t) AS ok, ${jsonb ? 'jsonb(t)' : 't'} AS json FROM (SELECT CAST(? AS TEXT) AS t LIMIT -1)`,
      body,
    );
    if (row?.ok !== 1) throw invalid('the body is not JSON');
    return row.json;
  } catch (error) {
    if (error instanceof RowcastError) throw error;
    if (/JSON/i.test(messageOf(error))) throw invalid('the body is not JSON', error);
    throw error;
  }
}

function invalid(message: string, cause?: unknown): RowcastError {
  return new RowcastError('INVALID_BATCH', message, cause === undefined ? {} : { cause });
}
