import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createHub, type HubConfig } from '../src/hub/hub.ts';
import { attach, type Config, type Database, type Manager, RowcastError } from '../src/index.ts';
import { openDatabase, type TestDatabase } from './support/lane.ts';
import {
  attached,
  captured,
  cleanUp,
  database,
  ITEMS,
  node,
  recording,
  rowsOf,
  scratchFolder,
  serveManager,
} from './support/nodes.ts';

function schemaOf(db: TestDatabase): Record<string, unknown>[] {
  return rowsOf(db, 'SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name');
}

function refusal(action: () => unknown): RowcastError {
  try {
    action();
  } catch (error) {
    if (error instanceof RowcastError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

/** Attach's own warnings are told when the turn ends in which somebody begins to listen. */
async function warningsOf(manager: Manager): Promise<string[]> {
  const warnings: string[] = [];
  manager.on('warning', ({ message }) => warnings.push(message));
  await new Promise((resolve) => setImmediate(resolve));
  return warnings;
}

test.each([
  'TABLE json_each (a)',
  'VIEW Json_Each AS SELECT 1 AS a',
  'TEMP TABLE json_each (a)',
  'TABLE pragma_table_list (a)',
])('a database with %s is refused, and left as it is', async (hides) => {
  const db = await database(`${ITEMS}; CREATE ${hides}`);
  const before = schemaOf(db);
  const refused = refusal(() => attached(db));
  expect(refused.code).toBe('INVALID_DATABASE');
  expect(refused.message).toMatch(
    /(table|view) "(json_each|pragma_table_list)" hides SQLite's function.*another name/i,
  );
  expect(schemaOf(db)).toEqual(before);
});

describe('configuration', () => {
  const good = { id: 'node', peers: [] };
  const wrongs: [string, unknown, string, RowcastError['code']][] = [
    ['no configuration', undefined, 'config', 'INVALID_OPTION'],
    ['a configuration that is null', null, 'config', 'INVALID_OPTION'],
    ['a misspelt option', { ...good, batchMS: 50 }, '"batchMS"', 'INVALID_OPTION'],
    ['a misspelt seam', { ...good, Fetch: () => {} }, '"Fetch"', 'INVALID_OPTION'],
    ['a misspelt option that is undefined', { ...good, batchsize: undefined }, '"batchsize"', 'INVALID_OPTION'],
    ['no id', { peers: [] }, '"id"', 'INVALID_OPTION'],
    ['an empty id', { ...good, id: ' ' }, '"id"', 'INVALID_OPTION'],
    ['an id that stands for the node itself', { ...good, id: 'self' }, '"id"', 'INVALID_OPTION'],
    ['an id that is a number', { ...good, id: 7 }, '"id"', 'INVALID_OPTION'],
    ['an id that no header can carry', { ...good, id: 'a\r\nb' }, '"id"', 'INVALID_OPTION'],
    ['no peers', { id: 'node' }, '"peers"', 'INVALID_OPTION'],
    ['peers that are a string', { ...good, peers: 'http://127.0.0.1:1' }, '"peers"', 'INVALID_OPTION'],
    ['a peer that is a number', { ...good, peers: [9001] }, 'peer 9001', 'INVALID_PEER'],
    ['two peers in one', { ...good, peers: ['http://a.test/ http://b.test'] }, 'one URL each', 'INVALID_PEER'],
    ['two with a comma', { ...good, peers: ['http://a.test/,http://b.test'] }, 'one URL each', 'INVALID_PEER'],
    ['a peer and its name', { ...good, peers: ['http://a.test/ node-b'] }, 'one URL each', 'INVALID_PEER'],
    ['a peer at no port', { ...good, peers: ['http://127.0.0.1:0'] }, 'port 0', 'INVALID_PEER'],
    ['a peer without a scheme', { ...good, peers: ['10.0.0.2:9001'] }, 'peer "10.0.0.2:9001"', 'INVALID_PEER'],
    ['a peer of another scheme', { ...good, peers: ['ftp://a.test'] }, 'peer "ftp://a.test"', 'INVALID_PEER'],
    [
      'a peer with a query',
      { ...good, peers: ['http://a.test/?x'] },
      'peer "http://a.test/" has a query',
      'INVALID_PEER',
    ],
    [
      'a peer with a fragment',
      { ...good, peers: ['http://a.test/#x'] },
      'peer "http://a.test/" has a query',
      'INVALID_PEER',
    ],
    [
      'a peer with the path that is appended',
      { ...good, peers: ['http://a.test/x/sync/'] },
      'give the base URL: http://a.test/x)',
      'INVALID_PEER',
    ],
    [
      'a peer with credentials',
      { ...good, peers: ['http://u:p@a.test'] },
      'peer "http://a.test" carries',
      'INVALID_PEER',
    ],
    ['a clock that cannot sleep', { ...good, clock: { now: () => 0 } }, '"clock"', 'INVALID_OPTION'],
    ['a clock that is null', { ...good, clock: null }, '"clock"', 'INVALID_OPTION'],
    ['a fetch that is no function', { ...good, fetch: 'fetch' }, '"fetch"', 'INVALID_OPTION'],
    ['a random that is no function', { ...good, random: 0.5 }, '"random"', 'INVALID_OPTION'],
    ...(['batchMs', 'batchSize', 'maxBatchBytes', 'maxBodyBytes', 'requestTimeoutMs'] as const).flatMap((name) =>
      ['50', 0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 40, null, 50n].map(
        (value): [string, unknown, string, RowcastError['code']] => [
          `${name}: ${typeof value === 'string' ? `'${value}'` : value}`,
          { ...good, [name]: value },
          `"${name}"`,
          'INVALID_OPTION',
        ],
      ),
    ),
    ['batchSize above the ceiling', { ...good, batchSize: 10_001 }, '"batchSize"', 'INVALID_OPTION'],
  ];

  test.each(wrongs)('%s is refused by name', async (_, config, name, code) => {
    const db = await database();
    const before = schemaOf(db);
    const error = refusal(() => attach(db, config as Config, ['items']));
    expect(error.code).toBe(code);
    expect(error.message).toContain(name);
    expect(schemaOf(db)).toEqual(before);
  });

  test('a misspelt option is answered with the ones there are', async () => {
    const db = await database();
    const error = refusal(() => attach(db, { id: 'node', peers: [], batchms: 1 } as Config, ['items']));
    expect(error.hint).toContain('batchMs');
    expect(error.message).toContain('did you mean batchMs?');
  });

  test.each([
    ['nothing', undefined, /config must be an object \{id, edges, \.\.\.\}/],
    ['no edges', { id: 'hub' }, /"edges" must be an array/],
    ['peers instead of edges', { id: 'hub', edges: [], peers: [] }, /unknown option "peers"/],
    ['a misspelt option', { id: 'hub', edges: [], batchsize: 1 }, /did you mean batchSize\? .*id, edges, batchMs/],
    ['a get that is no function', { id: 'hub', edges: [], get: 'x' }, /"get" must be a function/],
  ])('the options of a hub are checked by the same table: %s', async (_, config, message) => {
    const db = await database('PRAGMA user_version');
    await expect(createHub(db, config as HubConfig)).rejects.toThrow(message);
    expect(schemaOf(db)).toEqual([]);
  });

  test('a body is as large over HTTP as attach was told', async () => {
    const { manager } = await node({ maxBodyBytes: 2_000 });
    const url = await serveManager(manager);
    const post = async (bytes: number): Promise<number> => {
      const body = '{"batch_id":1,"changes":[]}'.padEnd(bytes);
      return (await fetch(`${url}/sync`, { method: 'POST', headers: { 'content-type': 'application/json' }, body }))
        .status;
    };
    expect([await post(2_000), await post(2_001)]).toEqual([200, 413]);
  });

  test.each([
    ['an event that does not exist', 'peer-dwon', () => {}, /no event "peer-dwon"; did you mean peer-down\?/],
    ['no event', undefined, () => {}, /no event undefined/],
    ['the name of an inherited property', 'toString', () => {}, /no event "toString"/],
    ['no function', 'acked', undefined, /the listener for "acked" must be a function, not undefined/],
  ])('on() with %s is refused, and the events are listed', async (_, name, listener, message) => {
    const { manager } = await node();
    const error = refusal(() => manager.on(name as 'acked', listener as () => void));
    expect(error.code).toBe('INVALID_OPTION');
    expect(error.message).toMatch(message);
    if (listener)
      expect(error.hint).toContain(
        'change, applied, acked, attempt, received, restored, peer-replaced, peer-restored, peer-up, peer-down, peer-stale, ' +
          'dead-letter, conflict, visible, verify-done, tombstones-collected, warning, error',
      );
  });

  test.each([
    ['nothing', undefined],
    ['an empty array', []],
    ['a string', 'items'],
    ['a number in it', ['items', 1]],
    ['an empty name', ['']],
    ['a name that is too long', ['x'.repeat(201)]],
  ])('tables given as %s are refused by name', async (_, tables) => {
    const db = await database();
    const before = schemaOf(db);
    const error = refusal(() => attach(db, { id: 'node', peers: [] }, tables as string[]));
    expect(error.code).toBe('INVALID_OPTION');
    expect(error.message).toContain('tables');
    expect(schemaOf(db)).toEqual(before);
  });

  test('two spellings of a peer are one peer', async () => {
    const fetch = (): Promise<never> => Promise.reject(new Error('no network here'));
    const peers = ['http://Peer.test:80/', 'http://peer.test', 'http://peer.test/path/'];
    const { manager } = await node({ peers, fetch, batchMs: 3_600_000 });
    expect(manager.health().peers).toEqual(['http://peer.test', 'http://peer.test/path']);
  });

  test('a table named twice, in two spellings, is one table', async () => {
    const { db, manager } = await node({ tables: ['items', 'ITEMS', 'items'] });
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    expect(captured(db)).toHaveLength(1);
    expect(manager.health()).toMatchObject({ ok: true, item_count: 1, problems: [] });
  });
});

describe('tables and databases that cannot be synced', () => {
  const tables: [string, string, string, string, string][] = [
    ['a table that does not exist', ITEMS, 'item', 'does not exist', 'spelling'],
    ['a view', `${ITEMS}; CREATE VIEW v AS SELECT * FROM items`, 'v', 'view', 'ordinary table'],
    ['a virtual table', 'CREATE VIRTUAL TABLE v USING fts5(id, updated_at)', 'v', 'virtual', 'ordinary table'],
    ['a table without an id', 'CREATE TABLE t (k TEXT PRIMARY KEY, updated_at INTEGER)', 't', 'id', 'id TEXT'],
    ['an INTEGER id', 'CREATE TABLE t (id INTEGER PRIMARY KEY, updated_at INTEGER)', 't', 'id', 'id TEXT'],
    ['an id that is only unique', 'CREATE TABLE t (id TEXT UNIQUE, updated_at INTEGER)', 't', 'id', 'id TEXT'],
    [
      'a primary key of two columns',
      'CREATE TABLE t (id TEXT, part TEXT, updated_at INTEGER, PRIMARY KEY (id, part))',
      't',
      'id',
      'id TEXT',
    ],
    ['no updated_at', 'CREATE TABLE t (id TEXT PRIMARY KEY)', 't', 'updated_at', 'updated_at INTEGER'],
    ['a TEXT updated_at', 'CREATE TABLE t (id TEXT PRIMARY KEY, updated_at TEXT)', 't', 'updated_at', 'INTEGER'],
    [
      'a generated updated_at',
      'CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER, updated_at INTEGER AS (n))',
      't',
      'updated_at',
      'INTEGER',
    ],
    [
      'an id that ignores case',
      'CREATE TABLE t (id TEXT PRIMARY KEY COLLATE NOCASE, updated_at INTEGER)',
      't',
      'NOCASE',
      'BINARY',
    ],
    [
      'an id that ignores case, without a rowid',
      'CREATE TABLE t (id TEXT PRIMARY KEY COLLATE NOCASE, updated_at INTEGER) WITHOUT ROWID',
      't',
      'NOCASE',
      'BINARY',
    ],
    [
      'an id that ignores case, with a key that does not',
      'CREATE TABLE t (id TEXT COLLATE NOCASE, updated_at INTEGER, PRIMARY KEY (id COLLATE BINARY))',
      't',
      'NOCASE',
      'BINARY',
    ],
    [
      'an id that ignores spaces at the end, with a key that does not, without a rowid',
      'CREATE TABLE t (id TEXT COLLATE RTRIM, updated_at INTEGER, PRIMARY KEY (id COLLATE BINARY)) WITHOUT ROWID',
      't',
      'RTRIM',
      'BINARY',
    ],
    [
      'a key that ignores case, of an id that does not',
      'CREATE TABLE t (id TEXT, updated_at INTEGER, PRIMARY KEY (id COLLATE NOCASE))',
      't',
      'NOCASE',
      'BINARY',
    ],
    ['an internal table', ITEMS, '_changes', 'internal', 'your application'],
    ['an internal table in another spelling', ITEMS, '_Dead_Letter', 'internal', 'your application'],
    ["SQLite's own table", ITEMS, 'sqlite_schema', 'internal', 'your application'],
    [
      'a temporary table',
      `${ITEMS}; CREATE TEMP TABLE t (id TEXT PRIMARY KEY, updated_at INTEGER)`,
      't',
      'does not exist',
      'create it',
    ],
  ];

  test.each(tables)(
    '%s is refused with the remedy, and nothing is changed',
    async (_, schema, table, problem, hint) => {
      const db = await database(`${schema}; CREATE TABLE fine (id TEXT PRIMARY KEY, updated_at INTEGER)`);
      const before = schemaOf(db);
      const error = refusal(() => attach(db, { id: 'node', peers: [] }, ['fine', table]));
      expect(error.code).toBe('INVALID_TABLE');
      expect(error.message).toContain(JSON.stringify(table));
      expect(error.message).toContain(problem);
      expect(error.hint).toContain(hint);
      expect(schemaOf(db)).toEqual(before);
    },
  );

  test('a database opened read-only is refused with the remedy, and nothing is changed', async () => {
    const path = join(scratchFolder(), 'readonly.db');
    const writable = await openDatabase(path);
    writable.exec(ITEMS);
    writable.close();
    const db = await openDatabase(path, { readonly: true });
    cleanUp(() => db.close());
    const before = schemaOf(db);
    const error = refusal(() => attach(db, { id: 'node', peers: [] }, ['items']));
    expect(error.code).toBe('INVALID_DATABASE');
    expect(error.message).toContain('read-only');
    expect(error.hint).toContain('open it for writing');
    expect(schemaOf(db)).toEqual(before);
  });

  test.each(['exec', 'prepare', 'transaction'])('a handle without %s() is refused with the remedy', async (method) => {
    const db = await database();
    const handle = { ...recording(db).handle, [method]: undefined } as unknown as Database;
    const error = refusal(() => attach(handle, { id: 'node', peers: [] }, ['items']));
    expect(error.code).toBe('INVALID_DATABASE');
    expect(error.message).toContain(`${method}()`);
    expect(error.hint).toContain('fromNodeSqlite');
    expect(schemaOf(db)).toHaveLength(2);
  });

  test('no handle at all is refused', () => {
    expect(refusal(() => attach(undefined as never, { id: 'node', peers: [] }, ['items'])).code).toBe(
      'INVALID_DATABASE',
    );
  });

  test("attach inside the application's open transaction is refused and leaves the transaction as it was", async () => {
    const db = await database();
    db.exec("BEGIN; INSERT INTO items (id, updated_at) VALUES ('a', 1)");
    expect(refusal(() => attach(db, { id: 'node', peers: [] }, ['items'])).code).toBe('IN_TRANSACTION');
    db.exec('COMMIT');
    expect(schemaOf(db)).toHaveLength(2);
    expect(rowsOf(db, 'SELECT id FROM items')).toEqual([{ id: 'a' }]);
  });
});

describe('attach again', () => {
  test('attach twice changes nothing in the database, and a write is captured once', async () => {
    const { db } = await node();
    const before = schemaOf(db);
    const version = rowsOf(db, 'PRAGMA schema_version');
    attached(db);
    expect(schemaOf(db)).toEqual(before);
    expect(rowsOf(db, 'PRAGMA schema_version')).toEqual(version);
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    expect(captured(db)).toHaveLength(1);
  });

  test('attach keeps what was captured and how far each peer is', async () => {
    const { db, manager } = await node();
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    await manager.stop();
    db.exec("UPDATE items SET name = 'while stopped', updated_at = 2000");
    attached(db);
    expect(captured(db).map(({ op, row }) => [op, row.name])).toEqual([
      ['INSERT', 'first'],
      ['UPDATE', 'while stopped'],
    ]);
  });

  test('a column added since the last attach is captured', async () => {
    const { db, manager } = await node();
    await manager.stop();
    db.exec('ALTER TABLE items ADD COLUMN colour TEXT');
    attached(db);
    db.exec("INSERT INTO items (id, colour, updated_at) VALUES ('a', 'red', 1000)");
    expect(captured(db).at(-1)?.row).toMatchObject({ id: 'a', colour: 'red' });
  });

  test('a migration that adds and fills a column before attach loses none of the values', async () => {
    const { db, manager } = await node();
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000), ('b', 'second', 2, 10, 1000)");
    await manager.stop();
    db.exec('ALTER TABLE items ADD COLUMN colour TEXT');
    // Captured by the triggers of the last run, which do not know the column.
    db.exec("UPDATE items SET colour = 'red', updated_at = 2000 WHERE id = 'a'");
    db.exec("INSERT INTO items VALUES ('c', 'third', 3, 10, 2000, 'blue')");
    const receiver = await node({ id: 'receiver', schema: `${ITEMS}; ALTER TABLE items ADD COLUMN colour TEXT` });
    const again = attached(db, { peers: [await serveManager(receiver.manager)] });
    await again.flush();
    expect(receiver.all('SELECT id, colour FROM items ORDER BY id')).toEqual([
      { id: 'a', colour: 'red' },
      { id: 'b', colour: null },
      { id: 'c', colour: 'blue' },
    ]);
  });

  test('the same migration reaches a peer that already has everything before it', async () => {
    const receiver = await node({ id: 'receiver', schema: `${ITEMS}; ALTER TABLE items ADD COLUMN colour TEXT` });
    const peers = [await serveManager(receiver.manager)];
    const { db, manager } = await node({ peers });
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000), ('b', 'second', 2, 10, 1000)");
    await manager.flush();
    await manager.stop();
    db.exec('ALTER TABLE items ADD COLUMN colour TEXT');
    db.exec("UPDATE items SET colour = 'red', updated_at = 2000 WHERE id = 'a'");
    await attached(db, { peers }).flush();
    expect(receiver.all('SELECT id, colour FROM items ORDER BY id')).toEqual([
      { id: 'a', colour: 'red' },
      { id: 'b', colour: null },
    ]);
  });

  test('a column dropped since the last attach no longer fails writes', async () => {
    const { db, manager } = await node();
    await manager.stop();
    // SQLite refuses to drop a column that a trigger names, so a migration detaches first.
    expect(() => db.exec('ALTER TABLE items DROP COLUMN value')).toThrow();
    await manager.detach();
    db.exec('ALTER TABLE items DROP COLUMN value');
    attached(db);
    db.exec("INSERT INTO items VALUES ('a', 'first', 10, 1000)");
    expect(captured(db).at(-1)?.row).toEqual({ id: 'a', name: 'first', created_at: 10, updated_at: 1000 });
  });

  test('a syncing flag that another program left at 1 is reset', async () => {
    for (const stuck of ['1', "'1'", "'1.0'", '1.0']) {
      const { db, manager } = await node();
      await manager.stop();
      db.exec(`UPDATE _meta SET value = ${stuck} WHERE key = 'syncing'`);
      attached(db);
      db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
      expect(captured(db)).toHaveLength(1);
      expect(rowsOf(db, "SELECT typeof(value) AS t, value FROM _meta WHERE key = 'syncing'")).toEqual([
        { t: 'integer', value: 0 },
      ]);
    }
  });
});

describe('a backlog', () => {
  /** The statements that the next attach prepares. */
  async function statementsOfNextAttach(between: (db: TestDatabase) => void): Promise<string[]> {
    const db = await database();
    await attach(db, { id: 'a', peers: ['http://nobody.test'] }, ['items']).stop();
    db.exec("INSERT INTO items VALUES ('1', 'n', 1, 1, 1000)");
    between(db);
    const texts: string[] = [];
    const handle = {
      exec: (sql: string) => db.exec(sql),
      prepare: (sql: string) => {
        texts.push(sql);
        return db.prepare(sql);
      },
      transaction: (fn: () => unknown) => db.transaction(fn),
    };
    const manager = attach(handle, { id: 'a', peers: ['http://nobody.test'] }, ['items']);
    cleanUp(() => manager.stop());
    return texts;
  }
  const looksThroughIt = (sql: string): boolean =>
    sql.startsWith('INSERT INTO main._stamps') && sql.includes('FROM main._changes');

  test('is not looked through again where the schema is as it was', async () => {
    expect((await statementsOfNextAttach(() => {})).filter(looksThroughIt)).toEqual([]);
  });

  test('is looked through where the schema has changed meanwhile', async () => {
    const texts = await statementsOfNextAttach((db) => db.exec('ALTER TABLE items ADD COLUMN more TEXT'));
    expect(texts.filter(looksThroughIt)).toHaveLength(1);
  });
});

describe('the schema changes while attached', () => {
  const WIDER = `${ITEMS}; ALTER TABLE items ADD COLUMN colour TEXT`;

  test('a write between ALTER TABLE and the notice reaches the peer with its new column', async () => {
    const receiver = await node({ id: 'receiver', schema: WIDER });
    const { db, manager } = await node({ peers: [await serveManager(receiver.manager)], batchMs: 3_600_000 });
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    await manager.flush();
    db.exec('ALTER TABLE items ADD COLUMN colour TEXT');
    db.exec("INSERT INTO items VALUES ('b', 'second', 2, 10, 1000, 'blue')");
    db.exec("UPDATE items SET colour = 'red', updated_at = 2000 WHERE id = 'a'");
    await manager.flush();
    expect(receiver.all('SELECT id, name, colour FROM items ORDER BY id')).toEqual([
      { id: 'a', name: 'first', colour: 'red' },
      { id: 'b', name: 'second', colour: 'blue' },
    ]);
    expect(receiver.all('SELECT id, updated_at FROM items ORDER BY id')).toEqual(
      rowsOf(db, 'SELECT id, updated_at FROM items ORDER BY id'),
    );
  });

  test('a change made by another connection is noticed too', async () => {
    const path = join(scratchFolder(), 'shared.db');
    const receiver = await node({ id: 'receiver', schema: WIDER });
    const { manager } = await node({ path, peers: [await serveManager(receiver.manager)], batchMs: 3_600_000 });
    const other = await openDatabase(path);
    cleanUp(() => other.close());
    other.exec('PRAGMA busy_timeout = 5000');
    other.exec('ALTER TABLE items ADD COLUMN colour TEXT');
    other.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000, 'red')");
    await manager.flush();
    expect(receiver.all('SELECT id, colour FROM items')).toEqual([{ id: 'a', colour: 'red' }]);
  });

  test('a received row fills a column that was added a moment before', async () => {
    const { db, manager } = await node();
    db.exec('ALTER TABLE items ADD COLUMN colour TEXT');
    const row = { id: 'a', name: 'n', value: 1, created_at: 1, updated_at: 5, colour: 'red' };
    expect(manager.applyChanges([{ op: 'INSERT', table: 'items', row, old_id: null }])).toBe(1);
    expect(rowsOf(db, 'SELECT colour FROM items')).toEqual([{ colour: 'red' }]);
  });

  test('health stays ok across an ALTER TABLE', async () => {
    const { db, manager } = await node();
    db.exec('ALTER TABLE items ADD COLUMN colour TEXT');
    expect(manager.health()).toMatchObject({ ok: true, problems: [] });
  });
});

describe('rows from before the first attach', () => {
  test('those without a usable updated_at are stamped, the others left alone', async () => {
    const db = await database();
    db.exec(
      "INSERT INTO items (id, updated_at) VALUES ('good', 1000), ('zero', 0), ('negative', -5), ('null', NULL), " +
        "('text', 'yesterday'), ('real', 1.5), ('blob', x'00'), ('far', 8640000000000001)",
    );
    attached(db);
    const rows = rowsOf(db, 'SELECT id, typeof(updated_at) AS t, updated_at FROM items');
    const now = Date.now();
    for (const { id, t, updated_at } of rows) {
      expect(t, String(id)).toBe('integer');
      if (id === 'good') expect(updated_at).toBe(1000);
      else if (id === 'zero') expect(updated_at).toBe(0);
      else if (id === 'negative') expect(updated_at).toBe(-5);
      else expect(Math.abs(Number(updated_at) - now), String(id)).toBeLessThan(60_000);
    }
  });
});

describe('warnings', () => {
  test('a user trigger without a syncing guard is warned about, one with it is not', async () => {
    const schema =
      `${ITEMS}; CREATE TABLE log (n); ` +
      'CREATE TRIGGER unguarded AFTER INSERT ON items BEGIN INSERT INTO log VALUES (1); END; ' +
      "CREATE TABLE _meta (key TEXT PRIMARY KEY, value); CREATE TRIGGER guarded AFTER INSERT ON items WHEN (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 " +
      'BEGIN INSERT INTO log VALUES (2); END';
    const db = await database(schema);
    expect(await warningsOf(attached(db))).toEqual([expect.stringMatching(/"unguarded".*syncing/)]);
    db.exec("INSERT INTO items (id, updated_at) VALUES ('a', 1)");
    expect(rowsOf(db, 'SELECT n FROM log ORDER BY n')).toEqual([{ n: 1 }, { n: 2 }]);
  });

  test('what attach has found waits for the first who listen, however late they begin', async () => {
    const unguarded = `${ITEMS}; CREATE TRIGGER t AFTER INSERT ON items BEGIN SELECT 1; END`;
    const manager = attached(await database(unguarded));
    await new Promise((resolve) => setImmediate(resolve));
    const [first, late] = [warningsOf(manager), warningsOf(manager)];
    const told = [expect.stringMatching(/trigger "t" on "items"/)];
    expect(await Promise.all([first, late])).toEqual([told, told]);
    expect(await warningsOf(manager)).toEqual([]);
  });

  test('an ordinary table is attached without a word', async () => {
    expect(await warningsOf(attached(await database()))).toEqual([]);
  });
});

describe('detach', () => {
  test('removes the triggers and nothing else, so writes are no longer captured', async () => {
    const { db, manager } = await node({
      schema: `${ITEMS}; CREATE TABLE log (n); CREATE TRIGGER mine AFTER INSERT ON items BEGIN INSERT INTO log VALUES (1); END`,
    });
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    await manager.detach();
    db.exec("UPDATE items SET name = 'unseen'; DELETE FROM items; INSERT INTO items (id) VALUES ('b')");
    expect(captured(db)).toHaveLength(1);
    expect(rowsOf(db, "SELECT name FROM sqlite_schema WHERE type = 'trigger'")).toEqual([{ name: 'mine' }]);
    expect(rowsOf(db, 'SELECT count(*) AS n FROM log')).toEqual([{ n: 2 }]);
  });

  test('the database can be closed after stop and after detach', async () => {
    for (const end of ['stop', 'detach'] as const) {
      const db = await openDatabase();
      db.exec(ITEMS);
      const manager = attach(db, { id: 'node', peers: [] }, ['items']);
      db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
      manager.health();
      await manager[end]();
      expect(() => db.close()).not.toThrow();
    }
  });

  test('a stopped manager says so, and capture goes on without it', async () => {
    const { db, manager } = await node();
    await manager.stop();
    await manager.stop();
    expect(refusal(() => manager.health()).code).toBe('STOPPED');
    expect(refusal(() => manager.applyChanges([])).code).toBe('STOPPED');
    const { deadLetters, conflicts } = manager;
    // A retry would put the triggers back.
    const verbs = [
      () => deadLetters.list(),
      () => deadLetters.retry(1),
      () => deadLetters.discard(1),
      () => conflicts.list(),
      () => conflicts.get(1),
      () => conflicts.restore(1),
      () => conflicts.dismiss(1),
    ];
    expect(verbs.map((verb) => refusal(verb).code)).toEqual(verbs.map(() => 'STOPPED'));
    expect(manager.receive('{"batch_id":1,"changes":[]}')).toMatchObject({ status: 503 });
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    expect(captured(db)).toHaveLength(1);
  });
});

describe('health', () => {
  const SPECIFIED = ['dead_letter', 'item_count', 'node_id', 'ok', 'peers', 'pending_changes'];

  test('has the six fields of the specification, and further ones beside them', async () => {
    const fetch = (): Promise<never> => Promise.reject(new Error('no network here'));
    const { db, manager } = await node({ id: 'n1', peers: ['http://peer.test'], fetch, batchMs: 3_600_000 });
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000), ('b', 'second', 2, 10, 1000)");
    const health = manager.health();
    expect(health).toMatchObject({
      ok: true,
      node_id: 'n1',
      item_count: 2,
      pending_changes: 2,
      dead_letter: 0,
      peers: ['http://peer.test'],
    });
    expect(Object.keys(health).sort()).toEqual([...SPECIFIED, 'lag_ms', 'peer_states', 'problems'].sort());
    expect(JSON.parse(JSON.stringify(health))).toEqual(health);
  });

  test('counts the rows of all synced tables and no others', async () => {
    const schema = `${ITEMS}; CREATE TABLE notes (id TEXT PRIMARY KEY, updated_at INTEGER); CREATE TABLE other (id TEXT)`;
    const { db, manager } = await node({ schema, tables: ['items', 'notes'] });
    db.exec(
      "INSERT INTO items (id) VALUES ('a'), ('b'); INSERT INTO notes (id) VALUES ('a'); INSERT INTO other VALUES (1)",
    );
    expect(manager.health()).toMatchObject({ item_count: 3, pending_changes: 3 });
  });

  test('a peer that is down does not make it false', async () => {
    const fetch = (): Promise<never> => Promise.reject(new Error('connection refused'));
    const clock = { now: () => 5, sleep: () => new Promise<void>((resolve) => setImmediate(resolve)) };
    const { db, manager } = await node({ peers: ['http://peer.test'], fetch, clock });
    const down = new Promise((resolve) => manager.on('peer-down', resolve));
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    await down;
    expect(manager.health()).toMatchObject({ ok: true, peer_states: [{ state: 'down', pending: 1 }] });
    await manager.stop();
  });

  test.each([
    ['one trigger is dropped', 'DROP TRIGGER _rowcast_items_update'],
    [
      'a trigger is replaced by one that does nothing',
      'DROP TRIGGER _rowcast_items_delete; CREATE TRIGGER _rowcast_items_delete AFTER DELETE ON items BEGIN SELECT 1; END',
    ],
    ['the table is dropped, and its triggers with it', 'DROP TABLE items'],
    ['the table is renamed', 'ALTER TABLE items RENAME TO things'],
    ['another program left the syncing flag at 1', "UPDATE _meta SET value = 1 WHERE key = 'syncing'"],
    ['the database turned unwritable', 'PRAGMA query_only = ON'],
    ['the change table is gone', 'DROP TABLE _changes'],
  ])('is false, with the reason, when %s', async (_, sql) => {
    const { db, manager } = await node();
    expect(manager.health().ok).toBe(true);
    db.exec(sql);
    const health = manager.health();
    expect(health.ok).toBe(false);
    expect(health.problems.length).toBeGreaterThan(0);
    db.exec('PRAGMA query_only = OFF');
  });

  test('is false, and does not throw, when the database was closed under it', async () => {
    const db = await openDatabase();
    db.exec(ITEMS);
    const manager = attach(db, { id: 'node', peers: [] }, ['items']);
    db.close();
    expect(manager.health().ok).toBe(false);
  });

  test('a manager whose database was closed under it can still be stopped', async () => {
    const db = await openDatabase();
    db.exec(ITEMS);
    const manager = attach(db, { id: 'node', peers: [] }, ['items']);
    db.close();
    await expect(manager.stop()).resolves.toBeUndefined();
  });

  test('is true again after attach has repaired what was broken', async () => {
    const { db, manager } = await node();
    db.exec('DROP TRIGGER _rowcast_items_update');
    expect(manager.health().ok).toBe(false);
    expect(attached(db).health().ok).toBe(true);
    expect(manager.health().ok).toBe(true);
  });

  test("is true in the middle of the application's own transaction, and leaves it alone", async () => {
    const { db, manager } = await node();
    db.exec("BEGIN; INSERT INTO items (id, updated_at) VALUES ('a', 1)");
    expect(manager.health()).toMatchObject({ ok: true, item_count: 1 });
    db.exec('COMMIT');
    expect(captured(db)).toHaveLength(1);
  });
});
