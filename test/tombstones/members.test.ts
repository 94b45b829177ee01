/** For whom tombstones are kept: by the live list of peers, by who holds an id at present, and through hubs. */
import { describe, expect, test } from 'vitest';
import type { Config } from '../../src/index.ts';
import { Aging, DAY, tombstones } from '../support/aging.ts';
import { ids, type Member, settled, write } from '../support/cluster.ts';
import { rowsOf, until } from '../support/nodes.ts';

const held = (member: Member): string | undefined => member.manager.health().tombstones_held_by?.join();

async function three(cluster: Aging, more: Partial<Config> = {}): Promise<[Member, Member, Member]> {
  const a = await cluster.member('a', ['b', 'c'], more);
  const b = await cluster.member('b', ['a', 'c'], more);
  const c = await cluster.member('c', ['a', 'b'], more);
  write(a, '1', '2');
  write(b, '3');
  write(c, '4');
  await settled('1 2 3 4', a, b, c);
  await cluster.acquainted(a, b, c);
  a.db.exec("DELETE FROM items WHERE id = '1'");
  await settled('2 3 4', a, b, c);
  return [a, b, c];
}

describe('tombstones are not kept', () => {
  test('for a peer that was removed while the node ran, and is silent', { tags: 'long' }, async () => {
    const cluster = new Aging();
    const [a, b, c] = await three(cluster);
    await c.stop();
    for (const one of [a, b]) await one.manager.peers.remove(cluster.url('c'));
    await cluster.pass(100, a, b);
    await cluster.gone(a, b);
    expect(held(a)).toBeUndefined();
  });

  test('for a peer that is stale, and is silent; when it is back, what it has of them is deleted there', {
    tags: 'long',
  }, async () => {
    const cluster = new Aging();
    const [a, b, c] = await three(cluster, { maxBacklog: { ageMs: 30 * DAY } });
    cluster.cut.add(cluster.url('c'));
    await c.stop();
    // Neither it nor anybody for it hears of this.
    a.db.exec("DELETE FROM items WHERE id = '3'");
    b.db.exec("DELETE FROM items WHERE id = '4'");
    await settled('2', a, b);
    await until('both have noticed it', () =>
      [a, b].every(({ manager }) =>
        manager.health().peer_states.some(({ state, lag_ms }) => state === 'down' && lag_ms > 0),
      ),
    );
    await cluster.pass(40, a, b);
    await until('it is stale', () => {
      cluster.offset += 20_000;
      return [a, b].every((one) => one.manager.peers.list().some(({ stale }) => stale));
    });
    await cluster.pass(100, a, b);
    await cluster.gone(a, b);
    cluster.cut.clear();
    const back = await cluster.member('c', ['a', 'b'], { maxBacklog: { ageMs: 30 * DAY } });
    expect(ids(back)).toBe('2 3 4');
    write(a, 'anew');
    await until('both have given it everything', () => ids(back) === ids(a) && ids(back) === ids(b));
    expect([a, b, back].map((one) => one.manager.deadLetters.list())).toEqual([[], [], []]);
  });

  test('for a database that another one, with another id, has replaced', { tags: 'long' }, async () => {
    const cluster = new Aging();
    const [a, b, c] = await three(cluster);
    await c.stop();
    cluster.wipe(c.path);
    const d = await cluster.node('d', ['a', 'b'], { ...cluster.clock, url: cluster.url('c'), file: 'c' });
    cluster.offset += 61_000;
    await settled('2 3 4', a, b, d);
    await cluster.pass(100, a, b, d);
    await cluster.gone(a, b);
    expect(held(a)).toBeUndefined();
  });
});

describe('tombstones are kept', () => {
  test('for a peer that was added while the node ran, and has not said who it is', async () => {
    const cluster = new Aging();
    const [a] = await three(cluster);
    a.manager.peers.add(cluster.url('nobody'));
    cluster.offset += 61_000;
    await until('it is said', () => held(a) === cluster.url('nobody'));
    a.manager.forget(cluster.url('nobody'));
    await until('not any more', () => held(a) === undefined);
  });

  test('for a node that was restored, whatever it said before', async () => {
    const cluster = new Aging();
    const [a, b, c] = await three(cluster);
    const restore = cluster.backup(c);
    write(c, 'lost');
    await settled('2 3 4 lost', a, b, c);
    await c.stop();
    restore();
    const back = await cluster.member('c', ['a', 'b']);
    await settled('2 3 4 lost', a, b, back);
    await until('it has an identity of its own', () => back.events.some((event) => event.startsWith('restored')));
    await cluster.pass(100, a, b, back);
    await cluster.gone(a, b, back);
  });
});

describe('a peer that is stale, and sends all the same', () => {
  test('keeps its own tombstones: it may lack what is older, and nobody who has that may take it for deleted', async () => {
    const cluster = new Aging();
    const [a, b, c] = await three(cluster, { maxBacklog: { ageMs: 30 * DAY }, verify: false });
    await a.manager.peers.pause(cluster.url('c'));
    write(a, 'r');
    await settled('2 3 4 r', a, b);
    // Deleted is what was written later.
    cluster.offset += DAY;
    write(c, 'x');
    await settled('2 3 4 r x', a, b);
    c.db.exec("DELETE FROM items WHERE id = 'x'");
    await settled('2 3 4 r', a, b);
    await cluster.pass(40, a, b);
    await until('it is stale', () => {
      cluster.offset += 20_000;
      return a.manager.peers.list().some(({ stale }) => stale);
    });
    await cluster.pass(100, b, c);
    await until('a has heard of it', () => ids(a).includes('c 2'));
    await cluster.gone(b);
    await until('c says who holds its own', () => {
      cluster.offset += 20_000;
      return held(c) === 'a';
    });
    expect(tombstones(c)).toEqual(['1', 'x']);
    await b.manager.verify(cluster.url('c'), { repair: true });
    expect([a, b, c].map((one) => ids(one).includes('r'))).toEqual([true, true, true]);
    a.manager.peers.resume(cluster.url('c'));
    await until('all is well again', () => ids(a) === ids(c) && ids(a) === ids(b));
    await cluster.gone(a, b, c);
    expect([a, b, c].map((one) => one.manager.deadLetters.list())).toEqual([[], [], []]);
  });
});

describe('through a hub', () => {
  test('nodes that never hear each other collect when all of them have had a deletion for so long', async () => {
    const cluster = new Aging();
    const hub = await cluster.relay('hub', ['a', 'b']);
    const [a, b] = [await cluster.member('a', ['hub']), await cluster.member('b', ['hub'])];
    write(a, '1', '2');
    await settled('1 2', a, b);
    b.db.exec("DELETE FROM items WHERE id = '1'");
    await settled('2', a, b);
    await cluster.pass(100, a, b);
    await cluster.pass(1, a, b);
    await cluster.gone(a, b);
    // The hub keeps it: its id and its version.
    expect(rowsOf(hub.db, "SELECT row_id FROM _hub_rows WHERE op = 'DELETE'")).toEqual([{ row_id: '1' }]);
    expect((await hub.hub.verify()).map(({ equal, differences }) => [equal, differences])).toEqual([
      [true, 0],
      [true, 0],
    ]);
  });

  test('an edge that is away holds them, until it is no edge any more', { tags: 'long' }, async () => {
    const cluster = new Aging();
    const hub = await cluster.relay('hub', ['a', 'b', 'c']);
    const [a, b] = [await cluster.member('a', ['hub']), await cluster.member('b', ['hub'])];
    const c = await cluster.member('c', ['hub']);
    write(a, '1', '2');
    await settled('1 2', a, b, c);
    await c.stop();
    b.db.exec("DELETE FROM items WHERE id = '1'");
    await settled('2', a, b);
    await cluster.pass(100, a, b);
    await cluster.pass(1, a, b);
    await until('it is said', () => held(a) === 'hub');
    expect(tombstones(a)).toEqual(['1']);
    await hub.hub.edges.remove(cluster.url('c'));
    await cluster.pass(1, a, b);
    await cluster.pass(1, a, b);
    await cluster.gone(a, b);
  });

  test('two hubs that are edges of each other do not wait for each other', { tags: 'long' }, async () => {
    const cluster = new Aging();
    await cluster.relay('h1', ['a', 'h2']);
    await cluster.relay('h2', ['b', 'h1']);
    const [a, b] = [await cluster.member('a', ['h1']), await cluster.member('b', ['h2'])];
    write(a, '1', '2');
    await settled('1 2', a, b);
    b.db.exec("DELETE FROM items WHERE id = '1'");
    await settled('2', a, b);
    await cluster.pass(100, a, b);
    await cluster.gone(a, b);
  });

  test('it says nothing before all edges have spoken, and to none what that one has said', async () => {
    const cluster = new Aging();
    await cluster.relay('hub', ['a', 'b']);
    const a = await cluster.member('a', ['hub']);
    write(a, '1');
    await until('it has spoken', () => cluster.requests.some(({ headers }) => headers['x-node-id'] === 'hub'));
    expect(cluster.said('hub')).toBeUndefined();
    const b = await cluster.member('b', ['hub']);
    await settled('1', a, b);
    cluster.offset += 60_000;
    write(b, '2');
    await until('it says how far it is', () => cluster.said('hub') !== undefined);
  });
});

test('what came from a node for which nobody waited is not taken for deleted when that one is heard again', {
  tags: 'long',
}, async () => {
  const cluster = new Aging();
  const [a, b, c] = await three(cluster, { verify: false });
  await a.manager.peers.pause(cluster.url('c'));
  await c.manager.peers.remove(cluster.url('a'));
  await until('b was given all of it', () => c.manager.peers.list().every(({ snapshot }) => !snapshot));
  write(a, 'kept');
  await settled('2 3 4 kept', a, b);
  write(b, 'later');
  await until('c has it', () => ids(c) === '2 3 4 later');
  b.db.exec("DELETE FROM items WHERE id = 'later'");
  await until('c has heard of it', () => ids(c) === '2 3 4');
  await cluster.pass(100, b, c);
  await cluster.gone(c);
  c.manager.peers.add(cluster.url('a'));
  await until('it is heard', () =>
    c.manager.peers.list().some(({ url, state }) => url === cluster.url('a') && state === 'up'),
  );
  await c.manager.flush();
  const [result] = await b.manager.verify(cluster.url('c'), { repair: true });
  expect(result?.error).toBeUndefined();
  expect([a, b].map((one) => ids(one).includes('kept'))).toEqual([true, true]);
  expect(c.manager.deadLetters.list().map(({ code, rowId }) => [code, rowId])).toEqual([['below-floor', 'kept']]);
});
