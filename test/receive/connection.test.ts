/** The connection is as before when a batch was applied, and others have their turn. */
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { betterSqlite3, lane } from '../support/lane.ts';
import { captured, cleanUp, database, node, rowsOf, scratchFolder } from '../support/nodes.ts';
import { accepted, batch, codes, ids, pragma, put, type Row, syncing } from '../support/received.ts';

describe('foreign keys', () => {
  const schema = `PRAGMA foreign_keys = ON;
    CREATE TABLE parents (id TEXT PRIMARY KEY, updated_at INTEGER);
    CREATE TABLE children (id TEXT PRIMARY KEY, parent TEXT NOT NULL REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE, updated_at INTEGER)`;
  const parent = (updatedAt: number, op = 'INSERT'): Row => ({
    op,
    table: 'parents',
    row: { id: 'p', updated_at: updatedAt },
    old_id: op === 'DELETE' ? 'p' : null,
  });
  const child = { op: 'INSERT', table: 'children', row: { id: 'c', parent: 'p', updated_at: 5 }, old_id: null };

  test('a child may come before its parent, and nothing cascades while applying', async () => {
    const { db, manager } = await node({ schema, tables: ['parents', 'children'] });
    expect(accepted(manager, batch(child))).toEqual({ applied: 1, ack: 7 });
    expect(accepted(manager, batch(parent(5)))).toEqual({ applied: 1, ack: 7 });
    // A newer parent and its deletion: whether the children go is for their own changes to say.
    accepted(manager, batch(parent(6)));
    accepted(manager, batch(parent(7, 'DELETE')));
    expect(ids(db, 'children')).toEqual(['c']);
    expect(captured(db)).toEqual([]);
  });

  test('are enforced again afterwards, also after a refusal', async () => {
    const { db, manager } = await node({ schema, tables: ['parents', 'children'] });
    for (const body of [batch(child), '{', batch({ ...child, op: 'NO' })]) {
      manager.receive(body);
      expect(pragma(db, 'foreign_keys')).toBe(1);
      expect(() => db.exec("INSERT INTO children VALUES ('x', 'nobody', 1)")).toThrow(/FOREIGN KEY/i);
    }
    accepted(manager, batch(parent(5)));
    db.exec("DELETE FROM parents WHERE id = 'p'");
    expect(ids(db, 'children')).toEqual([]);
    expect(captured(db).map(({ op, row_id }) => [op, row_id])).toEqual(
      expect.arrayContaining([
        ['DELETE', 'p'],
        ['DELETE', 'c'],
      ]),
    );
  });
});

describe('the state of the connection', () => {
  test.each([0, 1, 2, 3])(
    'synchronous = %i and foreign_keys are as before, whatever came of the batch',
    async (level) => {
      for (const keys of [0, 1]) {
        const { db, manager } = await node();
        db.exec(`PRAGMA synchronous = ${level}; PRAGMA foreign_keys = ${keys}`);
        for (const body of [batch(put('a', 5)), batch(put('b', 'soon')), 'nonsense']) {
          manager.receive(body);
          expect([pragma(db, 'synchronous'), pragma(db, 'foreign_keys')]).toEqual([level, keys]);
        }
        db.exec('BEGIN');
        expect(manager.receive(batch(put('c', 5))).status).toBe(503);
        db.exec('COMMIT');
        expect([pragma(db, 'synchronous'), pragma(db, 'foreign_keys')]).toEqual([level, keys]);
      }
    },
  );

  test.each([
    ['while the rows are written', 'INSERT OR ABORT INTO main."items"'],
    ['while a change is set aside', 'INSERT INTO main._dead_letter '],
    ['while the flag is reset', 'UPDATE main._meta SET value = 0'],
    ['at the commit', 'COMMIT'],
  ])('an error %s leaves nothing behind: no row, no flag, no transaction', async (_when, where) => {
    const db = await database();
    let armed = false;
    const strike = (sql: string): void => {
      if (armed && sql.startsWith(where))
        throw Object.assign(new Error('struck by lightning'), { code: 'SQLITE_IOERR' });
    };
    const handle = {
      exec: (sql: string) => {
        strike(sql);
        return db.exec(sql);
      },
      prepare: (sql: string) => {
        const statement = db.prepare(sql);
        return {
          run: (...params: unknown[]) => {
            strike(sql);
            return statement.run(...params);
          },
          get: (...params: unknown[]) => statement.get(...params),
          all: (...params: unknown[]) => statement.all(...params),
        };
      },
      transaction: (fn: () => unknown) => db.transaction(fn),
    };
    db.exec('PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON');
    const manager = attach(handle, { id: 'node', peers: [] }, ['items']);
    cleanUp(() => manager.stop());
    const errors: unknown[] = [];
    manager.on('error', (error) => errors.push(error.code));
    const body = batch(put('a', 5), put('b', 'soon'));
    armed = true;
    const answer = manager.receive(body);
    expect(answer).toEqual({
      status: 503,
      body: { error: expect.stringContaining('struck by lightning') },
      headers: expect.any(Object),
    });
    expect(errors).toEqual(['DATABASE_FAILED']);
    expect(() => manager.applyChanges([put('a', 5), put('b', 'soon')] as never)).toThrow();
    armed = false;
    expect([syncing(db), ids(db), manager.deadLetters.list()]).toEqual([0, [], []]);
    expect([pragma(db, 'synchronous'), pragma(db, 'foreign_keys')]).toEqual([1, 1]);
    db.exec("INSERT INTO items VALUES ('mine', 'n', 1, 1, 1)");
    expect(captured(db)).toHaveLength(1);
    expect(codes(accepted(manager, body))).toEqual([[1, 'bad-timestamp']]);
    expect([syncing(db), ids(db)]).toEqual([0, ['a', 'mine']]);
  });

  test('syncing is 0 after success and after a refusal, and comes back when somebody has deleted it', async () => {
    const { db, manager } = await node();
    for (const body of [batch(put('a', 5)), batch(put('b', 'soon')), '[', batch({})]) {
      manager.receive(body);
      expect(syncing(db)).toBe(0);
    }
    db.exec('DELETE FROM _meta');
    accepted(manager, batch(put('c', 5)));
    expect(captured(db)).toEqual([]);
    expect(syncing(db)).toBe(0);
  });

  test.each(['BEGIN', 'BEGIN IMMEDIATE', 'SAVEPOINT mine'])(
    'inside the caller’s own %s a batch is refused',
    async (begin) => {
      for (const setting of ['PRAGMA synchronous = FULL', 'PRAGMA synchronous = NORMAL']) {
        const { db, manager } = await node();
        db.exec(`${setting}; PRAGMA foreign_keys = ON`);
        db.exec(begin);
        db.exec("INSERT INTO items VALUES ('mine', 'n', 1, 1, 1)");
        expect(manager.receive(batch(put('a', 5)))).toEqual({
          status: 503,
          body: { error: expect.stringContaining('transaction') },
          headers: expect.any(Object),
        });
        expect(() => manager.applyChanges([put('a', 5) as never])).toThrow(/transaction/);
        expect(ids(db)).toEqual(['mine']);
        // The caller's transaction is still the caller's, to keep or to undo.
        db.exec(begin.startsWith('SAVEPOINT') ? 'ROLLBACK TO mine; RELEASE mine' : 'ROLLBACK');
        expect(ids(db)).toEqual([]);
        expect(accepted(manager, batch(put('a', 5))).applied).toBe(1);
        expect(pragma(db, 'foreign_keys')).toBe(1);
      }
    },
  );
});

describe('other connections', () => {
  test('what a second one writes between two batches is captured', async () => {
    const path = join(scratchFolder(), 'shared.db');
    const { db, manager } = await node({ path });
    const second = await database('SELECT 1', path);
    accepted(manager, batch(put('a', 5)));
    second.exec("INSERT INTO items VALUES ('b', 'theirs', 1, 1, 6)");
    accepted(manager, batch(put('c', 5)));
    second.exec("UPDATE items SET name = 'theirs', updated_at = 7 WHERE id = 'a'");
    accepted(manager, batch(put('a', 6)));
    expect(captured(db).map(({ op, row_id }) => [op, row_id])).toEqual([
      ['INSERT', 'b'],
      ['UPDATE', 'a'],
    ]);
    expect(rowsOf(db, "SELECT name FROM items WHERE id = 'a'")).toEqual([{ name: 'theirs' }]);
  });

  test('a write lock of another process is waited for, without a busy timeout of the caller’s own', async () => {
    const path = join(scratchFolder(), 'busy.db');
    const { db, manager } = await node({ path });
    db.exec('PRAGMA busy_timeout = 0');
    await holdWriteLock(path);
    expect(accepted(manager, batch(put('a', 5)))).toEqual({ applied: 1, ack: 7 });
    // The other process committed first: its row is there, and it was captured.
    expect(ids(db)).toEqual(['a', 'theirs']);
    expect(captured(db).map(({ row_id }) => row_id)).toEqual(['theirs']);
    expect(pragma(db, 'busy_timeout')).toBe(0);
  });
});

/** Another process that takes the write lock, says so, and gives it back by itself: this one will be blocked meanwhile. */
async function holdWriteLock(path: string): Promise<void> {
  const require = createRequire(import.meta.url);
  const open = {
    'bun-sqlite': "new (require('bun:sqlite').Database)(path)",
    'node-sqlite': "new (require('node:sqlite').DatabaseSync)(path)",
    'better-sqlite3': `new (require(${JSON.stringify(lane === 'better-sqlite3' ? require.resolve(betterSqlite3()) : '')}))(path)`,
  }[lane];
  const script = `const path = ${JSON.stringify(path)}; const db = ${open};
    db.exec('BEGIN IMMEDIATE');
    db.exec("INSERT INTO items VALUES ('theirs', 'n', 1, 1, 1)");
    process.stdout.write('locked');
    setTimeout(() => { db.exec('COMMIT'); db.close(); }, 400);`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  cleanUp(() => ended);
  await new Promise<void>((resolve, reject) => {
    child.stdout.once('data', () => resolve());
    // Not before what it has said was read.
    child.once('close', () => reject(new Error('the other process ended without taking the lock')));
  });
}
