/** Writes for the tests of capture, and what was captured of them. */
import { expect } from 'vitest';
import type { TestDatabase } from './lane.ts';
import { captured, type TestNode } from './nodes.ts';

export const insert = (id: string, at: number | string = 1000, name = 'n', value = 1): string =>
  `INSERT INTO items (id, name, value, created_at, updated_at) VALUES ('${id}', '${name}', ${value}, 10, ${at})`;

export const ops = (db: TestDatabase): string[] => captured(db).map(({ op, row_id }) => `${op} ${row_id}`);

/** A second synced table, written by a trigger that stands back while changes are applied. */
export const LOG = `CREATE TABLE log (id TEXT PRIMARY KEY, what TEXT, updated_at INTEGER);
  CREATE TRIGGER note AFTER UPDATE ON items WHEN (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1
  BEGIN INSERT INTO log VALUES (NEW.id || NEW.updated_at || NEW.name, NEW.name, 1000) ON CONFLICT DO NOTHING; END`;

/** The row's stored version and the last captured one agree, and both are above `floor`. */
export function expectAdvanced(it: TestNode, id: string, floor: number): number {
  const [stored] = it.all('SELECT typeof(updated_at) AS type, updated_at AS at FROM items WHERE id = ?', id);
  const last = captured(it.db).findLast(({ row_id, op }) => row_id === id && op !== 'DELETE');
  expect(stored?.type).toBe('integer');
  expect(Number(stored?.at)).toBeGreaterThan(floor);
  expect(last?.row.updated_at).toBe(stored?.at);
  return Number(stored?.at);
}
