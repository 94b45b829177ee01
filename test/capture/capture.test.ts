/** What a write leaves in `_changes`, and that those changes alone rebuild the table anywhere, in any order. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import type { Fetch } from '../../src/send/transport.ts';
import { insert, LOG, ops } from '../support/capture.ts';
import { expectSameElsewhere, origin, PEER, standstill } from '../support/elsewhere.ts';
import { captured, cleanUp, database, ITEMS, node, rowsOf, scratchFolder } from '../support/nodes.ts';

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

  test.each(['a"b', 'a\\b', "a'b", '$.a'])('so is one that is called %s, and written at once', async (name) => {
    const it = await origin();
    it.db.exec("INSERT INTO items VALUES ('r', 'n', 1, 10, 1000)");
    await it.manager.flush();
    const column = `"${name.replaceAll('"', '""')}"`;
    it.db.exec(`ALTER TABLE items ADD COLUMN ${column} TEXT; UPDATE items SET ${column} = 'precious' WHERE id = 'r'`);
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

test("another implementation's _meta is taken over without breaking the application's triggers that read it", async () => {
  const plain = "CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT); INSERT INTO _meta VALUES ('syncing', '0')";
  const it = await origin({ schema: `${ITEMS}; ${plain}; ${LOG}`, tables: ['items', 'log'] });
  it.db.exec(insert('a'));
  it.db.exec("UPDATE items SET name = 'noted', updated_at = 2000");
  expect(it.all('SELECT what FROM log')).toEqual([{ what: 'noted' }]);
  await expectSameElsewhere(it);
});

describe('several connections on one file', () => {
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
});
