/** After a restart there may be nothing to send for days: the peers are asked all the same, and compared with. */
import { expect, test } from 'vitest';
import { createHandler, createListener } from '../../src/http/index.ts';
import { createHub } from '../../src/hub/hub.ts';
import { attach, type Manager } from '../../src/index.ts';
import { door, edge, hub, insert, quiet } from '../support/hubs.ts';
import { cleanUp, exactRows, type TestNode, until } from '../support/nodes.ts';
import { silently } from './pairs.ts';

const LONG_AGO = 1_600_000_000_000;
const OFTEN = { batchMs: 5, verify: { every: '1s' } } as const;

/** The process is another one, and the application of it writes nothing. */
async function startAgain(node: TestNode, id: string, peers: string[]): Promise<Manager> {
  await node.manager.stop();
  const again = attach(node.db, { id, peers, ...OFTEN }, ['items']);
  cleanUp(() => again.stop());
  return again;
}

const states = (manager: Manager): string[] => manager.health().peer_states.map(({ state }) => state);

test('two nodes that are started again, and write nothing, know each other to be up, and put right what differs', async () => {
  const doors = [await door(), await door()] as const;
  const a = await edge('a', [doors[1].url], doors[0]);
  const b = await edge('b', [doors[0].url], doors[1]);
  insert(a, 'x', 'n', LONG_AGO);
  insert(b, 'y', 'n', LONG_AGO);
  await quiet([], [a, b]);
  await until('both have both', () => exactRows(a.db, 'items').join() === exactRows(b.db, 'items').join());
  silently([b.db], () => b.db.exec("DELETE FROM items WHERE id = 'x'"));
  const [one, two] = [await startAgain(a, 'a', [doors[1].url]), await startAgain(b, 'b', [doors[0].url])];
  doors[0].open(createListener(one));
  doors[1].open(createListener(two));
  await until('both are up', () => [...states(one), ...states(two)].every((state) => state === 'up'));
  const ready = await createHandler(one)(new Request('http://a.test/readyz?peers=1'));
  expect(ready.status).toBe(200);
  await until('they were compared', () => exactRows(a.db, 'items').join() === exactRows(b.db, 'items').join());
  expect(exactRows(b.db, 'items')).toHaveLength(2);
});

test('so do a hub and its edges', { tags: 'long' }, async () => {
  const center = await door();
  const doors = [await door(), await door()] as const;
  const a = await edge('a', [center.url], doors[0]);
  const b = await edge('b', [center.url], doors[1]);
  const edges = doors.map(({ url }) => url);
  const first = await hub({ edges });
  center.open(createListener(first.hub));
  insert(a, 'x', 'n', LONG_AGO);
  await quiet([first.hub], [a, b]);
  await until('all have it', () => exactRows(b.db, 'items').length === 1);
  await quiet([first.hub], [a, b]);
  await first.hub.stop();
  silently([b.db], () => b.db.exec('DELETE FROM items'));
  const one = await startAgain(a, 'a', [center.url]);
  const again = await createHub(first.db, { id: 'hub', edges, batchMs: 5, maxAheadMs: 0, verify: { every: '1s' } });
  cleanUp(() => again.stop());
  center.open(createListener(again));
  doors[0].open(createListener(one));
  await until('the hub knows them to be up', async () =>
    (await again.health()).peer_states.every(({ state }) => state === 'up'),
  );
  await until('a knows it to be up', () => states(one).join() === 'up');
  await until('b was compared with', () => exactRows(b.db, 'items').length === 1);
});
