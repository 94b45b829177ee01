/** Edges that come, go and pause while the hub runs. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createHub, type Hub, type HubConfig } from '../../src/hub/index.ts';
import { RowcastError } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import {
  cleanUp,
  database,
  node,
  rowsOf,
  scratchFolder,
  serveManager,
  type TestNode,
  until,
} from '../support/nodes.ts';

const T = 4_000_000_000_000;

async function hubOn(db: TestDatabase, edges: string[], config: Partial<HubConfig> = {}): Promise<Hub> {
  const hub = await createHub(db, { maxAheadMs: 0, id: 'hub', edges, batchMs: 5, ...config });
  cleanUp(() => hub.stop());
  return hub;
}

async function edge(id: string): Promise<TestNode & { url: string }> {
  const made = await node({ id });
  return { ...made, url: await serveManager(made.manager) };
}

async function write(hub: Hub, ...ids: string[]): Promise<void> {
  const changes = ids.map((id) => ({ op: 'INSERT', table: 'items', row: { id, updated_at: T }, old_id: null }));
  const { status } = await hub.receive(JSON.stringify({ batch_id: 1, changes }));
  expect(status).toBe(200);
}

const ids = ({ db }: TestNode): unknown[] => rowsOf(db, 'SELECT id FROM items ORDER BY id').map(({ id }) => id);
const has = (it: TestNode, ...wanted: string[]): Promise<void> =>
  until(`it has ${wanted}`, () => `${ids(it)}` === `${wanted}`);
const urlsOf = async (hub: Hub): Promise<string[]> => (await hub.edges.list()).map(({ url }) => url);
async function refusal(act: () => unknown): Promise<RowcastError> {
  const error = await Promise.resolve()
    .then(act)
    .then(
      () => undefined,
      (thrown) => thrown,
    );
  expect(error).toBeInstanceOf(RowcastError);
  return error;
}

test('an added edge gets everything, and then what the others get; one that is there stays as it is', async () => {
  const [a, b] = [await edge('a'), await edge('b')];
  const hub = await hubOn(await database('SELECT 1'), [a.url]);
  await write(hub, 'x');
  await has(a, 'x');
  await Promise.all([hub.edges.add(b.url), hub.edges.add({ url: `${b.url}/` }), hub.edges.add(a.url)]);
  expect(await urlsOf(hub)).toEqual([a.url, b.url]);
  await has(b, 'x');
  await write(hub, 'y');
  await has(a, 'x', 'y');
  await has(b, 'x', 'y');
  expect((await hub.health()).peers).toEqual([a.url, b.url]);
});

test('a removed edge is sent nothing more and forgotten; added again it is a new one', async () => {
  const [a, b] = [await edge('a'), await edge('b')];
  const db = await database('SELECT 1');
  const hub = await hubOn(db, [a.url, b.url]);
  await write(hub, 'x');
  await has(b, 'x');
  await hub.edges.remove(b.url);
  expect(rowsOf(db, 'SELECT url FROM _hub_edges')).toEqual([{ url: a.url }]);
  await write(hub, 'y');
  await has(a, 'x', 'y');
  expect(ids(b)).toEqual(['x']);
  b.db.exec('DELETE FROM items; DELETE FROM _tombstones; DELETE FROM _changes');
  await hub.edges.add(b.url);
  await has(b, 'x', 'y');
});

test('two edges of one id are each other’s no longer when one of them is removed', async () => {
  const a = await node({ id: 'same' });
  const [one, two] = [await serveManager(a.manager), await serveManager(a.manager)];
  const hub = await hubOn(await database('SELECT 1'), [one, two]);
  await until('both are known', async () => (await hub.edges.list()).every(({ node_id }) => node_id === 'same'));
  await hub.edges.remove(two);
  await hub.receive(
    JSON.stringify({
      batch_id: 1,
      changes: [{ op: 'INSERT', table: 'items', row: { id: 'own', updated_at: T }, old_id: null }],
    }),
    { from: 'same', said: a.manager.hello('id=hub; inc=0123456789abcdef; boot=1-01234567; t0=0; t=0')['x-rowcast'] },
  );
  await hub.flush();
  // Its own changes are not sent to it.
  expect(ids({ ...a })).toEqual([]);
});

describe('a paused edge', () => {
  test('is sent nothing, also after a restart, and then everything that it lacks', async () => {
    const path = join(scratchFolder(), 'hub.db');
    const [a, b] = [await edge('a'), await edge('b')];
    const first = await hubOn(await database('SELECT 1', path), [a.url, b.url]);
    await write(first, 'x');
    await has(b, 'x');
    await first.flush();
    await first.edges.pause(b.url);
    await write(first, 'y');
    await has(a, 'x', 'y');
    expect(await first.flush()).toEqual({ delivered: [a.url], unreachable: [b.url] });
    expect((await first.health()).peer_states[1]).toMatchObject({ url: b.url, paused: true, pending: 1 });
    await first.stop();
    const second = await hubOn(await database('SELECT 1', path), [a.url, b.url]);
    await write(second, 'z');
    await has(a, 'x', 'y', 'z');
    expect(await second.edges.list()).toMatchObject([{ paused: false }, { paused: true }]);
    expect(ids(b)).toEqual(['x']);
    await second.edges.resume(b.url);
    await has(b, 'x', 'y', 'z');
    expect(await second.edges.list()).toMatchObject([{ paused: false }, { paused: false }]);
  });

  test('that is removed and added again is not paused', async () => {
    const a = await edge('a');
    const hub = await hubOn(await database('SELECT 1'), [a.url]);
    await hub.edges.pause(a.url);
    await hub.edges.remove(a.url);
    await hub.edges.add(a.url);
    await write(hub, 'x');
    await has(a, 'x');
  });
});

test('reseed gives an edge everything once more', async () => {
  const a = await edge('a');
  const hub = await hubOn(await database('SELECT 1'), [a.url]);
  await write(hub, 'x', 'y');
  await has(a, 'x', 'y');
  a.db.exec('DELETE FROM items; DELETE FROM _tombstones; DELETE FROM _changes');
  await hub.edges.reseed(a.url);
  await has(a, 'x', 'y');
});

test('what is wrong is refused, and changes nothing', async () => {
  const a = await edge('a');
  const hub = await hubOn(await database('SELECT 1'), [a.url]);
  expect(await refusal(() => hub.edges.add('ftp://x'))).toMatchObject({ code: 'INVALID_PEER' });
  for (const verb of ['remove', 'pause', 'resume', 'reseed'] as const) {
    const error = await refusal(() => hub.edges[verb]('http://nobody.test'));
    expect(error).toMatchObject({ code: 'INVALID_PEER', hint: `the edges are ${a.url}` });
  }
  expect(await refusal(() => hub.configure({ maxBacklog: 'unlimited' } as never))).toMatchObject({
    message: expect.stringMatching(/unknown option "maxBacklog"/),
  });
  const given = { id: 'h', edges: [], maxBacklog: 'unlimited' } as never;
  const db = await database('SELECT 1');
  expect(await refusal(() => createHub(db, given))).toMatchObject({ code: 'INVALID_OPTION' });
  expect(await urlsOf(hub)).toEqual([a.url]);
  await hub.stop();
  expect(await refusal(() => hub.edges.add('http://x.test'))).toMatchObject({ code: 'STOPPED' });
  expect(await refusal(() => hub.edges.list())).toMatchObject({ code: 'STOPPED' });
});

test('an edge that cannot be forgotten is served as before', async () => {
  const path = join(scratchFolder(), 'hub.db');
  const a = await edge('a');
  const db = await database('SELECT 1', path);
  const hub = await hubOn(db, [a.url]);
  await write(hub, 'x');
  await has(a, 'x');
  const other = await database('SELECT 1', path);
  db.exec('PRAGMA busy_timeout = 1');
  other.exec('BEGIN IMMEDIATE');
  expect(await refusal(() => hub.edges.remove(a.url))).toMatchObject({ code: 'DATABASE_BUSY' });
  other.exec('ROLLBACK');
  expect(await urlsOf(hub)).toEqual([a.url]);
  await write(hub, 'y');
  await has(a, 'x', 'y');
});

test('its settings are changed while it runs', async () => {
  const a = await edge('a');
  const hub = await hubOn(await database('SELECT 1'), [a.url]);
  const sizes: number[] = [];
  hub.on('acked', ({ changes }) => sizes.push(changes));
  await until('it is known', async () => (await hub.edges.list())[0]?.node_id === 'a');
  hub.configure({ batchSize: 2 });
  await write(hub, 'p', 'q', 'r', 's', 't');
  await has(a, 'p', 'q', 'r', 's', 't');
  await hub.flush();
  expect(sizes).toEqual([2, 2, 1]);
});
