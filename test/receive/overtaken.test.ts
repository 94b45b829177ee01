/** A constraint refuses what would lose anyway: it is stale, and no letter of a row that is as it should be. */
import { expect, test } from 'vitest';
import type { Manager } from '../../src/index.ts';
import { node } from '../support/nodes.ts';

const SCHEMA =
  'CREATE TABLE items (id TEXT PRIMARY KEY, value INTEGER NOT NULL CHECK (value < 10), updated_at INTEGER)';
const T = 1_000;

const put = (value: number | null, at: number) => ({
  op: 'UPDATE',
  table: 'items',
  row: { id: 'a', value, updated_at: at },
  old_id: null,
});
const gone = (at: number) => ({
  op: 'DELETE',
  table: 'items',
  row: { id: 'a', value: 1, updated_at: at },
  old_id: 'a',
});

function receive(manager: Manager, ...changes: object[]): unknown {
  return manager.receive(JSON.stringify({ batch_id: 1, changes })).body;
}

const letters = (manager: Manager): unknown[] => manager.deadLetters.list();

test.each([
  ['a CHECK', put(50, T)],
  ['NOT NULL', put(null, T)],
])('what is older than the row, and against %s, is stale', async (_, old) => {
  const { manager, all } = await node({ schema: SCHEMA });
  receive(manager, put(5, T + 1));
  expect(receive(manager, old)).toEqual({ applied: 0, ack: 1 });
  expect(letters(manager)).toEqual([]);
  expect(all('SELECT value, updated_at FROM items')).toEqual([{ value: 5, updated_at: T + 1 }]);
});

test('what is older than its deletion is stale', async () => {
  const { manager, all } = await node({ schema: SCHEMA });
  receive(manager, put(5, T));
  receive(manager, gone(T + 1));
  expect(receive(manager, put(50, T))).toEqual({ applied: 0, ack: 1 });
  expect(letters(manager)).toEqual([]);
  expect(all('SELECT * FROM items')).toEqual([]);
});

test.each([
  ['before it', [put(5, T + 1), put(50, T), put(6, T + 2)]],
  ['behind it', [put(50, T), put(6, T + 2)]],
  ['on both sides of it', [put(5, T + 3), put(60, T + 4), put(7, T + 5)]],
  ['as a deletion', [put(50, T), gone(T + 1)]],
])(
  'of one batch, what stands %s overtakes what cannot be written; sent again, it has the same answer',
  async (_, changes) => {
    const { manager, all } = await node({ schema: SCHEMA });
    const first = receive(manager, ...changes);
    const rows = all('SELECT * FROM items');
    expect(letters(manager)).toEqual([]);
    expect(receive(manager, ...changes)).toEqual(first);
    expect(all('SELECT * FROM items')).toEqual(rows);
    expect(letters(manager)).toEqual([]);
  },
);

test('a letter that the row has overtaken goes when it is tried again', async () => {
  const { manager, all } = await node({ schema: SCHEMA });
  receive(manager, put(50, T));
  expect(letters(manager)).toHaveLength(1);
  receive(manager, put(5, T + 1));
  const [letter] = manager.deadLetters.list();
  if (letter) manager.deadLetters.retry(letter.id);
  expect(letters(manager)).toEqual([]);
  expect(manager.health().dead_letter).toBe(0);
  expect(all('SELECT value FROM items')).toEqual([{ value: 5 }]);
});

test('what is newer, or of the same time, stays a letter', async () => {
  const { manager } = await node({ schema: SCHEMA });
  receive(manager, put(5, T));
  expect(receive(manager, put(50, T))).toMatchObject({ rejected: [{ code: 'constraint' }] });
  expect(receive(manager, put(51, T + 1))).toMatchObject({ rejected: [{ code: 'constraint' }] });
  expect(letters(manager)).toHaveLength(2);
});
