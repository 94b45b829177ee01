/** `GET /_rowcast/changes`, by a server of node:http and by the Web's handler. */
import http from 'node:http';
import { expect, test } from 'vitest';
import { type ChangesOptions, createChangesHandler, createChangesListener } from '../../src/http/index.ts';
import type { Clock, Manager } from '../../src/index.ts';
import { Reader } from '../support/event-reader.ts';
import { cleanUp, node, serve, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const ITEMS = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';

async function served(
  options: ChangesOptions = {},
): Promise<{ manager: Manager; url: string; write(id: string): void }> {
  const { db, manager } = await node({ schema: ITEMS, feed: { keep: 100 } });
  const url = `${await serve(createChangesListener(manager, options))}/_rowcast/changes`;
  return { manager, url, write: (id) => db.exec(`INSERT OR REPLACE INTO items VALUES ('${id}', 'n', 1000)`) };
}

const get = async (url: string, init: RequestInit = {}): Promise<{ status: number; body: Record<string, unknown> }> => {
  const response = await fetch(url, init);
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
};

test('a reader is told to read everything, then of every change, and goes on where it was', async () => {
  const { url, write } = await served();
  const reader = new Reader(url);
  await until('it is told to', () => reader.events.some(({ event }) => event === 'reset'));
  write('x');
  write('y');
  await until('both came', () => reader.ids.length === 2);
  const { position } = reader;
  expect(position).toMatch(/^[0-9a-f]{16}:\d+:[0-9a-f]{8}$/);
  reader.close();
  write('z');
  const again = new Reader(`${url}?include=row`, { 'last-event-id': position });
  await until('the third came', () => again.ids.length === 1);
  expect(again.ids).toEqual(['z']);
  expect(again.events.some(({ event }) => event === 'reset')).toBe(false);
  expect(JSON.parse(again.events.find(({ event }) => event === 'change')?.data as string)).toEqual({
    local: true,
    rows: [{ op: 'INSERT', table: 'items', id: 'z', row: { id: 'z', name: 'n', updated_at: 1000 } }],
  });
});

test('a position that is too old, or not from here, is answered by a reset and the present position', async () => {
  const { url, write, manager } = await served();
  const old = manager.feed?.position() as string;
  for (let i = 0; i < 120; i++) write(`x${i}`);
  await until('it is full', () => manager.feed?.read(old).reset === true);
  for (const position of [old, 'ffffffffffffffff:1:00000000']) {
    const reader = new Reader(url, { 'last-event-id': position });
    await until('it is told', () => reader.events.some(({ event }) => event === 'reset'));
    const { position: now } = reader;
    write(`after ${position}`);
    await until('it goes on', () => reader.ids.length === 1);
    expect(now).not.toBe(position);
  }
});

test('as JSON, at once or when there is something', async () => {
  const { url, write } = await served();
  const { body: start } = await get(url);
  expect(start).toMatchObject({ reset: true, changes: [], more: false });
  expect((await get(`${url}?since=${start.position}`)).body).toEqual({ ...start, reset: false });
  const waiting = get(`${url}?feed=longpoll&since=${start.position}`);
  write('x');
  const { body } = await waiting;
  expect(body).toMatchObject({ reset: false, changes: [{ local: true, rows: [{ id: 'x' }] }] });
  expect((await get(`${url}?since=now`)).body).toMatchObject({ reset: false, changes: [], position: body.position });
});

test('who waits for something is answered after 25 seconds, although the clock was set back by an hour', async () => {
  const clock = new VirtualClock();
  const { url, manager } = await served({ clock });
  const position = manager.feed?.position() as string;
  const waiting = get(`${url}?feed=longpoll&since=${position}`);
  await until('it waits', () => clock.requested.includes(25_000));
  clock.setBack(3_600_000);
  await clock.advance(25_000);
  expect((await waiting).body).toEqual({ reset: false, changes: [], position, more: false });
  await until('nothing is left of it', () => clock.pending === 0);
});

test.each([
  ['?feed=stream', 400, /feed must be normal, longpoll or eventsource/],
  ['?include=all', 400, /include can be: row/],
  ['?since=12', 400, /since must be a position/],
  ['?limit=12', 400, /there is no limit/],
  ['?tables=item', 400, /"item" is not synced; did you mean items/],
])('%s is refused', async (query, status, error) => {
  const { url } = await served();
  const answer = await get(url + query);
  expect(answer.status).toBe(status);
  expect(answer.body.error).toMatch(error);
  expect((await get(`${url}${query}`, { headers: { accept: 'text/event-stream' } })).status).toBe(status);
});

test('another method, and a node without a feed', async () => {
  const { url } = await served();
  expect(await get(url, { method: 'POST' })).toEqual({ status: 405, body: { error: 'use GET, HEAD' } });
  const { manager } = await node({ schema: ITEMS });
  const none = await serve(createChangesListener(manager));
  expect((await get(`${none}/_rowcast/changes`)).status).toBe(404);
  expect((await fetch(`${none}/other`)).status).toBe(404);
});

test('rows of other tables move a reader on without a word', async () => {
  const schema = `${ITEMS}; CREATE TABLE notes (id TEXT PRIMARY KEY, updated_at INTEGER)`;
  const { db, manager } = await node({ schema, tables: ['items', 'notes'], feed: { keep: 100 } });
  const url = `${await serve(createChangesListener(manager))}/_rowcast/changes`;
  const reader = new Reader(`${url}?tables=notes&since=now`);
  await until('it is there', () => reader.events.some(({ id }) => id !== undefined));
  db.exec("INSERT INTO items VALUES ('i', 'n', 1000)");
  await until('it is moved on', () => reader.position === manager.feed?.position());
  db.exec("INSERT INTO notes VALUES ('n', 1000)");
  await until('it is told', () => reader.ids.length === 1);
  expect(reader.ids).toEqual(['n']);
});

test('so many readers and no more; a place becomes free when one goes', async () => {
  const { url } = await served({ readers: 2 });
  const readers = [new Reader(url), new Reader(url)];
  await until('both are in', () => readers.every(({ events }) => events.length > 1));
  expect((await get(url, { headers: { accept: 'text/event-stream' } })).status).toBe(503);
  readers[0]?.close();
  await until('there is room', async () => {
    const reader = new Reader(url);
    await until('it is answered', () => reader.events.length > 1 || reader.ended);
    reader.close();
    return reader.events.length > 1;
  });
});

test('who waits is told that there is nothing, and is let go of when the node or the server stops', async () => {
  const closing = new AbortController();
  const { manager, url } = await served({ keepAliveMs: 5, signal: closing.signal });
  const first = new Reader(url);
  await until('it has heard', () => first.comments > 2);
  closing.abort();
  await until('it is let go of', () => first.ended);
  const other = `${await serve(createChangesListener(manager))}/_rowcast/changes`;
  const second = new Reader(other);
  await until('it is in', () => second.events.length > 1);
  await manager.stop();
  await until('it is let go of', () => second.ended);
  expect((await get(other)).status).toBe(503);
});

test('a reader that takes nothing is let go of, and costs a page of memory at the most', async () => {
  const { db, manager } = await node({
    schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)',
    feed: { keep: 1_000_000 },
  });
  const start = manager.feed?.position() as string;
  const some =
    "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 3000) INSERT INTO items SELECT 'x' || i, hex(randomblob(1000)), 1000 FROM n";
  db.exec(some);
  await until('it is in the feed', () => (manager.feed?.read(start).entries.length ?? 0) > 0);
  const sleeps: { ms: number; wake(): void }[] = [];
  const clock: Clock = {
    now: () => Date.now(),
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        sleeps.push({ ms, wake: resolve });
        signal?.addEventListener('abort', () => resolve());
      }),
  };
  const sockets: http.ServerResponse[] = [];
  const listener = createChangesListener(manager, { clock });
  const url = await serve((request, response) => {
    sockets.push(response);
    listener(request, response);
  });
  const request = http.get(`${url}/_rowcast/changes?feed=eventsource&include=row&since=${start}`, { agent: false });
  request.on('error', () => {});
  request.on('response', (response) => response.pause());
  cleanUp(() => request.destroy());
  await until(
    'nothing more is taken',
    () => (sockets[0]?.writableLength ?? 0) > 0 && sleeps.some(({ ms }) => ms === 30_000),
  );
  expect(sockets[0]?.writableLength).toBeLessThan(20_000_000);
  await until('it is let go of', () => {
    for (const { ms, wake } of sleeps.splice(0)) if (ms === 30_000) wake();
    return sockets[0]?.destroyed === true;
  });
});

test("the Web's handler streams as well, and notices that its reader is gone", async () => {
  const { db, manager } = await node({ schema: ITEMS, feed: { keep: 100 } });
  const handler = createChangesHandler(manager, { readers: 1 });
  const ask = (): Promise<Response> =>
    handler(new Request('http://localhost/_rowcast/changes', { headers: { accept: 'text/event-stream' } }));
  const response = await ask();
  expect(response.headers.get('content-type')).toBe('text/event-stream');
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  let text = '';
  const more = async (): Promise<void> => {
    text += new TextDecoder().decode((await reader.read()).value);
  };
  while (!text.includes('event: reset')) await more();
  db.exec("INSERT INTO items VALUES ('x', 'n', 1000)");
  while (!text.includes('"id":"x"')) await more();
  expect((await ask()).status).toBe(503);
  await reader.cancel();
  await until('there is room again', async () => {
    const next = await ask();
    await next.body?.cancel();
    return next.status === 200;
  });
});
