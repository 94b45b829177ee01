/** The hub's store in SQLite: what every store has to keep, and what is SQLite's own. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { SqliteHubStore } from '../../src/hub/sqlite-store.ts';
import { Connection, type Database } from '../../src/sqlite/connection.ts';
import type { TestDatabase } from '../support/lane.ts';
import { database, rowsOf, scratchFolder } from '../support/nodes.ts';
import { storeConformance } from './store-conformance.ts';

const EDGES_OF_IT =
  'CREATE TABLE _hub_edges (url TEXT PRIMARY KEY, position INTEGER NOT NULL DEFAULT 0, node_id TEXT); ' +
  "INSERT INTO _hub_edges VALUES ('http://a', 1, 'a')";
const SELF = { id: 'hub', random: Math.random, maxAheadMs: 0 };

const T = 4_000_000_000_000;

/** By path: whoever opened it last. */
const processes = new Map<string, TestDatabase>();

/** By another process: the system takes the lock from the one before, which has ended. */
async function open(path: string, onCommit: () => void = () => {}, clock = systemClock): Promise<SqliteHubStore> {
  const before = processes.get(path);
  const has = before && rowsOf(before, 'PRAGMA database_list').some(({ name }) => name === 'rowcast_lock');
  if (has) before.exec('DETACH DATABASE rowcast_lock');
  const db = await database('PRAGMA synchronous = NORMAL', path);
  processes.set(path, db);
  const watched: Database = {
    exec: (sql) => {
      // EXTRA, as for every commit that must outlast a power cut.
      if (sql === 'COMMIT' && rowsOf(db, 'PRAGMA synchronous')[0]?.synchronous === 3) onCommit();
      return db.exec(sql);
    },
    prepare: (sql) => db.prepare(sql),
    transaction: (fn) => db.transaction(fn),
  };
  const maxBodyBytes = 250_000;
  const store = new SqliteHubStore(new Connection(watched), { clock, maxBodyBytes, ...SELF });
  await store.open();
  return store;
}

storeConformance('SQLite', async () => {
  const path = join(scratchFolder(), 'hub.db');
  let flushes = 0;
  const store = await open(path, () => (flushes += 1));
  return { store, flushes: () => flushes, reopen: () => open(path) };
});

describe('a file of an earlier hub', () => {
  /** As it was before a deletion lost its content: the same tables, and format 0. */
  async function earlier(): Promise<string> {
    const path = join(scratchFolder(), 'hub.db');
    const store = await open(path);
    const change = (op: string, id: string, name: string): object => ({
      op,
      table: 'items',
      row: { id, name, updated_at: T },
      old_id: op === 'DELETE' ? id : null,
    });
    const changes = [change('UPDATE', 'x', 'kept'), change('DELETE', 'y"', 'secret')];
    await store.receive(JSON.stringify({ batch_id: 1, changes }), { from: 'a', plain: true });
    await store.addEdges(['http://a']);
    const db = await database('PRAGMA user_version = 0', path);
    db.exec(`DROP TABLE _hub_edges; DROP TABLE _nodes; DROP TABLE _names; ${EDGES_OF_IT}`);
    db.exec('ALTER TABLE _hub_rows DROP COLUMN base; ALTER TABLE _hub_rows DROP COLUMN writer');
    db.exec(`UPDATE _hub_rows SET row_data = '{"id":"y\\"","name":"secret","updated_at":${T}}' WHERE op = 'DELETE'`);
    return path;
  }

  test('loses the content of its deleted rows, and nothing else', async () => {
    const path = await earlier();
    const store = await open(path);
    const db = await database('SELECT 1', path);
    // From the first moment on nobody is sent any of it, and what comes meanwhile is merged as ever.
    const first = await store.read(0, { changes: 10, bytes: 1_000_000 });
    expect(String(Buffer.from(first?.body as Uint8Array))).not.toContain('secret');
    await store.forgotten();
    expect(rowsOf(db, 'SELECT row_id, row_data FROM _hub_rows ORDER BY row_id')).toEqual([
      { row_id: 'x', row_data: `{"id":"x","name":"kept","updated_at":${T}}` },
      { row_id: 'y"', row_data: `{"id":"y\\"","updated_at":${T}}` },
    ]);
    expect(await store.edges()).toMatchObject([{ url: 'http://a', position: 1, nodeId: 'a', anewUpto: 0 }]);
    expect(rowsOf(db, 'PRAGMA user_version')).toEqual([{ user_version: 10 }]);
  });

  test('keeps its edges and how far they are, and can pause them', async () => {
    const path = await earlier();
    const db = await database('SELECT 1', path);
    db.exec(
      'DROP TABLE _hub_edges; ' +
        'CREATE TABLE _hub_edges (url TEXT PRIMARY KEY, position INTEGER NOT NULL DEFAULT 0, node_id TEXT); ' +
        "INSERT INTO _hub_edges VALUES ('http://a', 2, 'a'); PRAGMA user_version = 1",
    );
    const store = await open(path);
    expect(await store.edges()).toMatchObject([{ url: 'http://a', position: 2, nodeId: 'a', paused: false }]);
    await store.pauseEdge('http://a', true);
    const [edge] = await (await open(path)).edges();
    expect(edge).toMatchObject({ position: 2, paused: true });
  });

  test('of the last format keeps its edges, which no node is held to yet', async () => {
    const path = await earlier();
    const db = await database('SELECT 1', path);
    db.exec(
      'DROP TABLE _hub_edges; ' +
        'CREATE TABLE _hub_edges (url TEXT PRIMARY KEY, position INTEGER NOT NULL DEFAULT 0, node_id TEXT, ' +
        'paused INTEGER NOT NULL DEFAULT 0, inc TEXT, anew_upto INTEGER NOT NULL DEFAULT 0); ' +
        "INSERT INTO _hub_edges VALUES ('http://a', 2, 'a', 1, '5f0c1e9a77b2d310', 1); PRAGMA user_version = 4",
    );
    const store = await open(path);
    const edge = { url: 'http://a', position: 2, nodeId: 'a', paused: true, inc: '5f0c1e9a77b2d310', anewUpto: 1 };
    expect(await store.edges()).toMatchObject([{ ...edge, pinned: undefined }]);
    await store.pinEdge('http://a', 'a');
    expect(await (await open(path)).edges()).toMatchObject([{ ...edge, pinned: 'a' }]);
  });

  test('is cleaned slice by slice, and from where it was when the process ends in between', async () => {
    const path = await earlier();
    const db = await database('SELECT 1', path);
    const secret = (): unknown =>
      rowsOf(db, "SELECT count(*) AS n FROM _hub_rows WHERE row_data LIKE '%secret%'")[0]?.n;
    db.exec(
      'WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000) INSERT INTO _hub_rows ' +
        "SELECT 100 + i, 'DELETE', 'items', 'd' || i, 5, 'a', json_object('id', 'd' || i, 'name', 'secret', 'updated_at', 5) FROM n",
    );
    expect(secret()).toBe(12_001);
    const slices: number[] = [];
    const pausing = { ...systemClock, sleep: async (ms: number) => void slices.push(ms) };
    const first = await open(path, undefined, { ...pausing, sleep: () => new Promise<void>((r) => setImmediate(r)) });
    // It is at work at once; a row that is touched before it was cleaned is cleaned at its new place.
    await first.touchTable('items');
    await first.close();
    expect(rowsOf(db, 'PRAGMA user_version')).toEqual([{ user_version: 0 }]);
    expect(secret()).toBeGreaterThan(0);
    const second = await open(path, undefined, pausing);
    await second.forgotten();
    expect(slices.length).toBeGreaterThan(2);
    expect(secret()).toBe(0);
    expect(rowsOf(db, 'PRAGMA user_version')).toEqual([{ user_version: 10 }]);
  });

  test('of a later format is refused and left alone', async () => {
    const path = await earlier();
    const db = await database('PRAGMA user_version = 11', path);
    await expect(open(path)).rejects.toThrow(/newer version of the hub/);
    expect(rowsOf(db, "SELECT count(*) AS n FROM _hub_rows WHERE row_data LIKE '%secret%'")).toEqual([{ n: 1 }]);
  });
});

test('what was deleted, or written over, is not to be found in the file', async () => {
  const path = join(scratchFolder(), 'hub.db');
  const store = await open(path);
  const receive = (op: string, id: string, name: string, at: number): Promise<unknown> => {
    const change = { op, table: 'items', row: { id, name, updated_at: at }, old_id: op === 'DELETE' ? id : null };
    return store.receive(JSON.stringify({ batch_id: 1, changes: [change] }), { from: 'a', plain: false });
  };
  // Within a page, and on pages of its own.
  const secrets = ['a small secret', `a large secret${'.'.repeat(20_000)}`];
  for (const [i, secret] of secrets.entries()) {
    await receive('INSERT', `deleted${i}`, secret, T);
    await receive('INSERT', `written over${i}`, secret, T);
  }
  const other = await database('SELECT 1', path);
  const file = (): string => {
    other.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    return readFileSync(path, 'latin1');
  };
  expect(file()).toContain('a small secret');
  expect(file()).toContain('a large secret');
  for (const [i, secret] of secrets.entries()) {
    await receive('DELETE', `deleted${i}`, secret, T);
    await receive('UPDATE', `written over${i}`, 'harmless', T + 1);
  }
  expect(file()).not.toContain('secret');
});
