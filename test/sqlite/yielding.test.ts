/** Somebody else has the write lock, and may be another connection of this process: everything else goes on meanwhile. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createHandler } from '../../src/http/index.ts';
import { attach, type Config, type Database, type Manager } from '../../src/index.ts';
import { acknowledged, type Reply, recordingFetch } from '../support/bad-servers.ts';
import type { TestDatabase } from '../support/lane.ts';
import {
  attached,
  cleanUp,
  database,
  ITEMS,
  node,
  recording,
  rowsOf,
  scratchFolder,
  type TestNode,
} from '../support/nodes.ts';
import { PEER, pending, write } from '../support/sender.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

/** Whoever waits in SQLite for the whole of it keeps the other connection from ever giving the lock back. */
const LIMIT_MS = 3_000;

const timeoutOf = ({ db }: Pick<TestNode, 'db'>): unknown =>
  Object.values(rowsOf(db, 'PRAGMA busy_timeout')[0] ?? {})[0];

/** A node, and another connection to its file; what the node complains of. */
async function besideAnother(config: Partial<Config> = {}) {
  const path = join(scratchFolder(), 'node.db');
  const it = await node({ path, ...config });
  it.db.exec(`PRAGMA busy_timeout = ${LIMIT_MS}`);
  const other = await database('SELECT 1', path);
  return { ...it, other, complaints: complaintsOf(it.manager) };
}

function complaintsOf(manager: Manager): string[] {
  const complaints: string[] = [];
  manager.on('error', ({ code, message }) => complaints.push(`${code} ${message}`));
  manager.on('warning', ({ message }) => complaints.push(message));
  return complaints;
}

function batch(id: string): Request {
  const row = { id, name: 'n', value: 1, created_at: 1, updated_at: 1000 };
  const body = JSON.stringify({ batch_id: 7, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
  return new Request('http://node.test/sync', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  });
}

/** Everybody else has had many turns. */
const turns = (ms = 200): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

test.each(['BEGIN IMMEDIATE', 'BEGIN EXCLUSIVE'])(
  'a batch waits for the end of %s, and nothing stands still',
  async (begin) => {
    const { db, manager, other, complaints } = await besideAnother();
    const handler = createHandler(manager);
    other.exec(begin);
    const answer = handler(batch('a'));
    const lived = handler(new Request('http://node.test/livez'));
    expect((await lived).status).toBe(200);
    await turns();
    expect(rowsOf(db, 'SELECT id FROM items')).toEqual([]);
    other.exec('COMMIT');
    expect(await (await answer).json()).toEqual({ applied: 1, ack: 7 });
    expect(complaints).toEqual([]);
    expect(manager.health()).toMatchObject({ ok: true });
    expect(timeoutOf({ db })).toBe(LIMIT_MS);
  },
);

test('without a WAL, one who lets nobody read is waited for in the same way', async () => {
  const path = join(scratchFolder(), 'node.db');
  const db = await database(undefined, path);
  db.exec(`PRAGMA journal_mode = DELETE; PRAGMA busy_timeout = ${LIMIT_MS}`);
  const manager = attached(db);
  const complaints = complaintsOf(manager);
  const other = await database('SELECT 1', path);
  other.exec('PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE');
  const answer = createHandler(manager)(batch('a'));
  await turns();
  other.exec('COMMIT');
  expect(await (await answer).json()).toEqual({ applied: 1, ack: 7 });
  expect(complaints).toEqual([]);
  expect(timeoutOf({ db })).toBe(LIMIT_MS);
});

test('a lock that is kept for longer than the application lets SQLite wait is told as ever, once', async () => {
  const { db, manager, other, complaints } = await besideAnother();
  db.exec('PRAGMA busy_timeout = 100');
  other.exec('BEGIN IMMEDIATE');
  const answer = await createHandler(manager)(batch('a'));
  expect(answer.status).toBe(503);
  expect(complaints).toEqual([
    expect.stringMatching(/^DATABASE_BUSY another connection \(of this process or another\)/),
  ]);
  other.exec('ROLLBACK');
  expect((await createHandler(manager)(batch('a'))).status).toBe(200);
});

test('a call that must be done when it returns waits itself, for as long as the application has said', async () => {
  const { db, manager, other } = await besideAnother();
  db.exec('PRAGMA busy_timeout = 50');
  other.exec('BEGIN IMMEDIATE');
  const busy = expect.objectContaining({ code: 'DATABASE_BUSY' });
  expect(() => manager.migrate('ALTER TABLE items ADD COLUMN more TEXT')).toThrow(busy);
  expect(() => manager.peers.add(PEER)).toThrow(busy);
  expect(() => manager.applyChanges([])).toThrow(busy);
  expect(timeoutOf({ db })).toBe(50);
  other.exec('ROLLBACK');
  manager.peers.add(PEER);
});

/** A node with a peer, on a clock that is moved by hand, and all the limits under which it asks for the lock. */
async function sender(answer: (sent: Parameters<typeof acknowledged>[0]) => Reply = acknowledged) {
  const path = join(scratchFolder(), 'node.db');
  const clock = new VirtualClock();
  const db = await database(undefined, path);
  db.exec(`PRAGMA busy_timeout = ${LIMIT_MS}`);
  const { handle, sql } = recording(db);
  const { fetch, sent } = recordingFetch(answer);
  const manager = attached(handle, { peers: [PEER], clock, fetch, random: () => 0 });
  const limits = (): number[] =>
    sql.flatMap((text, i) => {
      if (text !== 'BEGIN IMMEDIATE') return [];
      const set = sql.slice(0, i).findLast((one) => /busy_timeout = /.test(one));
      return [Number(/\d+$/.exec(set ?? `= ${LIMIT_MS}`)?.[0])];
    });
  const other = await database('SELECT 1', path);
  await clock.advance(1_000);
  sql.length = 0;
  return { db, manager, clock, sent, other, sql, limits, complaints: complaintsOf(manager) };
}

test('what is sent and noted waits for a lock briefly, then not at all, and goes on when it is free', async () => {
  const it = await sender();
  write(it.db, 'a');
  it.other.exec('BEGIN IMMEDIATE');
  let flushed: unknown;
  const flushing = it.manager.flush().then((result) => (flushed = result));
  await it.clock.advance(1_000);
  const limits = it.limits();
  expect(limits.length).toBeGreaterThan(10);
  expect(limits[0]).toBe(20);
  expect(new Set(limits.slice(1))).toEqual(new Set([0]));
  expect(it.sent).toEqual([]);
  expect(flushed).toBeUndefined();
  it.other.exec('COMMIT');
  await it.clock.advance(1_000);
  await flushing;
  expect(flushed).toEqual({ delivered: [PEER], unreachable: [] });
  expect(it.sent.length).toBe(1);
  expect(pending(it)).toBe(0);
  expect(it.complaints).toEqual([]);
  expect(timeoutOf(it)).toBe(LIMIT_MS);
});

test('an acknowledgement that comes while the lock is held is noted later: nothing is sent twice', async () => {
  const lock: (() => void)[] = [];
  const it = await sender((sent) => {
    for (const take of lock.splice(0)) take();
    return acknowledged(sent);
  });
  lock.push(() => it.other.exec('BEGIN IMMEDIATE'));
  write(it.db, 'a');
  await it.clock.advance(1_000);
  expect(pending(it)).toBe(1);
  it.other.exec('COMMIT');
  await it.clock.advance(1_000);
  expect(pending(it)).toBe(0);
  expect(it.sent.length).toBe(1);
  expect(it.complaints).toEqual([]);
});

test('shipping complains of a lock that is kept for too long, and not before', async () => {
  const it = await sender();
  write(it.db, 'a');
  it.other.exec('BEGIN IMMEDIATE');
  await it.clock.advance(LIMIT_MS - 500);
  expect(it.complaints).toEqual([]);
  await it.clock.advance(1_000);
  expect(it.complaints).toEqual([expect.stringMatching(/^DATABASE_BUSY/)]);
  it.other.exec('ROLLBACK');
});

test('where nobody has the lock, a transaction asks for the limit once, sets it, and puts it back', async () => {
  const it = await sender();
  write(it.db, 'a');
  await it.clock.advance(1_000);
  const about = it.sql.filter((text) => /busy_timeout|BEGIN IMMEDIATE/.test(text));
  // What need not be written now is written with a limit of 0, and is no transaction of these.
  const own = about.join(';').replaceAll(around(0), '').split(';').filter(Boolean);
  expect(own.length).toBeGreaterThan(0);
  expect(own.join(';').replaceAll(around(20), '').replaceAll(';', '')).toBe('');
});

/** The lock is asked for within a limit, and the one before is put back. */
function around(ms: number): string {
  const [set, back] = [ms, LIMIT_MS].map((limit) => `PRAGMA busy_timeout = ${limit}`);
  return `PRAGMA busy_timeout;${set};BEGIN IMMEDIATE;${back}`;
}

test('stop takes its leave when the lock is free, and lets go of its statements', async () => {
  const it = await sender();
  it.other.exec('BEGIN IMMEDIATE');
  let isOver = false;
  const stopped = it.manager.stop().then(() => {
    isOver = true;
  });
  await it.clock.advance(500);
  expect(isOver).toBe(false);
  it.other.exec('COMMIT');
  await it.clock.advance(500);
  await stopped;
  expect(rowsOf(it.db, 'SELECT * FROM _attachments')).toEqual([]);
});

test('a body is not read again and again while it waits', async () => {
  const path = join(scratchFolder(), 'node.db');
  const { handle, sql } = recording(await database(undefined, path));
  const manager = attached(handle);
  const other = await database('SELECT 1', path);
  const text = await batch('a').text();
  other.exec('BEGIN IMMEDIATE');
  const receive = (): number => manager.receive(text, { comesAgain: true }).status;
  expect(receive()).toBe(503);
  const read = (): number => sql.filter((text) => text.includes('json_valid')).length;
  const before = read();
  expect([receive(), receive(), receive()]).toEqual([503, 503, 503]);
  expect(read()).toBe(before);
  other.exec('COMMIT');
  expect(receive()).toBe(200);
  expect(read()).toBeGreaterThan(before);
});

test.each([
  ['', (db: TestDatabase): Database => db],
  [', by a handle that does not say so', (db: TestDatabase): Database => silent(db)],
])('a transaction in which the application reads does not come to have the write lock by us%s', async (_, given) => {
  const path = join(scratchFolder(), 'node.db');
  const db = await database(`PRAGMA journal_mode = WAL; ${ITEMS}`, path);
  const manager = attach(given(db), { id: 'here', peers: [], maxAheadMs: 0 }, ['items']);
  cleanUp(() => manager.stop());
  const other = await database('PRAGMA busy_timeout = 0', path);
  db.exec('BEGIN');
  db.prepare('SELECT count(*) AS n FROM items').all();
  manager.health();
  expect(() => manager.deadLetters.discard(7)).toThrow();
  expect(manager.receive('{"batch_id":1,"changes":[]}').status).toBe(503);
  other.exec("INSERT INTO items (id, updated_at) VALUES ('b', 1)");
  db.exec('COMMIT');
  expect(manager.health()).toMatchObject({ ok: true, item_count: 1 });
});

function silent(db: TestDatabase): Database {
  return { exec: (sql) => db.exec(sql), prepare: (sql) => db.prepare(sql), transaction: (fn) => db.transaction(fn) };
}
