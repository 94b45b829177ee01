/** A table whose name has changed in case alone is the same one, whoever has changed it and however. */
import { describe, expect, test } from 'vitest';
import type { Change } from '../../src/index.ts';
import { attached, captured, ITEMS, node, rowsOf, type TestNode, writeStamps } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const SQL = 'ALTER TABLE items RENAME TO x; ALTER TABLE x RENAME TO Items';

const change = (id: string, name: string, at: number): Change => ({
  op: 'UPDATE',
  table: 'items',
  row: { id, name, updated_at: at },
  old_id: null,
});

/** With a row that is there, one that was deleted, and one that another hides. */
async function filled(): Promise<TestNode> {
  const it = await node({ schema: `${ITEMS}; CREATE UNIQUE INDEX names ON items (name)` });
  it.db.exec(`INSERT INTO items (id, name, updated_at) VALUES ('a', 'one', ${T}), ('gone', 'two', ${T})`);
  it.db.exec("DELETE FROM items WHERE id = 'gone'");
  it.manager.applyChanges([change('hidden', 'one', T - 10)]);
  expect(rowsOf(it.db, 'SELECT row_id FROM _hidden')).toEqual([{ row_id: 'hidden' }]);
  return it;
}

describe.each<[string, (it: TestNode) => Promise<void> | void]>([
  ['by a migration', ({ manager }) => manager.migrate(SQL)],
  ['by one that says so', ({ manager }) => manager.migrate(SQL, { renameTable: { items: 'Items' } })],
  [
    'by plain SQL',
    (it) => {
      it.db.exec(SQL);
      writeStamps(it.manager);
    },
  ],
  [
    'while nobody is attached',
    async (it) => {
      await it.manager.detach();
      it.db.exec(SQL);
      it.manager = attached(it.db, {}, ['Items']);
    },
  ],
])('%s', (_, rename) => {
  test('what was deleted stays so, what is hidden appears, and all is captured', async () => {
    const it = await filled();
    await rename(it);
    it.manager.applyChanges([change('gone', 'late', T - 1)]);
    expect(it.all('SELECT id FROM items')).toEqual([{ id: 'a' }]);
    it.db.exec(`UPDATE Items SET name = 'other', updated_at = ${T + 5} WHERE id = 'a'`);
    expect(captured(it.db).at(-1)).toMatchObject({ row_id: 'a', row: { name: 'other' } });
    it.manager.applyChanges([change('b', 'three', T)]);
    expect(it.all('SELECT id, name FROM items ORDER BY id')).toEqual([
      { id: 'a', name: 'other' },
      { id: 'b', name: 'three' },
      { id: 'hidden', name: 'one' },
    ]);
    expect(rowsOf(it.db, 'SELECT * FROM _hidden')).toEqual([]);
    expect(it.manager.health()).toMatchObject({ ok: true, item_count: 3, problems: [] });
    expect(rowsOf(it.db, 'SELECT DISTINCT lower(table_name) AS name FROM _changes')).toEqual([{ name: 'items' }]);
  });
});
