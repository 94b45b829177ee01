/**
 * `pg` as far as it is needed, and what travels to and from it. Nothing here imports it: whoever makes the store has it.
 *
 * Text of PostgreSQL cannot hold the character U+0000, which ids and names of tables may have. It is stored as two
 * characters that keep the order of bytes: see `toText`.
 */

import type { IdLimit } from '../../receive/plan.ts';

/** What `import pg from 'pg'` gives. */
export interface PostgresDriver {
  Client: new (config: ClientConfig) => PostgresClient;
}

export interface ClientConfig {
  connectionString: string;
  connectionTimeoutMillis: number;
  application_name: string;
  keepAlive: boolean;
  query_timeout: number;
  /** What is asked is sent before what was asked before it is answered. A driver that cannot do that sends it afterwards. */
  pipeline: boolean;
  types: { getTypeParser(oid: number, format?: string): (value: string) => unknown };
}

export interface PostgresClient {
  connect(): Promise<unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: rows are whatever was asked for
  query(text: string, values?: unknown[]): Promise<{ rows: any[]; rowCount: number | null }>;
  // biome-ignore lint/suspicious/noExplicitAny: the events of an emitter
  on(event: string, listener: (...args: any[]) => void): unknown;
  end(): Promise<void>;
  readonly connection?: { readonly stream?: { destroy?(): void } };
}

export type Param = string | number | boolean | null | Uint8Array;

/** Values as the store works with them: integers are numbers (none is above 2^53), all else is text. */
export const TYPES: ClientConfig['types'] = { getTypeParser: (oid) => PARSERS.get(oid) ?? String };

const PARSERS = new Map<number, (value: string) => unknown>([
  [16, (value) => value === 't'],
  [17, (value) => Buffer.from(value.slice(2), 'hex')],
  [20, Number],
  [21, Number],
  [23, Number],
  [701, Number],
]);

const TEXT = 25;
const INT8 = 20;

/** An array of text in PostgreSQL's own binary form: no character has to be escaped, or read again. */
export function textArray(values: readonly (string | null)[]): Uint8Array {
  const sizes = values.map((value) => (value === null ? 0 : Buffer.byteLength(value)));
  const array = arrayOf(
    TEXT,
    values.length,
    sizes.reduce((sum, size) => sum + size, 0),
    values.includes(null),
  );
  let at = HEAD_BYTES;
  for (const [i, value] of values.entries()) {
    at = array.writeInt32BE(value === null ? -1 : (sizes[i] as number), at);
    if (value !== null) at += array.write(value, at);
  }
  return array;
}

export function integerArray(values: readonly (number | null)[]): Uint8Array {
  const nulls = values.filter((value) => value === null).length;
  const array = arrayOf(INT8, values.length, 8 * (values.length - nulls), nulls > 0);
  let at = HEAD_BYTES;
  for (const value of values) {
    at = array.writeInt32BE(value === null ? -1 : 8, at);
    // In two halves, without a BigInt for each.
    if (value !== null) at = array.writeUInt32BE(value >>> 0, array.writeInt32BE(Math.floor(value / 2 ** 32), at));
  }
  return array;
}

const HEAD_BYTES = 20;

/** One dimension, counted from 1. */
function arrayOf(type: number, count: number, bytes: number, hasNulls: boolean): Buffer {
  const array = Buffer.allocUnsafe(HEAD_BYTES + 4 * count + bytes);
  for (const [i, field] of [1, hasNulls ? 1 : 0, type, count, 1].entries()) array.writeInt32BE(field, 4 * i);
  return array;
}

/** U+0000 and U+0001 become U+0001 and a second one: what was less stays less. */
export function toText(value: string): string {
  if (!value.includes('\0') && !value.includes(MARK)) return value;
  return value.replaceAll(MARK, `${MARK}\x02`).replaceAll('\0', `${MARK}${MARK}`);
}

export function fromText(stored: string): string {
  if (!stored.includes(MARK)) return stored;
  let text = '';
  for (let at = 0; ; ) {
    const mark = stored.indexOf(MARK, at);
    if (mark < 0) return text + stored.slice(at);
    text += stored.slice(at, mark) + (stored[mark + 1] === MARK ? '\0' : MARK);
    at = mark + 2;
  }
}

const MARK = '\x01';

/**
 * An entry of an index has 2,704 bytes at the most, and the name of a table, of 200, is in it, too. One that did not fit would
 * fail its whole batch, for ever. As it is stored, a character may take two.
 */
export const STORED_IDS: IdLimit = { bytes: 2_000, sizeOf: (id) => Buffer.byteLength(toText(id)), short: 1_000 };
