/** Among plain peers there is no identity: one header that they ignore, and nothing else that they had not been sent. */
import { describe, expect, test } from 'vitest';
import { node, type TestNode, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

interface Seen {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}

async function among(
  answer: (batchId: number) => object,
): Promise<{ seen: Seen[]; one: TestNode; clock: VirtualClock }> {
  const clock = new VirtualClock();
  const seen: Seen[] = [];
  const one = await node({
    id: 'a',
    peers: ['http://plain.test'],
    clock,
    random: () => 0,
    fetch: async (url, { method, headers, body }) => {
      const text = new TextDecoder().decode(body);
      seen.push({ method, url, headers, body: text });
      return { status: 200, text: async () => JSON.stringify(answer(JSON.parse(text).batch_id)) };
    },
    get: async (url, { headers }) => {
      seen.push({ method: 'GET', url, headers, body: '' });
      return { status: 200, text: async () => '{"ok":true,"node_id":"plain"}' };
    },
  });
  return { seen, one, clock };
}

test('a plain peer is sent batches as ever, one header more, and never a GET', async () => {
  const { seen, one, clock } = await among((ack) => ({ applied: 1, ack }));
  for (let i = 1; i <= 3; i++) {
    one.db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(`${i}`, 'n');
    await clock.advance(40_000);
  }
  await clock.advance(120_000);
  expect(seen.map(({ method, url }) => `${method} ${url}`)).toEqual(Array(3).fill('POST http://plain.test/sync'));
  for (const [i, { headers, body }] of seen.entries()) {
    const { 'x-rowcast': introduction, ...others } = headers;
    expect(others).toEqual({ 'content-type': 'application/json', 'x-node-id': 'a' });
    expect(introduction).toMatch(
      /^id=a; inc=[0-9a-f]{16}; boot=1-[0-9a-f]{8}; t0=0; t=\d+; seal=[0-9a-f]{16}; low=\d+$/,
    );
    const row = `{"id":"${i + 1}","name":"n","value":1,"created_at":10,"updated_at":1000}`;
    expect(body).toBe(`{"batch_id":${i + 1},"changes":[{"op":"INSERT","table":"items","row":${row},"old_id":null}]}`);
  }
});

test('what a plain sender is answered has no introduction, and one that introduces itself is answered so', async () => {
  const { manager, db } = await node({ id: 'b' });
  const body = '{"batch_id":1,"changes":[]}';
  expect(manager.receive(body, { from: 'x' }).headers['x-rowcast']).toBeUndefined();
  expect(manager.receive(body, { from: 'x', said: 'id=x' }).headers['x-rowcast']).toBeUndefined();
  const said = 'id=x; inc=0123456789abcdef; boot=1-aaaaaaaa; t0=0; t=4';
  const answered = manager.receive(body, { from: 'x', said }).headers['x-rowcast'];
  expect(answered).toMatch(/^id=b; .*; you=0123456789abcdef\.4\.1-aaaaaaaa$/);
  expect(manager.hello(said)['x-rowcast']).toMatch(/you=0123456789abcdef/);
  expect(manager.hello('id=x')).toEqual({});
  await until('it is noted', () => db.prepare('SELECT 1 FROM _nodes WHERE id = ?').get('x') != null);
});

test('an id that two databases use is a problem, and rows of both are taken', async () => {
  const clock = new VirtualClock();
  const { manager, all } = await node({ id: 'b', clock });
  let batch = 0;
  const send = (inc: string, tick: number): void => {
    batch += 1;
    const row = { id: `r${batch}`, name: 'n', updated_at: 1_000 };
    const body = JSON.stringify({ batch_id: batch, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
    const said = `id=x; inc=${inc.repeat(16)}; boot=1-aaaaaaaa; t0=0; t=${tick}`;
    expect(manager.receive(body, { from: 'x', said }).status).toBe(200);
  };
  send('1', 1);
  send('2', 1);
  send('1', 2);
  expect(manager.health().problems).toEqual([]);
  await clock.advance(61_000);
  send('2', 2);
  send('1', 3);
  expect(manager.health().problems.join()).toMatch(/node id "x" is used by two databases/);
  expect(all('SELECT count(*) AS n FROM items')).toEqual([{ n: 5 }]);
  await clock.advance(600_001);
  expect(manager.health()).toMatchObject({ ok: true });
  // The other one is gone, and this one goes on.
  send('1', 4);
  expect(manager.health()).toMatchObject({ ok: true });
  send('2', 3);
  send('1', 5);
  expect(manager.health()).toMatchObject({ ok: false });
});

describe('an id that two databases use is no problem any more', () => {
  const heard =
    ({ manager }: TestNode) =>
    (inc: string, id: string, boot: number, tick: number): string[] => {
      const said = `id=${id}; inc=${inc.repeat(16)}; boot=${boot}-aaaaaaaa; t0=${boot > 1 ? 2 : 0}; t=${tick}`;
      expect(manager.receive('{"batch_id":1,"changes":[]}', { from: id, said }).status).toBe(200);
      return manager.health().problems;
    };
  const TWICE = [expect.stringContaining('is used by two databases')];

  test('when the other one says that it has another: of our own', async () => {
    const hear = heard(await node({ id: 'b', clock: new VirtualClock() }));
    expect(hear('1', 'b', 1, 1)).toEqual(TWICE);
    expect(hear('2', 'c', 1, 1)).toEqual(TWICE);
    expect(hear('1', 'd', 2, 2)).toEqual([]);
    // What it has sent before says nothing of the present.
    expect(hear('1', 'b', 1, 1)).toEqual([]);
    expect(hear('3', 'b', 1, 1)).toEqual(TWICE);
  });

  test.each(['1', '2'])('when one of two others says that it has another: %s', async (renamed) => {
    const clock = new VirtualClock();
    const hear = heard(await node({ id: 'b', clock }));
    hear('1', 'x', 1, 1);
    hear('2', 'x', 1, 1);
    await clock.advance(61_000);
    expect(hear('1', 'x', 1, 2)).toEqual(TWICE);
    expect(hear(renamed, 'y', 2, 3)).toEqual([]);
    await clock.advance(61_000);
    const other = renamed === '1' ? '2' : '1';
    for (const tick of [3, 4]) expect(hear(other, 'x', 1, tick)).toEqual([]);
    await clock.advance(61_000);
    expect(hear(other, 'x', 1, 5)).toEqual([]);
    expect(hear(renamed, 'y', 2, 4)).toEqual([]);
  });
});

test('what arrives late from a database whose id another has taken over is passed on to all peers', async () => {
  const { seen, one, clock } = await among((ack) => ({ applied: 1, ack }));
  const send = (inc: string, id: string): void => {
    const row = { id, name: 'n', value: 1, created_at: 1, updated_at: 1_000 };
    const body = JSON.stringify({ batch_id: 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
    one.manager.receive(body, { from: 'x', said: `id=x; inc=${inc.repeat(16)}; boot=1-aaaaaaaa; t0=0; t=1` });
  };
  const sent = (id: string): boolean => seen.some(({ body }) => body.includes(`"id":"${id}"`));
  send('1', 'early');
  await clock.advance(1_000);
  expect(sent('early')).toBe(false);
  send('2', 'other');
  await clock.advance(1_000);
  expect([sent('early'), sent('other')]).toEqual([true, true]);
  send('1', 'late');
  await clock.advance(1_000);
  expect(sent('late')).toBe(true);
});

test('what arrives late from a database in whose place another is, under another id, is passed on to all peers', {
  tags: 'long',
}, async () => {
  const clock = new VirtualClock();
  const toOther: string[] = [];
  let there = 'x';
  const inc = (id: string): string => (id === 'x' ? '1' : '2').repeat(16);
  const saidBy = (id: string): string => `id=${id}; inc=${inc(id)}; boot=1-aaaaaaaa; t0=0; t=1`;
  const introduced = (url: string) => ({
    get: (name: string) => (name === 'x-rowcast' && url.startsWith('http://there.test') ? saidBy(there) : null),
  });
  const { manager } = await node({
    id: 'a',
    peers: ['http://there.test', 'http://other.test'],
    clock,
    fetch: async (url, { body }) => {
      const text = new TextDecoder().decode(body);
      if (!url.endsWith('/sync')) return { status: 404, text: async () => '', headers: introduced(url) };
      if (url.startsWith('http://other.test')) toOther.push(text);
      const ack = JSON.parse(text).batch_id;
      return { status: 200, text: async () => JSON.stringify({ applied: 1, ack }), headers: introduced(url) };
    },
    get: async (url) => ({ status: 200, text: async () => '{"ok":true}', headers: introduced(url) }),
  });
  const bring = (id: string): void => {
    const row = { id, name: 'n', value: 1, created_at: 1, updated_at: 1_000 };
    const body = JSON.stringify({ batch_id: 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
    expect(manager.receive(body, { from: 'x', said: saidBy('x') }).status).toBe(200);
  };
  const isPassedOn = (id: string): boolean => toOther.some((body) => body.includes(`"id":"${id}"`));
  await clock.advance(20_000);
  bring('early');
  await clock.advance(20_000);
  // It is where we send to, and tells the others by itself.
  expect(isPassedOn('early')).toBe(false);
  there = 'y';
  await clock.advance(60_000);
  expect(isPassedOn('early')).toBe(true);
  bring('late');
  await clock.advance(5_000);
  expect(isPassedOn('late')).toBe(true);
});

test('what one has brought that is at no URL is passed on when the last peer that could be it is taken out', {
  tags: 'long',
}, async () => {
  const clock = new VirtualClock();
  const seen: string[] = [];
  const saidBy = (id: string): string => `id=${id}; inc=${id.repeat(16)}; boot=1-aaaaaaaa; t0=0; t=1`;
  const headers = { get: (name: string) => (name === 'x-rowcast' ? saidBy('2') : null) };
  const { manager } = await node({
    id: 'a',
    peers: ['http://there.test', 'http://away.test'],
    clock,
    fetch: async (url, { body }) => {
      if (url.startsWith('http://away.test')) throw new Error('connection refused');
      const text = new TextDecoder().decode(body);
      if (!url.endsWith('/sync')) return { status: 404, text: async () => '', headers };
      seen.push(text);
      const ack = JSON.parse(text).batch_id;
      return { status: 200, text: async () => JSON.stringify({ applied: 1, ack }), headers };
    },
    get: async (url) => {
      if (url.startsWith('http://away.test')) throw new Error('connection refused');
      return { status: 200, text: async () => '{"ok":true}', headers };
    },
  });
  const row = { id: 'brought', name: 'n', value: 1, created_at: 1, updated_at: 1_000 };
  const body = JSON.stringify({ batch_id: 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
  expect(manager.receive(body, { from: '1', said: saidBy('1') }).status).toBe(200);
  await clock.advance(60_000);
  // Whoever brought it may be the one that does not answer.
  expect(seen.join()).not.toContain('brought');
  const removing = manager.peers.remove('http://away.test');
  await clock.advance(5_000);
  await removing;
  expect(seen.join()).toContain('brought');
});

test('what arrives late from a peer, of before its latest start, is passed on: it may have lost it since', async () => {
  const clock = new VirtualClock();
  const seen: string[] = [];
  const said = (boot: string, t0: number): string => `id=x; inc=${'1'.repeat(16)}; boot=${boot}; t0=${t0}; t=${t0 + 1}`;
  const headers = { get: (name: string) => (name === 'x-rowcast' ? said('2-bbbbbbbb', 10) : null) };
  const { manager } = await node({
    id: 'a',
    peers: ['http://there.test'],
    clock,
    fetch: async (url, { body }) => {
      const text = new TextDecoder().decode(body);
      if (!url.endsWith('/sync')) return { status: 404, text: async () => '', headers };
      seen.push(text);
      return { status: 200, text: async () => `{"applied":1,"ack":${JSON.parse(text).batch_id}}`, headers };
    },
    get: async () => ({ status: 200, text: async () => '{"ok":true}', headers }),
  });
  const bring = async (id: string, from: string): Promise<boolean> => {
    const row = { id, name: 'n', value: 1, created_at: 1, updated_at: 1_000 };
    const body = JSON.stringify({ batch_id: 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
    expect(manager.receive(body, { from: 'x', said: from }).status).toBe(200);
    await clock.advance(5_000);
    return seen.join().includes(`"id":"${id}"`);
  };
  await clock.advance(90_000);
  // Its own start may bring something, and in the ordinary way nobody tells it what it has said.
  await bring('first', said('2-bbbbbbbb', 10));
  await clock.advance(90_000);
  seen.length = 0;
  expect(await bring('present', said('2-bbbbbbbb', 10))).toBe(false);
  expect(await bring('late', said('1-aaaaaaaa', 0))).toBe(true);
});

test('a plain peer beside Rowcast is sent the four keys of the contract, and nothing that the others are sent', async () => {
  const clock = new VirtualClock();
  const last = new Map<string, string>();
  const other = 'id=r; inc=0123456789abcdef; boot=1-aaaaaaaa; t0=0; t=1';
  const one = await node({
    id: 'a',
    peers: ['http://plain.test', 'http://rowcast.test'],
    clock,
    random: () => 0,
    fetch: async (url, { body }) => {
      const text = new TextDecoder().decode(body);
      last.set(url, text);
      const headers = url.includes('rowcast') ? { 'x-rowcast': other } : {};
      const answer = JSON.stringify({ applied: 1, ack: JSON.parse(text).batch_id });
      return { status: 200, headers: new Headers(headers), text: async () => answer };
    },
  });
  one.db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run('x', 'n');
  await clock.advance(40_000);
  one.db.prepare('UPDATE items SET name = ?, updated_at = 2000').run('m');
  await clock.advance(40_000);
  const updates = (url: string): unknown[] => JSON.parse(last.get(url) ?? '{}').changes;
  expect(updates('http://rowcast.test/sync')).toMatchObject([{ op: 'UPDATE', base: 1_000 }]);
  expect(updates('http://plain.test/sync')).toEqual([
    {
      op: 'UPDATE',
      table: 'items',
      row: { id: 'x', name: 'm', value: 1, created_at: 10, updated_at: 2_000 },
      old_id: null,
    },
  ]);
});
