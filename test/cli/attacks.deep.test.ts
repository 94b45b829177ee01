/**
 * What strangers have tried: small requests that cost a node, or a hub, much. Each against a program of its own with a small
 * heap, which must still be alive and right afterwards, and must have spent no more processor time and memory than it may.
 * Processor time is counted in that of honest work, done in the same run: a slow machine is slow for both. The bounds are
 * some five times what was measured when they were written, and a small part of what each attack once cost.
 */

import { statSync } from 'node:fs';
import type http from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { cleanUp, database, scratchFolder, serve, until } from '../support/nodes.ts';
import {
  MAIN,
  measured,
  type Parsed,
  type Program,
  runProgram,
  started,
  startNode,
  type Usage,
  usageOf,
} from '../support/programs.ts';

const HEAP_MIB = 384;
const SCHEMA =
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER CHECK (value > 0), created_at INTEGER, updated_at INTEGER)';

interface Target extends Program {
  url: string;
  port: number;
  db: string;
}

async function startTarget(kind: 'node' | 'hub', args: string[] = [], folder = scratchFolder()): Promise<Target> {
  const db = join(folder, `${kind}.db`);
  if (kind === 'node') {
    if (!statSync(db, { throwIfNoEntry: false })) (await database(SCHEMA, db)).close();
    return startNode('node', args, folder, measured(HEAP_MIB));
  }
  const listen = ['-listen', '127.0.0.1:0'];
  const program = runProgram(MAIN, ['hub', '-id', 'hub', '-db', db, ...listen, ...args], measured(HEAP_MIB));
  const { url, port } = await started(program);
  return { ...program, url, port, db };
}

const row = (i: number, more: object = {}): object => ({
  ...{ id: `r${i}`, name: 'n', value: 1, created_at: 1, updated_at: 1_000 + i },
  ...more,
});
const change = (one: object, table = 'items'): object => ({ op: 'INSERT', table, row: one, old_id: null });
const batch = (changes: object[]): string => JSON.stringify({ batch_id: 1, changes });
const times = <T>(n: number, make: (i: number) => T): T[] => Array.from({ length: n }, (_, i) => make(i));
const oneText = (text: string): string =>
  `{"batch_id":1,"changes":[{"op":"INSERT","table":"items","row":{"id":"a","name":"${text}","value":1,` +
  '"created_at":1,"updated_at":1000},"old_id":null}]}';

async function post(
  url: string,
  body: string | Uint8Array,
  headers: Record<string, string> = {},
  path = '/sync',
): Promise<{ status: number; body: Parsed }> {
  const answer = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-node-id': 'stranger', ...headers },
    body: body as BodyInit,
  });
  return { status: answer.status, body: await answer.json() };
}
const postGzip = (url: string, body: string): Promise<{ status: number; body: Parsed }> =>
  post(url, gzipSync(body), { 'content-encoding': 'gzip' });

/** What something may cost. */
interface Most {
  /** Processor time, in that of `honestWork`. */
  works: number;
  /** Of memory, at any moment. */
  peakMiB: number;
}

/** Processor seconds of a node that is sent fifty thousand rows by an honest peer. */
async function honestWork(): Promise<number> {
  const target = await startTarget('node');
  const before = await usageOf(target);
  for (let sent = 0; sent < 50_000; sent += 10_000) {
    const answer = await postGzip(target.url, batch(times(10_000, (i) => change(row(sent + i)))));
    expect(answer).toMatchObject({ status: 200, body: { applied: 10_000 } });
  }
  return (await usageOf(target)).cpuSeconds - before.cpuSeconds;
}
let work: number | undefined;

/** What it has cost since `before`. */
async function expectCost(target: Target, before: Usage, most: Most): Promise<void> {
  const { cpuSeconds, peakMiB } = await usageOf(target);
  const spent = cpuSeconds - before.cpuSeconds;
  work ??= await honestWork();
  // It may have become slower since.
  if (spent >= most.works * work) work = Math.max(work, await honestWork());
  if (process.env.ROWCAST_COSTS) {
    const works = (spent / work).toFixed(2);
    console.log(
      `${expect.getState().currentTestName}: ${spent.toFixed(2)} s, ${works} works, ${peakMiB.toFixed(0)} MiB`,
    );
  }
  expect(spent / work, 'as much as honest work').toBeLessThan(most.works);
  expect(peakMiB, 'MiB of memory at most').toBeLessThan(most.peakMiB);
}
/** It answers, and takes an honest row. */
async function isWell(target: Target): Promise<void> {
  expect(await post(target.url, batch([change(row(7, { id: 'honest', updated_at: 5_000 }))]))).toMatchObject({
    status: 200,
    body: { applied: 1 },
  });
  expect((await fetch(`${target.url}/health`)).status).toBe(200);
}

/** A body, and what a node and a hub say to it. */
type Attack = [string, () => string, 'plain' | 'gzip', { node: number; hub: number }, Most];

/** Sixty megabytes are taken: SQLite and its binding copy them some fifteen times while they are read and applied. */
const LARGEST_BODY: Most = { works: 40, peakMiB: 1_400 };

const ATTACKS: Attack[] = [
  [
    'ten million halves of surrogate pairs, packed to a thousandth',
    () => oneText('\\ud800'.repeat(10_000_000)),
    'gzip',
    { node: 413, hub: 413 },
    { works: 4, peakMiB: 300 },
  ],
  [
    'ten million halves of surrogate pairs, as they are',
    () => oneText('\\ud800'.repeat(10_000_000)),
    'plain',
    { node: 200, hub: 200 },
    LARGEST_BODY,
  ],
  [
    'a row with 8,000 keys',
    () => batch([change(row(1, Object.fromEntries(times(8_000, (i) => [`k${i}`, i]))))]),
    'plain',
    { node: 200, hub: 200 },
    { works: 4, peakMiB: 300 },
  ],
  [
    '20 rows with 8,000 keys each, none twice',
    () => batch(times(20, (j) => change(row(j, Object.fromEntries(times(8_000, (i) => [`k${j}_${i}`, i])))))),
    'plain',
    { node: 200, hub: 200 },
    { works: 10, peakMiB: 400 },
  ],
  [
    '10,000 rows, each with an unknown column of its own',
    () => batch(times(10_000, (i) => change(row(i, { [`x${i}`]: 1 })))),
    'gzip',
    { node: 413, hub: 200 },
    { works: 10, peakMiB: 400 },
  ],
  [
    '10,000 rows that break a constraint',
    () => batch(times(10_000, (i) => change(row(i, { value: -5 })))),
    'gzip',
    { node: 200, hub: 200 },
    { works: 20, peakMiB: 400 },
  ],
  [
    '10,000 rows without a time',
    () => batch(times(10_000, (i) => change(row(i, { updated_at: 'x' })))),
    'gzip',
    { node: 200, hub: 200 },
    { works: 20, peakMiB: 400 },
  ],
  [
    '10,000 tables that are not there',
    () => batch(times(10_000, (i) => change(row(i), `t${i}`))),
    'gzip',
    { node: 413, hub: 200 },
    { works: 10, peakMiB: 400 },
  ],
  [
    '200,000 rows in one body',
    () => batch(times(200_000, (i) => change(row(i)))),
    'gzip',
    { node: 413, hub: 413 },
    { works: 10, peakMiB: 500 },
  ],
  [
    '60 rows with 1,990 unknown columns each',
    () => batch(times(60, (j) => change(row(j, Object.fromEntries(times(1_990, (i) => [`k${i}`, i])))))),
    'gzip',
    { node: 200, hub: 200 },
    { works: 16, peakMiB: 400 },
  ],
  [
    'a text with 3.4 million escapes',
    () => oneText('\\n'.repeat(3_400_000)),
    'plain',
    { node: 200, hub: 200 },
    { works: 10, peakMiB: 500 },
  ],
  [
    'a million brackets, one in the other',
    () => oneText('').replace('"name":""', `"name":${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}`),
    'plain',
    { node: 400, hub: 400 },
    { works: 10, peakMiB: 400 },
  ],
];

describe.each(['node', 'hub'] as const)('a body to a %s', (kind) => {
  test.each(ATTACKS)('%s', async (_, body, encoding, status, most) => {
    const target = await startTarget(kind);
    const before = await usageOf(target);
    const answer = await (encoding === 'gzip' ? postGzip : post)(target.url, body());
    expect([answer.status, JSON.stringify(answer.body).slice(0, 200)]).toEqual([status[kind], expect.any(String)]);
    await expectCost(target, before, most);
    await isWell(target);
  });
});

test('a text of 20 MB in a row of 120 columns is not copied for each of them', async () => {
  const folder = scratchFolder();
  const columns = times(115, (i) => `c${i}`);
  const schema = SCHEMA.replace('updated_at INTEGER', `${columns.join(', ')}, updated_at INTEGER`);
  (await database(schema, join(folder, 'node.db'))).close();
  const target = await startTarget('node', ['-table', 'items'], folder);
  const before = await usageOf(target);
  // In the usual order of the keys, and in another: each goes its own way through the merge.
  for (const [id, isUsual] of [
    ['usual', true],
    ['other', false],
  ] as const) {
    const { updated_at, ...first } = row(1, { id, name: 'x'.repeat(20_000_000) }) as Record<string, unknown>;
    const rest = { ...Object.fromEntries(columns.map((name) => [name, 1])), updated_at };
    const body = batch([change(isUsual ? { ...first, ...rest } : { ...rest, ...first })]);
    expect(await post(target.url, body)).toMatchObject({ status: 200, body: { applied: 1 } });
  }
  await expectCost(target, before, { works: 30, peakMiB: 800 });
});

describe('a question of a comparison to a hub', () => {
  test('for 2,000 columns, of rows with as many keys', async () => {
    const target = await startTarget('hub');
    const rows = times(20, (j) => change(row(j, Object.fromEntries(times(1_990, (i) => [`k${i}`, i])))));
    expect((await post(target.url, batch(rows))).status).toBe(200);
    const before = await usageOf(target);
    const named = (letter: string): object => Object.fromEntries(times(2_000, (i) => [`${letter}${i}`, 'TEXT']));
    for (const letter of ['k', 'u']) {
      const question = { want: 'hash', table: 'items', columns: named(letter), ranges: [[null, null]] };
      expect((await post(target.url, JSON.stringify(question), {}, '/sync/compare')).status).toBe(200);
    }
    await expectCost(target, before, { works: 12, peakMiB: 300 });
    await isWell(target);
  });

  test('that is packed to a thousandth is not unpacked', async () => {
    const target = await startTarget('hub');
    const before = await usageOf(target);
    for (const path of ['/sync/compare', '/sync/fetch']) {
      const bomb = gzipSync(' '.repeat(60_000_000));
      expect((await post(target.url, bomb, { 'content-encoding': 'gzip' }, path)).status).toBe(413);
    }
    await expectCost(target, before, { works: 4, peakMiB: 300 });
    await isWell(target);
  });
});

describe('many at a time', () => {
  test('30 connections that each hold a body of 24 MB share the room for bodies', async () => {
    const target = await startTarget('node');
    const before = await usageOf(target);
    const size = 24_000_000;
    const chunk = Buffer.alloc(1_000_000, ' ');
    const putOff = new Set<number>();
    for (let i = 0; i < 30; i++) {
      const socket = net.connect(target.port, '127.0.0.1');
      cleanUp(() => socket.destroy());
      socket.on('error', () => {});
      socket.on('data', (data) => {
        if (/^HTTP\/1\.1 503 /.test(String(data))) putOff.add(i);
      });
      // Who is still writing when the connection ends may not hear why.
      socket.on('close', () => putOff.add(i));
      socket.write(
        `POST /sync HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${size}\r\n\r\n`,
      );
      // All of it but the last byte.
      for (let sent = 0; sent < size - chunk.length; sent += chunk.length) socket.write(chunk);
      socket.write(chunk.subarray(1));
    }
    await until('most of them were put off', () => putOff.size >= 24);
    await expectCost(target, before, { works: 30, peakMiB: 700 });
    expect((await fetch(`${target.url}/health`)).status).toBe(200);
  });

  test('30,000 letters of a stranger take the room that they came with, and a start is not slowed down by them', async () => {
    const folder = scratchFolder();
    const target = await startTarget('node', [], folder);
    const before = await usageOf(target);
    const bodies = times(3, (j) =>
      batch(times(10_000, (i) => change(row(i + 10_000 * j, { value: -5, name: 'n'.repeat(100) })))),
    );
    for (const body of bodies) {
      const { status, body: ack } = await postGzip(target.url, body);
      expect([status, ack.rejected.length]).toEqual([200, 10_000]);
    }
    await expectCost(target, before, { works: 60, peakMiB: 500 });
    expect(await (await fetch(`${target.url}/health`)).json()).toMatchObject({ ok: true, dead_letter: 30_000 });
    target.child.kill('SIGTERM');
    expect(await target.ended).toBe(0);
    const bytes = bodies.reduce((sum, body) => sum + body.length, 0);
    expect(statSync(target.db).size).toBeLessThan(4 * bytes);
    const again = await startTarget('node', [], folder);
    await expectCost(again, { cpuSeconds: 0, peakMiB: 0 }, { works: 20, peakMiB: 400 });
    await isWell(again);
  });
});

describe('what answers to a sender', () => {
  /** A sender with a row for somebody who answers so. */
  async function sender(answer: http.RequestListener): Promise<{ target: Target; asked(): number }> {
    let asked = 0;
    const url = await serve((request, response) => {
      request.resume();
      request.on('end', () => {
        asked += 1;
        answer(request, response);
      });
    });
    const target = await startTarget('node', ['-peer', url]);
    const headers = { 'content-type': 'application/json' };
    await fetch(`${target.url}/api/items`, { method: 'POST', headers, body: '{"name":"mine","value":1}' });
    return { target, asked: () => asked };
  }

  const state = async ({ url }: Target): Promise<Parsed> => (await fetch(`${url}/health`)).json();

  test('without an end is read as far as an answer can be long', async () => {
    const chunk = Buffer.alloc(256 * 1024, ' ');
    const { target, asked } = await sender((_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      const more = (): void => {
        while (!response.destroyed && response.write(chunk));
        if (!response.destroyed) response.once('drain', more);
      };
      more();
    });
    const before = await usageOf(target);
    await until('it was asked ten times', () => asked() >= 10);
    await expectCost(target, before, { works: 10, peakMiB: 300 });
    expect(await state(target)).toMatchObject({ ok: true, pending_changes: 1, dead_letter: 0 });
  });

  test('with an acknowledgement of 50 kB, or of anything else, buries nothing and is not repeated at length', async () => {
    const acks = [`"${'9'.repeat(50_000)}"`, '{"a":1}', '[[[[]]]]', '1e400', '"x"', 'null', 'true'];
    let next = 0;
    const { target, asked } = await sender((_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(`{"applied":1,"ack":${acks[next++ % acks.length]}}`);
    });
    const before = await usageOf(target);
    await until('it was asked thirty times', () => asked() >= 30);
    await expectCost(target, before, { works: 10, peakMiB: 300 });
    const health = await state(target);
    expect(health).toMatchObject({ ok: true, pending_changes: 1, dead_letter: 0 });
    expect(health.peer_states[0].last_error.length).toBeLessThan(600);
    expect(target.stdout().length).toBeLessThan(20_000);
  });
});
