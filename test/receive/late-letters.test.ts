/** Letters about a column that wait although the column is here: what was said of it since then is later than they are. */
import { describe, expect, test } from 'vitest';
import type { Manager } from '../../src/index.ts';
import { node, until } from '../support/nodes.ts';

/** Later than any time at which a test runs. */
const T = 4_000_000_000_000;
/** More than are tried at a time. */
const MANY = 250;
const LAST = `k${MANY - 1}`;

const ITEMS = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';

type Row = Record<string, unknown>;

function receive(manager: Manager, ...rows: Row[]): void {
  const changes = rows.map((row) => ({ op: 'UPDATE', table: 'items', row, old_id: null }));
  expect(manager.receive(JSON.stringify({ batch_id: 1, changes }))).toMatchObject({ status: 200 });
}

/** A node that was sent the column before it has it, and has it now; the letter of the last row is not tried yet. */
async function caughtInTheMiddle() {
  const r = await node({ id: 'r', schema: ITEMS });
  const rows = Array.from({ length: MANY }, (_, i) => ({ id: `k${i}`, name: 'n', updated_at: T, c: 'old' }));
  receive(r.manager, ...rows);
  r.db.exec('ALTER TABLE items ADD COLUMN c');
  const waiting = () =>
    Number(r.all("SELECT count(*) AS n FROM _dead_letter_info WHERE code = 'unknown-column'")[0]?.n);
  const last = () => r.all('SELECT name, c, updated_at FROM items WHERE id = ?', LAST)[0];
  return { ...r, last, waiting, done: () => until('no letter is left', () => waiting() === 0) };
}

describe('a letter about a column that is here, and has not come to its turn', () => {
  test('is void where a later change has set the column to NULL', async () => {
    const { manager, last, done, waiting } = await caughtInTheMiddle();
    receive(manager, { id: LAST, name: 'n', updated_at: T + 5, c: null });
    expect(last()).toEqual({ name: 'n', c: null, updated_at: T + 5 });
    expect(waiting()).toBeGreaterThan(0);
    await done();
    expect(last()).toEqual({ name: 'n', c: null, updated_at: T + 5 });
  });

  test('is filled in where a later change does not speak of the column', async () => {
    const { manager, last, done } = await caughtInTheMiddle();
    receive(manager, { id: LAST, name: 'other', updated_at: T + 5 });
    await done();
    expect(last()).toEqual({ name: 'other', c: 'old', updated_at: T + 6 });
  });

  test('is filled in where what speaks of the column is older, or is refused', async () => {
    const { manager, last, done } = await caughtInTheMiddle();
    receive(manager, { id: LAST, name: 'n', updated_at: T - 5, c: null });
    receive(manager, { id: LAST, name: 'n', updated_at: T + 200 * 365 * 86_400_000, c: null });
    await done();
    expect(last()).toEqual({ name: 'n', c: 'old', updated_at: T });
  });
});

test('a letter of a row that is hidden is void where a later version of it has set the column to NULL', async () => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER)';
  const r = await node({ id: 'r', schema });
  const b = (more: Row): void => receive(r.manager, { id: 'b', name: 'taken', ...more });
  receive(r.manager, { id: 'a', name: 'taken', updated_at: T + 10 });
  b({ updated_at: T, c: 'old' });
  r.db.exec('ALTER TABLE items ADD COLUMN c');
  b({ updated_at: T + 5, c: null });
  expect(r.all('SELECT id FROM items')).toEqual([{ id: 'a' }]);
  receive(r.manager, { id: 'a', name: 'other', updated_at: T + 11 });
  await until('no letter is left', () => r.all('SELECT 1 FROM _dead_letter').length === 0);
  expect(r.all('SELECT id, c, updated_at FROM items')).toEqual([
    { id: 'a', c: null, updated_at: T + 11 },
    { id: 'b', c: null, updated_at: T + 5 },
  ]);
});

test('a letter of a row that is hidden goes with the deletion of the row, and not with an older one', async () => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER)';
  const r = await node({ id: 'r', schema });
  const gone = (at: number): unknown => {
    const changes = [{ op: 'DELETE', table: 'items', row: { id: 'b', updated_at: at }, old_id: 'b' }];
    return r.manager.receive(JSON.stringify({ batch_id: 1, changes }));
  };
  const codes = () => r.all('SELECT code FROM _dead_letter_info ORDER BY code').map(({ code }) => code);
  receive(r.manager, { id: 'a', name: 'taken', updated_at: T + 10 });
  receive(r.manager, { id: 'b', name: 'taken', updated_at: T, c: 'old' });
  r.db.exec('ALTER TABLE items ADD COLUMN c');
  receive(r.manager, { id: 'x', name: 'of its own', updated_at: T });
  gone(T - 5);
  expect(codes()).toEqual(['unique', 'unknown-column']);
  gone(T + 5);
  expect(codes()).toEqual([]);
  expect(r.manager.health()).toMatchObject({ ok: true, dead_letter: 0 });
});
