import type { RequestListener } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { FanOut } from '../../src/hub/fan-out.ts';
import { SqliteHubStore } from '../../src/hub/sqlite-store.ts';
import type { HubStore } from '../../src/hub/store.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import type { BatchLimit } from '../../src/wire/body.ts';
import { deliver, gone, hub, live, plainAck, T } from '../support/hubs.ts';
import { database, scratchFolder, serve, until } from '../support/nodes.ts';

const SELF = { id: 'hub', random: Math.random, maxAheadMs: 0 };

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
    const fanOut = new FanOut(store, () => ({ sizes: [limit.changes], bytes: limit.bytes }));
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

  test('edges that bear more are sent more, in batches that they share, as long as what comes is alike', async () => {
    const store = new SqliteHubStore(new Connection(await database('SELECT 1')), {
      ...{ clock: systemClock, maxBodyBytes: 100_000 },
      ...SELF,
    });
    await store.open();
    const fanOut = new FanOut(store, () => ({ sizes: [10, 20], bytes: 100_000 }));
    const send = (changes: object[]): unknown =>
      store.receive(JSON.stringify({ batch_id: 1, changes }), { from: undefined, plain: true });
    const counts = async (from: number, ...limits: number[]): Promise<(number | undefined)[]> => {
      const portions = await Promise.all(
        limits.map((changes) => fanOut.next(from, { changes, bytes: 100_000 }, undefined)),
      );
      return portions.map((portion) => portion?.count);
    };
    await send(Array.from({ length: 30 }, (_, i) => live(`x${i}`, T)));
    expect([await counts(0, 25, 20, 19, 10, 15, 9), fanOut.reads]).toEqual([[20, 20, 10, 10, 10, 9], 3]);
    // They are there already, and one that bears more takes what there is.
    expect([await counts(0, 25, 19, 10), fanOut.reads]).toEqual([[10, 10, 10], 3]);
    await send(Array.from({ length: 60 }, (_, i) => (i % 2 ? live(`y${i}`, T) : gone(`y${i}`, T))));
    expect([await counts(20, 20), await counts(30, 20), await counts(40, 20), fanOut.reads]).toEqual([
      [10],
      [10],
      [10],
      7,
    ]);
    await send(Array.from({ length: 50 }, (_, i) => live(`z${i}`, T)));
    expect([await counts(90, 20), await counts(100, 20)]).toEqual([[10], [20]]);
  });

  test('a server reads what comes after a full batch before it is asked for, and no further', async () => {
    const store = new SqliteHubStore(new Connection(await database('SELECT 1')), {
      ...{ clock: systemClock, maxBodyBytes: 100_000 },
      ...SELF,
    });
    await store.open();
    const read: number[] = [];
    const server = {
      group: {},
      onAdvance: () => {},
      read: (after: number, limit: BatchLimit, except?: string) => {
        read.push(after);
        return store.read(after, limit, except);
      },
    } as unknown as HubStore;
    const fanOut = new FanOut(server, () => ({ sizes: [10], bytes: 100_000 }));
    const rows = Array.from({ length: 35 }, (_, i) => live(`x${i}`, T));
    await store.receive(JSON.stringify({ batch_id: 1, changes: rows }), { from: undefined, plain: true });
    const limit = { changes: 10, bytes: 100_000 };
    const next = async (from: number): Promise<[number | undefined, number[]]> => {
      const portions = await Promise.all([0, 1].map(() => fanOut.next(from, limit, undefined)));
      return [portions[1]?.count, read.splice(0)];
    };
    expect([await next(0), await next(10), await next(20), await next(30), await next(35)]).toEqual([
      [10, [0, 10]],
      [10, [20]],
      [10, [30]],
      [5, []],
      [undefined, [35]],
    ]);
  });

  test('an edge goes past what it has brought itself, though others were sent something else from there before', async () => {
    const store = new SqliteHubStore(new Connection(await database('SELECT 1')), {
      ...{ clock: systemClock, maxBodyBytes: 100_000 },
      ...SELF,
    });
    await store.open();
    const limit = { changes: 10, bytes: 100_000 };
    const fanOut = new FanOut(store, () => ({ sizes: [limit.changes], bytes: limit.bytes }));
    const send = (from: string, change: object): unknown =>
      store.receive(JSON.stringify({ batch_id: 1, changes: [change] }), { from, plain: true });
    await send('a', live('x', T));
    expect((await fanOut.next(0, limit, 'b'))?.count).toBe(1);
    expect(await fanOut.skip(0, 'b')).toBe(0);
    await send('b', live('x', T + 1));
    const end = await fanOut.skip(0, 'b');
    expect((await fanOut.next(0, limit, 'a'))?.end).toBe(end);
    expect(await fanOut.next(end, limit, 'b')).toBeUndefined();
  });

  test('edges share a batch even where their own changes are in it, and each gets it without those', async () => {
    const ids = ['a', 'b', 'c'];
    const bodies: string[][] = ids.map(() => []);
    const edges: string[] = [];
    let away = true;
    for (const [i, id] of ids.entries()) {
      edges.push(
        await serve((request, response) => {
          if (request.url === '/health') return void response.end(JSON.stringify({ node_id: id }));
          if (away) return void response.writeHead(503).end();
          plainAck(request, response, bodies[i] as string[]);
        }),
      );
    }
    const path = join(scratchFolder(), 'hub.db');
    // Named before there is anything: one that is new is sent its own changes, too.
    const before = await hub({ edges }, path);
    // While one of them may have any id, what came under theirs goes to all.
    await until('they are known', async () => (await before.hub.edges.list()).every((one) => one.node_id !== null));
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
