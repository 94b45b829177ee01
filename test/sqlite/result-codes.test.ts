/** Whose fault an error is, read from what this lane's binding throws. */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { attach, RowcastError } from '../../src/index.ts';
import { Connection, type Database } from '../../src/sqlite/connection.ts';
import { fromNodeSqlite } from '../../src/sqlite/node-sqlite.ts';
import { isCode, isMachineFault, resultCode } from '../../src/sqlite/result-codes.ts';
import { betterSqlite3, lane, openDatabase } from '../support/lane.ts';
import { cleanUp, database, scratchFolder } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const refusing = async (): Promise<never> => {
  throw new Error('nobody is there');
};

function thrown(action: () => unknown): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

/** A handle on which the application has defined a function; bun:sqlite has none. */
function withFunction(name: string, body: () => unknown): Database {
  const require = createRequire(import.meta.url);
  if (lane === 'node-sqlite') {
    const { DatabaseSync } = require('node:sqlite');
    const db = new DatabaseSync(':memory:');
    db.function(name, {}, body);
    cleanUp(() => db.close());
    return fromNodeSqlite(db);
  }
  const db = new (require(betterSqlite3()))(':memory:');
  db.function(name, body);
  cleanUp(() => db.close());
  return db;
}

describe('the row is at fault', () => {
  test.each([
    ['a CHECK', 'INSERT INTO t VALUES (-1, 1)', 'CONSTRAINT'],
    ['a UNIQUE constraint', 'INSERT INTO t VALUES (1, 1), (1, 1)', 'CONSTRAINT'],
    ['a type', "INSERT INTO t VALUES (1, 'text')", 'CONSTRAINT'],
    ['RAISE in a trigger', 'INSERT INTO t VALUES (7, 1)', 'CONSTRAINT'],
    ['a rowid that is none', "INSERT INTO t (rowid, a) VALUES ('x', 1)", 'MISMATCH'],
    ['a size', 'INSERT INTO t VALUES (1, zeroblob(3000000000))', 'TOOBIG'],
  ] as const)('%s', async (_what, sql, code) => {
    const db = new Connection(
      await database(
        "CREATE TABLE t (a UNIQUE CHECK (a > 0), b INTEGER CHECK (typeof(b) <> 'text')); " +
          "CREATE TRIGGER no AFTER INSERT ON t WHEN NEW.a = 7 BEGIN SELECT RAISE(ABORT, 'no sevens'); END",
      ),
    );
    const error = thrown(() => db.run(sql));
    expect(resultCode(error)).toBe(code);
    expect(isMachineFault(error)).toBe(false);
    db.release();
  });

  test.skipIf(lane === 'bun-sqlite')('an exception of a function that the application has defined', () => {
    for (const exception of [
      new Error('not today'),
      Object.assign(new Error('no such file'), { code: 'ENOENT', errno: -2 }),
      Object.assign(new Error('five'), { errno: -5 }),
    ]) {
      const handle = withFunction('judge', () => {
        throw exception;
      });
      const db = new Connection(handle);
      db.exec('CREATE TABLE t (a CHECK (judge() > 0))');
      const error = thrown(() => db.run('INSERT INTO t VALUES (1)'));
      expect(isMachineFault(error), exception.message).toBe(false);
      db.release();
    }
  });
});

describe('the machine is at fault', () => {
  test('a lock', async () => {
    const path = join(scratchFolder(), 'locked.db');
    const holder = await database('CREATE TABLE t (a)', path);
    const db = await openDatabase(path);
    cleanUp(() => db.close());
    db.exec('PRAGMA busy_timeout = 0');
    holder.exec('BEGIN IMMEDIATE');
    const error = thrown(() => db.exec('INSERT INTO t VALUES (1)'));
    expect(isCode(error, 'BUSY')).toBe(true);
    expect(isMachineFault(error)).toBe(true);
    holder.exec('ROLLBACK');
  });

  test('a full disk, a read-only file, and what is no database at all', async () => {
    const small = await database('PRAGMA max_page_count = 3; CREATE TABLE t (a)');
    const full = thrown(() => small.exec('INSERT INTO t VALUES (zeroblob(100000))'));
    expect([resultCode(full), isMachineFault(full)]).toEqual(['FULL', true]);

    const path = join(scratchFolder(), 'read.db');
    (await database('CREATE TABLE t (a)', path)).exec('PRAGMA wal_checkpoint');
    const reader = await openDatabase(path, { readonly: true });
    cleanUp(() => reader.close());
    const readonly = thrown(() => reader.exec('INSERT INTO t VALUES (1)'));
    expect([resultCode(readonly), isMachineFault(readonly)]).toEqual(['READONLY', true]);
  });

  test('what Rowcast itself has said no to', () => {
    expect(isMachineFault(new RowcastError('DATABASE_BUSY', 'busy'))).toBe(true);
  });

  test('a closed database has a code and a hint', async () => {
    const handle = await openDatabase();
    handle.exec('CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)');
    const manager = attach(handle, { maxAheadMs: 0, id: 'node', peers: [] }, ['items']);
    cleanUp(() => manager.stop());
    handle.close();
    const error = thrown(() => manager.deadLetters.list({ limit: 3 })) as RowcastError;
    expect(error).toBeInstanceOf(RowcastError);
    expect(error.code).toBe('DATABASE_CLOSED');
    expect(error.hint).toContain('stop()');
    expect(isMachineFault(error)).toBe(true);
  });
});

test('a handle that is closed is told once for all that fails after it, and health goes on saying so', async () => {
  const handle = await openDatabase();
  handle.exec('CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)');
  const clock = new VirtualClock();
  const peers = ['http://a.test', 'http://b.test'];
  const manager = attach(handle, { maxAheadMs: 0, id: 'node', peers, clock, fetch: refusing }, ['items']);
  cleanUp(() => manager.stop());
  const told: string[] = [];
  manager.on('error', ({ code }) => told.push(code));
  await clock.advance(1_000);
  expect(told).toEqual([]);
  handle.close();
  await clock.advance(10_000);
  expect(manager.receive('{"batch_id":1,"changes":[]}').status).toBe(503);
  expect(told).toEqual(['DATABASE_CLOSED']);
  expect(manager.health()).toMatchObject({
    ok: false,
    problems: expect.arrayContaining([expect.stringMatching(/closed/)]),
  });
  await manager.stop();
  expect(told).toEqual(['DATABASE_CLOSED']);
});

test('who attaches to a handle that is closed is not told to stop first', async () => {
  const handle = await openDatabase();
  handle.exec('CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)');
  handle.close();
  const error = thrown(() => attach(handle, { maxAheadMs: 0, id: 'node', peers: [] }, ['items'])) as RowcastError;
  expect(error.code).toBe('DATABASE_CLOSED');
  expect(error.hint).toMatch(/^open it/);
});

test('the wait that the application has set is honoured', async () => {
  const path = join(scratchFolder(), 'waiting.db');
  const holder = await database('CREATE TABLE t (a)', path);
  const handle = await openDatabase(path);
  cleanUp(() => handle.close());
  const asked: string[] = [];
  const db = new Connection({
    exec: (sql) => {
      asked.push(sql);
      return handle.exec(sql);
    },
    prepare: (sql) => handle.prepare(sql),
    transaction: (fn) => handle.transaction(fn),
  });
  handle.exec('PRAGMA busy_timeout = 20');
  holder.exec('BEGIN IMMEDIATE');
  expect(thrown(() => db.transaction(() => {}))).toMatchObject({ code: 'DATABASE_BUSY' });
  expect(asked.filter((sql) => sql.includes('busy_timeout'))).toEqual([]);
  holder.exec('ROLLBACK');
  db.release();
});
