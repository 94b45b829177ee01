/** What one has brought that is a peer no more reaches all that are left, whoever of them introduces itself. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createHandler } from '../../src/http/index.ts';
import { attach, type Config, type Manager } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, ITEMS, rowsOf, scratchFolder } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const B = 'http://b.test';
const C = 'http://c.test';
const D = 'http://d.test';

/** Peers by URL: plain ones, those that introduce themselves, and those that cannot be reached. */
interface Around {
  says: Map<string, string>;
  away: Set<string>;
  /** The bodies that each was sent. */
  sent: Map<string, string[]>;
  config: Pick<Config, 'fetch' | 'get'>;
}

const saidBy = (id: string, tick = 1): string => `id=${id}; inc=${id.repeat(16)}; boot=1-aaaaaaaa; t0=0; t=${tick}`;

function around(): Around {
  const says = new Map<string, string>();
  const away = new Set<string>();
  const sent = new Map<string, string[]>();
  const base = (url: string): string => new URL(url).origin;
  const headers = (url: string) => ({
    get: (name: string) => (name === 'x-rowcast' ? (says.get(base(url)) ?? null) : null),
  });
  const reached = (url: string): void => {
    if (away.has(base(url))) throw new Error('connection refused');
  };
  return {
    says,
    away,
    sent,
    config: {
      fetch: async (url, { body }) => {
        reached(url);
        if (!url.endsWith('/sync')) return { status: 404, text: async () => '', headers: headers(url) };
        const text = new TextDecoder().decode(body);
        sent.set(base(url), [...(sent.get(base(url)) ?? []), text]);
        const ack = JSON.parse(text).batch_id;
        return { status: 200, text: async () => JSON.stringify({ applied: 1, ack }), headers: headers(url) };
      },
      get: async (url) => {
        reached(url);
        return { status: says.has(base(url)) ? 200 : 404, text: async () => '{"ok":true}', headers: headers(url) };
      },
    },
  };
}

interface One {
  db: TestDatabase;
  manager: Manager;
  clock: VirtualClock;
  network: Around;
  bring(id: string, from: string, said?: string): void;
  /** How many batches have had that row. */
  times(id: string, url: string): number;
  goOn(ms?: number): Promise<void>;
  remove(url: string): Promise<void>;
  /** The same file, with other peers. */
  again(peers: string[]): Promise<One>;
}

async function one(peers: string[], network = around(), clock = new VirtualClock(), db?: TestDatabase): Promise<One> {
  const own = db ?? (await database(ITEMS, join(scratchFolder(), 'a.db')));
  const manager = attach(own, { id: 'a', peers, clock, maxAheadMs: 0, verify: false, ...network.config }, ['items']);
  cleanUp(() => manager.stop());
  let batch = 0;
  return {
    db: own,
    manager,
    clock,
    network,
    bring: (id, from, said) => {
      batch += 1;
      const row = { id, name: 'n', value: 1, created_at: 1, updated_at: 1_000 };
      const body = JSON.stringify({ batch_id: batch, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
      expect(manager.receive(body, { from, said }).status).toBe(200);
    },
    times: (id, url) => (network.sent.get(url) ?? []).filter((body) => body.includes(`"id":"${id}"`)).length,
    goOn: (ms = 5_000) => clock.advance(ms),
    remove: async (url) => {
      const removing = manager.peers.remove(url);
      await clock.advance(5_000);
      await removing;
    },
    again: async (others) => {
      await manager.stop();
      return one(others, network, clock, own);
    },
  };
}

/** A row of this node's own, so that everybody has acknowledged something. */
async function acquainted({ db, goOn }: One): Promise<void> {
  db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run('own', 'n');
  await goOn();
}

describe('a plain peer that is taken out', () => {
  test('what it had brought reaches the plain ones that are left', async () => {
    const a = await one([B, C, D]);
    await acquainted(a);
    a.bring('brought', 'c');
    await a.goOn(2_000);
    expect([B, C, D].map((url) => a.times('brought', url))).toEqual([0, 0, 0]);
    await a.remove(C);
    expect([B, C, D].map((url) => a.times('brought', url))).toEqual([1, 0, 1]);
  });

  test('and those that introduce themselves', async () => {
    const network = around();
    network.says.set(D, saidBy('d'));
    const a = await one([B, C, D], network);
    await acquainted(a);
    a.bring('brought', 'c');
    await a.goOn(2_000);
    await a.remove(C);
    expect([B, D].map((url) => a.times('brought', url))).toEqual([1, 1]);
  });

  test('by the configuration, while the program was not running', async () => {
    const a = await one([B, C]);
    await acquainted(a);
    a.bring('brought', 'c');
    const again = await a.again([B]);
    await again.goOn();
    expect(again.times('brought', B)).toBe(1);
  });

  test('with another plain one in its place, which is given everything once', async () => {
    const a = await one([B, C]);
    await acquainted(a);
    a.bring('brought', 'c');
    const again = await a.again([B, D]);
    await again.goOn(2_000);
    expect([again.times('brought', B), again.times('brought', D)]).toEqual([1, 1]);
  });

  test('while this node has written nothing itself', async () => {
    const a = await one([B, C]);
    a.bring('brought', 'c');
    await a.goOn();
    await a.remove(C);
    expect(a.times('brought', B)).toBe(1);
  });

  test('nobody is sent anything where nothing was brought, or what was brought is everywhere', {
    tags: 'long',
  }, async () => {
    const a = await one([B, C, D]);
    await acquainted(a);
    const sent = (): number => [...a.network.sent.values()].flat().length;
    let before = sent();
    a.manager.receive('{"batch_id":1,"changes":[]}', { from: 'c' });
    await a.remove(C);
    await a.goOn(65_000);
    expect(sent()).toBe(before);
    a.bring('brought', 'd');
    await a.remove(D);
    await a.goOn(65_000);
    expect(sent()).toBe(before + 1);
    before = sent();
    a.manager.peers.add(C);
    await a.goOn();
    await a.remove(C);
    await a.goOn(65_000);
    expect((a.network.sent.get(B) ?? []).filter((body) => body.includes('brought'))).toHaveLength(1);
  });

  test('what it had sent by then and comes later reaches them too, once more and not for ever', {
    tags: 'long',
  }, async () => {
    const a = await one([B, C]);
    await acquainted(a);
    await a.remove(C);
    await a.goOn(1_000);
    a.bring('late', 'c');
    await a.goOn(65_000);
    expect(a.times('late', B)).toBe(1);
    await a.goOn(65_000);
    a.bring('later', 'somebody');
    await a.goOn(65_000);
    expect(a.times('later', B)).toBe(0);
  });

  test('the same where the program was started again in between', { tags: 'long' }, async () => {
    const a = await one([B, C]);
    await acquainted(a);
    await a.remove(C);
    a.bring('late', 'c');
    const again = await a.again([B]);
    await again.goOn(65_000);
    expect(again.times('late', B)).toBe(1);
  });

  test('one that is paused has it when it is resumed', async () => {
    const a = await one([B, C]);
    await acquainted(a);
    await a.manager.peers.pause(B);
    a.bring('brought', 'c');
    await a.remove(C);
    expect(a.times('brought', B)).toBe(0);
    a.manager.peers.resume(B);
    await a.goOn();
    expect(a.times('brought', B)).toBe(1);
  });

  test.each([['plain'], ['introduced']])('one that was out meanwhile has it when it is back: %s', async (kind) => {
    const network = around();
    if (kind === 'introduced') network.says.set(B, saidBy('b'));
    const a = await one([B, C], network);
    await acquainted(a);
    await a.remove(B);
    a.bring('brought', 'c');
    await a.remove(C);
    a.manager.peers.add(B);
    await a.goOn();
    expect(a.times('brought', B)).toBe(1);
  });
});

describe('one that introduces itself and is taken out, beside a plain one', () => {
  test('it had never answered', async () => {
    const network = around();
    network.away.add(C);
    const a = await one([B, C], network);
    await acquainted(a);
    a.bring('brought', 'c', saidBy('c'));
    await a.goOn(2_000);
    expect(a.times('brought', B)).toBe(0);
    await a.remove(C);
    expect(a.times('brought', B)).toBe(1);
  });

  test('it had answered', async () => {
    const network = around();
    network.says.set(C, saidBy('c'));
    const a = await one([B, C], network);
    await acquainted(a);
    a.bring('brought', 'c', saidBy('c', 2));
    await a.goOn(2_000);
    await a.remove(C);
    expect(a.times('brought', B)).toBe(1);
  });

  test('and a plain one is new at the same time', async () => {
    const network = around();
    network.says.set(C, saidBy('c'));
    const a = await one([B, C], network);
    await acquainted(a);
    a.bring('brought', 'c', saidBy('c', 2));
    await a.goOn(2_000);
    const again = await a.again([B, D]);
    await again.goOn(2_000);
    expect(again.times('brought', B)).toBe(1);
  });

  test('another one is at its URL, which nobody had reached before', async () => {
    const network = around();
    network.away.add(C);
    const a = await one([B, C], network);
    await acquainted(a);
    a.bring('brought', 'c', saidBy('c'));
    await a.goOn(2_000);
    network.says.set(C, saidBy('e'));
    network.away.clear();
    await a.goOn(2_000);
    expect(a.times('brought', B)).toBe(1);
  });
});

test('one that a gap in another table has put on a walk over that table alone is given everything as well', async () => {
  const a = await one([B, C]);
  await a.manager.peers.pause(B);
  await acquainted(a);
  a.bring('brought', 'c');
  a.db.exec(`UPDATE _peer_state SET tail_from = 0, snapshot_of = '["other"]' WHERE peer_url = '${B}'`);
  expect(rowsOf(a.db, 'SELECT shipped, inc FROM _peer_state WHERE peer_url = ?', B)).toEqual([
    { shipped: 0, inc: null },
  ]);
  await a.remove(C);
  a.manager.peers.resume(B);
  await a.goOn();
  expect(a.times('brought', B)).toBe(1);
});

test('what one at no URL goes on bringing is passed on at once, and then in a minute, and not with each request', {
  tags: 'long',
}, async () => {
  const a = await one([B]);
  await acquainted(a);
  a.bring('first', 'e', saidBy('e', 1));
  await a.goOn(2_000);
  expect(a.times('first', B)).toBe(1);
  for (let i = 2; i < 20; i++) {
    a.bring(`more${i}`, 'e', saidBy('e', i));
    await a.goOn(1_000);
  }
  // Nothing is new in them.
  for (let i = 20; i < 30; i++) a.manager.receive('{"batch_id":1,"changes":[]}', { from: 'e', said: saidBy('e', i) });
  await a.goOn(1_000);
  expect([a.times('first', B), a.times('more19', B)]).toEqual([1, 0]);
  await a.goOn(65_000);
  expect([a.times('first', B), a.times('more2', B), a.times('more19', B)]).toEqual([2, 1, 1]);
  await a.goOn(130_000);
  expect(a.times('first', B)).toBe(2);
});

test('where one that introduces itself is in the place of a plain one, both it and the others are given everything', async () => {
  const a = await one([B, C]);
  await acquainted(a);
  a.bring('brought', 'c');
  await a.goOn(2_000);
  a.network.says.set(C, saidBy('e'));
  a.db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run('second', 'n');
  await a.goOn(2_000);
  expect([a.times('brought', B), a.times('brought', C), a.times('own', C)]).toEqual([1, 1, 2]);
});

test('two nodes that both pass on what came from a plain one come to an end of it', { tags: 'long' }, async () => {
  const clock = new VirtualClock();
  const handlers = new Map<string, (request: Request) => Promise<Response>>();
  let sent = 0;
  const fetch: NonNullable<Config['fetch']> = async (url, { method, headers, body }) => {
    const handler = handlers.get(new URL(url).origin);
    if (url.endsWith('/sync')) sent += 1;
    if (handler) return handler(new Request(url, { method, headers, body: body as Uint8Array<ArrayBuffer> }));
    const ack = JSON.parse(new TextDecoder().decode(body)).batch_id;
    return { status: 200, text: async () => JSON.stringify({ applied: 1, ack }) };
  };
  const get: NonNullable<Config['get']> = async (url, { headers }) => {
    const handler = handlers.get(new URL(url).origin);
    return handler ? handler(new Request(url, { headers })) : { status: 404, text: async () => '' };
  };
  const urls = { a: B, b: C };
  const nodes = await Promise.all(
    (['a', 'b'] as const).map(async (id) => {
      const db = await database();
      const peers = [urls[id === 'a' ? 'b' : 'a'], D];
      const manager = attach(db, { id, peers, clock, maxAheadMs: 0, verify: false, fetch, get }, ['items']);
      cleanUp(() => manager.stop());
      handlers.set(urls[id], createHandler(manager));
      return { db, manager };
    }),
  );
  await clock.advance(2_000);
  for (const [i, { manager }] of nodes.entries()) {
    const row = { id: `to ${i}`, name: 'n', value: 1, created_at: 1, updated_at: 1_000 };
    const body = JSON.stringify({ batch_id: 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
    manager.receive(body, { from: 'plain' });
  }
  const removing = Promise.all(nodes.map(({ manager }) => manager.peers.remove(D)));
  await clock.advance(5_000);
  await removing;
  for (const { db } of nodes) expect(rowsOf(db, 'SELECT id FROM items')).toEqual([{ id: 'to 0' }, { id: 'to 1' }]);
  const before = sent;
  await clock.advance(130_000);
  expect(sent).toBe(before);
});
