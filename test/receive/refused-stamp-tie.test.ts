/** A row whose version the application does not let in, and a change at just that version: the content decides as elsewhere. */
import { describe, expect, test } from 'vitest';
import { ITEMS, node, rowsOf, writeStamps } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const ROWLESS = { op: 'DELETE', table: 'items', row: null, old_id: 'nobody' };

/** `a` has here what it has, at a version that a trigger keeps out of it; there it has come as any other row does. */
async function both(beside: unknown[], value: number | null) {
  const here = await node({ schema: ITEMS });
  here.db.exec(`INSERT INTO items VALUES ('a', 'n', 3, 1, ${T}); UPDATE items SET created_at = 2`);
  here.db.exec(
    "CREATE TRIGGER no BEFORE UPDATE ON items WHEN NEW.value IS OLD.value BEGIN SELECT RAISE(ABORT, 'no'); END",
  );
  writeStamps(here.manager);
  const version = Number(rowsOf(here.db, 'SELECT version FROM _stamps WHERE refused = 1')[0]?.version);
  const row = (one: object) => ({ id: 'a', name: 'n', value: 3, created_at: 2, updated_at: version, ...one });
  const there = await node({ schema: ITEMS });
  const give = (to: typeof here, changes: unknown[]): void => {
    const body = JSON.stringify({ batch_id: 1, changes });
    expect(to.manager.receive(body, { said: 'id=x' }).status).toBe(200);
  };
  give(there, [{ op: 'INSERT', table: 'items', row: row({}), old_id: null }]);
  const other = { op: 'UPDATE', table: 'items', row: row({ value }), old_id: null };
  for (const to of [here, there]) give(to, [...beside, other]);
  const of = (one: typeof here): unknown => rowsOf(one.db, 'SELECT name, value, created_at FROM items');
  expect(here.manager.deadLetters.list()).toEqual([]);
  return { here: of(here), there: of(there) };
}

describe.each([
  ['as sets', []],
  ['carefully', [ROWLESS]],
])('%s', (_, beside) => {
  test.each([1, 2, 3, 4, 9, null])('value %s', async (value) => {
    const { here, there } = await both(beside, value);
    expect(here).toEqual(there);
  });
});
