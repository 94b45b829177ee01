/** A peer never waits for the sender's own books: the next batch leaves before the last one is taken off the list. */
import { expect, test } from 'vitest';
import { acknowledged, recordingFetch, type Sent } from './support/bad-servers.ts';
import { node, type TestNode } from './support/nodes.ts';
import { VirtualClock } from './support/virtual-clock.ts';

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
