/** A hub with keys: whom it takes batches from, in whose name, and to whom it sends. */
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { type AuthOptions, createKeyring, signRequest } from '../../src/auth/index.ts';
import { respond } from '../../src/http/respond.ts';
import { Cluster, hubIds, hurried, settled, write } from '../support/cluster.ts';
import { rowsOf, until } from '../support/nodes.ts';
import { OTHER_SECRET, SECRET } from './messages.ts';

const one: AuthOptions = { keys: [{ id: 'k1', secret: SECRET }] };

test('a star with a key for each node, of which each may be used by its node alone', { tags: 'long' }, async () => {
  const cluster = new Cluster();
  const keyOf = (id: string): AuthOptions['keys'][number] => ({
    id: `k-${id}`,
    secret: createHash('sha256').update(id).digest('base64'),
    nodes: [id, 'hub'],
  });
  const names = ['a', 'b', 'c'];
  const sign = Object.fromEntries(names.map((name) => [cluster.url(name), `k-${name}`]));
  const hub = await cluster.hub('hub', names, { auth: { keys: names.map(keyOf), sign } });
  const nodes = [];
  for (const name of names) nodes.push(await cluster.node(name, ['hub'], { auth: { keys: [keyOf(name)] } }));
  for (const node of nodes) write(node, `from-${node.name}`);
  await settled('from-a from-b from-c', ...nodes);
  const known = (): object[] => rowsOf(hub.db, 'SELECT node_id, pinned FROM _hub_edges ORDER BY url');
  // They are asked who they are beside what they are sent.
  const isKnown = (): boolean =>
    JSON.stringify(known()) === JSON.stringify(names.map((name) => ({ node_id: name, pinned: name })));
  await until('all edges are known', isKnown);
  expect((await hub.hub.health()).peer_states).toMatchObject(names.map((name) => ({ signed: 'yes', pinned: name })));
  expect(await hub.hub.verify(undefined)).toMatchObject([{ equal: true }, { equal: true }, { equal: true }]);
  for (const { headers } of cluster.requests) expect(headers.signature).toBeDefined();

  // The key of a is not for b: nobody is left out because somebody speaks in his name.
  const [a] = nodes;
  await a?.stop();
  const spoof = await cluster.node('b', ['hub'], { auth: { keys: [keyOf('a')] }, url: cluster.url('x'), file: 'x' });
  write(spoof, 'in-the-name-of-b');
  await until('it is not believed', () => spoof.manager.peers.list()[0]?.state === 'down');
  expect(hubIds(hub)).toBe('from-a from-b from-c');
});

test('a key for one node does not speak for the database of another, which would never be sent the rows', async () => {
  const cluster = new Cluster();
  const keyOf = (id: string): AuthOptions['keys'][number] => ({
    id: `k-${id}`,
    secret: createHash('sha256').update(id).digest('base64'),
    nodes: [id, 'hub'],
  });
  const names = ['a', 'b'];
  const sign = Object.fromEntries(names.map((name) => [cluster.url(name), `k-${name}`]));
  const hub = await cluster.hub('hub', names, { auth: { keys: names.map(keyOf), sign } });
  const a = await cluster.node('a', ['hub'], { auth: { keys: [keyOf('a')] } });
  const b = await cluster.node('b', ['hub'], { auth: { keys: [keyOf('b')] } });
  write(b, 'from-b');
  await settled('from-b', a, b);
  await until('the hub knows b', () => rowsOf(hub.db, 'SELECT url FROM _hub_edges WHERE inc IS NULL').length === 0);

  // What a could say, by its own key, of the database of b: as it is, and as if it had been started again.
  const self = rowsOf(b.db, 'SELECT inc, boot, tick FROM _nodes WHERE self = 1')[0];
  const { inc, boot, tick } = self as { inc: string; boot: string; tick: number };
  const lies = [
    `id=a; inc=${inc}; boot=${boot}; t0=0; t=${tick}`,
    `id=a; inc=${inc}; boot=${Number.parseInt(boot, 10) + 1}-00000000; t0=${tick + 5}; t=${tick + 5}`,
  ];
  const keyring = createKeyring({ keys: [keyOf('a')] });
  for (const [i, said] of [...lies, ...lies].entries()) {
    const row = { id: `lie-${i}`, updated_at: 5 };
    const batch = { batch_id: 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] };
    const body = Buffer.from(JSON.stringify(batch));
    const plain = { 'content-type': 'application/json', 'x-node-id': 'a', 'x-rowcast': said };
    const request = { method: 'POST', path: '/sync', headers: plain, body };
    const signed = signRequest(keyring, request, { now: hurried.now() });
    const headers: Record<string, string> = { ...plain, ...signed.headers };
    const answer = await respond(
      hub.hub,
      {},
      {
        ...{ method: 'POST', path: '/sync', header: (name: string) => headers[name], hold: () => true },
        read: async (_max, tap) => {
          tap?.(body);
          return body;
        },
      },
    );
    expect([answer.status, answer.body]).toEqual([200, expect.stringContaining('"applied":1')]);
  }
  await settled('from-b lie-0 lie-1 lie-2 lie-3', a, b);
});

test('an edge that has not the key is sent nothing, and its id is not learnt', async () => {
  const cluster = new Cluster();
  const hub = await cluster.hub('hub', ['a', 'b'], { auth: one });
  const a = await cluster.node('a', ['hub'], { auth: one });
  await cluster.node('b', [], { auth: { keys: [{ id: 'k1', secret: OTHER_SECRET }] } });
  write(a, 'x1');
  await until('b is down', async () => (await hub.hub.health()).peer_states[1]?.state === 'down');
  expect(cluster.requests.filter(({ method, url }) => method === 'POST' && url.startsWith(cluster.url('b')))).toEqual(
    [],
  );
  expect((await hub.hub.health()).peer_states[1]).toMatchObject({ node_id: null, pinned: null, signed: 'not-yet' });
});

test('an edge that another node answers for is sent nothing until it was taken out once', async () => {
  const cluster = new Cluster();
  const hub = await cluster.hub('hub', ['a'], { auth: one });
  const codes: string[] = [];
  hub.hub.on('warning', ({ code }) => codes.push(code));
  const a = await cluster.node('a', ['hub'], { auth: one });
  await until('a is known', async () => (await hub.hub.health()).peer_states[0]?.pinned === 'a');
  await a.stop();
  const d = await cluster.node('d', ['hub'], { auth: one });
  write(d, 'y1');
  await until('a is down', async () => (await hub.hub.health()).peer_states[0]?.state === 'down');
  const c = await cluster.node('c', ['hub'], { auth: one, url: cluster.url('a') });
  write(c, 'x1');
  await until('the other is noticed', () => codes.includes('other-node'));
  expect(rowsOf(c.db, 'SELECT id FROM items')).toEqual([{ id: 'x1' }]);
  await hub.hub.edges.remove(cluster.url('a'));
  await hub.hub.edges.add(cluster.url('a'));
  await settled('x1 y1', c);
  expect((await hub.hub.health()).peer_states[0]).toMatchObject({ pinned: 'c', signed: 'yes' });
});

test('two hubs with keys are edges of each other', async () => {
  const cluster = new Cluster();
  const [h1, h2] = [
    await cluster.hub('h1', ['a', 'h2'], { auth: one }),
    await cluster.hub('h2', ['b', 'h1'], { auth: one }),
  ];
  const a = await cluster.node('a', ['h1'], { auth: one });
  const b = await cluster.node('b', ['h2'], { auth: one });
  write(a, 'x1');
  write(b, 'y1');
  await settled('x1 y1', a, b);
  await until('both hubs have it', () => [h1, h2].every((hub) => hubIds(hub) === 'x1 y1'));
});
