/** What is to be done with each change of a batch, decided before anything is written. */

import type { Column, Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { inOneSpelling } from '../wire/exact-text.ts';
import type { Op, RejectionCode } from '../wire/protocol.ts';
import {
  ROW_ID_BYTES_MAX,
  ROW_KEYS_MAX,
  TABLE_NAME_BYTES_MAX,
  TIMESTAMP_MAX,
  TIMESTAMP_MIN,
} from '../wire/protocol.ts';
import type { Shape } from './merge.ts';

/** One change as the temporary table describes it. */
export interface Staged {
  idx: number;
  kind: string;
  op: string | null;
  op_type: string | null;
  tbl: string | null;
  tbl_type: string | null;
  row_type: string | null;
  old_id: string | null;
  old_type: string | null;
  /** The row's keys, as a JSON array. */
  keys: string | null;
}

export type Plan =
  | { kind: 'upsert'; table: Table; op: Op; id: string; timeKey: string; shape: Shape; extra: string[] }
  | { kind: 'delete'; table: Table; op: Op; id: string; timeKey: string }
  /** A DELETE whose row is null: it removes whatever is there, so its place among the others matters. */
  | { kind: 'delete-any'; table: Table; op: Op; id: string }
  /** `isTooMuch`: it is not even kept. */
  | { kind: 'dead-letter'; code: RejectionCode; reason: string; isTooMuch?: boolean };

/** What a decision may ask for. */
export interface Surroundings {
  table(name: string): Table | undefined;
  /** A field of the row of change `idx`: its JSON type, and its value as text. */
  field(idx: number, key: string | undefined): { type: string | null; value: string | number | null };
  /** The shapes seen so far, by table and keys. */
  shapes: Map<string, { shape: Shape; extra: string[] }>;
  /** Without it: what may travel. */
  idLimit?: IdLimit | undefined;
}

/** How long an id may be where it is kept. */
export interface IdLimit {
  bytes: number;
  /** How many of these an id takes; `short`: one that travels in so many is within the limit, whatever is in it. */
  sizeOf(id: string): number;
  short: number;
}

export const TRAVELLING_IDS: IdLimit = {
  bytes: ROW_ID_BYTES_MAX,
  sizeOf: (id) => Buffer.byteLength(id),
  short: ROW_ID_BYTES_MAX,
};

export function planChange(change: Staged, around: Surroundings): Plan {
  const reject = (code: RejectionCode, reason: string): Plan => ({ kind: 'dead-letter', code, reason });
  const { bytes, sizeOf } = around.idLimit ?? TRAVELLING_IDS;
  const isLongId = (id: unknown): boolean => typeof id === 'string' && sizeOf(id) > bytes;
  const longId = `an id may have ${bytes} bytes`;
  if (change.kind !== 'object') return reject('bad-change', `a change must be an object, not ${change.kind}`);
  const { op } = change;
  if (change.op_type !== 'text' || (op !== 'INSERT' && op !== 'UPDATE' && op !== 'DELETE')) {
    return reject('bad-op', `op must be INSERT, UPDATE or DELETE, not ${spelt({ type: change.op_type, value: op })}`);
  }
  if (change.tbl_type !== 'text' || change.tbl === null) return reject('unknown-table', 'table must be a string');
  const table = around.table(change.tbl);
  if (!table) return unknownTable(change.tbl);
  if (change.row_type !== 'object') {
    const nothing = change.row_type === null || change.row_type === 'null';
    if (op !== 'DELETE' || !nothing)
      return reject('bad-row', `row must be an object, not ${change.row_type ?? 'missing'}`);
    if (change.old_type !== 'text' || change.old_id === null)
      return reject('bad-id', 'a DELETE without a row needs old_id');
    if (isLongId(change.old_id)) return reject('bad-id', longId);
    return { kind: 'delete-any', table, op, id: inOneSpelling(change.old_id) };
  }
  const cached = around.shapes.get(`${table.name}\n${change.keys}`);
  const keys: string[] = cached ? [] : JSON.parse(change.keys ?? '[]');
  if (keys.length > ROW_KEYS_MAX) return reject('bad-row', tooManyKeys(keys.length));
  const { shape, extra } = cached ?? matchKeys(table, keys);
  if (!cached) around.shapes.set(`${table.name}\n${change.keys}`, { shape, extra });
  const keyOf = (column: string): string | undefined => shape.fields.find((f) => f.column.name === column)?.key;

  const timeKey = keyOf(table.updatedAt) ?? table.updatedAt;
  const time = around.field(change.idx, timeKey);
  const version = Number(time.value);
  if (time.type !== 'integer' || !(version >= TIMESTAMP_MIN && version <= TIMESTAMP_MAX)) {
    const wanted = 'updated_at must be an integer of milliseconds before the year 2200';
    return reject('bad-timestamp', `${wanted}, not ${spelt(time)}`);
  }
  const rowId = around.field(change.idx, keyOf(table.id));
  if (isLongId(rowId.value) || isLongId(change.old_id)) return reject('bad-id', longId);
  const own = rowId.type === 'text' ? inOneSpelling(rowId.value as string) : undefined;
  if (op === 'DELETE') {
    const named = change.old_type === 'text' ? inOneSpelling(change.old_id as string) : undefined;
    if (own !== undefined && named !== undefined && own !== named) {
      return reject('bad-id', `old_id ${shown(named)} and the id of the row ${shown(own)} differ`);
    }
    const id = named ?? own;
    if (id === undefined) return reject('bad-id', 'a DELETE needs old_id, a string');
    return { kind: 'delete', table, op, id, timeKey };
  }
  if (own === undefined) return reject('bad-id', `id must be a string, not ${spelt(rowId)}`);
  return { kind: 'upsert', table, op, id: own, timeKey, shape, extra };
}

/**
 * Matches the row's keys to columns, without regard to case as SQLite does. Of several keys for one column the one that is
 * spelt as the column travels counts, then the first: the fast way looks for that spelling alone, and both must read one
 * version. A key may also be a name that the column had before. A hub puts a row together from what several nodes have
 * sent, the latest first; so of the column's names the first counts.
 */
export function matchKeys(table: Table, keys: string[]): { shape: Shape; extra: string[] } {
  const shape: Shape = { fields: [] };
  const extra: string[] = [];
  for (const key of keys) {
    const column = columnFor(table, key);
    const known = shape.fields.find((f) => f.column === column);
    if (!column) {
      if (!table.dropped.has(fold(key))) extra.push(key);
    } else if (!known) shape.fields.push({ key, column });
    else if (key === column.wireName && fold(key) === fold(known.key)) known.key = key;
  }
  return { shape, extra };
}

/** The column that a key speaks of: the one of that name, or the one that had it before. */
export function columnFor(table: Table, key: string): Column | undefined {
  const name = fold(key);
  return table.columns.find((candidate) => fold(candidate.name) === name) ?? table.aliases.get(name);
}

/** Its name goes into a letter, and many letters of many names must not fill a disk. */
export function unknownTable(name: string): Extract<Plan, { kind: 'dead-letter' }> {
  const isTooMuch = Buffer.byteLength(name) > TABLE_NAME_BYTES_MAX;
  return { kind: 'dead-letter', code: 'unknown-table', reason: `table ${shown(name)} is not synced here`, isTooMuch };
}

export function tooManyKeys(keys: number): string {
  return `a row may have ${ROW_KEYS_MAX} keys, this one has ${keys}`;
}

/** As it came: a number has no quotes, by which it is told from a text that looks like one. */
function spelt({ type, value }: { type: string | null; value: string | number | null }): string {
  const isNumber = type === 'integer' || type === 'real';
  return isNumber ? String(value).slice(0, 80) : shown(value ?? type);
}

function shown(value: unknown): string {
  return JSON.stringify(value)?.slice(0, 80) ?? 'nothing';
}
