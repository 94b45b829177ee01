import { expect, test } from 'vitest';
import { attach, type Config, type Manager } from '../../src/index.ts';
import { acknowledged, connectionError, never, receivedBy, recordingFetch, type Sent } from '../support/bad-servers.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, exactRows, node, rowsOf, serveManager, until } from '../support/nodes.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

const A = 'http://a.test';
const B = 'http://b.test';
const C = 'http://c.test';

interface Net {
  /** Peers that cannot be reached. */
  away: Set<string>;
  sent: Sent[];
  to(peer: string): string[];
  fetch: Config['fetch'];
  nodes: Map<string, { manager: Manager; db: TestDatabase }>;
}

/** A network of real receivers, one per URL, any of which can be cut off. */
async function net(...urls: string[]): Promise<Net> {
  const nodes = new Map<string, { manager: Manager; db: TestDatabase }>();
  for (const url of urls) nodes.set(url, await node({ id: new URL(url).hostname }));
  const away = new Set<string>();
  const { fetch, sent } = recordingFetch((one, raw) => {
    const url = one.url.replace(/\/sync$/, '');
    if (away.has(url)) connectionError();
    return receivedBy((nodes.get(url) as { manager: Manager }).manager, raw);
  });
  const to = (peer: string): string[] =>
    sent.filter((one) => one.url === `${peer}/sync`).flatMap((one) => one.changes.map(({ row }) => row.id as string));
  return { away, sent, to, fetch, nodes };
}

function start(db: TestDatabase, network: Net, peers: string[], extra: Partial<Config> = {}): Manager {
  const clock = new VirtualClock((ms) => ms <= 800);
  const fetch = network.fetch as NonNullable<Config['fetch']>;
  const manager = attach(db, { maxAheadMs: 0, id: 'sender', peers, clock, fetch, ...extra }, ['items']);
  cleanUp(() => manager.stop());
  return manager;
}

function write(db: TestDatabase, ...ids: string[]): void {
  for (const id of ids) db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(id, `name of ${id}`);
}

const changes = (db: TestDatabase): number => Number(rowsOf(db, 'SELECT count(*) AS n FROM _changes')[0]?.n);
const watermark = (db: TestDatabase, peer: string): unknown =>
  rowsOf(db, 'SELECT last_acked FROM _peer_state WHERE peer_url = ?', peer)[0]?.last_acked;
const rowsAt = (network: Net, peer: string): string[] =>
  exactRows((network.nodes.get(peer) as { db: TestDatabase }).db, 'items');

test('every peer gets every change, and then it is gone', async () => {
  const network = await net(A, B, C);
  const db = await database();
  const manager = start(db, network, [A, B, C]);
  write(db, 'a', 'b', 'c');
  db.exec("DELETE FROM items WHERE id = 'b'");
  expect((await manager.flush()).delivered.sort()).toEqual([A, B, C]);
  for (const peer of [A, B, C]) {
    expect(rowsAt(network, peer)).toEqual(exactRows(db, 'items'));
    expect(watermark(db, peer)).toBe(4);
  }
  expect(changes(db)).toBe(0);
});

test('each peer has its own watermark, and only what all of them have is deleted', async () => {
  const network = await net(A, B);
  const db = await database();
  const manager = start(db, network, [A, B]);
  write(db, 'a', 'b');
  await manager.flush();
  network.away.add(B);
  write(db, 'c', 'd');
  expect(await manager.flush()).toEqual({ delivered: [A], unreachable: [B] });
  write(db, 'e');
  await manager.flush();
  expect([watermark(db, A), watermark(db, B)]).toEqual([5, 2]);
  expect(rowsOf(db, 'SELECT row_id FROM _changes ORDER BY change_id').map(({ row_id }) => row_id)).toEqual([
    'c',
    'd',
    'e',
  ]);
  expect(manager.health().peer_states).toMatchObject([
    { url: A, state: 'up', pending: 0, last_acked: 5 },
    { url: B, state: 'down', pending: 3, last_acked: 2 },
  ]);
  network.away.clear();
  await manager.flush();
  expect(changes(db)).toBe(0);
  expect(network.to(A)).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect(rowsAt(network, B)).toEqual(exactRows(db, 'items'));
});

test('a dead peer and a hanging one do not delay another by a millisecond', async () => {
  const clock = new VirtualClock();
  const begin = clock.now();
  const arrived: [string, number][] = [];
  const { fetch } = recordingFetch((one) => {
    if (one.url.startsWith(A)) connectionError();
    if (one.url.startsWith(B)) return never();
    arrived.push([one.changes.map(({ row }) => row.id).join(), clock.now() - begin]);
    return acknowledged(one);
  });
  const db = await database();
  const manager = attach(db, { maxAheadMs: 0, id: 'sender', peers: [A, B, C], clock, fetch, random: () => 0 }, [
    'items',
  ]);
  cleanUp(() => manager.stop());
  write(db, 'a');
  await clock.advance(0);
  write(db, 'b');
  await clock.advance(50);
  write(db, 'c');
  await clock.advance(50);
  expect(arrived).toEqual([
    ['a', 0],
    ['b', 50],
    ['c', 100],
  ]);
  expect(changes(db)).toBe(3);
});

test('a peer that refuses does not delay another either', async () => {
  const clock = new VirtualClock();
  const sent: string[] = [];
  const { fetch } = recordingFetch((one) => {
    if (one.url.startsWith(A)) return { status: 422, body: '{"error":"no"}' };
    sent.push(one.changes.map(({ row }) => row.id).join());
    return acknowledged(one);
  });
  const db = await database();
  const manager = attach(db, { maxAheadMs: 0, id: 'sender', peers: [A, B], clock, fetch, random: () => 0 }, ['items']);
  cleanUp(() => manager.stop());
  write(db, 'a', 'b');
  await clock.advance(0);
  expect(sent).toEqual(['a,b']);
  expect(manager.deadLetters.list()).toEqual([]);
  await clock.advance(2_000);
  expect(manager.deadLetters.list().map(({ peer, rowId }) => [peer, rowId])).toEqual([
    [A, 'a'],
    [A, 'b'],
  ]);
  expect(sent).toEqual(['a,b']);
});

test('a peer that is removed from the configuration holds nothing back any more', async () => {
  const network = await net(A, B);
  network.away.add(B);
  const db = await database();
  const first = start(db, network, [A, B]);
  write(db, 'a', 'b');
  await first.flush();
  expect(changes(db)).toBe(2);
  await first.stop();
  const second = start(db, network, [A]);
  await second.flush();
  expect(changes(db)).toBe(0);
  write(db, 'c');
  await second.flush();
  expect(changes(db)).toBe(0);
  expect(second.health().peers).toEqual([A]);
  expect(network.to(A)).toEqual(['a', 'b', 'c']);
});

test('a removed peer that is added again after changes were pruned gets everything it missed', async () => {
  const network = await net(A, B);
  const db = await database();
  const first = start(db, network, [A, B]);
  write(db, 'a', 'b', 'gone');
  await first.flush();
  await first.stop();
  const second = start(db, network, [A]);
  write(db, 'c');
  db.exec("UPDATE items SET name = 'newer', updated_at = 2000 WHERE id = 'a'; DELETE FROM items WHERE id = 'gone'");
  await second.flush();
  expect(changes(db)).toBe(0);
  await second.stop();
  const third = start(db, network, [A, B]);
  write(db, 'd');
  const before = network.to(A).length;
  await third.flush();
  expect(rowsAt(network, B)).toEqual(exactRows(db, 'items'));
  expect(rowsAt(network, A)).toEqual(exactRows(db, 'items'));
  expect(network.to(A).slice(before)).toEqual(['d']);
  expect(changes(db)).toBe(0);
});

test('a removed peer that is added again before anything was pruned goes on where it was', async () => {
  const network = await net(A, B);
  const db = await database();
  const first = start(db, network, [A, B]);
  write(db, 'a', 'b');
  await first.flush();
  await first.stop();
  const second = start(db, network, []);
  write(db, 'c');
  await second.stop();
  const third = start(db, network, [A, B]);
  await third.flush();
  expect(network.to(B)).toEqual(['a', 'b', 'c']);
  expect(network.to(A)).toEqual(['a', 'b', 'c']);
});

test('without peers changes stay, and nothing is requested', async () => {
  const network = await net(A);
  const db = await database();
  const manager = start(db, network, []);
  write(db, 'a', 'b');
  manager.nudge();
  expect(await manager.flush()).toEqual({ delivered: [], unreachable: [] });
  await settle();
  expect(changes(db)).toBe(2);
  expect(network.sent).toEqual([]);
  expect(manager.health()).toMatchObject({ ok: true, peers: [], pending_changes: 2 });
});

test('one peer written in several ways is one peer with one watermark', async () => {
  const network = await net('http://a.test');
  const db = await database();
  const manager = start(db, network, ['http://a.test', 'http://a.test/', 'HTTP://A.test:80//', 'http://a.test']);
  expect(manager.health().peers).toEqual([A]);
  write(db, 'a');
  await manager.flush();
  expect(network.sent.length).toBe(1);
  expect(network.sent[0]?.url).toBe('http://a.test/sync');
  expect(rowsOf(db, 'SELECT peer_url FROM _peer_state')).toEqual([{ peer_url: A }]);
  await manager.stop();
  const again = start(db, network, ['http://a.test///']);
  write(db, 'b');
  await again.flush();
  expect(network.to(A)).toEqual(['a', 'b']);
});

test('peers that differ in their path or their port are different peers', async () => {
  const db = await database();
  const { fetch, sent } = recordingFetch(acknowledged);
  const peers = ['http://a.test/x', 'http://a.test/y', 'http://a.test:8080', 'https://a.test/x'];
  const manager = attach(db, { maxAheadMs: 0, id: 'sender', peers, fetch }, ['items']);
  cleanUp(() => manager.stop());
  write(db, 'a');
  await manager.flush();
  expect(sent.map((one) => one.url).sort()).toEqual(peers.map((peer) => `${peer}/sync`).sort());
});

test('a crash between the acknowledgements of two peers loses neither', async () => {
  const network = await net(A, B);
  network.away.add(B);
  const db = await database();
  const first = start(db, network, [A, B], { batchSize: 2 });
  write(db, 'a', 'b', 'c', 'd', 'e');
  await first.flush();
  await first.stop();
  network.away.clear();
  const second = start(db, network, [A, B], { batchSize: 2 });
  await second.flush();
  expect(network.to(A)).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect(rowsAt(network, B)).toEqual(exactRows(db, 'items'));
  expect(changes(db)).toBe(0);
});

test('three nodes that all know each other over real sockets end up the same', async () => {
  const made = await Promise.all(['one', 'two', 'three'].map((id) => node({ id })));
  const urls = await Promise.all(made.map(({ manager }) => serveManager(manager)));
  // The addresses are known only now: the servers stay, and behind each manager a second one ships.
  const shipping = made.map(({ db }, i) =>
    attach(db, { maxAheadMs: 0, id: `shipper-${i}`, peers: urls.filter((_, j) => j !== i), batchMs: 5 }, ['items']),
  );
  for (const manager of shipping) cleanUp(() => manager.stop());
  made.forEach(({ db }, i) => {
    write(db, `row-${i}`);
    db.prepare('INSERT INTO items VALUES (?, ?, ?, 10, ?)').run('same', `from ${i}`, i, 1000 + i);
  });
  await until('all are equal', () => {
    const [one, two, three] = made.map(({ db }) => exactRows(db, 'items').join());
    return one === two && two === three && made.every(({ db }) => changes(db) === 0);
  });
  expect(made[0]?.all("SELECT name FROM items WHERE id = 'same'")).toEqual([{ name: 'from 2' }]);
  expect(exactRows(made[0]?.db as TestDatabase, 'items').length).toBe(4);
});

test.each(['DELETE FROM _peer_state', 'DROP TABLE _peer_state'])(
  '%s by hand: peers are sent everything, as new ones are',
  async (sql) => {
    const peer = await node({ id: 'receiver' });
    const sender = await node({ id: 'sender', peers: [await serveManager(peer.manager)] });
    write(sender.db, 'a');
    await sender.manager.flush();
    sender.db.exec(sql);
    write(sender.db, 'b');
    await until('the change has arrived', () => peer.all('SELECT 1 FROM items').length === 2);
    write(sender.db, 'c');
    await until('so has the next', () => peer.all('SELECT 1 FROM items').length === 3);
    await until('health is well again', () => sender.manager.health().ok);
  },
);
