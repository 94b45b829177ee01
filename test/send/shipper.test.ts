/** What a loop sends, when it tries again, and when it looks. */
import { expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { acknowledged, connectionError, never, type Reply } from '../support/bad-servers.ts';
import { cleanUp, database } from '../support/nodes.ts';
import { idsOf, pending, ROUND, rig, write, writeMany } from '../support/sender.ts';
import { settle } from '../support/virtual-clock.ts';

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
