/** The hub: newest versions of every row, an ordinary peer to every node, and quiet once everybody has everything. */

import { readFileSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { createListener } from '../../src/http/index.ts';
import { FanOut } from '../../src/hub/fan-out.ts';
import { createHub, type Hub, type HubConfig } from '../../src/hub/hub.ts';
import { SqliteHubStore } from '../../src/hub/sqlite-store.ts';
import { attach, type Manager } from '../../src/index.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import type { TestDatabase } from '../support/lane.ts';
import { Random } from '../support/model.ts';
import {
  cleanUp,
  database,
  exactRows,
  ITEMS,
  type NodeOptions,
  node,
  rowsOf,
  scratchFolder,
  serve,
  type TestNode,
  until,
} from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const SELF = { id: 'hub', random: Math.random };

const T = 4_000_000_000_000;

interface TestHub {
  hub: Hub;
  db: TestDatabase;
  rows(): Record<string, unknown>[];
}

async function hub(config: Partial<HubConfig> = {}, path = ':memory:'): Promise<TestHub> {
  const db = await database('SELECT 1', path);
  const made = await createHub(db, { id: 'hub', edges: [], batchMs: 5, ...config });
  cleanUp(() => made.stop());
  const rows = (): Record<string, unknown>[] =>
    rowsOf(
      db,
      'SELECT op, table_name, row_id, updated_at, row_data, origin FROM _hub_rows ORDER BY table_name, row_id',
    );
  return { hub: made, db, rows };
}

/** A batch as somebody's body; returns the answer's body. */
async function deliver(
  to: { receive: Hub['receive'] | Manager['receive'] },
  changes: unknown[],
  from?: string,
): Promise<{ applied: number; rejected?: { code: string }[] }> {
  const answer = await to.receive(JSON.stringify({ batch_id: 1, changes }), { from });
  if (answer.status !== 200) throw new Error(`${answer.status} ${answer.body.error}`);
  return answer.body;
}

function live(id: string, updatedAt: number, more: Record<string, unknown> = { name: 'n' }, op = 'UPDATE'): object {
  return { op, table: 'items', row: { id, ...more, updated_at: updatedAt }, old_id: null };
}

function gone(id: string, updatedAt: number): object {
  return { op: 'DELETE', table: 'items', row: { id, updated_at: updatedAt }, old_id: id };
}

/** A server whose application can come later, that counts what it is asked, and that can be out of order. */
interface Door {
  url: string;
  syncs: number;
  /** The bodies of every `/sync`, in order. */
  bodies: string[];
  open(listener: RequestListener): void;
  close(): void;
}

async function door(): Promise<Door> {
  let inner: RequestListener | undefined;
  const self: Door = {
    url: '',
    syncs: 0,
    bodies: [],
    open: (listener) => {
      inner = listener;
    },
    close: () => {
      inner = undefined;
    },
  };
  self.url = await serve((request, response) => {
    if (!inner) return void response.writeHead(503).end('closed');
    if (request.url === '/sync') {
      self.syncs += 1;
      const chunks: Buffer[] = [];
      request.on('data', (chunk) => chunks.push(chunk));
      request.on('end', () => self.bodies.push(Buffer.concat(chunks).toString()));
    }
    inner(request, response);
  });
  return self;
}

/** A node behind a door, shipping to `peers`. */
async function edge(id: string, peers: string[], at: Door, options: NodeOptions = {}): Promise<TestNode> {
  const made = await node({ id, peers, batchMs: 5, ...options });
  at.open(createListener(made.manager));
  return made;
}

/** A star: a hub and nodes a, b, c, ... that know the hub alone. */
async function star(n: number, config: Partial<HubConfig> = {}) {
  const center = await door();
  const doors = await Promise.all(Array.from({ length: n }, () => door()));
  const nodes: TestNode[] = [];
  for (const [i, at] of doors.entries()) nodes.push(await edge(String.fromCharCode(97 + i), [center.url], at));
  const made = await hub({ edges: doors.map(({ url }) => url), ...config });
  center.open(createListener(made.hub));
  await until('the edges are known', async () =>
    (await made.hub.health()).peer_states.every((one) => one.node_id !== null),
  );
  return { ...made, center, doors, nodes };
}

function insert({ db }: TestNode, id: string, name = 'n', time = T): void {
  db.prepare('INSERT INTO items (id, name, value, created_at, updated_at) VALUES (?, ?, 1, 1, CAST(? AS INTEGER))').run(
    id,
    name,
    time,
  );
}

const count = ({ db }: TestNode): number => rowsOf(db, 'SELECT count(*) AS n FROM items')[0]?.n as number;

/** Nobody has anything left to send. */
async function quiet(hubs: Hub[], nodes: TestNode[]): Promise<void> {
  await until('all is quiet', async () => {
    for (const { manager } of nodes) await manager.flush();
    for (const one of hubs) await one.flush();
    const healths = await Promise.all([...nodes.map(({ manager }) => manager), ...hubs].map((one) => one.health()));
    return healths.every(({ pending_changes }) => pending_changes === 0);
  });
}

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
    await pass(20);
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
    // The new one at two.test begins with the whole state.
    expect(sent).toEqual({ 'http://one.test': 1, 'http://two.test': 3, 'http://three.test': 2 });
    ids['http://two.test'] = 'd';
    await pass(30_000);
    await deliver(made, [live('r3', T)], 'a');
    await pass(50);
    expect(sent).toEqual({ 'http://one.test': 1, 'http://two.test': 6, 'http://three.test': 3 });
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
});

/** Acknowledges everything, and knows no other route. */
function plainAck(request: IncomingMessage, response: ServerResponse, bodies: string[]): void {
  if (request.url !== '/sync') return void response.writeHead(404).end();
  const chunks: Buffer[] = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    bodies.push(Buffer.concat(chunks).toString());
    response.end(JSON.stringify({ applied: 0, ack: JSON.parse(bodies.at(-1) as string).batch_id }));
  });
}

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

describe('what is stored', () => {
  test('values pass byte for byte, and names in whatever case', async () => {
    const bodies: string[] = [];
    const url = await serve((request, response) => plainAck(request, response, bodies));
    const { hub: made } = await hub({ edges: [url] });
    const row =
      '{"id":"x","a":1.0,"b":9223372036854775807,"c":123456789012345678901234567890,"d":1e5,"e":"\\u0041\\ud83d\\ude00\\/","f":-0.0,' +
      '"g":"$blob:00FF","h":{"n":[1.50,null]},"i":true,"j":"9007199254740993","k":null,"\\u006b2":"","updated_at":5}';
    const body = `{"batch_id":1,"changes":[{"op":"INSERT","table":"Ite\\"ms","row":${row},"old_id":null}]}`;
    expect(await made.receive(body)).toEqual({
      status: 200,
      body: { applied: 1, ack: 1 },
      headers: expect.any(Object),
    });
    await until('it has arrived', () => bodies.length === 1);
    expect(bodies[0]).toBe(body);
  });

  test('it knows no schema: a row keeps the columns that the sender of a newer version does not have', async () => {
    const { hub: made, rows } = await hub();
    await deliver(made, [live('x', T, { name: 'old', ratio: 0.5, N2: 1 })]);
    expect((await deliver(made, [live('x', T + 1, { name: 'new', extra: [1] })])).applied).toBe(1);
    expect(rows()[0]?.row_data).toBe(`{"id":"x","name":"new","extra":[1],"updated_at":${T + 1},"ratio":0.5,"N2":1}`);
    expect((await deliver(made, [live('x', T + 1, { name: 'new', extra: [1] })])).applied).toBe(1);
    await deliver(made, [live('x', T + 2, { NAME: 'newer', n2: 2 })]);
    expect(JSON.parse(rows()[0]?.row_data as string)).toEqual({
      id: 'x',
      NAME: 'newer',
      n2: 2,
      updated_at: T + 2,
      extra: [1],
      ratio: 0.5,
    });
    await deliver(made, [gone('x', T + 3)]);
    await deliver(made, [live('x', T + 4, { name: 'again' })]);
    expect(JSON.parse(rows()[0]?.row_data as string)).toEqual({ id: 'x', name: 'again', updated_at: T + 4 });
  });

  test('a row put together from two is nobody\u2019s: it goes back to the sender of the newer version too', async () => {
    const { hub: made, rows } = await hub();
    await deliver(made, [live('x', T, { name: 'old', extra: 'kept' })], 'a');
    await deliver(made, [live('x', T + 1, { name: 'new' })], 'b');
    expect(rows()[0]).toMatchObject({ updated_at: T + 1, origin: null });
    await deliver(made, [live('x', T + 2, { name: 'whole', extra: 'again' })], 'b');
    expect(rows()[0]).toMatchObject({ updated_at: T + 2, origin: 'b' });
  });

  test('nodes with two schemas of one table keep all columns through the hub', async () => {
    const center = await door();
    const doors = [await door(), await door(), await door()] as [Door, Door, Door];
    const narrow = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';
    const wide = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, price REAL, updated_at INTEGER)';
    const a = await edge('a', [center.url], doors[0], { schema: narrow });
    const b = await edge('b', [center.url], doors[1], { schema: wide });
    const made = await hub({ edges: [doors[0].url, doors[1].url] });
    center.open(createListener(made.hub));
    b.db.exec(`INSERT INTO items VALUES ('x', 'first', 2.5, ${T})`);
    await until('a has it', () => count(a) === 1);
    a.db.exec(`UPDATE items SET name = 'second', updated_at = ${T + 1}`);
    await until('b has it', () => b.all('SELECT name FROM items')[0]?.name === 'second');
    expect(b.all('SELECT price FROM items')).toEqual([{ price: 2.5 }]);
    // One that comes later is told of both.
    const c = await node({ schema: wide });
    const [kept] = made.rows();
    await deliver(c.manager, [
      { op: kept?.op, table: 'items', row: JSON.parse(kept?.row_data as string), old_id: null },
    ]);
    expect(exactRows(c.db, 'items')).toEqual(exactRows(b.db, 'items'));
  });

  test('it advances only by what is newer, and what did not advance it is not passed on', async () => {
    const bodies: string[] = [];
    const url = await serve((request, response) => plainAck(request, response, bodies));
    const { hub: made, rows } = await hub({ edges: [url] });
    await deliver(made, [live('x', T, { name: 'm' })]);
    await until('it was sent', () => bodies.length === 1);
    expect((await deliver(made, [live('x', T, { name: 'm' })])).applied).toBe(1);
    expect((await deliver(made, [live('x', T, { name: 'a' })])).applied).toBe(0);
    expect((await deliver(made, [live('x', T - 1, { name: 'z' })])).applied).toBe(0);
    expect((await deliver(made, [gone('x', T - 1)])).applied).toBe(0);
    await made.flush();
    expect(bodies).toHaveLength(1);
    expect((await deliver(made, [gone('x', T)])).applied).toBe(1);
    expect((await deliver(made, [gone('x', T), live('x', T, { name: 'zzz' })])).applied).toBe(2);
    await made.flush();
    expect(bodies).toHaveLength(2);
    expect(rows()).toMatchObject([{ op: 'DELETE', row_id: 'x', updated_at: T }]);
  });

  test('ids and table names are told apart as nodes do it', async () => {
    const { hub: made, rows } = await hub();
    const odd = (id: string, table: string, more = {}): object => ({
      op: 'INSERT',
      table,
      row: { ID: id, Updated_At: T, ...more },
      old_id: null,
    });
    expect(
      (await deliver(made, [odd('$text:$blob:', 'Items'), odd('$blob:ab', 'items'), odd('$blob:AB', 'ITEMS')])).applied,
    ).toBe(3);
    expect((await deliver(made, [live('$int:5', T), live('5', T)])).applied).toBe(2);
    expect(rows().map(({ row_id }) => row_id)).toEqual(['$blob:AB', '$text:$blob:', '5']);
  });
});

test('a table that a node asks for again goes to all edges, its own rows to it as well, and once in ten minutes', async () => {
  const made = await hub();
  await deliver(made.hub, [live('mine', T), live('old', T), gone('dead', T)], 'a');
  await deliver(made.hub, [{ ...live('other', T), table: 'others' }], 'a');
  const places = (): unknown[] =>
    rowsOf(made.db, 'SELECT row_id, seq, origin FROM _hub_rows ORDER BY seq').map(({ row_id, seq, origin }) => [
      row_id,
      seq,
      origin,
    ]);
  const ask = (header: string) => made.hub.receive('{"batch_id":1,"changes":[]}', { from: 'a', sendAgain: header });
  for (const nonsense of ['%', 'null', '{}', '"items"', encodeURIComponent('["nowhere"]')]) await ask(nonsense);
  const before = places();
  expect(before).toHaveLength(4);
  expect((await ask(encodeURIComponent('["ITEMS"]'))).status).toBe(200);
  await until('it has new places', () => JSON.stringify(places()) !== JSON.stringify(before));
  expect(places()).toEqual([
    ['other', 4, 'a'],
    ['mine', 5, null],
    ['old', 6, null],
    ['dead', 7, null],
  ]);
  await ask('*');
  await until('the other table has, too', () => JSON.stringify(places()).includes('["other",11,null]'));
  expect(places().slice(0, 3)).toEqual([
    ['mine', 5, null],
    ['old', 6, null],
    ['dead', 7, null],
  ]);
});

describe('agreement with nodes', () => {
  const SCHEMA =
    'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, ratio REAL, data BLOB, updated_at INTEGER)';
  const VALUES: Record<string, unknown[]> = {
    name: [null, '', 'a', 'A', 'aa', 'ab"c', '\n', '\u00e9', '\ud83d\ude00', '$text:$blob:00', '10', '9', '{"a":1}'],
    value: [null, 0, 1, -1, 9, 10, 9007199254740991, '9007199254740993', '-9223372036854775808', '9e999'],
    ratio: [null, 0.5, 1.5, -2.25, 1e21, 1e-7, 0.1, '9e999', '-9e999'],
    data: [null, '$blob:', '$blob:00', '$blob:FF', 'text', 7, '$int:9007199254740993', '$real:9e999', 1.5],
  };

  /** A Rowcast node: of a plain sender the later change wins a tie within a batch. */
  const SENDER = { from: 'a', said: 'id=a' };

  test.each([1, 2, 3, 4, 5, 6, 7, 8])(
    'random ties are decided alike by the hub and by a node (seed %i)',
    async (seed) => {
      const random = new Random(seed);
      const pick = <V>(from: V[]): V => from[Math.floor(random.next() * from.length)] as V;
      const made = await hub();
      const real = await node({ schema: SCHEMA });
      for (let batch = 0; batch < 60; batch++) {
        const changes = Array.from({ length: 1 + Math.floor(random.next() * 6) }, () => {
          const id = pick(['p', 'q', '$blob:0A']);
          const updatedAt = T + Math.floor(random.next() * 3) + (batch >> 3);
          const row: Record<string, unknown> = { id };
          for (const key of ['value', 'name', 'data', 'ratio']) row[key] = pick(VALUES[key] as unknown[]);
          row.updated_at = updatedAt;
          if (random.next() < 0.12) return { op: 'DELETE', table: 'items', row, old_id: id };
          return { op: pick(['INSERT', 'UPDATE']), table: pick(['items', 'items', 'Items']), row, old_id: null };
        });
        const body = JSON.stringify({ batch_id: batch, changes });
        const { status, body: answer } = real.manager.receive(body, SENDER);
        expect(await made.hub.receive(body, SENDER), body).toEqual({
          status,
          body: answer,
          headers: expect.any(Object),
        });
      }
      const copy = await node({ schema: SCHEMA });
      for (const { op, row_id, row_data } of made.rows()) {
        await deliver(copy.manager, [
          { op, table: 'items', row: JSON.parse(row_data as string), old_id: op === 'DELETE' ? row_id : null },
        ]);
      }
      expect(exactRows(copy.db, 'items')).toEqual(exactRows(real.db, 'items'));
      const graves =
        'SELECT row_id, version FROM _tombstones WHERE row_id NOT IN (SELECT id FROM items) ORDER BY row_id';
      expect(copy.all(graves)).toEqual(real.all(graves));
    },
  );
});

test('a SQLite without JSONB gives the same answers', async () => {
  const random = new Random(9);
  const [fast, slow] = await Promise.all(
    [true, false].map(async (jsonb) => {
      const db = new Connection(await database('SELECT 1'));
      const maxBodyBytes = 1_000_000;
      const store = new SqliteHubStore(db, { clock: systemClock, maxBodyBytes, ...SELF, jsonb });
      await store.open();
      return { db, store };
    }),
  );
  if (!fast || !slow) throw new Error('unreachable');
  for (let batch = 0; batch < 100; batch++) {
    const changes = Array.from({ length: 5 }, () => {
      const id = `r${Math.floor(random.next() * 4)}`;
      const at = T + Math.floor(random.next() * 4);
      const dice = random.next();
      if (dice < 0.1) return [7, 'text', null, { op: 'INSERT' }][Math.floor(dice * 40)];
      if (dice < 0.2) return { op: 'DELETE', table: 'items', row: null, old_id: id };
      if (dice < 0.3) return gone(id, at);
      return live(id, at, { name: dice > 0.6 ? 'b' : null, ...(dice > 0.8 && { more: [dice > 0.9, 1.5] }) });
    });
    const body = JSON.stringify({ batch_id: batch, changes });
    const sender = { from: 'a', plain: batch % 2 === 0 };
    expect(await slow.store.receive(body, sender), body).toEqual(await fast.store.receive(body, sender));
  }
  const all = 'SELECT * FROM _hub_rows ORDER BY seq';
  expect(slow.db.all(all)).toEqual(fast.db.all(all));
});

describe('what is no change', () => {
  test('is set aside with the reason, and does not stop the others', async () => {
    const { hub: made, db, rows } = await hub();
    const parked: string[] = [];
    made.on('dead-letter', ({ code }) => parked.push(code));
    const bad: [unknown, string][] = [
      [7, 'bad-change'],
      ['text', 'bad-change'],
      [null, 'bad-change'],
      [[], 'bad-change'],
      [{ ...live('x', T), op: 'UPSERT' }, 'bad-op'],
      [{ ...live('x', T), table: 5 }, 'unknown-table'],
      [{ ...live('x', T), table: '' }, 'unknown-table'],
      [{ ...live('x', T), row: 'text' }, 'bad-row'],
      [{ ...live('x', T), row: null }, 'bad-row'],
      [live('x', 8_640_000_000_000_001), 'bad-timestamp'],
      [live('x', 1.5), 'bad-timestamp'],
      [{ op: 'INSERT', table: 'items', row: { id: 5, updated_at: T }, old_id: null }, 'bad-id'],
      [{ op: 'INSERT', table: 'items', row: { id: { a: 1 }, updated_at: T }, old_id: null }, 'bad-id'],
      [{ op: 'DELETE', table: 'items', row: { id: 'x', updated_at: T }, old_id: 'y' }, 'bad-id'],
      [{ op: 'DELETE', table: 'items', row: null, old_id: 'never seen' }, 'bad-row'],
    ];
    const changes = [live('good', T), ...bad.map(([change]) => change), live('fine', T)];
    const answer = await deliver(made, changes, 'a');
    expect(answer.applied).toBe(2);
    expect(answer.rejected?.map(({ code }) => code)).toEqual(bad.map(([, code]) => code));
    expect(await deliver(made, changes, 'a')).toEqual(answer);
    expect(rows().map(({ row_id }) => row_id)).toEqual(['fine', 'good']);
    expect((await made.health()).dead_letter).toBe(bad.length);
    expect((await made.deadLetters.list())[0]).toMatchObject({ direction: 'in', peer: 'a', code: 'bad-change' });
    expect(parked).toHaveLength(2 * bad.length);
    expect(rowsOf(db, 'SELECT count(*) AS n FROM _dead_letter')).toEqual([{ n: bad.length }]);
  });

  test('a DELETE without a row takes the version that the hub has', async () => {
    const { hub: made, rows } = await hub();
    await deliver(made, [live('x', T, { name: 'kept' }), live('y', T)], 'a');
    const rowless = (id: string): object => ({ op: 'DELETE', table: 'items', row: null, old_id: id });
    expect(await deliver(made, [rowless('x')], 'b')).toEqual({ applied: 1, ack: 1 });
    expect(rows()[0]).toMatchObject({ op: 'DELETE', updated_at: T, origin: 'b' });
    expect(JSON.parse(rows()[0]?.row_data as string)).toEqual({ id: 'x', updated_at: T });
    expect((await deliver(made, [rowless('x')], 'b')).applied).toBe(1);
    // What the batch says of the row later stands against it.
    expect((await deliver(made, [rowless('y'), live('y', T + 1)])).applied).toBe(2);
    expect((await deliver(made, [rowless('y'), live('y', T + 1)])).applied).toBe(2);
    expect(rows()[1]).toMatchObject({ op: 'UPDATE', updated_at: T + 1 });
  });

  test('a body that is not a batch is refused as a node refuses it, and changes nothing', async () => {
    const { hub: made, rows } = await hub({ maxBodyBytes: 2_000_000 });
    const status = async (body: string | Uint8Array): Promise<number> => (await made.receive(body)).status;
    expect(await status('nonsense')).toBe(400);
    expect(await status('[]')).toBe(400);
    expect(await status('{"batch_id":"1","changes":[]}')).toBe(400);
    expect(await status('{"batch_id":1,"changes":{}}')).toBe(400);
    expect(await status(new Uint8Array([0xff, 0xfe]))).toBe(400);
    const many = Array.from({ length: 10_001 }, (_, i) => live(`r${i}`, T));
    const { status: ofMany } = await made.receive(JSON.stringify({ batch_id: 1, changes: many }), { said: 'id=a' });
    expect(ofMany).toBe(413);
    expect(await status(`{"batch_id":1,"changes":[],"x":"${'x'.repeat(2_000_000)}"}`)).toBe(413);
    expect(rows()).toEqual([]);
    expect(await made.receive('{"batch_id":9223372036854775807,"changes":[]}')).toEqual({
      status: 200,
      body: { applied: 0, ack: '9223372036854775807' },
      headers: expect.any(Object),
    });
    const at = await serve(createListener(made));
    const post = (type: string): Promise<Response> =>
      fetch(`${at}/sync`, { method: 'POST', headers: { 'content-type': type }, body: '{"batch_id":1,"changes":[]}' });
    expect((await post('text/plain')).status).toBe(415);
    expect(await (await post('application/json')).json()).toEqual({ applied: 0, ack: 1 });
    await made.stop();
    expect((await made.receive('{"batch_id":1,"changes":[]}')).status).toBe(503);
    expect((await fetch(`${at}/health`)).status).toBe(503);
  });
});

describe('shipping', () => {
  /** An edge that refuses every batch with a certain id in it. */
  const refusing = (poison: string, bodies: string[]): RequestListener => {
    return (request, response) => {
      if (request.url !== '/sync') return void response.writeHead(404).end();
      const chunks: Buffer[] = [];
      request.on('data', (chunk) => chunks.push(chunk));
      request.on('end', () => {
        const body = Buffer.concat(chunks).toString();
        if (body.includes(`"${poison}"`)) return void response.writeHead(422).end('{"error":"no"}');
        bodies.push(body);
        response.end(JSON.stringify({ applied: 0, ack: JSON.parse(body).batch_id }));
      });
    };
  };

  test('a change that one edge refuses becomes a dead letter of that edge alone', async () => {
    const [picky, other]: [string[], string[]] = [[], []];
    const urls = [await serve(refusing('r7', picky)), await serve(refusing('nothing', other))];
    const { hub: made } = await hub({ edges: urls });
    const letters: string[] = [];
    made.on('dead-letter', ({ peer, rows }) => letters.push(`${peer} ${rows.map(({ id }) => id)}`));
    await deliver(
      made,
      Array.from({ length: 20 }, (_, i) => live(`r${i}`, T)),
      'a',
    );
    await until('it is given up', () => letters.length === 1);
    await until('the rest is delivered', async () => (await made.health()).pending_changes === 0);
    expect(letters).toEqual([`${urls[0]} r7`]);
    const ids = (bodies: string[]): string[] => [
      ...new Set(bodies.flatMap((body) => JSON.parse(body).changes.map(({ row }: { row: { id: string } }) => row.id))),
    ];
    expect(ids(picky)).toHaveLength(19);
    expect(ids(other)).toHaveLength(20);
    expect(await made.deadLetters.list()).toMatchObject([
      { direction: 'out', rowId: 'r7', peer: urls[0], code: 'refused' },
    ]);
    await made.deadLetters.discard((await made.deadLetters.list())[0]?.id as number);
    expect((await made.health()).dead_letter).toBe(0);
  });

  test('a letter that is tried again goes out in the row\u2019s newest version', async () => {
    const bodies: string[] = [];
    let poison = 'r1';
    const url = await serve((request, response) => refusing(poison, bodies)(request, response));
    const { hub: made } = await hub({ edges: [url] });
    await deliver(made, [live('r1', T, { name: 'refused' })], 'a');
    await until('it is given up', async () => (await made.health()).dead_letter === 1);
    poison = 'nothing';
    const [letter] = await made.deadLetters.list();
    expect(await made.deadLetters.retry(letter?.id as number)).toEqual({ outcome: 'queued' });
    await until('it has arrived', () => bodies.length === 1);
    expect(bodies[0]).toContain('"refused"');
    expect((await made.health()).dead_letter).toBe(0);
    await expect(made.deadLetters.retry(99)).rejects.toThrow('there is no dead letter 99');
  });

  test('a letter of what is no change stays one, however often it is tried', async () => {
    const { hub: made } = await hub();
    await deliver(made, [{ ...live('x', T), op: 'UPSERT' }], 'a');
    const [letter] = await made.deadLetters.list();
    expect(await made.deadLetters.retry(letter?.id as number)).toMatchObject({ outcome: 'kept' });
    expect(await made.deadLetters.list()).toMatchObject([{ id: letter?.id, retryCount: 1, code: 'bad-op' }]);
  });

  test('the search for a refused change leaves out the edge\u2019s own', async () => {
    const bodies: string[] = [];
    const inner = refusing('r7', bodies);
    const url = await serve((request, response) => {
      if (request.url === '/health') return void response.end('{"node_id":"self"}');
      inner(request, response);
    });
    const { hub: made } = await hub({ edges: [url] });
    await until('the edge is known', async () => (await made.health()).peer_states[0]?.node_id === 'self');
    for (let i = 0; i < 12; i++) {
      await deliver(made, [live(`own${i}`, T)], 'self');
      await deliver(made, [live(`r${i}`, T)], 'a');
    }
    await until('all is said', async () => (await made.health()).pending_changes === 0);
    expect(bodies.join()).not.toContain('own');
    for (let i = 0; i < 12; i++) expect(bodies.join().includes(`"r${i}"`)).toBe(i !== 7);
    expect((await made.deadLetters.list()).map(({ rowId }) => rowId)).toEqual(['r7']);
  });

  test('a batch is read once for all edges at the same position, however many they are', async () => {
    const bodies: string[][] = Array.from({ length: 16 }, () => []);
    const edges: string[] = [];
    for (const list of bodies) edges.push(await serve((request, response) => plainAck(request, response, list)));
    const { hub: made } = await hub({ edges, batchSize: 200 });
    await deliver(
      made,
      Array.from({ length: 1_000 }, (_, i) => live(`r${i}`, T)),
      'a',
    );
    await until('all have it', async () => (await made.health()).pending_changes === 0);
    expect(made.fanOut).toMatchObject({ reads: 5, served: 5 * 16 });
    for (const list of bodies) expect(list.flatMap((body) => JSON.parse(body).changes)).toHaveLength(1_000);
  });

  test('a batch that is no longer what it was is not handed out again', async () => {
    const db = new Connection(await database('SELECT 1'));
    const maxBodyBytes = 100_000;
    const store = new SqliteHubStore(db, { clock: systemClock, maxBodyBytes, ...SELF });
    await store.open();
    const limit = { changes: 10, bytes: 100_000 };
    const fanOut = new FanOut(store, limit);
    const send = (...changes: object[]): unknown =>
      store.receive(JSON.stringify({ batch_id: 1, changes }), { from: undefined, plain: true });
    const ids = async (from: number): Promise<string[]> => {
      const body = (await fanOut.next(from, limit, undefined))?.body ?? new Uint8Array();
      return JSON.parse(Buffer.from(body).toString()).changes.map(({ row }: { row: { id: string } }) => row.id);
    };
    await send(live('x', T), live('y', T));
    expect([await ids(0), await ids(0)]).toEqual([
      ['x', 'y'],
      ['x', 'y'],
    ]);
    expect(fanOut.reads).toBe(1);
    await send(live('z', T));
    // Still exact, and what is new comes after it.
    expect([await ids(0), fanOut.reads]).toEqual([['x', 'y'], 1]);
    await send(live('x', T + 1));
    expect([await ids(0), fanOut.reads]).toEqual([['y', 'z', 'x'], 2]);
  });

  test('edges share a batch even where their own changes are in it, and each gets it without those', async () => {
    const ids = ['a', 'b', 'c'];
    const bodies: string[][] = ids.map(() => []);
    const edges: string[] = [];
    let away = true;
    for (const [i, id] of ids.entries()) {
      edges.push(
        await serve((request, response) => {
          if (away) return void response.writeHead(503).end();
          if (request.url === '/health') return void response.end(JSON.stringify({ node_id: id }));
          plainAck(request, response, bodies[i] as string[]);
        }),
      );
    }
    const path = join(scratchFolder(), 'hub.db');
    // Named before there is anything: one that is new is sent its own changes, too.
    const before = await hub({ edges }, path);
    for (let n = 0; n < 60; n++) {
      const from = [...ids, undefined][n % 4];
      const name = '\u00e9'.repeat(n);
      await deliver(before.hub, [live(`r${n}.1`, T, { name }), n % 5 ? live(`r${n}.2`, T) : gone(`r${n}.2`, T)], from);
    }
    await before.hub.stop();
    away = false;
    const { hub: made } = await hub({ edges }, path);
    await until('all have it', async () => (await made.health()).pending_changes === 0);
    expect(made.fanOut.reads).toBe(1);
    for (const [i, list] of bodies.entries()) {
      const got = list.flatMap((body) => JSON.parse(body).changes.map(({ row }: { row: { id: string } }) => row.id));
      const wanted = Array.from({ length: 60 }, (_, n) => n).filter((n) => n % 4 !== i);
      expect(got).toEqual(wanted.flatMap((n) => [`r${n}.1`, `r${n}.2`]));
    }
  });

  test('an edge that never answers keeps nobody waiting', async () => {
    const bodies: string[] = [];
    const stuck = await serve((request) => void request.resume());
    const fine = await serve((request, response) => plainAck(request, response, bodies));
    const { hub: made } = await hub({ edges: [stuck, fine], batchSize: 50 });
    for (let i = 0; i < 20; i++)
      await deliver(
        made,
        Array.from({ length: 100 }, (_, j) => live(`r${i}.${j}`, T)),
        'a',
      );
    await until('the other has it', async () => (await made.health()).peer_states[1]?.pending === 0);
    expect((await made.health()).peer_states[0]?.pending).toBe(2_000);
    await made.stop();
  });

  test('large rows are split by bytes, and a row that is larger than a batch goes alone', async () => {
    const bodies: string[] = [];
    const url = await serve((request, response) => plainAck(request, response, bodies));
    const { hub: made } = await hub({ edges: [url], maxBatchBytes: 10_000 });
    const rows = [50, 4_000, 4_000, 4_000, 30_000, 50].map((n, i) =>
      live(`r${i}`, T, { name: '\u00e9'.repeat(n / 2) }),
    );
    await deliver(made, rows);
    await until('it has arrived', async () => (await made.health()).pending_changes === 0);
    const sizes = bodies.map((body) => JSON.parse(body).changes.length);
    expect(sizes.reduce((sum, n) => sum + n, 0)).toBe(6);
    const large = bodies.filter((body) => Buffer.byteLength(body) > 10_000);
    expect(large.map((body) => JSON.parse(body).changes.length)).toEqual([1]);
    expect(sizes.length).toBeLessThanOrEqual(5);
  });
});

test('rows of 100 KiB are measured by their lengths: a batch is read for what fits into it, and no more', async () => {
  const db = new Connection(await database('SELECT 1'));
  const maxBodyBytes = 64 * 1024 * 1024;
  const store = new SqliteHubStore(db, { clock: systemClock, maxBodyBytes, ...SELF });
  await store.open();
  const large = Array.from({ length: 60 }, (_, i) => live(`r${i}`, T, { name: 'x'.repeat(100 * 1024) }));
  await store.receive(JSON.stringify({ batch_id: 1, changes: large }), { from: 'a', plain: false });
  const segment = await store.read(0, { changes: 1_000, bytes: 1024 * 1024 });
  expect(segment?.count).toBe(10);
  expect(segment?.body.byteLength).toBeLessThanOrEqual(1024 * 1024);
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
    db.exec('DROP VIEW _hub_live');
    const health = await made.health();
    expect(health).toMatchObject({ ok: false, peers: ['http://127.0.0.1:9'] });
    expect(health.problems.join()).toMatch(/cannot be read.*_hub_live/);
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
