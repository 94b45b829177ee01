/** What a trigger looks up first goes by the number of rows that the statement before has changed; it decides nothing. */
import { expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { captured, cleanUp, database, node, recording, rowsOf } from '../support/nodes.ts';

const FUTURE = 4_000_000_000_000;
const UNIQUE = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER)';

/** As the triggers of that database have it. */
function mark(triggers: Record<string, unknown>[]): number {
  const found = triggers.flatMap(({ sql }) =>
    [...String(sql).matchAll(/changes\(\) <> (\d+)/g)].map(([, n]) => Number(n)),
  );
  expect(new Set(found).size).toBe(1);
  return found[0] as number;
}

const TRIGGERS = "SELECT sql FROM sqlite_schema WHERE type = 'trigger'";

test.each([
  ['INSERT OR REPLACE over a later row', "INSERT INTO items VALUES ('a', 'old', 1, 1, :t)", 'INSERT OR REPLACE'],
  [
    'an INSERT of a row that was deleted later',
    "INSERT INTO items VALUES ('a', 'old', 1, 1, :t); DELETE FROM items",
    'INSERT',
  ],
])('%s, after a statement that has changed as many rows as the mark says', async (_, before, insert) => {
  const { db, all } = await node();
  const rows = mark(all(TRIGGERS));
  db.exec('PRAGMA recursive_triggers = OFF');
  db.exec(before.replace(':t', String(FUTURE)));
  db.exec('CREATE TABLE other (n)');
  db.exec(`INSERT INTO other VALUES ${Array(rows).fill('(1)').join(', ')}`);
  expect(rowsOf(db, 'SELECT changes() AS n')).toEqual([{ n: rows }]);
  db.exec(`${insert} INTO items VALUES ('a', 'new', 2, 2, 5)`);
  expect(all('SELECT name, updated_at FROM items')).toEqual([{ name: 'new', updated_at: FUTURE + 1 }]);
  expect(captured(db).at(-1)?.row).toMatchObject({ name: 'new', updated_at: FUTURE + 1 });
});

test.each([
  ['INSERT OR REPLACE', "INSERT OR REPLACE INTO items VALUES ('b', 'n', 2)"],
  ['UPDATE OR REPLACE', "UPDATE OR REPLACE items SET name = 'n', updated_at = 3 WHERE id = 'c'"],
])('%s over a UNIQUE value, after such a statement', async (_, write) => {
  const { db, all } = await node({ schema: UNIQUE });
  const rows = mark(all(TRIGGERS));
  db.exec('PRAGMA recursive_triggers = OFF');
  db.exec("INSERT INTO items VALUES ('a', 'n', 1), ('c', 'm', 1)");
  db.exec('CREATE TABLE other (n)');
  db.exec(`INSERT INTO other VALUES ${Array(rows).fill('(1)').join(', ')}`);
  db.exec(write);
  expect(captured(db).filter(({ op }) => op === 'DELETE')).toMatchObject([{ row: { id: 'a' } }]);
});

const row = (id: string, time = 50) => ({ id, name: 'n', value: 1, created_at: 1, updated_at: time });
const NEWS = [{ op: 'INSERT', table: 'items', row: row('a'), old_id: null }];
const DELETION = { op: 'DELETE', table: 'items', row: row('b'), old_id: 'b' };
const EDIT = { op: 'UPDATE', table: 'items', row: row('c', 90), old_id: null, base: 10 };

test.each([
  ['new rows', NEWS],
  ['a deletion as well', [...NEWS, DELETION]],
  ['an edit that has not seen what it replaces', [...NEWS, EDIT]],
])('a batch of %s is written right after the statement that leaves the mark, once more', async (_, changes) => {
  const db = await database();
  const { handle, sql } = recording(db);
  const manager = attach(handle, { id: 'node', peers: [], maxAheadMs: 0 }, ['items']);
  cleanUp(() => manager.stop());
  db.exec("INSERT INTO items VALUES ('c', 'n', 1, 1, 30)");
  const said = 'id=x; inc=5f0c1e9a77b2d310; boot=1-21d0b7e4; t0=0; t=1';
  const body = JSON.stringify({ batch_id: 1, changes });
  expect(manager.receive(body, { from: 'x', said }).body).toEqual({ applied: changes.length, ack: 1 });
  const write = sql.findIndex((text) => text.startsWith('INSERT OR ABORT INTO main."items"'));
  const setting = sql[write - 1] as string;
  expect(setting).toContain("'syncing'");
  // Whether the flag is there yet or not.
  for (const missing of ['', "DELETE FROM _meta WHERE key = 'syncing';"]) {
    db.exec(`BEGIN; ${missing} ${setting}`);
    expect(rowsOf(db, 'SELECT changes() AS n')).toEqual([{ n: mark(rowsOf(db, TRIGGERS)) }]);
    db.exec('ROLLBACK');
  }
});
