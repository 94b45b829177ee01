/** A peer that is Rowcast and whose server has none of the routes for comparisons: somebody is told, once. */
import { expect, test } from 'vitest';
import type { Listener } from '../../src/events.ts';
import { createListener } from '../../src/http/index.ts';
import { door, edge, hub, insert, live } from '../support/hubs.ts';
import { ITEMS, until } from '../support/nodes.ts';
import { plainPeer } from '../support/plain-peer.ts';
import { pair, THERE } from './pairs.ts';

const MOUNT =
  /^\S+ cannot be compared with: it has no \/sync\/compare\. Mount POST \/sync\/compare and POST \/sync\/fetch/;

function warnings(of: { on(name: 'warning', listener: Listener<'warning'>): unknown }): string[] {
  const told: string[] = [];
  of.on('warning', ({ code, message }) => code === 'cannot-compare' && told.push(message));
  return told;
}

test('on a node, when it is compared with, and not again', async () => {
  const the = await pair({ here: ITEMS });
  const told = warnings(the.manager);
  the.plain = true;
  the.link.up = true;
  the.here.exec("INSERT INTO items VALUES ('first', 'x', 1, 1, NULL)");
  await the.manager.flush();
  for (const _ of [1, 2]) {
    expect(await the.manager.verify()).toMatchObject([
      { equal: false, error: expect.stringContaining('/sync/compare') },
    ]);
  }
  expect(told).toEqual([expect.stringMatching(MOUNT)]);
  expect(told[0]).toContain(THERE);
});

test('of a peer that has shown nothing of Rowcast, nothing is told', async () => {
  const the = await pair({ here: ITEMS });
  const told = warnings(the.manager);
  the.plain = true;
  await the.manager.verify();
  expect(told).toEqual([]);
});

test('on a hub, of an edge that is Rowcast; not of a plain one', async () => {
  const [center, at, plain] = [await door(), await door(), await plainPeer()];
  const a = await edge('a', [center.url], at);
  const listener = createListener(a.manager);
  at.open((request, response) => {
    if (request.url?.startsWith('/sync/')) response.writeHead(404).end();
    else listener(request, response);
  });
  const made = await hub({ edges: [at.url, plain.url] });
  center.open(createListener(made.hub));
  const told = warnings(made.hub);
  insert(a, 'one');
  await made.hub.receive(JSON.stringify({ batch_id: 1, changes: [live('two', 1_000)] }), {});
  await until('both edges have it', async () => (await made.hub.health()).pending_changes === 0);
  for (const _ of [1, 2]) await made.hub.verify();
  expect(told).toEqual([expect.stringMatching(MOUNT)]);
  expect(told[0]).toContain(at.url);
});
