/** A hub with thousands of edges, in virtual time and without a socket: who sleeps, who is woken, and who waits for whom. */
import { describe, expect, test } from 'vitest';
import type { Fetch, Get } from '../../src/send/transport.ts';
import { CrowdClock } from '../support/crowd-clock.ts';
import { firstOf } from '../support/draws.ts';
import { deliver, hub, live, T } from '../support/hubs.ts';

interface World {
  clock: CrowdClock;
  /** By URL: the ids that arrived there, and the bodies that brought them. */
  arrived: Map<string, string[]>;
  bodies: Set<Uint8Array>;
  /** Batches and questions that were sent, to whomever. */
  posts: number;
  asks: number;
  /** Most requests that were without an answer at once. */
  most: number;
  /** These never answer, those refuse the connection. */
  silent: Set<string>;
  refusing: Set<string>;
}

const url = (i: number): string => `http://e${i}.test`;
const urls = (n: number): string[] => Array.from({ length: n }, (_, i) => url(i));

async function world(n: number, more: Partial<World> = {}) {
  const clock = new CrowdClock();
  const seen: World = {
    ...{ clock, arrived: new Map(urls(n).map((one) => [one, []])), bodies: new Set(), posts: 0, asks: 0, most: 0 },
    ...{ silent: new Set(), refusing: new Set() },
    ...more,
  };
  let open = 0;
  const reached = async (to: string, signal: AbortSignal): Promise<void> => {
    if (seen.refusing.has(to)) throw new Error('connection refused');
    seen.most = Math.max(seen.most, ++open);
    try {
      if (seen.silent.has(to)) {
        await new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))));
      }
      await clock.sleep(1);
    } finally {
      open -= 1;
    }
  };
  const fetch: Fetch = async (to, { body, signal }) => {
    seen.posts += 1;
    const edge = to.replace('/sync', '');
    await reached(edge, signal);
    const { batch_id: ack, changes } = JSON.parse(Buffer.from(body).toString());
    seen.bodies.add(body);
    seen.arrived.get(edge)?.push(...changes.map(({ row }: { row: { id: string } }) => row.id));
    return { status: 200, text: async () => JSON.stringify({ applied: 0, ack }), headers: headersOf(edge) };
  };
  const get: Get = async (to, { signal }) => {
    seen.asks += 1;
    const edge = to.replace('/health', '');
    await reached(edge, signal);
    const body = JSON.stringify({ node_id: idOf(edge) });
    return { status: 200, text: async () => body, headers: headersOf(edge) };
  };
  const made = await hub({ edges: urls(n), clock, random: () => 0, fetch, get, verify: false, batchSize: 20 });
  return { ...made, seen, clock };
}

const idOf = (edge: string): string => edge.slice('http://'.length, -'.test'.length);
const incOf = (edge: string): string => Number(idOf(edge).slice(1)).toString(16).padStart(16, '0');
/** As a node that has something new to say each time. */
let tick = 0;
const headersOf = (edge: string) => ({
  get: (name: string): string | null => {
    if (name === 'x-any-order') return '1';
    return name === 'x-rowcast' ? `id=${idOf(edge)}; inc=${incOf(edge)}; boot=1-01234567; t0=0; t=${++tick}` : null;
  },
});

const rows = (from: number, upTo: number): object[] =>
  Array.from({ length: upTo - from + 1 }, (_, i) => live(`r${from + i}`, T + from + i));
const ids = (from: number, upTo: number): string[] => Array.from({ length: upTo - from + 1 }, (_, i) => `r${from + i}`);

/** More than may be asked or sent to at once. */
describe.each(firstOf([400, 1_000]))('%i edges', (N) => {
  test('get every change once, from batches that were read once; then they sleep, and no timer is theirs', {
    tags: 'long',
  }, async () => {
    const { hub: made, db, seen, clock } = await world(N);
    await clock.advance(2_000);
    expect(seen.asks).toBe(N);
    const idle = clock.pending;
    // The watches of the hub itself: of the clock, of who is to be asked, of comparisons.
    expect(idle).toBeLessThan(5);
    await deliver(made, rows(1, 30), 'source');
    await clock.advance(500);
    for (const edge of urls(N)) expect(seen.arrived.get(edge)).toEqual(ids(1, 30));
    expect([made.fanOut.reads, seen.bodies.size]).toEqual([2, 2]);
    expect(seen.most).toBeLessThanOrEqual(256 + 64);
    await clock.advance(1_000);
    expect(clock.pending).toBe(idle);
    const { posts } = seen;
    const before = clock.requested;
    await clock.advance(10_000);
    expect(seen.posts).toBe(posts);
    // A tick for each edge would be two hundred thousand of them.
    expect(clock.requested - before).toBeLessThan(100);
    const positions = db.prepare('SELECT DISTINCT position FROM _hub_edges').all();
    expect(positions).toEqual([{ position: 30 }]);
    expect((await made.health()).pending_changes).toBe(0);
  });

  test('are asked who they are a hundred a second at most, and only those that were quiet', {
    tags: 'long',
  }, async () => {
    const { hub: made, seen, clock } = await world(N);
    await clock.advance(2_000);
    seen.asks = 0;
    await clock.advance(30_000);
    expect(seen.asks).toBeGreaterThan(0);
    expect(seen.asks).toBeLessThanOrEqual(31 * 100);
    seen.asks = 0;
    for (let i = 1; i <= 5; i++) {
      await deliver(made, rows(i, i), 'source');
      await clock.advance(5_000);
    }
    // Every answer says who it is from.
    expect(seen.asks).toBe(0);
  });
});

describe('among hundreds of edges', () => {
  test('those that never answer delay nobody else for longer than a moment, though they are more than are sent to at once', {
    tags: 'long',
  }, async () => {
    const N = 350;
    const silent = new Set<string>();
    const { hub: made, seen, clock } = await world(N, { silent });
    await clock.advance(1_000);
    for (let i = 0; i < 300; i++) silent.add(url(i));
    await deliver(made, rows(1, 1), 'source');
    await clock.advance(2_000);
    const rest = urls(N).slice(300);
    for (const edge of rest) expect(seen.arrived.get(edge)).toEqual(['r1']);
    for (let i = 2; i <= 5; i++) {
      await deliver(made, rows(i, i), 'source');
      await clock.advance(100);
      for (const edge of rest) expect(seen.arrived.get(edge)?.length).toBe(i);
    }
    expect(seen.arrived.get(url(0))).toEqual([]);
    silent.clear();
    await clock.advance(200_000);
    for (const edge of urls(N)) expect(seen.arrived.get(edge)).toEqual(ids(1, 5));
  });

  test('those that are down are tried by time alone, and at last have everything', { tags: 'long' }, async () => {
    const [N, down] = [150, 100];
    const refusing = new Set<string>();
    const { hub: made, seen, clock } = await world(N, { refusing });
    await clock.advance(1_000);
    for (let i = 0; i < down; i++) refusing.add(url(i));
    await deliver(made, rows(1, 1), 'source');
    await clock.advance(10_000);
    expect((await made.health()).peer_states.filter(({ state }) => state === 'down')).toHaveLength(down);
    seen.posts = 0;
    for (let i = 2; i <= 16; i++) {
      await deliver(made, rows(i, i), 'source');
      await clock.advance(100);
    }
    // Fifteen changes to each of fifty edges; to the others two or three attempts a second.
    expect(seen.posts).toBeGreaterThanOrEqual(50 * 15);
    expect(seen.posts - 50 * 15).toBeLessThanOrEqual(down * 4);
    refusing.clear();
    await clock.advance(60_000);
    for (const edge of urls(N)) expect(seen.arrived.get(edge)).toEqual(ids(1, 16));
    expect((await made.health()).peer_states.filter(({ state }) => state !== 'up')).toEqual([]);
  });
});

test('a change that comes while an edge is about to fall asleep is sent to it', async () => {
  const { hub: made, seen, clock } = await world(3);
  await clock.advance(1_000);
  // One at each moment of a delivery: before it is sent, while it is under way, when it was answered, when it is noted.
  for (let i = 1; i <= 200; i++) {
    await deliver(made, rows(i, i), 'source');
    for (let turns = 0; turns < i % 40; turns++) await Promise.resolve();
    if (i % 3 === 0) await clock.advance(i % 7);
  }
  await clock.advance(50);
  for (const edge of urls(3)) expect(seen.arrived.get(edge)?.at(-1)).toBe('r200');
  expect((await made.health()).pending_changes).toBe(0);
});

test('an edge is not sent what it brought itself, though it shares the batch with all others', async () => {
  const { hub: made, seen, clock } = await world(50);
  await clock.advance(1_000);
  for (let i = 0; i < 50; i++) {
    const said = headersOf(url(i)).get('x-rowcast') as string;
    const body = JSON.stringify({ batch_id: 1, changes: rows(i, i) });
    expect((await made.receive(body, { from: `e${i}`, said })).status).toBe(200);
  }
  await clock.advance(1_000);
  for (let i = 0; i < 50; i++) {
    expect(new Set(seen.arrived.get(url(i)))).toEqual(new Set(ids(0, 49).filter((id) => id !== `r${i}`)));
  }
  expect((await made.health()).pending_changes).toBe(0);
});

test('no position is stored before its edge has answered, and none of an answer that was not noted', async () => {
  const silent = new Set(urls(20));
  const { hub: made, db, seen, clock } = await world(20, { silent: new Set() });
  await clock.advance(1_000);
  const positions = (): unknown[] => db.prepare('SELECT position FROM _hub_edges ORDER BY url').all();
  for (const edge of silent) seen.silent.add(edge);
  await deliver(made, rows(1, 3), 'source');
  await clock.advance(500);
  expect(seen.posts).toBe(20);
  expect(new Set(positions().map((row) => JSON.stringify(row)))).toEqual(new Set(['{"position":0}']));
  const { peer_states: states } = await made.health();
  expect(states.every(({ pending, last_acked }) => pending === 3 && last_acked === 0)).toBe(true);
});
