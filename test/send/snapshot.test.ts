import { join } from 'node:path';
import { expect, test } from 'vitest';
import { attach, type Config, type Manager } from '../../src/index.ts';
import { connectionError, receivedBy, recordingFetch, type Sent } from '../support/bad-servers.ts';
import { draws } from '../support/draws.ts';
import { openDatabase, type TestDatabase } from '../support/lane.ts';
import {
  cleanUp,
  database,
  exactRows,
  ITEMS,
  node,
  rowsOf,
  scratchFolder,
  serveManager,
  until,
} from '../support/nodes.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

const PEER = 'http://peer.test';
const OTHER = 'http://other.test';
const TWO_TABLES = `${ITEMS}; CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT, updated_at INTEGER)`;

/** Attaches with pauses that take no time. */
function start(
  db: TestDatabase,
  fetch: NonNullable<Config['fetch']>,
  extra: Partial<Config> = {},
  tables = ['items'],
): Manager {
  const clock = new VirtualClock((ms) => ms <= 800);
  const manager = attach(db, { maxAheadMs: 0, id: 'sender', peers: [PEER], clock, fetch, ...extra }, tables);
  cleanUp(() => manager.stop());
  return manager;
}

function write(db: TestDatabase, ...ids: string[]): void {
  for (const id of ids) db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(id, `name of ${id}`);
}

function writeMany(db: TestDatabase, count: number): void {
  db.prepare(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO items SELECT printf('row-%06d', i), 'name ' || i, i, 10, 1000 + i FROM n",
  ).run(count);
}

const count = (db: TestDatabase, table: string): number =>
  Number(rowsOf(db, `SELECT count(*) AS n FROM ${table}`)[0]?.n);
const idsOf = (sent: Sent[]): string[] => sent.flatMap((one) => one.changes.map(({ row }) => row.id as string));

test('rows from before the first attach reach the peer, as INSERT in ordinary batches', async () => {
  const receiver = await node({ id: 'receiver' });
  const db = await database();
  writeMany(db, 25);
  const { fetch, sent } = recordingFetch((_one, raw) => receivedBy(receiver.manager, raw));
  const manager = start(db, fetch, { batchSize: 10 });
  expect(manager.health().peer_states[0]).toMatchObject({ snapshot: true });
  await manager.flush();
  expect(sent.map((one) => one.changes.length)).toEqual([10, 10, 5]);
  expect(new Set(sent.flatMap((one) => one.changes.map(({ op, old_id }) => `${op} ${old_id}`)))).toEqual(
    new Set(['INSERT null']),
  );
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
  expect(manager.health().peer_states[0]).toMatchObject({ snapshot: false, pending: 0 });
});

test('a peer that is added later gets live rows, tombstones and then the tail', async () => {
  const receiver = await node({ id: 'receiver' });
  const first = await node({ id: 'first' });
  const db = await database();
  const begin = start(db, recordingFetch((_one, raw) => receivedBy(first.manager, raw)).fetch, { peers: [OTHER] });
  write(db, 'a', 'b', 'c');
  await begin.flush();
  db.exec("DELETE FROM items WHERE id = 'b'");
  await begin.flush();
  await begin.stop();
  expect(count(db, '_changes')).toBe(0);

  // The new peer has an old copy of a row that was deleted here before anybody knew of it.
  receiver.manager.applyChanges([
    { op: 'INSERT', table: 'items', row: { id: 'b', name: 'old copy', updated_at: 1000 }, old_id: null },
  ]);
  const { fetch, sent } = recordingFetch((one, raw) =>
    receivedBy(one.url.startsWith(OTHER) ? first.manager : receiver.manager, raw),
  );
  const manager = start(db, fetch, { peers: [OTHER, PEER] });
  write(db, 'd');
  await manager.flush();
  const toPeer = sent.filter((one) => one.url.startsWith(PEER));
  expect(toPeer.flatMap((one) => one.changes.map(({ op, row }) => `${op} ${row.id}`))).toEqual(
    expect.arrayContaining(['INSERT a', 'INSERT c', 'DELETE b', 'INSERT d']),
  );
  expect(toPeer.at(-1)?.changes.at(-1)?.row.id).toBe('d');
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
  expect(idsOf(sent.filter((one) => one.url.startsWith(OTHER)))).toEqual(['d']);
  expect(count(db, '_changes')).toBe(0);
});

test('a deletion that nobody was there to hear of reaches a peer that has the row', async () => {
  const receiver = await node({ id: 'receiver' });
  const sender = await node({ id: 'sender' });
  write(sender.db, 'a', 'b');
  receiver.manager.applyChanges([
    {
      op: 'INSERT',
      table: 'items',
      row: { id: 'a', name: 'name of a', value: 1, created_at: 10, updated_at: 1000 },
      old_id: null,
    },
  ]);
  sender.db.exec('DELETE FROM items');
  await sender.manager.stop();
  const { fetch } = recordingFetch((_one, raw) => receivedBy(receiver.manager, raw));
  const manager = start(sender.db, fetch);
  await manager.flush();
  expect(count(receiver.db, 'items')).toBe(0);
  // And it stays deleted when an older copy comes from elsewhere.
  receiver.manager.applyChanges([
    { op: 'INSERT', table: 'items', row: { id: 'b', name: 'stale', updated_at: 999 }, old_id: null },
  ]);
  expect(count(receiver.db, 'items')).toBe(0);
});

test('a table that is added to the list later is sent whole to peers that have all the rest', async () => {
  const receiver = await node({ id: 'receiver', schema: TWO_TABLES, tables: ['items', 'notes'] });
  const db = await database(TWO_TABLES);
  const { fetch } = recordingFetch((_one, raw) => receivedBy(receiver.manager, raw));
  const first = start(db, fetch);
  write(db, 'a');
  db.exec("INSERT INTO notes VALUES ('n1', 'before', 5), ('n2', 'before', 6)");
  await first.flush();
  expect(count(receiver.db, 'notes')).toBe(0);
  await first.stop();
  const second = start(db, fetch, {}, ['items', 'notes']);
  db.exec("UPDATE notes SET text = 'after', updated_at = 7 WHERE id = 'n2'");
  await second.flush();
  expect(exactRows(receiver.db, 'notes')).toEqual(exactRows(db, 'notes'));
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
  expect(count(db, '_changes')).toBe(0);
});

test('a snapshot that is interrupted by a crash goes on where it was: no acknowledged page is sent again', async () => {
  const receiver = await node({ id: 'receiver' });
  const path = join(scratchFolder(), 'sender.db');
  const db = await database(ITEMS, path);
  writeMany(db, 100);
  let pages = 0;
  const first = recordingFetch((_one, raw) => {
    pages += 1;
    if (pages > 4) connectionError();
    return receivedBy(receiver.manager, raw);
  });
  const crashed = start(db, first.fetch, { batchSize: 10 });
  expect(await crashed.flush()).toEqual({ delivered: [], unreachable: [PEER] });
  expect(count(receiver.db, 'items')).toBe(40);
  const acknowledged = new Set(idsOf(first.sent.slice(0, 4)));

  // Another process opens the file; the first one never said goodbye, and its peer never answers it again.
  const again = await openDatabase(path);
  cleanUp(() => again.close());
  again.exec('PRAGMA busy_timeout = 5000');
  const second = recordingFetch((_one, raw) => receivedBy(receiver.manager, raw));
  const manager = start(again, second.fetch, { batchSize: 10 });
  await manager.flush();
  expect(idsOf(second.sent).filter((id) => acknowledged.has(id))).toEqual([]);
  expect(second.sent.length).toBe(6);
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(again, 'items'));
});

test('nothing leaves _changes before the peer has it, snapshot or not', async () => {
  const receiver = await node({ id: 'receiver' });
  const sender = await node({ id: 'sender' });
  write(sender.db, 'a', 'b', 'c');
  await sender.manager.stop();
  let cut = 1;
  const seen: number[] = [];
  const { fetch } = recordingFetch((_one, raw) => {
    seen.push(count(sender.db, '_changes'));
    if (cut-- <= 0) connectionError();
    return receivedBy(receiver.manager, raw);
  });
  const manager = start(sender.db, fetch, { batchSize: 2 });
  write(sender.db, 'd');
  expect(await manager.flush()).toEqual({ delivered: [], unreachable: [PEER] });
  expect(count(sender.db, '_changes')).toBe(4);
  cut = 100;
  await manager.flush();
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
  expect(count(sender.db, '_changes')).toBe(0);
  expect(seen.slice(0, -1).every((n) => n === 4)).toBe(true);
});

test('writes go on during a snapshot, before and behind the walk, and all of them arrive', async () => {
  const receiver = await node({ id: 'receiver' });
  const db = await database();
  writeMany(db, 60);
  let page = 0;
  const { fetch } = recordingFetch((_one, raw) => {
    page += 1;
    const reply = receivedBy(receiver.manager, raw);
    if (page <= 6) {
      const behind = `row-${String(page * 2).padStart(6, '0')}`;
      const ahead = `row-${String(61 - page).padStart(6, '0')}`;
      db.prepare("UPDATE items SET name = 'changed', updated_at = updated_at + 1 WHERE id IN (?, ?)").run(
        behind,
        ahead,
      );
      db.prepare('DELETE FROM items WHERE id IN (?, ?)').run(
        `row-${String(page * 2 + 1).padStart(6, '0')}`,
        `row-${String(55 - page).padStart(6, '0')}`,
      );
      write(db, `aaa-${page}`, `zzz-${page}`);
      // A row that is deleted and written again, behind the walk.
      if (page === 3) db.exec("DELETE FROM items WHERE id = 'row-000001'");
      if (page === 4) write(db, 'row-000001');
    }
    return reply;
  });
  const manager = start(db, fetch, { batchSize: 10 });
  await manager.flush();
  expect(page).toBeGreaterThan(6);
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
  expect(count(db, '_changes')).toBe(0);
  expect(manager.health().peer_states[0]).toMatchObject({ snapshot: false, pending: 0 });
});

test.each([
  ['when the order of the tables changes', ['items', 'notes']],
  ['when a table is added before the one that it is at', ['items']],
])('a snapshot that is under way %s still sends all of them', async (_, before) => {
  const receiver = await node({ id: 'receiver', schema: TWO_TABLES, tables: ['items', 'notes'] });
  const db = await database(TWO_TABLES);
  writeMany(db, 30);
  db.exec("INSERT INTO notes VALUES ('n1', 'x', 5), ('n2', 'x', 6)");
  let pages = 0;
  const { fetch } = recordingFetch((_one, raw) => {
    pages += 1;
    if (pages === 2) connectionError();
    return receivedBy(receiver.manager, raw);
  });
  const first = attach(
    db,
    { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch, batchSize: 10, clock: new VirtualClock() },
    before,
  );
  cleanUp(() => first.stop());
  first.nudge();
  await until('the first page is acknowledged', () => pages === 2);
  await first.stop();
  const second = start(db, fetch, { batchSize: 10 }, ['notes', 'items']);
  await second.flush();
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
  expect(exactRows(receiver.db, 'notes')).toEqual(exactRows(db, 'notes'));
});

test('a peer that is removed in the middle of its snapshot and added again misses nothing', async () => {
  const receiver = await node({ id: 'receiver' });
  const other = await node({ id: 'other' });
  const db = await database();
  writeMany(db, 30);
  let pages = 0;
  const { fetch } = recordingFetch((one, raw) => {
    if (one.url.startsWith(OTHER)) return receivedBy(other.manager, raw);
    pages += 1;
    if (pages === 2) connectionError();
    return receivedBy(receiver.manager, raw);
  });
  const clock = new VirtualClock();
  const first = attach(db, { maxAheadMs: 0, id: 'sender', peers: [PEER, OTHER], fetch, batchSize: 10, clock }, [
    'items',
  ]);
  cleanUp(() => first.stop());
  first.nudge();
  await until('the first page is acknowledged', () => pages === 2);
  await first.stop();
  const second = start(db, fetch, { peers: [OTHER], batchSize: 10 });
  // Behind the walk, and pruned before the peer is back.
  db.exec(
    "UPDATE items SET name = 'changed', updated_at = 5000 WHERE id = 'row-000001'; DELETE FROM items WHERE id = 'row-000002'",
  );
  await second.flush();
  expect(count(db, '_changes')).toBe(0);
  await second.stop();
  const third = start(db, fetch, { peers: [PEER, OTHER], batchSize: 10 });
  await third.flush();
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
});

test('a database without rows needs no snapshot', async () => {
  const db = await database();
  const { fetch, sent } = recordingFetch((one) => ({ status: 200, body: `{"ack":${one.batchId}}` }));
  const manager = start(db, fetch);
  expect(manager.health().peer_states[0]).toMatchObject({ snapshot: false });
  await manager.flush();
  expect(sent).toEqual([]);
  write(db, 'a');
  await manager.flush();
  expect(sent.map((one) => [one.batchId, one.changes.length])).toEqual([[1, 1]]);
});

test('attaching again after a snapshot does not repeat it', async () => {
  const receiver = await node({ id: 'receiver' });
  const db = await database();
  writeMany(db, 20);
  const { fetch, sent } = recordingFetch((_one, raw) => receivedBy(receiver.manager, raw));
  const first = start(db, fetch);
  await first.flush();
  await first.stop();
  const before = sent.length;
  const second = start(db, fetch);
  await second.flush();
  await settle();
  expect(sent.length).toBe(before);
});

test('an unreachable peer during a snapshot is tried again and loses nothing; a 413 halves its pages', async () => {
  const receiver = await node({ id: 'receiver' });
  const db = await database();
  writeMany(db, 100);
  let requests = 0;
  const { fetch, sent } = recordingFetch((one, raw) => {
    requests += 1;
    if (requests % 2 === 0) connectionError();
    return one.changes.length > 30 ? { status: 413, body: '' } : receivedBy(receiver.manager, raw);
  });
  const manager = start(db, fetch);
  await manager.flush();
  expect(sent[0]?.changes.length).toBe(100);
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
  expect(manager.deadLetters.list()).toEqual([]);
});

test('a large table and its tombstones reach a new peer over a real socket while writes go on', {
  tags: 'long',
}, async () => {
  const rows = draws(100_000);
  const receiver = await node({ id: 'receiver' });
  const url = await serveManager(receiver.manager);
  const sender = await node({ id: 'sender' });
  writeMany(sender.db, rows);
  sender.db.exec('DELETE FROM items WHERE value % 100 = 0');
  await sender.manager.stop();
  // The peer has one of the deleted rows.
  receiver.manager.applyChanges([
    { op: 'INSERT', table: 'items', row: { id: 'row-000100', name: 'old copy', updated_at: 5 }, old_id: null },
  ]);
  const manager = attach(sender.db, { maxAheadMs: 0, id: 'sender', peers: [url], batchMs: 1 }, ['items']);
  cleanUp(() => manager.stop());
  let acks = 0;
  manager.on('acked', () => {
    acks += 1;
    if (acks % 10 === 0) write(sender.db, `aaa-${acks}`, `zzz-${acks}`);
    if (acks % 10 === 5) sender.db.exec(`DELETE FROM items WHERE value = ${acks}`);
  });
  expect(await manager.flush()).toEqual({ delivered: [url], unreachable: [] });
  const sum = 'SELECT count(*) AS n, sum(value) AS v, sum(updated_at) AS u, min(id) AS low, max(id) AS high FROM items';
  expect(rowsOf(receiver.db, sum)).toEqual(rowsOf(sender.db, sum));
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
  // In many requests, so that the writes above came between them.
  expect(acks).toBeGreaterThan(rows / 5_000);
  // A backlog of this size goes in slices, one a tick.
  await until('nothing is kept any more', () => count(sender.db, '_changes') === 0);
  expect(receiver.all("SELECT count(*) AS n FROM items WHERE id = 'row-000100'")).toEqual([{ n: 0 }]);
});
