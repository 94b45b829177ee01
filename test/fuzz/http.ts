/** The same inputs over HTTP, asked in ways that are right, odd and wrong; and requests that are hardly HTTP at all. */
import { Buffer } from 'node:buffer';
import http from 'node:http';
import net from 'node:net';
import { gzipSync } from 'node:zlib';
import type { Random } from '../support/model.ts';
import { type Input, makeInput, type RequestShape, randomOf, written } from './inputs.ts';
import type { Json } from './json.ts';
import type { Expected } from './oracle.ts';
import { asHttpAnswer, type Route } from './run.ts';

/** Small, so that it is met. */
export const BODY_MAX = 2_000;

const RIGHT_TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'Application/JSON',
  'application/json;charset=utf-16',
];
const WRONG_TYPES = [
  'text/plain',
  'application/jsonp',
  'application/x-www-form-urlencoded',
  'json',
  '*/*',
  'application/json,text/html',
];
const RIGHT_PATHS = ['/sync', '/sync', '/sync', '/sync?a=b', '/sync?'];
const WRONG_PATHS = ['/', '/sync/', '/SYNC', '//sync', '/%73ync', '/syncc', '/api/items', '/sync/x', '/sync;a=b'];
const WRONG_METHODS = ['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

/** The same to whoever reads it; here, one comes with a body that is compressed, the other with one that is not. */
const PACKED = 'gzip';
const NOT_PACKED = 'GZIP';

/** The body as it travels. */
export function sent({ body, request }: Input): Uint8Array<ArrayBuffer> {
  return new Uint8Array(request?.headers['content-encoding'] === PACKED ? gzipSync(body) : Buffer.from(body));
}

export function makeHttpInput(seed: number, index: number, corpus: readonly Json[]): Input {
  const input = makeInput(seed, index, corpus);
  const random = randomOf(~seed, index);
  const headers: Record<string, string> = {};
  if (random.chance(0.95)) headers['content-type'] = random.pick(random.chance(0.9) ? RIGHT_TYPES : WRONG_TYPES);
  if (random.chance(0.2)) headers['content-encoding'] = random.pick([PACKED, PACKED, NOT_PACKED, 'identity', 'br']);
  // A body that happens to be gzip already would be read as that.
  if (input.body[0] === 0x1f && headers['content-encoding'] === NOT_PACKED) headers['content-encoding'] = PACKED;
  if (random.chance(0.1)) headers.expect = '100-continue';
  if (random.chance(0.1)) headers.accept = random.pick(['text/html', '*/*;q=0', '\u00ff']);
  if (input.from !== undefined) headers['x-node-id'] = input.from;
  headers['x-rowcast'] = 'id=fuzz';
  return {
    ...input,
    request: {
      method: random.chance(0.94) ? 'POST' : random.pick(WRONG_METHODS),
      path: random.pick(random.chance(0.94) ? RIGHT_PATHS : WRONG_PATHS),
      headers,
    },
  };
}

/** What the edge says before the body is looked at. */
function expected(input: Input, byBody: () => Expected): Expected {
  const { method, path, headers } = input.request as RequestShape;
  const refused = (status: number, why: string): Expected => ({ kind: 'refused', status, why });
  if (!RIGHT_PATHS.includes(path)) return refused(404, 'another path');
  if (method !== 'POST') return refused(405, 'another method');
  if (!RIGHT_TYPES.includes(headers['content-type'] ?? '')) return refused(415, 'another content type');
  if (headers['content-encoding'] === 'br') return refused(415, 'another encoding');
  if (Math.max(Buffer.byteLength(input.body), sent(input).byteLength) > BODY_MAX) return refused(413, 'a large body');
  return headers['content-encoding'] === NOT_PACKED ? refused(400, 'not gzip') : byBody();
}

/** `Request -> Response`, without a network. */
export function byHandler(handle: (request: Request) => Promise<Response>): Route {
  return {
    expected,
    deliver: async (_, input) => {
      const { method, path, headers } = input.request as RequestShape;
      const bytes = sent(input);
      const response = await handle(
        new Request(`http://node.test${path}`, { method, headers, ...(method !== 'GET' && { body: bytes }) }),
      );
      return asHttpAnswer(response.status, await response.text());
    },
  };
}

/** Over a real connection. */
export function byHttp(url: string, agent: http.Agent): Route {
  return {
    expected,
    deliver: async (_, input) => {
      const { status, text } = await ask(url, input.request as RequestShape, sent(input), agent);
      return asHttpAnswer(status, text);
    },
  };
}

export function ask(
  url: string,
  { method, path, headers }: RequestShape,
  body: Uint8Array,
  agent: http.Agent,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const options = { method, path, agent, headers: { ...headers, 'content-length': String(body.byteLength) } };
    const request = http.request(url, options);
    request.on('error', reject);
    request.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      response.on('error', reject);
    });
    request.end(body);
  });
}

/** A body for the item routes, mostly near to a right one, and the request it comes with. */
export function makeItemInput(seed: number, index: number): Input {
  const random = randomOf(seed, index);
  const text = (value: string): Json => ({ kind: 'string', value });
  const id = `01890a5d-ac96-774b-bcce-b302099a80${String(10 + random.below(30))}`;
  const item = (): Json => ({
    kind: 'object',
    fields: [
      ['name', text(random.pick(['n', '', 'ünïcödé', "'; --", 'NUL\u0000', '\ud800', '$blob:00', 'x'.repeat(300)]))],
      [
        'value',
        { kind: 'number', text: random.pick(['1', '-0', '9223372036854775807', '9223372036854775808', '1.0', '1e3']) },
      ],
      ...(random.chance(0.5)
        ? [['id', text(random.chance(0.8) ? id : random.pick(['', 'x', id.toUpperCase()]))] as [string, Json]]
        : []),
    ],
  });
  const many = random.chance(0.3);
  const list: Json = { kind: 'array', items: Array.from({ length: random.below(4) }, item) };
  const tree: Json = many ? (random.chance(0.5) ? list : { kind: 'object', fields: [['items', list]] }) : item();
  const segment = random.chance(0.8)
    ? id
    : random.pick(['%', '%00', '..', '%2e%2e', "';--", '__proto__', 'batch', '%F0%9F']);
  const path = many ? '/api/items/batch' : random.chance(0.4) ? '/api/items' : `/api/items/${segment}`;
  const method =
    path.startsWith('/api/items/') && !many
      ? random.pick(['PUT', 'PUT', 'GET', 'DELETE', 'POST'])
      : random.pick(['POST', 'POST', 'POST', 'GET', 'PATCH']);
  const type = random.pick(random.chance(0.95) ? RIGHT_TYPES : WRONG_TYPES);
  return {
    body: written(tree, random, 0.4),
    from: undefined,
    request: { method, path, headers: { 'content-type': type } },
  };
}

/** Bytes that begin like a request; what comes of them is a client error, an answer, or the end of the connection. */
export function makeRawRequest(seed: number, index: number, body: string): Buffer {
  const random = randomOf(seed, index);
  const length = String(Buffer.byteLength(body));
  const headers = ['host: x', 'content-type: application/json', `content-length: ${length}`];
  let first = 'POST /sync HTTP/1.1';
  let payload = body;
  const odd: (() => void)[] = [
    () =>
      headers.splice(
        2,
        1,
        `content-length: ${random.pick(['-1', '+1', '0x10', '1e3', '99999999999999999999', '', ' ', 'abc', '1,2', '1 2'])}`,
      ),
    () => headers.push(`content-length: ${random.below(50)}`),
    () => headers.push('transfer-encoding: chunked'),
    () => {
      headers[2] = `transfer-encoding: ${random.pick(['chunked', 'gzip, chunked', 'chunked, chunked', 'identity', 'xchunked'])}`;
      payload = random.pick([
        `${Buffer.byteLength(body).toString(16)}\r\n${body}\r\n0\r\n\r\n`,
        `fffffffff\r\n${body}`,
        `-1\r\n${body}\r\n0\r\n\r\n`,
        `zz\r\n${body}`,
        `1\r\n{`,
        `0;${'a'.repeat(20_000)}\r\n\r\n`,
      ]);
    },
    () => {
      payload = body.slice(0, random.below(body.length));
    },
    () => {
      payload = body + body;
    },
    () => {
      first = random.pick([
        'POST /sync',
        'POST  /sync HTTP/1.1',
        'post /sync HTTP/1.1',
        'POST /sync HTTP/9.9',
        'POST /sync HTTP/1.0',
        '',
        ' ',
        'PRI * HTTP/2.0',
        'POST http://[::1/sync HTTP/1.1',
        'POST http://a/sync HTTP/1.1',
        'CONNECT /sync HTTP/1.1',
        'POST /\u0000 HTTP/1.1',
        `POST /${'x'.repeat(70_000)} HTTP/1.1`,
      ]);
    },
    () =>
      headers.push(
        random.pick([
          'no colon',
          ': empty',
          'a b: c',
          'x: \u0000',
          'x: \u0001',
          `x: ${'y'.repeat(70_000)}`,
          ' folded',
          'x:\ud83d',
          'expect: 200-ok',
          'connection: upgrade',
          'upgrade: h2c',
        ]),
      ),
    () => headers.splice(0, 1),
    () => headers.push(...Array.from({ length: 3_000 }, (_, i) => `h${i}: 1`)),
  ];
  for (let n = 1 + random.below(2); n > 0; n--) random.pick(odd)();
  const ending = random.chance(0.9) ? '\r\n' : random.pick(['\n', '\r', '']);
  const bytes = Buffer.from(`${first}${ending}${headers.join(ending)}${ending}${ending}${payload}`);
  // The head alone: what becomes of a damaged body is for others to say.
  if (random.chance(0.3)) damage(bytes.subarray(0, bytes.length - Buffer.byteLength(payload)), random);
  return random.chance(0.2) ? bytes.subarray(0, random.below(bytes.length)) : bytes;
}

function damage(bytes: Buffer, random: Random): void {
  for (let n = 1 + random.below(4); n > 0; n--) bytes[random.below(bytes.length)] = random.below(256);
}

/** Sends the bytes and nothing more; resolves to every status of the answers once the connection is over. */
export function sendRaw(port: number, bytes: Buffer): Promise<number[]> {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    let answer = '';
    const end = (): void => {
      socket.destroy();
      resolve([...answer.matchAll(/^HTTP\/1\.[01] (\d{3})/gm)].map(([, status]) => Number(status)));
    };
    socket.on('data', (chunk) => {
      answer += chunk.toString('latin1');
    });
    socket.on('error', end);
    socket.on('close', end);
    // Some wait for the rest of a body that will not come.
    socket.setTimeout(1_000, end);
    socket.end(bytes);
  });
}
