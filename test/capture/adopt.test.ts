/** Taking over a database that another implementation of the same specification has made. */
import { describe, expect, test } from 'vitest';
import { attach, type Config, type Manager } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { captured, cleanUp, database, ITEMS, node, rowsOf, serveManager, until } from '../support/nodes.ts';

/** The specification's tables with its known columns and nothing else. `_meta.value` is TEXT, as many would write it. */
const PLAIN_TABLES = `
  CREATE TABLE _changes (change_id INTEGER PRIMARY KEY, op TEXT, row_id TEXT, row_data TEXT);
  CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT);
  CREATE TABLE _dead_letter (dead_id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, row_id TEXT, row_data TEXT,
    failed_at INTEGER, retry_count INTEGER DEFAULT 0);
  INSERT INTO _meta VALUES ('syncing', '0')`;

const NOTES = 'CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT, updated_at INTEGER)';
/** The same columns as `items`: nothing in a row tells the two apart. */
const TWIN = ITEMS.replace('items', 'twin');

/** The other implementation's triggers on one table. */
function plainTriggers(table: string, columns: string[]): string {
  const json = (row: string): string => `json_object(${columns.map((c) => `'${c}', ${row}.${c}`).join(', ')})`;
  const make = (op: string, row: string): string =>
    `CREATE TRIGGER capture_${table}_${op} AFTER ${op} ON ${table} WHEN (SELECT value FROM _meta WHERE key = 'syncing') = 0 ` +
    `BEGIN INSERT INTO _changes (op, row_id, row_data) VALUES ('${op}', ${row}.id, ${json(row)}); END`;
  return [make('INSERT', 'NEW'), make('UPDATE', 'NEW'), make('DELETE', 'OLD')].join(';');
}

const ITEM_TRIGGERS = plainTriggers('items', ['id', 'name', 'value', 'created_at', 'updated_at']);
const NOTE_TRIGGERS = plainTriggers('notes', ['id', 'body', 'updated_at']);
const TWIN_TRIGGERS = plainTriggers('twin', ['id', 'name', 'value', 'created_at', 'updated_at']);

function plainDatabase(...schema: string[]): Promise<TestDatabase> {
  return database([PLAIN_TABLES, ...schema].join(';'));
}

function attached(db: TestDatabase, tables: string[], config: Partial<Config> = {}): Manager {
  const manager = attach(db, { id: 'node', peers: [], ...config }, tables);
  cleanUp(() => manager.stop());
  return manager;
}

describe('a database of the plain tables, with changes pending', () => {
  test('one synced table: every pending change is kept, in order, and belongs to it', async () => {
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000), ('b', 'second', 2, 10, 1000)");
    db.exec("UPDATE items SET name = 'changed', updated_at = 2000 WHERE id = 'a'; DELETE FROM items WHERE id = 'b'");
    const before = rowsOf(db, 'SELECT change_id, op, row_id, row_data FROM _changes ORDER BY change_id');
    expect(before).toHaveLength(4);
    attached(db, ['items']);
    expect(rowsOf(db, 'SELECT change_id, op, row_id, row_data FROM _changes ORDER BY change_id')).toEqual(before);
    expect(rowsOf(db, 'SELECT DISTINCT table_name AS t FROM _changes')).toEqual([{ t: 'items' }]);
    expect(rowsOf(db, 'SELECT id, name FROM items')).toEqual([{ id: 'a', name: 'changed' }]);
  });

  test('the pending changes reach a peer, deletions included', async () => {
    const receiver = await node({ id: 'receiver' });
    // The peer has the row that is deleted in the backlog: without that DELETE it would keep it.
    receiver.manager.applyChanges([
      {
        op: 'INSERT',
        table: 'items',
        row: { id: 'gone', name: 'old', value: 1, created_at: 1, updated_at: 500 },
        old_id: null,
      },
    ]);
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
    db.exec("INSERT INTO items VALUES ('gone', 'old', 1, 1, 500), ('stays', 'new', 2, 10, 1000)");
    db.exec("DELETE FROM items WHERE id = 'gone'");
    await attached(db, ['items'], { peers: [await serveManager(receiver.manager)] }).flush();
    expect(receiver.all('SELECT id FROM items')).toEqual([{ id: 'stays' }]);
    expect(rowsOf(db, 'SELECT count(*) AS n FROM _changes')).toEqual([{ n: 0 }]);
  });

  test('rows that were acknowledged long ago reach a new peer as well', async () => {
    const receiver = await node({ id: 'receiver' });
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
    db.exec("INSERT INTO items VALUES ('old', 'first', 1, 10, 1000); DELETE FROM _changes");
    db.exec("INSERT INTO items VALUES ('new', 'second', 2, 10, 1000)");
    await attached(db, ['items'], { peers: [await serveManager(receiver.manager)] }).flush();
    expect(receiver.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 'new' }, { id: 'old' }]);
  });

  test('its own triggers are replaced, so a write is captured once, and the caller is told', async () => {
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
    const manager = attached(db, ['items']);
    const warnings: string[] = [];
    manager.on('warning', ({ message }) => warnings.push(message));
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000); UPDATE items SET name = 'x', updated_at = 1001");
    db.exec('DELETE FROM items');
    expect(captured(db).map(({ op }) => op)).toEqual(['INSERT', 'UPDATE', 'DELETE']);
    await new Promise((resolve) => setImmediate(resolve));
    for (const op of ['INSERT', 'UPDATE', 'DELETE']) {
      expect(warnings).toContainEqual(expect.stringContaining(`capture_items_${op}`));
    }
  });

  test('attach a second time changes nothing any more', async () => {
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    await attached(db, ['items']).stop();
    const state = () => [
      rowsOf(db, 'SELECT * FROM sqlite_schema ORDER BY name'),
      rowsOf(db, 'SELECT * FROM _changes'),
      // Who is attached, and how many have been, is another matter.
      rowsOf(db, "SELECT * FROM _meta WHERE key <> 'attaches' AND key NOT LIKE 'attached:%'"),
    ];
    const before = state();
    attached(db, ['items']);
    expect(state()).toEqual(before);
  });

  test('nothing of the takeover is left behind', async () => {
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
    attached(db, ['items']);
    expect(
      rowsOf(db, "SELECT name FROM sqlite_schema WHERE name LIKE '%before%' OR sql LIKE '%before_rowcast%'"),
    ).toEqual([]);
  });

  test('several synced tables: the columns of a row say which one it belongs to', async () => {
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS, NOTES, NOTE_TRIGGERS);
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000); INSERT INTO notes VALUES ('a', 'text', 1000)");
    db.exec('DELETE FROM notes');
    attached(db, ['items', 'notes']);
    expect(rowsOf(db, 'SELECT op, table_name AS t FROM _changes ORDER BY change_id')).toEqual([
      { op: 'INSERT', t: 'items' },
      { op: 'INSERT', t: 'notes' },
      { op: 'DELETE', t: 'notes' },
    ]);
    expect(rowsOf(db, 'SELECT * FROM _dead_letter')).toEqual([]);
  });

  test('a change that fits several tables, or none, becomes a dead letter; the others are kept', async () => {
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS, TWIN, TWIN_TRIGGERS, NOTES, NOTE_TRIGGERS);
    db.exec("INSERT INTO twin VALUES ('t', 'which', 1, 10, 1000); INSERT INTO notes VALUES ('n', 'text', 1000)");
    db.exec(`INSERT INTO _changes (op, row_id, row_data) VALUES ('UPDATE', 'x', '{"id":"x","colour":"red"}')`);
    db.exec("INSERT INTO _changes (op, row_id, row_data) VALUES ('UPDATE', 'y', 'not json'), ('DELETE', 'z', NULL)");
    const manager = attached(db, ['items', 'twin', 'notes']);
    expect(rowsOf(db, 'SELECT table_name AS t, row_id FROM _changes')).toEqual([{ t: 'notes', row_id: 'n' }]);
    expect(manager.deadLetters.list().map(({ op, rowId, row }) => [op, rowId, row])).toEqual([
      ['INSERT', 't', '{"id":"t","name":"which","value":1,"created_at":10,"updated_at":1000}'],
      ['UPDATE', 'x', '{"id":"x","colour":"red"}'],
      ['UPDATE', 'y', 'not json'],
      ['DELETE', 'z', null],
    ]);
    for (const letter of manager.deadLetters.list()) {
      expect(letter).toMatchObject({ direction: 'out', code: 'unknown-table' });
      expect(letter.reason).toBeTruthy();
    }
    expect(manager.health()).toMatchObject({ ok: true, dead_letter: 4, pending_changes: 1 });
  });

  test('dead letters that were there before are still there', async () => {
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
    db.exec(
      `INSERT INTO _dead_letter (op, row_id, row_data, failed_at, retry_count) VALUES ('INSERT', 'd', '{"id":"d"}', 77, 5)`,
    );
    const manager = attached(db, ['items']);
    expect(manager.deadLetters.list()).toMatchObject([
      { id: 1, op: 'INSERT', rowId: 'd', row: '{"id":"d"}', failedAt: 77, retryCount: 5 },
    ]);
  });

  test('the table of a change is read from a column of that meaning, whatever it is called', async () => {
    for (const column of ['table', 'tbl', 'tbl_name', 'table_name', 'tablename']) {
      const db = await database(
        `${ITEMS};${TWIN};CREATE TABLE _changes (change_id INTEGER PRIMARY KEY, op TEXT, "${column}" TEXT, row_id TEXT, row_data TEXT);` +
          `INSERT INTO _changes VALUES (7, 'INSERT', 'twin', 't', '{"id":"t","name":"n","value":1,"created_at":1,"updated_at":5}')`,
      );
      attached(db, ['items', 'twin']);
      expect(rowsOf(db, 'SELECT change_id, table_name AS t FROM _changes'), column).toEqual([
        { change_id: 7, t: 'twin' },
      ]);
    }
  });

  test('a flag that was left set, as text, is reset and capture works', async () => {
    for (const value of ["'0'", "'1'", "'0.0'", "'1.0'"]) {
      const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
      db.exec(`UPDATE _meta SET value = ${value}; INSERT INTO _meta VALUES ('their_own', 'kept')`);
      attached(db, ['items']);
      db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
      expect(captured(db), value).toHaveLength(1);
      expect(rowsOf(db, "SELECT value FROM _meta WHERE key = 'their_own'")).toEqual([{ value: 'kept' }]);
    }
  });

  test('tables of theirs that are not synced here can still be written', async () => {
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS, NOTES, NOTE_TRIGGERS);
    const manager = attached(db, ['items']);
    db.exec("INSERT INTO notes VALUES ('n', 'text', 1000); UPDATE notes SET body = 'x'; DELETE FROM notes");
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    expect(manager.health().ok).toBe(true);
    expect(rowsOf(db, 'SELECT count(*) AS n FROM notes')).toEqual([{ n: 0 }]);
  });

  test.each([1, 3, 20])(
    'of %i changes one that is no JSON, with a table, becomes a letter and holds nobody up',
    async (n) => {
      const receiver = await node({ id: 'receiver' });
      const db = await database();
      const manager = attached(db, ['items'], { peers: [await serveManager(receiver.manager)] });
      for (let i = 1; i < n; i++) db.exec(`INSERT INTO items VALUES ('a${i}', 'n', 1, 10, 1000)`);
      db.exec("INSERT INTO _changes (op, table_name, row_id, row_data) VALUES ('INSERT', 'items', 'x', '{nonsense')");
      await until('nothing is pending', () => manager.health().pending_changes === 0);
      expect(rowsOf(receiver.db, 'SELECT count(*) AS n FROM items')).toEqual([{ n: n - 1 }]);
      expect(manager.deadLetters.list()).toMatchObject([
        { op: 'INSERT', rowId: 'x', row: '{nonsense', direction: 'out' },
      ]);
      db.exec("INSERT INTO items VALUES ('later', 'n', 1, 10, 1000)");
      await until('it goes on', () => rowsOf(receiver.db, "SELECT 1 FROM items WHERE id = 'later'").length === 1);
    },
  );

  test('what the triggers of an unsynced table record does not hold up the synced ones', async () => {
    const receiver = await node({ id: 'receiver' });
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS, NOTES, NOTE_TRIGGERS);
    const manager = attached(db, ['items'], { peers: [await serveManager(receiver.manager)] });
    db.exec("INSERT INTO notes VALUES ('n', 'text', 1000)");
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    await manager.flush();
    expect(receiver.all('SELECT id FROM items')).toEqual([{ id: 'a' }]);
  });
});

test.each([
  ['no op', 'NULL', '\'{"id":"a"}\''],
  ['an op of its own', "'MERGE'", '\'{"id":"a"}\''],
  ['a row that is not JSON', "'INSERT'", "'{id: a'"],
])(
  'a change of theirs with %s becomes a letter, and does not stand in the way of the others',
  async (_what, op, row) => {
    const receiver = await node({ id: 'receiver' });
    const peer = await serveManager(receiver.manager);
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
    db.exec(`INSERT INTO _changes VALUES (1, ${op}, 'a', ${row})`);
    const manager = attached(db, ['items'], { peers: [peer] });
    db.exec("INSERT INTO items VALUES ('b', 'first', 1, 10, 1000)");
    expect(await manager.flush()).toEqual({ delivered: [peer], unreachable: [] });
    expect(receiver.all('SELECT id FROM items')).toEqual([{ id: 'b' }]);
    expect(manager.deadLetters.list()).toMatchObject([{ direction: 'out', rowId: 'a' }]);
  },
);

test('a database of an earlier build of Rowcast, with AUTOINCREMENT, goes on where it was', async () => {
  const receiver = await node({ id: 'receiver' });
  const peer = await serveManager(receiver.manager);
  const db = await database();
  const earlier = attach(db, { id: 'node', peers: [peer], batchMs: 3_600_000 }, ['items']);
  await earlier.flush();
  await earlier.stop();
  // Its table and its trigger, and the peer has acknowledged up to 40.
  db.exec(
    `DROP TABLE _changes; DROP TRIGGER _rowcast_items_insert; DELETE FROM _meta WHERE key = 'last_change_id';
     CREATE TABLE _changes (change_id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, table_name TEXT, row_id TEXT, row_data TEXT);
     DROP TRIGGER _rowcast_items_update; DROP TRIGGER _rowcast_items_update_stamp;
     CREATE TRIGGER _rowcast_items_insert AFTER INSERT ON items BEGIN INSERT INTO _changes (op, table_name, row_id, row_data)
       VALUES ('INSERT', 'items', NEW.id, json_object('id', NEW.id, 'name', NEW.name, 'value', NEW.value, 'created_at', 1, 'updated_at', NEW.updated_at)); END;
     INSERT INTO _changes (change_id, op) VALUES (40, 'INSERT'); DELETE FROM _changes; UPDATE _peer_state SET last_acked = 40`,
  );
  db.exec("INSERT INTO items VALUES ('pending', 'n', 1, 1, 1000)");
  const manager = attached(db, ['items'], { peers: [peer] });
  db.exec("INSERT INTO items VALUES ('new', 'n', 1, 1, 1000)");
  expect(rowsOf(db, 'SELECT change_id, row_id FROM _changes ORDER BY change_id')).toEqual([
    { change_id: 41, row_id: 'pending' },
    { change_id: 42, row_id: 'new' },
  ]);
  expect(await manager.flush()).toEqual({ delivered: [peer], unreachable: [] });
  db.exec("INSERT INTO items VALUES ('later', 'n', 1, 1, 1000)");
  expect(rowsOf(db, 'SELECT change_id FROM _changes')).toEqual([{ change_id: 43 }]);
  await manager.flush();
  expect(receiver.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 'later' }, { id: 'new' }, { id: 'pending' }]);
  expect(manager.deadLetters.list()).toEqual([]);
});

describe('change ids continue', () => {
  test('above the pending ones', async () => {
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
    db.exec(
      `INSERT INTO _changes VALUES (41, 'INSERT', 'a', '{"id":"a","name":null,"value":1,"created_at":1,"updated_at":5}')`,
    );
    attached(db, ['items']);
    db.exec("INSERT INTO items VALUES ('b', 'first', 1, 10, 1000)");
    expect(rowsOf(db, 'SELECT change_id FROM _changes ORDER BY change_id')).toEqual([
      { change_id: 41 },
      { change_id: 42 },
    ]);
  });

  test('above what an AUTOINCREMENT of theirs had handed out before the drain', async () => {
    const db = await database(
      `${ITEMS};CREATE TABLE _changes (change_id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, row_id TEXT, row_data TEXT);` +
        "INSERT INTO _changes VALUES (500, 'INSERT', 'a', '{}'); DELETE FROM _changes",
    );
    attached(db, ['items']);
    db.exec("INSERT INTO items VALUES ('b', 'first', 1, 10, 1000)");
    expect(rowsOf(db, 'SELECT change_id FROM _changes')).toEqual([{ change_id: 501 }]);
  });

  test('above what a peer has acknowledged, though less is pending for another', async () => {
    const row = '{"id":"a","name":null,"value":1,"created_at":1,"updated_at":5}';
    const db = await database(
      `${ITEMS};CREATE TABLE _changes (change_id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, row_id TEXT, row_data TEXT);` +
        `INSERT INTO _changes VALUES (500, 'INSERT', 'z', '{}'); DELETE FROM _changes; INSERT INTO _changes VALUES (3, 'INSERT', 'a', '${row}');` +
        "CREATE TABLE _peer_state (peer_url TEXT PRIMARY KEY, last_acked INTEGER); INSERT INTO _peer_state VALUES ('http://ahead.test', 500), ('http://behind.test', 2)",
    );
    attached(db, ['items'], { peers: ['http://ahead.test', 'http://behind.test'] });
    db.exec("INSERT INTO items VALUES ('b', 'first', 1, 10, 1000)");
    // What is pending for the one that is behind keeps its id; the new one is above everything.
    expect(rowsOf(db, 'SELECT change_id, row_id FROM _changes ORDER BY change_id')).toEqual([
      { change_id: 3, row_id: 'a' },
      { change_id: 501, row_id: 'b' },
    ]);
  });

  test('above what a peer has acknowledged, though nothing is pending', async () => {
    const receiver = await node({ id: 'receiver' });
    const peer = await serveManager(receiver.manager);
    const db = await plainDatabase(ITEMS, ITEM_TRIGGERS);
    db.exec(
      `CREATE TABLE _peer_state (peer_url TEXT PRIMARY KEY, last_acked INTEGER); INSERT INTO _peer_state VALUES ('${peer}', 900)`,
    );
    const manager = attached(db, ['items'], { peers: [peer] });
    db.exec("INSERT INTO items VALUES ('b', 'first', 1, 10, 1000)");
    await manager.flush();
    expect(receiver.all('SELECT id FROM items')).toEqual([{ id: 'b' }]);
    expect(Number(rowsOf(db, 'SELECT last_acked FROM _peer_state')[0]?.last_acked)).toBeGreaterThan(900);
  });

  test('after a drain of our own, across attach', async () => {
    const receiver = await node({ id: 'receiver' });
    const peers = [await serveManager(receiver.manager)];
    const db = await database();
    const first = attached(db, ['items'], { peers });
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000), ('b', 'second', 1, 10, 1000)");
    await first.flush();
    await first.stop();
    const acked = Number(rowsOf(db, 'SELECT last_acked FROM _peer_state')[0]?.last_acked);
    const second = attached(db, ['items'], { peers });
    db.exec("INSERT INTO items VALUES ('c', 'third', 1, 10, 1000)");
    await second.flush();
    expect(receiver.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 'a' }, { id: 'b' }, { id: 'c' }]);
    expect(Number(rowsOf(db, 'SELECT last_acked FROM _peer_state')[0]?.last_acked)).toBeGreaterThan(acked);
  });
});

test('what somebody records under the names of now travels under those that the others still have', async () => {
  const receiver = await node({ id: 'receiver' });
  const url = await serveManager(receiver.manager);
  const { db, manager } = await node({ id: 'sender' });
  manager.migrate('ALTER TABLE items RENAME TO things; ALTER TABLE things RENAME COLUMN name TO title', {
    renameTable: { items: 'things' },
    rename: { things: { name: 'title' } },
  });
  const row = { id: 'x', title: 'a "quoted" one', value: 1.5, created_at: null, updated_at: 1_000 };
  db.prepare("INSERT INTO _changes (op, row_id, row_data) VALUES ('INSERT', 'x', ?)").run(JSON.stringify(row));
  manager.peers.add(url);
  await until('it has arrived', () => rowsOf(receiver.db, "SELECT 1 FROM items WHERE id = 'x'").length === 1);
  expect(rowsOf(receiver.db, "SELECT name, value FROM items WHERE id = 'x'")).toEqual([
    { name: 'a "quoted" one', value: 1.5 },
  ]);
  expect(receiver.manager.health().dead_letter).toBe(0);
});
