/**
 * Somebody on the way changes what no signature covers: how long a body says it is, how it is, what headers come with it. No
 * answer that a sender believes may depend on that, but for those that say nothing about its changes.
 */
import net from 'node:net';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import type { AuthOptions } from '../../src/auth/index.ts';
import { createListener } from '../../src/http/index.ts';
import { isOfAnotherLength } from '../../src/send/bond.ts';
import { judge } from '../../src/send/verdict.ts';
import { node, rowsOf, serve } from '../support/nodes.ts';
import { answered, BODY, type Reply, request, SECRET } from './messages.ts';

const AUTH: AuthOptions = { keys: [{ id: 'k1', secret: SECRET }] };
const BYTES_MAX = 2_000;
const POST = { 'content-type': 'application/json', 'x-node-id': 'a' };

/** A message as it travels, line by line: nothing of it is put right by a client. */
interface Wire {
  start: string;
  lines: string[];
  body: string | Uint8Array;
}

/** All that comes back until the other side ends; undefined where that is nothing. */
function exchange(url: string, { start, lines, body }: Wire): Promise<Reply | undefined> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const socket = net.connect({ host: hostname, port: Number(port) });
    socket.on('data', (chunk) => chunks.push(chunk));
    socket.on('error', () => {});
    socket.on('close', () => resolve(read(Buffer.concat(chunks))));
    socket.write([start, 'Host: b.test', 'Connection: close', ...lines, '', ''].join('\r\n'));
    // He keeps his side open for as long as the other does: what is not complete must not be judged.
    socket.write(body);
    socket.setTimeout(300, () => socket.end());
  });
}

function read(bytes: Buffer): Reply | undefined {
  const text = bytes.toString('latin1').replace(/^HTTP\/1\.1 1\d\d[\s\S]*?\r\n\r\n/, '');
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [first = '', ...lines] = text.slice(0, end).split('\r\n');
  const pairs = lines.map((line) => [
    line.slice(0, line.indexOf(':')).toLowerCase(),
    line.slice(line.indexOf(':') + 2),
  ]);
  const headers = Object.fromEntries(pairs) as Record<string, string>;
  const rest = text.slice(end + 4);
  const body = headers['transfer-encoding'] === 'chunked' ? unchunked(rest) : rest;
  return { status: Number(first.split(' ')[1]), headers, body: Buffer.from(body, 'latin1') };
}

function unchunked(text: string): string {
  const size = Number.parseInt(text, 16);
  const begin = text.indexOf('\r\n') + 2;
  return size > 0 ? text.slice(begin, begin + size) + unchunked(text.slice(begin + size + 2)) : '';
}

const chunked = (body: string): string => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
const padded = (length: number): string => BODY + ' '.repeat(length - BODY.length);
const header = (...lines: string[]) => {
  return ({ start, lines: given, body }: Wire): Wire => ({ start, lines: [...given, ...lines], body });
};
const before = (...lines: string[]) => {
  return ({ start, lines: given, body }: Wire): Wire => ({ start, lines: [...lines, ...given], body });
};
const without = (name: string, { lines }: Wire): string[] => lines.filter((line) => !line.startsWith(`${name}:`));
const sized = (length: string, body: string | Uint8Array) => {
  return (wire: Wire): Wire => ({
    ...wire,
    lines: [...without('content-length', wire), `content-length: ${length}`],
    body,
  });
};
const inChunks = (encoding: string, body: string) => {
  return (wire: Wire): Wire => ({
    ...wire,
    lines: [...without('content-length', wire), `transfer-encoding: ${encoding}`],
    body,
  });
};
const started = (start: string) => {
  return (wire: Wire): Wire => ({ ...wire, start });
};

const CHANGED: [string, (wire: Wire) => Wire][] = [
  ['announces a longer body than he sends', sized(String(BYTES_MAX + 1), BODY)],
  ['announces a body of terabytes', sized('99999999999999', BODY)],
  ['makes the body longer than the limit', sized(String(BYTES_MAX + 1), padded(BYTES_MAX + 1))],
  ['makes the body longer than many limits', sized(String(50 * BYTES_MAX), padded(50 * BYTES_MAX))],
  ['makes it longer in chunks, without a length', inChunks('chunked', chunked(padded(BYTES_MAX + 1)))],
  ['makes it longer by blanks', sized(String(BODY.length + 1), `${BODY} `)],
  ['cuts the body', sized(String(BODY.length - 1), BODY.slice(0, -1))],
  ['takes the body away', sized('0', '')],
  ['says a length that is none', sized('many', BODY)],
  ['says two lengths', header(`content-length: ${BYTES_MAX + 1}`)],
  ['sends it in chunks', inChunks('chunked', chunked(BODY))],
  ['sends it in chunks, packed for the way', inChunks('gzip, chunked', chunked(BODY))],
  ['sends it in chunks with a length', header('transfer-encoding: chunked')],
  ['sends chunks that are none', inChunks('chunked', BODY)],
  ...['gzip', 'x-gzip', 'br', 'identity', '', 'deflate', 'gzip, gzip'].map((value): [string, (wire: Wire) => Wire] => [
    `says that it is encoded as "${value}"`,
    header(`content-encoding: ${value}`),
  ]),
  [
    'packs the body',
    (wire) => sized(String(gzipSync(BODY).length), gzipSync(BODY))(header('content-encoding: gzip')(wire)),
  ],
  ['says another type as well', header('content-type: text/plain')],
  ['says another type first', before('content-type: text/plain')],
  ['expects to be asked for the body', header('expect: 100-continue')],
  ['expects something else', header('expect: the-unexpected')],
  ['says that it is from a web page', header('origin: http://evil.test')],
  ['says that it is from another site', header('sec-fetch-site: cross-site')],
  ['wants another protocol', header('upgrade: h2c', 'http2-settings: AAMAAABkAAQAAP__')],
  ['wants another method', header('x-http-method-override: DELETE', 'x-method: GET')],
  ['wants a part', header('range: bytes=0-1', 'content-range: bytes 0-1/2', 'if-match: "x"')],
  ['says a trailer', header('te: trailers', 'trailer: content-digest')],
  ['names another node as well', header('x-node-id: c')],
  ['introduces another', header('x-rowcast: id=c; inc=5f0c1e9a77b2d310; boot=7-21d0b7e4; t0=812; t=840')],
  ['says who has made the changes', header('x-origins: c;0')],
  ['asks for everything', header('x-send-again: *')],
  ['shows a token', header('authorization: Bearer none', 'cookie: a=b')],
  ['is a proxy', header('via: 1.1 p', 'forwarded: for=1.2.3.4', 'x-forwarded-proto: https', 'max-forwards: 0')],
  ['asks for something behind the path', started('POST /sync?dry-run=1 HTTP/1.1')],
  ['asks for another path', started('POST /sync/compare HTTP/1.1')],
  ['asks for a path that is not there', started('POST /sync/nothing HTTP/1.1')],
  ['asks with another method', started('PUT /sync HTTP/1.1')],
  ['asks in an old way', started('POST /sync HTTP/1.0')],
];

describe('somebody on the way who', () => {
  test.each(CHANGED)('%s has nobody refuse what a sender has signed', async (_, change) => {
    const b = await node({ id: 'b', auth: AUTH, maxBodyBytes: BYTES_MAX });
    const url = await serve(createListener(b.manager));
    const { message, sent } = request({ headers: POST }, { now: Date.now() });
    const lines = Object.entries(message.headers).map(([name, value]) => `${name}: ${value}`);
    const wire = { start: 'POST /sync HTTP/1.1', lines: [...lines, `content-length: ${BODY.length}`], body: BODY };
    const reply = await exchange(url, change(wire));
    if (!reply || answered(sent, reply).kind !== 'verified') return;
    // By what was announced, and so it says: the sender knows how long its body is.
    if (isOfAnotherLength({ status: reply.status, bytes: Buffer.from(reply.body) }, BODY.length)) return;
    const verdict = judge({ status: reply.status, body: Buffer.from(reply.body).toString() }, 3);
    expect([verdict.kind, reply.status]).toEqual(
      reply.status === 200 ? ['acked', 200] : ['unreachable', expect.any(Number)],
    );
    expect(rowsOf(b.db, 'SELECT id FROM items')).toHaveLength(reply.status === 200 ? 1 : 0);
  });
});

test.each([
  ['with a length', (wire: Wire) => wire],
  ['in chunks', (wire: Wire) => inChunks('chunked', chunked(wire.body as string))(wire)],
])('what is too large as it was signed is refused by the peer, as its own word: %s', async (_, change) => {
  const b = await node({ id: 'b', auth: AUTH, maxBodyBytes: BYTES_MAX });
  const url = await serve(createListener(b.manager));
  const body = padded(BYTES_MAX + 1);
  const { message, sent } = request({ headers: POST, body: Buffer.from(body) }, { now: Date.now() });
  const lines = Object.entries(message.headers).map(([name, value]) => `${name}: ${value}`);
  const wire = { start: 'POST /sync HTTP/1.1', lines: [...lines, `content-length: ${body.length}`], body };
  const reply = (await exchange(url, change(wire))) as Reply;
  expect(answered(sent, reply).kind).toBe('verified');
  expect(isOfAnotherLength({ status: reply.status, bytes: Buffer.from(reply.body) }, body.length)).toBe(false);
  expect(judge({ status: reply.status, body: Buffer.from(reply.body).toString() }, 3).kind).toBe('too-large');
});

test('a body that is announced to be too large is refused before it has come, which takes as long as the link is slow', async () => {
  const b = await node({ id: 'b', auth: AUTH, maxBodyBytes: BYTES_MAX });
  const url = await serve(createListener(b.manager));
  const body = padded(1_000_000);
  const { message, sent } = request({ headers: POST, body: Buffer.from(body) }, { now: Date.now() });
  const lines = Object.entries(message.headers).map(([name, value]) => `${name}: ${value}`);
  const begun = body.slice(0, 1_000);
  const wire = { start: 'POST /sync HTTP/1.1', lines: [...lines, `content-length: ${body.length}`], body: begun };
  const reply = (await exchange(url, wire)) as Reply;
  expect([reply.status, answered(sent, reply).kind]).toEqual([413, 'verified']);
  expect(isOfAnotherLength({ status: 413, bytes: Buffer.from(reply.body) }, body.length)).toBe(false);
  expect(isOfAnotherLength({ status: 413, bytes: Buffer.from(reply.body) }, body.length - 1)).toBe(true);
});
