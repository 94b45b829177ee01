/** What REPLACE removes by a second UNIQUE constraint, or by a rowid, is recorded as the deletion that it is. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { collect } from '../support/collect.ts';
import { expectSameWithout, type Origin, origin, state, wipe } from '../support/elsewhere.ts';
import type { TestDatabase } from '../support/lane.ts';
import {
  captured,
  cleanUp,
  database,
  node,
  rowsOf,
  scratchFolder,
  type TestNode,
  writeStamps,
} from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

describe('a second UNIQUE constraint', () => {
  const EMAILS = 'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT UNIQUE, name TEXT, updated_at INTEGER)';
  for (const recursive of ['OFF', 'ON']) {
    describe(`recursive_triggers ${recursive}`, () => {
      const start = async (schema = EMAILS): Promise<Origin> => {
        const it = await origin({ schema });
        it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
        return it;
      };

      test('a row that INSERT OR REPLACE removes is captured as a DELETE and leaves a tombstone', async () => {
        const it = await start();
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x@y', 'victim', 7000)",
          "INSERT OR REPLACE INTO items VALUES ('b', 'x@y', 'winner', 1000)",
        ]);
        expect(captured(it.db)).toContainEqual({
          op: 'DELETE',
          row_id: 'a',
          row: { id: 'a', email: 'x@y', name: 'victim', updated_at: 7000 },
        });
        expect(it.all('SELECT row_id, version FROM _tombstones')).toEqual([{ row_id: 'a', version: 7000 }]);
        it.db.exec("INSERT INTO items VALUES ('a', 'other', 'back', 1)");
        expect(it.all("SELECT updated_at FROM items WHERE id = 'a'")).toEqual([{ updated_at: 7001 }]);
        expect(it.all('SELECT * FROM _replaced')).toEqual([]);
        await expectDeletedFirst(it);
      });

      test('UPDATE OR REPLACE of the unique value does the same', async () => {
        const it = await start();
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x', 'victim', 7000), ('b', 'y', 'winner', 1000), ('c', 'z', 'bystander', 1000)",
          "UPDATE OR REPLACE items SET email = 'x' WHERE id = 'b'",
          "UPDATE OR REPLACE items SET email = 'w', updated_at = 3000 WHERE id = 'c'",
        ]);
        expect(
          captured(it.db)
            .filter(({ op }) => op === 'DELETE')
            .map(({ row_id }) => row_id),
        ).toContain('a');
        await expectDeletedFirst(it);
      });

      test('REPLACE that hits one row by id and another by the unique value', async () => {
        const it = await start();
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x', 'by id', 7000), ('b', 'y', 'by value', 8000)",
          "REPLACE INTO items VALUES ('a', 'y', 'both', 1000)",
        ]);
        expect(it.all('SELECT id, updated_at FROM items')).toEqual([{ id: 'a', updated_at: 7001 }]);
        await expectDeletedFirst(it);
      });

      test('SET id and the unique value at once, over two living rows', async () => {
        const it = await start();
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x', 'mover', 1000), ('b', 'y', 'by id', 8000), ('c', 'z', 'by value', 9000)",
          "UPDATE OR REPLACE items SET id = 'b', email = 'z' WHERE id = 'a'",
        ]);
        expect(it.all('SELECT id, email, name FROM items')).toEqual([{ id: 'b', email: 'z', name: 'mover' }]);
        await expectDeletedFirst(it);
      });

      const MANY =
        'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT COLLATE NOCASE UNIQUE, a INTEGER, b TEXT, name TEXT, updated_at INTEGER, UNIQUE (a, b))';
      test('several constraints, a collation, a pair of columns, and NULLs that never clash', async () => {
        const it = await start(MANY);
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('1', 'A@B', 1, 'x', 'v1', 1000), ('2', 'c@d', 1, 'y', 'v2', 2000), ('3', NULL, NULL, 'y', 'v3', 1000), ('4', 'e', 2, 'x', 'v4', 1000)",
          "REPLACE INTO items VALUES ('5', 'a@b', 1, 'y', 'two at a blow', 10)",
          "REPLACE INTO items VALUES ('6', NULL, NULL, 'y', 'none', 10)",
          "UPDATE OR REPLACE items SET email = 'E' WHERE id = '5'",
        ]);
        expect(it.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: '3' }, { id: '5' }, { id: '6' }]);
        await expectDeletedFirst(it);
      });

      test('a unique index over a generated column', async () => {
        const it = await start(
          'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT, low TEXT AS (lower(email)), updated_at INTEGER); CREATE UNIQUE INDEX u ON items (low)',
        );
        await expectSameWithout(it, [
          "INSERT INTO items (id, email, updated_at) VALUES ('a', 'X', 7000)",
          "REPLACE INTO items (id, email, updated_at) VALUES ('b', 'x', 1000)",
          "INSERT INTO items (id, email, updated_at) VALUES ('c', 'y', 9000)",
          "UPDATE OR REPLACE items SET email = 'Y' WHERE id = 'b'",
        ]);
        expect(it.all('SELECT id FROM items')).toEqual([{ id: 'b' }]);
        await expectDeletedFirst(it);
      });

      const AB = 'id TEXT PRIMARY KEY, a TEXT, b TEXT, updated_at INTEGER';
      const PAIRS: Record<string, string> = {
        'a UNIQUE virtual column of two': `CREATE TABLE items (${AB}, g TEXT AS (a || '-' || b) UNIQUE)`,
        'a UNIQUE stored column of two': `CREATE TABLE items (${AB}, g TEXT AS (a || '-' || b) STORED UNIQUE)`,
        'a unique index over a generated column and another': `CREATE TABLE items (${AB}, g TEXT AS (lower(a)));
          CREATE UNIQUE INDEX u ON items (g, b)`,
        'an expression over a generated column': `CREATE TABLE items (${AB}, g TEXT AS (a || '-' || b));
          CREATE UNIQUE INDEX u ON items (lower(g))`,
        'a partial index whose condition is generated': `CREATE TABLE items (${AB}, g TEXT AS (a || '-' || b));
          CREATE UNIQUE INDEX u ON items (a, b) WHERE g IS NOT NULL`,
        'a partial index over an expression': `CREATE TABLE items (${AB});
          CREATE UNIQUE INDEX u ON items (a || '-' || b) WHERE b > 'a'`,
        'a generated column in a table WITHOUT ROWID': `CREATE TABLE items (${AB}, g TEXT AS (a || '-' || b) UNIQUE)
          WITHOUT ROWID`,
        'a generated column with a collation': `CREATE TABLE items (${AB},
          g TEXT COLLATE NOCASE AS (upper(a) || '-' || b) UNIQUE)`,
        'a generated column of a generated column': `CREATE TABLE items (${AB}, f TEXT AS (a || '-'),
          g TEXT AS (f || b)); CREATE UNIQUE INDEX u ON items (g)`,
        'UNIQUE ON CONFLICT REPLACE, generated': `CREATE TABLE items (${AB},
          g TEXT AS (a || '-' || b) UNIQUE ON CONFLICT REPLACE)`,
        'PRIMARY KEY ON CONFLICT REPLACE, generated': `CREATE TABLE items (
          ${AB.replace('KEY', 'KEY ON CONFLICT REPLACE')}, g TEXT AS (a || '-' || b) UNIQUE)`,
      };
      for (const [what, schema] of Object.entries(PAIRS)) {
        test(`what REPLACE removes by ${what} is recorded`, async () => {
          const it = await start(schema);
          const columns = '(id, a, b, updated_at)';
          await expectSameWithout(it, [
            `INSERT INTO items ${columns} VALUES ('1', 'x', 'y', 7000), ('2', 'z', 'y', 1000), ('3', 'x', 'w', 9000)`,
            "UPDATE OR REPLACE items SET a = 'x' WHERE id = '2'",
            "UPDATE OR REPLACE items SET b = 'y', updated_at = 9500 WHERE id = '3'",
            `REPLACE INTO items ${columns} VALUES ('4', 'x', 'y', 500), ('5', 'q', 'q', NULL)`,
            "UPDATE OR REPLACE items SET a = 'x', b = 'y', updated_at = NULL WHERE id = '5'",
          ]);
          expect(it.all('SELECT id FROM items')).toEqual([{ id: '5' }]);
          const deleted = captured(it.db).filter(({ op }) => op === 'DELETE');
          expect(new Set(deleted.map(({ row_id }) => row_id))).toEqual(new Set(['1', '2', '3', '4']));
          expect(it.all('SELECT * FROM _replaced')).toEqual([]);
          await expectDeletedFirst(it);
        });
      }

      test('a column that is UNIQUE ON CONFLICT REPLACE by its declaration', async () => {
        const it = await start(EMAILS.replace('UNIQUE', 'UNIQUE ON CONFLICT REPLACE'));
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x', 'victim', 7000)",
          "INSERT INTO items VALUES ('b', 'x', 'winner', 1000)",
          "INSERT INTO items VALUES ('c', 'y', 'n', 1000)",
          "UPDATE items SET email = 'x' WHERE id = 'c'",
        ]);
        expect(it.all('SELECT id FROM items')).toEqual([{ id: 'c' }]);
        await expectDeletedFirst(it);
      });

      test('IGNORE, UPSERT and a failed insert remove nobody and record no deletion', async () => {
        const it = await start();
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x', 'stays', 7000)",
          "INSERT OR IGNORE INTO items VALUES ('b', 'x', 'ignored', 9000)",
          "INSERT INTO items VALUES ('b', 'x', 'fails', 9000)",
          "INSERT INTO items VALUES ('b', 'x', 'upsert', 9000) ON CONFLICT (email) DO UPDATE SET name = excluded.name",
          "UPDATE OR IGNORE items SET email = 'x' WHERE id = 'none'",
          "INSERT INTO items VALUES ('c', 'z', 'unrelated', 1000)",
        ]);
        expect(captured(it.db).filter(({ op }) => op === 'DELETE')).toEqual([]);
        await expectDeletedFirst(it);
      });

      test('a note left by an ignored insert does not turn a later write into a deletion', async () => {
        const it = await start();
        it.db.exec("INSERT INTO items VALUES ('a', 'x', 'stays', 7000)");
        it.db.exec("INSERT OR IGNORE INTO items VALUES ('b', 'x', 'ignored', 9000)");
        it.db.exec("DELETE FROM items WHERE id = 'a'");
        it.db.exec("INSERT INTO items VALUES ('a', 'y', 'back', 8000)");
        it.db.exec("INSERT INTO items VALUES ('c', 'z', 'n', 1000)");
        expect(it.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 'a' }, { id: 'c' }]);
        await expectDeletedFirst(it);
      });
    });
  }

  /**
   * Two rows with one value cannot both live, so on the way a change may have to wait aside; with the deletions first
   * nothing has to. (The order of the other ways would park the loser, which is what the warning at attach says.)
   */
  async function expectDeletedFirst(it: Origin): Promise<void> {
    writeStamps(it.manager);
    const expected = state(it.db, it.tables);
    await it.manager.flush();
    const changes = it.bodies.flatMap((body) =>
      rowsOf(it.db, "SELECT value FROM json_each(?, '$.changes') ORDER BY key", body).map(({ value }) => String(value)),
    );
    const isDelete = (change: string): boolean => change.startsWith('{"op":"DELETE"');
    const sorted = [...changes.filter(isDelete), ...changes.filter((change) => !isDelete(change))];
    const other = await node({ schema: it.schema, tables: it.tables });
    for (const batch of [changes, sorted, changes.toReversed()]) {
      wipe(other.db, it.tables);
      for (let i = 0; i < 3; i++)
        other.manager.receive(`{"batch_id":7,"changes":[${batch.join(',')}]}`, { said: 'id=origin' });
      for (const { id } of other.manager.deadLetters.list()) other.manager.deadLetters.retry(id);
      for (const { id } of other.manager.deadLetters.list()) other.manager.deadLetters.discard(id);
      expect(state(other.db, it.tables)).toEqual(expected);
      expect(other.all('SELECT * FROM _changes')).toEqual([]);
    }
  }
});

describe('a rowid that a statement gives', () => {
  const PLAIN = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';
  const deleted = ({ db }: Origin): string[] =>
    captured(db)
      .filter(({ op }) => op === 'DELETE')
      .map(({ row_id }) => String(row_id));

  describe.each([
    ['rowid', PLAIN, ''],
    ['_rowid_, and there is a second UNIQUE constraint', PLAIN.replace('name TEXT', 'name TEXT UNIQUE'), '_rowid_'],
    ['OID, the others being columns', PLAIN.replace('name', 'rowid TEXT, _rowid_ TEXT, name'), 'OID'],
    ['oid, and a generated column', PLAIN.replace('name TEXT', 'name TEXT, n AS (name) UNIQUE'), 'oid'],
  ])('by the name %s', (_, schema, name) => {
    const rowid = name || 'rowid';

    test.each(['OFF', 'ON'])('is that of a row which goes for it, recursive_triggers %s', async (recursive) => {
      const it = await origin({ schema });
      it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
      await expectSameWithout(it, [
        `INSERT INTO items (${rowid}, id, name, updated_at) VALUES (1, 'a', 'x', 7000), (2, 'b', 'y', 1000), (3, 'c', 'z', 1000)`,
        `INSERT OR REPLACE INTO items (${rowid}, id, name, updated_at) VALUES (1, 'd', 'v', 1000)`,
        `UPDATE OR REPLACE items SET ${rowid} = 2 WHERE id = 'c'`,
        `INSERT OR REPLACE INTO items (${rowid}, id, name, updated_at) SELECT 2, 'e', 'u', 1000`,
      ]);
      expect(it.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 'd' }, { id: 'e' }]);
      // With recursive triggers a row that waits for its stamp is deleted in two steps, as by DELETE.
      expect([...new Set(deleted(it))]).toEqual(['a', 'b', 'c']);
      expect(it.all('SELECT row_id, version FROM _tombstones WHERE row_id = ?', 'a')).toEqual([
        { row_id: 'a', version: 7000 },
      ]);
      expect(it.all('SELECT * FROM _replaced')).toEqual([]);
      it.db.exec("INSERT INTO items (id, name, updated_at) VALUES ('a', 'back', 1)");
      expect(it.all("SELECT updated_at FROM items WHERE id = 'a'")).toEqual([{ updated_at: 7001 }]);
    });

    test('may be -1, which is also what SQLite says of one that it has yet to choose', async () => {
      const it = await origin({ schema });
      await expectSameWithout(it, [
        `INSERT INTO items (${rowid}, id, name, updated_at) VALUES (-1, 'a', 'x', 7000), (1, 'b', 'y', 1000)`,
        "INSERT INTO items (id, name, updated_at) VALUES ('c', 'z', 1000)",
        `INSERT OR REPLACE INTO items (${rowid}, id, name, updated_at) VALUES (-1, 'd', 'v', 1000)`,
        `UPDATE OR REPLACE items SET ${rowid} = -1 WHERE id = 'b'`,
      ]);
      expect(it.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 'b' }, { id: 'c' }]);
      expect(deleted(it)).toEqual(['a', 'd']);
      expect(it.all('SELECT * FROM _replaced')).toEqual([]);
    });

    test('a row that is put back before anybody has looked is above what it was', async () => {
      const it = await origin({ schema });
      await expectSameWithout(it, [
        `INSERT INTO items (${rowid}, id, name, updated_at) VALUES (1, 'a', 'x', 7000)`,
        'BEGIN',
        `INSERT OR REPLACE INTO items (${rowid}, id, name, updated_at) VALUES (1, 'd', 'v', 1000)`,
        "INSERT INTO items (id, name, updated_at) VALUES ('a', 'back', 1)",
        'COMMIT',
      ]);
      expect(it.all("SELECT name, updated_at FROM items WHERE id = 'a'")).toEqual([{ name: 'back', updated_at: 7001 }]);
      expect(it.all('SELECT * FROM _replaced')).toEqual([]);
    });

    test('an older state of it that comes before anybody has looked stays out', async () => {
      const it = await origin({ schema });
      it.db.exec(`INSERT INTO items (${rowid}, id, name, updated_at) VALUES (1, 'a', 'x', 7000)`);
      it.db.exec(`INSERT OR REPLACE INTO items (${rowid}, id, name, updated_at) VALUES (1, 'd', 'v', 1000)`);
      const row = { id: 'a', name: 'late', updated_at: 6000 };
      const change = { op: 'UPDATE', table: 'items', row, old_id: null };
      expect(it.manager.receive(JSON.stringify({ batch_id: 1, changes: [change] })).body).toMatchObject({ applied: 0 });
      expect(it.all('SELECT id FROM items')).toEqual([{ id: 'd' }]);
      expect(deleted(it)).toEqual(['a']);
    });

    test('and removes nobody where it is free, is ignored, or is its own', async () => {
      const it = await origin({ schema });
      await expectSameWithout(it, [
        `INSERT INTO items (${rowid}, id, name, updated_at) VALUES (1, 'a', 'x', 7000)`,
        `INSERT OR IGNORE INTO items (${rowid}, id, name, updated_at) VALUES (1, 'b', 'y', 7000)`,
        `INSERT OR REPLACE INTO items (${rowid}, id, name, updated_at) VALUES (5, 'c', 'z', 7000)`,
        `INSERT OR REPLACE INTO items (${rowid}, id, name, updated_at) VALUES (1, 'a', 'v', 8000)`,
        `UPDATE OR REPLACE items SET ${rowid} = 7 WHERE id = 'c'`,
      ]);
      expect(deleted(it)).toEqual([]);
    });
  });
});

describe('what an ignored INSERT has noted does not outlive the trace of the row', () => {
  const EMAILS = 'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT UNIQUE, name TEXT, updated_at INTEGER)';

  async function ignored(): Promise<TestNode> {
    const one = await node({ schema: EMAILS });
    one.db.exec("INSERT INTO items VALUES ('a', 'x', 'stays', 7000)");
    one.db.exec("INSERT OR IGNORE INTO items VALUES ('b', 'x', 'ignored', 9000)");
    expect(one.all('SELECT row_id FROM _replaced')).toEqual([{ row_id: 'a' }]);
    return one;
  }

  const deletions = ({ db }: TestNode): unknown => captured(db).filter(({ op }) => op === 'DELETE');

  test('nor the next tick', async () => {
    const clock = new VirtualClock();
    const one = await node({ schema: EMAILS, clock });
    one.db.exec("INSERT INTO items VALUES ('a', 'x', 'stays', 7000)");
    await clock.advance(100);
    for (const clause of ['INSERT OR IGNORE', 'INSERT']) {
      const ignore = clause === 'INSERT' ? ' ON CONFLICT DO NOTHING' : '';
      one.db.exec(`${clause} INTO items VALUES ('b', 'x', 'ignored', 9000)${ignore}`);
      expect(rowsOf(one.db, 'SELECT row_id FROM _replaced')).toEqual([{ row_id: 'a' }]);
      await clock.advance(100);
      expect(rowsOf(one.db, 'SELECT row_id FROM _replaced')).toEqual([]);
    }
    expect(rowsOf(one.db, 'SELECT id FROM items')).toEqual([{ id: 'a' }]);
    expect(deletions(one)).toEqual([]);
  });

  test('what an open transaction has noted stays with it', async () => {
    const clock = new VirtualClock();
    const one = await node({ schema: EMAILS, clock });
    one.db.exec("INSERT INTO items VALUES ('a', 'x', 'stays', 7000)");
    one.db.exec("BEGIN; INSERT OR IGNORE INTO items VALUES ('b', 'x', 'ignored', 9000)");
    await clock.advance(100);
    one.db.exec("INSERT OR REPLACE INTO items VALUES ('c', 'x', 'wins', 9000); COMMIT");
    await clock.advance(100);
    expect(rowsOf(one.db, 'SELECT row_id FROM _replaced')).toEqual([]);
    expect(deletions(one)).toMatchObject([{ row_id: 'a' }]);
  });

  test('its tombstone was collected', async () => {
    const one = await ignored();
    const row = { id: 'a', email: 'x', name: 'stays', updated_at: 7_000 };
    const change = { op: 'DELETE', table: 'items', row, old_id: 'a' };
    expect(one.manager.receive(JSON.stringify({ batch_id: 1, changes: [change] })).status).toBe(200);
    collect(one.db);
    expect(one.all('SELECT * FROM _tombstones')).toEqual([]);
    one.db.exec("INSERT INTO items VALUES ('c', 'z', 'unrelated', 9000)");
    expect(deletions(one)).toEqual([]);
  });

  describe.each([
    [
      'changed names with it',
      'ALTER TABLE items RENAME TO t; ALTER TABLE notes RENAME TO items; ALTER TABLE t RENAME TO notes',
    ],
    ['took its name when it was dropped', 'DROP TABLE items; ALTER TABLE notes RENAME TO items'],
  ])('another table %s', (_, sql) => {
    test.each(['while attached', 'while stopped'])('%s', async (when) => {
      const tables = ['items', 'notes'];
      const one = await node({ schema: `${EMAILS}; ${EMAILS.replace('items', 'notes')}`, tables });
      one.db.exec("INSERT INTO items VALUES ('a', 'x', 'stays', 7000)");
      if (when === 'while stopped') await one.manager.stop();
      one.db.exec("INSERT OR IGNORE INTO items VALUES ('b', 'x', 'ignored', 9000)");
      one.db.exec(sql);
      const left = sql.startsWith('DROP') ? ['items'] : tables;
      const manager = when === 'while attached' ? one.manager : attach(one.db, { id: 'node', peers: [] }, left);
      cleanUp(() => manager.stop());
      manager.applyChanges([]);
      expect([deletions(one), rowsOf(one.db, 'SELECT * FROM _tombstones')]).toEqual([[], []]);
    });
  });

  test.each([
    ['made anew', `DROP TABLE items; ${EMAILS}`],
    ['dropped', 'DROP TABLE items'],
  ])('its table is %s by another connection while the lock is waited for', async (_, sql) => {
    const path = join(scratchFolder(), 'shared.db');
    const db = await database(EMAILS, path);
    const other = await database('SELECT 1', path);
    let isArmed = false;
    const handle = new Proxy(db, {
      get(target, key: keyof TestDatabase) {
        const value = target[key];
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          if (isArmed && args[0] === 'BEGIN IMMEDIATE') {
            isArmed = false;
            other.exec(`BEGIN; ${sql}; COMMIT`);
          }
          return (value as (...all: unknown[]) => unknown).apply(target, args);
        };
      },
    });
    const manager = attach(handle, { id: 'node', peers: [], clock: new VirtualClock() }, ['items']);
    cleanUp(() => manager.stop());
    db.exec("INSERT INTO items VALUES ('a', 'x', 'stays', 7000)");
    manager.applyChanges([]);
    db.exec("INSERT OR IGNORE INTO items VALUES ('b', 'x', 'ignored', 9000)");
    isArmed = true;
    manager.applyChanges([]);
    expect(isArmed).toBe(false);
    manager.applyChanges([]);
    expect(rowsOf(db, "SELECT row_id FROM _changes WHERE op = 'DELETE'")).toEqual([]);
  });

  test('its table was dropped and made anew', async () => {
    const one = await ignored();
    one.db.exec(`DROP TABLE items; ${EMAILS}`);
    writeStamps(one.manager);
    one.db.exec("INSERT INTO items VALUES ('c', 'z', 'unrelated', 9000)");
    expect(deletions(one)).toEqual([]);
  });
});

describe('a row replaced by one that a cascade then removes, so that nothing is left to be told', () => {
  const BY_UNIQUE = "UPDATE OR REPLACE items SET name = 'x' WHERE id = 'c'";
  const BY_ROWID = "UPDATE OR REPLACE items SET rowid = (SELECT rowid FROM items WHERE id = 'a') WHERE id = 'c'";
  const tree = (unique: string): string =>
    `CREATE TABLE items (id TEXT PRIMARY KEY, up TEXT REFERENCES items (id) ON DELETE CASCADE, name TEXT ${unique}, updated_at INTEGER)`;

  function removeAll(db: TestNode['db'], write: string): void {
    db.exec('PRAGMA foreign_keys = ON');
    db.exec("INSERT INTO items VALUES ('a', NULL, 'x', 7000), ('b', 'a', 'y', 7000), ('c', 'b', 'z', 7000)");
    db.exec(write);
    expect(rowsOf(db, 'SELECT id FROM items')).toEqual([]);
  }

  const deleted = ({ db }: TestNode): unknown =>
    [...new Set(captured(db).flatMap(({ op, row_id }) => (op === 'DELETE' ? [row_id] : [])))].sort();

  describe.each([
    ['a UNIQUE value', tree('UNIQUE'), BY_UNIQUE],
    ['a rowid', tree(''), BY_ROWID],
  ])('by %s', (_, schema, write) => {
    test('is told to have gone by the next tick', async () => {
      const clock = new VirtualClock();
      const one = await node({ schema, clock });
      removeAll(one.db, write);
      await clock.advance(100);
      expect(deleted(one)).toEqual(['a', 'b', 'c']);
      expect(one.all("SELECT version FROM _tombstones WHERE row_id = 'a'")).toEqual([{ version: 7000 }]);
      expect(one.all('SELECT * FROM _replaced')).toEqual([]);
    });

    test('and before anything is received', async () => {
      const one = await node({ schema });
      removeAll(one.db, write);
      const row = { id: 'a', up: null, name: 'x', updated_at: 7000 };
      const change = { op: 'INSERT', table: 'items', row, old_id: null };
      expect(one.manager.receive(JSON.stringify({ batch_id: 1, changes: [change] })).status).toBe(200);
      expect(one.all('SELECT id FROM items')).toEqual([]);
    });

    test('and by the next start, where there is another UNIQUE constraint by then', async () => {
      const one = await node({ schema });
      await one.manager.stop();
      removeAll(one.db, write);
      one.db.exec('CREATE UNIQUE INDEX later ON items (up, name)');
      const manager = attach(one.db, { id: 'node', peers: [] }, ['items']);
      cleanUp(() => manager.stop());
      expect(deleted(one)).toEqual(['a', 'b', 'c']);
      const told = captured(one.db).find(({ op, row_id }) => op === 'DELETE' && row_id === 'a');
      expect(told?.row).toMatchObject({ id: 'a', updated_at: 7000 });
    });
  });
});
