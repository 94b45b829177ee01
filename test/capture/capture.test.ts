/** What a write leaves in `_changes`, and that those changes alone rebuild the table anywhere, in any order. */
import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import type { Fetch } from '../../src/send/transport.ts';
import { expectSameElsewhere, type Origin, origin, PEER, standstill } from '../support/elsewhere.ts';
import { betterSqlite3, lane, type TestDatabase } from '../support/lane.ts';
import { captured, cleanUp, database, ITEMS, node, rowsOf, scratchFolder, type TestNode } from '../support/nodes.ts';

const insert = (id: string, at: number | string = 1000, name = 'n', value = 1): string =>
  `INSERT INTO items (id, name, value, created_at, updated_at) VALUES ('${id}', '${name}', ${value}, 10, ${at})`;

/** A second synced table, written by a trigger that stands back while changes are applied. */
const LOG = `CREATE TABLE log (id TEXT PRIMARY KEY, what TEXT, updated_at INTEGER);
  CREATE TRIGGER note AFTER UPDATE ON items WHEN (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1
  BEGIN INSERT INTO log VALUES (NEW.id || NEW.updated_at || NEW.name, NEW.name, 1000) ON CONFLICT DO NOTHING; END`;

const ops = (db: TestDatabase): string[] => captured(db).map(({ op, row_id }) => `${op} ${row_id}`);

describe('what is captured', () => {
  test('an insert is captured with the whole row', async () => {
    const it = await origin();
    it.db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    expect(captured(it.db)).toEqual([
      { op: 'INSERT', row_id: 'a', row: { id: 'a', name: 'first', value: 1, created_at: 10, updated_at: 1000 } },
    ]);
    await expectSameElsewhere(it);
  });

  test('an update is captured with the whole new row, not only with what changed', async () => {
    const it = await origin();
    it.db.exec(insert('a'));
    it.db.exec("UPDATE items SET name = 'second', updated_at = 2000 WHERE id = 'a'");
    expect(captured(it.db)[1]).toEqual({
      op: 'UPDATE',
      row_id: 'a',
      row: { id: 'a', name: 'second', value: 1, created_at: 10, updated_at: 2000 },
    });
    expect(captured(it.db)).toHaveLength(2);
    await expectSameElsewhere(it);
  });

  test('a delete is captured with the full old row and its updated_at, and names the row in old_id', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1234, 'last words', 7));
    it.db.exec("DELETE FROM items WHERE id = 'a'");
    const row = { id: 'a', name: 'last words', value: 7, created_at: 10, updated_at: 1234 };
    expect(captured(it.db)[1]).toEqual({ op: 'DELETE', row_id: 'a', row });
    await expectSameElsewhere(it);
    expect(JSON.parse(it.bodies.join()).changes).toEqual([
      { op: 'INSERT', table: 'items', row, old_id: null },
      { op: 'DELETE', table: 'items', row, old_id: 'a' },
    ]);
  });

  test('each row of a multi-row statement is a change of its own, in order', async () => {
    const it = await origin();
    it.db.exec(
      "INSERT INTO items VALUES ('a', 'x', 1, 1, 1000), ('b', 'y', 2, 2, 1000), ('c', 'z', 3, 3, 1000);" +
        'UPDATE items SET value = value * 10, updated_at = 2000 WHERE value > 1;' +
        "INSERT INTO items SELECT id || '2', name, value, created_at, 3000 FROM items ORDER BY id",
    );
    expect(ops(it.db)).toEqual([
      ...['INSERT a', 'INSERT b', 'INSERT c', 'UPDATE b', 'UPDATE c'],
      ...['INSERT a2', 'INSERT b2', 'INSERT c2'],
    ]);
    await expectSameElsewhere(it);
  });

  test('DELETE without a WHERE captures every row, although SQLite would like to empty the table in one go', async () => {
    const it = await origin();
    for (const id of ['a', 'b', 'c']) it.db.exec(insert(id));
    it.db.exec('DELETE FROM items');
    expect(ops(it.db).slice(3)).toEqual(['DELETE a', 'DELETE b', 'DELETE c']);
    await expectSameElsewhere(it);
  });

  test('every kind of statement that writes is captured: UPDATE FROM, RETURNING, a CTE, a view with INSTEAD OF', async () => {
    const it = await origin();
    it.db.exec('CREATE VIEW shown AS SELECT id, name FROM items');
    it.db.exec(
      'CREATE TRIGGER shown_insert INSTEAD OF INSERT ON shown BEGIN INSERT INTO items VALUES (NEW.id, NEW.name, 0, 0, 1000); END',
    );
    it.db.exec("INSERT INTO shown VALUES ('v', 'by view')");
    it.db.exec('WITH n(i) AS (VALUES (1), (2)) INSERT INTO items SELECT i, i, i, i, 1000 + i FROM n');
    it.db.exec(
      "UPDATE items SET name = s.name, updated_at = 5000 FROM (SELECT 'from' AS name) AS s WHERE items.id = '1'",
    );
    const returned = it.all("DELETE FROM items WHERE id = '2' RETURNING id, updated_at");
    expect(returned).toEqual([{ id: '2', updated_at: 1002 }]);
    expect(ops(it.db)).toEqual(['INSERT v', 'INSERT 1', 'INSERT 2', 'UPDATE 1', 'DELETE 2']);
    await expectSameElsewhere(it);
  });

  test('an update that changes nothing is a change: its version moves, and peers get it', async () => {
    const it = await origin();
    it.db.exec(insert('a'));
    it.db.exec("UPDATE items SET name = name WHERE id = 'a'");
    expect(ops(it.db)).toEqual(['INSERT a', 'UPDATE a']);
    await expectSameElsewhere(it);
  });

  test('a statement that matches no row captures nothing', async () => {
    const it = await origin();
    it.db.exec("UPDATE items SET name = 'x' WHERE id = 'none'");
    it.db.exec("DELETE FROM items WHERE id = 'none'");
    it.db.exec("INSERT INTO items SELECT 'a', 'b', 1, 1, 1 WHERE false");
    expect(captured(it.db)).toEqual([]);
    await expectSameElsewhere(it);
  });

  test("capture does not show in the application's changes() and last_insert_rowid()", async () => {
    const it = await origin();
    const seen = (): unknown => rowsOf(it.db, 'SELECT changes() AS n, last_insert_rowid() AS rowid')[0];
    it.db.exec(insert('a'));
    it.db.exec(insert('b', 'NULL'));
    expect(seen()).toEqual({ n: 1, rowid: 2 });
    it.db.exec("UPDATE items SET name = 'forgotten'");
    expect(seen()).toMatchObject({ n: 2 });
    it.db.exec('DELETE FROM items');
    expect(seen()).toEqual({ n: 2, rowid: 2 });
    await expectSameElsewhere(it);
  });

  test('change ids go on after everything was shipped, so a late acknowledgement cannot hit a new change', async () => {
    const it = await origin();
    it.db.exec(insert('a'));
    const [first] = it.all('SELECT max(change_id) AS id FROM _changes');
    await it.manager.flush();
    it.db.exec(insert('b'));
    const [second] = it.all('SELECT min(change_id) AS id FROM _changes');
    expect(Number(second?.id)).toBeGreaterThan(Number(first?.id));
    await expectSameElsewhere(it);
  });

  test('change ids of what was shipped are not given again, though somebody has emptied the table', async () => {
    const it = await origin({ fetch: () => Promise.reject(new Error('no answer')) });
    it.db.exec(insert('a'));
    it.db.exec(insert('b'));
    expect(await it.manager.flush()).toMatchObject({ delivered: [] });
    it.db.exec('DELETE FROM _changes');
    it.db.exec(insert('c'));
    expect(it.all('SELECT change_id FROM _changes')).toEqual([{ change_id: 3 }]);
  });

  test('change ids stay above what was acknowledged, though somebody has emptied _meta', async () => {
    const it = await origin();
    it.db.exec(insert('a'));
    await it.manager.flush();
    it.db.exec('DELETE FROM _meta');
    it.db.exec(insert('b'));
    expect(it.all('SELECT change_id FROM _changes')).toEqual([{ change_id: 2 }]);
    await expectSameElsewhere(it);
  });

  test.each(["'0'", "'many'", 'NULL', '-5'])(
    'a last id that somebody has set to %s is set right again',
    async (value) => {
      const it = await origin();
      it.db.exec(`UPDATE _meta SET value = ${value} WHERE key = 'last_change_id'`);
      for (const id of ['a', 'b', 'c']) {
        it.db.exec(insert(id));
        await it.manager.flush();
      }
      expect(it.bodies.map((body) => JSON.parse(body).batch_id)).toEqual([1, 2, 3]);
      await expectSameElsewhere(it);
    },
  );

  test('the id of a change that was set aside is not given again, though others are pending', async () => {
    const away = 'http://away.test';
    const bodies: string[] = [];
    const fetch: Fetch = async (url, { body }) => {
      if (url.startsWith(away)) throw new Error('away');
      bodies.push(new TextDecoder().decode(body));
      return { status: 200, text: async () => JSON.stringify({ ack: JSON.parse(bodies.at(-1) as string).batch_id }) };
    };
    const it = await origin({ peers: [away], fetch });
    it.db.exec(insert('a'));
    await it.manager.stop();
    // No peer can be sent a row without an id. The second peer begins after it, with a snapshot.
    it.db.exec("INSERT INTO items VALUES (NULL, 'nobody', 1, 10, 1000)");
    const config = { id: 'origin', peers: [away, PEER], clock: standstill, batchMs: 3_600_000, random: () => 1, fetch };
    const manager = attach(it.db, config, ['items']);
    cleanUp(() => manager.stop());
    await manager.flush();
    it.db.exec(insert('b'));
    await manager.flush();
    expect(bodies.join()).toContain('"b"');
  });

  test('a column that was added after such a change is captured', async () => {
    const it = await origin();
    it.db.exec("INSERT INTO items VALUES (NULL, 'nobody', 1, 10, 1000); CREATE TABLE other (x)");
    await it.manager.flush();
    it.db.exec("ALTER TABLE items ADD COLUMN extra TEXT; INSERT INTO items VALUES ('r', 'n', 1, 10, 1000, 'precious')");
    await it.manager.flush();
    expect(it.bodies.join()).toContain('precious');
  });

  test('what an ignored insert would have replaced, and was deleted later, is deleted once', async () => {
    const it = await origin({
      schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, a TEXT UNIQUE, updated_at INTEGER)',
    });
    it.db.exec("INSERT INTO items VALUES ('x', 'one', 1000)");
    it.db.exec("INSERT OR IGNORE INTO items VALUES ('y', 'one', 2000)");
    it.db.exec("DELETE FROM items WHERE id = 'x'");
    it.db.exec("INSERT INTO items VALUES ('z', 'two', 3000)");
    expect(ops(it.db)).toEqual(['INSERT x', 'DELETE x', 'INSERT z']);
    await expectSameElsewhere(it);
  });

  test('one statement that records several changes after a drain gives each an id of its own', async () => {
    const it = await origin({
      schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, a TEXT UNIQUE, b TEXT UNIQUE, updated_at INTEGER)',
    });
    it.db.exec("INSERT INTO items VALUES ('x', 'one', 'X', 1000), ('y', 'Y', 'two', 1000)");
    await it.manager.flush();
    it.db.exec("INSERT OR REPLACE INTO items VALUES ('z', 'one', 'two', 2000)");
    expect(it.all('SELECT change_id, op FROM _changes ORDER BY change_id')).toEqual([
      { change_id: 3, op: 'INSERT' },
      { change_id: 4, op: 'DELETE' },
      { change_id: 5, op: 'DELETE' },
    ]);
    await expectSameElsewhere(it);
  });

  test('several tables are captured side by side, each under its own name', async () => {
    const two = `${ITEMS}; CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT, updated_at INTEGER); CREATE TABLE private (id TEXT PRIMARY KEY)`;
    const it = await origin({ schema: two, tables: ['items', 'notes'] });
    it.db.exec(insert('same'));
    it.db.exec("INSERT INTO notes VALUES ('same', 'note', 500)");
    it.db.exec("INSERT INTO private VALUES ('mine')");
    it.db.exec("DELETE FROM notes WHERE id = 'same'");
    expect(it.all('SELECT op, table_name FROM _changes ORDER BY change_id')).toEqual([
      { op: 'INSERT', table_name: 'items' },
      { op: 'INSERT', table_name: 'notes' },
      { op: 'DELETE', table_name: 'notes' },
    ]);
    await expectSameElsewhere(it);
  });
});

describe("capture is part of the writer's transaction", () => {
  test('a rolled-back transaction leaves neither a row, nor a change, nor a tombstone', async () => {
    const it = await origin();
    it.db.exec(insert('kept'));
    it.db.exec('BEGIN');
    it.db.exec(insert('a'));
    it.db.exec("UPDATE items SET name = 'x' WHERE id = 'kept'");
    it.db.exec("DELETE FROM items WHERE id = 'kept'");
    expect(new Set(ops(it.db))).toEqual(new Set(['INSERT kept', 'INSERT a', 'UPDATE kept', 'DELETE kept']));
    it.db.exec('ROLLBACK');
    expect(ops(it.db)).toEqual(['INSERT kept']);
    expect(it.all('SELECT * FROM _tombstones')).toEqual([]);
    await expectSameElsewhere(it);
  });

  test('a rolled-back savepoint takes its own changes along and no others', async () => {
    const it = await origin();
    it.db.exec('BEGIN');
    it.db.exec(insert('a'));
    it.db.exec('SAVEPOINT one');
    it.db.exec(insert('b'));
    it.db.exec("DELETE FROM items WHERE id = 'a'");
    it.db.exec('SAVEPOINT two');
    it.db.exec(insert('c'));
    it.db.exec('RELEASE two');
    it.db.exec('ROLLBACK TO one');
    it.db.exec('RELEASE one');
    it.db.exec(insert('d'));
    it.db.exec('COMMIT');
    expect(ops(it.db)).toEqual(['INSERT a', 'INSERT d']);
    expect(it.all('SELECT * FROM _tombstones')).toEqual([]);
    await expectSameElsewhere(it);
  });

  test('a statement that fails half-way leaves nothing of itself, and the transaction goes on', async () => {
    const it = await origin({ schema: ITEMS.replace('value INTEGER', 'value INTEGER CHECK (value < 100)') });
    it.db.exec('BEGIN');
    it.db.exec(insert('a'));
    expect(() => it.db.exec("INSERT INTO items VALUES ('b', 'n', 1, 1, 1000), ('c', 'n', 100, 1, 1000)")).toThrow();
    expect(() => it.db.exec(insert('a'))).toThrow();
    it.db.exec('COMMIT');
    expect(ops(it.db)).toEqual(['INSERT a']);
    await expectSameElsewhere(it);
  });

  test('INSERT OR FAIL keeps the rows before the failure, and exactly those are captured', async () => {
    const it = await origin();
    it.db.exec(insert('c'));
    expect(() =>
      it.db.exec(
        "INSERT OR FAIL INTO items VALUES ('a', 'n', 1, 1, 1000), ('c', 'n', 1, 1, 2000), ('d', 'n', 1, 1, 1000)",
      ),
    ).toThrow();
    expect(ops(it.db)).toEqual(['INSERT c', 'INSERT a']);
    await expectSameElsewhere(it);
  });

  test('INSERT OR ROLLBACK takes the whole transaction back', async () => {
    const it = await origin();
    it.db.exec(insert('c'));
    it.db.exec('BEGIN');
    it.db.exec(insert('a'));
    expect(() => it.db.exec(insert('c').replace('INSERT', 'INSERT OR ROLLBACK'))).toThrow();
    expect(ops(it.db)).toEqual(['INSERT c']);
    await expectSameElsewhere(it);
  });

  test("the binding's own transaction() is captured when it commits and not when it throws", async () => {
    const it = await origin();
    const run = it.db.transaction((id: string, fail: boolean) => {
      it.db.exec(insert(id));
      if (fail) throw new Error('changed my mind');
    }) as (id: string, fail: boolean) => void;
    run('a', false);
    expect(() => run('b', true)).toThrow('changed my mind');
    expect(ops(it.db)).toEqual(['INSERT a']);
    await expectSameElsewhere(it);
  });

  test('an open transaction is not shipped, and what it rolls back never leaves', async () => {
    const it = await origin();
    it.db.exec('BEGIN');
    it.db.exec(insert('a'));
    await it.manager.flush();
    expect(it.bodies).toEqual([]);
    it.db.exec('ROLLBACK');
    it.db.exec(insert('b'));
    await expectSameElsewhere(it);
    expect(it.bodies.join()).not.toContain('"a"');
  });
});

describe('the syncing flag', () => {
  test('1 suppresses capture of all three operations, 0 and a missing row do not', async () => {
    const it = await origin();
    const writeAll = (id: string): void => {
      it.db.exec(insert(id));
      it.db.exec(`UPDATE items SET name = 'x' WHERE id = '${id}'`);
      it.db.exec(`UPDATE items SET id = '${id}2' WHERE id = '${id}'`);
      it.db.exec(`DELETE FROM items WHERE id = '${id}2'`);
    };
    it.db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
    writeAll('s');
    expect(captured(it.db)).toEqual([]);
    expect(it.all('SELECT * FROM _tombstones')).toEqual([]);
    it.db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
    writeAll('z');
    expect(new Set(ops(it.db))).toEqual(new Set(['INSERT z', 'UPDATE z', 'UPDATE z2', 'DELETE z', 'DELETE z2']));
    it.db.exec("DELETE FROM _changes; DELETE FROM _tombstones; DELETE FROM _meta WHERE key = 'syncing'");
    writeAll('m');
    expect(new Set(ops(it.db))).toEqual(new Set(['INSERT m', 'UPDATE m', 'UPDATE m2', 'DELETE m', 'DELETE m2']));
    await expectSameElsewhere(it);
  });

  test('1 leaves updated_at as it was written: nothing is advanced while changes are applied', async () => {
    const it = await origin();
    it.db.exec(insert('a', 5000));
    it.db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
    it.db.exec("UPDATE items SET updated_at = 4000 WHERE id = 'a'");
    it.db.exec("INSERT OR REPLACE INTO items VALUES ('a', 'n', 1, 1, 3000)");
    expect(it.all('SELECT updated_at FROM items')).toEqual([{ updated_at: 3000 }]);
  });

  test('attach resets a flag that was left at 1', async () => {
    const path = join(scratchFolder(), 'flag.db');
    const first = await node({ path });
    first.db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
    await first.manager.stop();
    const second = await node({ path, schema: 'SELECT 1' });
    second.db.exec(insert('a'));
    expect(ops(second.db)).toEqual(['INSERT a']);
  });
});

describe('REPLACE, UPSERT, IGNORE and SET id', () => {
  for (const recursive of ['OFF', 'ON']) {
    describe(`recursive_triggers ${recursive}`, () => {
      const start = async (schema = ITEMS): Promise<Origin> => {
        const it = await origin({ schema });
        it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
        return it;
      };

      test('INSERT OR REPLACE above the old version is captured as it is', async () => {
        const it = await start();
        it.db.exec(insert('a', 1000));
        it.db.exec("INSERT OR REPLACE INTO items VALUES ('a', 'new', 2, 2, 2000)");
        expect(captured(it.db).at(-1)).toMatchObject({
          op: 'INSERT',
          row_id: 'a',
          row: { name: 'new', updated_at: 2000 },
        });
        expect(it.all('SELECT updated_at FROM items')).toEqual([{ updated_at: 2000 }]);
        await expectSameElsewhere(it);
      });

      for (const at of ['500', '1000', 'NULL', "'soon'", '12.5']) {
        test(`INSERT OR REPLACE with updated_at ${at} still ends above the old version`, async () => {
          const it = await start();
          it.db.exec(insert('a', 1000));
          it.db.exec(`REPLACE INTO items VALUES ('a', 'new', 2, 2, ${at})`);
          expectAdvanced(it, 'a', 1000);
          await expectSameElsewhere(it);
        });
      }

      test('a multi-row REPLACE that hits one id several times ends with the last of them', async () => {
        const it = await start();
        it.db.exec(insert('a', 5000));
        it.db.exec(
          "REPLACE INTO items VALUES ('a', 'one', 1, 1, 4000), ('b', 'b', 1, 1, 1), ('a', 'two', 2, 2, 3000), ('a', 'three', 3, 3, 3000)",
        );
        expect(it.all("SELECT name FROM items WHERE id = 'a'")).toEqual([{ name: 'three' }]);
        expectAdvanced(it, 'a', 5000);
        await expectSameElsewhere(it);
      });

      test('UPSERT is captured as the insert or the update that it became', async () => {
        const it = await start();
        const upsert = (name: string, at: number): void =>
          void it.db.exec(
            `INSERT INTO items VALUES ('a', '${name}', 1, 1, ${at}) ON CONFLICT (id) DO UPDATE SET name = excluded.name, updated_at = excluded.updated_at`,
          );
        upsert('one', 1000);
        upsert('two', 2000);
        expect(captured(it.db).map(({ op, row }) => [op, row.name, row.updated_at])).toEqual([
          ['INSERT', 'one', 1000],
          ['UPDATE', 'two', 2000],
        ]);
        upsert('three', 1500);
        expectAdvanced(it, 'a', 2000);
        it.db.exec("INSERT INTO items VALUES ('a', 'no', 1, 1, 1) ON CONFLICT (id) DO UPDATE SET name = 'forgotten'");
        expectAdvanced(it, 'a', 2001);
        it.db.exec("INSERT INTO items VALUES ('a', 'no', 1, 1, 1) ON CONFLICT DO NOTHING");
        expect(it.all('SELECT name FROM items')).toEqual([{ name: 'forgotten' }]);
        await expectSameElsewhere(it);
      });

      test('INSERT OR IGNORE captures the rows that went in and not those that were there', async () => {
        const it = await start();
        it.db.exec(insert('a', 1000));
        it.db.exec(
          "INSERT OR IGNORE INTO items VALUES ('a', 'ignored', 9, 9, 1), ('b', 'in', 1, 1, 1), ('c', 'in', 1, 1, NULL)",
        );
        expect(new Set(ops(it.db).map((op) => op.slice(-1)))).toEqual(new Set(['a', 'b', 'c']));
        expect(ops(it.db).filter((op) => op.endsWith(' a'))).toHaveLength(1);
        it.db.exec("DELETE FROM items WHERE id = 'a'");
        it.db.exec("INSERT OR IGNORE INTO items VALUES ('a', 'again', 1, 1, 1)");
        expectAdvanced(it, 'a', 1000);
        await expectSameElsewhere(it);
      });

      test('UPDATE OR IGNORE captures only what it did', async () => {
        const it = await start();
        it.db.exec(insert('a'));
        it.db.exec(insert('b'));
        it.db.exec("UPDATE OR IGNORE items SET id = 'b', updated_at = 2000 WHERE id = 'a'");
        expect(ops(it.db)).toEqual(['INSERT a', 'INSERT b']);
        it.db.exec('UPDATE OR IGNORE items SET updated_at = 500');
        expectAdvanced(it, 'a', 1000);
        expectAdvanced(it, 'b', 1000);
        await expectSameElsewhere(it);
      });

      test('SET id is a DELETE of the old id and an UPDATE of the new one', async () => {
        const it = await start();
        it.db.exec(insert('a', 1000));
        it.db.exec("UPDATE items SET id = 'b', updated_at = 2000 WHERE id = 'a'");
        const changes = captured(it.db).slice(1);
        expect(changes).toHaveLength(2);
        expect(changes).toContainEqual({
          op: 'DELETE',
          row_id: 'a',
          row: { id: 'a', name: 'n', value: 1, created_at: 10, updated_at: 1000 },
        });
        expect(changes).toContainEqual({
          op: 'UPDATE',
          row_id: 'b',
          row: { id: 'b', name: 'n', value: 1, created_at: 10, updated_at: 2000 },
        });
        await expectSameElsewhere(it);
      });

      test('SET id without updated_at, with an old one, to the same id and back again', async () => {
        const it = await start();
        it.db.exec(insert('a', 1000));
        it.db.exec("UPDATE items SET id = 'b' WHERE id = 'a'");
        expectAdvanced(it, 'b', 1000);
        it.db.exec("UPDATE items SET id = 'a', updated_at = 1 WHERE id = 'b'");
        expectAdvanced(it, 'a', 1000);
        it.db.exec("UPDATE items SET id = 'a', updated_at = 2 WHERE id = 'a'");
        expect(it.all('SELECT count(*) AS n FROM items')).toEqual([{ n: 1 }]);
        await expectSameElsewhere(it);
      });

      test('SET id of every row at once', async () => {
        const it = await start();
        for (const id of ['a', 'b', 'c', 'd']) it.db.exec(insert(id, 1000));
        it.db.exec("UPDATE items SET id = 'moved-' || id");
        expect(it.all('SELECT id FROM items ORDER BY id').map(({ id }) => id)).toEqual([
          ...['moved-a', 'moved-b', 'moved-c', 'moved-d'],
        ]);
        await expectSameElsewhere(it);
      });

      test('SET id onto an id that was deleted ends above its tombstone', async () => {
        const it = await start();
        it.db.exec(insert('dead', 9000));
        it.db.exec("DELETE FROM items WHERE id = 'dead'");
        it.db.exec(insert('a', 1000));
        it.db.exec("UPDATE items SET id = 'dead', updated_at = 2000 WHERE id = 'a'");
        expectAdvanced(it, 'dead', 9000);
        await expectSameElsewhere(it);
      });

      test('UPDATE OR REPLACE onto a living id removes that row and ends above it', async () => {
        const it = await start();
        it.db.exec(insert('a', 1000, 'from a'));
        it.db.exec(insert('b', 8000, 'from b'));
        it.db.exec("UPDATE OR REPLACE items SET id = 'b', updated_at = 2000 WHERE id = 'a'");
        expect(it.all('SELECT id, name FROM items')).toEqual([{ id: 'b', name: 'from a' }]);
        expectAdvanced(it, 'b', 8000);
        await expectSameElsewhere(it);
      });

      test('a trigger of the application that writes other synced rows is captured with them', async () => {
        const it = await origin({ schema: `${ITEMS}; ${LOG}`, tables: ['items', 'log'] });
        it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
        it.db.exec(insert('a'));
        it.db.exec("UPDATE items SET name = 'noted', updated_at = 2000");
        it.db.exec("UPDATE items SET name = 'forgotten'");
        expect(it.all('SELECT DISTINCT what FROM log ORDER BY what')).toEqual([
          { what: 'forgotten' },
          { what: 'noted' },
        ]);
        await expectSameElsewhere(it);
      });
    });
  }
});

/** The row's stored version and the last captured one agree, and both are above `floor`. */
function expectAdvanced(it: TestNode, id: string, floor: number): number {
  const [stored] = it.all('SELECT typeof(updated_at) AS type, updated_at AS at FROM items WHERE id = ?', id);
  const last = captured(it.db).findLast(({ row_id, op }) => row_id === id && op !== 'DELETE');
  expect(stored?.type).toBe('integer');
  expect(Number(stored?.at)).toBeGreaterThan(floor);
  expect(last?.row.updated_at).toBe(stored?.at);
  return Number(stored?.at);
}

test("another implementation's _meta is taken over without breaking the application's triggers that read it", async () => {
  const plain = "CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT); INSERT INTO _meta VALUES ('syncing', '0')";
  const it = await origin({ schema: `${ITEMS}; ${plain}; ${LOG}`, tables: ['items', 'log'] });
  it.db.exec(insert('a'));
  it.db.exec("UPDATE items SET name = 'noted', updated_at = 2000");
  expect(it.all('SELECT what FROM log')).toEqual([{ what: 'noted' }]);
  await expectSameElsewhere(it);
});

describe('a local write always advances the version', () => {
  const FUTURE = 4_102_444_800_000;

  test('an honest clock is left alone', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1_700_000_000_000));
    it.db.exec("UPDATE items SET updated_at = 1700000000001 WHERE id = 'a'");
    expect(captured(it.db).map(({ row }) => row.updated_at)).toEqual([1_700_000_000_000, 1_700_000_000_001]);
    await expectSameElsewhere(it);
  });

  test('an UPDATE that forgets updated_at is stamped with the time', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1000));
    const before = Date.now();
    it.db.exec("UPDATE items SET name = 'forgot' WHERE id = 'a'");
    const at = expectAdvanced(it, 'a', 1000);
    // SQLite's clock and ours may round differently.
    expect(at).toBeGreaterThanOrEqual(before - 1);
    expect(at).toBeLessThanOrEqual(Date.now() + 1);
    expect(captured(it.db)).toHaveLength(2);
    await expectSameElsewhere(it);
  });

  test('forgotten on a row from the future, it goes up by one', async () => {
    const it = await origin();
    it.db.exec(insert('a', FUTURE));
    it.db.exec("UPDATE items SET name = 'forgot' WHERE id = 'a'");
    expect(expectAdvanced(it, 'a', FUTURE)).toBe(FUTURE + 1);
    await expectSameElsewhere(it);
  });

  test('many forgetful writes within a millisecond all differ', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1000));
    it.db.exec('BEGIN');
    for (let i = 0; i < 50; i++) it.db.exec(`UPDATE items SET value = ${i} WHERE id = 'a'`);
    it.db.exec('COMMIT');
    const versions = captured(it.db).map(({ row }) => Number(row.updated_at));
    expect(versions).toEqual([...new Set(versions)].sort((x, y) => x - y));
    expect(versions).toHaveLength(51);
    expectAdvanced(it, 'a', versions.at(-2) as number);
    await expectSameElsewhere(it);
  });

  test('two writes with the same updated_at are two versions', async () => {
    const it = await origin();
    it.db.exec(insert('a', FUTURE, 'zzz'));
    it.db.exec(`UPDATE items SET name = 'aaa', updated_at = ${FUTURE} WHERE id = 'a'`);
    expect(expectAdvanced(it, 'a', FUTURE)).toBe(FUTURE + 1);
    await expectSameElsewhere(it);
  });

  test('a clock that goes backwards takes the last version plus one', async () => {
    const it = await origin();
    it.db.exec(insert('a', 5000));
    it.db.exec("UPDATE items SET name = 'b', updated_at = 4000 WHERE id = 'a'");
    expect(expectAdvanced(it, 'a', 5000)).toBe(5001);
    it.db.exec("UPDATE items SET name = 'a', updated_at = 3000 WHERE id = 'a'");
    expect(expectAdvanced(it, 'a', 5001)).toBe(5002);
    await expectSameElsewhere(it);
  });

  const invalid = [
    'NULL',
    "'yesterday'",
    '12.5',
    "x'01'",
    '8640000000000001',
    '-8640000000000001',
    '9223372036854775807',
  ];
  for (const at of [...invalid, '9e999']) {
    test(`updated_at = ${at} is stamped with the time, on INSERT and on UPDATE`, async () => {
      const it = await origin();
      const before = Date.now();
      it.db.exec(insert('a', at));
      expect(expectAdvanced(it, 'a', 0)).toBeGreaterThanOrEqual(before - 1);
      it.db.exec(insert('b', 1000));
      it.db.exec(`UPDATE items SET name = 'x', updated_at = ${at} WHERE id = 'b'`);
      const stamped = expectAdvanced(it, 'b', before - 2);
      expect(stamped).toBeLessThanOrEqual(Date.now() + 1);
      it.db.exec(insert('c', FUTURE));
      it.db.exec(`UPDATE items SET name = 'x', updated_at = ${at} WHERE id = 'c'`);
      expect(expectAdvanced(it, 'c', FUTURE)).toBe(FUTURE + 1);
      expect(captured(it.db).every(({ row }) => Number.isSafeInteger(row.updated_at))).toBe(true);
      await expectSameElsewhere(it);
    });
  }

  for (const at of ['0', '1', '-1', '-5000', '-8640000000000000', "'1000'", '1e3']) {
    test(`updated_at = ${at} is a time, and the next write is above it`, async () => {
      const it = await origin();
      it.db.exec(insert('a', at));
      const first = Number(it.all('SELECT updated_at FROM items')[0]?.updated_at);
      expect(first).toBe(Number(at.replaceAll("'", '')));
      it.db.exec(`UPDATE items SET name = 'x', updated_at = ${at} WHERE id = 'a'`);
      expectAdvanced(it, 'a', first);
      await expectSameElsewhere(it);
    });
  }

  test('re-inserting a deleted id ends above the tombstone', async () => {
    const it = await origin();
    for (const at of ['500', '1000', 'NULL', '2000', '1']) {
      const before = Number(it.all('SELECT coalesce(max(version), 999) AS v FROM _tombstones')[0]?.v);
      it.db.exec(insert('a', at, `born ${at}`.replaceAll("'", '')));
      if (before > 999) expectAdvanced(it, 'a', before);
      it.db.exec("DELETE FROM items WHERE id = 'a'");
    }
    it.db.exec(insert('a', 3, 'stays'));
    await expectSameElsewhere(it);
    expect(it.all('SELECT name FROM items')).toEqual([{ name: 'stays' }]);
  });

  test('a delete carries the version of the row it removes, and wins against it', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1000));
    it.db.exec("UPDATE items SET name = 'x', updated_at = 500 WHERE id = 'a'");
    it.db.exec("DELETE FROM items WHERE id = 'a'");
    expect(captured(it.db).at(-1)).toMatchObject({ op: 'DELETE', row: { updated_at: 1001 } });
    expect(it.all('SELECT row_id, version FROM _tombstones')).toEqual([{ row_id: 'a', version: 1001 }]);
    await expectSameElsewhere(it);
  });

  test('after a deletion was received, a local re-insert with an older time ends above it', async () => {
    const it = await origin();
    it.manager.applyChanges([{ op: 'DELETE', table: 'items', row: { id: 'a', updated_at: FUTURE }, old_id: 'a' }]);
    it.db.exec(insert('a', 1000));
    expect(expectAdvanced(it, 'a', FUTURE)).toBe(FUTURE + 1);
    await expectSameElsewhere(it);
  });

  test('after a newer row was received, a local update with an older time ends above it', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1000));
    const row = { id: 'a', name: 'theirs', value: 1, created_at: 1, updated_at: FUTURE };
    expect(it.manager.applyChanges([{ op: 'UPDATE', table: 'items', row, old_id: null }])).toBe(1);
    it.db.exec("UPDATE items SET name = 'ours', updated_at = 2000 WHERE id = 'a'");
    expect(expectAdvanced(it, 'a', FUTURE)).toBe(FUTURE + 1);
    await expectSameElsewhere(it);
  });

  test('the notes that capture takes for REPLACE do not pile up', async () => {
    const it = await origin();
    it.db.exec(insert('a', 5000));
    for (let i = 0; i < 20; i++) it.db.exec(`REPLACE INTO items VALUES ('a', 'n${i}', 1, 1, 1)`);
    it.db.exec("INSERT OR IGNORE INTO items VALUES ('a', 'n', 1, 1, 1)");
    await expectSameElsewhere(it);
    expect(it.all('SELECT * FROM _stamps')).toEqual([]);
    expect(it.all('SELECT * FROM _replaced')).toEqual([]);
  });
});

describe('several connections and processes on one file', () => {
  test('a second connection that knows nothing of Rowcast is captured', async () => {
    const path = join(scratchFolder(), 'shared.db');
    const it = await origin({ path });
    const second = await database('SELECT 1', path);
    second.exec(insert('a'));
    second.exec('BEGIN');
    second.exec(insert('b'));
    expect(ops(it.db)).toEqual(['INSERT a']);
    second.exec('COMMIT');
    second.exec("UPDATE items SET name = 'x' WHERE id = 'a'");
    second.exec("DELETE FROM items WHERE id = 'b'");
    expect(ops(it.db)).toEqual(['INSERT a', 'INSERT b', 'UPDATE a', 'DELETE b']);
    await expectSameElsewhere(it);
  });

  test('writes of a connection in the middle of other connections come in the order of their commits', async () => {
    const path = join(scratchFolder(), 'shared.db');
    const it = await origin({ path });
    const others = [await database('SELECT 1', path), await database('SELECT 1', path), it.db];
    for (let i = 0; i < 30; i++) others[i % 3]?.exec(insert(`row-${i % 7}`, i).replace('INSERT', 'INSERT OR REPLACE'));
    expect(it.all('SELECT count(*) AS n FROM items')).toEqual([{ n: 7 }]);
    await expectSameElsewhere(it);
  });

  test('a second process that writes while this one writes and applies is captured, every row of it', async () => {
    const path = join(scratchFolder(), 'shared.db');
    const it = await origin({ path });
    let childDone = false;
    const child = writeInAnotherProcess(path, 60).finally(() => {
      childDone = true;
    });
    let received = 0;
    let written = 0;
    // Both sides go on until the child is through: its rows meet transactions with the flag set, and local ones.
    while (!childDone || received === 0) {
      received += 1;
      const row = { id: `theirs-${received}`, name: 'n', value: 1, created_at: 1, updated_at: 1000 };
      expect(it.manager.applyChanges([{ op: 'INSERT', table: 'items', row, old_id: null }])).toBe(1);
      if (written < 50) it.db.exec(insert(`ours-${written++}`));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await child;
    const seen = captured(it.db);
    const ids = new Set(seen.map(({ row_id }) => String(row_id)));
    expect([...ids].filter((id) => id.startsWith('child-'))).toHaveLength(60);
    expect([...ids].filter((id) => id.startsWith('ours-'))).toHaveLength(written);
    expect([...ids].filter((id) => id.startsWith('theirs-'))).toEqual([]);
    const deleted = seen.filter(({ op, row_id }) => op === 'DELETE' && String(row_id).startsWith('child-'));
    expect(new Set(deleted.map(({ row_id }) => row_id)).size).toBe(20);
    it.db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
    it.db.exec("DELETE FROM items WHERE id LIKE 'theirs-%'");
    it.db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
    await expectSameElsewhere(it);
  });
});

/** Runs the lane's own binding in a process of its own: `rows` inserts, each updated, every third deleted. */
async function writeInAnotherProcess(path: string, rows: number): Promise<void> {
  const require = createRequire(import.meta.url);
  const open = {
    'bun-sqlite': "new (require('bun:sqlite').Database)(path)",
    'node-sqlite': "new (require('node:sqlite').DatabaseSync)(path)",
    'better-sqlite3': `new (require(${JSON.stringify(require.resolve(betterSqlite3()))}))(path)`,
  }[lane];
  const script = `const path = ${JSON.stringify(path)}; const db = ${open};
    db.exec('PRAGMA busy_timeout = 20000');
    for (let i = 0; i < ${rows}; i++) {
      db.exec("BEGIN IMMEDIATE; INSERT INTO items VALUES ('child-" + i + "', 'n', " + i + ", 1, 1000); COMMIT");
      db.exec("UPDATE items SET name = 'touched' WHERE id = 'child-" + i + "'");
      if (i % 3 === 0) db.exec("DELETE FROM items WHERE id = 'child-" + i + "'");
    }
    db.close();`;
  await promisify(execFile)(process.execPath, ['-e', script]);
}
