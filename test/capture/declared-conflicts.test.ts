/** A constraint may say itself what becomes of a row that breaks it. That is said to the application, and not to us. */
import { expect, test } from 'vitest';
import type { Change } from '../../src/index.ts';
import { node, rowsOf, type TestNode, writeStamps } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const CLAUSES = ['REPLACE', 'IGNORE', 'FAIL', 'ROLLBACK', 'ABORT'];

const put = (row: Record<string, unknown>): Change => ({ op: 'INSERT', table: 'items', row, old_id: null });

function give({ manager }: TestNode, ...changes: Change[]) {
  const { status, body } = manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=x' });
  expect(status).toBe(200);
  return body;
}

const ids = ({ db }: TestNode): unknown[] => rowsOf(db, 'SELECT id FROM items ORDER BY id').map(({ id }) => id);

test.each(
  CLAUSES.flatMap((clause) => [
    [clause, 'a column', `updated_at INTEGER UNIQUE ON CONFLICT ${clause}`],
    [clause, 'a generated column', `updated_at INTEGER, at AS (updated_at + 0) UNIQUE ON CONFLICT ${clause}`],
  ]),
)('%s over the time, of %s: to write a version into its row removes no other one', async (clause, _, time) => {
  const one = await node({ schema: `CREATE TABLE items (id TEXT PRIMARY KEY ON CONFLICT ${clause}, ${time})` });
  const insert = 'INSERT INTO items (id, updated_at) VALUES';
  one.db.exec(`${insert} ('a', ${T + 1}), ('b', ${T}); DELETE FROM items WHERE id = 'b'; ${insert} ('b', ${T})`);
  expect(rowsOf(one.db, 'SELECT row_id, version FROM _stamps')).toEqual([{ row_id: 'b', version: T + 1 }]);
  const refused = new Promise((resolve) => one.manager.on('warning', resolve));
  writeStamps(one.manager);
  expect(ids(one)).toEqual(['a', 'b']);
  expect(await refused).toMatchObject({ code: 'stamp-refused', message: expect.stringContaining('UNIQUE') });
});

test.each(CLAUSES)('%s: a received row removes none, and none is left out', async (clause) => {
  const one = await node({
    schema:
      `CREATE TABLE items (id TEXT PRIMARY KEY ON CONFLICT ${clause}, ` +
      `name TEXT DEFAULT 'd' NOT NULL ON CONFLICT ${clause} UNIQUE ON CONFLICT ${clause}, updated_at INTEGER)`,
  });
  one.db.exec("INSERT INTO items VALUES ('a', 'x', 1), ('b', 'y', 2), ('c', 'z', 3)");
  expect(give(one, put({ id: 'a', name: 'y', updated_at: T }))).toEqual({ applied: 1, ack: 1 });
  expect(give(one, put({ id: 'd', name: 'z', updated_at: T }))).toEqual({ applied: 1, ack: 1 });
  expect(ids(one)).toEqual(['a', 'd']);
  expect(one.all('SELECT row_id FROM _hidden ORDER BY row_id')).toEqual([{ row_id: 'b' }, { row_id: 'c' }]);
  expect(give(one, put({ id: 'e', name: null, updated_at: T }))).toHaveProperty('rejected');
  expect(one.manager.deadLetters.list()).toContainEqual(expect.objectContaining({ code: 'constraint', rowId: 'e' }));
});

test.each(CLAUSES)(
  'NOT NULL ON CONFLICT %s: a hidden row that the table would not take stays hidden',
  async (clause) => {
    const columns = 'id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER';
    const one = await node({ schema: `CREATE TABLE items (${columns})` });
    give(one, put({ id: 'a', name: 'x', updated_at: T }), put({ id: 'b', name: 'x', updated_at: T + 1 }));
    one.db.exec(
      `CREATE TABLE made (${columns}, nick TEXT NOT NULL ON CONFLICT ${clause}); ` +
        "INSERT INTO made SELECT *, 'n' FROM items; DROP TABLE items; ALTER TABLE made RENAME TO items",
    );
    give(one, { op: 'DELETE', table: 'items', row: { id: 'b', updated_at: T + 2 }, old_id: 'b' });
    expect(ids(one)).toEqual([]);
    expect(one.all('SELECT row_id FROM _hidden')).toEqual([{ row_id: 'a' }]);
  },
);

test.each([...CLAUSES.map((clause) => ` ON CONFLICT ${clause}`), ''])(
  'UNIQUE%s: the value of a column that came later removes no other row, and holds no letter up',
  async (clause) => {
    const columns = 'id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER';
    const one = await node({ schema: `CREATE TABLE items (${columns})` });
    const nick = (id: string, value: string) => put({ id, name: 'x', nick: value, updated_at: T });
    give(one, nick('a', 'n'), nick('c', 'free'));
    one.db.exec(
      `CREATE TABLE made (${columns}, nick TEXT UNIQUE${clause}); ` +
        'INSERT INTO made SELECT *, NULL FROM items; DROP TABLE items; ALTER TABLE made RENAME TO items; ' +
        `INSERT INTO items VALUES ('b', 'y', ${T + 1}, 'n')`,
    );
    await expect.poll(() => one.manager.deadLetters.list().map(({ rowId }) => rowId)).toEqual(['a']);
    expect(one.manager.deadLetters.list()[0]?.reason).toMatch(/UNIQUE constraint failed: items.nick; retry this/);
    expect(rowsOf(one.db, 'SELECT id, nick FROM items ORDER BY id')).toEqual([
      { id: 'a', nick: null },
      { id: 'b', nick: 'n' },
      { id: 'c', nick: 'free' },
    ]);
  },
);
