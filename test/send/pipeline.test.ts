/**
 * A peer never waits for the sender's own books: the next batch leaves before the last one is taken off the list, and, to
 * a peer that keeps up, before the last one is answered.
 */
import { describe, expect, test } from 'vitest';
import { createHandler } from '../../src/http/index.ts';
import { createHub } from '../../src/hub/hub.ts';
import type { Fetch } from '../../src/send/transport.ts';
import { acknowledged, recordingFetch, type Sent } from '../support/bad-servers.ts';
import { cleanUp, database, exactRows, node, serveManager, type TestNode } from '../support/nodes.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

const PEER = 'http://peer.test';

interface Rig extends TestNode {
  clock: VirtualClock;
  sent: Sent[];
  pending(): number;
  /** What was in `_changes` when each request went out. */
  seen: number[];
}

async function rig(during: (request: number, made: Rig) => void = () => {}): Promise<Rig> {
  const clock = new VirtualClock();
  const seen: number[] = [];
  const network = recordingFetch((sent) => {
    seen.push(rigged.pending());
    during(seen.length, rigged);
    return acknowledged(sent);
  });
  const made = await node({ id: 'sender', peers: [PEER], clock, random: () => 0, batchSize: 10, fetch: network.fetch });
  const pending = (): number => Number(made.all('SELECT count(*) AS n FROM _changes')[0]?.n);
  const rigged: Rig = { ...made, clock, sent: network.sent, pending, seen };
  made.db.exec('BEGIN');
  for (let i = 0; i < 35; i++) {
    made.db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(`row-${String(i).padStart(2, '0')}`, 'n');
  }
  made.db.exec('COMMIT');
  return rigged;
}

test('the next batch leaves while the last one is still listed', async () => {
  const { clock, seen, sent, pending } = await rig();
  await clock.advance(0);
  expect(sent.map(({ changes }) => changes.length)).toEqual([10, 10, 10, 5]);
  expect(seen).toEqual([35, 35, 25, 15]);
  expect(pending()).toBe(0);
});

test('an acknowledgement that cannot be noted is asked for again, one request at a time', async () => {
  let open = 0;
  const { clock, db, sent, pending } = await rig((request, made) => {
    open += 1;
    expect(open).toBe(1);
    queueMicrotask(() => {
      open -= 1;
    });
    // The application opens a transaction on the same connection: nothing can be noted now.
    if (request === 2) made.db.exec('BEGIN');
  });
  await clock.advance(0);
  expect(sent.length).toBe(2);
  expect(pending()).toBe(35);
  db.exec('COMMIT');
  await clock.advance(60);
  expect(pending()).toBe(0);
  expect(new Set(sent.flatMap(({ changes }) => changes.map(({ row }) => row.id))).size).toBe(35);
});

test('what is acknowledged while the loop is stopped is noted', async () => {
  const { clock, manager, pending, db } = await rig((request, made) => {
    if (request === 2) void made.manager.stop();
  });
  await clock.advance(0);
  await manager.stop();
  expect(pending()).toBe(25);
  expect(db.prepare('SELECT last_acked FROM _peer_state').all()).toMatchObject([{ last_acked: 10 }]);
});

/** A request that waits for a test to answer it. */
interface Waiting {
  batchId: number;
  raw: Uint8Array;
  aborted(): boolean;
  /** The peer has it. */
  ack(): Promise<void>;
  /** The peer says this instead. */
  say(status: number, body: string): Promise<void>;
  /** The connection breaks. */
  fail(): Promise<void>;
}

interface HeldRig extends TestNode {
  clock: VirtualClock;
  /** Every request so far, in the order in which they went out. */
  requests: Waiting[];
  pending(): number;
  watermark(): number;
}

/** Batches of ten for a peer that answers when it is told to, and takes them in any order unless it is `strict`. */
async function held({ strict = false, rows = 60 } = {}): Promise<HeldRig> {
  const clock = new VirtualClock();
  const requests: Waiting[] = [];
  const headers = { get: (name: string) => (name === 'x-any-order' && !strict ? '1' : null) };
  const fetch: Fetch = (_url, { body, signal }) =>
    new Promise((resolve, reject) => {
      const batchId: number = JSON.parse(new TextDecoder().decode(body)).batch_id;
      const say = async (status: number, text: string): Promise<void> => {
        resolve({ status, text: () => Promise.resolve(text), headers });
        await settle();
      };
      const fail = async (): Promise<void> => {
        reject(new Error('connection reset'));
        await settle();
      };
      signal.addEventListener('abort', () => void fail());
      const ack = (): Promise<void> => say(200, JSON.stringify({ applied: 10, ack: batchId }));
      requests.push({ batchId, raw: body, aborted: () => signal.aborted, ack, say, fail });
    });
  const config = { id: 'sender', peers: [PEER], clock, random: () => 0, batchSize: 10, requestTimeoutMs: 1_000, fetch };
  const made = await node(config);
  made.db.exec(
    `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${rows}) INSERT INTO items SELECT printf('row-%02d', i), 'n', i, 10, 1000 FROM n`,
  );
  await clock.advance(0);
  const number = (sql: string): number => Number(made.all(sql)[0]?.n);
  const pending = (): number => number('SELECT count(*) AS n FROM _changes');
  const watermark = (): number => number('SELECT last_acked AS n FROM _peer_state');
  return { ...made, clock, requests, pending, watermark };
}

const idsOf = (requests: Waiting[]): number[] => requests.map(({ batchId }) => batchId);

/** Acknowledges whatever is asked until nothing more comes. */
async function ackAll(rigged: HeldRig): Promise<void> {
  for (let i = 0; i < 30; i++) {
    for (const request of rigged.requests) await request.ack();
    await rigged.clock.advance(1);
  }
}

describe('to a peer that keeps up', () => {
  test('two batches are under way, never three, and each is noted in its turn', async () => {
    const it = await held();
    // Nothing is known of the peer yet.
    expect(idsOf(it.requests)).toEqual([10]);
    await it.requests[0]?.ack();
    expect(idsOf(it.requests)).toEqual([10, 20, 30]);
    expect(it.watermark()).toBe(10);
    await it.requests[1]?.ack();
    expect(idsOf(it.requests)).toEqual([10, 20, 30, 40]);
    expect(it.watermark()).toBe(20);
    await ackAll(it);
    expect(idsOf(it.requests)).toEqual([10, 20, 30, 40, 50, 60]);
    expect([it.pending(), it.watermark()]).toEqual([0, 60]);
  });

  test('an answer that overtakes the one before it waits for that', async () => {
    const it = await held();
    await it.requests[0]?.ack();
    await it.requests[2]?.ack();
    expect(idsOf(it.requests)).toEqual([10, 20, 30]);
    expect([it.pending(), it.watermark()]).toEqual([50, 10]);
    await it.requests[1]?.ack();
    await it.clock.advance(0);
    expect(it.watermark()).toBeGreaterThanOrEqual(20);
    await ackAll(it);
    expect([it.pending(), it.watermark()]).toEqual([0, 60]);
  });

  test('what follows a batch that did not arrive is not counted, even if it was acknowledged', async () => {
    const it = await held();
    await it.requests[0]?.ack();
    await it.requests[2]?.ack();
    await it.requests[1]?.fail();
    expect([it.pending(), it.watermark()]).toEqual([50, 10]);
    await it.clock.advance(50);
    // The same batch again, and alone.
    expect(idsOf(it.requests)).toEqual([10, 20, 30, 20]);
    await it.requests[3]?.ack();
    expect(it.watermark()).toBe(20);
    await ackAll(it);
    expect(idsOf(it.requests).slice(4)).toEqual([30, 40, 50, 60]);
    expect([it.pending(), it.watermark()]).toEqual([0, 60]);
  });

  test('a batch that fails takes back the one that is under way behind it', async () => {
    const it = await held();
    await it.requests[0]?.ack();
    await it.requests[1]?.fail();
    expect(it.requests[2]?.aborted()).toBe(true);
    await it.clock.advance(50);
    expect(idsOf(it.requests)).toEqual([10, 20, 30, 20]);
  });

  test('a batch that is refused is tried five times alone and then searched, and what follows it arrives', async () => {
    const it = await held();
    await it.requests[0]?.ack();
    const poisoned = (request: Waiting): boolean => new TextDecoder().decode(request.raw).includes('"row-13"');
    for (let done = 1; done < it.requests.length || it.pending() > 0; ) {
      const request = it.requests[done];
      if (!request) await it.clock.advance(10);
      else if (poisoned(request)) await request.say(422, '{"error":"no"}');
      else await request.ack();
      if (request) done += 1;
      expect(done).toBeLessThan(40);
    }
    expect(idsOf(it.requests.filter(poisoned)).slice(0, 5)).toEqual([20, 20, 20, 20, 20]);
    expect(it.manager.deadLetters.list()).toMatchObject([{ rowId: 'row-13' }]);
    expect(it.watermark()).toBe(60);
  });

  test('stop ends both requests, and what was acknowledged is noted', async () => {
    const it = await held();
    await it.requests[0]?.ack();
    await it.manager.stop();
    expect(it.requests.slice(1).map((request) => request.aborted())).toEqual([true, true]);
    expect(it.watermark()).toBe(10);
    expect(it.clock.pending).toBe(0);
  });

  test('batches that arrive in the wrong order leave what the right order would', async () => {
    const it = await held();
    it.db.exec("UPDATE items SET name = 'second', updated_at = 2000 WHERE value % 3 = 0");
    it.db.exec('DELETE FROM items WHERE value % 5 = 0');
    const receiver = await node({ id: 'receiver' });
    await it.requests[0]?.ack();
    await ackAll(it);
    for (const { raw } of it.requests.toReversed())
      expect(receiver.manager.receive(raw)).toMatchObject({ status: 200 });
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(it.db, 'items'));
  });
});

test.each([
  ['answers late', { strict: false, lateMs: 101 }],
  ['does not say that it takes batches in any order', { strict: true, lateMs: 0 }],
])('a peer that %s is sent one batch at a time', async (_what, { strict, lateMs }) => {
  const it = await held({ strict });
  for (let i = 0; i < 6; i++) {
    expect(idsOf(it.requests)).toEqual([10, 20, 30, 40, 50, 60].slice(0, i + 1));
    await it.clock.advance(lateMs);
    await it.requests[i]?.ack();
  }
  expect([it.pending(), it.watermark()]).toEqual([0, 60]);
});

test('where a second batch fails three times in a row, no more are sent as second', async () => {
  const it = await held({ rows: 150 });
  // As a proxy that lets through one request at a time.
  let open = 0;
  let refused = 0;
  for (let done = 0; it.pending() > 0; ) {
    const request = it.requests[done];
    if (!request) {
      await it.clock.advance(50);
      continue;
    }
    const second = it.requests[done + 1];
    open = second ? 2 : 1;
    if (open === 2) {
      refused += 1;
      await second?.say(503, 'one at a time');
    }
    await request.ack();
    done += open;
    expect(done).toBeLessThan(30);
  }
  expect(refused).toBe(3);
  expect(it.watermark()).toBe(150);
});

const UNIQUE = 'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT UNIQUE, updated_at INTEGER)';
const NOTES = 'CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT, updated_at INTEGER)';

test.each([
  ['a node', '1', () => node({ id: 'receiver' })],
  ['a node that has a UNIQUE constraint', '1', () => node({ id: 'receiver', schema: UNIQUE })],
  [
    'a node that has one in any of its tables',
    '1',
    () => node({ id: 'receiver', schema: `${NOTES}; ${UNIQUE}`, tables: ['notes', 'items'] }),
  ],
  [
    'a hub',
    '1',
    async () => {
      const manager = await createHub(await database('SELECT 1'), { maxAheadMs: 0, id: 'hub', edges: [] });
      cleanUp(() => manager.stop());
      return { manager };
    },
  ],
])('%s says in its answer whether batches may come in any order', async (_who, says, made) => {
  const { manager } = await made();
  const body = JSON.stringify({ batch_id: 1, changes: [] });
  const headers = { 'content-type': 'application/json' };
  const request = new Request(`${PEER}/sync`, { method: 'POST', body, headers });
  const response = await createHandler(manager)(request);
  expect([response.status, response.headers.get('x-any-order')]).toEqual([200, says]);
});

test('a UNIQUE value that changes hands never arrives in the wrong order', async () => {
  const receiver = await node({ id: 'receiver', schema: UNIQUE });
  const parked: unknown[] = [];
  receiver.manager.on('dead-letter', (one) => parked.push(one));
  const peer = await serveManager(receiver.manager);
  const sender = await node({ id: 'sender', schema: UNIQUE, peers: [peer], batchSize: 2 });
  for (let i = 0; i < 60; i++) {
    sender.db.exec(`INSERT INTO items VALUES ('row-${i}', 'the one', 1000)`);
    sender.db.exec(`DELETE FROM items WHERE id = 'row-${i}'`);
  }
  await sender.manager.flush();
  expect(parked).toEqual([]);
});
