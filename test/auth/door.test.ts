/** The door with keys: what real requests over HTTP are answered, by both kinds of server. */
import http from 'node:http';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { type AuthOptions, createKeyring } from '../../src/auth/index.ts';
import { UNSIGNED_MAX } from '../../src/auth/strangers.ts';
import { UNDER_WAY_MAX } from '../../src/auth/trust.ts';
import { createHandler, createListener } from '../../src/http/index.ts';
import { respond } from '../../src/http/respond.ts';
import type { Manager } from '../../src/index.ts';
import { node, rowsOf, serve, type TestNode } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import {
  answered,
  BODY,
  INTRODUCTION,
  keys,
  type Message,
  OTHER_SECRET,
  type Reply,
  request,
  SECRET,
} from './messages.ts';

const AUTH: AuthOptions = { keys: [{ id: 'k1', secret: SECRET }] };
const POST_HEADERS = { 'content-type': 'application/json', 'x-node-id': 'a' };

/** Requests are signed by the real time: that is what the node goes by. */
const signed = (given: Partial<Message> = {}, keyring = keys()): ReturnType<typeof request> =>
  request({ headers: POST_HEADERS, ...given }, { keyring, now: Date.now() });

interface Server extends TestNode {
  url: string;
  warnings: string[];
}

async function server(kind: 'listener' | 'handler', auth: AuthOptions = AUTH): Promise<Server> {
  const made = await node({ id: 'b', auth });
  const warnings: string[] = [];
  made.manager.on('warning', ({ code, message }) => warnings.push(`${code}: ${message}`));
  const url = await serve(kind === 'listener' ? createListener(made.manager) : webListener(made.manager));
  return { ...made, url, warnings };
}

/** The Web's kind of handler behind node:http, as an adapter would do it. */
function webListener(manager: Manager): http.RequestListener {
  const handler = createHandler(manager);
  return (incoming, outgoing) => {
    const body = new ReadableStream({
      async start(controller) {
        for await (const chunk of incoming) controller.enqueue(new Uint8Array(chunk as Buffer));
        controller.close();
      },
    });
    const hasBody = incoming.method !== 'GET' && incoming.method !== 'HEAD';
    const asked = new Request(`http://b.test${incoming.url}`, {
      method: incoming.method ?? 'GET',
      headers: Object.entries(incoming.headers).map(([name, value]): [string, string] => [name, String(value)]),
      ...(hasBody && { body, duplex: 'half' }),
    } as RequestInit);
    void handler(asked).then(async (answer) => {
      outgoing
        .writeHead(answer.status, Object.fromEntries(answer.headers))
        .end(Buffer.from(await answer.arrayBuffer()));
    });
  };
}

function ask(url: string, { method, path, headers, body }: Message, pieces = 1): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const outgoing = http.request(url + path, { method, headers, agent: false }, (incoming) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk) => chunks.push(chunk));
      incoming.on('end', () => {
        const names = Object.entries(incoming.headers).map(([name, value]) => [name, String(value)]);
        resolve({ status: incoming.statusCode ?? 0, headers: Object.fromEntries(names), body: Buffer.concat(chunks) });
      });
    });
    outgoing.on('error', reject);
    const size = Math.ceil(body.byteLength / pieces);
    for (let at = 0; at < body.byteLength; at += size) outgoing.write(body.subarray(at, at + size));
    outgoing.end();
  });
}

const rows = ({ db }: TestNode): number => rowsOf(db, 'SELECT id FROM items').length;
const json = ({ body }: Reply): unknown => JSON.parse(Buffer.from(body).toString());

describe.each(['listener', 'handler'] as const)('a %s', (kind) => {
  test('takes a signed batch, in one piece or in many, plain or packed, and signs the answer', async () => {
    const b = await server(kind);
    for (const pieces of [1, 7]) {
      const { message, sent } = signed();
      const answer = await ask(b.url, message, pieces);
      expect(json(answer)).toEqual({ applied: 1, ack: 3 });
      expect(answered(sent, answer)).toEqual({ kind: 'verified', nodeId: 'b' });
      expect(answer.headers['cache-control']).toBe('no-store, no-transform');
    }
    const packed = signed({ headers: { ...POST_HEADERS, 'content-encoding': 'gzip' }, body: gzipSync(BODY) });
    const answer = await ask(b.url, packed.message);
    expect(answered(packed.sent, answer).kind).toBe('verified');
    expect(json(answer)).toEqual({ applied: 1, ack: 3 });
    expect(rows(b)).toBe(1);
  });

  test('refuses a batch without a signature, with the same words as one by a wrong key', async () => {
    const b = await server(kind);
    const plain = { method: 'POST', path: '/sync', headers: POST_HEADERS, body: Buffer.from(BODY) };
    const wrong = signed({}, createKeyring({ keys: [{ id: 'k1', secret: OTHER_SECRET }] })).message;
    const unknown = signed({}, createKeyring({ keys: [{ id: 'nobody', secret: OTHER_SECRET }] })).message;
    const broken = { ...plain, headers: { ...POST_HEADERS, 'signature-input': 'rowcast=(', signature: 'rowcast=::' } };
    const answers = [];
    for (const message of [plain, wrong, unknown, broken]) answers.push(await ask(b.url, message));
    for (const { status, body, headers } of answers) {
      expect([status, Buffer.from(body).toString()]).toEqual([401, '{"error":"not authenticated"}']);
      expect(headers['www-authenticate']).toBe('Rowcast-Signature');
      expect(headers.signature).toBeUndefined();
      expect(headers['x-node-id']).toBeUndefined();
    }
    expect(rows(b)).toBe(0);
    // Once for an address, and with nothing of the secret or of the signature.
    expect(b.warnings).toHaveLength(1);
    expect(b.warnings[0]).toMatch(/not-authenticated: a request from .* was not let in: it has no signature/);
  });

  test('does not apply what was changed on the way, and says so to the one who has the key', async () => {
    const b = await server(kind);
    const { message, sent } = signed();
    const body = Buffer.from(BODY.replace('first', 'worst'));
    const answer = await ask(b.url, { ...message, body });
    expect([answer.status, json(answer)]).toEqual([401, { error: 'digest' }]);
    expect(answered(sent, answer).kind).toBe('verified');
    expect(rows(b)).toBe(0);
  });

  test('takes a request once', async () => {
    const b = await server(kind);
    const { message, sent } = signed();
    expect((await ask(b.url, message)).status).toBe(200);
    const again = await ask(b.url, message);
    expect(again.status).toBe(425);
    expect(answered(sent, again).kind).toBe('verified');
  });

  test('signs whatever it answers to whoever has the key', async () => {
    const b = await server(kind);
    const cases: [number, Partial<Message>][] = [
      [400, { body: Buffer.from('nonsense') }],
      [415, { headers: { ...POST_HEADERS, 'content-type': 'text/plain' } }],
      [415, { headers: { ...POST_HEADERS, 'content-encoding': 'br' } }],
      [405, { method: 'PUT' }],
      [400, { path: '/sync/compare', body: Buffer.from('{"want":"nothing"}') }],
      [200, { path: '/sync/compare', body: Buffer.from('{"want":"tables"}') }],
      [200, { path: '/sync/fetch', body: Buffer.from('{"table":"items","ids":["x"]}') }],
      [200, { path: '/health', method: 'GET', headers: { 'x-node-id': 'a' }, body: new Uint8Array() }],
      [200, { path: '/health', method: 'HEAD', headers: { 'x-node-id': 'a' }, body: new Uint8Array() }],
    ];
    for (const [status, given] of cases) {
      const { message, sent } = signed(given);
      const answer = await ask(b.url, message);
      expect([answer.status, answered(sent, answer)]).toEqual([status, { kind: 'verified', nodeId: 'b' }]);
    }
  });

  test('tells a stranger of its health whether it is well, and does not listen to who it says it is', async () => {
    const b = await server(kind);
    const before = rowsOf(b.db, 'SELECT * FROM _nodes');
    const headers = { 'x-rowcast': INTRODUCTION };
    const answer = await ask(b.url, { method: 'GET', path: '/health', headers, body: new Uint8Array() });
    expect([answer.status, json(answer)]).toEqual([200, { ok: true }]);
    expect(answer.headers['x-rowcast']).toBeUndefined();
    expect(rowsOf(b.db, 'SELECT * FROM _nodes')).toEqual(before);
    const hello = signed({
      path: '/health',
      method: 'GET',
      headers: { ...headers, 'x-node-id': 'a' },
      body: new Uint8Array(),
    });
    const full = await ask(b.url, hello.message);
    expect(json(full)).toMatchObject({ ok: true, node_id: 'b', item_count: 0 });
    expect(full.headers['x-rowcast']).toContain('id=b');
    expect(answered(hello.sent, full).kind).toBe('verified');
  });

  test('while it accepts, takes unsigned batches too, and still no wrong ones', async () => {
    const b = await server(kind, { ...AUTH, mode: 'accept' });
    const plain = { method: 'POST', path: '/sync', headers: POST_HEADERS, body: Buffer.from(BODY) };
    expect((await ask(b.url, plain)).status).toBe(200);
    const wrong = signed({}, createKeyring({ keys: [{ id: 'k1', secret: OTHER_SECRET }] })).message;
    expect((await ask(b.url, wrong)).status).toBe(401);
  });
});

test('a body is not read before it is known who sends it', async () => {
  const b = await server('listener');
  const answer = await new Promise<Reply>((resolve, reject) => {
    const headers = { ...POST_HEADERS, 'content-length': '50000000' };
    // Not a byte of the body is ever sent: an answer can only come from the headers.
    const outgoing = http.request(`${b.url}/sync`, { method: 'POST', headers, agent: false }, (incoming) => {
      incoming.resume();
      resolve({ status: incoming.statusCode ?? 0, headers: {}, body: new Uint8Array() });
      outgoing.destroy();
    });
    outgoing.on('error', reject);
    outgoing.flushHeaders();
  });
  expect(answer.status).toBe(401);
});

test('one sender has so many requests under way and no more', async () => {
  const held: (() => void)[] = [];
  const replica = {
    id: 'b',
    maxBodyBytes: 1_000_000,
    health: () => ({ ok: true }),
    receive: () =>
      new Promise<never>((resolve) => {
        held.push(() => resolve({ status: 200, body: { applied: 0, ack: 3 }, headers: {} } as never));
      }),
  };
  const url = await serve(createListener(replica, { auth: AUTH }));
  const first = Array.from({ length: UNDER_WAY_MAX }, () => ask(url, signed().message));
  while (held.length < UNDER_WAY_MAX) await new Promise((resolve) => setTimeout(resolve, 5));
  const { message, sent } = signed();
  const refused = await ask(url, message);
  expect(refused.status).toBe(429);
  expect(answered(sent, refused).kind).toBe('verified');
  for (const release of held) release();
  for (const answer of await Promise.all(first)) expect(answer.status).toBe(200);
  const later = ask(url, signed().message);
  while (held.length < UNDER_WAY_MAX + 1) await new Promise((resolve) => setTimeout(resolve, 5));
  held.at(-1)?.();
  expect((await later).status).toBe(200);
});

test('a replica without an id cannot sign', () => {
  const replica = { maxBodyBytes: 1, health: () => ({ ok: true }), receive: () => ({}) as never };
  expect(() => createListener(replica, { auth: AUTH })).toThrow(/needs a replica that has an id/);
});

describe('strangers', () => {
  const incoming = (headers: Record<string, string> = {}, method = 'POST', path = '/sync') => ({
    method,
    path,
    header: (name: string) => headers[name],
    read: async () => new Uint8Array(),
    hold: () => true,
  });

  test('are refused a hundred times a second, and those beyond wait for their turn; who has a key does not', async () => {
    const clock = new VirtualClock();
    const { manager } = await node({ id: 'b', auth: AUTH, clock });
    let refused = 0;
    for (let i = 0; i < 300; i++) {
      const wrong = i % 2 === 0 ? {} : { 'signature-input': 'rowcast=()', signature: 'rowcast=:AAAA:' };
      void respond(manager, {}, incoming(wrong)).then(({ status }) => {
        expect(status).toBe(401);
        refused += 1;
      });
    }
    await clock.advance(0);
    expect(refused).toBe(100);
    const { message } = request({ headers: POST_HEADERS }, { now: clock.now() });
    const read = async (_: number, tap?: (chunk: Uint8Array) => void): Promise<Uint8Array> => {
      tap?.(message.body);
      return message.body;
    };
    expect((await respond(manager, {}, { ...incoming(message.headers), read })).status).toBe(200);
    await clock.advance(1_000);
    expect(refused).toBe(200);
    await clock.advance(1_000);
    expect(refused).toBe(300);
  });

  test('are told of /health what one of them was told within a second', async () => {
    const clock = new VirtualClock();
    const { manager } = await node({ id: 'b', auth: AUTH, clock });
    let asked = 0;
    const counted = Object.assign(Object.create(manager), {
      id: 'b',
      maxBodyBytes: 1_000,
      trust: manager.trust,
      health: () => {
        asked += 1;
        return { ok: asked === 1 };
      },
    });
    const ask = async (): Promise<number> => (await respond(counted, {}, incoming({}, 'GET', '/health'))).status;
    expect([await ask(), await ask(), await ask(), asked]).toEqual([200, 200, 200, 1]);
    await clock.advance(1_000);
    expect([await ask(), asked]).toEqual([503, 2]);
  });

  test('are not told by /readyz what is wrong', async () => {
    const { manager } = await node({ id: 'b', peers: ['http://127.0.0.1:9'], auth: AUTH });
    const { status, body } = await respond(manager, {}, { ...incoming({}, 'GET', '/readyz'), query: 'peers=1' });
    expect([status, body]).toEqual([503, '{"ready":false}']);
  });

  test('have eight requests under way at a time, while unsigned ones are taken', async () => {
    const { manager } = await node({ id: 'b', auth: { ...AUTH, mode: 'accept' } });
    const never = new Promise<Uint8Array>(() => {});
    const slow = { ...incoming({ 'content-type': 'application/json' }), read: () => never };
    for (let i = 0; i < UNSIGNED_MAX; i++) void respond(manager, {}, slow);
    const { status, body } = await respond(manager, {}, slow);
    expect([status, body]).toEqual([503, '{"error":"too many unsigned requests at a time: try again"}']);
    const { message } = signed();
    const read = async (_: number, tap?: (chunk: Uint8Array) => void): Promise<Uint8Array> => {
      tap?.(message.body);
      return message.body;
    };
    expect((await respond(manager, {}, { ...incoming(message.headers), read })).status).toBe(200);
  });
});
