/** Batches shrink while a peer takes long to apply them and grow while it does not, within `batchSize`. */
import { describe, expect, test } from 'vitest';
import type { Clock } from '../../src/clock.ts';
import { createHandler, createListener } from '../../src/http/index.ts';
import { createHub, type Hub } from '../../src/hub/hub.ts';
import { nextBatchSize } from '../../src/send/batch-size.ts';
import { judge } from '../../src/send/verdict.ts';
import { acknowledged, recordingFetch } from '../support/bad-servers.ts';
import { cleanUp, database, node, serve, type TestNode, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const PEER = 'http://peer.test';

describe('the next batch', () => {
  test.each<[string, number, { changes: number; applyMs: number | undefined }, number]>([
    ['is an eighth larger after a short apply', 4_000, { changes: 4_000, applyMs: 3 }, 4_500],
    ['is as large as it may be', 7_900, { changes: 7_900, applyMs: 0 }, 8_000],
    ['grows from one', 1, { changes: 1, applyMs: 0 }, 2],
    ['is larger where the peer does not say', 4_000, { changes: 4_000, applyMs: undefined }, 4_500],
    ['stays after one that was not full', 4_000, { changes: 20, applyMs: 0 }, 4_000],
    ['stays after one that took neither long nor short', 4_000, { changes: 4_000, applyMs: 12 }, 4_000],
    ['is a quarter smaller after a long one', 4_000, { changes: 4_000, applyMs: 16 }, 3_000],
    ['is a quarter smaller than the one that took long, full or not', 4_000, { changes: 2_000, applyMs: 50 }, 1_500],
    ['stays where the long one was read before the last step', 3_000, { changes: 4_000, applyMs: 50 }, 3_000],
    ['is never so small that requests are what costs', 600, { changes: 600, applyMs: 150 }, 500],
    ['takes a tenth of a second where changes are so dear', 1_500, { changes: 1_500, applyMs: 1_500 }, 100],
    ['has some of the dearest changes, too', 1_500, { changes: 1_500, applyMs: 60_000 }, 50],
    ['does not grow because of a long one', 40, { changes: 40, applyMs: 500 }, 40],
  ])('%s', (_, size, answered, expected) => {
    expect(nextBatchSize(size, 8_000, answered)).toBe(expected);
  });

  test.each<[string, number, { changes: number; applyMs: number | undefined }, number]>([
    ['grows where the peer says that it took little time', 1_500, { changes: 1_500, applyMs: 6 }, 1_687],
    ['is 4,000 at the most', 3_900, { changes: 3_900, applyMs: 6 }, 4_000],
    ['stays where the peer does not say', 1_500, { changes: 1_500, applyMs: undefined }, 1_500],
    ['is what it was at first when the peer no longer says', 4_000, { changes: 4_000, applyMs: undefined }, 1_500],
  ])('that nobody has set a size for %s', (_, size, answered, expected) => {
    expect(nextBatchSize(size, 'auto', answered)).toBe(expected);
  });

  test('comes back to the largest after a checkpoint on every sixth commit', () => {
    let size = 4_000;
    for (let i = 0; i < 600; i++) size = nextBatchSize(size, 4_000, { changes: size, applyMs: i % 6 === 5 ? 25 : 6 });
    expect(size).toBeGreaterThanOrEqual(3_000);
    for (let i = 0; i < 5; i++) size = nextBatchSize(size, 4_000, { changes: size, applyMs: 6 });
    expect(size).toBe(4_000);
  });
});

test.each<[string | null, number | undefined]>([
  ['7', 7],
  ['0.25', 0.25],
  [null, undefined],
  ['', undefined],
  ['-1', undefined],
  ['soon', undefined],
  ['1e400', undefined],
])('a peer that says it took %j', (applyMs, expected) => {
  const verdict = judge({ status: 200, body: '{"applied":1,"ack":5}', applyMs }, 5);
  expect(verdict).toEqual({ kind: 'acked', ...(expected !== undefined && { applyMs: expected }) });
});

function writeMany({ db }: TestNode, count: number): void {
  db.exec('BEGIN');
  const insert = db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)');
  for (let i = 0; i < count; i++) insert.run(`row-${i}`, 'n');
  db.exec('COMMIT');
}

test('a sender heeds what its peer says, and everything arrives', { tags: 'long' }, async () => {
  const clock = new VirtualClock();
  const network = recordingFetch(acknowledged);
  let applyMs = 40;
  const sender = await node({
    id: 'sender',
    peers: [PEER],
    clock,
    random: () => 0,
    batchSize: 2_000,
    fetch: async (url, init) => ({
      ...(await network.fetch(url, init)),
      headers: new Headers({ 'x-apply-ms': `${applyMs}` }),
    }),
  });
  writeMany(sender, 14_000);
  await clock.advance(0);
  const sizes = network.sent.map(({ changes }) => changes.length);
  // The second was read while the first was in flight.
  expect(sizes.slice(0, 3)).toEqual([2_000, 2_000, 1_500]);
  expect(Math.min(...sizes.slice(0, -1))).toBe(500);
  expect(sizes.reduce((sum, n) => sum + n, 0)).toBe(14_000);
  applyMs = 1;
  sender.db.exec('UPDATE items SET updated_at = updated_at + 1');
  await clock.advance(60);
  expect(Math.max(...network.sent.slice(sizes.length).map(({ changes }) => changes.length))).toBeGreaterThan(1_000);
});

/** A sender with the default, to a peer that always says the same: the operations of each batch. */
async function batchesOf(changes: string, rows: number, headers: Record<string, string>): Promise<string[][]> {
  const clock = new VirtualClock();
  const network = recordingFetch(acknowledged);
  const fetch: typeof network.fetch = async (url, init) => ({
    ...(await network.fetch(url, init)),
    headers: new Headers(headers),
  });
  const sender = await node({ id: 'sender', peers: [PEER], clock, random: () => 0, fetch });
  await clock.advance(100);
  writeMany(sender, rows);
  sender.db.exec(changes);
  await clock.advance(100);
  return network.sent.map((batch) => batch.changes.map(({ op }) => op));
}

const sizesOf = async (...of: Parameters<typeof batchesOf>): Promise<number[]> =>
  (await batchesOf(...of)).map((ops) => ops.length);

test('by default batches grow with what the peer says, from 1,500 on', { tags: 'long' }, async () => {
  const sizes = await sizesOf('SELECT 1', 12_000, { 'x-apply-ms': '6' });
  expect(sizes.slice(0, 2)).toEqual([1_500, 1_500]);
  expect(Math.max(...sizes)).toBeGreaterThan(2_000);
  expect(sizes.reduce((sum, n) => sum + n, 0)).toBe(12_000);
});

test('and to one that says nothing they do not', async () => {
  const sizes = await sizesOf('SELECT 1', 4_500, {});
  expect(sizes).toEqual(Array(3).fill(1_500));
});

test('what is not alike goes in batches of 1,500, and what comes before it in larger ones', async () => {
  const batches = await batchesOf('DELETE FROM items WHERE CAST(substr(id, 5) AS INTEGER) >= 11999', 12_000, {
    'x-apply-ms': '6',
  });
  const sizes = batches.map((ops) => ops.length);
  expect(Math.max(...sizes)).toBeGreaterThan(1_600);
  expect(sizes.reduce((sum, n) => sum + n, 0)).toBe(12_001);
  const mixed = batches.filter((ops) => new Set(ops).size > 1);
  expect(mixed).toHaveLength(1);
  expect(mixed[0]?.length).toBeLessThanOrEqual(1_500);
});

test('a size can be set, and left to itself again, while a node runs', async () => {
  const { manager } = await node({ batchSize: 'auto' });
  manager.configure({ batchSize: 10 });
  manager.configure({ batchSize: 'auto' });
  expect(() => manager.configure({ batchSize: 'much' as never })).toThrow(
    'option "batchSize" must be "auto", or an integer from 1 to 10000, not "much"',
  );
});

/** Each time it is asked, 21 ms have passed. */
class TickingClock extends VirtualClock {
  #asked = 0;
  override now(): number {
    this.#asked += 1;
    return super.now() + 21 * this.#asked;
  }
}

async function aHub(clock: Clock): Promise<Hub> {
  const hub = await createHub(await database('SELECT 1'), { maxAheadMs: 0, id: 'hub', edges: [], clock });
  cleanUp(() => hub.stop());
  return hub;
}

test.each([
  ['createListener', 'node'],
  ['createHandler', 'node'],
  ['createListener', 'hub'],
  ['createHandler', 'hub'],
])('%s tells how long a batch took a %s, by the clock it was given', async (way, who) => {
  const clock = new TickingClock();
  const replica = who === 'hub' ? await aHub(clock) : (await node({ clock })).manager;
  const request = {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"batch_id":1,"changes":[]}',
  };
  const answer =
    way === 'createHandler'
      ? await createHandler(replica)(new Request('http://here.test/sync', request))
      : await fetch(`${await serve(createListener(replica))}/sync`, request);
  expect(Number(answer.headers.get('x-apply-ms')) % 21).toBe(0);
  expect(Number(answer.headers.get('x-apply-ms'))).toBeGreaterThan(0);
  expect(await answer.json()).toEqual({ applied: 0, ack: 1 });
});

test('over a real connection the header is read', async () => {
  const sizes: number[] = [];
  const url = await serve((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { batch_id, changes } = JSON.parse(Buffer.concat(chunks).toString());
      sizes.push(changes.length);
      response.setHeader('x-apply-ms', '99');
      response.end(JSON.stringify({ applied: changes.length, ack: batch_id }));
    });
  });
  const sender = await node({ id: 'sender', peers: [url], batchMs: 1, batchSize: 2_000 });
  writeMany(sender, 9_000);
  await until('everything is acknowledged', () => sizes.reduce((sum, n) => sum + n, 0) === 9_000);
  expect(sizes.slice(0, 3)).toEqual([2_000, 2_000, 1_500]);
});
