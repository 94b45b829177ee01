import http from 'node:http';
import net from 'node:net';
import { getRequestListener } from '@hono/node-server';
import express from 'express';
import { Hono } from 'hono';
import { describe, expect, test } from 'vitest';
import { createHandler, createListener, type HttpOptions } from '../../src/http/index.ts';
import type { Manager } from '../../src/index.ts';
import { shared } from '../support/draws.ts';
import { lane } from '../support/lane.ts';
import { cleanUp, node, rowsOf, serve, serveManager, type TestNode, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

/** A Web-standard app on the runtime's own server: Bun has one, Node needs Hono's bridge. */
async function serveFetch(fetch: (request: Request) => Response | Promise<Response>): Promise<string> {
  if (lane !== 'bun-sqlite') return serve(getRequestListener(fetch));
  const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch });
  cleanUp(() => server.stop(true));
  return `http://127.0.0.1:${server.port}`;
}

/** The wirings of the documentation, three lines each. */
const wirings: Record<string, (manager: Manager, options?: HttpOptions) => Promise<string>> = {
  'node:http': (manager, options) => serve(createListener(manager, options)),
  Express: (manager, options) => {
    const app = express();
    app.use(createListener(manager, options));
    return serve(app);
  },
  Hono: (manager, options) => {
    const app = new Hono();
    const handle = createHandler(manager, options);
    app.all('*', (context) => handle(context.req.raw));
    return serveFetch((request) => app.fetch(request));
  },
};
if (lane === 'bun-sqlite') {
  wirings['Bun.serve'] = async (manager, options) => {
    const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: createHandler(manager, options) });
    cleanUp(() => server.stop(true));
    return `http://127.0.0.1:${server.port}`;
  };
}

/** The runtime's own servers, and what is mounted in them: of that each runtime of `npm test` takes one. */
const own = Object.entries(wirings).filter(([name]) => name === 'node:http' || name === 'Bun.serve');
const others = Object.entries(wirings).filter(([name]) => name === 'Express' || name === 'Hono');

const row = (id: string, updatedAt = 1000) => ({ id, name: id, value: 1, created_at: 10, updated_at: updatedAt });
const insert = (id: string) => ({ op: 'INSERT', table: 'items', row: row(id), old_id: null });
const batch = (...ids: string[]): string => JSON.stringify({ batch_id: 7, changes: ids.map(insert) });

function post(url: string, body: string | Uint8Array, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${url}/sync`, {
    method: 'POST',
    body: body as BodyInit,
    headers: { 'content-type': 'application/json', 'x-node-id': 'sender', ...headers },
  });
}

/** Writes raw bytes, waits for the end of the answer, and gives back all of it. */
function raw(url: string, ...parts: (string | Uint8Array)[]): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), hostname);
    let answer = '';
    socket.on('data', (data) => {
      answer += data;
    });
    socket.on('error', (error) => (answer === '' ? reject(error) : resolve(answer)));
    socket.on('close', () => resolve(answer));
    for (const part of parts) socket.write(part);
  });
}

function itemIds({ all }: TestNode): unknown[] {
  return all('SELECT id FROM items ORDER BY id').map(({ id }) => id);
}

describe.each([...own, ...shared(others)])('over %s', (name, wire) => {
  test('a batch is applied and acknowledged, and health is served', async () => {
    const receiver = await node({ id: 'receiver' });
    const from: unknown[] = [];
    receiver.manager.on('applied', (event) => from.push(event.from));
    const url = await wire(receiver.manager);
    const answer = await post(url, batch('a', 'b'));
    expect(answer.status).toBe(200);
    expect(answer.headers.get('content-type')).toMatch(/^application\/json/);
    expect(await answer.json()).toEqual({ applied: 2, ack: 7 });
    expect(from).toEqual(['sender']);
    const health = await fetch(`${url}/health`);
    expect(health.status).toBe(200);
    expect(health.headers.get('content-type')).toMatch(/^application\/json/);
    expect(await health.json()).toMatchObject({ ok: true, node_id: 'receiver', item_count: 2, peers: [] });
  });

  test('two nodes wired this way replicate to each other', async () => {
    const receiver = await node({ id: 'receiver' });
    const sender = await node({ id: 'sender', peers: [await wire(receiver.manager)] });
    sender.db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000), ('b', 'second', 2, 10, 1000)");
    sender.db.exec("DELETE FROM items WHERE id = 'a'");
    expect((await sender.manager.flush()).unreachable).toEqual([]);
    expect(itemIds(receiver)).toEqual(['b']);
  });

  test('the same body again gives the same answer and the same state', async () => {
    const receiver = await node();
    const url = await wire(receiver.manager);
    const body = JSON.stringify({
      batch_id: 9,
      changes: [
        insert('a'),
        insert('b'),
        { op: 'UPDATE', table: 'items', row: { ...row('a', 2000), name: 'later' }, old_id: null },
        { op: 'DELETE', table: 'items', row: row('b', 3000), old_id: 'b' },
        { op: 'INSERT', table: 'nowhere', row: row('c'), old_id: null },
      ],
    });
    const first = await (await post(url, body)).text();
    const rows = receiver.all('SELECT * FROM items');
    for (let i = 0; i < 3; i++) expect(await (await post(url, body)).text()).toBe(first);
    expect(receiver.all('SELECT * FROM items')).toEqual(rows);
    expect(receiver.manager.health().dead_letter).toBe(1);
  });

  test('an unknown path answers 404 in plain text', async () => {
    const { manager } = await node();
    const url = await wire(manager);
    for (const path of ['/', '/nothing', '/sync/', '/synchronise', '/health/x', '/api/items']) {
      const answer = await fetch(url + path);
      expect(answer.status, path).toBe(404);
      expect(answer.headers.get('content-type'), path).toMatch(/^text\/plain/);
      expect((await answer.text()).length, path).toBeGreaterThan(0);
    }
  });

  test('another method answers 405 and says which one is right', async () => {
    const { manager } = await node();
    const url = await wire(manager);
    for (const method of ['GET', 'PUT', 'DELETE', 'PATCH']) {
      const answer = await fetch(`${url}/sync`, { method });
      expect(answer.status, method).toBe(405);
      expect(answer.headers.get('allow'), method).toBe('POST');
      expect(await answer.json()).toHaveProperty('error');
    }
    for (const method of ['POST', 'PUT', 'DELETE']) {
      const answer = await fetch(`${url}/health`, { method });
      expect(answer.status, method).toBe(405);
      expect(answer.headers.get('allow'), method).toMatch(/\bGET\b/);
    }
  });

  test('a node that is not well says 503, and why', async () => {
    // A clock that stands still: the next tick would put right what is broken here.
    const receiver = await node({ clock: new VirtualClock() });
    const url = await wire(receiver.manager);
    receiver.db.exec('DROP TABLE _dead_letter');
    const answer = await fetch(`${url}/health`);
    expect(answer.status).toBe(503);
    expect(await answer.json()).toMatchObject({ ok: false, node_id: 'node' });
  });

  test('what a route of one’s own must say is in the answer of receive', async () => {
    const { manager } = await node({ maxBodyBytes: 2_000 });
    const { headers } = manager.receive(batch('a'));
    expect(headers).toEqual({
      'accept-encoding': 'gzip',
      'x-apply-ms': expect.stringMatching(/^\d+$/),
      'x-any-order': '1',
    });
    const answer = await post(await wire(manager), batch('a'));
    for (const name of Object.keys(headers)) expect(answer.headers.get(name), name).not.toBeNull();
    // One limit, whichever way a body comes.
    expect(manager.receive(' '.repeat(2_001)).status).toBe(413);
    expect((await post(await wire(manager), ' '.repeat(2_001))).status).toBe(413);
  });

  test('HEAD /health answers like GET, without a body', async () => {
    const { manager } = await node();
    const answer = await fetch(`${await wire(manager)}/health`, { method: 'HEAD' });
    expect(answer.status).toBe(200);
    expect(answer.headers.get('content-type')).toMatch(/^application\/json/);
    expect(await answer.text()).toBe('');
  });

  test('a query string does not matter', async () => {
    const { manager } = await node();
    const url = await wire(manager);
    expect((await fetch(`${url}/health?verbose=1`)).status).toBe(200);
  });

  test('any other content type answers 415 and applies nothing', async () => {
    const receiver = await node();
    const url = await wire(receiver.manager);
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/jsonp', 'json', '']) {
      const answer = await post(url, batch('a'), { 'content-type': type });
      expect(answer.status, type).toBe(415);
      expect(await answer.json()).toMatchObject({ error: expect.stringContaining('application/json') });
    }
    expect(itemIds(receiver)).toEqual([]);
  });

  test('a content type with parameters, in any case, is accepted', async () => {
    const { manager } = await node();
    const url = await wire(manager);
    for (const type of ['application/json; charset=utf-8', 'Application/JSON', 'application/json;charset=utf-8']) {
      expect((await post(url, batch('a'), { 'content-type': type })).status, type).toBe(200);
    }
  });

  test.each([
    ['not JSON', '{'],
    ['empty', ''],
    ['not an object', '[]'],
    ['without a batch_id', '{"changes":[]}'],
    ['with a batch_id that is text', '{"batch_id":"7","changes":[]}'],
    ['without changes', '{"batch_id":7}'],
    ['not UTF-8', new Uint8Array([0x7b, 0xff, 0x7d])],
  ])('a body that is %s answers 400 with the reason and changes nothing', async (_, body) => {
    const receiver = await node();
    const answer = await post(await wire(receiver.manager), body);
    expect(answer.status).toBe(400);
    expect(((await answer.json()) as { error: string }).error.length).toBeGreaterThan(5);
    expect(receiver.all('SELECT * FROM items')).toEqual([]);
    expect(receiver.all('SELECT * FROM _dead_letter')).toEqual([]);
  });

  test('a body announced as too large answers 413 before it is sent', async () => {
    const receiver = await node({ maxBodyBytes: 2_000 });
    const url = await wire(receiver.manager);
    const { host } = new URL(url);
    // Only the head is sent: whoever waits for the body waits forever.
    const head = `POST /sync HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/json\r\nContent-Length: 2001\r\nConnection: close\r\n\r\n`;
    expect(await raw(url, head)).toMatch(/^HTTP\/1\.1 413 /);
    expect(itemIds(receiver)).toEqual([]);
  });

  test('a body of unknown length that grows too large answers 413', async () => {
    const receiver = await node({ maxBodyBytes: 2_000 });
    const url = await wire(receiver.manager);
    const { host } = new URL(url);
    const head = `POST /sync HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n`;
    const chunk = `400\r\n${' '.repeat(1024)}\r\n`;
    // The end of the body is never sent: the answer must come before it.
    for (const end of ['0\r\n\r\n', '']) {
      const answer = await raw(url, head, chunk, chunk, chunk, end);
      expect(answer).toMatch(/^HTTP\/1\.1 413 /);
      expect(answer).toContain('2000 bytes');
    }
  });

  test('a body at the limit is accepted', async () => {
    const { manager } = await node({ maxBodyBytes: 2_000 });
    const body = batch('a');
    const padded = body + ' '.repeat(2_000 - body.length);
    const url = await wire(manager);
    expect((await post(url, padded)).status).toBe(200);
    expect((await post(url, `${padded} `)).status).toBe(413);
  });

  test('a sender whose batches are too large for the peer halves them until they fit', { tags: 'long' }, async () => {
    const receiver = await node({ id: 'receiver', maxBodyBytes: 20_000 });
    const url = await wire(receiver.manager);
    const sender = await node({ id: 'sender', peers: [url] });
    sender.db.exec(
      'WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000) ' +
        "INSERT INTO items SELECT printf('%08d', n), 'name', n, 10, 1000 FROM s",
    );
    expect((await sender.manager.flush()).unreachable).toEqual([]);
    expect(receiver.all('SELECT count(*) AS n FROM items')).toEqual([{ n: 1000 }]);
    expect(sender.manager.health().dead_letter).toBe(0);
  });

  test('a 64-bit batch_id is acknowledged digit for digit', async () => {
    const { manager } = await node();
    const url = await wire(manager);
    for (const id of ['9007199254740993', '9223372036854775807', '-9223372036854775808', '0', '10000000000']) {
      const answer = await post(url, `{"batch_id":${id},"changes":[]}`);
      expect(await answer.text()).toBe(`{"applied":0,"ack":${id}}`);
    }
    expect((await post(url, '{"batch_id":9223372036854775808,"changes":[]}')).status).toBe(400);
  });

  test('a rejected change is named in the answer', async () => {
    const { manager } = await node();
    const body = JSON.stringify({ batch_id: 3, changes: [insert('a'), { ...insert('b'), table: 'nowhere' }] });
    const answer = await post(await wire(manager), body);
    expect(await answer.json()).toEqual({
      applied: 1,
      ack: 3,
      rejected: [{ index: 1, code: 'unknown-table', message: expect.any(String) }],
    });
  });

  test('a client that goes away in the middle of its body leaves no trace', async () => {
    const receiver = await node();
    const errors: unknown[] = [];
    receiver.manager.on('error', (error) => errors.push(error));
    const url = await wire(receiver.manager);
    const { hostname, port, host } = new URL(url);
    const body = batch('a', 'b');
    for (const cut of [0, 1, 20, body.length - 1]) {
      const socket = net.connect(Number(port), hostname);
      await new Promise<void>((resolve) => socket.once('connect', resolve));
      const head = `POST /sync HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
      await new Promise<void>((resolve) => socket.write(head + body.slice(0, cut), () => resolve()));
      const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
      socket.destroy();
      await closed;
    }
    // The server still answers, so it has dealt with what came before.
    expect((await post(url, batch('whole'))).status).toBe(200);
    expect(itemIds(receiver)).toEqual(['whole']);
    expect(receiver.all('SELECT * FROM _dead_letter')).toEqual([]);
    expect(errors).toEqual([]);
  });

  test('with a prefix, the routes are there and nowhere else', async () => {
    const { manager } = await node();
    const url = await wire(manager, { prefix: '/replication/' });
    expect((await post(`${url}/replication`, batch('a'))).status).toBe(200);
    expect((await fetch(`${url}/replication/health`)).status).toBe(200);
    for (const path of ['/sync', '/health', '/replicationsync', '/replication', '/replication/']) {
      expect((await fetch(url + path)).status, path).toBe(404);
    }
  });

  test('a stopped manager answers 503 on both routes, so that senders come back', async () => {
    const { manager } = await node();
    const url = await wire(manager);
    await manager.stop();
    expect((await post(url, batch('a'))).status).toBe(503);
    const health = await fetch(`${url}/health`);
    expect(health.status).toBe(503);
    expect(await health.json()).toHaveProperty('error');
  });

  test(`${name} keeps the connection usable after every kind of answer`, async () => {
    const { manager } = await node({ maxBodyBytes: 2_000 });
    const url = await wire(manager);
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    cleanUp(() => agent.destroy());
    const send = (path: string, body: string, type = 'application/json'): Promise<number> =>
      new Promise((resolve, reject) => {
        const request = http.request(url + path, { method: 'POST', agent, headers: { 'content-type': type } });
        request.on('error', reject);
        request.on('response', (response) => {
          response.resume();
          response.on('end', () => resolve(response.statusCode ?? 0));
        });
        request.end(body);
      });
    const statuses = [
      await send('/sync', batch('a')),
      await send('/sync', batch('b'), 'text/plain'),
      await send('/nowhere', batch('c')),
      await send('/sync', '{'),
      await send('/health', batch('d')),
      await send('/sync', batch('e')),
    ];
    expect(statuses).toEqual([200, 415, 404, 400, 405, 200]);
  });
});

describe('mounted in a larger application', () => {
  test('Express: below a path, with routes of its own', async () => {
    const receiver = await node();
    const app = express();
    app.use('/replication', createListener(receiver.manager));
    app.use(express.json());
    app.post('/api/items', (request, response) => void response.json({ got: request.body }));
    const url = await serve(app);
    expect((await post(`${url}/replication`, batch('a'))).status).toBe(200);
    const own = await fetch(`${url}/api/items`, {
      method: 'POST',
      body: '{"name":"x"}',
      headers: { 'content-type': 'application/json' },
    });
    expect(await own.json()).toEqual({ got: { name: 'x' } });
    expect(itemIds(receiver)).toEqual(['a']);
  });

  test('Express: behind a body parser it says what is wrong instead of hanging up', async () => {
    const receiver = await node();
    const app = express();
    app.use(express.json());
    app.use(createListener(receiver.manager));
    const answer = await post(await serve(app), batch('a'));
    // 5xx: nothing is wrong with the batch, so the sender keeps it until the server is wired properly.
    expect(answer.status).toBeGreaterThanOrEqual(500);
    expect(await answer.text()).toContain('body parser');
    expect(itemIds(receiver)).toEqual([]);
  });

  test('Hono: behind a middleware that has read the body the batch is kept, not refused', async () => {
    const receiver = await node();
    const handle = createHandler(receiver.manager);
    const app = new Hono();
    app.use(async (context, next) => {
      await context.req.raw.json();
      await next();
    });
    app.post('/sync', (context) => handle(context.req.raw));
    const answer = await post(await serveFetch((request) => app.fetch(request)), batch('a'));
    expect(answer.status).toBeGreaterThanOrEqual(500);
    expect(await answer.text()).toContain('body parser');
  });

  test('by hand: a header that is missing may be null, as Headers.get gives it', async () => {
    const { manager, ...receiver } = await node();
    const nothing = { from: null, said: null, sendAgain: null, origins: null };
    expect(manager.receive(batch('a'), nothing).status).toBe(200);
    expect(itemIds({ manager, ...receiver })).toEqual(['a']);
    expect([manager.hello(null), manager.hello(undefined)]).toEqual([{}, {}]);
    expect((await manager.answer('/sync/compare', '{}', nothing)).status).toBe(400);
  });

  test('a wrong argument is an error at once, and not an answer of 404', async () => {
    const { manager } = await node();
    for (const create of [createHandler, createListener]) {
      expect(() => create(undefined as never)).toThrow(/what attach or createHub returned/);
      expect(() => create({} as never)).toThrow(/what attach or createHub returned/);
      expect(() => create(manager, { prefx: '/api' } as never)).toThrow('"prefx"; did you mean prefix?');
      expect(() => create(manager, { prefix: 'api' })).toThrow('must be a path such as /replication, not "api"');
    }
  });

  test('Hono: two routes beside its own', async () => {
    const receiver = await node();
    const handle = createHandler(receiver.manager);
    const app = new Hono();
    app.get('/', (context) => context.text('home'));
    app.post('/sync', (context) => handle(context.req.raw));
    app.get('/health', (context) => handle(context.req.raw));
    const url = await serveFetch((request) => app.fetch(request));
    expect(await (await fetch(url)).text()).toBe('home');
    expect((await post(url, batch('a'))).status).toBe(200);
    expect((await fetch(`${url}/health`)).status).toBe(200);
    expect(itemIds(receiver)).toEqual(['a']);
  });

  test("the specification's own wiring works too: parse, applyChanges, answer", async () => {
    const receiver = await node();
    const url = await serve((request, response) => {
      let text = '';
      request.on('data', (chunk) => {
        text += chunk;
      });
      request.on('end', () => {
        const body = JSON.parse(text);
        response.end(JSON.stringify({ applied: receiver.manager.applyChanges(body.changes), ack: body.batch_id }));
      });
    });
    const sender = await node({ peers: [url] });
    sender.db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    await sender.manager.flush();
    expect(itemIds(receiver)).toEqual(['a']);
    expect(rowsOf(sender.db, 'SELECT * FROM _changes')).toEqual([]);
  });

  test('a handler used without a server is a plain function of the request', async () => {
    const { manager } = await node();
    const handle = createHandler(manager);
    const answer = await handle(
      new Request('http://any.test/sync', {
        method: 'POST',
        body: batch('a'),
        headers: { 'content-type': 'application/json' },
      }),
    );
    expect(await answer.json()).toEqual({ applied: 1, ack: 7 });
  });

  test('a body that breaks off is an answer to nobody, not an exception for the framework to report', async () => {
    const receiver = await node();
    const text = new TextEncoder().encode(batch('a'));
    const body = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        controller.enqueue(text.slice(0, 20));
        controller.error(new Error('the client went away'));
      },
    });
    const answer = await createHandler(receiver.manager)(
      new Request('http://any.test/sync', {
        method: 'POST',
        body,
        headers: { 'content-type': 'application/json' },
        duplex: 'half',
      } as RequestInit),
    );
    expect(answer.status).toBe(400);
    expect(itemIds(receiver)).toEqual([]);
  });

  test('while the application holds a transaction open, a batch is put off with 503 and delivered later', async () => {
    const receiver = await node({ id: 'receiver' });
    const url = await serveManager(receiver.manager);
    receiver.db.exec("BEGIN; INSERT INTO items VALUES ('own', 'own', 1, 10, 1000)");
    const body = batch('a');
    expect((await post(url, body)).status).toBe(503);
    receiver.db.exec('ROLLBACK');
    expect((await post(url, body)).status).toBe(200);
    await until('the batch is in', () => itemIds(receiver).length > 0);
    expect(itemIds(receiver)).toEqual(['a']);
  });
});

describe('what goes wrong on this side is not the fault of the one who asks', () => {
  const failing = {
    maxBodyBytes: 1_000,
    health: () => ({ ok: true }),
    receive: (): never => {
      throw new Error('something of ours');
    },
  };
  const request = (body: BodyInit): Request =>
    new Request('http://node.test/sync', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
      ...({ duplex: 'half' } as object),
    });

  test('an exception is a 500 that says so', async () => {
    const answer = await createHandler(failing)(request('{}'));
    expect(answer.status).toBe(500);
    expect(await answer.json()).toEqual({ error: 'the request failed here: something of ours' });
  });

  test('a body that breaks off is a 400, as before', async () => {
    const broken = new ReadableStream({
      pull: (controller) => controller.error(new Error('gone')),
    });
    const answer = await createHandler(failing)(request(broken));
    expect(answer.status).toBe(400);
    expect(await answer.json()).toEqual({ error: 'the body broke off' });
  });
});
