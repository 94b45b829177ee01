/** Several hubs on one PostgreSQL: who serves whom, who takes over, and what is refused. */
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { ownerOf } from '../../src/hub/ownership.ts';
import { EPOCH } from '../../src/hub/postgres/epoch.ts';
import { SCHEMA_VERSION } from '../../src/hub/postgres/schema.ts';
import type { Found, Segment } from '../../src/hub/store.ts';
import { groupStore, openGroupStore } from '../support/group-store.ts';
import { type GroupHub, groupHub } from '../support/groups.ts';
import { count, deliver, door, edge, insert, live, T } from '../support/hubs.ts';
import { type TestNode, until } from '../support/nodes.ts';
import { Gate, plantedDriver } from '../support/planted-driver.ts';
import { hasPostgres, newDatabase, postgresServer, query } from '../support/postgres.ts';

const LIMIT = { changes: 100, bytes: 1_000_000 };
const ROWCAST = { from: 'a', plain: false };

function batch(...changes: object[]): string {
  return JSON.stringify({ batch_id: 1, changes });
}

describe('who serves an edge', () => {
  const urls = Array.from({ length: 3_000 }, (_, i) => `http://10.0.${i >> 8}.${i & 255}:9001`);

  test('all have about as many, and only those of one that goes change hands', () => {
    const before = urls.map((url) => ownerOf(url, ['a:1', 'b:1', 'c:1']));
    for (const member of ['a:1', 'b:1', 'c:1']) {
      const share = before.filter((owner) => owner === member).length;
      expect(share).toBeGreaterThan(850);
      expect(share).toBeLessThan(1_150);
    }
    const after = urls.map((url) => ownerOf(url, ['a:1', 'c:1']));
    expect(urls.filter((_, i) => before[i] !== 'b:1' && before[i] !== after[i])).toEqual([]);
    expect(ownerOf('http://e', [])).toBeUndefined();
  });
});

describe.skipIf(!hasPostgres)('a group of hubs', () => {
  const server = postgresServer();

  const served = async (hubs: GroupHub[]): Promise<string[]> =>
    (await Promise.all(hubs.map(async ({ hub }) => (await hub.health()).peers))).flat().sort();

  test('what comes in at one of them goes to the edges of all, each of which is one\u2019s alone', async () => {
    const url = await newDatabase(server());
    const doors = await Promise.all(Array.from({ length: 6 }, () => door()));
    const edges = doors.map((at) => at.url);
    const hubs = [await groupHub(url, { edges }), await groupHub(url), await groupHub(url)];
    await until('each edge is served by one', async () => (await served(hubs)).join() === edges.toSorted().join());
    const nodes: TestNode[] = [];
    for (const [i, at] of doors.entries()) {
      nodes.push(await edge(`n${i}`, [(hubs[i % 3] as GroupHub).door.url], at));
    }
    for (const [i, node] of nodes.entries()) insert(node, `row${i}`);
    await until('all have all', () => nodes.every((node) => count(node) === 6));
    // One that ends hands over what it served; nobody begins anew.
    const [gone, ...left] = hubs as [GroupHub, ...GroupHub[]];
    await gone.hub.stop();
    await until('the others serve its edges', async () => (await served(left)).join() === edges.toSorted().join());
    for (const { manager } of nodes) await manager.peers.add((left[0] as GroupHub).door.url);
    insert(nodes[0] as TestNode, 'later');
    await until('all have that, too', () => nodes.every((node) => count(node) === 7));
    const positions = 'SELECT count(*)::int AS n FROM rowcast.edges WHERE position > 0';
    await until('it is noted how far each is', async () => (await query(url, positions))[0]?.n === 6);
  });

  test('an edge that is added, paused or removed at one of them is so for all', async () => {
    const url = await newDatabase(server());
    const hubs = [await groupHub(url), await groupHub(url)] as const;
    const at = await door();
    const bodies: string[] = [];
    at.open((request, response) => {
      if (request.url !== '/sync') return void response.writeHead(404).end();
      const chunks: Buffer[] = [];
      request.on('data', (chunk) => chunks.push(chunk));
      request.on('end', () => {
        bodies.push(Buffer.concat(chunks).toString());
        response.end(JSON.stringify({ applied: 0, ack: JSON.parse(bodies.at(-1) as string).batch_id }));
      });
    });
    await hubs[0].hub.edges.add(at.url);
    await until('one serves it', async () => (await served([...hubs])).join() === at.url);
    await deliver(hubs[1].hub, [live('x', T)]);
    await until('it has the row', () => bodies.length > 0);
    const other = hubs.find(({ instance }) => instance !== ownerOf(at.url, hubs.map((one) => one.instance).sort()));
    await other?.hub.edges.pause(at.url);
    const owner = hubs.find((one) => one !== other) as GroupHub;
    await until('its owner has heard', async () => (await owner.hub.edges.list())[0]?.paused === true);
    await until('and pauses it', async () => (await owner.hub.health()).peer_states[0]?.paused === true);
    await other?.hub.edges.resume(at.url);
    await other?.hub.edges.reseed(at.url);
    await until('it gets everything again', () => bodies.length > 1);
    await other?.hub.edges.remove(at.url);
    await until('nobody serves it', async () => (await served([...hubs])).length === 0);
    await expect(hubs[0].hub.edges.pause(at.url)).rejects.toMatchObject({ code: 'INVALID_PEER' });
    expect(await hubs[0].hub.edges.list()).toEqual([]);
  });

  test('two of one name are refused while the first is seen, and one that has died is followed', async () => {
    const url = await newDatabase(server());
    const seen = (when: string) => query(url, `UPDATE rowcast.hubs SET seen = now() ${when} interval '1 hour'`);
    const first = await openGroupStore(url, { instance: 'one' });
    await seen('+');
    const hasty = { ...systemClock, sleep: async () => {} };
    const second = await groupStore(url, { instance: 'one', clock: hasty });
    await expect(second.open()).rejects.toMatchObject({ code: 'INVALID_OPTION' });
    await seen('-');
    const next = await openGroupStore(url, { instance: 'one' });
    // Should the first one have only slept, it hears that its name is another's.
    await seen('+');
    await expect(first.group.beat(3_000)).rejects.toMatchObject({ code: 'INVALID_OPTION' });
    await seen('-');
    expect((await next.group.beat(60_000)).members).toEqual(['one']);
  });

  test('another group\u2019s id, another format and a server without fsync are refused', async () => {
    const url = await newDatabase(server());
    await openGroupStore(url);
    const refusal = async (options = {}, at = url): Promise<string> =>
      (await groupStore(at, options)).open().then(
        () => 'opened',
        ({ message }) => message,
      );
    expect(await refusal({ id: 'other' })).toContain('belongs to the group "hub"');
    await query(url, 'UPDATE rowcast.meta SET base = base - 494780232499');
    expect(await refusal()).toContain('nine tenths of the places');
    await query(url, 'UPDATE rowcast.meta SET base = base + 494780232499');
    await query(url, "UPDATE rowcast.meta SET role = 'another'");
    expect(await refusal()).toContain('belongs to the role "another"');
    await query(url, 'UPDATE rowcast.meta SET schema_version = 99');
    expect(await refusal()).toContain('version 99');
    const foreign = await newDatabase(server());
    await query(foreign, 'CREATE SCHEMA rowcast');
    await query(foreign, 'CREATE TABLE rowcast.things (x int)');
    expect(await refusal({}, foreign)).toContain("is not a group's");
    const off = plantedDriver({ replace: ({ text }) => text.replace("current_setting('fsync')", "'off'") });
    expect(await refusal({ driver: off }, await newDatabase(server()))).toContain('fsync = off');
    const old = plantedDriver({
      replace: ({ text }) => text.replace("current_setting('server_version_num')", "'120022'"),
    });
    expect(await refusal({ driver: old }, await newDatabase(server()))).toContain('too old');
  });

  test('what an older build has made is taken on, and then refused by that one', async () => {
    const url = await newDatabase(server());
    const before = await openGroupStore(url);
    await before.receive(batch(live('x', T)), ROWCAST);
    await before.close();
    const columns = `SELECT table_name, column_name, data_type FROM information_schema.columns
      WHERE table_schema = 'rowcast' ORDER BY table_name, ordinal_position`;
    const made = await query(url, columns);
    await query(
      url,
      'ALTER TABLE rowcast.nodes DROP COLUMN claim; ALTER TABLE rowcast.meta DROP COLUMN place; DROP INDEX rowcast.edges_node; ' +
        'DROP INDEX rowcast.nodes_id; UPDATE rowcast.meta SET schema_version = 1',
    );
    const stores = await Promise.all([openGroupStore(url), openGroupStore(url)]);
    for (const store of stores) expect(await store.read(0, LIMIT)).toMatchObject({ count: 1 });
    expect(await query(url, columns)).toEqual(made);
    expect(await query(url, 'SELECT schema_version AS v FROM rowcast.meta')).toEqual([{ v: SCHEMA_VERSION }]);
  });

  test('a standby for which nobody waits is told of', async () => {
    const standbys = '(SELECT count(*) FROM pg_stat_replication)';
    const driver = plantedDriver({ replace: ({ text }) => text.replace(standbys, '1::bigint') });
    const url = await newDatabase(server());
    expect(await (await groupStore(url, { driver })).open()).toMatchObject([{ code: 'asynchronous-standby' }]);
    expect(await (await groupStore(url)).open()).toEqual([]);
  });

  test('I8: what was learnt of another state of the server moves no position', async () => {
    const url = await newDatabase(server());
    let epoch: string | undefined;
    const driver = plantedDriver({
      replace: ({ text }) => (epoch === undefined ? text : text.replaceAll(EPOCH, `'${epoch}'::text`)),
    });
    const store = await openGroupStore(url, { driver });
    const found: Found[] = [];
    store.company.onFound((one) => found.push(one));
    await store.addEdges(['http://e']);
    await store.receive(batch(live('x', T)), ROWCAST);
    const { end } = (await store.read(0, LIMIT)) as Segment;
    const { generation } = await store.edge('http://e');
    // The server is another one, and nobody has noticed yet.
    epoch = 'promoted';
    await store.advance([{ url: 'http://e', generation, position: end }]);
    expect((await store.edge('http://e')).position).toBe(0);
    await store.group.beat(3_000);
    expect(found).toContainEqual({ kind: 'another-file' });
    const again = await store.edge('http://e');
    expect(again.generation).not.toBe(generation);
    await store.advance([{ url: 'http://e', generation, position: end }]);
    expect((await store.edge('http://e')).position).toBe(0);
    await store.advance([{ url: 'http://e', generation: again.generation, position: end }]);
    expect((await store.edge('http://e')).position).toBe(end);
  });

  test('a row that comes while a batch is looked at closely is looked at again', async () => {
    const url = await newDatabase(server());
    const gate = new Gate();
    let held = 0;
    const isWrite = (text: string): boolean => text.includes('t.seq = ANY (');
    const driver = plantedDriver({ hold: ({ text }) => (isWrite(text) && held++ === 0 ? gate.pass() : undefined) });
    const [slow, fast] = [await openGroupStore(url, { driver }), await openGroupStore(url)];
    // Two versions of one time: the greater content stands.
    const received = slow.receive(batch(live('x', T, { name: 'a' }), live('x', T, { name: 'b' })), ROWCAST);
    await gate.arrived;
    await fast.receive(batch(live('x', T, { name: 'c' })), ROWCAST);
    gate.open();
    expect((await received).ack).toEqual({ applied: 0, ack: 1 });
    expect(held).toBe(1);
    const { body } = (await slow.read(0, LIMIT)) as Segment;
    expect(JSON.parse(new TextDecoder().decode(body)).changes).toMatchObject([{ row: { name: 'c' } }]);
  });

  test('in a server that a dump was read into, places go on above those that there are', async () => {
    const url = await newDatabase(server());
    const before = await openGroupStore(url);
    await before.receive(batch(live('x', T), live('y', T)), ROWCAST);
    await before.close();
    // As from a server that had used more ids than this one.
    await query(url, "UPDATE rowcast.meta SET system_identifier = 'another', base = base - 5000000");
    await query(url, 'UPDATE rowcast.rows SET seq = seq + (5000000::bigint << 14)');
    await query(url, 'UPDATE rowcast.meta SET base = base + 5000000');
    const store = await openGroupStore(url);
    const { end, count: n } = (await store.read(0, LIMIT)) as Segment;
    expect(n).toBe(2);
    await store.receive(batch(live('z', T)), ROWCAST);
    const next = (await store.read(end, LIMIT)) as Segment;
    expect(JSON.parse(new TextDecoder().decode(next.body)).changes).toMatchObject([{ row: { id: 'z' } }]);
  });

  test.each([
    ['what is kept', 'FROM rowcast.letters', 'the database cannot be read: no answer for 5 seconds'],
    ['who is alive', 'INTO rowcast.hubs', 'not seen by its group: the store has given no answer'],
  ])('health is not ok while somebody has a lock on %s, and says so in a moment', async (_, statement, problem) => {
    let gate: Gate | undefined;
    const driver = plantedDriver({ hold: ({ text }) => (text.includes(statement) ? gate?.pass() : undefined) });
    const { hub } = await groupHub(await newDatabase(server()), {}, { driver });
    await until('all is well', async () => (await hub.health()).ok);
    gate = new Gate();
    await until('health says so', async () => (await hub.health()).problems.join().includes(problem));
    gate.open();
    gate = undefined;
    await until('all is well again', async () => (await hub.health()).ok);
  });

  test('two edges with one node id are a problem of the process that serves both, until one of them is removed', async () => {
    const doors = [await door(), await door()];
    const urls = doors.map((at) => at.url).sort();
    const { hub, door: center } = await groupHub(await newDatabase(server()), { edges: urls });
    for (const at of doors) await edge('a', [center.url], at);
    await until('it says so', async () => !(await hub.health()).ok);
    expect((await hub.health()).problems).toEqual([
      `node id "a" is used by two databases: give one of them another id (edges ${urls.join(', ')})`,
    ]);
    // It is no reason to take this process, and with it each of the others, out of its balancer.
    const statuses = await Promise.all(
      ['/health', '/readyz'].map(async (path) => (await fetch(`${center.url}${path}`)).status),
    );
    expect(statuses).toEqual([503, 200]);
    doors[0]?.close();
    await hub.edges.remove(doors[0]?.url as string);
    expect(await hub.health()).toMatchObject({ ok: true, problems: [] });
  });

  test('a store that cannot be reached is a 503, and delivery goes on when it is back', async () => {
    const url = await newDatabase(server());
    let isCut = false;
    const cut = plantedDriver({
      hold: () => (isCut ? Promise.reject(Object.assign(new Error('cut off'), { code: 'ECONNRESET' })) : undefined),
    });
    const at = await door();
    const one = await groupHub(url, { edges: [at.url] }, { driver: cut });
    const node = await edge('n', [], at);
    isCut = true;
    const answer = await one.hub.receive(batch(live('x', T)), { from: 'a' });
    expect(answer.status).toBe(503);
    await until('health says so', async () => !(await one.hub.health()).ok);
    expect((await fetch(`${one.door.url}/readyz`)).status).toBe(503);
    isCut = false;
    expect((await one.hub.receive(batch(live('x', T)), { from: 'a' })).status).toBe(200);
    await until('the edge has it', () => count(node) === 1);
    await until('all is well', async () => (await one.hub.health()).ok);
  });
});
