/** What is committed is told, though the batch is answered with 503 because of something that failed afterwards. */
import { expect, test } from 'vitest';
import { attach, type Database, type Statement } from '../../src/index.ts';
import { cleanUp, database, rowsOf } from '../support/nodes.ts';

test('an error behind the commit does not keep the events of the batch', async () => {
  const db = await database();
  // Behind the next commit, whatever asks who this database is fails once.
  let armed: 'no' | 'at the commit' | 'now' = 'no';
  const failing =
    <A extends unknown[], R>(sql: string, verb: (...params: A) => R) =>
    (...params: A): R => {
      if (armed === 'now' && sql.includes('main._nodes')) {
        armed = 'no';
        throw Object.assign(new Error('disk I/O error'), { code: 'SQLITE_IOERR' });
      }
      return verb(...params);
    };
  const handle: Database & { readonly inTransaction: boolean | undefined } = {
    get inTransaction() {
      return (db as { inTransaction?: boolean }).inTransaction;
    },
    exec: (sql) => {
      db.exec(sql);
      if (sql === 'COMMIT' && armed === 'at the commit') armed = 'now';
    },
    prepare: (sql) => {
      const statement = db.prepare(sql);
      return {
        run: failing(sql, (...params: unknown[]) => statement.run(...params)),
        get: failing(sql, (...params: unknown[]) => statement.get(...params)),
        all: failing(sql, (...params: unknown[]) => statement.all(...params)),
        finalize: () => (statement as { finalize?: () => void }).finalize?.(),
      } as Statement;
    },
    transaction: (fn) => db.transaction(fn),
  };
  const manager = attach(handle, { id: 'a', peers: [], maxAheadMs: 0 }, ['items']);
  cleanUp(() => manager.stop());
  const told: string[] = [];
  manager.on('applied', ({ rows }) => told.push(...rows.map(({ id }) => `applied ${id}`)));
  manager.on('dead-letter', ({ code }) => told.push(`letter ${code}`));
  manager.on('change', ({ rows }) => told.push(...rows.map(({ id }) => `change ${id}`)));
  const row = { id: 'x', name: 'n', value: 1, created_at: 1, updated_at: 1_000 };
  const changes = [
    { op: 'INSERT', table: 'items', row, old_id: null },
    { op: 'INSERT', table: 'unknown', row, old_id: null },
  ];
  armed = 'at the commit';
  expect(manager.receive(JSON.stringify({ batch_id: 1, changes }), { from: 'b' }).status).toBe(503);
  expect(armed).toBe('no');
  expect(rowsOf(db, 'SELECT id FROM items')).toEqual([{ id: 'x' }]);
  expect(told).toEqual(['letter unknown-table', 'applied x', 'change x']);
});
