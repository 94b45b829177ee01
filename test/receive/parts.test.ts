/** A large batch is applied in parts, everybody else has a turn between them, and it is acknowledged after the last one. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createHandler } from '../../src/http/index.ts';
import { type Replica, respond } from '../../src/http/respond.ts';
import type { Manager } from '../../src/index.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { featuresOf } from '../../src/sqlite/features.ts';
import { originsBetween } from '../../src/wire/origins.ts';
import { database, node, rowsOf, scratchFolder } from '../support/nodes.ts';
import { receivedInParts } from '../support/received.ts';
import { asTabular } from '../support/tabular.ts';

const SAID = 'id=a; inc=5f0c1e9a77b2d310; boot=7-21d0b7e4; t0=812; t=840';
const T = 1_700_000_000_000;

function batch(count: number, name: (i: number) => string = (i) => `n${i}`): Buffer {
  const changes = Array.from({ length: count }, (_, i) => ({
    op: 'INSERT',
    table: 'items',
    row: { id: `row-${i}`, name: name(i), value: i, created_at: 1, updated_at: T + i },
    old_id: null,
  }));
  return Buffer.from(asTabular({ batch_id: 7, changes }));
}

/** Without it there is no fast way, and every batch is applied at once: the oldest SQLite of the lanes. */
const { jsonb } = featuresOf(new Connection(await database('SELECT 1')));

const rows = ({ db }: { db: Parameters<typeof rowsOf>[0] }): unknown =>
  rowsOf(db, 'SELECT count(*) AS n FROM items')[0]?.n;

const post = (body: Buffer): Request =>
  new Request('http://node.test/sync', {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-node-id': 'a', 'x-rowcast': SAID },
    body: new Uint8Array(body),
  });

describe.runIf(jsonb)('a large batch', () => {
  test('a part is there before the next is begun, and the whole is told of once', async () => {
    const it = await node();
    const applied: number[] = [];
    const received: unknown[] = [];
    it.manager.on('applied', (event) => applied.push(event.applied));
    it.manager.on('received', ({ changes, applied: all, status }) => received.push({ changes, all, status }));
    const body = batch(10);
    const seen = [1, 2, 3, 4].map(() => {
      const answer = it.manager.receive(body, { from: 'a', said: SAID, atOnce: 3 });
      return [answer.status, rows(it), answer.status === 200 ? answer.body : answer.goesOn];
    });
    expect(seen).toEqual([
      [503, 0, 1],
      [503, 4, 2],
      [503, 8, 3],
      [200, 10, { applied: 10, ack: 7 }],
    ]);
    expect(applied).toEqual([4, 4, 2]);
    expect(received).toEqual([{ changes: 10, all: 10, status: 200 }]);
  });

  test('one that is hardly larger is applied at once, and so is any without the option', async () => {
    const it = await node();
    expect(receivedInParts(it.manager, batch(4), { said: SAID, atOnce: 3 }).steps).toBe(1);
    expect(receivedInParts(it.manager, batch(400), { said: SAID }).steps).toBe(1);
    expect(rows(it)).toBe(400);
  });

  test('the same batch gets the same answer again, though rows are in several of its parts', async () => {
    const it = await node();
    const changes = Array.from({ length: 9 }, (_, i) => ({
      op: 'UPDATE',
      table: 'items',
      row: { id: `row-${i % 2}`, name: 'n', value: i, created_at: 1, updated_at: T + i },
      old_id: null,
      base: T,
    }));
    const answers = [1, 2, 3].map(() => {
      const { received } = receivedInParts(it.manager, Buffer.from(asTabular({ batch_id: 7, changes })), {
        said: SAID,
        atOnce: 2,
      });
      return received.body;
    });
    expect(answers).toEqual(Array(3).fill({ applied: 9, ack: 7 }));
  });

  test.each([
    ['a UNIQUE column', 'name TEXT UNIQUE', 9],
    ['a row that is refused', "name TEXT CHECK (name <> 'n4')", 8],
  ])('and with %s', async (_, name, applied) => {
    const it = await node({
      schema: `CREATE TABLE items (id TEXT PRIMARY KEY, ${name}, value INTEGER, created_at INTEGER, updated_at INTEGER)`,
    });
    const rowsOf9 = Array.from({ length: 9 }, (_, i) => ({
      op: 'INSERT',
      table: 'items',
      row: { id: `row-${i % 8}`, name: `n${i}`, value: i, created_at: 1, updated_at: T + i },
      old_id: null,
    }));
    const send = (atOnce?: number) => {
      const body = Buffer.from(asTabular({ batch_id: 7, changes: rowsOf9 }));
      return receivedInParts(it.manager, body, { said: SAID, ...(atOnce && { atOnce }) }).received.body;
    };
    for (const atOnce of [2, 2, undefined, 2]) expect(send(atOnce)).toMatchObject({ applied, ack: 7 });
  });

  test('bytes that are others by now are another batch', async () => {
    const it = await node();
    const [mine, yours] = [batch(6), Buffer.from(batch(6).toString().replaceAll('row-', 'ROW-'))];
    const pooled = new Uint8Array(mine);
    for (let i = 0; i < 2; i++) it.manager.receive(pooled, { from: 'a', said: SAID, atOnce: 2 });
    expect(rows(it)).toBe(2);
    pooled.set(yours);
    const { received } = receivedInParts(it.manager, pooled, { from: 'b', said: SAID, atOnce: 2 });
    expect(received.body).toEqual({ applied: 6, ack: 7 });
    expect(rowsOf(it.db, "SELECT count(*) AS n FROM items WHERE id GLOB 'ROW-*'")).toEqual([{ n: 6 }]);
  });

  test('a right that is taken away counts for the parts that are left', async () => {
    const it = await node();
    const body = batch(6);
    const next = (write: string[]) =>
      it.manager.receive(body, { from: 'a', said: SAID, atOnce: 2, rights: { write: new Set(write) } as never });
    for (let i = 0; i < 2; i++) next(['items']);
    expect(next(['notes'])).toMatchObject({ status: 200, body: { applied: 0 } });
    expect(rows(it)).toBe(2);
  });

  test('what could not be read in the plain form is refused before any of it is applied', async () => {
    const columns = Array.from({ length: 90 }, (_, i) => `${'c'.repeat(60)}_${i}`);
    const it = await node({
      schema:
        `CREATE TABLE items (id TEXT PRIMARY KEY, ${columns.map((name) => `${name} INTEGER`).join(', ')}, updated_at INTEGER);` +
        "CREATE TRIGGER never BEFORE INSERT ON items WHEN NEW.id = 'row-1999' BEGIN SELECT RAISE(ABORT, 'never'); END",
    });
    const changes = Array.from({ length: 2_000 }, (_, i) => ({
      op: 'INSERT',
      table: 'items',
      row: { id: `row-${i}`, ...Object.fromEntries(columns.map((name) => [name, 1])), updated_at: T },
      old_id: null,
    }));
    const body = Buffer.from(asTabular({ batch_id: 7, changes }));
    const { received } = receivedInParts(it.manager, body, { said: SAID, atOnce: 500 });
    expect([received.status, rows(it)]).toEqual([413, 0]);
  });

  test.each([
    ['of a plain peer', { from: 'a' }, batch(9)],
    ['of more than four megabytes', { said: SAID }, batch(3_000, () => 'x'.repeat(1_500))],
  ])('one %s is applied at once', async (_, options, body) => {
    const it = await node();
    const { received, steps } = receivedInParts(it.manager, body, { ...options, atOnce: 2 });
    expect([received.status, steps]).toEqual([200, 1]);
  });

  test('texts that look like the end of a row are none', async () => {
    const it = await node();
    const { received, steps } = receivedInParts(
      it.manager,
      batch(9, () => '],["'),
      { said: SAID, atOnce: 3 },
    );
    expect([received.body, steps]).toEqual([{ applied: 9, ack: 7 }, 4]);
    expect(rowsOf(it.db, 'SELECT DISTINCT name FROM items')).toEqual([{ name: '],["' }]);
  });

  test('what is set aside has the number that it has in the batch', async () => {
    const it = await node({
      schema:
        "CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT CHECK (name <> 'no'), value INTEGER, created_at INTEGER, updated_at INTEGER)",
    });
    const body = batch(9, (i) => (i === 4 || i === 8 ? 'no' : 'yes'));
    const { received } = receivedInParts(it.manager, body, { from: 'a', said: SAID, atOnce: 3 });
    expect(received.body).toMatchObject({ applied: 7, rejected: [{ index: 4 }, { index: 8 }] });
    expect(it.manager.deadLetters.list()).toHaveLength(2);
  });

  test('a body that is no batch is refused before any of it is applied', async () => {
    const it = await node();
    const whole = batch(9).toString();
    const bodies = [
      whole.replace('"row-8","n8"', '"row-8"'),
      whole.replace('"row-8"', '{}'),
      whole.slice(0, -1),
      whole.replace('"row-8"', '"row-8'),
    ];
    for (const body of bodies) {
      const { received, steps } = receivedInParts(it.manager, Buffer.from(body), { said: SAID, atOnce: 2 });
      expect([received.status, steps]).toEqual([400, 1]);
    }
    expect(rows(it)).toBe(0);
  });

  test.each([0, 1.5, '3'])('%j changes at once is refused', async (atOnce) => {
    const { manager } = await node();
    expect(() => manager.receive(batch(3), { atOnce: atOnce as number })).toThrow('"atOnce" must be an integer from 1');
  });

  test('a schema that changes between two parts is heeded by the next', async () => {
    const it = await node();
    const body = batch(6);
    const next = () => it.manager.receive(body, { from: 'a', said: SAID, atOnce: 2 });
    for (let i = 0; i < 2; i++) next();
    it.db.exec("ALTER TABLE items ADD COLUMN more TEXT DEFAULT 'd'");
    expect(next().status).toBe(503);
    expect(next().body).toEqual({ applied: 6, ack: 7 });
    expect(rowsOf(it.db, 'SELECT count(*) AS n, min(more) AS more FROM items')).toEqual([{ n: 6, more: 'd' }]);
  });

  describe('over HTTP', () => {
    test('others have their turn between two parts', async () => {
      const it = await node();
      const handler = createHandler(it.manager);
      const answer = handler(post(batch(6_000)));
      const seen = new Set<unknown>();
      let isOver = false;
      void answer.then(() => {
        isOver = true;
      });
      while (!isOver) {
        await new Promise((resolve) => setImmediate(resolve));
        seen.add(rows(it));
      }
      expect(await (await answer).json()).toEqual({ applied: 6_000, ack: 7 });
      for (const some of [1_200, 2_400, 3_600, 4_800]) expect(seen).toContain(some);
    });

    test('a lock that somebody takes in between is waited for', async () => {
      const path = join(scratchFolder(), 'node.db');
      const it = await node({ path });
      it.db.exec('PRAGMA busy_timeout = 3000');
      const other = await database('SELECT 1', path);
      const answer = createHandler(it.manager)(post(batch(6_000)));
      while (rows(it) === 0) await new Promise((resolve) => setImmediate(resolve));
      other.exec('BEGIN IMMEDIATE');
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect(rows(it)).toBeLessThan(6_000);
      other.exec('COMMIT');
      expect(await (await answer).json()).toEqual({ applied: 6_000, ack: 7 });
    });

    test('a node that stops in between has acknowledged nothing, and the batch comes again', {
      tags: 'long',
    }, async () => {
      const path = join(scratchFolder(), 'node.db');
      const it = await node({ path });
      const answer = createHandler(it.manager)(post(batch(6_000)));
      while (rows(it) === 0) await new Promise((resolve) => setImmediate(resolve));
      await it.manager.stop();
      expect((await answer).status).toBe(503);
      const again = await node({ path, schema: 'SELECT 1' });
      expect(rows(again)).toBeLessThan(6_000);
      const answered = await createHandler(again.manager)(post(batch(6_000)));
      expect(await answered.json()).toEqual({ applied: 6_000, ack: 7 });
      expect(rows(again)).toBe(6_000);
    });

    test('a replica of somebody else that hands on other bytes each time comes to an end', async () => {
      const it = await node();
      let calls = 0;
      const replica: Replica = {
        maxBodyBytes: 1 << 20,
        health: () => ({ ok: true }),
        receive: (body, options) => {
          calls += 1;
          return (it.manager as Manager).receive(Buffer.from(body), options);
        },
      };
      const body = batch(20);
      const { status } = await respond(
        replica,
        { atOnce: 2 },
        {
          method: 'POST',
          path: '/sync',
          header: (name) => ({ 'content-type': 'application/json', 'x-rowcast': SAID })[name],
          read: async () => body,
          hold: () => true,
        },
      );
      expect([status, calls, rows(it)]).toEqual([200, 3, 20]);
    });
  });
});

test.runIf(!jsonb)('without the fast way a batch is applied at once', async () => {
  const it = await node();
  expect(receivedInParts(it.manager, batch(9), { said: SAID, atOnce: 2 }).steps).toBe(1);
  expect(rows(it)).toBe(9);
});

test('who has made them is told by parts as well', () => {
  const runs = [
    { node: 'b', count: 3 },
    { node: null, count: 1 },
    { node: 'c', count: 4 },
  ];
  expect(originsBetween(runs, 0, 8)).toEqual(runs);
  expect(originsBetween(runs, 2, 3)).toEqual([
    { node: 'b', count: 1 },
    { node: null, count: 1 },
    { node: 'c', count: 1 },
  ]);
  expect(originsBetween(runs, 5, 2)).toEqual([{ node: 'c', count: 2 }]);
  expect(originsBetween(undefined, 0, 2)).toBeUndefined();
});
