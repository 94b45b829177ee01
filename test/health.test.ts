/** Health tells the truth: exact numbers, or that they are not, no waiting for others, ages from the time of capture. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ItemStore } from '../src/cli/items/store.ts';
import { systemClock } from '../src/clock.ts';
import { createHub } from '../src/hub/hub.ts';
import type { Config, Manager } from '../src/index.ts';
import { collectMetrics } from '../src/observe/metrics.ts';
import { openDatabase, type TestDatabase } from './support/lane.ts';
import {
  attached,
  cleanUp,
  database,
  ITEMS,
  node,
  recording,
  rowsOf,
  scratchFolder,
  serveManager,
  until,
} from './support/nodes.ts';
import { VirtualClock } from './support/virtual-clock.ts';

const PEER = 'http://peer.test';
const noNetwork = (): Promise<never> => Promise.reject(new Error('no network here'));

/** Rows with the ids from `first` to `last`, below what is captured where nothing is attached yet. */
function fill(db: TestDatabase, first: number, last: number): void {
  db.exec(
    `WITH RECURSIVE s (n) AS (SELECT ${first} UNION ALL SELECT n + 1 FROM s WHERE n < ${last}) ` +
      "INSERT INTO items (id, updated_at) SELECT printf('%08d', n), 1000 FROM s",
  );
}

describe('item_count', () => {
  test('is exact at the first call up to 50,000 rows', async () => {
    const db = await database();
    fill(db, 1, 50_000);
    const health = attached(db).health();
    expect(health.item_count).toBe(50_000);
    expect(health).not.toHaveProperty('at_least');
  });

  test('is said to be at least so many until a larger table has been counted, and is exact then', async () => {
    const clock = new VirtualClock();
    const db = await database();
    fill(db, 1, 60_000);
    const manager = attached(db, { clock });
    expect(manager.health()).toMatchObject({ ok: true, item_count: 50_001, at_least: ['item_count'] });
    expect(manager.status().tables).toEqual([{ name: 'items', rows: 50_001, tombstones: 0, at_least: ['rows'] }]);
    const metrics = collectMetrics(manager);
    expect(await metrics.text()).not.toMatch(/^rowcast_rows\{/m);
    await clock.advance(100);
    const { item_count, at_least, tables } = manager.status();
    expect({ item_count, at_least, tables }).toEqual({
      item_count: 60_000,
      at_least: undefined,
      tables: [{ name: 'items', rows: 60_000, tombstones: 0 }],
    });
    expect(await metrics.text()).toMatch(/^rowcast_rows\{table="items"\} 60000$/m);
  });

  test('letters and lost edits are said to be more in the same way, and stay in what is scraped where that may alarm', {
    tags: 'long',
  }, async () => {
    const clock = new VirtualClock();
    const { db, manager } = await node({ clock });
    const many = 'WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 60000) ';
    db.exec(`${many} INSERT INTO _dead_letter (op, row_id, row_data, failed_at) SELECT 'INSERT', n, '{}', 1 FROM s`);
    db.exec(`${many} INSERT INTO _dead_letter_info (dead_id, direction, code) SELECT n, 'in', 'refused' FROM s`);
    db.exec(
      `${many} INSERT INTO _conflicts (conflict_id, at, table_name, row_id, lost_version, won_version, base) SELECT n, ${clock.now()}, 'items', n, 1, 2, 0 FROM s`,
    );
    const first = manager.status();
    expect(first).toMatchObject({ at_least: ['dead_letter', 'conflicts'], dead_letter: 50_001, conflicts: 1_001 });
    expect(first.letters).toEqual([{ direction: 'out', code: 'refused', count: 1_001, at_least: ['count'] }]);
    const text = await collectMetrics(manager).text();
    expect(text).toMatch(/^rowcast_dead_letters\{.*\} \d+$/m);
    expect(text).not.toMatch(/^rowcast_conflict_journal_entries /m);
    await clock.advance(2_000);
    const later = manager.status();
    expect(later).not.toHaveProperty('at_least');
    expect(later).toMatchObject({ dead_letter: 60_000, conflicts: 60_000 });
    expect(later.letters).toEqual([{ direction: 'out', code: 'refused', count: 60_000 }]);
  });

  test('of a hub is said to be at least so many in the same way', async () => {
    const clock = new VirtualClock();
    const db = await database('SELECT 1');
    const hub = await createHub(db, { id: 'hub', edges: [], clock });
    cleanUp(() => hub.stop());
    db.exec(
      'WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 20000) INSERT INTO _hub_rows ' +
        "(seq, op, table_name, row_id, updated_at, row_data) SELECT n, iif(n % 4, 'INSERT', 'DELETE'), 'items', n, 1, '{}' FROM s",
    );
    const { item_count, at_least } = await hub.health();
    expect({ item_count, at_least }).toEqual({ item_count: 3_751, at_least: ['item_count'] });
    expect(await collectMetrics(hub).text()).not.toMatch(/^rowcast_rows /m);
    await clock.advance(1_000);
    const later = await hub.health();
    expect(later.item_count).toBe(15_000);
    expect(later).not.toHaveProperty('at_least');
    expect(await collectMetrics(hub).text()).toMatch(/^rowcast_rows 15000$/m);
  });

  test('follows every write where the table is not large', async () => {
    const { db, manager } = await node();
    fill(db, 1, 20_000);
    expect(manager.health().item_count).toBe(20_000);
    db.exec("INSERT INTO items (id) VALUES ('one')");
    expect(manager.health().item_count).toBe(20_001);
    db.exec("DELETE FROM items WHERE id <= '00010000'");
    expect(manager.health().item_count).toBe(10_001);
  });

  test('forgets what was rolled back', async () => {
    const { db, manager } = await node();
    db.exec("BEGIN; INSERT INTO items (id, updated_at) VALUES ('a', 1)");
    expect(manager.health().item_count).toBe(1);
    db.exec('ROLLBACK');
    expect(manager.health().item_count).toBe(0);
  });

  test('of a large table is never counted in one go, and arrives at what is there', { tags: 'long' }, async () => {
    const db = await database();
    fill(db, 1, 123_456);
    db.exec('CREATE TABLE _spare (x)');
    const { handle, sql } = recording(db);
    const manager = attached(handle);
    sql.length = 0;
    fill(db, 123_457, 123_460);
    db.exec(
      'WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 60000) ' +
        "INSERT INTO _dead_letter (op, row_id, row_data, failed_at) SELECT 'INSERT', n, '{}', 1 FROM s",
    );
    await until('it is counted', () => manager.health().at_least === undefined);
    expect(manager.health()).toMatchObject({ item_count: 123_460, dead_letter: 60_000 });
    db.exec("DELETE FROM items WHERE id <= '00000100'; DELETE FROM _dead_letter WHERE dead_id <= 10");
    await until('it is counted again', () => {
      const { item_count, dead_letter } = manager.health();
      return item_count === 123_360 && dead_letter === 59_990;
    });
    const counts = sql.filter((text) => /\b(count|sum|total)\s*\(/i.test(text) && !/LIMIT \d+|IS NULL/.test(text));
    expect(counts).toEqual([]);
  });
});

test('dead_letter is exact', async () => {
  const { db, manager } = await node();
  db.exec(
    'WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 25000) ' +
      "INSERT INTO _dead_letter (op, row_id, row_data, failed_at) SELECT 'INSERT', n, '{}', 1 FROM s",
  );
  expect(manager.health().dead_letter).toBe(25_000);
});

describe('while another connection writes', () => {
  /** Longer than a test may take: whoever waits is found out. */
  const FOR_EVER_MS = 20_000;

  async function pair(journal: string): Promise<{ db: TestDatabase; manager: Manager; other: TestDatabase }> {
    const path = join(scratchFolder(), 'shared.db');
    const db = await openDatabase(path);
    cleanUp(() => db.close());
    db.exec(`PRAGMA journal_mode = ${journal}; ${ITEMS}; INSERT INTO items (id, updated_at) VALUES ('a', 1)`);
    const manager = attached(db);
    const other = await openDatabase(path);
    cleanUp(() => other.close());
    db.exec(`PRAGMA busy_timeout = ${FOR_EVER_MS}`);
    return { db, manager, other };
  }

  test('health answers at once, is ok, and leaves the busy timeout as it was', async () => {
    const { db, manager, other } = await pair('WAL');
    other.exec('BEGIN IMMEDIATE');
    expect(manager.health()).toMatchObject({ ok: true, item_count: 1, problems: [] });
    expect(Object.values(rowsOf(db, 'PRAGMA busy_timeout')[0] ?? {})).toEqual([FOR_EVER_MS]);
    other.exec('ROLLBACK');
  });

  test('a lock on the whole file is reported, and not waited for', async () => {
    const { manager, other } = await pair('DELETE');
    other.exec('BEGIN EXCLUSIVE');
    const { ok, problems } = manager.health();
    expect([ok, problems.join()]).toEqual([false, expect.stringMatching(/cannot be read: .*locked/)]);
    other.exec('ROLLBACK');
    expect(manager.health().ok).toBe(true);
  });

  test('everything is read at one moment', async () => {
    const db = await database();
    const { handle, sql } = recording(db);
    const manager = attached(handle, { peers: [PEER], fetch: noNetwork, batchMs: 3_600_000 });
    sql.length = 0;
    manager.health();
    const [begin, end] = [sql.indexOf('BEGIN'), sql.lastIndexOf('ROLLBACK')];
    expect(begin).toBeGreaterThan(-1);
    const outside = sql.filter((text, i) => (i < begin || i > end) && /\bFROM\b/.test(text));
    expect(outside).toEqual([]);
    expect(sql.slice(begin, end).filter((text) => /\bFROM\b/.test(text)).length).toBeGreaterThan(5);
  });
});

test('health answers in the middle of a query of the application', async () => {
  const { db, manager } = await node();
  fill(db, 1, 3);
  const statement = db.prepare('SELECT id FROM items') as unknown as { iterate(): Iterable<unknown> };
  const seen: unknown[] = [];
  for (const _ of statement.iterate()) seen.push(manager.health().ok, manager.health().item_count);
  expect(seen).toEqual([true, 3, true, 3, true, 3]);
});

describe('lag_ms', () => {
  const config = (clock: VirtualClock): Partial<Config> => ({ peers: [PEER], fetch: noNetwork, clock });

  test.each([
    ['long ago', 1_000],
    ['in a far future', 8_000_000_000_000],
    ['never', null],
  ])('counts from the capture, although the row says %s', async (_, updatedAt) => {
    const clock = new VirtualClock();
    const { db, manager } = await node(config(clock));
    await clock.advance(60_000);
    db.prepare("INSERT INTO items (id, updated_at) VALUES ('a', ?)").run(updatedAt);
    expect(manager.health()).toMatchObject({ pending_changes: 1, lag_ms: 0 });
    await clock.advance(30_000);
    db.exec("INSERT INTO items (id) VALUES ('b')");
    await clock.advance(10_000);
    const { lag_ms, pending_changes, peer_states } = manager.health();
    expect({ lag_ms, pending_changes }).toEqual({ lag_ms: 40_000, pending_changes: 2 });
    expect(peer_states[0]?.lag_ms).toBe(40_000);
  });

  test('is known to within a second where nobody asks for health', { tags: 'long' }, async () => {
    const clock = new VirtualClock();
    const schema = 'CREATE TABLE items (ID TEXT PRIMARY KEY, UPDATED_AT INTEGER)';
    const { db, manager } = await node({ ...config(clock), schema });
    await clock.advance(60_300);
    db.exec("INSERT INTO items (id) VALUES ('a')");
    await clock.advance(10_000);
    const { lag_ms } = manager.health();
    expect(lag_ms).toBeGreaterThanOrEqual(9_000);
    expect(lag_ms).toBeLessThanOrEqual(10_000);
  });

  test('is that of the oldest change a peer lacks, not of those it has', { tags: 'long' }, async () => {
    const clock = new VirtualClock();
    let isUp = true;
    const fetch: Config['fetch'] = async (_, { body }) => {
      if (!isUp) throw new Error('connection refused');
      const { batch_id: ack } = JSON.parse(new TextDecoder().decode(body));
      return { status: 200, text: async () => JSON.stringify({ applied: 1, ack }) };
    };
    const down = 'http://down.test';
    const { db, manager } = await node({
      peers: [PEER, down],
      clock,
      fetch: async (url, init) => {
        if (url.startsWith(down)) throw new Error('connection refused');
        return (fetch as NonNullable<Config['fetch']>)(url, init);
      },
    });
    db.exec("INSERT INTO items (id) VALUES ('a')");
    await clock.advance(20_000);
    expect(manager.health().peer_states.map(({ lag_ms }) => lag_ms >= 19_000)).toEqual([false, true]);
    isUp = false;
    db.exec("INSERT INTO items (id) VALUES ('b')");
    await clock.advance(5_000);
    const [up, gone] = manager.health().peer_states.map(({ lag_ms }) => Math.floor(lag_ms / 1_000));
    expect(up).toBeGreaterThanOrEqual(4);
    expect(up).toBeLessThanOrEqual(5);
    expect(gone).toBeGreaterThanOrEqual(24);
    isUp = true;
    await clock.advance(60_000);
    expect(manager.health().peer_states[0]).toMatchObject({ pending: 0, lag_ms: 0 });
  });

  test('goes on after a restart', async () => {
    const path = join(scratchFolder(), 'node.db');
    const first = new VirtualClock();
    const db = await database(ITEMS, path);
    const manager = attached(db, config(first));
    db.exec("INSERT INTO items (id) VALUES ('a')");
    await first.advance(100_000);
    await manager.stop();
    const second = new VirtualClock();
    await second.advance(1_000_000);
    const again = attached(db, config(second));
    const { lag_ms } = again.health();
    expect(lag_ms).toBeGreaterThanOrEqual(999_000);
    expect(lag_ms).toBeLessThanOrEqual(1_000_000);
  });

  test('counts from now on where the clock was ahead at the capture, and is set right', async () => {
    const clock = new VirtualClock();
    const { db, manager } = await node(config(clock));
    await clock.advance(60_000);
    db.exec("INSERT INTO items (id) VALUES ('a')");
    await clock.advance(20_000);
    clock.setBack(365 * 86_400_000);
    await clock.advance(40_000);
    expect(manager.health().lag_ms).toBeGreaterThanOrEqual(39_000);
    expect(manager.health().lag_ms).toBeLessThanOrEqual(40_000);
  });

  test('without a backlog nothing is ever written down', async () => {
    const clock = new VirtualClock();
    const { manager, all } = await node({ peers: [], clock });
    await clock.advance(100_000);
    manager.health();
    expect(all("SELECT * FROM _meta WHERE key = 'backlog'")).toEqual([]);
  });
});

describe('a peer that is given the whole state', () => {
  test('lacks every row and tombstone of it until it has them', { tags: 'long' }, async () => {
    const clock = new VirtualClock();
    const db = await database();
    await attached(db).stop();
    fill(db, 1, 5_000);
    db.exec("INSERT INTO items (id) VALUES ('gone'); DELETE FROM items WHERE id = 'gone'; DELETE FROM _changes");
    let taken = 0;
    const fetch: Config['fetch'] = async (_, { body }) => {
      const { batch_id: ack, changes } = JSON.parse(new TextDecoder().decode(body));
      if (taken >= 2_000) throw new Error('connection refused');
      taken += changes.length;
      return { status: 200, text: async () => JSON.stringify({ applied: changes.length, ack }) };
    };
    const manager = attached(db, { peers: [PEER], clock, fetch, batchMs: 5_000, batchSize: 1_000 });
    const first = manager.health();
    expect(first).toMatchObject({ pending_changes: 5_001, peer_states: [{ snapshot: true, pending: 5_001 }] });
    await clock.advance(60_000);
    const later = manager.health();
    expect(taken).toBe(2_000);
    expect(later).toMatchObject({ pending_changes: 3_001, lag_ms: 60_000, peer_states: [{ snapshot: true }] });
    // The clock was ahead when it began.
    clock.setBack(365 * 86_400_000);
    await clock.advance(60_000);
    expect(manager.health().lag_ms).toBeGreaterThanOrEqual(40_000);
    taken = -10_000;
    await clock.advance(60_000);
    expect(manager.health()).toMatchObject({ pending_changes: 0, lag_ms: 0, peer_states: [{ snapshot: false }] });
  });
});

describe('a sender that is no peer', () => {
  const answering =
    (id: string | null): NonNullable<Config['fetch']> =>
    async (_, { body }) => {
      const { batch_id: ack } = JSON.parse(new TextDecoder().decode(body));
      return { status: 200, text: async () => JSON.stringify({ applied: 1, ack }), headers: { get: () => id } };
    };
  const batch = '{"batch_id":1,"changes":[]}';

  async function oneWay(peers: string[], told: string | null, senders: string[]): Promise<string[]> {
    const { db, manager } = await node({ peers, fetch: answering(told), batchMs: 1 });
    const warnings: string[] = [];
    manager.on('warning', ({ code, message }) => warnings.push(`${code}: ${message}`));
    db.exec("INSERT INTO items (id) VALUES ('a')");
    await manager.flush();
    for (const from of senders) manager.receive(batch, { from });
    await new Promise((resolve) => setImmediate(resolve));
    return warnings;
  }

  test('is named once, when every peer has told its id', async () => {
    const warnings = await oneWay([PEER], 'b', ['b', 'c', 'c']);
    expect(warnings).toEqual([
      expect.stringMatching(/^one-way: node "c" sends changes, and none of the peers of this node has that id: /),
    ]);
  });

  test('is named by a node without peers', async () => {
    expect(await oneWay([], null, ['b'])).toEqual([expect.stringMatching(/"b" sends .* has no peers/)]);
  });

  test('is not named while a peer has not said who it is, nor where it is the peer', async () => {
    expect(await oneWay([PEER], null, ['c'])).toEqual([]);
    expect(await oneWay([PEER], 'b', ['b', 'node'])).toEqual([]);
  });

  test('two nodes that list each other know each other by their answers', async () => {
    const b = await node({ id: 'b' });
    const url = await serveManager(b.manager);
    const response = await fetch(`${url}/sync`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: batch,
    });
    expect(response.headers.get('x-node-id')).toBe('b');
  });
});

test('a synced table that is gone is named, and /health is then 503', async () => {
  const { db, manager } = await node();
  const url = await serveManager(manager);
  expect((await fetch(`${url}/health`)).status).toBe(200);
  db.exec('DROP TABLE items');
  const response = await fetch(`${url}/health`);
  expect(response.status).toBe(503);
  const { ok, problems } = (await response.json()) as { ok: boolean; problems: string[] };
  expect(ok).toBe(false);
  expect(problems.join()).toMatch(/the synced table "items" is gone/);
});

test('a gap in the capture is a problem until every peer was asked for its own rows', async () => {
  const clock = new VirtualClock();
  let isUp = false;
  const { db, manager } = await node({
    peers: [PEER],
    clock,
    fetch: async (_, { body }) => {
      if (!isUp) throw new Error('connection refused');
      const { batch_id: ack, changes } = JSON.parse(new TextDecoder().decode(body));
      return { status: 200, text: async () => JSON.stringify({ applied: changes.length, ack }) };
    },
  });
  db.exec("INSERT INTO items (id) VALUES ('a')");
  db.exec('DROP TRIGGER _rowcast_items_update');
  expect(manager.health()).toMatchObject({ ok: false, problems: [expect.stringMatching(/triggers are missing/)] });
  await clock.advance(5_000);
  expect(manager.health()).toMatchObject({
    ok: false,
    problems: [expect.stringMatching(/may have gone unseen.*peer\.test/)],
  });
  isUp = true;
  await clock.advance(60_000);
  expect(manager.health()).toMatchObject({ ok: true, problems: [], pending_changes: 0 });
});

describe('a disk that is full', () => {
  const pages = (db: TestDatabase): number => Number(Object.values(rowsOf(db, 'PRAGMA page_count')[0] ?? {})[0]);
  const batch = (n: number): string => {
    const row = (i: number): object => ({ id: `${n} ${i}`, name: 'x'.repeat(500), updated_at: 1_000 });
    const changes = Array.from({ length: 50 }, (_, i) => ({ op: 'INSERT', table: 'items', row: row(i), old_id: null }));
    return JSON.stringify({ batch_id: n, changes });
  };

  test('is a problem of a node from the first batch that it cannot apply to the next that it can', async () => {
    const { db, manager } = await node();
    db.exec(`PRAGMA max_page_count = ${pages(db)}`);
    expect(manager.receive(batch(1)).status).toBe(503);
    expect(manager.health()).toMatchObject({
      ok: false,
      problems: ['changes could not be applied: database or disk is full'],
    });
    // Nothing has to be written for that.
    expect(manager.receive('{"batch_id":2,"changes":[]}').status).toBe(200);
    expect(manager.health().ok).toBe(false);
    db.exec('PRAGMA max_page_count = 100000');
    expect(manager.receive(batch(1)).status).toBe(200);
    expect(manager.health()).toMatchObject({ ok: true, problems: [] });
  });

  test('is a problem for as long as it is full, whoever tries, and none when there is room', async () => {
    const clock = new VirtualClock();
    const { db, manager } = await node({ clock });
    db.exec(`PRAGMA max_page_count = ${pages(db)}`);
    expect(manager.receive(batch(1)).status).toBe(503);
    await clock.advance(61_000);
    const problems = ['the database cannot be written: database or disk is full'];
    expect(manager.health()).toMatchObject({ ok: false, problems });
    db.exec('PRAGMA max_page_count = 100000');
    expect(manager.health()).toMatchObject({ ok: true, problems: [] });
    expect(rowsOf(db, "SELECT * FROM _meta WHERE key = 'proof'")).toEqual([]);
  });

  test('is a problem where the item routes have met it, and goes by itself', async () => {
    const { db, manager } = await node();
    const store = new ItemStore(db, 'here', systemClock);
    cleanUp(() => store.release());
    db.exec(`PRAGMA max_page_count = ${pages(db)}`);
    const items = Array.from({ length: 100 }, () => ({ name: 'x'.repeat(900), value: null }));
    expect(() => store.createAll(items)).toThrow(/full/);
    const problems = ['the database cannot be written: database or disk is full'];
    expect(manager.health()).toMatchObject({ ok: false, problems });
    db.exec('BEGIN');
    expect(manager.health()).toMatchObject({ ok: false, problems });
    db.exec('ROLLBACK; PRAGMA max_page_count = 100000');
    expect(manager.health()).toMatchObject({ ok: true, problems: [] });
  });

  test('is a problem of a hub', async () => {
    const db = await database('SELECT 1');
    const clock = new VirtualClock();
    const hub = await createHub(db, { id: 'hub', edges: [], clock });
    cleanUp(() => hub.stop());
    db.exec(`PRAGMA max_page_count = ${pages(db)}`);
    expect((await hub.receive(batch(1))).status).toBe(503);
    expect((await hub.health()).problems.join()).toMatch(/database or disk is full/);
    await clock.advance(61_000);
    expect((await hub.health()).problems).toEqual(['the database cannot be written: database or disk is full']);
    db.exec('PRAGMA max_page_count = 100000');
    expect((await hub.receive(batch(1))).status).toBe(200);
    expect(await hub.health()).toMatchObject({ ok: true, problems: [] });
  });
});

test('a synced table that was made again with another key is no table that is gone: it is said what is wrong', async () => {
  const { db, manager } = await node();
  const warnings: { code: string; message: string }[] = [];
  manager.on('warning', (warning) => warnings.push(warning));
  db.exec('DROP TABLE items');
  await until('that is said', () => warnings.some(({ message }) => message.includes('does not exist')));
  expect(manager.health().problems.join()).toMatch(/is gone/);
  db.exec('CREATE TABLE items (key INTEGER PRIMARY KEY, id TEXT, name TEXT, updated_at INTEGER)');
  const isSaid = (): boolean =>
    /"items" has no TEXT primary key.*until that is mended/.test(manager.health().problems.join());
  await until(`it is said, and not ${manager.health().problems}`, isSaid);
  await until('a warning says so', () => warnings.length === 2);
  expect(warnings.at(-1)).toMatchObject({ code: 'table-lost', message: expect.stringMatching(/no TEXT primary key/) });
});
