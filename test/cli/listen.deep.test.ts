/** The HTTP edge of `rowcast serve`: what clients do wrong, how many there may be, and what a load leaves behind. */
import { statSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { describe, expect, test } from 'vitest';
import { cleanUp, database, exactRows, scratchFolder, until } from '../support/nodes.ts';
import { freePorts, type NodeProgram, startNode as start } from '../support/programs.ts';

/** A raw connection: what it was sent, and whether the server has closed it. */
async function connect(port: number): Promise<{ socket: net.Socket; answer(): string; closed(): boolean }> {
  const socket = net.connect(port, '127.0.0.1');
  cleanUp(() => socket.destroy());
  let answer = '';
  let closed = false;
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    closed = true;
  });
  await new Promise((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  return { socket, answer: () => answer, closed: () => closed };
}

/** `POST` with these headers, and nothing after them. */
const head = (path: string, headers: string[]): string =>
  `POST ${path} HTTP/1.1\r\nhost: localhost\r\n${headers.map((line) => `${line}\r\n`).join('')}\r\n`;
const JSON_TYPE = 'content-type: application/json';

async function isAlive(node: NodeProgram): Promise<void> {
  const health = await fetch(`${node.url}/health`);
  expect(await health.json()).toMatchObject({ ok: true, item_count: 0 });
}

describe('a body over the limit', () => {
  test('is refused by its announced length, without reading it', async () => {
    const node = await start('a', ['-max-body-bytes', '100000']);
    for (const [path, max] of [
      ['/api/items', 64 * 1024],
      ['/api/items/batch', 16 * 1024 * 1024],
      ['/sync', 100_000],
    ] as const) {
      const { socket, answer, closed } = await connect(node.port);
      socket.write(head(path, [JSON_TYPE, `content-length: ${max + 1}`]));
      await until('it is answered', () => answer().includes(`the body is larger than ${max} bytes`));
      expect(answer()).toMatch(/^HTTP\/1\.1 413 /);
      // What is left of the body must not be taken for a request.
      await until('the connection is closed', closed);
    }
    await isAlive(node);
  });

  test('is refused while it comes in chunks', async () => {
    const node = await start('a', ['-max-body-bytes', '100000']);
    for (const path of ['/api/items', '/sync']) {
      const { socket, answer } = await connect(node.port);
      socket.write(head(path, [JSON_TYPE, 'transfer-encoding: chunked']));
      const chunk = `8000\r\n${' '.repeat(0x8000)}\r\n`;
      for (let sent = 0; sent <= 100_000; sent += 0x8000) socket.write(chunk);
      await until('it is answered', () => answer().startsWith('HTTP/1.1 413 '));
    }
    await isAlive(node);
  });
});

describe('a wrong request', () => {
  test('with another method is 405 with what is allowed', async () => {
    const node = await start('a');
    for (const [method, path, allow] of [
      ['POST', '/health', 'GET, HEAD'],
      ['GET', '/sync', 'POST'],
      ['PATCH', '/api/items', 'GET, HEAD, POST'],
      ['OPTIONS', '/api/items/x', 'GET, HEAD, PUT, DELETE'],
    ] as const) {
      const response = await fetch(node.url + path, { method });
      expect([path, response.status, response.headers.get('allow')]).toEqual([path, 405, allow]);
    }
  });

  test('with another content type is 415, and changes nothing', async () => {
    const node = await start('a');
    for (const path of ['/api/items', '/api/items/batch', '/sync']) {
      const response = await fetch(node.url + path, { method: 'POST', body: '{"name":"x","value":1}' });
      expect([path, response.status]).toEqual([path, 415]);
    }
    await isAlive(node);
  });

  test('that is no HTTP is 400 or cut off, and the node lives on', async () => {
    const node = await start('a');
    for (const text of [
      '\x16\x03\x01\x02\x00\x01\x00\r\n\r\n',
      'GET\r\n\r\n',
      `GET /${'x'.repeat(100_000)} HTTP/1.1\r\n\r\n`,
    ]) {
      const { socket, answer, closed } = await connect(node.port);
      socket.write(text);
      await until('it is over', () => closed() || /^HTTP\/1\.1 4\d\d/.test(answer()));
      socket.destroy();
    }
    await isAlive(node);
  });

  test('that breaks off in the middle of its body leaves nothing behind', async () => {
    const node = await start('a');
    for (let i = 0; i < 20; i++) {
      const { socket } = await connect(node.port);
      socket.write(`${head(i % 2 ? '/sync' : '/api/items', [JSON_TYPE, 'content-length: 1000'])}{"name":`);
      socket.destroy();
    }
    await isAlive(node);
    expect(node.output()).not.toContain('"event":"error"');
  });
});

/** Sooner or later: where clients have half a second, that may be too short for an honest one on a machine that stands still. */
async function isServed(node: NodeProgram): Promise<void> {
  await until('others are served', async () => {
    const { socket, answer, closed } = await connect(node.port);
    socket.write('GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n');
    await until('it is over', closed);
    return /^HTTP\/1\.1 200 .*"ok":true,.*"item_count":0\b/s.test(answer());
  });
}

describe('a slow client', () => {
  test('that does not finish its body is cut off, and others are served meanwhile', async () => {
    const node = await start('a', ['-client-timeout-ms', '500']);
    const { socket, answer, closed } = await connect(node.port);
    socket.write(`${head('/api/items', [JSON_TYPE, 'content-length: 1000'])}{`);
    // A byte now and then keeps a connection from being idle, not from being slow.
    const drip = setInterval(() => socket.write(' '), 50);
    cleanUp(() => clearInterval(drip));
    await isServed(node);
    await until('it is told or cut off', () => closed() || answer().startsWith('HTTP/1.1 408 '));
    await isServed(node);
  });

  test('that does not finish its headers is cut off', async () => {
    const node = await start('a', ['-client-timeout-ms', '500']);
    const { socket, closed } = await connect(node.port);
    socket.write('GET /health HTTP/1.1\r\nhost: localhost\r\n');
    const drip = setInterval(() => socket.write('a: b\r\n'), 50);
    cleanUp(() => clearInterval(drip));
    await until('it is cut off', closed);
    await isServed(node);
  });

  test('that opens a connection and says nothing does not hold up a stop', async () => {
    const node = await start('a', ['-stop-ms', '3600000']);
    await connect(node.port);
    await isAlive(node);
    node.child.kill('SIGTERM');
    expect(await node.ended).toBe(0);
  });
});

describe('a crowd at the door', () => {
  test('of one address is let in up to its limit, and others later', async () => {
    const node = await start('a', ['-max-connections-per-address', '5']);
    const held = await Promise.all(Array.from({ length: 5 }, () => connect(node.port)));
    // On Bun a connection counts while a request is under way.
    for (const { socket } of held) socket.write(head('/api/items', [JSON_TYPE, 'content-length: 10']));
    await until('one more is turned away', async () => {
      const more = await connect(node.port);
      more.socket.write('GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n');
      await until('it has heard', () => more.closed() || more.answer() !== '');
      more.socket.destroy();
      return !more.answer().startsWith('HTTP/1.1 200');
    });
    for (const { socket } of held) socket.destroy();
    await until('there is room', async () =>
      fetch(`${node.url}/health`).then(
        ({ ok }) => ok,
        () => false,
      ),
    );
  });
});

test('connections beyond what there may be are cut off, and the log says so', async () => {
  const node = await start('a', ['-max-connections', '3']);
  const held = await Promise.all(Array.from({ length: 3 }, () => connect(node.port)));
  // On Bun a connection counts while a request is under way.
  for (const { socket } of held) socket.write(head('/api/items', [JSON_TYPE, 'content-length: 10']));
  await until('one more is cut off', async () => {
    const more = await connect(node.port);
    more.socket.write('GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n');
    await until('it has heard', () => more.closed() || more.answer() !== '');
    return more.answer() === '';
  });
  await until('it is said', () => node.lines('warning').some(({ code }) => code === 'too-many-connections'));
  expect(node.lines('warning').map(({ message }) => message)).toEqual([expect.stringContaining('-max-connections')]);
});

describe('a node on a loopback address', () => {
  /** With a `Host` of its own; fetch does not let it be set. */
  const ask = (node: NodeProgram, host: string, path = '/health'): Promise<number | undefined> =>
    new Promise((resolve, reject) => {
      const request = http.get({ host: '127.0.0.1', port: node.port, path, headers: { host } });
      request.on('response', (response) => resolve(response.resume().statusCode));
      request.on('error', reject);
    });

  test('answers to the names of this machine, and to those that it was given', async () => {
    const node = await start('a', ['-host', 'node.internal']);
    for (const host of [
      'localhost',
      '127.0.0.1',
      `127.0.0.1:${node.port}`,
      '[::1]:9',
      '127.8.9.10',
      'Node.Internal:80',
    ])
      expect([host, await ask(node, host)]).toEqual([host, 200]);
    for (const host of ['evil.example', 'localhost.evil.example', '127.0.0.1.evil.example', '10.0.0.1', '[::2]'])
      for (const path of ['/health', '/api/items', '/sync'])
        expect([host, await ask(node, host, path)]).toEqual([host, 403]);
  });

  test('keeps its files to its own user', async () => {
    const { db } = await start('a');
    expect(statSync(db).mode & 0o077).toBe(0);
  });
});

test('three thousand connections that are kept alive are all served, again and again', async () => {
  const node = await start('a', ['-max-connections', '5000', '-max-connections-per-address', '0']);
  const connections = 3_000;
  const opened: Awaited<ReturnType<typeof connect>>[] = [];
  const ask = ({ socket }: (typeof opened)[number]): boolean =>
    socket.write('GET /api/items HTTP/1.1\r\nhost: localhost\r\n\r\n');
  for (let i = 0; i < connections; i += 100) {
    const more = await Promise.all(Array.from({ length: 100 }, () => connect(node.port)));
    // At once: who has not asked for anything within ten seconds is let go of.
    for (const one of more) ask(one);
    opened.push(...more);
  }
  for (let round = 1; round <= 3; round++) {
    if (round > 1) for (const one of opened) ask(one);
    await until('all are answered', () =>
      opened.every(({ answer }) => answer().split('HTTP/1.1 200 OK').length === round + 1),
    );
  }
  expect(opened.filter(({ closed }) => closed()).length).toBe(0);
  await isAlive(node);
});

/** What a client was told: the item as last acknowledged, or that it is gone. */
type Known = Map<string, { name: string; value: number } | 'gone'>;

/** One client of one node: creates, changes, deletes and reads, one request after the other. */
async function client(url: string, name: string, steps: number, agent: http.Agent): Promise<Known> {
  const known: Known = new Map();
  const ask = (method: string, path: string, body?: unknown): Promise<{ status: number; text: string }> =>
    new Promise((resolve, reject) => {
      const request = http.request(url + path, { method, agent, headers: { 'content-type': 'application/json' } });
      request.on('error', reject);
      request.on('response', (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk) => {
          text += chunk;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
        response.on('error', reject);
      });
      request.end(body === undefined ? undefined : JSON.stringify(body));
    });
  const mine: string[] = [];
  for (let step = 0; step < steps; step++) {
    const item = { name: `${name}-${step}`, value: step };
    const old = mine[(step * 7) % Math.max(1, mine.length)];
    if (step % 6 === 5) {
      const { status, text } = await ask('POST', '/api/items/batch', [item, item, item]);
      expect(status).toBe(201);
      for (const { id } of JSON.parse(text).items) known.set(id, item);
    } else if (step % 6 === 4 && old !== undefined && known.get(old) !== 'gone') {
      expect((await ask('DELETE', `/api/items/${old}`)).status).toBe(200);
      known.set(old, 'gone');
    } else if (step % 6 === 3 && old !== undefined && known.get(old) !== 'gone') {
      expect((await ask('PUT', `/api/items/${old}`, item)).status).toBe(200);
      known.set(old, item);
    } else if (step % 6 === 2) {
      expect((await ask('GET', '/api/items')).status).toBe(200);
    } else {
      const { status, text } = await ask('POST', '/api/items', item);
      expect(status).toBe(201);
      const { id } = JSON.parse(text);
      mine.push(id);
      known.set(id, item);
    }
  }
  return known;
}

test('after a load of reads and writes on three nodes at once, every acknowledged write is on every node', async () => {
  const folder = scratchFolder();
  const ports = await freePorts(3);
  const urls = ports.map((port) => `http://127.0.0.1:${port}`);
  const nodes = await Promise.all(
    ports.map((port, i) => {
      const peers = urls.filter((_, j) => j !== i).flatMap((url) => ['-peer', url]);
      return start(`n${i}`, ['-listen', `127.0.0.1:${port}`, ...peers], folder);
    }),
  );
  const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });
  cleanUp(() => agent.destroy());
  const clients = nodes.flatMap(({ url }, i) =>
    Array.from({ length: 6 }, (_, j) => client(url, `client-${i}-${j}`, 60, agent)),
  );
  const known = new Map((await Promise.all(clients)).flatMap((one) => [...one]));
  await until('nothing is pending', async () => {
    const healths = await Promise.all(urls.map(async (url) => (await fetch(`${url}/health`)).json()));
    return healths.every((health) => (health as { pending_changes: number }).pending_changes === 0);
  });
  for (const node of nodes) node.child.kill('SIGTERM');
  expect(await Promise.all(nodes.map((node) => node.ended))).toEqual([0, 0, 0]);

  const dumps: string[][] = [];
  for (const node of nodes) dumps.push(exactRows(await database('PRAGMA user_version', node.db), 'items'));
  const live = [...known].filter(([, item]) => item !== 'gone').sort(([a], [b]) => (a < b ? -1 : 1));
  expect(live.length).toBeGreaterThan(500);
  const acknowledged = live.map(([id, item]) => {
    const { name, value } = item as { name: string; value: number };
    return `text:'${id}'|text:'${name}'|integer:${value}`;
  });
  expect(dumps[0]?.map((line) => line.split('|').slice(0, 3).join('|'))).toEqual(acknowledged);
  expect(dumps[1]).toEqual(dumps[0]);
  expect(dumps[2]).toEqual(dumps[0]);
  for (const node of nodes) expect(node.output()).not.toMatch(/"event":"(error|dead-letter|parked)"/);
});
