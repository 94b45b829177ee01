/**
 * An acknowledgement that does not count: the peer has answered as it was before its latest start. What was under way behind
 * that batch does not count either, or how far the peer is would pass over changes that it lacks.
 */
import { describe, expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import type { FetchResponse } from '../../src/send/transport.ts';
import { deliver, live, T } from '../support/hubs.ts';
import { cleanUp, database, node, rowsOf } from '../support/nodes.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

const PEER = 'http://p.test';
const PRESENT = 'id=p; inc=aaaaaaaaaaaaaaaa; boot=2-bbbbbbbb; t0=5; t=9';
/** It had ended by then, or is a backup of it that has not said more. */
const BEFORE = 'id=p; inc=aaaaaaaaaaaaaaaa; boot=1-aaaaaaaa; t0=0; t=3';
const IDS = Array.from({ length: 60 }, (_, i) => `row-${String(i).padStart(2, '0')}`);

interface Waiting {
  ids: string[];
  isOver: boolean;
  answer(said: string): Promise<void>;
}

/** A peer that answers when it is told to, and that has what it has acknowledged in its present state. */
function peer({ anyOrder }: { anyOrder: boolean }) {
  const requests: Waiting[] = [];
  const has = new Set<string>();
  const fetch = (_url: string, { body, signal }: { body: Uint8Array; signal: AbortSignal }): Promise<FetchResponse> =>
    new Promise((resolve, reject) => {
      const { batch_id: ack, changes } = JSON.parse(new TextDecoder().decode(body));
      const ids: string[] = changes.map(({ row }: { row: { id: string } }) => row.id);
      const answer = async (said: string): Promise<void> => {
        request.isOver = true;
        if (said === PRESENT) for (const id of ids) has.add(id);
        const headers: Record<string, string> = { 'x-rowcast': said, ...(anyOrder && { 'x-any-order': '1' }) };
        const text = JSON.stringify({ applied: ids.length, ack });
        resolve({ status: 200, text: async () => text, headers: { get: (name) => headers[name] ?? null } });
        await settle();
      };
      const request: Waiting = { ids, isOver: false, answer };
      signal.addEventListener('abort', () => {
        request.isOver = true;
        reject(new Error('aborted'));
      });
      requests.push(request);
    });
  const open = (): Waiting[] => requests.filter(({ isOver }) => !isOver);
  const get = async () => ({
    status: 200,
    text: async () => '{"ok":true,"node_id":"p"}',
    headers: { get: (name: string) => (name === 'x-rowcast' ? PRESENT : null) },
  });
  return { requests, has, fetch, get, open };
}

type Peer = ReturnType<typeof peer>;

interface Sender {
  clock: VirtualClock;
  flush(): Promise<{ delivered: string[]; unreachable: string[] }>;
  pending(): Promise<number>;
}

async function aNode({ fetch, get }: Peer): Promise<Sender> {
  const clock = new VirtualClock();
  const made = await node({ id: 'n', peers: [PEER], clock, random: () => 0, batchSize: 10, fetch, get });
  made.db.exec('BEGIN');
  for (const id of IDS) made.db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(id, 'n');
  made.db.exec('COMMIT');
  const pending = async (): Promise<number> => Number(rowsOf(made.db, 'SELECT count(*) AS n FROM _changes')[0]?.n);
  return { clock, pending, flush: () => made.manager.flush() };
}

async function aHub({ fetch, get }: Peer): Promise<Sender> {
  const clock = new VirtualClock();
  const options = { id: 'hub', edges: [PEER], maxAheadMs: 0, clock, random: () => 0, batchSize: 10, fetch, get };
  const made = await createHub(await database('SELECT 1'), options);
  cleanUp(() => made.stop());
  const changes = IDS.map((id) => live(id, T));
  await deliver(made, changes, 'a');
  return { clock, pending: async () => (await made.health()).pending_changes, flush: () => made.flush() };
}

describe.each([
  ['a node', aNode],
  ['a hub', aHub],
])('%s', (_who, made) => {
  test.each([
    ['one batch at a time', { anyOrder: false }],
    ['two batches at once', { anyOrder: true }],
  ])('that sends %s sends again what such an answer was given to, and all that follows', async (_how, how) => {
    const to = peer(how);
    const { clock, pending } = await made(to);
    await clock.advance(100);
    expect(to.requests.map(({ ids }) => ids)).toEqual([IDS.slice(0, 10)]);
    await to.requests[0]?.answer(PRESENT);
    await clock.advance(10);
    await to.requests[1]?.answer(BEFORE);
    for (let i = 0; i < 30; i++) {
      for (const one of to.open()) await one.answer(PRESENT);
      await clock.advance(100);
    }
    expect(await pending()).toBe(0);
    expect([...to.has].sort()).toEqual(IDS);
  });

  test('that is answered nothing else gives up for a while, as with one that cannot be reached', async () => {
    const to = peer({ anyOrder: true });
    const { clock, flush, pending } = await made(to);
    await clock.advance(100);
    await to.requests[0]?.answer(PRESENT);
    const flushed = flush();
    let result: Awaited<typeof flushed> | undefined;
    void flushed.then((one) => {
      result = one;
    });
    for (let i = 0; i < 30 && !result; i++) {
      for (const one of to.open()) await one.answer(BEFORE);
      await clock.advance(800);
    }
    expect(result).toEqual({ delivered: [], unreachable: [PEER] });
    expect(await pending()).toBe(50);
    for (let i = 0; i < 30; i++) {
      for (const one of to.open()) await one.answer(PRESENT);
      await clock.advance(100);
    }
    expect(await pending()).toBe(0);
    expect([...to.has].sort()).toEqual(IDS);
  });
});
