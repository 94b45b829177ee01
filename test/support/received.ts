/** Batches as they are received, and what they leave. */
import type { Manager, Received } from '../../src/index.ts';
import type { ReceiveOptions } from '../../src/receive/answer.ts';
import type { Ack } from '../../src/wire/protocol.ts';
import type { TestDatabase } from './lane.ts';
import { rowsOf } from './nodes.ts';

export type Row = Record<string, unknown>;

export function put(id: string, updatedAt: unknown, extra: Row = {}, table = 'items'): Row {
  const row = { id, name: 'n', value: 1, created_at: 1, updated_at: updatedAt, ...extra };
  return { op: 'UPDATE', table, row, old_id: null };
}

export function remove(id: string, updatedAt: unknown, table = 'items'): Row {
  const row = { id, name: 'n', value: 1, created_at: 1, updated_at: updatedAt };
  return { op: 'DELETE', table, row, old_id: id };
}

/** A deletion as a plain peer may send it. */
export function rowless(id: string): Row {
  return { op: 'DELETE', table: 'items', row: null, old_id: id };
}

export function batch(...changes: unknown[]): string {
  return JSON.stringify({ batch_id: 7, changes });
}

export function accepted(manager: Manager, body: string | Uint8Array, from?: string): Ack {
  const answer = manager.receive(body, { from, said: 'id=somebody' });
  if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.body.error}`);
  return answer.body;
}

/** As whoever serves `/sync` does it: the same bytes come again until the last part of them is applied. */
export function receivedInParts(
  manager: Manager,
  body: Uint8Array,
  options: ReceiveOptions,
): { received: Received; steps: number } {
  for (let steps = 1; ; steps++) {
    const received = manager.receive(body, options);
    if (received.status === 200 || received.goesOn === undefined) return { received, steps };
    if (received.goesOn !== steps) throw new Error(`step ${steps} says that it was ${received.goesOn}`);
  }
}

export const codes = (ack: Ack): unknown[] => (ack.rejected ?? []).map(({ index, code }) => [index, code]);
export const pragma = (db: TestDatabase, name: string): unknown =>
  Object.values(rowsOf(db, `PRAGMA ${name}`)[0] ?? {})[0];
export const syncing = (db: TestDatabase): unknown =>
  rowsOf(db, "SELECT value FROM _meta WHERE key = 'syncing'")[0]?.value;
export const ids = (db: TestDatabase, table = 'items'): unknown[] =>
  rowsOf(db, `SELECT id FROM "${table}" ORDER BY id`).map(({ id }) => id);
export const tombstones = (db: TestDatabase): unknown[] =>
  rowsOf(db, 'SELECT table_name, row_id, version FROM _tombstones ORDER BY 1, 2');
