/**
 * A column is added and filled on one node after the other. What users of the first write to it meanwhile waits at the second
 * in letters, and is later than what the migration fills there, whenever that comes.
 */
import { expect, test } from 'vitest';
import { node, rowsOf, type TestNode, until } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';
const FILLED = 'ALTER TABLE items ADD COLUMN prio INTEGER; UPDATE items SET prio = 5 WHERE prio IS NULL';

let batch = 0;
async function give({ manager }: TestNode, ...rows: Record<string, unknown>[]): Promise<void> {
  batch += 1;
  const changes = rows.map((row) => ({ op: 'UPDATE', table: 'items', row, old_id: null }));
  const said = JSON.stringify({ batch_id: batch, changes });
  expect(await manager.receive(said, { from: 'n1' })).toMatchObject({ status: 200 });
}

async function second(schema = SCHEMA): Promise<TestNode> {
  const one = await node({ id: 'n2', schema });
  await give(one, ...['r1', 'r2', 'r3'].map((id) => ({ id, name: `name of ${id}`, updated_at: T })));
  one.db.exec('DELETE FROM _changes');
  return one;
}

const sent = ({ db }: TestNode): unknown[] =>
  rowsOf(db, 'SELECT row_data FROM _changes ORDER BY change_id').map(({ row_data }) => JSON.parse(String(row_data)));
const prios = (one: TestNode): unknown[] => one.all('SELECT id, prio, updated_at AS at FROM items ORDER BY id');

test('what was written there since it was filled stands, and is sent by nobody else', async () => {
  const two = await second();
  await give(two, { id: 'r1', name: 'name of r1', prio: 5, updated_at: T + 1 });
  await give(two, { id: 'r1', name: 'name of r1', prio: 9, updated_at: T + 7 });
  await give(two, { id: 'r2', name: 'name of r2', prio: null, updated_at: T + 8 });
  two.manager.migrate(FILLED);
  expect(prios(two)).toEqual([
    { id: 'r1', prio: 9, at: T + 7 },
    { id: 'r2', prio: null, at: T + 8 },
    { id: 'r3', prio: 5, at: T + 1 },
  ]);
  expect(sent(two)).toEqual([{ id: 'r3', name: 'name of r3', prio: 5, updated_at: T + 1 }]);
  // What the letters said is in the rows, and they are done with.
  await until('no letter is left', () => two.manager.deadLetters.list().length === 0);
  expect(prios(two)[0]).toEqual({ id: 'r1', prio: 9, at: T + 7 });
});

test('a row that was chosen over it at the same time takes the value along as a version of its own', async () => {
  const two = await second();
  await give(two, { id: 'r1', name: 'a name', prio: 9, updated_at: T });
  expect(two.all("SELECT name FROM items WHERE id = 'r1'")).toEqual([{ name: 'name of r1' }]);
  two.manager.migrate(FILLED);
  const row = { id: 'r1', name: 'name of r1', prio: 9, updated_at: T + 1 };
  expect(two.all("SELECT id, name, prio, updated_at FROM items WHERE id = 'r1'")).toEqual([row]);
  expect(sent(two)).toContainEqual(row);
});

test('a row that has moved on without the column takes the value along', async () => {
  const two = await second();
  await give(two, { id: 'r1', name: 'name of r1', prio: 9, updated_at: T + 7 });
  two.db.exec(`UPDATE items SET name = 'other', updated_at = ${T + 50} WHERE id = 'r1'; DELETE FROM _changes`);
  two.manager.migrate(FILLED);
  expect(prios(two)[0]).toEqual({ id: 'r1', prio: 9, at: T + 51 });
  expect(sent(two)).toContainEqual({ id: 'r1', name: 'other', prio: 9, updated_at: T + 51 });
});

test('a row that was deleted since and is there again has nothing to do with it', async () => {
  const two = await second();
  await give(two, { id: 'r1', name: 'name of r1', prio: 9, updated_at: T + 7 });
  two.db.exec(`DELETE FROM items WHERE id = 'r1'; INSERT INTO items VALUES ('r1', 'anew', ${T + 90})`);
  two.manager.migrate(FILLED);
  expect(prios(two)[0]).toMatchObject({ id: 'r1', prio: 5 });
});

test('what a column was split into, and was put right since, stays', async () => {
  const two = await second();
  await give(two, { id: 'r1', first: 'Anna', updated_at: T + 7 });
  two.manager.migrate(
    'ALTER TABLE items ADD COLUMN first TEXT; UPDATE items SET first = substr(name, 1, 3); ALTER TABLE items DROP COLUMN name',
    { drop: { items: ['name'] } },
  );
  expect(two.all('SELECT id, first FROM items ORDER BY id')).toEqual([
    { id: 'r1', first: 'Anna' },
    { id: 'r2', first: 'nam' },
    { id: 'r3', first: 'nam' },
  ]);
});

test('a value that the table does not let in is left out and told, and the migration goes on', async () => {
  const two = await second();
  const warnings: unknown[] = [];
  two.manager.on('warning', (warning) => warnings.push(warning));
  await give(two, { id: 'r2', name: 'name of r2', prio: 7, updated_at: T + 7 });
  await give(two, { id: 'r1', name: 'name of r1', prio: 90, updated_at: T + 7 });
  two.manager.migrate('ALTER TABLE items ADD COLUMN prio INTEGER CHECK (prio < 10); UPDATE items SET prio = 5');
  expect(prios(two).slice(0, 2)).toEqual([
    { id: 'r1', prio: 5, at: T + 8 },
    { id: 'r2', prio: 7, at: T + 7 },
  ]);
  const message = expect.stringMatching(/^"items" does not let in .* to "prio" .*: look at the rows "r1"$/);
  await until('it is told', () => warnings.length === 2);
  expect(warnings).toContainEqual({ code: 'left-out', message });
});

test('odd ids, odd values and triggers of the application', async () => {
  const two = await second();
  two.db.exec(
    'CREATE TABLE log (at INTEGER); CREATE TRIGGER own AFTER UPDATE OF prio ON items BEGIN INSERT INTO log VALUES (1); END',
  );
  const blob = '$blob:00FF';
  await give(two, { id: '$text:$x', name: 'a', prio: blob, updated_at: T });
  await give(two, { id: blob, name: 'b', prio: 'text', updated_at: T });
  await give(two, { id: '7', name: 'c', prio: '7.5', updated_at: T });
  two.manager.migrate(FILLED);
  const values = two.all("SELECT name, quote(prio) AS prio FROM items WHERE name IN ('a', 'b', 'c') ORDER BY name");
  expect(values.map(({ prio }) => prio)).toEqual(["X'00FF'", "'text'", '7.5']);
});
