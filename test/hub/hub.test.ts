/** The hub: newest versions of every row, an ordinary peer to every node, and quiet once everybody has everything. */

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { createHub, type Hub, type HubConfig } from '../../src/hub/hub.ts';
import { attach } from '../../src/index.ts';
import {
  count,
  type Door,
  deliver,
  door,
  edge,
  gone,
  hub,
  insert,
  live,
  plainAck,
  quiet,
  star,
  T,
} from '../support/hubs.ts';
import {
  cleanUp,
  database,
  exactRows,
  ITEMS,
  rowsOf,
  scratchFolder,
  serve,
  type TestNode,
  until,
} from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

describe('a star', () => {
  test('every write reaches every other node, and none comes back to where it was made', async () => {
    const { nodes, doors, hub } = await star(3);
    const [a, b, c] = nodes as [TestNode, TestNode, TestNode];
    insert(a, 'from-a');
    insert(b, 'from-b');
    insert(c, 'from-c');
    await until('all have all', () => nodes.every((one) => count(one) === 3));
    a.db.exec("DELETE FROM items WHERE id = 'from-b'");
    b.db.exec(`UPDATE items SET name = 'changed', updated_at = ${T + 5} WHERE id = 'from-a'`);
    await until('all agree', () => nodes.every((one) => count(one) === 2));
    await quiet([hub], nodes);
    await until('all agree', () => new Set(nodes.map(({ db }) => exactRows(db, 'items').join())).size === 1);
    doors.forEach(({ bodies }, i) => {
      const own = `from-${'abc'[i]}`;
      const inserted = bodies.join().match(/"op":"INSERT","table":"items","row":\{"id":"([^"]+)"/g) ?? [];
      expect(inserted.some((text) => text.includes(own))).toBe(false);
      expect(inserted.length).toBeGreaterThan(0);
    });
  });

  test('the hub says in health who its edges are and how far they are', async () => {
    const { nodes, doors, hub } = await star(2);
    insert(nodes[0] as TestNode, 'x');
    insert(nodes[0] as TestNode, 'y');
    await until('it has arrived', () => count(nodes[1] as TestNode) === 2);
    await quiet([hub], nodes);
    (nodes[1] as TestNode).db.exec("DELETE FROM items WHERE id = 'x'");
    await until('it is gone', () => count(nodes[0] as TestNode) === 1);
    await quiet([hub], nodes);
    expect(await hub.health()).toMatchObject({
      ok: true,
      node_id: 'hub',
      item_count: 1,
      pending_changes: 0,
      dead_letter: 0,
      peers: doors.map(({ url }) => url),
      lag_ms: 0,
      problems: [],
    });
    const [first] = (await hub.health()).peer_states;
    expect(first).toMatchObject({ node_id: 'a', pending: 0, lag_ms: 0, last_error: null });
  });

  test('an edge that is away holds nobody back, and gets the newest version of each row, not the history', async () => {
    const { nodes, doors, hub, rows } = await star(3);
    const [a, b, c] = nodes as [TestNode, TestNode, TestNode];
    (doors[2] as Door).close();
    insert(a, 'one');
    insert(a, 'two');
    await until('b has it', () => count(b) === 2);
    for (let i = 1; i <= 20; i++) {
      a.db.exec(`UPDATE items SET name = 'n${i}', updated_at = ${T + i} WHERE id = 'one'`);
      await a.manager.flush();
    }
    await until('b is up to date', () => b.all("SELECT name FROM items WHERE id = 'one'")[0]?.name === 'n20');
    expect(rows()).toHaveLength(2);
    const pending = async (): Promise<number[]> => (await hub.health()).peer_states.map((state) => state.pending);
    await until('only c is behind', async () => (await pending()).join() === '0,0,2');
    (doors[2] as Door).bodies.length = 0;
    (doors[2] as Door).open(createListener(c.manager));
    await until('c has it', () => exactRows(c.db, 'items').join() === exactRows(a.db, 'items').join());
    const sent = (doors[2] as Door).bodies.flatMap((body) => JSON.parse(body).changes);
    // The batch that was tried all the time, and the newest version of what has changed since.
    expect(sent.length).toBeLessThanOrEqual(4);
  });

  test('a node that is added later gets the whole state, deletions included', async () => {
    const path = join(scratchFolder(), 'hub.db');
    const early = await hub({}, path);
    await deliver(early.hub, [live('x', T), live('y', T), live('z', T)], 'a');
    await deliver(early.hub, [gone('y', T)], 'a');
    await early.hub.stop();
    const at = await door();
    const late = await edge('late', [], at);
    await deliver(late.manager, [live('y', T)]);
    const { hub: second } = await hub({ edges: [at.url] }, path);
    await until('it has everything', async () => (await second.health()).pending_changes === 0);
    expect(late.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 'x' }, { id: 'z' }]);
    expect(late.all('SELECT row_id FROM _tombstones')).toEqual([{ row_id: 'y' }]);
    expect(at.syncs).toBe(1);
  });

  test('a restart goes on where it was; an edge that was taken out and named again begins anew', async () => {
    const path = join(scratchFolder(), 'hub.db');
    const [left, right] = [await door(), await door()];
    const nodes = [await edge('left', [], left), await edge('right', [], right)];
    const edges = [left.url, right.url];
    const first = await hub({ edges }, path);
    await deliver(first.hub, [live('x', T), live('y', T)]);
    await until('both have it', () => nodes.every((one) => count(one) === 2));
    await quiet([first.hub], []);
    await first.hub.stop();
    const syncs = [left.syncs, right.syncs];
    const second = await hub({ edges: [left.url] }, path);
    await second.hub.flush();
    expect([left.syncs, right.syncs]).toEqual(syncs);
    expect(rowsOf(second.db, 'SELECT url FROM _hub_edges')).toEqual([{ url: left.url }]);
    await second.hub.stop();
    const third = await hub({ edges }, path);
    await until('right was told', () => right.syncs > (syncs[1] as number));
    await quiet([third.hub], []);
    expect(left.syncs).toBe(syncs[0]);
    expect(JSON.parse(right.bodies.at(-1) as string).changes).toHaveLength(2);
  });

  test('another node at a known address gets everything', async () => {
    const at = await door();
    const path = join(scratchFolder(), 'hub.db');
    await edge('old', [], at);
    const first = await hub({ edges: [at.url] }, path);
    await deliver(first.hub, [live('x', T)]);
    await until('the old node has it', async () => (await first.hub.health()).pending_changes === 0);
    await first.hub.stop();
    const fresh = await edge('new', [], at);
    await hub({ edges: [at.url] }, path);
    await until('the new node has it', () => count(fresh) === 1);
  });

  test('an answer from the node before does not count for the one that has taken its place', async () => {
    const clock = new VirtualClock();
    const sent: string[] = [];
    const answers: (() => void)[] = [];
    let id = 'old';
    const { hub: made } = await hub({
      edges: ['http://edge.test'],
      clock,
      requestTimeoutMs: 3_600_000,
      get: async () => ({ status: 200, text: async () => JSON.stringify({ node_id: id }) }),
      fetch: (_, { body, signal }) =>
        new Promise((resolve, reject) => {
          signal.addEventListener('abort', reject);
          const text = Buffer.from(body).toString();
          sent.push(text);
          const answer = JSON.stringify({ applied: 1, ack: JSON.parse(text).batch_id });
          answers.push(() => resolve({ status: 200, text: async () => answer }));
        }),
    });
    const pass = async (ms: number): Promise<void> => {
      await clock.advance(ms);
      await clock.advance(0);
    };
    await pass(20);
    await deliver(made, [live('x', T)]);
    await pass(20);
    answers.shift()?.();
    await pass(20);
    await deliver(made, [live('y', T)]);
    await pass(20);
    expect(sent).toHaveLength(2);
    id = 'new';
    await pass(30_000);
    answers.shift()?.();
    // What does not count is followed by a pause.
    await pass(100);
    while (answers.length > 0) {
      answers.shift()?.();
      await pass(20);
    }
    expect(sent.slice(2).flatMap((text) => JSON.parse(text).changes)).toEqual([live('x', T), live('y', T)]);
    expect((await made.health()).pending_changes).toBe(0);
  });

  test('two edges with one id are reported and both served, with each other\u2019s changes too', async () => {
    const center = await door();
    const doors = [await door(), await door()];
    const nodes = [
      await edge('twin', [center.url], doors[0] as Door),
      await edge('twin', [center.url], doors[1] as Door),
    ];
    const warnings: string[] = [];
    const made = await hub({ edges: doors.map(({ url }) => url) });
    made.hub.on('warning', ({ code }) => warnings.push(code));
    center.open(createListener(made.hub));
    await until('it is noticed', () => warnings.length > 0);
    insert(nodes[0] as TestNode, 'x');
    await until('the other has it', () => count(nodes[1] as TestNode) === 1);
    expect(warnings).toEqual(['same-id']);
  });

  test('an edge that is named twice, in two spellings, is one edge', async () => {
    const bodies: string[] = [];
    const url = await serve((request, response) => plainAck(request, response, bodies));
    const { hub: made } = await hub({ edges: [url, `${url}/`, url.replace('http:', 'HTTP:')] });
    expect((await made.health()).peers).toEqual([url]);
    await deliver(made, [live('x', T)]);
    await until('it has arrived', async () => (await made.health()).pending_changes === 0);
    expect(bodies).toHaveLength(1);
  });

  test('an edge that goes by the contract is sent its four keys, whatever the sender has said besides', async () => {
    const bodies: string[] = [];
    const url = await serve((request, response) => plainAck(request, response, bodies));
    const { hub: made } = await hub({ edges: [url] });
    const change = live('x', T);
    await deliver(made, [{ ...change, op: 'UPDATE', base: T - 1 }]);
    await until('it has arrived', async () => (await made.health()).pending_changes === 0);
    expect(bodies.flatMap((body) => JSON.parse(body).changes)).toEqual([{ ...change, op: 'UPDATE' }]);
  });

  test('ids that edges come to have in common are noticed, and that they no longer have', async () => {
    const clock = new VirtualClock();
    const ids: Record<string, string> = { 'http://one.test': 'a', 'http://two.test': 'b', 'http://three.test': 'c' };
    const sent: Record<string, number> = {};
    const { hub: made } = await hub({
      edges: Object.keys(ids),
      clock,
      get: async (url) => ({
        status: 200,
        text: async () => JSON.stringify({ node_id: ids[url.replace('/health', '')] }),
      }),
      fetch: async (url, { body }) => {
        const { batch_id: ack, changes } = JSON.parse(Buffer.from(body).toString());
        const host = url.replace('/sync', '');
        sent[host] = (sent[host] ?? 0) + changes.length;
        return { status: 200, text: async () => JSON.stringify({ applied: 0, ack }) };
      },
    });
    const warnings: string[] = [];
    made.on('warning', ({ code, message }) => warnings.push(`${code} ${message.match(/http:\S+test/g)}`));
    const pass = async (ms: number): Promise<void> => {
      for (const step of [ms, 20, 20, 20]) await clock.advance(step);
    };
    await pass(50);
    await deliver(made, [live('r1', T)], 'a');
    await pass(50);
    expect(sent).toEqual({ 'http://two.test': 1, 'http://three.test': 1 });
    // Two answers as one does: each may have what the other has not.
    ids['http://two.test'] = 'a';
    await pass(30_000);
    expect(warnings).toEqual(['same-id http://one.test,http://two.test']);
    await deliver(made, [live('r2', T)], 'a');
    await pass(50);
    // The new one at two.test begins with the whole state, and r1 may have been its own: one.test, which may lack it, is sent it.
    expect(sent).toEqual({ 'http://one.test': 2, 'http://two.test': 3, 'http://three.test': 2 });
    ids['http://two.test'] = 'd';
    await pass(30_000);
    await deliver(made, [live('r3', T)], 'a');
    await pass(50);
    expect(sent).toEqual({ 'http://one.test': 2, 'http://two.test': 6, 'http://three.test': 3 });
    expect(warnings).toHaveLength(1);
  });

  test('an edge that is the hub itself is reported, and there is no end of nothing', async () => {
    const own = await door();
    const made = await hub({ edges: [own.url] });
    own.open(createListener(made.hub));
    const warnings: string[] = [];
    made.hub.on('warning', ({ code }) => warnings.push(code));
    await deliver(made.hub, [live('x', T)], 'a');
    await until('it is noticed', () => warnings.length > 0);
    await quiet([made.hub], []);
    const { syncs } = own;
    for (let i = 0; i < 3; i++) await quiet([made.hub], []);
    expect([warnings, own.syncs]).toEqual([['own-id'], syncs]);
  });

  test('an edge whose answers are no JSON is not taken for one that has it, or refuses it', async () => {
    let sane = false;
    const bodies: string[] = [];
    const url = await serve((request, response) => {
      if (sane) return plainAck(request, response, bodies);
      request.resume();
      response.writeHead(200, { 'content-type': 'text/html' }).end('<html>sign in</html>');
    });
    const { hub: made } = await hub({ edges: [url] });
    await deliver(made, [live('x', T)]);
    await until('it was tried', async () => (await made.health()).peer_states[0]?.last_error != null);
    expect(await made.health()).toMatchObject({ pending_changes: 1, dead_letter: 0, peer_states: [{ node_id: null }] });
    sane = true;
    await until('it has arrived', async () => (await made.health()).pending_changes === 0);
    expect(bodies).toHaveLength(1);
  });

  test('a peer without /health is served all the same', async () => {
    const bodies: string[] = [];
    const url = await serve((request, response) => plainAck(request, response, bodies));
    const { hub: made } = await hub({ edges: [url] });
    await deliver(made, [live('x', T)], 'somebody');
    await until('it has arrived', () => bodies.length === 1);
    expect(JSON.parse(bodies[0] as string).changes).toEqual([live('x', T)]);
  });

  test('an edge whose name no store can hold has none, and those that answer with it have theirs', async () => {
    const said = ['a\0b', '\ud800', 'good'];
    const urls: string[] = [];
    for (const node_id of said) {
      const bodies: string[] = [];
      urls.push(
        await serve((request, response) =>
          request.url === '/health' ? response.end(JSON.stringify({ node_id })) : plainAck(request, response, bodies),
        ),
      );
    }
    const { hub: made } = await hub({ edges: urls });
    const names = async (): Promise<unknown[]> => (await made.health()).peer_states.map(({ node_id }) => node_id);
    await until('they are known', async () => (await names()).includes('good'));
    expect(await names()).toEqual([null, null, 'good']);
  });
});

describe('hubs among themselves', () => {
  test('two linked hubs pass a change on once and go quiet', async () => {
    const doors = [await door(), await door()] as [Door, Door];
    const leaves = [await door(), await door()] as [Door, Door];
    const nodes = [await edge('a', [doors[0].url], leaves[0]), await edge('b', [doors[1].url], leaves[1])];
    const hubs = [
      (await hub({ id: 'h1', edges: [leaves[0].url, doors[1].url] })).hub,
      (await hub({ id: 'h2', edges: [leaves[1].url, doors[0].url] })).hub,
    ] as [Hub, Hub];
    for (const [i, at] of doors.entries()) at.open(createListener(hubs[i] as Hub));
    for (const one of hubs) {
      await until('edges are known', async () =>
        (await one.health()).peer_states.every(({ node_id }) => node_id !== null),
      );
    }
    insert(nodes[0] as TestNode, 'x');
    await until('it went across', () => count(nodes[1] as TestNode) === 1);
    await quiet(hubs, nodes);
    // From a to h1, from h1 to h2, from h2 to b: nothing else was said.
    expect([...doors, ...leaves].map(({ syncs }) => syncs)).toEqual([1, 1, 0, 1]);
  });

  test('a ring of three hubs goes quiet after one pass, whoever writes', async () => {
    const doors = [await door(), await door(), await door()] as [Door, Door, Door];
    const hubs: Hub[] = [];
    for (let i = 0; i < 3; i++) {
      const edges = doors.filter((_, j) => j !== i).map(({ url }) => url);
      hubs.push((await hub({ id: `h${i}`, edges })).hub);
    }
    for (const [i, at] of doors.entries()) at.open(createListener(hubs[i] as Hub));
    for (const one of hubs) {
      await until('edges are known', async () =>
        (await one.health()).peer_states.every(({ node_id }) => node_id !== null),
      );
    }
    for (let round = 0; round < 3; round++) {
      await deliver(hubs[round] as Hub, [live('x', T + round), gone(`g${round}`, T)], 'writer');
      await quiet(hubs, []);
    }
    const syncs = doors.map((one) => one.syncs);
    // Per write: to both others, and at most once more from each of them to the third.
    expect(syncs.reduce((sum, n) => sum + n, 0)).toBeLessThanOrEqual(3 * 4);
    for (let i = 0; i < 5; i++) await quiet(hubs, []);
    expect(doors.map((one) => one.syncs)).toEqual(syncs);
    for (const one of hubs) expect(await one.health()).toMatchObject({ item_count: 1, pending_changes: 0 });
  });
});

describe('the database', () => {
  test('of a node, or of anybody else, is refused and left alone', async () => {
    const path = join(scratchFolder(), 'node.db');
    const db = await database(ITEMS, path);
    const manager = attach(db, { id: 'a', peers: [] }, ['items']);
    await manager.stop();
    const before = rowsOf(db, 'SELECT name FROM sqlite_schema ORDER BY name');
    await expect(createHub(db, { id: 'hub', edges: [] })).rejects.toThrow(/not a hub's: it holds .*own/);
    expect(rowsOf(db, 'SELECT name FROM sqlite_schema ORDER BY name')).toEqual(before);
  });

  test('that is damaged is refused with a message that says so', async () => {
    const path = join(scratchFolder(), 'hub.db');
    const made = await hub({}, path);
    await deliver(
      made.hub,
      Array.from({ length: 500 }, (_, i) => live(`r${i}`, T, { name: 'x'.repeat(100) })),
    );
    await made.hub.stop();
    made.db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    const bytes = readFileSync(path);
    bytes.fill(0x5a, 8_192, 40_000);
    const broken = join(scratchFolder(), 'broken.db');
    writeFileSync(broken, bytes);
    await expect(hub({}, broken)).rejects.toThrow(/the database is damaged: .*own/);
  });

  test('of another version of the hub is refused', async () => {
    const db = await database('CREATE TABLE _hub_rows (seq INTEGER PRIMARY KEY)');
    await expect(createHub(db, { id: 'hub', edges: [] })).rejects.toThrow(/another version/);
  });

  test('that can no longer be read makes health say so', async () => {
    const { hub: made, db } = await hub({ edges: ['http://127.0.0.1:9'] });
    await deliver(made, [live('x', T)]);
    expect((await made.health()).ok).toBe(true);
    db.exec('DROP TABLE _dead_letter');
    const health = await made.health();
    expect(health).toMatchObject({ ok: false, peers: ['http://127.0.0.1:9'] });
    expect(health.problems.join()).toMatch(/cannot be read.*_dead_letter/);
  });

  test('many edges are asked at once, none of them through one signal: a runtime warns of ten listeners', async () => {
    const listening = vi.spyOn(EventTarget.prototype, 'addEventListener');
    cleanUp(() => listening.mockRestore());
    let asked = 0;
    const { hub: made } = await hub({
      edges: Array.from({ length: 30 }, (_, i) => `http://e${i}.test`),
      get: (_, { signal }) => {
        asked += 1;
        return new Promise((__, reject) => signal.addEventListener('abort', reject));
      },
      fetch: async () => ({ status: 503, text: async () => '' }),
    });
    await until('all are asked', () => asked === 30);
    const listeners = new Map<unknown, number>();
    for (const signal of listening.mock.contexts) listeners.set(signal, (listeners.get(signal) ?? 0) + 1);
    expect(listeners.size).toBeGreaterThan(30);
    expect(Math.max(...listeners.values())).toBeLessThan(10);
    await made.stop();
  });

  test('keeps nothing running after stop', async () => {
    const { hub: made } = await hub({ edges: ['http://127.0.0.1:9'] });
    await deliver(made, [live('x', T)]);
    await made.stop();
    await made.stop();
    await expect(made.health()).rejects.toThrow(/stopped/);
  });
});

test('options are checked by name', async () => {
  const db = await database('SELECT 1');
  await expect(createHub(db, { id: '', edges: [] })).rejects.toThrow(/"id"/);
  await expect(createHub(db, { id: 'h', edges: ['ftp://x'] })).rejects.toThrow(/ftp/);
  await expect(createHub(db, { id: 'h', edges: [], batchsize: 5 } as unknown as HubConfig)).rejects.toThrow(
    /batchsize/,
  );
});
