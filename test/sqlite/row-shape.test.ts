/** Handles whose rows come in another shape than Rowcast reads. */
import { createRequire } from 'node:module';
import { expect, test } from 'vitest';
import { attach, type Database, type Statement } from '../../src/index.ts';
import { fromNodeSqlite } from '../../src/sqlite/node-sqlite.ts';
import { lane, type TestDatabase } from '../support/lane.ts';
import { attached, cleanUp, database } from '../support/nodes.ts';

const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)';

/** Every row as this makes it; `canBeSet`, where a statement can be told to give objects nevertheless. */
function shaped(db: TestDatabase, shape: (row: object) => unknown, canBeSet: boolean): Database {
  return {
    exec: (sql) => db.exec(sql),
    transaction: (fn) => db.transaction(fn),
    prepare: (sql) => {
      const statement = db.prepare(sql);
      let isShaped = true;
      const made = (row: unknown): unknown => (row && isShaped ? shape(row as object) : row);
      return {
        run: (...params) => statement.run(...params),
        get: (...params) => made(statement.get(...params)),
        all: (...params) => statement.all(...params).map(made),
        finalize: () => (statement as { finalize?: () => void }).finalize?.(),
        ...(canBeSet && {
          setReturnArrays: (on: boolean) => {
            isShaped = on;
          },
        }),
      } as Statement;
    },
  };
}

test('arrays in place of rows, which the handle was opened for, are none to us', async () => {
  const handle = shaped(await database(SCHEMA), Object.values, true);
  const manager = attached(handle);
  const row = { id: 'a', updated_at: 5 };
  expect(manager.applyChanges([{ op: 'INSERT', table: 'items', row, old_id: null }])).toBe(1);
  expect(manager.health()).toMatchObject({ ok: true, item_count: 1 });
});

test.runIf(lane === 'node-sqlite')('returnArrays of node:sqlite is such an option', () => {
  const { DatabaseSync } = createRequire(import.meta.url)('node:sqlite');
  const db = new DatabaseSync(':memory:', { returnArrays: true });
  cleanUp(() => db.close());
  db.exec(SCHEMA);
  expect(attached(fromNodeSqlite(db)).health()).toMatchObject({ ok: true });
  expect(db.prepare('SELECT 1 AS n').get()).toEqual([1]);
});

test.each([
  ['arrays', Object.values],
  ['single values', (row: object) => Object.values(row)[0]],
])('%s, where that cannot be undone, are refused by what makes them', async (_, shape) => {
  const handle = shaped(await database(SCHEMA), shape, false);
  expect(() => attach(handle, { id: 'node', peers: [] }, ['items'])).toThrow(
    expect.objectContaining({
      code: 'INVALID_DATABASE',
      message: expect.stringMatching(/names.*returnArrays.*raw\(\)/),
    }),
  );
});
