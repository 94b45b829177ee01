import { describe, expect, test } from 'vitest';
import { judge } from '../../src/send/verdict.ts';
import { type BadServer, badHttp, badSocket, badStatus, nobody } from '../support/bad-servers.ts';
import { shared } from '../support/draws.ts';
import { exactRows, node, serve, serveManager, type TestNode, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const HTML = '<!doctype html><title>Welcome</title><h1>It works!</h1>';

interface Sender extends TestNode {
  url: string;
  clock: VirtualClock;
  events: string[];
}

/** A sender whose pauses between attempts take no time; the limit on a request's time stays where it is. */
async function senderTo(url: string, options: { requestTimeoutMs?: number } = {}): Promise<Sender> {
  const clock = new VirtualClock((ms) => ms <= 800);
  const sender = await node({ id: 'sender', peers: [url], clock, ...options });
  const events: string[] = [];
  sender.manager.on('peer-down', () => events.push('peer-down'));
  sender.manager.on('peer-up', () => events.push('peer-up'));
  sender.manager.on('dead-letter', () => events.push('dead-letter'));
  return { ...sender, url, clock, events };
}

function write(sender: TestNode, ...ids: string[]): void {
  for (const id of ids) sender.db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(id, `name of ${id}`);
}

const count = (one: TestNode, table: string): number => Number(one.all(`SELECT count(*) AS n FROM ${table}`)[0]?.n);

describe('an answer that says nothing about the changes is a connection error: nothing is lost, nothing set aside', () => {
  /** What a runtime makes of a connection, and what is said once there is an answer. */
  const torn: [string, () => Promise<BadServer>][] = [
    ['nobody listens', nobody],
    ['the connection is closed at once', () => badSocket((socket) => socket.destroy())],
    ['the connection is reset', () => badSocket((socket) => socket.resetAndDestroy())],
    ['half a status line', () => badSocket((socket) => socket.end('HTTP/1.1 20'))],
    ['no HTTP at all', () => badSocket((socket) => socket.end('SSH-2.0-OpenSSH_9.2\r\n'))],
    ['headers that never end', () => badSocket((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-type: appl'))],
    [
      'a torn body, though what is there would be an acknowledgement',
      () =>
        badHttp(({ body }, response) => {
          const ack = JSON.stringify({ applied: 3, ack: JSON.parse(body).batch_id });
          response.writeHead(200, { 'content-length': String(ack.length + 50) });
          response.write(ack, () => response.destroy());
        }),
    ],
    [
      'a torn chunked body',
      () =>
        badSocket((socket) => {
          socket.end('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{"ac\r\n');
        }),
    ],
  ];
  const said: [string, () => Promise<BadServer>][] = [
    ...[401, 403, 404, 408, 425, 429, 500, 502, 503, 504, 599].map((status): [string, () => Promise<BadServer>] => [
      `HTTP ${status}`,
      () => badStatus(status, HTML, { 'content-type': 'text/html' }),
    ]),
    ['HTTP 300', () => badStatus(300)],
    ...[400, 405, 409, 415, 422].map((status): [string, () => Promise<BadServer>] => [
      `HTTP ${status} that is not JSON`,
      () => badStatus(status, HTML, { 'content-type': 'text/html' }),
    ]),
    ['HTTP 422 with a JSON array', () => badStatus(422, '["no"]')],
    ['200 with nonsense', () => badStatus(200, '}{')],
    ['200 with a web page', () => badStatus(200, HTML)],
    ['200 with nothing', () => badStatus(200)],
    ['200 with JSON null', () => badStatus(200, 'null')],
    ['200 with a JSON array', () => badStatus(200, '[1]')],
    ['200 with a JSON string', () => badStatus(200, '"ok"')],
    ['200 without ack', () => badStatus(200, '{"applied":1}')],
    ['200 with ack null', () => badStatus(200, '{"applied":1,"ack":null}')],
    ['200 with ack true', () => badStatus(200, '{"applied":1,"ack":true}')],
    ['204', () => badStatus(204)],
    ['HTTP 304', () => badStatus(304)],
    [
      'HTTP 503 with the acknowledgement in it',
      () =>
        badHttp(({ body }, response) => {
          response.writeHead(503);
          response.end(JSON.stringify({ applied: 3, ack: JSON.parse(body).batch_id }));
        }),
    ],
  ];
  test.each([...torn, ...shared(said)])('%s', async (_name, start) => {
    const bad = await start();
    const receiver = await node({ id: 'receiver' });
    const sender = await senderTo(bad.url);
    write(sender, 'a', 'b', 'c');
    expect(await sender.manager.flush()).toEqual({ delivered: [], unreachable: [sender.url] });
    // A second round, so that nothing hinges on the first.
    expect(await sender.manager.flush()).toEqual({ delivered: [], unreachable: [sender.url] });
    expect(count(sender, '_changes')).toBe(3);
    expect(sender.manager.health()).toMatchObject({ ok: true, dead_letter: 0, pending_changes: 3 });
    expect(sender.manager.health().peer_states[0]).toMatchObject({ state: 'down', last_acked: 0 });
    expect(sender.manager.health().peer_states[0]?.last_error).toMatch(/./);
    expect(sender.events).toEqual(['peer-down']);
    if (bad.answered() > 0) expect(bad.answered()).toBeGreaterThanOrEqual(10);

    await bad.heal(receiver.manager);
    write(sender, 'd');
    await until('everything arrived', () => count(receiver, 'items') === 4);
    expect(await sender.manager.flush()).toEqual({ delivered: [sender.url], unreachable: [] });
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
    expect(count(sender, '_changes')).toBe(0);
    expect(sender.manager.deadLetters.list()).toEqual([]);
    expect(sender.events).toEqual(['peer-down', 'peer-up']);
    expect(sender.manager.health().peer_states[0]).toMatchObject({ state: 'up', last_error: null });
  });

  test('a peer that accepts the request and never answers', async () => {
    const bad = await badSocket(() => {});
    const receiver = await node({ id: 'receiver' });
    const sender = await senderTo(bad.url, { requestTimeoutMs: 5_000 });
    write(sender, 'a', 'b', 'c');
    // The limit passes only once the request has arrived.
    const flushed = sender.manager.flush();
    for (let attempt = 1; attempt <= 5; attempt++) {
      await until(`request ${attempt} hangs`, () => bad.answered() >= attempt);
      await sender.clock.advance(5_000);
    }
    expect(await flushed).toEqual({ delivered: [], unreachable: [sender.url] });
    expect(sender.manager.health().peer_states[0]?.last_error).toBe('no answer within 5000 ms');
    expect(count(sender, '_changes')).toBe(3);
    await bad.heal(receiver.manager);
    await until('everything arrived', () => count(receiver, 'items') === 3);
    await sender.manager.flush();
    expect(count(sender, '_changes')).toBe(0);
    expect(sender.manager.deadLetters.list()).toEqual([]);
    expect(sender.events).toEqual(['peer-down', 'peer-up']);
  });

  test('a peer that sends its headers and then hangs in the body', async () => {
    const bad = await badSocket((socket) => void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"ack":'));
    const receiver = await node({ id: 'receiver' });
    const sender = await senderTo(bad.url, { requestTimeoutMs: 5_000 });
    write(sender, 'a');
    const flushed = sender.manager.flush();
    for (let attempt = 1; attempt <= 5; attempt++) {
      await until(`request ${attempt} hangs`, () => bad.answered() >= attempt);
      await sender.clock.advance(5_000);
    }
    expect(await flushed).toEqual({ delivered: [], unreachable: [sender.url] });
    await bad.heal(receiver.manager);
    await until('it arrived', () => count(receiver, 'items') === 1);
    expect(sender.manager.deadLetters.list()).toEqual([]);
  });

  test.each([301, 302, 303, 307, 308])('HTTP %i is not followed', async (status) => {
    const receiver = await node({ id: 'receiver' });
    const elsewhere = await node({ id: 'elsewhere' });
    const target = await serveManager(elsewhere.manager);
    const bad = await badStatus(status, '', { location: `${target}/sync` });
    const sender = await senderTo(bad.url);
    write(sender, 'a', 'b');
    expect(await sender.manager.flush()).toEqual({ delivered: [], unreachable: [sender.url] });
    expect(sender.manager.health().peer_states[0]?.last_error).toContain(String(status));
    expect(count(elsewhere, 'items')).toBe(0);
    expect(count(sender, '_changes')).toBe(2);
    await bad.heal(receiver.manager);
    await until('everything arrived', () => count(receiver, 'items') === 2);
    expect(count(elsewhere, 'items')).toBe(0);
    expect(sender.manager.deadLetters.list()).toEqual([]);
  });
});

describe("a peer's own word that it will not have the changes is a refusal", () => {
  const other = (difference: number) => () =>
    badHttp(({ body }, response) => {
      response.end(JSON.stringify({ applied: 1, ack: JSON.parse(body).batch_id + difference }));
    });
  const rows: [string, () => Promise<BadServer>, RegExp][] = [
    ['200 with a greater ack', other(1), /ack 2 instead of 1/],
    ['200 with a smaller ack', other(-1), /ack 0 instead of 1/],
    ['400', () => badStatus(400, '{"error":"batch_id must be a 64-bit integer"}'), /HTTP 400.*64-bit/],
    ['405', () => badStatus(405, '{"error":"use POST"}'), /HTTP 405/],
    ['409', () => badStatus(409, '{"detail":"no"}'), /HTTP 409/],
    ['415', () => badStatus(415, '{}'), /HTTP 415/],
    ['422', () => badStatus(422, '{"error":"no"}'), /HTTP 422/],
  ];
  test.each(rows)('%s: five attempts, then a letter, which can be retried', async (_name, start, reason) => {
    const bad = await start();
    const receiver = await node({ id: 'receiver' });
    const sender = await senderTo(bad.url);
    write(sender, 'a');
    await until('it was set aside', () => sender.manager.deadLetters.list().length === 1);
    await sender.manager.flush();
    expect(bad.answered()).toBe(5);
    expect(count(sender, '_changes')).toBe(0);
    expect(count(sender, 'items')).toBe(1);
    const [letter] = sender.manager.deadLetters.list();
    expect(letter).toMatchObject({ direction: 'out', op: 'INSERT', table: 'items', rowId: 'a', peer: sender.url });
    expect(letter?.reason).toMatch(reason);
    expect(sender.events).toEqual(['dead-letter']);

    await bad.heal(receiver.manager);
    expect(sender.manager.deadLetters.retry(letter?.id as number)).toEqual({ outcome: 'queued' });
    await until('it arrived', () => count(receiver, 'items') === 1);
    await sender.manager.flush();
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
    expect(sender.manager.deadLetters.list()).toEqual([]);
  });

  test.each(rows)('%s four times and then the acknowledgement: delivered, no letter', async (_name, start) => {
    const bad = await start();
    const receiver = await node({ id: 'receiver' });
    const sender = await senderTo(bad.url);
    const healing = sender.clock.skip;
    // The fourth pause lasts until the peer is well again.
    sender.clock.skip = (ms) => ms <= 200;
    write(sender, 'a');
    await until('four refusals', () => bad.answered() === 4 && sender.clock.requested.at(-1) === 400);
    await bad.heal(receiver.manager);
    sender.clock.skip = healing;
    await sender.clock.advance(400);
    await until('it arrived', () => count(receiver, 'items') === 1);
    await sender.manager.flush();
    expect(sender.manager.deadLetters.list()).toEqual([]);
    expect(sender.events).toEqual(['peer-up']);
  });
});

describe('acknowledged', () => {
  const rows: [string, number, (batchId: number) => string][] = [
    ['200 with the number', 200, (id) => `{"applied":2,"ack":${id}}`],
    ['200 with a decimal string', 200, (id) => `{"applied":2,"ack":"${id}"}`],
    ['200 with further fields', 200, (id) => `{"ack":${id},"rejected":[],"node":{"x":1}}`],
    ['202', 202, (id) => `{"applied":2,"ack":${id}}`],
    ['201 without applied', 201, (id) => `\n {"ack":${id}}\n`],
  ];
  test.each(rows)('%s', async (_name, status, body) => {
    const bad = await badHttp((request, response) => {
      response.writeHead(status);
      response.end(body(JSON.parse(request.body).batch_id));
    });
    const sender = await senderTo(bad.url);
    write(sender, 'a', 'b');
    expect(await sender.manager.flush()).toEqual({ delivered: [sender.url], unreachable: [] });
    expect(bad.answered()).toBe(1);
    expect(count(sender, '_changes')).toBe(0);
    expect(sender.manager.deadLetters.list()).toEqual([]);
  });
});

describe('too large', () => {
  test('413 halves the batch until it fits; nobody waits and nothing is set aside', { tags: 'long' }, async () => {
    const receiver = await node({ id: 'receiver' });
    const sizes: number[] = [];
    const bad = await badHttp(({ body }, response) => {
      const { changes } = JSON.parse(body) as { changes: unknown[] };
      sizes.push(changes.length);
      const result = changes.length > 10 ? undefined : receiver.manager.receive(body);
      response.writeHead(result?.status ?? 413);
      response.end(JSON.stringify(result?.body ?? { error: 'too large' }));
    });
    const sender = await senderTo(bad.url);
    write(sender, ...Array.from({ length: 100 }, (_, i) => `row-${i}`));
    expect(await sender.manager.flush()).toEqual({ delivered: [sender.url], unreachable: [] });
    expect(sizes.slice(0, 5)).toEqual([100, 50, 25, 12, 6]);
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
    expect(count(sender, '_changes')).toBe(0);
    expect(sender.manager.deadLetters.list()).toEqual([]);
    expect(sender.clock.requested).not.toContain(100);
  });

  test('a single change that is too large ends as a letter after five attempts, and the others arrive', async () => {
    const receiver = await node({ id: 'receiver' });
    const alone: string[] = [];
    const bad = await badHttp(({ body }, response) => {
      const { changes } = JSON.parse(body) as { changes: { row: { id: string } }[] };
      const fits = !changes.some((change) => change.row.id === 'big');
      if (!fits && changes.length === 1) alone.push(body);
      const result = fits ? receiver.manager.receive(body) : undefined;
      response.writeHead(result?.status ?? 413);
      response.end(JSON.stringify(result?.body ?? { error: 'too large' }));
    });
    const sender = await senderTo(bad.url);
    write(sender, 'a', 'b', 'big', 'c', 'd');
    await sender.manager.flush();
    await until('the others arrived', () => count(receiver, 'items') === 4);
    expect(alone.length).toBe(5);
    expect(sender.manager.deadLetters.list()).toMatchObject([{ rowId: 'big', peer: sender.url }]);
    expect(sender.manager.deadLetters.list()[0]?.reason).toContain('413');
    expect(count(sender, '_changes')).toBe(0);
  });

  test('a peer that says 413 without reading the body is understood all the same', async () => {
    const receiver = await node({ id: 'receiver', maxBodyBytes: 1024 * 1024 });
    const { createListener } = await import('../../src/http/index.ts');
    const url = await serve(createListener(receiver.manager));
    const sender = await senderTo(url);
    const insert = sender.db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)');
    for (let i = 0; i < 30; i++) insert.run(`row-${i}`, 'x'.repeat(100_000));
    expect(await sender.manager.flush()).toEqual({ delivered: [url], unreachable: [] });
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
    expect(sender.manager.deadLetters.list()).toEqual([]);
  });
});

test('connection errors do not count as refusals: four of them and one refusal set nothing aside', async () => {
  const receiver = await node({ id: 'receiver' });
  const script = [503, 503, 503, 503, 400];
  const bad = await badHttp(({ body }, response) => {
    const status = script.shift();
    const result = status === undefined ? receiver.manager.receive(body) : { status, body: { error: 'no' } };
    response.writeHead(result.status);
    response.end(JSON.stringify(result.body));
  });
  const sender = await senderTo(bad.url);
  write(sender, 'a');
  await until('it is settled', () => count(receiver, 'items') + sender.manager.deadLetters.list().length > 0);
  expect(sender.manager.deadLetters.list()).toEqual([]);
  expect(count(receiver, 'items')).toBe(1);
});

test('refusals with a connection error between them are still five before a letter is written', async () => {
  const script = [400, 400, 503, 400, 400];
  const receiver = await node({ id: 'receiver' });
  const bad = await badHttp(({ body }, response) => {
    const status = script.shift();
    const result = status === undefined ? receiver.manager.receive(body) : { status, body: { error: 'no' } };
    response.writeHead(result.status);
    response.end(JSON.stringify(result.body));
  });
  const sender = await senderTo(bad.url);
  write(sender, 'a');
  await until('it is settled', () => count(receiver, 'items') + sender.manager.deadLetters.list().length > 0);
  expect(sender.manager.deadLetters.list()).toEqual([]);
});

test('every status code has exactly one meaning', () => {
  const ack = '{"applied":1,"ack":7}';
  const unreachable = new Set([401, 403, 404, 408, 425, 429]);
  for (let status = 100; status <= 599; status++) {
    const expected =
      status >= 200 && status < 300
        ? 'acked'
        : status === 413
          ? 'too-large'
          : status < 400 || status >= 500 || unreachable.has(status)
            ? 'unreachable'
            : 'refused';
    expect([status, judge({ status, body: ack }, 7).kind]).toEqual([status, expected]);
    const without = expected === 'acked' ? 'unreachable' : expected;
    expect([status, judge({ status, body: '{}' }, 7).kind]).toEqual([status, without]);
    const other = expected === 'acked' ? 'refused' : expected;
    expect([status, judge({ status, body: '{"ack":8}' }, 7).kind]).toEqual([status, other]);
    const page = expected === 'too-large' ? expected : 'unreachable';
    for (const body of [HTML, '', '[7]', '"7"', '7', 'null', 'true']) {
      expect([status, body, judge({ status, body }, 7).kind]).toEqual([status, body, page]);
    }
  }
});

test.each([
  ['7', 'acked'],
  ['"7"', 'acked'],
  ['7.0', 'acked'],
  ['8', 'refused'],
  ['-7', 'refused'],
  ['"8"', 'refused'],
  ['"07"', 'refused'],
  ['"18446744073709551615"', 'refused'],
  ['"184467440737095516150"', 'unreachable'],
  ['7.5', 'unreachable'],
  ['"7.0"', 'unreachable'],
  ['" 7"', 'unreachable'],
  ['""', 'unreachable'],
  ['[7]', 'unreachable'],
  ['{"ack":7}', 'unreachable'],
])('an ack of %s for batch 7 is %s', (ack, kind) => {
  expect(judge({ status: 200, body: `{"ack":${ack}}` }, 7).kind).toBe(kind);
});

test('the reason keeps the beginning of what the peer said, on one line', () => {
  const verdict = judge({ status: 422, body: `{"a":\n\t"b ${'x'.repeat(10_000)}"}` }, 1);
  expect(verdict).toMatchObject({ kind: 'refused', reason: expect.stringMatching(/^HTTP 422: {"a": "b x{100}/) });
  expect((verdict as { reason: string }).reason.length).toBeLessThan(300);
});

/** What mutation testing has shown that no other test would notice. */
describe('the verdict', () => {
  test.each([
    [199, 'unreachable'],
    [200, 'acked'],
    [299, 'acked'],
    [300, 'unreachable'],
    [399, 'unreachable'],
    [400, 'refused'],
    [413, 'too-large'],
    [499, 'refused'],
    [500, 'unreachable'],
    [599, 'unreachable'],
  ])('of HTTP %i is %s, whatever the body says', (status, kind) => {
    expect(judge({ status, body: '{"ack":5}' }, 5).kind).toBe(kind);
  });

  test.each([
    ['', 'HTTP 503'],
    [' \n\t ', 'HTTP 503'],
    ['  Service\n\n\t unavailable  ', 'HTTP 503: Service unavailable'],
    ['x'.repeat(1_000), `HTTP 503: ${'x'.repeat(200)}`],
  ])('says what came, in one line and not too long: %j', (body, reason) => {
    expect(judge({ status: 503, body }, 5)).toEqual({ kind: 'unreachable', reason });
    const refused = reason.replace('503', '422');
    expect(judge({ status: 422, body }, 5)).toEqual({ kind: 'unreachable', reason: refused });
    const noAck = reason.replace('503', '200 without an acknowledgement');
    expect(judge({ status: 200, body }, 5)).toEqual({ kind: 'unreachable', reason: noAck });
  });

  test.each([
    ['https://b.example/sync', 'https://b.example'],
    ['https://b.example/node/sync?secret', 'https://b.example/node'],
    ['https://ann:secret@b.example/sync', 'https://b.example'],
    ['https://b.example/@node/sync', 'https://b.example/@node'],
    ['/login', '/login'],
    ['/sync', '/sync'],
  ])('says where a redirect to %s leads, and what to do', (location, url) => {
    const header = (name: string): string | null => (name === 'location' ? location : null);
    for (const status of [301, 302, 307, 308]) {
      expect(judge({ status, body: '<p>moved: there</p>', header }, 5)).toEqual({
        kind: 'unreachable',
        reason: `HTTP ${status}, a redirect, which is not followed; if that is meant, change the URL of this peer to ${url}`,
      });
    }
    expect(judge({ status: 304, body: '', header: () => null }, 5)).toEqual({
      kind: 'unreachable',
      reason: 'HTTP 304',
    });
  });

  test.each([
    ['{"ack":7}', 'ack 7 instead of 5'],
    ['{"ack":"7"}', 'ack "7" instead of 5'],
    ['{"ack":"05"}', 'ack "05" instead of 5'],
  ])('says which acknowledgement came instead: %s', (body, reason) => {
    expect(judge({ status: 200, body }, 5)).toEqual({ kind: 'refused', reason });
  });
});

test('an acknowledgement behind a byte order mark is one', async () => {
  const peer = await badHttp(({ body }, response) => {
    response.end(`\ufeff${JSON.stringify({ applied: 1, ack: JSON.parse(body).batch_id })}`);
  });
  const sender = await senderTo(peer.url);
  write(sender, 'x');
  expect(await sender.manager.flush()).toMatchObject({ unreachable: [] });
  expect(sender.manager.health().pending_changes).toBe(0);
});

test('where a redirect leads is in the health of whoever was redirected', async () => {
  const peer = await badStatus(307, '', { location: 'https://elsewhere.example/sync' });
  const sender = await senderTo(peer.url);
  write(sender, 'x');
  await sender.manager.flush();
  expect(sender.manager.health().peer_states[0]?.last_error).toMatch(/^HTTP 307, .*to https:\/\/elsewhere\.example$/);
});
