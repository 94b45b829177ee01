/** A single change that somebody before the peer does not let through: it is kept, and health says that nothing moves. */
import { expect, test } from 'vitest';
import type { AuthOptions } from '../../src/auth/index.ts';
import type { FetchResponse } from '../../src/send/transport.ts';
import { Cluster, ids, settled, write } from '../support/cluster.ts';
import { until } from '../support/nodes.ts';
import { SECRET } from './messages.ts';

const AUTH: AuthOptions = { keys: [{ id: 'k1', secret: SECRET }] };
const LIMIT = 4_000;
const LARGE = `INSERT INTO items VALUES ('large', '${'z'.repeat(LIMIT)}', 1, 10, `;

const tooLarge: FetchResponse = { status: 413, text: async () => '<h1>Too large</h1>', headers: { get: () => null } };

/** A proxy before one of them. */
function before(cluster: Cluster, name: string): void {
  const url = cluster.url(name);
  cluster.proxy = (seen) => (seen.url.startsWith(url) && seen.body.length > LIMIT ? tooLarge : undefined);
}

/** A hub has a change for b that the proxy before b does not let through. */
async function hubWithALargeChange() {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['hub'], { auth: AUTH });
  const b = await cluster.node('b', ['hub'], { auth: AUTH });
  const { hub } = await cluster.hub('hub', ['a', 'b'], { auth: AUTH });
  write(a, 'first');
  await settled('first', a, b);
  before(cluster, 'b');
  a.db.exec(`${LARGE}${Date.now()})`);
  return { cluster, b, hub };
}

const PROBLEM = /^nothing gets to http:\/\/b\.test: HTTP 413 without a signature, for a single change/;

test('health of a node is not ok while a proxy does not let its change through, and then it is', async () => {
  const cluster = new Cluster();
  const [a, b] = [await cluster.node('a', ['b'], { auth: AUTH }), await cluster.node('b', ['a'], { auth: AUTH })];
  write(a, 'first');
  await settled('first', a, b);
  before(cluster, 'b');
  const warnings: string[] = [];
  a.manager.on('warning', ({ code, message }) => warnings.push(`${code}: ${message}`));
  a.db.exec(`${LARGE}${Date.now()})`);
  await until('b is down', () => a.manager.peers.list()[0]?.state === 'down');
  expect(a.manager.health().problems).toEqual([expect.stringMatching(PROBLEM)]);
  expect(a.manager.health()).toMatchObject({ ok: false, dead_letter: 0, pending_changes: 1 });
  expect(warnings.filter((one) => one.startsWith('stands-still: nothing gets to http://b.test'))).toHaveLength(1);
  cluster.proxy = undefined;
  await settled('first large', a, b);
  await until('all is well', () => a.manager.health().ok);
});

test('so it is with a hub, and an edge that is paused or taken out is no problem any more', async () => {
  const { cluster, b, hub } = await hubWithALargeChange();
  const state = async () => (await hub.health()).peer_states.find(({ url }) => url === cluster.url('b'))?.state;
  await until('b is down', async () => (await state()) === 'down');
  expect((await hub.health()).problems).toEqual([expect.stringMatching(PROBLEM)]);
  await hub.edges.pause(cluster.url('b'));
  expect((await hub.health()).ok).toBe(true);
  await hub.edges.resume(cluster.url('b'));
  await until('it says so again', async () => !(await hub.health()).ok);
  cluster.proxy = undefined;
  await until('b has it', () => ids(b) === 'first large');
  await until('all is well', async () => (await hub.health()).ok);
});

test('what the peer itself refuses, once it is asked, does not stand still: it is set aside', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b'], { auth: AUTH });
  const b = await cluster.node('b', ['a'], { auth: AUTH, maxBodyBytes: 1_000_000 });
  write(a, 'first');
  await settled('first', a, b);
  before(cluster, 'b');
  a.db.exec(`INSERT INTO items VALUES ('large', '${'z'.repeat(1_200_000)}', 1, 10, ${Date.now()})`);
  await until('b is down', () => a.manager.peers.list()[0]?.state === 'down');
  cluster.proxy = undefined;
  await until('it is set aside', () => a.manager.health().dead_letter === 1);
  await until('all is well', () => a.manager.health().ok);
});

test('what an edge has overtaken by a write of its own does not stand still either', async () => {
  const { b, hub } = await hubWithALargeChange();
  await until('it stands still', async () => !(await hub.health()).ok);
  b.db.exec(`INSERT INTO items VALUES ('large', 'small', 1, 10, ${Date.now() + 1_000})`);
  await until('all is well', async () => (await hub.health()).ok);
});
