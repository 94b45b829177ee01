/**
 * Slow clients at every door: a silent connection, headers and a body that come byte by byte, a handshake that is not
 * finished, answers that are not read. Each is let go of within its time, and others are served meanwhile.
 */
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import tls from 'node:tls';
import { describe, test } from 'vitest';
import { authority, hasOpenssl } from '../support/certificates.ts';
import { cleanUp, scratchFolder, until } from '../support/nodes.ts';
import { MAIN, type Program, runProgram, started } from '../support/programs.ts';

const TIMEOUT_MS = 500;
const TOKEN = 'a-token-of-some-length';

interface Door extends Program {
  port: number;
  adminPort: number;
}

async function open(kind: 'serve' | 'hub', args: string[] = [], timeoutMs = TIMEOUT_MS): Promise<Door> {
  const folder = scratchFolder();
  writeFileSync(join(folder, 'token'), TOKEN, { mode: 0o600 });
  const admin = ['-admin-listen', '127.0.0.1:0', '-admin-token-file', join(folder, 'token')];
  const listen = ['-id', 'a', '-db', join(folder, 'a.db'), '-listen', '127.0.0.1:0'];
  const timeout = ['-client-timeout-ms', String(timeoutMs)];
  const program = runProgram(MAIN, [kind, ...listen, ...admin, ...timeout, ...args]);
  const line = await started(program);
  return { ...program, port: line.port, adminPort: Number(new URL(line.admin).port) };
}

/** Writes `first`, and then `again` every now and then, until it is let go of. */
async function isLetGo(port: number, first: string | Uint8Array, again = ''): Promise<void> {
  const socket = net.connect(port, '127.0.0.1');
  cleanUp(() => socket.destroy());
  let over = false;
  socket.on('error', () => {});
  socket.on('data', (data) => {
    // Told that it is too slow.
    if (/^HTTP\/1\.1 408 /.test(String(data))) over = true;
  });
  socket.on('close', () => {
    over = true;
  });
  if (first.length > 0) socket.write(first);
  const drip = setInterval(() => again !== '' && socket.writable && socket.write(again), 50);
  cleanUp(() => clearInterval(drip));
  await until('it is let go of', () => over);
}

/** By a connection of its own, which ends with the answer: one that was kept would be in already. 0 where there is none. */
function asked(url: string, body?: string): Promise<number> {
  const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' };
  return new Promise((resolve) => {
    const request = http.request(url, { method: body === undefined ? 'GET' : 'POST', headers, agent: false });
    request.on('error', () => resolve(0));
    request.on('response', (response) => {
      response.on('error', () => resolve(0));
      response.on('end', () => resolve(response.statusCode ?? 0));
      response.resume();
    });
    request.end(body);
  });
}

/** Sooner or later: half a second may be too short for an honest request on a machine that stands still. */
async function isServed(url: string): Promise<void> {
  await until(`${url} is served`, async () => (await asked(url)) === 200);
}

const HEAD = 'POST /sync HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n';
const ADMIN_HEAD =
  'POST /_rowcast/api/verify HTTP/1.1\r\nhost: localhost\r\n' +
  `authorization: Bearer ${TOKEN}\r\nx-rowcast-admin: 1\r\n`;

describe('a client that is slow', () => {
  test.each(['serve', 'hub'] as const)('at both doors of rowcast %s', async (kind) => {
    const { port, adminPort } = await open(kind);
    await Promise.all([
      ...[port, adminPort].map((at) => isLetGo(at, '')),
      isLetGo(port, HEAD, 'a: b\r\n'),
      isLetGo(adminPort, ADMIN_HEAD, 'a: b\r\n'),
      isLetGo(port, `${HEAD}content-length: 100000\r\n\r\n{`, ' '),
      isLetGo(adminPort, `${ADMIN_HEAD}content-length: 50000\r\n\r\n{`, ' '),
    ]);
    await isServed(`http://127.0.0.1:${port}/health`);
    await isServed(`http://127.0.0.1:${adminPort}/_rowcast/api/status`);
  });

  test.skipIf(!hasOpenssl)('in its handshake, or after it', async () => {
    const ca = authority();
    const { certFile, keyFile } = ca.issue('a');
    const { port } = await open('serve', ['-tls-cert', certFile, '-tls-key', keyFile]);
    // The first bytes of a ClientHello that announces more than comes.
    const hello = Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03]);
    const secured = tls.connect({ port, host: '127.0.0.1', ca: ca.cert, servername: 'localhost' });
    cleanUp(() => secured.destroy());
    let over = false;
    secured.on('error', () => {});
    secured.on('close', () => {
      over = true;
    });
    secured.resume();
    await Promise.all([isLetGo(port, ''), isLetGo(port, hello), until('after it as well', () => over)]);
  });

  test.each(['data', 'admin'] as const)('to read its answers, at the %s door', async (door) => {
    // Long enough for all of them to have asked.
    const timeoutMs = door === 'data' ? 4 * TIMEOUT_MS : TIMEOUT_MS;
    const node = await open('serve', ['-max-connections-per-address', '5'], timeoutMs);
    const port = door === 'data' ? node.port : node.adminPort;
    // More than the system takes in a client's place. Each asks once: nothing but what is not read is left of its request.
    const row = { id: 'big', name: 'x'.repeat(6 * 1024 * 1024), value: 1, created_at: 1, updated_at: 1 };
    const changes = [{ op: 'INSERT', table: 'items', row, old_id: null }];
    const body = JSON.stringify({ batch_id: 1, changes });
    // Half a second may be too short for megabytes, too.
    await until('the row is there', async () => (await asked(`http://127.0.0.1:${node.port}/sync`, body)) === 200);
    const path = door === 'data' ? '/api/items' : '/_rowcast/api/why?table=items&id=big';
    // As many at once as one address may have: nobody else of it gets in while they are there. One after the other, each
    // when the one before has the first bytes of its answer: it is not for being slow to ask that they are let go.
    for (let i = 0; i < (door === 'data' ? 5 : 25); i++) {
      const socket = net.connect(port, '127.0.0.1');
      cleanUp(() => socket.destroy());
      socket.write(`GET ${path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${TOKEN}\r\n\r\n`);
      await new Promise<void>((begun) => {
        socket.on('error', () => begun());
        // Let go of before: half a second may be too short to ask, too.
        socket.on('close', () => begun());
        socket.once('data', () => begun());
      });
      socket.pause();
    }
    await isServed(`http://127.0.0.1:${port}${door === 'data' ? '/health' : '/_rowcast/'}`);
  });
});
