/** What a peer does not have yet, as `health` tells it: changes, and the rows and tombstones of a snapshot. */
import { expect, test } from 'vitest';
import { attach, type Config, type Manager } from '../../src/index.ts';
import { changesAfter, type PeerProgress, PROGRESS_COUNT_MAX, peerProgress } from '../../src/send/progress.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { describeTable } from '../../src/sqlite/schema.ts';
import { acknowledged, connectionError, type Reply, recordingFetch, type Sent } from '../support/bad-servers.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, ITEMS } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const PEER = 'http://peer.test';
const OTHER = 'CREATE TABLE others (id TEXT PRIMARY KEY, updated_at INTEGER)';
const TABLES = ['items', 'others'];

function start(
  db: TestDatabase,
  peers: string[],
  answer: (sent: Sent) => Reply,
  extra: Partial<Config> = {},
): { manager: Manager; clock: VirtualClock } {
  const clock = new VirtualClock((ms) => ms <= 800);
  const { fetch } = recordingFetch(answer);
  const manager = attach(db, { maxAheadMs: 0, id: 'a', peers, clock, fetch, ...extra }, TABLES);
  cleanUp(() => manager.stop());
  return { manager, clock };
}

function progress(db: TestDatabase): PeerProgress {
  const connection = new Connection(db);
  const tables = TABLES.map((name) => describeTable(connection, name));
  const result = peerProgress(connection, tables, PEER);
  connection.release();
  return result;
}

function insert(db: TestDatabase, count: number, from = 0): void {
  db.exec(
    `WITH RECURSIVE s (n) AS (SELECT ${from} UNION ALL SELECT n + 1 FROM s WHERE n < ${from + count - 1}) ` +
      "INSERT INTO items SELECT printf('row-%06d', n), 'x', 1, 10, 1000 FROM s",
  );
}

const NO_SEEDS = { new: 0, replaced: 0, restored: 0, stale: 0, table: 0, manual: 0 };

test('a snapshot that has not begun counts every row and every tombstone', async () => {
  const db = await database(`${ITEMS}; ${OTHER}`);
  const first = start(db, [], acknowledged);
  insert(db, 5_000);
  db.exec("INSERT INTO others VALUES ('o', 1000); DELETE FROM items WHERE id < 'row-000010'");
  db.exec("INSERT INTO items VALUES ('row-000003', 'again', 1, 10, 2000)");
  await first.manager.stop();
  const { manager, clock } = start(db, [PEER], connectionError);
  // 4,990 rows, one that came back and whose tombstone says nothing any more, nine tombstones, one row of the other
  // table.
  expect(progress(db)).toEqual({
    lastAcked: 0,
    snapshot: true,
    pending: 4_990 + 1 + 9 + 1,
    exact: true,
    snapshotSince: clock.now(),
    paused: false,
    stale: false,
    toBeAsked: false,
    seeds: { ...NO_SEEDS, new: 1 },
  });
  expect(manager.health().peer_states).toMatchObject([{ url: PEER, pending: 5_001, snapshot: true }]);
});

test('it goes down page by page to nothing, and what is written meanwhile is counted as well', async () => {
  const db = await database(`${ITEMS}; ${OTHER}`);
  insert(db, 100);
  const seen: number[] = [];
  const { manager } = start(
    db,
    [PEER],
    (sent) => {
      seen.push(progress(db).pending);
      if (seen.length === 3) db.exec("INSERT INTO items VALUES ('zzz', 'x', 1, 10, 3000)");
      return acknowledged(sent);
    },
    { batchSize: 10 },
  );
  await manager.flush();
  expect(seen.slice(0, 2)).toEqual([100, 100]);
  expect(seen.some((n) => n > 0 && n < 50)).toBe(true);
  expect(progress(db)).toMatchObject({
    snapshot: false,
    pending: 0,
    exact: true,
    snapshotSince: null,
    paused: false,
    stale: false,
    toBeAsked: false,
  });
  expect(db.prepare("SELECT count(*) AS n FROM _meta WHERE key LIKE 'snapshot%'").get()).toMatchObject({ n: 0 });
});

test('counting ends at ten thousand and says that there may be more', async () => {
  const db = await database(`${ITEMS}; ${OTHER}`);
  insert(db, PROGRESS_COUNT_MAX + 500);
  start(db, [PEER], connectionError);
  expect(progress(db)).toMatchObject({ pending: PROGRESS_COUNT_MAX, exact: false });
});

test('a backlog of fewer than ten thousand changes is counted, a larger one measured by its ends', async () => {
  const db = await database(`${ITEMS}; ${OTHER}`);
  start(db, [], acknowledged);
  insert(db, PROGRESS_COUNT_MAX);
  db.exec('DELETE FROM _changes WHERE change_id = 2');
  const connection = new Connection(db);
  cleanUp(() => connection.release());
  expect(changesAfter(connection, 0)).toBe(PROGRESS_COUNT_MAX - 1);
  insert(db, 1, PROGRESS_COUNT_MAX);
  expect(changesAfter(connection, 0)).toBe(PROGRESS_COUNT_MAX + 1);
  expect(changesAfter(connection, 1)).toBe(PROGRESS_COUNT_MAX - 1);
});

test('since when a snapshot is under way outlives the process', { tags: 'long' }, async () => {
  const db = await database(`${ITEMS}; ${OTHER}`);
  insert(db, 3);
  const first = start(db, [PEER], connectionError);
  const since = first.clock.now();
  await first.clock.advance(60_000);
  await first.manager.stop();
  const later = start(db, [PEER], connectionError, { batchMs: 1_000 });
  await later.clock.advance(5_000);
  expect(progress(db).snapshotSince).toBe(since);
  await later.manager.stop();
  const well = start(db, [PEER], acknowledged);
  await well.manager.flush();
  await well.manager.stop();
  start(db, [PEER], connectionError);
  db.exec("INSERT INTO items VALUES ('new', 'x', 1, 10, 4000), ('newer', 'x', 1, 10, 5000)");
  expect(progress(db)).toMatchObject({ snapshot: false, pending: 2, snapshotSince: null });
});

test('a peer that nobody has heard of is behind by nothing that could be told', async () => {
  const db = await database(`${ITEMS}; ${OTHER}`);
  start(db, [], acknowledged);
  expect(progress(db)).toEqual({
    lastAcked: 0,
    snapshot: false,
    pending: 0,
    exact: true,
    snapshotSince: null,
    paused: false,
    stale: false,
    toBeAsked: false,
    seeds: NO_SEEDS,
  });
});
