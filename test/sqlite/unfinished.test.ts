/** Rows that the application writes and reads back one by one, with an await in between: nobody takes them back. */
import { describe, expect, test } from 'vitest';
import { lane, type TestDatabase } from '../support/lane.ts';
import { node, rowsOf, type TestNode, until } from '../support/nodes.ts';

interface Iterating {
  iterate(): Iterable<unknown>;
}

const T = 1_700_000_000_000;
const WRITE =
  'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) ' +
  `INSERT INTO items SELECT 'r' || i, 'n', i, 1, TIME FROM n RETURNING id`;

const iterating = (db: TestDatabase, sql: string): Iterable<unknown> =>
  (db.prepare(sql) as unknown as Iterating).iterate();

async function anywhere(): Promise<TestNode> {
  const one = await node();
  // better-sqlite3 lets nobody in by itself.
  if (lane === 'better-sqlite3') (one.db as unknown as { unsafeMode(on: boolean): void }).unsafeMode(true);
  return one;
}

const MEANWHILE: [string, (one: TestNode) => unknown][] = [
  ['nothing is done', () => {}],
  ['health is asked for', ({ manager }) => manager.health()],
  [
    'a batch comes',
    ({ manager }) =>
      manager.receive('{"batch_id":1,"changes":[{"op":"DELETE","table":"items","row":null,"old_id":"x"}]}'),
  ],
  ['the loops are woken', ({ manager }) => manager.nudge()],
  ['letters are counted', ({ manager }) => manager.deadLetters.list()],
];

describe.each([String(T), 'NULL'])('with the time %s', (time) => {
  test.each(MEANWHILE)('while %s', async (_, meanwhile) => {
    const one = await anywhere();
    const errors: unknown[] = [];
    one.manager.on('error', (error) => errors.push(error));
    one.manager.on('change', () => {});
    let returned = 0;
    for (const _row of iterating(one.db, WRITE.replace('TIME', time))) {
      returned += 1;
      await meanwhile(one);
      if (returned % 5 === 0) await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(returned).toBe(10);
    expect(rowsOf(one.db, 'SELECT count(*) AS n FROM items')).toEqual([{ n: 10 }]);
    expect(rowsOf(one.db, 'SELECT count(*) AS n FROM _changes')).toEqual([{ n: 10 }]);
    await until('it is well', () => one.manager.health().ok);
  });
});

test('a batch is put off until the rows are read, and says why', async () => {
  const one = await anywhere();
  const [rows] = [iterating(one.db, WRITE.replace('TIME', 'NULL'))[Symbol.iterator]()];
  rows.next();
  const body = JSON.stringify({
    batch_id: 7,
    changes: [{ op: 'INSERT', table: 'items', row: { id: 'x', updated_at: T }, old_id: null }],
  });
  expect(await one.manager.receive(body)).toMatchObject({
    status: 503,
    body: { error: expect.stringContaining('in the middle of a query') },
  });
  while (!rows.next().done);
  expect(await one.manager.receive(body)).toMatchObject({ status: 200 });
  expect(rowsOf(one.db, 'SELECT count(*) AS n FROM items')).toEqual([{ n: 11 }]);
});

test('a sender that is turned away by an open transaction has not changed for how long the application waits for locks', async () => {
  const fetch = async (): Promise<never> => {
    throw new Error('nobody is there');
  };
  const one = await node({ peers: ['http://peer.test'], fetch, batchMs: 5 });
  one.db.exec('PRAGMA busy_timeout = 4321; BEGIN');
  one.db.exec(`INSERT INTO items VALUES ('own', 'n', 1, 1, ${T})`);
  // The loops have had their turns, and were turned away.
  await new Promise((resolve) => setTimeout(resolve, 300));
  one.db.exec('COMMIT');
  expect(Object.values(rowsOf(one.db, 'PRAGMA busy_timeout')[0] ?? {})).toEqual([4321]);
});

test('a SELECT that is being read goes on to its end while the schema changes and somebody listens', async () => {
  const one = await anywhere();
  one.manager.on('change', () => {});
  for (let i = 0; i < 10; i++) one.db.exec(`INSERT INTO items VALUES ('r${i}', 'n', 1, 1, ${T})`);
  await one.manager.flush();
  let read = 0;
  for (const _row of iterating(one.db, 'SELECT * FROM items')) {
    read += 1;
    if (read !== 3) continue;
    one.db.exec('CREATE TABLE other (id TEXT)');
    const row = { id: 'got', name: 'n', value: 1, created_at: 1, updated_at: T };
    const body = JSON.stringify({ batch_id: 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
    expect(one.manager.receive(body)).toMatchObject({ status: 200 });
  }
  expect(read).toBeGreaterThanOrEqual(10);
});
