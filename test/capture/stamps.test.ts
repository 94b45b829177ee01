/** A write without a usable time: it never fails because of us, no trigger sees it twice, and its version arrives. */
import { describe, expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { meetings } from '../support/draws.ts';
import { expectSameElsewhere, type Origin, origin } from '../support/elsewhere.ts';
import { captured, cleanUp, database, ITEMS, rowsOf, writeStamps } from '../support/nodes.ts';

const FUTURE = 4_000_000_000_000;
const CEILING = 7_258_118_400_000;
const GUARD = "(SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1";
const NOW = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/** What the row is recorded as: the change of the greatest version, a deletion before a row of the same. */
function newest(it: Origin, id: string): { op: string; row: Record<string, unknown> } | undefined {
  return captured(it.db)
    .filter(({ row_id }) => row_id === id)
    .sort(
      (a, b) =>
        Number(a.row.updated_at) - Number(b.row.updated_at) || Number(a.op === 'DELETE') - Number(b.op === 'DELETE'),
    )
    .at(-1);
}

/** Every row is what is recorded of it, before and after the stamps are written; nothing else is. */
function expectRecorded(it: Origin): void {
  const rows = (): Record<string, unknown>[] => rowsOf(it.db, 'SELECT * FROM items WHERE id IS NOT NULL ORDER BY id');
  for (const row of rows()) {
    const [stamp] = rowsOf(it.db, 'SELECT version FROM _stamps WHERE row_id = ?', row.id);
    const own = typeof row.updated_at === 'number' && row.updated_at <= CEILING ? row.updated_at : 0;
    const time = Math.max(Number(stamp?.version ?? 0), own);
    expect(newest(it, String(row.id))).toMatchObject({ row: { ...row, updated_at: time } });
  }
  const before = captured(it.db);
  writeStamps(it.manager);
  expect(captured(it.db), 'writing the stamps is captured by nobody').toEqual(before);
  for (const row of rows()) expect(newest(it, String(row.id))).toMatchObject({ row });
}

/** The way of SQLite's manual: the index is told what to forget by the values that the row had. */
const FTS = `${ITEMS};
  CREATE VIRTUAL TABLE ft USING fts5(name, value, content='items', content_rowid='rowid');
  CREATE TRIGGER items_ai AFTER INSERT ON items BEGIN
    INSERT INTO ft(rowid, name, value) VALUES (new.rowid, new.name, new.value);
  END;
  CREATE TRIGGER items_ad AFTER DELETE ON items BEGIN
    INSERT INTO ft(ft, rowid, name, value) VALUES ('delete', old.rowid, old.name, old.value);
  END;
  CREATE TRIGGER items_au AFTER UPDATE ON items BEGIN
    INSERT INTO ft(ft, rowid, name, value) VALUES ('delete', old.rowid, old.name, old.value);
    INSERT INTO ft(rowid, name, value) VALUES (new.rowid, new.name, new.value);
  END`;

describe('FTS5 with external content and the triggers of the manual', () => {
  const INSERT = "INSERT INTO items (id, name) VALUES ('a', 'first'), ('b', 'second'), ('c', 'third')";
  const WRITES: Record<string, string[]> = {
    INSERT: [INSERT],
    UPDATE: [INSERT, "UPDATE items SET name = 'other'", "UPDATE items SET name = 'more', updated_at = 5"],
    DELETE: [INSERT, "DELETE FROM items WHERE id = 'b'", "INSERT INTO items (id, name) VALUES ('b', 'again')"],
    UPSERT: [INSERT, `${INSERT} ON CONFLICT (id) DO UPDATE SET name = excluded.name || '!'`],
    'SET id': [INSERT, "UPDATE items SET id = 'z', name = 'moved' WHERE id = 'a'"],
  };
  // Without recursive triggers REPLACE tells no trigger what it removes, and the manual's index is wrong by itself.
  const REPLACE = [INSERT, INSERT.replace('INSERT', 'REPLACE')];
  const CASES = ['before attach', 'after attach'].flatMap((when) =>
    ['OFF', 'ON'].flatMap((recursive) =>
      Object.entries(recursive === 'ON' ? { ...WRITES, REPLACE } : WRITES).map(([what, statements]) => ({
        what,
        statements,
        when,
        recursive,
      })),
    ),
  );
  test.each(CASES)(
    '$what without updated_at, triggers made $when, recursive_triggers $recursive',
    async ({ statements, when, recursive }) => {
      const it = await origin({ schema: when === 'before attach' ? FTS : ITEMS });
      if (when === 'after attach') it.db.exec(FTS.slice(FTS.indexOf(';') + 1));
      it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
      const check = (): unknown => it.db.exec("INSERT INTO ft(ft, rank) VALUES ('integrity-check', 1)");
      for (const sql of statements) {
        it.db.exec(sql);
        check();
      }
      expectRecorded(it);
      check();
      await expectSameElsewhere(it, { schema: ITEMS });
    },
  );
});

describe('a trigger of the application sees each write once', () => {
  const audit = (guard: string): string =>
    ['INSERT', 'UPDATE', 'DELETE']
      .map(
        (op) =>
          `CREATE TRIGGER audit_${op} AFTER ${op} ON items ${guard} BEGIN INSERT INTO audit VALUES ('${op}'); END`,
      )
      .join(';');
  for (const guard of ['', `WHEN ${GUARD}`]) {
    for (const recursive of ['OFF', 'ON']) {
      test(`an audit trigger ${guard && 'that stands back while syncing'}, recursive_triggers ${recursive}`, async () => {
        const it = await origin({ schema: `${ITEMS}; CREATE TABLE audit (op); ${audit(guard)}` });
        it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
        const ops = (): unknown[] => rowsOf(it.db, 'SELECT op FROM audit').map(({ op }) => op);
        it.db.exec("BEGIN; INSERT INTO items (id, name) VALUES ('a', 'x'), ('b', 'x')");
        it.db.exec("UPDATE items SET name = 'y'; UPDATE items SET name = 'z', updated_at = 7 WHERE id = 'a'");
        it.db.exec("DELETE FROM items WHERE id = 'b'; COMMIT");
        expect(ops()).toEqual(['INSERT', 'INSERT', 'UPDATE', 'UPDATE', 'UPDATE', 'DELETE']);
        writeStamps(it.manager);
        // The time is written later, once, and whoever looks at the flag does not see it.
        expect(ops().slice(6)).toEqual(guard ? [] : ['UPDATE']);
        expectRecorded(it);
        await expectSameElsewhere(it, { schema: ITEMS });
      });
    }
  }
});

describe('when the version becomes visible in the row', () => {
  test('before anything is sent or received, and it is the one that was recorded', async () => {
    const it = await origin();
    it.db.exec("INSERT INTO items (id, name) VALUES ('a', 'x')");
    expect(rowsOf(it.db, 'SELECT updated_at FROM items')).toEqual([{ updated_at: null }]);
    const version = newest(it, 'a')?.row.updated_at;
    await it.manager.flush();
    expect(rowsOf(it.db, 'SELECT updated_at FROM items')).toEqual([{ updated_at: version }]);
    expect(rowsOf(it.db, 'SELECT * FROM _stamps')).toEqual([]);
  });

  test('a received change is judged by it', async () => {
    const it = await origin();
    const send = (name: string, updated_at: number): unknown =>
      it.manager.applyChanges([
        { op: 'UPDATE', table: 'items', row: { id: 'a', name, value: 1, created_at: 1, updated_at }, old_id: null },
      ]);
    it.db.exec(`INSERT INTO items VALUES ('a', 'ours', 1, 1, ${FUTURE})`);
    it.db.exec("UPDATE items SET name = 'ours, forgotten', updated_at = NULL");
    send('theirs, older', FUTURE);
    expect(it.all('SELECT name, updated_at FROM items')).toEqual([{ name: 'ours, forgotten', updated_at: FUTURE + 1 }]);
    send('theirs, newer', FUTURE + 5);
    expect(it.all('SELECT name FROM items')).toEqual([{ name: 'theirs, newer' }]);
  });

  test('a write to a row with a pending stamp is above it, whatever time it brings', async () => {
    const it = await origin();
    it.db.exec(`INSERT INTO items VALUES ('a', 'x', 1, 1, ${FUTURE})`);
    it.db.exec("UPDATE items SET name = 'forgotten', updated_at = 5");
    for (const time of [6, FUTURE, FUTURE + 1, 'NULL']) {
      const before = Number(newest(it, 'a')?.row.updated_at);
      it.db.exec(`UPDATE items SET name = 'at ${time}', updated_at = ${time}`);
      expect(newest(it, 'a')?.row).toMatchObject({ name: `at ${time}`, updated_at: before + 1 });
    }
    it.db.exec(`UPDATE items SET name = 'above', updated_at = ${FUTURE + 100}`);
    expect(newest(it, 'a')?.row).toMatchObject({ name: 'above', updated_at: FUTURE + 100 });
    expectRecorded(it);
    await expectSameElsewhere(it);
  });

  test('a row with a pending stamp is deleted at that version, replaced and renamed above it', async () => {
    for (const [sql, id, row] of [
      ['DELETE FROM items', 'a', { updated_at: FUTURE + 1 }],
      ["REPLACE INTO items VALUES ('a', 'new', 1, 1, 9)", 'a', { name: 'new', updated_at: FUTURE + 2 }],
      ["UPDATE items SET id = 'b'", 'a', { updated_at: FUTURE + 1 }],
    ] as const) {
      const it = await origin();
      it.db.exec(`INSERT INTO items VALUES ('a', 'x', 1, 1, ${FUTURE}); UPDATE items SET updated_at = 5`);
      it.db.exec(sql);
      expect(newest(it, id)).toMatchObject({ op: sql.startsWith('REPLACE') ? 'INSERT' : 'DELETE', row });
      expectRecorded(it);
      await expectSameElsewhere(it);
    }
  });

  test('many writes within a millisecond, and a rollback to a savepoint among them', async () => {
    const it = await origin();
    it.db.exec("BEGIN; INSERT INTO items (id, name) VALUES ('a', '0')");
    for (let i = 1; i < 20; i++) it.db.exec(`UPDATE items SET name = '${i}'`);
    const before = [captured(it.db), rowsOf(it.db, 'SELECT * FROM _stamps')];
    it.db.exec("SAVEPOINT s; UPDATE items SET name = 'undone'; DELETE FROM items; ROLLBACK TO s; RELEASE s");
    expect([captured(it.db), rowsOf(it.db, 'SELECT * FROM _stamps')]).toEqual(before);
    it.db.exec("UPDATE items SET name = 'last'; COMMIT");
    const versions = captured(it.db).map(({ row }) => Number(row.updated_at));
    expect(versions).toHaveLength(21);
    expect(versions).toEqual([...new Set(versions)].sort((a, b) => a - b));
    it.db.exec("BEGIN; UPDATE items SET name = 'undone'; ROLLBACK");
    expect(captured(it.db)).toHaveLength(21);
    expectRecorded(it);
    await expectSameElsewhere(it);
  });

  test('a row without an id has no version; given an id, it has one, and nobody is told of a deletion', async () => {
    const it = await origin();
    it.db.exec("INSERT INTO items (name) VALUES ('nameless'); UPDATE items SET name = 'still'");
    expect(rowsOf(it.db, 'SELECT * FROM _stamps')).toEqual([]);
    expect(captured(it.db).map(({ row_id }) => row_id)).toEqual([null, null]);
    it.db.exec("UPDATE items SET id = 'a'");
    expect(captured(it.db).slice(2)).toMatchObject([{ op: 'UPDATE', row_id: 'a', row: { name: 'still' } }]);
    expectRecorded(it);
  });

  test('another connection of the same file may leave stamps at any moment', async () => {
    const it = await origin();
    // As another process would between the two transactions of an apply.
    it.db.exec("INSERT INTO items (id, name) VALUES ('a', 'x'); INSERT INTO _stamps VALUES ('items', 'gone', 9, NULL)");
    it.db.exec("INSERT INTO _stamps VALUES ('no such table', 'x', 9, NULL)");
    expectRecorded(it);
    expect(rowsOf(it.db, 'SELECT table_name AS t, refused FROM _stamps')).toEqual([{ t: 'no such table', refused: 1 }]);
  });
});

describe('triggers of the application that write to the row again', () => {
  const TRIGGERS: Record<string, string> = {
    'touch, guarded': `AFTER UPDATE ON items WHEN NEW.updated_at IS OLD.updated_at BEGIN UPDATE items SET updated_at = ${NOW} WHERE id = NEW.id; END`,
    'touch, unguarded': `AFTER UPDATE ON items BEGIN UPDATE items SET updated_at = ${NOW} WHERE id = NEW.id; END`,
    'touch, in seconds': 'AFTER UPDATE ON items BEGIN UPDATE items SET updated_at = unixepoch() WHERE id = NEW.id; END',
    'touch, to NULL': 'AFTER UPDATE ON items BEGIN UPDATE items SET updated_at = NULL WHERE id = NEW.id; END',
    'count, no time': 'AFTER UPDATE OF name ON items BEGIN UPDATE items SET value = value + 1 WHERE id = NEW.id; END',
    'count on insert': 'AFTER INSERT ON items BEGIN UPDATE items SET value = 7 WHERE id = NEW.id; END',
    'delete what is updated':
      "AFTER UPDATE OF name ON items WHEN NEW.name = 'x1' BEGIN DELETE FROM items WHERE id = NEW.id; END",
    'rename what is updated':
      "AFTER UPDATE OF name ON items WHEN NEW.name = 'x1' BEGIN UPDATE items SET id = id || hex(randomblob(4)) WHERE id = NEW.id; END",
    'put back what is deleted':
      'AFTER DELETE ON items BEGIN INSERT INTO items VALUES (OLD.id, OLD.name, 99, 1, OLD.updated_at); END',
    'delete what is inserted':
      "AFTER INSERT ON items WHEN NEW.name = 'b' BEGIN DELETE FROM items WHERE id = NEW.id; END",
  };
  const STATEMENTS = [
    `INSERT INTO items VALUES ('a', 'n', 1, 1, 1000), ('b', 'b', 1, 1, NULL), ('f', 'f', 1, 1, ${FUTURE})`,
    "UPDATE items SET name = 'x1'",
    "UPDATE items SET name = 'x2', updated_at = updated_at + 60000",
    "UPDATE items SET name = 'x1', updated_at = 5 WHERE id = 'f'",
    "UPDATE items SET name = 'x3', updated_at = NULL",
    "REPLACE INTO items VALUES ('a', 'again', 1, 1, 10), ('f', 'again', 1, 1, NULL)",
    "UPDATE items SET name = 'x1', updated_at = NULL WHERE id = 'f'",
    "DELETE FROM items WHERE id = 'a'",
    "INSERT INTO items VALUES ('a', 'b', 1, 1, 10) ON CONFLICT DO UPDATE SET name = 'up', updated_at = 10",
    "UPDATE items SET id = 'g' WHERE id = 'f'",
  ];
  // Made before attach it fires after ours, made after it before ours.
  const CASES = meetings(Object.entries(TRIGGERS), ['before attach', 'after attach', 'between two attaches']).map(
    ([[what, trigger], when]) => ({ what, trigger, when }),
  );
  test.each(CASES)('$what, made $when', async ({ trigger, when }) => {
    const create = `CREATE TRIGGER own ${trigger}`;
    const it = await origin(when === 'before attach' ? { schema: `${ITEMS}; ${create}` } : {});
    if (when !== 'before attach') it.db.exec(create);
    if (when === 'between two attaches') {
      // Ours are made anew because there is a trigger now; then its successor is younger than they are.
      writeStamps(it.manager);
      it.db.exec(`DROP TRIGGER own; ${create}`);
      writeStamps(it.manager);
    }
    for (const sql of STATEMENTS) {
      it.db.exec(sql);
      if (when !== 'after attach') expectRecorded(it);
    }
    await expectSameElsewhere(it, { schema: ITEMS });
  });
});

describe('a trigger that forbids UPDATE', () => {
  for (const raise of ['ABORT', 'FAIL', 'ROLLBACK']) {
    test(`RAISE(${raise}): the insert stands, goes to the peers with its version, and the caller is told`, async () => {
      const it = await origin({
        schema: `${ITEMS}; CREATE TRIGGER no BEFORE UPDATE ON items BEGIN SELECT RAISE(${raise}, 'append only'); END`,
      });
      const warnings: string[] = [];
      it.manager.on('warning', ({ message }) => warnings.push(message));
      it.db.exec("INSERT INTO items (id, name) VALUES ('a', 'x'), ('b', 'y')");
      it.db.exec("INSERT INTO items VALUES ('c', 'timed', 1, 1, 1000)");
      const version = Number(newest(it, 'a')?.row.updated_at);
      await it.manager.flush();
      expect(warnings.filter((text) => text.includes('append only'))).toHaveLength(1);
      expect(rowsOf(it.db, 'SELECT id, updated_at FROM items ORDER BY id')).toEqual([
        { id: 'a', updated_at: null },
        { id: 'b', updated_at: null },
        { id: 'c', updated_at: 1000 },
      ]);
      const sent = it.bodies.flatMap((body) => JSON.parse(body).changes);
      expect(sent.map(({ row }) => [row.id, row.updated_at])).toContainEqual(['a', version]);
      // It stays the version of its row: a deletion has it, and nothing else is tried in vain.
      it.db.exec("DELETE FROM items WHERE id = 'a'");
      expect(newest(it, 'a')).toMatchObject({ op: 'DELETE', row: { updated_at: version } });
      writeStamps(it.manager);
      expect(warnings.filter((text) => text.includes('append only'))).toHaveLength(1);
      it.db.exec('DROP TRIGGER no');
      writeStamps(it.manager);
      expect(rowsOf(it.db, "SELECT updated_at FROM items WHERE id = 'b'")).toEqual([{ updated_at: version }]);
      expect(rowsOf(it.db, 'SELECT * FROM _stamps')).toEqual([]);
    });
  }

  test('one row that is refused does not keep the others from their versions', async () => {
    const it = await origin({
      schema: `${ITEMS}; CREATE TRIGGER no BEFORE UPDATE ON items WHEN OLD.name = 'closed' BEGIN SELECT RAISE(ROLLBACK, 'closed'); END`,
    });
    it.db.exec("INSERT INTO items (id, name) VALUES ('a', 'x'), ('b', 'closed'), ('c', 'y')");
    writeStamps(it.manager);
    expect(rowsOf(it.db, 'SELECT id FROM items WHERE updated_at IS NULL')).toEqual([{ id: 'b' }]);
    // A snapshot has it with its version, too.
    const version = newest(it, 'b')?.row.updated_at;
    const bodies: string[] = [];
    const fetch = async (_url: unknown, { body }: { body: Uint8Array }) => {
      bodies.push(new TextDecoder().decode(body));
      return {
        status: 200,
        text: async () => JSON.stringify({ applied: 0, ack: JSON.parse(bodies.at(-1) ?? '').batch_id }),
      };
    };
    await it.manager.stop();
    const again = attach(
      it.db,
      { maxAheadMs: 0, id: 'node', peers: ['http://new.test'], batchMs: 3_600_000, fetch } as never,
      ['items'],
    );
    cleanUp(() => again.stop());
    await again.flush();
    const rows = bodies.flatMap((body) => JSON.parse(body).changes).map(({ row }) => row);
    expect(rows.find(({ id }) => id === 'b').updated_at).toBe(version);
  });
});

describe('the year 2200', () => {
  test('a local write above it is one without a time; at it, it is one', async () => {
    const it = await origin();
    it.db.exec(
      `INSERT INTO items VALUES ('a', 'microseconds', 1, 1, 1700000000000000), ('b', 'last', 1, 1, ${CEILING})`,
    );
    const at = Number(it.all("SELECT updated_at FROM items WHERE id = 'a'")[0]?.updated_at);
    expect(at).toBeGreaterThan(1_700_000_000_000);
    expect(at).toBeLessThan(CEILING);
    expect(it.all("SELECT updated_at FROM items WHERE id = 'b'")).toEqual([{ updated_at: CEILING }]);
    it.db.exec(`UPDATE items SET updated_at = ${CEILING + 1} WHERE id = 'a'`);
    expectRecorded(it);
  });

  test('rows and deletions above it are brought to the present by the first attach that knows it', async () => {
    const db = await database();
    const first = attach(db, { maxAheadMs: 0, id: 'node', peers: [] }, ['items']);
    await first.stop();
    db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'; DELETE FROM _meta WHERE key = 'ceiling'");
    db.exec(`INSERT INTO items VALUES ('high', 'x', 1, 1, ${CEILING + 1}), ('fine', 'x', 1, 1, 1000)`);
    db.exec(`INSERT INTO _tombstones VALUES ('items', 'gone', 8640000000000000), ('items', 'buried', 1000)`);
    db.exec(`INSERT INTO _changes (op, table_name, row_id, row_data) VALUES
      ('INSERT', 'items', 'high', '{"id":"high","updated_at":${CEILING + 1}}'),
      ('INSERT', 'items', 'fine', '{"id":"fine","name":"x","value":1,"created_at":1,"updated_at":1000}')`);
    const second = attach(db, { maxAheadMs: 0, id: 'node', peers: [] }, ['items']);
    cleanUp(() => second.stop());
    const warnings: string[] = [];
    second.on('warning', ({ code }) => warnings.push(code));
    await new Promise((resolve) => setImmediate(resolve));
    expect(warnings).toContain('time-above-ceiling');
    const changes = captured(db);
    expect(changes.map(({ op, row_id }) => `${op} ${row_id}`)).toEqual(['INSERT fine', 'DELETE gone', 'UPDATE high']);
    const [high] = rowsOf(db, "SELECT updated_at FROM items WHERE id = 'high'");
    expect(changes[2]?.row.updated_at).toBe(high?.updated_at);
    expect(Number(high?.updated_at)).toBeLessThan(CEILING);
    expect(rowsOf(db, "SELECT version FROM _tombstones WHERE row_id = 'gone'")).toEqual([
      { version: changes[1]?.row.updated_at },
    ]);
    await second.stop();
    const third = attach(db, { maxAheadMs: 0, id: 'node', peers: [] }, ['items']);
    cleanUp(() => third.stop());
    expect(captured(db)).toEqual(changes);
  });
});
