/** `flush` and `stop`, whatever is under way. */
import { expect, test } from 'vitest';
import { Emitter } from '../../src/events.ts';
import { attach } from '../../src/index.ts';
import { Faults } from '../../src/observe/faults.ts';
import { Loop } from '../../src/send/loop.ts';
import type { Company, Outbox } from '../../src/send/shipment.ts';
import { type Pace, Shipper } from '../../src/send/shipper.ts';
import { transportFor } from '../../src/send/transport.ts';
import { acknowledged, badSocket, connectionError, never, type Reply, recordingFetch } from '../support/bad-servers.ts';
import { cleanUp, node, until } from '../support/nodes.ts';
import { idsOf, PEER, pending, rig, write } from '../support/sender.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

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

test.each([[[PEER]], [[PEER, 'http://another.test']]])(
  'flush ends although the application never stops writing: to %s',
  async (peers) => {
    let written = 0;
    const { db, manager, sent } = await rig(
      (one) => {
        // Whenever the peer has something, there is more; for the sake of the test not for ever.
        if (written < 300) write(db, `more-${written++}`);
        return acknowledged(one);
      },
      { peers },
    );
    write(db, 'a');
    expect(await manager.flush()).toEqual({ delivered: expect.arrayContaining(peers), unreachable: [] });
    expect(sent.flatMap(idsOf)).toContain('a');
    expect(written).toBeLessThan(100);
  },
);

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

test('who waits for a loop that ends before it has begun has an answer', async () => {
  let over: () => void = () => {};
  const before = new Promise<void>((resolve) => {
    over = resolve;
  });
  const clock = new VirtualClock();
  const pace: Pace = { batchMs: 50, batchSize: 10, maxBatchBytes: 1_000, requestTimeoutMs: 1_000 };
  const options = { nodeId: 'a', peer: PEER, clock, pace, random: () => 0, untilSent: async () => {}, get: undefined };
  const outbox = { next: () => undefined } as unknown as Outbox<unknown>;
  const company = { isKnown: false } as unknown as Company;
  const shared = { outbox, company, events: new Emitter(), faults: new Faults(clock) };
  const { fetch } = transportFor({ fetch: recordingFetch(acknowledged).fetch });
  // As where a peer is resumed, or named again, while its loop is still ending.
  const loop = new Loop(PEER, () => new Shipper({ ...options, ...shared, fetch }), before);
  loop.begin();
  const flushed = loop.flush();
  loop.end();
  over();
  expect(await flushed).toBe(false);
  await loop.ended;
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
