/** What a change of the schema does to floors, and what floors do to the rows that it writes. */
import { expect, test } from 'vitest';
import { collect } from '../support/collect.ts';
import { captured, ITEMS, node, rowsOf } from '../support/nodes.ts';

const T = 1_700_000_000_000;

const change = (op: string, table: string, id: string, at: number): object => ({
  op,
  table,
  row: { id, name: 'x', value: 1, created_at: 1, updated_at: at },
  old_id: op === 'DELETE' ? id : null,
});

async function collected() {
  const it = await node();
  const receive = (...changes: object[]): string[] => {
    const { body } = it.manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=b', from: 'b' });
    return ((body as { rejected?: { code: string }[] }).rejected ?? []).map(({ code }) => code);
  };
  receive(change('DELETE', 'items', 'a', T));
  collect(it.db);
  return { ...it, receive };
}

test('a table that is renamed keeps its floor, under its old name and its new one', async () => {
  const { db, manager, receive } = await collected();
  manager.migrate('ALTER TABLE items RENAME TO things', { renameTable: { items: 'things' } });
  expect(rowsOf(db, "SELECT key, value FROM _meta WHERE key LIKE 'floor:%'")).toEqual([
    { key: 'floor:things', value: T },
  ]);
  expect(receive(change('UPDATE', 'items', 'a', T), change('UPDATE', 'things', 'b', T - 1))).toEqual([
    'below-floor',
    'below-floor',
  ]);
  db.exec(`INSERT INTO things (id, updated_at) VALUES ('a', ${T - 1})`);
  expect(Number(captured(db).at(-1)?.row.updated_at)).toBeGreaterThan(T);
});

test('a name that had a floor of its own keeps the higher one', async () => {
  const { db, manager, receive } = await collected();
  db.exec(`INSERT INTO _meta (key, value) VALUES ('floor:things', ${T + 7})`);
  manager.migrate('ALTER TABLE items RENAME TO things', { renameTable: { items: 'things' } });
  expect(receive(change('UPDATE', 'things', 'b', T + 7))).toEqual(['below-floor']);
  expect(rowsOf(db, "SELECT value FROM _meta WHERE key = 'floor:things'")).toEqual([{ value: T + 7 }]);
});

test('a row that a migration inserts begins above the floor, and one that it removes has a day', async () => {
  const { db, manager, receive } = await collected();
  receive(change('UPDATE', 'items', 'old', T + 1));
  db.exec(`UPDATE _meta SET value = ${T + 5} WHERE key = 'floor:items'`);
  const before = Date.now() - 1;
  manager.migrate(
    `CREATE TABLE fresh AS SELECT * FROM items; DROP TABLE items; ${ITEMS}; ` +
      `INSERT INTO items SELECT * FROM fresh WHERE id <> 'old'; DROP TABLE fresh; ` +
      `INSERT INTO items VALUES ('new', 'x', 1, 1, ${T + 2})`,
  );
  const [row] = rowsOf(db, "SELECT updated_at AS v FROM items WHERE id = 'new'");
  expect(Number(row?.v)).toBeGreaterThanOrEqual(before);
  expect(rowsOf(db, 'SELECT row_id, day IS NOT NULL AS dated FROM _tombstones')).toEqual([{ row_id: 'old', dated: 1 }]);
});

test('a row that was there, however old, is not new to a migration', async () => {
  const { db, manager, receive } = await collected();
  receive(change('UPDATE', 'items', 'old', T + 1));
  db.exec(`UPDATE _meta SET value = ${T + 5} WHERE key = 'floor:items'`);
  manager.migrate("UPDATE items SET name = 'other'");
  expect(rowsOf(db, 'SELECT updated_at AS v FROM items')).toEqual([{ v: T + 2 }]);
});
