/** The hub's store in SQLite: what every store has to keep, and what is SQLite's own. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { SqliteHubStore } from '../../src/hub/sqlite-store.ts';
import { Connection, type Database } from '../../src/sqlite/connection.ts';
import { database, rowsOf, scratchFolder } from '../support/nodes.ts';
import { storeConformance } from './store-conformance.ts';

const EDGES_OF_IT =
  'CREATE TABLE _hub_edges (url TEXT PRIMARY KEY, position INTEGER NOT NULL DEFAULT 0, node_id TEXT); ' +
  "INSERT INTO _hub_edges VALUES ('http://a', 1, 'a')";
const SELF = { id: 'hub', random: Math.random, maxAheadMs: 0 };

const T = 4_000_000_000_000;

async function open(path: string, onCommit: () => void = () => {}): Promise<SqliteHubStore> {
  const db = await database('PRAGMA synchronous = NORMAL', path);
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
  const store = new SqliteHubStore(new Connection(watched), { clock: systemClock, maxBodyBytes, ...SELF });
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
    db.exec(`UPDATE _hub_rows SET row_data = '{"id":"y\\"","name":"secret","updated_at":${T}}' WHERE op = 'DELETE'`);
    return path;
  }

  test('loses the content of its deleted rows, and nothing else', async () => {
    const path = await earlier();
    const store = await open(path);
    const db = await database('SELECT 1', path);
    expect(rowsOf(db, 'SELECT row_id, row_data FROM _hub_rows ORDER BY row_id')).toEqual([
      { row_id: 'x', row_data: `{"id":"x","name":"kept","updated_at":${T}}` },
      { row_id: 'y"', row_data: `{"id":"y\\"","updated_at":${T}}` },
    ]);
    expect(await store.edges()).toMatchObject([{ url: 'http://a', position: 1, nodeId: 'a', anewUpto: 0 }]);
    expect(rowsOf(db, 'PRAGMA user_version')).toEqual([{ user_version: 5 }]);
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

  test('of a later format is refused and left alone', async () => {
    const path = await earlier();
    const db = await database('PRAGMA user_version = 6', path);
    await expect(open(path)).rejects.toThrow(/newer version of the hub/);
    expect(rowsOf(db, "SELECT count(*) AS n FROM _hub_rows WHERE row_data LIKE '%secret%'")).toEqual([{ n: 1 }]);
  });
});
