/**
 * The default way to ask a peer. On Node this is node:http with kept connections: the global fetch costs four to five
 * times the CPU for the same request. On Bun the global fetch is the fastest there is.
 */
import http from 'node:http';
import https from 'node:https';

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
) => Promise<{ status: number; text(): Promise<string>; headers?: { get(name: string): string | null } }>;

/** How a peer is asked for its `/health`. */
export type Get = (url: string, init: { headers: Record<string, string>; signal: AbortSignal }) => ReturnType<Fetch>;

/** An acknowledgement lists its dead letters, at most ten thousand; whatever is larger than this is not one. */
const ANSWER_BYTES_MAX = 16 * 1024 * 1024;

export interface Transport {
  fetch: Fetch;
  /** Undefined where only a `fetch` was given: it need not be able to do more than POST. */
  get: Get | undefined;
  /** Resolves when a request that was just begun is on its way. */
  untilSent: () => Promise<void>;
  /** Closes kept connections. */
  close(): void;
}

/** Somebody else's fetch: how it sends is not ours to know. */
export function givenTransport(fetch: Fetch, get: Get | undefined): Transport {
  return { fetch, get, untilSent: () => Promise.resolve(), close: () => {} };
}

export function defaultTransport(): Transport & { get: Get } {
  const untilSent = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  if (process.versions.bun !== undefined)
    return {
      fetch: (url, init) => fetch(url, init as RequestInit),
      get: (url, { headers, signal }) => fetch(url, { headers, signal, redirect: 'manual' }),
      untilSent,
      close: () => {},
    };
  const agents = {
    'http:': new http.Agent({ keepAlive: true }),
    'https:': new https.Agent({ keepAlive: true }),
  };
  return {
    fetch: (url, init) => request(new URL(url), init, agents),
    get: (url, { headers, signal }) => request(new URL(url), { method: 'GET', headers, signal }, agents),
    untilSent,
    close: () => {
      agents['http:'].destroy();
      agents['https:'].destroy();
    },
  };
}

function request(
  url: URL,
  init: { method: string; headers: Record<string, string>; body?: Uint8Array; signal: AbortSignal },
  agents: { 'http:': http.Agent; 'https:': https.Agent },
): ReturnType<Fetch> {
  return new Promise((resolve, reject) => {
    const secure = url.protocol === 'https:';
    const outgoing = (secure ? https : http).request(url, {
      method: init.method,
      headers: { ...init.headers, ...(init.body && { 'content-length': init.body.byteLength }) },
      agent: agents[secure ? 'https:' : 'http:'],
      signal: init.signal,
    });
    outgoing.on('error', reject);
    // Without a listener Node drops the connection and says nothing more, not even when the request is aborted.
    outgoing.on('upgrade', (response, socket) => {
      socket.destroy();
      reject(new Error(`HTTP ${response.statusCode}, which no request of ours asks for`));
    });
    outgoing.on('response', (response) => {
      const chunks: Buffer[] = [];
      let size = 0;
      response.on('error', reject);
      // A connection that closes before the announced length is a torn answer, not an empty one.
      response.on('aborted', () => reject(new Error('the answer broke off')));
      response.on('data', (chunk: Buffer) => {
        size += chunk.length;
        if (size > ANSWER_BYTES_MAX) response.destroy(new Error('the answer is too large to be an acknowledgement'));
        else chunks.push(chunk);
      });
      response.on('end', () => {
        const body = Buffer.concat(chunks).toString();
        resolve({
          status: response.statusCode ?? 0,
          text: () => Promise.resolve(body),
          headers: { get: (name) => String(response.headers[name] ?? '') || null },
        });
      });
    });
    outgoing.end(init.body);
  });
}
