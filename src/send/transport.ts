/**
 * The default way to ask a peer. On Node this is node:http with kept connections: the global fetch costs four to five
 * times the CPU for the same request. On Bun the global fetch is the fastest there is.
 */
import http from 'node:http';
import https from 'node:https';
import { urlToHttpOptions } from 'node:url';
import { RowcastError } from '../errors.ts';
import { TLS_MIN_VERSION, type TlsOptions } from './tls.ts';

/** The part of `fetch` that shipping needs; the global one fits. */
export type Fetch = (
  url: string,
  init: {
    method: 'POST';
    headers: Record<string, string>;
    body: Uint8Array<ArrayBuffer>;
    redirect: 'manual';
    signal: AbortSignal;
  },
) => Promise<FetchResponse>;

export interface FetchResponse {
  status: number;
  text(): Promise<string>;
  headers?: { get(name: string): string | null };
  /** Where it can be iterated over, the answer is read by it, and only as far as an answer may be long. */
  body?: unknown;
}

/** An answer of which no more is read than is asked for. */
export interface BoundedResponse extends Omit<FetchResponse, 'text' | 'body'> {
  bytes(maxBytes: number): Promise<Uint8Array>;
}

export type Post = (...args: Parameters<Fetch>) => Promise<BoundedResponse>;
export type Ask = (...args: Parameters<Get>) => Promise<BoundedResponse>;

/** How a peer is asked for its `/health`. */
export type Get = (
  url: string,
  init: { headers: Record<string, string>; signal: AbortSignal },
) => Promise<FetchResponse>;

export interface Transport {
  fetch: Post;
  /** Undefined where only a `fetch` was given: it need not be able to do more than POST. */
  get: Ask | undefined;
  /** Resolves when a request that was just begun is on its way. */
  untilSent: () => Promise<void>;
  /** From the next connection on, these certificates count. */
  secure(tls: TlsOptions): void;
  /** Closes kept connections. */
  close(): void;
}

/** The default way, or what was given in its place. */
export function transportFor({ fetch, get, tls }: { fetch?: Fetch; get?: Get; tls?: TlsOptions }): Transport {
  if (fetch) {
    const given = givenTransport(fetch, get);
    if (tls) given.secure(tls);
    return given;
  }
  const transport = process.versions.bun === undefined ? nodeTransport(tls) : bunTransport(tls);
  return get ? { ...transport, get: async (url, init) => bounded(await get(url, init)) } : transport;
}

/** Somebody else's fetch: how it sends is not ours to know. */
function givenTransport(fetch: Fetch, get: Get | undefined): Transport {
  return {
    fetch: async (url, init) => bounded(await fetch(url, init)),
    get: get && (async (url, init) => bounded(await get(url, init))),
    untilSent: () => Promise.resolve(),
    secure: () => {
      throw new RowcastError('INVALID_OPTION', 'option "tls" says nothing to a "fetch" of your own', {
        hint: 'have that one use the certificates',
      });
    },
    close: () => {},
  };
}

/** Resolves when the event loop has come round: what was begun in this turn is on its way by then. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Bun keeps connections for itself, apart for each set of certificates. */
function bunTransport(first: TlsOptions | undefined): Transport {
  let tls = { ...first, rejectUnauthorized: true };
  const ask = async (url: string, init: object): Promise<BoundedResponse> =>
    bounded(await fetch(url, (url.startsWith('https:') ? { ...init, tls } : init) as RequestInit));
  return {
    fetch: ask,
    get: (url, { headers, signal }) => ask(url, { headers, signal, redirect: 'manual' }),
    untilSent: nextTurn,
    secure: (next) => {
      tls = { ...next, rejectUnauthorized: true };
    },
    close: () => {},
  };
}

function nodeTransport(tls: TlsOptions | undefined): Transport {
  const agents = { 'http:': new http.Agent({ keepAlive: true }), 'https:': secureAgent(tls) };
  const targets = new Map<string, Target>();
  return {
    fetch: (url, init) => request(targetOf(url, targets), init, agents),
    get: (url, { headers, signal }) => request(targetOf(url, targets), { method: 'GET', headers, signal }, agents),
    untilSent: nextTurn,
    secure: (next) => {
      const before = agents['https:'];
      agents['https:'] = secureAgent(next);
      // What is under way ends as it began; what is kept was made with certificates that count no more.
      before.maxFreeSockets = 0;
      for (const socket of Object.values(before.freeSockets).flat()) socket?.destroy();
    },
    close: () => {
      agents['http:'].destroy();
      agents['https:'].destroy();
    },
  };
}

function secureAgent(tls: TlsOptions = {}): https.Agent {
  // Verification is not to be had without, whatever NODE_TLS_REJECT_UNAUTHORIZED says.
  return new https.Agent({ keepAlive: true, minVersion: TLS_MIN_VERSION, ...tls, rejectUnauthorized: true });
}

/** Where a URL leads. */
type Target = Pick<ReturnType<typeof urlToHttpOptions>, 'protocol' | 'hostname' | 'port' | 'path' | 'auth'>;

/** The same URLs are asked again and again, by a hub two of each of thousands. */
const TARGETS_MAX = 20_000;

function targetOf(url: string, targets: Map<string, Target>): Target {
  const known = targets.get(url);
  if (known) return known;
  // Of all that Node makes of it what is needed: with the rest it is ten times as large.
  const { protocol, hostname, port, path, auth } = urlToHttpOptions(new URL(url));
  const target = { protocol, hostname, port, path, auth };
  if (targets.size >= TARGETS_MAX) targets.clear();
  targets.set(url, target);
  return target;
}

function request(
  target: Target,
  init: { method: string; headers: Record<string, string>; body?: Uint8Array; signal: AbortSignal },
  agents: { 'http:': http.Agent; 'https:': https.Agent },
): Promise<BoundedResponse> {
  return new Promise((resolve, reject) => {
    const secure = target.protocol === 'https:';
    const outgoing = (secure ? https : http).request({
      ...target,
      method: init.method,
      headers: { ...init.headers, ...(init.body && { 'content-length': init.body.byteLength }) },
      agent: agents[secure ? 'https:' : 'http:'],
    });
    outgoing.on('error', reject);
    // As the option `signal` does, which watches the request by a dozen listeners besides, to let go of a signal in time that
    // lives longer than the request. This one does not.
    const abort = (): void => void outgoing.destroy(new Error('aborted'));
    if (init.signal.aborted) abort();
    else init.signal.addEventListener('abort', abort, { once: true });
    // Without a listener Node drops the connection and says nothing more, not even when the request is aborted.
    outgoing.on('upgrade', (response, socket) => {
      socket.destroy();
      reject(new Error(`HTTP ${response.statusCode}, which no request of ours asks for`));
    });
    outgoing.on('response', (response) => {
      resolve({
        status: response.statusCode ?? 0,
        bytes: (max) => bytesOf(response, max),
        headers: { get: (name) => String(response.headers[name] ?? '') || null },
      });
    });
    outgoing.end(init.body);
  });
}

function bytesOf(response: http.IncomingMessage, max: number): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    response.on('error', reject);
    // A connection that closes before the announced length is a torn answer, not an empty one.
    response.on('aborted', () => reject(new Error('the answer broke off')));
    response.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size <= max) return void chunks.push(chunk);
      // Before the connection breaks off, which then has no cause of its own.
      reject(tooLong(max));
      response.destroy();
    });
    response.on('end', () => resolve(Buffer.concat(chunks)));
  });
}

/** The answer of a `fetch` that reads as much as comes: an endless one would fill the memory. */
function bounded(response: FetchResponse): BoundedResponse {
  const { body, headers, status } = response;
  const bytes = async (max: number): Promise<Uint8Array> => {
    if (isStream(body)) return Buffer.concat(await collected(body, max));
    const whole = await response.text();
    if (whole.length > max) throw tooLong(max);
    return Buffer.from(whole);
  };
  return { status, bytes, ...(headers && { headers }) };
}

async function collected(stream: AsyncIterable<Uint8Array>, max: number): Promise<Uint8Array[]> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of stream) {
    size += chunk.byteLength;
    if (size > max) throw tooLong(max);
    chunks.push(chunk);
  }
  return chunks;
}

function isStream(body: unknown): body is AsyncIterable<Uint8Array> {
  return typeof body === 'object' && body !== null && Symbol.asyncIterator in body;
}

/** More has come than may be read of an answer. */
export class AnswerTooLong extends Error {}

function tooLong(max: number): Error {
  return new AnswerTooLong(`the answer is longer than the ${max} bytes that an answer may have`);
}
