/** Peers that answer wrongly: over real sockets, or in place of `fetch` where a test counts requests or owns the time. */
import type http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { createListener } from '../../src/http/index.ts';
import type { Fetch, Manager } from '../../src/index.ts';
import { cleanUp, serve } from './nodes.ts';
import { freePorts } from './programs.ts';
import { batchIn } from './tabular.ts';

export interface BadServer {
  url: string;
  /** How many requests (HTTP) or connections (raw) it has answered badly. */
  answered(): number;
  /** From now on it is an ordinary peer. */
  heal(manager: Manager): void | Promise<void>;
}

/** Reads the whole request and then gives the answer that the test wants. */
export async function badHttp(
  answer: (request: { body: string; path: string }, response: http.ServerResponse) => void,
): Promise<BadServer> {
  let healthy: http.RequestListener | undefined;
  let count = 0;
  const url = await serve((request, response) => {
    if (healthy) return healthy(request, response);
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      count += 1;
      answer({ body: Buffer.concat(chunks).toString(), path: request.url ?? '' }, response);
    });
  });
  return {
    url,
    answered: () => count,
    heal: (manager) => {
      healthy = createListener(manager);
    },
  };
}

/** A status and a body, always the same. */
export function badStatus(status: number, body = '', headers: Record<string, string> = {}): Promise<BadServer> {
  return badHttp((_request, response) => {
    response.writeHead(status, headers);
    response.end(body);
  });
}

/** Below HTTP: `misbehave` gets the socket as soon as the first bytes of a request are there. */
export async function badSocket(misbehave: (socket: net.Socket) => void): Promise<BadServer> {
  let upstream: number | undefined;
  let count = 0;
  const sockets = new Set<net.Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {});
    if (upstream !== undefined) {
      const healthy = net.connect(upstream, '127.0.0.1');
      healthy.on('error', () => socket.destroy());
      socket.pipe(healthy).pipe(socket);
      return;
    }
    socket.once('data', () => {
      count += 1;
      misbehave(socket);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanUp(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    answered: () => count,
    heal: async (manager) => {
      upstream = Number(new URL(await serve(createListener(manager))).port);
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** A port on which nobody listens, until it heals. */
export async function nobody(): Promise<BadServer> {
  const [port] = (await freePorts(1)) as [number];
  return {
    url: `http://127.0.0.1:${port}`,
    answered: () => 0,
    heal: async (manager) => {
      await serve(createListener(manager), port);
    },
  };
}

export interface Sent {
  url: string;
  batchId: number;
  changes: { op: string; table: string; row: Record<string, unknown>; old_id: string | null }[];
  bytes: number;
}

export interface Reply {
  status: number;
  body: string;
  headers?: Record<string, string>;
}

export interface RecordingFetch {
  fetch: Fetch;
  sent: Sent[];
}

/** Stands in for the network: records what is sent and answers as told. Throwing is a connection error. */
export function recordingFetch(answer: (sent: Sent, raw: Uint8Array) => Reply | Promise<Reply>): RecordingFetch {
  const sent: Sent[] = [];
  return {
    sent,
    fetch: async (url, init) => {
      const { batch_id, changes } = batchIn(init.body);
      const one = { url, batchId: batch_id, changes, bytes: init.body.byteLength };
      sent.push(one);
      const { status, body, headers } = await untilAborted(answer(one, init.body), init.signal);
      return { status, text: async () => body, ...(headers && { headers: new Headers(headers) }) };
    },
  };
}

/** The answer of a real manager. */
export function receivedBy(manager: Manager, raw: Uint8Array): Reply {
  const { status, body } = manager.receive(raw);
  return { status, body: JSON.stringify(body) };
}

export function acknowledged(sent: Sent): Reply {
  return { status: 200, body: JSON.stringify({ applied: sent.changes.length, ack: sent.batchId }) };
}

export function connectionError(): never {
  throw new Error('connect ECONNREFUSED');
}

/** An answer that never comes; the request still ends when it is aborted. */
export function never(): Promise<never> {
  return new Promise(() => {});
}

function untilAborted<T>(answer: T | Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(new Error('aborted'));
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort, { once: true });
    Promise.resolve(answer).then(resolve, reject);
  });
}
