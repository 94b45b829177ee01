/** What strangers may take: memory by bodies, by what they unpack to, and by what they answer; and a browser, nothing. */
import http from 'node:http';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { toListener } from '../../src/http/bridge.ts';
import { Budget } from '../../src/http/budget.ts';
import { createListener } from '../../src/http/index.ts';
import { respond } from '../../src/http/respond.ts';
import { unpackedMax } from '../../src/wire/gzip.ts';
import { cleanUp, node, rowsOf, serve, until } from '../support/nodes.ts';

const row = (id: string, name = id) => ({ id, name, value: 1, created_at: 10, updated_at: 1000 });
const batch = (...rows: object[]): string =>
  JSON.stringify({
    batch_id: 7,
    changes: rows.map((one) => ({ op: 'INSERT', table: 'items', row: one, old_id: null })),
  });
const JSON_TYPE = { 'content-type': 'application/json' };

function post(url: string, body: string | Uint8Array, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${url}/sync`, { method: 'POST', body: body as BodyInit, headers: { ...JSON_TYPE, ...headers } });
}

/** A request whose body has begun and does not end. */
function unfinished(url: string, body: string): http.ClientRequest {
  const request = http.request(`${url}/sync`, { method: 'POST', headers: JSON_TYPE });
  request.on('error', () => {});
  request.write(body);
  cleanUp(() => request.destroy());
  return request;
}

describe('all bodies together', () => {
  test('are bounded: what does not fit is put off with 503, and taken when there is room', async () => {
    const { db, manager } = await node();
    const budget = new Budget(100_000);
    const url = await serve(toListener((incoming) => respond(manager, {}, incoming), budget));
    const first = unfinished(url, ' '.repeat(90_000));
    await until('the first body is in memory', () => {
      const probe = budget.open();
      const fits = probe.take(20_000);
      probe.release();
      return !fits;
    });
    const putOff = await post(url, batch(row('a', 'x'.repeat(20_000))));
    expect(putOff.status).toBe(503);
    expect(putOff.headers.get('retry-after')).toBe('1');
    expect(await putOff.json()).toEqual({ error: 'too many bodies at a time: try again' });
    expect(rowsOf(db, 'SELECT id FROM items')).toEqual([]);
    first.destroy();
    await until(
      'there is room again',
      async () => (await post(url, batch(row('a', 'x'.repeat(20_000))))).status === 200,
    );
    expect(rowsOf(db, 'SELECT id FROM items')).toEqual([{ id: 'a' }]);
  });

  test('count as what they unpack to, too', async () => {
    const { manager } = await node();
    const url = await serve(toListener((incoming) => respond(manager, {}, incoming), new Budget(100_000)));
    unfinished(url, ' '.repeat(50_000));
    const packed = gzipSync(batch(row('a', 'x'.repeat(80_000))));
    await until('it is put off', async () => (await post(url, packed, { 'content-encoding': 'gzip' })).status === 503);
  });

  test('one alone is always taken, whatever its limit', () => {
    const budget = new Budget(10);
    const alone = budget.open();
    expect(alone.take(8)).toBe(true);
    expect(alone.take(8)).toBe(true);
    expect(budget.open().take(1)).toBe(false);
    alone.release();
    expect(budget.open().take(1)).toBe(true);
  });
});

describe('a small body that unpacks to a large one', () => {
  test('is refused beyond two hundred times its size', async () => {
    const { manager } = await node();
    const url = await serve(createListener(manager));
    const bomb = gzipSync(' '.repeat(32 * 1024 * 1024));
    const refused = await post(url, bomb, { 'content-encoding': 'gzip' });
    expect(refused.status).toBe(413);
    expect(await refused.json()).toEqual({ error: `the body is larger than ${bomb.byteLength * 200} bytes` });
  });

  test('is taken below a mebibyte, whatever its ratio', async () => {
    const { db, manager } = await node();
    const url = await serve(createListener(manager));
    const packed = gzipSync(batch(row('a', 'x'.repeat(1_000_000))));
    expect(1_000_000 / packed.byteLength).toBeGreaterThan(200);
    expect((await post(url, packed, { 'content-encoding': 'gzip' })).status).toBe(200);
    expect(rowsOf(db, 'SELECT length(name) AS n FROM items')).toEqual([{ n: 1_000_000 }]);
    expect(unpackedMax(10_000_000, 64)).toBe(64);
  });
});

describe('a web page', () => {
  test.each([{ origin: 'http://evil.example' }, { origin: 'null' }, { 'sec-fetch-site': 'same-origin' }])(
    'may not write: %j',
    async (headers) => {
      const { db, manager } = await node();
      const url = await serve(createListener(manager));
      // Not by fetch, which does not let these headers be set.
      const status = await new Promise((resolve, reject) => {
        const request = http.request(`${url}/sync`, { method: 'POST', headers: { ...JSON_TYPE, ...headers } });
        request.on('response', (response) => resolve(response.resume().statusCode));
        request.on('error', reject);
        request.end(batch(row('a')));
      });
      expect(status).toBe(403);
      expect(rowsOf(db, 'SELECT id FROM items')).toEqual([]);
    },
  );
});

describe('an answer', () => {
  test('without an end is not read further than an answer can be long, and nothing is taken for delivered', async () => {
    let sent = 0;
    let closed = 0;
    const url = await serve((request, response) => {
      request.resume();
      response.writeHead(200, JSON_TYPE);
      const chunk = ' '.repeat(64 * 1024);
      const pour = (): void => {
        while (!response.destroyed && response.write(chunk)) sent += chunk.length;
      };
      response.on('drain', pour);
      response.on('close', () => {
        closed += 1;
      });
      pour();
    });
    const { db, manager } = await node({ peers: [url] });
    db.exec("INSERT INTO items (id, updated_at) VALUES ('a', 1)");
    await manager.flush();
    await until('it hung up', () => closed > 0);
    expect(sent / closed).toBeLessThan(16 * 1024 * 1024);
    expect(manager.health().peer_states[0]?.last_error).toMatch(/^the answer is longer than the 66536 bytes/);
    expect(rowsOf(db, 'SELECT row_id FROM _changes')).toEqual([{ row_id: 'a' }]);
  });

  test('of a given fetch is held to the same', async () => {
    const endless = async () => ({
      status: 200,
      text: () => Promise.resolve(`{"ack":1,"applied":1}${' '.repeat(100_000)}`),
    });
    const { db, manager } = await node({ peers: ['http://127.0.0.1:1'], fetch: endless });
    db.exec("INSERT INTO items (id, updated_at) VALUES ('a', 1)");
    await manager.flush();
    expect(rowsOf(db, 'SELECT row_id FROM _changes')).toEqual([{ row_id: 'a' }]);
  });
});
