import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { attach, type Database, RowcastError, type RowcastEvents, type Statement } from '../../src/index.ts';
import {
  acknowledged,
  badSocket,
  connectionError,
  never,
  type Reply,
  receivedBy,
  recordingFetch,
  type Sent,
} from '../support/bad-servers.ts';
import { betterSqlite3, lane, openDatabase, type TestDatabase } from '../support/lane.ts';
import {
  cleanUp,
  database,
  exactRows,
  ITEMS,
  type NodeOptions,
  node,
  rowsOf,
  scratchFolder,
  serveManager,
  type TestNode,
  until,
} from '../support/nodes.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

const PEER = 'http://peer.test';
const TIMEOUT = 30_000;
const ROUND = [50, 100, 200, 400, 800];

interface Rig extends TestNode {
  clock: VirtualClock;
  sent: Sent[];
  /** When each request went out, counted from the start. */
  times: number[];
  events: string[];
  /** The pauses between attempts and ticks, without the limits on requests and the slow loop that retries parked changes. */
  pauses(): number[];
}

/** A sender on a virtual clock, whose network is `answer`. */
async function rig(answer: (sent: Sent, raw: Uint8Array) => Reply | Promise<Reply>, options: NodeOptions = {}) {
  const clock = new VirtualClock();
  const start = clock.now();
  const times: number[] = [];
  const network = recordingFetch((sent, raw) => {
    times.push(clock.now() - start);
    return answer(sent, raw);
  });
  const made = await node({
    id: 'sender',
    peers: [PEER],
    clock,
    random: () => 0,
    requestTimeoutMs: TIMEOUT,
    fetch: network.fetch,
    ...options,
  });
  const events: string[] = [];
  for (const name of ['peer-up', 'peer-down', 'dead-letter', 'acked', 'error'] as const) {
    made.manager.on(name, () => events.push(name));
  }
  const pauses = (): number[] => clock.requested.filter((ms) => ms < 1_000);
  return { ...made, clock, sent: network.sent, times, events, pauses } satisfies Rig;
}

function write(db: TestDatabase, ...ids: string[]): void {
  for (const id of ids) db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(id, `name of ${id}`);
}

function writeMany(db: TestDatabase, count: number, name = 'x'): void {
  db.prepare(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO items SELECT printf('row-%06d', i), ?, i, 10, 1000 FROM n",
  ).run(count, name);
}

const pending = (one: { db: TestDatabase }): number =>
  Number(rowsOf(one.db, 'SELECT count(*) AS n FROM _changes')[0]?.n);
const idsOf = (sent: Sent): unknown[] => sent.changes.map((change) => change.row.id);

test('a batch is a POST to /sync with its headers, its highest change_id and its changes in order', async () => {
  let seen: { url: string; init: Record<string, unknown> } | undefined;
  const db = await database();
  const manager = attach(
    db,
    {
      id: 'node-7',
      peers: ['http://peer.test/base/'],
      fetch: async (url, init) => {
        seen = { url, init: { ...init } };
        return { status: 200, text: async () => '{"applied":2,"ack":2}' };
      },
    },
    ['items'],
  );
  cleanUp(() => manager.stop());
  write(db, 'a');
  db.exec("DELETE FROM items WHERE id = 'a'");
  await manager.flush();
  expect(seen?.url).toBe('http://peer.test/base/sync');
  expect(seen?.init).toMatchObject({ method: 'POST', redirect: 'manual' });
  const headers = new Headers(seen?.init.headers as Record<string, string>);
  expect(headers.get('content-type')).toBe('application/json');
  expect(headers.get('x-node-id')).toBe('node-7');
  const row = { id: 'a', name: 'name of a', value: 1, created_at: 10, updated_at: 1000 };
  expect(JSON.parse(new TextDecoder().decode(seen?.init.body as Uint8Array))).toEqual({
    batch_id: 2,
    changes: [
      { op: 'INSERT', table: 'items', row, old_id: null },
      { op: 'DELETE', table: 'items', row, old_id: 'a' },
    ],
  });
});

test.each([
  ['of one kind', "INSERT INTO items VALUES ('c', 'three', 3, 10, 1000)"],
  ['of several', "DELETE FROM items WHERE id = 'a'"],
])('changes %s are spelt the same', async (_kinds, last) => {
  const bodies: string[] = [];
  const { db, clock } = await rig((sent, raw) => {
    bodies.push(new TextDecoder().decode(raw));
    return acknowledged(sent);
  });
  db.exec(`INSERT INTO items VALUES ('a', 'one "1"', 1, 10, 1000), ('b', NULL, 2, 10, 1000); ${last}`);
  await clock.advance(0);
  expect(bodies).toHaveLength(1);
  expect(bodies[0]?.split(',{"op"').slice(0, 2)).toEqual([
    '{"batch_id":3,"changes":[{"op":"INSERT","table":"items","row":{"id":"a","name":"one \\"1\\"","value":1,"created_at":10,"updated_at":1000},"old_id":null}',
    ':"INSERT","table":"items","row":{"id":"b","name":null,"value":2,"created_at":10,"updated_at":1000},"old_id":null}',
  ]);
});

test('an unreachable peer is tried after exactly 50, 100, 200, 400 and 800 ms, then on the next tick, and so on', async () => {
  const { db, clock, times, pauses, events } = await rig(connectionError, { batchMs: 70 });
  write(db, 'a', 'b');
  await clock.advance(1_549);
  expect(times).toEqual([0, 50, 150, 350, 750]);
  await clock.advance(1 + 69);
  expect(times.length).toBe(5);
  await clock.advance(1);
  expect(times.at(-1)).toBe(1_620);
  await clock.advance(1_620);
  expect(times.slice(5, 10)).toEqual([0, 50, 150, 350, 750].map((ms) => ms + 1_620));
  expect(pauses().slice(0, 13)).toEqual([0, ...ROUND, 70, ...ROUND, 70]);
  expect(events).toEqual(['peer-down']);
  expect(pending({ db })).toBe(2);
});

test('after a success the delays start anew', async () => {
  let broken = true;
  const { db, clock, pauses, events } = await rig((sent) => (broken ? connectionError() : acknowledged(sent)));
  write(db, 'a');
  await clock.advance(349);
  expect(pauses()).toEqual([0, 50, 100, 200]);
  broken = false;
  await clock.advance(1);
  expect(pending({ db })).toBe(0);
  broken = true;
  write(db, 'b');
  await clock.advance(50);
  expect(pauses()).toEqual([0, 50, 100, 200, 50, 50]);
  await clock.advance(50);
  expect(pauses().slice(-2)).toEqual([50, 100]);
  expect(events).toEqual(['peer-up', 'acked']);
});

test('a success within a drain resets the delays for the next batch', async () => {
  const script = ['down', 'down', 'ok', 'down', 'ok'];
  const { db, clock, pauses } = await rig(
    (sent) => (script.shift() === 'down' ? connectionError() : acknowledged(sent)),
    {
      batchSize: 1,
    },
  );
  write(db, 'a', 'b');
  await clock.advance(199);
  expect(pauses()).toEqual([0, 50, 100, 50]);
  expect(pending({ db })).toBe(1);
  await clock.advance(1);
  expect(pending({ db })).toBe(0);
});

test('a request that takes too long is given up after exactly the configured time', async () => {
  const { db, clock, sent, manager, pauses } = await rig(never, { requestTimeoutMs: 900 });
  write(db, 'a');
  await clock.advance(899);
  expect(sent.length).toBe(1);
  expect(pauses()).toEqual([0, 900]);
  await clock.advance(1);
  expect(pauses()).toEqual([0, 900, 50]);
  await clock.advance(50);
  expect(sent.length).toBe(2);
  expect(manager.health().peer_states[0]?.last_error).toContain('900 ms');
});

test('five refusals with the same delays come before isolation', async () => {
  const { db, clock, sent, times, pauses } = await rig((one) =>
    one.changes.length > 1 ? { status: 422, body: '{"error":"no"}' } : acknowledged(one),
  );
  write(db, 'a', 'b', 'c', 'd');
  await clock.advance(749);
  expect(sent.map((one) => one.changes.length)).toEqual([4, 4, 4, 4]);
  await clock.advance(1_000);
  expect(times.slice(0, 5)).toEqual([0, 50, 150, 350, 750]);
  expect(sent.slice(0, 6).map((one) => one.changes.length)).toEqual([4, 4, 4, 4, 4, 2]);
  expect(pauses().slice(0, 5)).toEqual([0, 50, 100, 200, 400]);
  expect(pending({ db })).toBe(0);
});

test('peer-down comes once however long the peer is away, and peer-up once when it is back', async () => {
  let up = false;
  const { db, clock, events } = await rig((sent) => (up ? acknowledged(sent) : connectionError()));
  write(db, 'a');
  await clock.advance(20_000);
  expect(events).toEqual(['peer-down']);
  up = true;
  await clock.advance(2_000);
  write(db, 'b');
  await clock.advance(2_000);
  expect(events.filter((name) => name !== 'acked')).toEqual(['peer-down', 'peer-up']);
  up = false;
  write(db, 'c');
  await clock.advance(20_000);
  up = true;
  await clock.advance(2_000);
  expect(events.filter((name) => name !== 'acked')).toEqual(['peer-down', 'peer-up', 'peer-down', 'peer-up']);
});

test('the loop looks every batchMs, and the first look comes after a part of it that chance decides', async () => {
  const { db, clock, sent, pauses } = await rig(acknowledged, { batchMs: 200, random: () => 0.25 });
  await settle();
  expect(pauses()).toEqual([50]);
  await clock.advance(50);
  write(db, 'a');
  await clock.advance(199);
  expect(sent.length).toBe(0);
  await clock.advance(1);
  expect(sent.length).toBe(1);
  await clock.advance(600);
  expect(sent.length).toBe(1);
  expect(pauses()).toEqual([50, 200, 200, 200, 200, 200]);
});

test('one tick drains everything, batch after batch, without a pause', async () => {
  const { db, sent, manager, clock } = await rig(acknowledged, { batchSize: 10 });
  writeMany(db, 25);
  await clock.advance(0);
  expect(sent.map((one) => one.changes.length)).toEqual([10, 10, 5]);
  expect(sent.map((one) => one.batchId)).toEqual([10, 20, 25]);
  expect(pending({ db })).toBe(0);
  expect(manager.health().peer_states[0]).toMatchObject({ pending: 0, last_acked: 25, state: 'up' });
});

test('what is written while a drain goes on belongs to the same drain', async () => {
  const made = await rig(
    (sent) => {
      if (sent.batchId === 10) write(made.db, 'late');
      return acknowledged(sent);
    },
    { batchSize: 10 },
  );
  writeMany(made.db, 20);
  await made.clock.advance(0);
  expect(made.sent.flatMap(idsOf).at(-1)).toBe('late');
  expect(pending(made)).toBe(0);
});

test('nudge ships without waiting for the tick', async () => {
  const { db, clock, sent, manager } = await rig(acknowledged, { batchMs: 60_000 });
  await clock.advance(0);
  write(db, 'a');
  await clock.advance(1_000);
  expect(sent.length).toBe(0);
  manager.nudge();
  await settle();
  expect(sent.length).toBe(1);
  expect(clock.now() - 1_700_000_000_000).toBe(1_000);
});

test('a nudge during a pass is not forgotten', async () => {
  let answer: ((reply: Reply) => void) | undefined;
  const { db, clock, sent, manager } = await rig(
    (one) => (one.batchId === 1 ? new Promise((resolve) => (answer = resolve)) : acknowledged(one)),
    { batchMs: 60_000 },
  );
  write(db, 'a');
  await clock.advance(0);
  write(db, 'b');
  manager.nudge();
  answer?.({ status: 200, body: '{"ack":1}' });
  await settle();
  expect(sent.map((one) => one.batchId)).toEqual([1, 2]);
});

test('flush resolves with who has everything and who could not be reached', async () => {
  const { db, manager, clock } = await rig(
    (sent) => (sent.url.includes('dead') ? connectionError() : acknowledged(sent)),
    {
      peers: ['http://dead.test', 'http://live.test'],
    },
  );
  write(db, 'a');
  const flushed = manager.flush();
  await clock.advance(2_000);
  expect(await flushed).toEqual({ delivered: ['http://live.test'], unreachable: ['http://dead.test'] });
});

test('flush with nothing pending resolves, and so does one of a node without peers', async () => {
  const { manager } = await rig(acknowledged);
  expect(await manager.flush()).toEqual({ delivered: [PEER], unreachable: [] });
  const alone = await node();
  expect(await alone.manager.flush()).toEqual({ delivered: [], unreachable: [] });
});

test('flush covers what was written just before it, although a request is under way', async () => {
  let answer: ((reply: Reply) => void) | undefined;
  const { db, clock, manager } = await rig((one) =>
    one.batchId === 1 ? new Promise((resolve) => (answer = resolve)) : acknowledged(one),
  );
  write(db, 'a');
  await clock.advance(0);
  write(db, 'b');
  let done = false;
  const flushed = manager.flush().then((result) => {
    done = true;
    return result;
  });
  await settle();
  expect(done).toBe(false);
  answer?.({ status: 200, body: '{"ack":1}' });
  expect(await flushed).toEqual({ delivered: [PEER], unreachable: [] });
  expect(pending({ db })).toBe(0);
});

test('stop ends a request under way and a flush that waits for it; afterwards no sleep is pending', async () => {
  const { db, clock, manager, sent } = await rig(never);
  write(db, 'a');
  await clock.advance(0);
  expect(sent.length).toBe(1);
  const flushed = manager.flush();
  await manager.stop();
  expect(await flushed).toEqual({ delivered: [], unreachable: [PEER] });
  expect(clock.pending).toBe(0);
  expect(pending({ db })).toBe(1);
  await expect(manager.flush()).rejects.toMatchObject({ code: 'STOPPED' });
  manager.nudge();
  await clock.advance(10_000);
  expect(sent.length).toBe(1);
});

test('stop ends a backoff pause at once, and twice is as good as once', async () => {
  const { db, clock, manager, sent } = await rig(connectionError);
  write(db, 'a');
  await clock.advance(60);
  expect(sent.length).toBe(2);
  await Promise.all([manager.stop(), manager.stop()]);
  await manager.stop();
  expect(clock.pending).toBe(0);
  expect(sent.length).toBe(2);
});

test('after stop capture goes on and a new attach ships what was captured', async () => {
  const first = await rig(acknowledged);
  await first.manager.stop();
  write(first.db, 'a');
  const { sent, fetch } = recordingFetch(acknowledged);
  const again = attach(first.db, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch }, ['items']);
  cleanUp(() => again.stop());
  await again.flush();
  expect(sent.map(idsOf)).toEqual([['a']]);
});

test('stop can be awaited while a real peer hangs', async () => {
  const hanging = await badSocket(() => {});
  const { db, manager } = await node({ peers: [hanging.url], batchMs: 1 });
  write(db, 'a');
  await until('the request is out', () => hanging.answered() === 1);
  await manager.stop();
  expect(pending({ db })).toBe(1);
});

test('no batch has more changes than batchSize', async () => {
  const { db, clock, sent } = await rig(acknowledged, { batchSize: 7 });
  writeMany(db, 50);
  await clock.advance(0);
  expect(Math.max(...sent.map((one) => one.changes.length))).toBe(7);
  expect(sent.flatMap(idsOf).length).toBe(50);
});

test.each(['tail', 'snapshot'])('no batch has more bytes than maxBatchBytes, in the %s', async (part) => {
  const max = 4_096;
  const fill = (db: TestDatabase): void => {
    db.exec('BEGIN');
    for (let i = 0; i < 1_000; i++) {
      db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(`row-${i}`, `ä${'x'.repeat((i * 7) % 90)}`);
    }
    // A long id is carried twice by a deletion.
    for (let i = 0; i < 20; i++) {
      db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(`${'long'.repeat(100)}-${i}`, 'x');
    }
    db.exec("DELETE FROM items WHERE id LIKE 'long%'");
    db.exec('COMMIT');
  };
  const before = await node();
  if (part === 'snapshot') fill(before.db);
  await before.manager.stop();
  const { sent, fetch } = recordingFetch(acknowledged);
  const manager = attach(before.db, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch, maxBatchBytes: max }, [
    'items',
  ]);
  cleanUp(() => manager.stop());
  if (part === 'tail') fill(before.db);
  await manager.flush();
  expect(sent.length).toBeGreaterThan(5);
  expect(sent.filter((one) => one.bytes > max).map((one) => one.bytes)).toEqual([]);
});

test.each(['tail', 'snapshot'])('a change larger than maxBatchBytes still goes, alone, in the %s', async (part) => {
  const fill = (db: TestDatabase): void => {
    write(db, 'a', 'b');
    db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run('c-big', 'x'.repeat(10_000));
    write(db, 'd', 'e');
  };
  const before = await node();
  if (part === 'snapshot') fill(before.db);
  await before.manager.stop();
  const { sent, fetch } = recordingFetch(acknowledged);
  const manager = attach(before.db, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch, maxBatchBytes: 2_048 }, [
    'items',
  ]);
  cleanUp(() => manager.stop());
  if (part === 'tail') fill(before.db);
  await manager.flush();
  expect(sent.map(idsOf)).toEqual([['a', 'b'], ['c-big'], ['d', 'e']]);
});

test('nothing of a transaction is shipped before COMMIT', async () => {
  const { db, clock, sent, events } = await rig(acknowledged);
  write(db, 'before');
  db.exec('BEGIN');
  write(db, 'inside');
  await clock.advance(5_000);
  expect(sent).toEqual([]);
  db.exec('COMMIT');
  await clock.advance(50);
  expect(sent.map(idsOf)).toEqual([['before', 'inside']]);
  expect(events).toEqual(['peer-up', 'acked']);
});

test('nothing at all of a transaction is shipped after ROLLBACK', async () => {
  const { db, clock, sent, manager } = await rig(acknowledged);
  write(db, 'before');
  await clock.advance(50);
  db.exec('BEGIN IMMEDIATE');
  write(db, 'inside');
  manager.nudge();
  await clock.advance(5_000);
  const flushed = manager.flush();
  await settle();
  db.exec('ROLLBACK');
  await flushed;
  await clock.advance(5_000);
  expect(sent.map(idsOf)).toEqual([['before']]);
  write(db, 'after');
  await clock.advance(50);
  expect(sent.map(idsOf)).toEqual([['before'], ['after']]);
});

test('an answer that comes while the application has a transaction open does not join that transaction', async () => {
  let answer: ((reply: Reply) => void) | undefined;
  let asked = 0;
  const { db, clock, sent, events } = await rig((one) => {
    asked += 1;
    return asked === 1 ? new Promise((resolve) => (answer = resolve)) : acknowledged(one);
  });
  write(db, 'a');
  await clock.advance(0);
  db.exec('BEGIN');
  write(db, 'b');
  answer?.({ status: 200, body: '{"ack":1}' });
  await clock.advance(5_000);
  db.exec('ROLLBACK');
  expect(rowsOf(db, 'SELECT row_id FROM _changes').length).toBeLessThanOrEqual(1);
  await clock.advance(5_000);
  expect(pending({ db })).toBe(0);
  expect(new Set(sent.flatMap(idsOf))).toEqual(new Set(['a']));
  expect(events).not.toContain('error');
});

test('events carry what they say', async () => {
  let mode: 'down' | 'refuse' | 'ok' = 'down';
  const made = await rig((sent) =>
    mode === 'down'
      ? connectionError()
      : mode === 'refuse'
        ? { status: 422, body: '{"error":"not you"}' }
        : acknowledged(sent),
  );
  const log: [string, unknown][] = [];
  const { manager, db, clock } = made;
  manager.on('acked', (event: RowcastEvents['acked']) => log.push(['acked', event]));
  manager.on('peer-up', (event: { peer: string }) => log.push(['peer-up', event]));
  manager.on('peer-down', (event: { peer: string; reason: string }) => log.push(['peer-down', event]));
  const off = manager.on('dead-letter', (event: RowcastEvents['dead-letter']) => log.push(['dead-letter', event]));
  write(db, 'a', 'b');
  await clock.advance(1_600);
  mode = 'ok';
  await clock.advance(2_000);
  mode = 'refuse';
  write(db, 'c');
  await clock.advance(2_000);
  expect(log).toEqual([
    ['peer-down', { peer: PEER, reason: expect.stringContaining('ECONNREFUSED') }],
    ['peer-up', { peer: PEER }],
    ['acked', { peer: PEER, batchId: 2, changes: 2 }],
    [
      'dead-letter',
      {
        direction: 'out',
        peer: PEER,
        code: 'refused',
        reason: expect.stringContaining('not you'),
        rows: [{ op: 'INSERT', table: 'items', id: 'c' }],
      },
    ],
  ]);
  off();
  write(db, 'd');
  await clock.advance(2_000);
  expect(log.length).toBe(4);
  expect(manager.deadLetters.list().length).toBe(2);
});

test('a listener that throws disturbs neither the loop nor the other listeners', async () => {
  const { manager, db, clock } = await rig(acknowledged);
  const errors: RowcastError[] = [];
  let heard = 0;
  manager.on('acked', () => {
    throw new Error('mine');
  });
  manager.on('acked', () => {
    heard += 1;
  });
  manager.on('error', (error) => errors.push(error));
  write(db, 'a');
  await clock.advance(50);
  write(db, 'b');
  await clock.advance(50);
  expect(heard).toBe(2);
  expect(pending({ db })).toBe(0);
  expect(errors.map((error) => error.code)).toEqual(['LISTENER_FAILED', 'LISTENER_FAILED']);
});

/** The same handle, with a look at everything that passes through it. */
function watched(db: TestDatabase, before: (sql: string) => void): Database {
  const around = (sql: string, statement: Statement): Statement => ({
    run: (...params) => {
      before(sql);
      return statement.run(...params);
    },
    get: (...params) => {
      before(sql);
      return statement.get(...params);
    },
    all: (...params) => {
      before(sql);
      return statement.all(...params);
    },
  });
  return {
    exec: (sql) => {
      before(sql);
      return db.exec(sql);
    },
    prepare: (sql) => around(sql, db.prepare(sql)),
    transaction: (fn) => db.transaction(fn),
  };
}

test('a failure of our own database is an error event, and the loop goes on', async () => {
  const db = await database();
  let broken = false;
  const handle = watched(db, (sql) => {
    if (broken && sql.startsWith('BEGIN')) throw new Error('disk I/O error');
  });
  const clock = new VirtualClock();
  const { fetch, sent } = recordingFetch(acknowledged);
  const manager = attach(handle, { maxAheadMs: 0, id: 'sender', peers: [PEER], clock, fetch, random: () => 0 }, [
    'items',
  ]);
  cleanUp(() => manager.stop());
  const errors: RowcastError[] = [];
  manager.on('error', (error) => errors.push(error));
  broken = true;
  write(db, 'a');
  await clock.advance(120);
  expect(sent).toEqual([]);
  expect(errors.length).toBeGreaterThanOrEqual(2);
  expect(errors[0]).toBeInstanceOf(RowcastError);
  expect(errors[0]).toMatchObject({ code: 'DATABASE_FAILED', message: expect.stringContaining('disk I/O error') });
  broken = false;
  await clock.advance(50);
  expect(sent.map(idsOf)).toEqual([['a']]);
  expect(pending({ db })).toBe(0);
});

test('a failure while the next batch is made ready does not drown the answer to the one under way', async () => {
  const db = await database();
  let broken = false;
  const handle = watched(db, (sql) => {
    if (broken && sql.startsWith('BEGIN')) throw new Error('disk I/O error');
  });
  const { fetch, sent } = recordingFetch(async (one) => {
    broken = true;
    await settle();
    broken = false;
    return acknowledged(one);
  });
  const clock = new VirtualClock();
  const manager = attach(handle, { maxAheadMs: 0, id: 'sender', peers: [PEER], clock, fetch, batchSize: 2 }, ['items']);
  cleanUp(() => manager.stop());
  writeMany(db, 4);
  await manager.flush();
  expect(sent.map((one) => one.batchId)).toEqual([2, 4]);
  expect(pending({ db })).toBe(0);
});

test('what is sent was flushed to disk before, although the application runs with synchronous=NORMAL', async () => {
  const path = join(scratchFolder(), 'a.db');
  const db = await database(ITEMS, path);
  db.exec('PRAGMA synchronous = NORMAL');
  const level = (): number => Number(Object.values(rowsOf(db, 'PRAGMA synchronous')[0] ?? {})[0]);
  const last = (): number => Number(rowsOf(db, 'SELECT max(change_id) AS n FROM _changes')[0]?.n);
  /** The newest change that a commit with synchronous=FULL has covered; only a commit that wrote something flushes. */
  let flushedUpTo = 0;
  let wrote = false;
  const handle = watched(db, (sql) => {
    if (sql.startsWith('BEGIN')) wrote = false;
    if (/^(INSERT|UPDATE|DELETE)/.test(sql)) wrote = true;
    if (sql === 'COMMIT' && level() >= 2 && wrote) flushedUpTo = last();
  });
  const { fetch, sent } = recordingFetch((one) => {
    expect(flushedUpTo).toBeGreaterThanOrEqual(one.batchId);
    return acknowledged(one);
  });
  const manager = attach(handle, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch, batchSize: 2 }, ['items']);
  cleanUp(() => manager.stop());
  for (const id of ['a', 'b', 'c', 'd', 'e']) {
    write(db, id, `${id}2`, `${id}3`);
    await manager.flush();
  }
  expect(pending({ db })).toBe(0);
  expect(sent.flatMap(idsOf).length).toBe(15);
  expect(level()).toBe(1);
});

test('after a crash a new attach sends again what was not acknowledged, and nothing else', async () => {
  const path = join(scratchFolder(), 'a.db');
  const first = await rig((sent) => (sent.batchId <= 4 ? acknowledged(sent) : never()), { path, batchSize: 2 });
  writeMany(first.db, 10);
  await first.clock.advance(0);
  expect(first.sent.map((one) => one.batchId)).toEqual([2, 4, 6]);
  // The first process is as good as dead: its request hangs and its clock stands still.
  const db = await openDatabase(path);
  cleanUp(() => db.close());
  const { sent, fetch } = recordingFetch(acknowledged);
  const manager = attach(db, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch, batchSize: 2 }, ['items']);
  cleanUp(() => manager.stop());
  await manager.flush();
  expect(sent.map((one) => one.batchId)).toEqual([6, 8, 10]);
  expect(pending({ db })).toBe(0);
});

test('a lost acknowledgement means that the same batch is sent again, and the end is the same', async () => {
  const receiver = await node({ id: 'receiver' });
  let lost = 3;
  const { db, clock, sent } = await rig((_sent, raw) => {
    const reply = receivedBy(receiver.manager, raw);
    lost -= 1;
    return lost >= 0 ? connectionError() : reply;
  });
  write(db, 'a', 'b');
  await clock.advance(2_000);
  expect(sent.length).toBe(4);
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
  expect(pending({ db })).toBe(0);
});

test('ids never start again after a drain, not even after another attach', async () => {
  const { db, clock, sent, manager } = await rig(acknowledged);
  write(db, 'a', 'b', 'c');
  await clock.advance(50);
  expect(pending({ db })).toBe(0);
  write(db, 'd');
  await clock.advance(50);
  await manager.stop();
  const second = recordingFetch(acknowledged);
  const again = attach(db, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch: second.fetch }, ['items']);
  cleanUp(() => again.stop());
  write(db, 'e');
  await again.flush();
  expect([...sent, ...second.sent].map((one) => one.batchId)).toEqual([3, 4, 5]);
});

test('an acknowledgement deletes nothing that was written after its batch was read', async () => {
  let answer: ((reply: Reply) => void) | undefined;
  const { db, clock } = await rig((one) =>
    one.batchId === 2 ? new Promise((resolve) => (answer = resolve)) : never(),
  );
  write(db, 'a', 'b');
  await clock.advance(0);
  write(db, 'c');
  answer?.({ status: 200, body: '{"ack":2}' });
  await settle();
  expect(rowsOf(db, 'SELECT change_id, row_id FROM _changes')).toEqual([{ change_id: 3, row_id: 'c' }]);
});

test('an answer that comes after its request was given up changes nothing', async () => {
  const answers: ((reply: Reply) => void)[] = [];
  const { db, clock, events } = await rig(() => new Promise((resolve) => answers.push(resolve)));
  write(db, 'a');
  await clock.advance(TIMEOUT + 50);
  expect(answers.length).toBe(2);
  answers[0]?.({ status: 200, body: '{"ack":1}' });
  await settle();
  expect(pending({ db })).toBe(1);
  expect(events).toEqual([]);
});

test('a process that attaches, ships, stops and closes exits by itself', async () => {
  const receiver = await node({ id: 'receiver' });
  const url = await serveManager(receiver.manager);
  const folder = await compiled();
  const open = {
    'better-sqlite3': `import { createRequire } from 'node:module';
const db = new (createRequire(import.meta.url)(process.env.BINDING))(process.env.DB);`,
    'node-sqlite': `import { DatabaseSync } from 'node:sqlite'; import { fromNodeSqlite } from './sqlite/node-sqlite.js';
const raw = new DatabaseSync(process.env.DB); const db = Object.assign(fromNodeSqlite(raw), { close: () => raw.close() });`,
    'bun-sqlite': `import { Database } from 'bun:sqlite'; const db = new Database(process.env.DB);`,
  }[lane];
  writeFileSync(
    join(folder, 'child.js'),
    `import { attach } from './index.js'; ${open}
db.exec(${JSON.stringify(ITEMS)});
const manager = attach(db, { id: 'child', peers: [process.env.PEER, 'http://127.0.0.1:1'] }, ['items']);
db.exec("INSERT INTO items VALUES ('a', 'from a child', 1, 10, 1000)");
await new Promise((resolve) => manager.on('acked', resolve));
await manager.stop();
db.close();
console.log('closed');`,
  );
  const require = (await import('node:module')).createRequire(import.meta.url);
  const binding = lane === 'better-sqlite3' ? require.resolve(betterSqlite3()) : '';
  const child = spawn(process.execPath, [join(folder, 'child.js')], {
    env: { ...process.env, NODE_OPTIONS: '', BINDING: binding, DB: join(folder, 'child.db'), PEER: url },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // A safety net: a child that does not exit by itself is ended, and the signal then shows in the outcome.
  const net = setTimeout(() => child.kill('SIGKILL'), 30_000);
  let output = '';
  child.stdout.on('data', (chunk) => {
    output += chunk;
  });
  const outcome = await new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal })));
  clearTimeout(net);
  expect({ outcome, output }).toEqual({ outcome: { code: 0, signal: null }, output: 'closed\n' });
  expect(receiver.all('SELECT name FROM items')).toEqual([{ name: 'from a child' }]);
});

/** The library as JavaScript, the way it is published: Node 20 runs no TypeScript. */
async function compiled(): Promise<string> {
  const root = fileURLToPath(new URL('../..', import.meta.url));
  const folder = scratchFolder();
  // Types are checked elsewhere; here only the JavaScript is wanted.
  const args = ['-p', 'tsconfig.build.json', '--outDir', folder, '--noCheck'];
  const code = await new Promise((resolve) => {
    spawn(join(root, 'node_modules', '.bin', 'tsc'), args, { cwd: root, stdio: 'inherit' }).on('close', resolve);
  });
  expect(code).toBe(0);
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  return join(folder, 'src');
}
