/** A listening HTTP server on Node and on Bun, with limits on slow clients and an orderly end; for all programs. */
import http from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { systemClock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { type Answer, type BodyRead, type Incoming, toHandler, toListener } from '../http/bridge.ts';
import { Doorman } from './door.ts';
import { failure } from './failure.ts';
import { UsageError } from './flags.ts';
import { type Log, sparingly } from './log.ts';

const KEEP_ALIVE_MS = 65_000;
const HEADERS_TIMEOUT_MS = 10_000;

/** The program cannot run, for a reason outside of it: told without a stack, with exit code 1. */
export class StartError extends Error {}

export interface Server {
  url: string;
  port: number;
  /** No new connections; resolves when the running requests are answered. */
  stop(): Promise<true>;
  /** Ends what is still open. */
  cut(): void;
}

/** What clients may take of the program. */
export interface ClientLimits {
  /** How long a client may take to send its request. */
  clientTimeoutMs: number;
  maxConnections: number;
  /** 0: as many as there are. */
  maxConnectionsPerAddress: number;
}

export async function listen(at: Listen, limits: ClientLimits, answer: Answer, log: Log): Promise<Server> {
  try {
    const server =
      process.versions.bun !== undefined
        ? listenOnBun(at, limits, answer)
        : await listenOnNode(at, limits, answer, log);
    const host = at.host ?? '127.0.0.1';
    return { ...server, url: `http://${host.includes(':') ? `[${host}]` : host}:${server.port}` };
  } catch (error) {
    throw new StartError(explainListen(at, error), { cause: error });
  }
}

async function listenOnNode(
  at: Listen,
  { clientTimeoutMs, maxConnections, maxConnectionsPerAddress }: ClientLimits,
  answer: Answer,
  log: Log,
): Promise<Omit<Server, 'url'>> {
  const server = http.createServer({
    headersTimeout: Math.min(HEADERS_TIMEOUT_MS, clientTimeoutMs),
    requestTimeout: clientTimeoutMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(1_000, clientTimeoutMs),
  });
  server.maxConnections = maxConnections;
  // A client that does not read its answer.
  server.timeout = 2 * clientTimeoutMs;
  const sparing = sparingly(log, systemClock);
  const idle = new Set<Socket>();
  const running = new Set<http.ServerResponse>();
  let stopping = false;
  const doorman = new Doorman(maxConnectionsPerAddress);
  server.on('connection', (socket) => {
    const address = socket.remoteAddress ?? '';
    if (!doorman.enter(address)) {
      socket.destroy();
      sparing('warn', 'warning', { code: 'too-many-connections', message: CROWDED, address });
      return;
    }
    idle.add(socket);
    socket.on('close', () => {
      idle.delete(socket);
      doorman.leave(address);
    });
  });
  const listener = toListener(answer);
  server.on('request', (request, response) => {
    const { socket } = request;
    idle.delete(socket);
    running.add(response);
    if (stopping) response.setHeader('connection', 'close');
    response.on('close', () => {
      running.delete(response);
      if (stopping) socket.end();
      else if (!socket.destroyed) idle.add(socket);
    });
    listener(request, response);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port: at.port, host: at.host }, () => {
      server.off('error', reject);
      // Out of file handles, for instance: connections wait, and the node does not fall over it.
      server.on('error', (error) => sparing('error', 'error', { code: 'ACCEPT_FAILED', message: error.message }));
      resolve();
    });
  });
  return {
    port: (server.address() as AddressInfo).port,
    stop: () => {
      stopping = true;
      const closed = new Promise<true>((resolve) => server.close(() => resolve(true)));
      for (const response of running) if (!response.headersSent) response.setHeader('connection', 'close');
      for (const socket of idle) socket.destroy();
      return closed;
    },
    cut: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

const CROWDED = 'an address has as many connections as one may; -max-connections-per-address allows more';

/** The part of Bun that is used; its own types are not there when this is compiled for Node. */
interface BunLike {
  serve(options: {
    port: number;
    hostname?: string;
    idleTimeout: number;
    fetch(request: Request, server: BunServer): Promise<Response>;
    error(): Response;
  }): BunServer;
}

interface BunServer {
  port: number;
  stop(now?: boolean): Promise<void>;
  requestIP(request: Request): { address: string } | null;
}

/** Bun does not tell of connections: there the limits are of requests under way. */
function listenOnBun(at: Listen, limits: ClientLimits, answer: Answer): Omit<Server, 'url'> {
  const { clientTimeoutMs, maxConnections, maxConnectionsPerAddress } = limits;
  const { Bun } = globalThis as unknown as { Bun: BunLike };
  const everybody = new Doorman(maxConnections);
  const doorman = new Doorman(maxConnectionsPerAddress);
  const handler = toHandler(withDeadline(answer, clientTimeoutMs));
  const server = Bun.serve({
    port: at.port,
    ...(at.host !== undefined && { hostname: at.host }),
    // In seconds; between any two bytes. Bun has no limit for a whole request, hence the deadline for the body.
    idleTimeout: Math.min(255, Math.max(1, Math.ceil(clientTimeoutMs / 1_000))),
    fetch: async (request, bun) => {
      const address = bun.requestIP(request)?.address ?? '';
      if (!everybody.enter('')) return overcrowded();
      try {
        if (!doorman.enter(address)) return overcrowded();
        try {
          return await handler(request);
        } finally {
          doorman.leave(address);
        }
      } finally {
        everybody.leave('');
      }
    },
    // The client is gone, and nobody reads this.
    error: () => new Response(null, { status: 400 }),
  });
  return {
    port: server.port,
    stop: () => server.stop().then(() => true),
    cut: () => void server.stop(true),
  };
}

function overcrowded(): Response {
  const { status, headers, body } = failure(503, 'too many requests at a time: try again');
  return new Response(body, { status, headers: { ...headers, connection: 'close' } });
}

function withDeadline(answer: Answer, ms: number): Answer {
  return async (incoming) => {
    let late = false;
    const read: Incoming['read'] = async (max, tap): Promise<BodyRead> => {
      const body = await within(ms, incoming.read(max, tap));
      late = body === undefined;
      if (body === undefined) throw new Error('the client is too slow');
      return body;
    };
    try {
      return await answer({ ...incoming, read });
    } catch (error) {
      if (!late) throw error;
      const { headers, ...rest } = failure(408, `the body did not arrive within ${ms} ms`);
      return { ...rest, headers: { ...headers, connection: 'close' } };
    }
  };
}

/** What `promise` brings, or undefined after `ms`. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  const settled = new AbortController();
  const timeout = systemClock.sleep(ms, settled.signal).then(() => undefined);
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    settled.abort();
  }
}

export interface Listen {
  /** Undefined: every interface. */
  host: string | undefined;
  port: number;
}

export function parseListen(value: string): Listen {
  const [, host, port] = /^(?:(\[[^\]]+\]|[^:[\]]*):)?(\d{1,5})$/.exec(value) ?? [];
  if (port === undefined || Number(port) > 65_535) {
    throw new UsageError(`must be host:port such as 127.0.0.1:9001, not ${JSON.stringify(value)}`);
  }
  return { host: host ? host.replace(/^\[|\]$/g, '') : undefined, port: Number(port) };
}

export function explainListen(at: Listen, error: unknown): string {
  const where = `${at.host ?? ''}:${at.port}`;
  switch ((error as { code?: string }).code) {
    case 'EADDRINUSE':
      return `port ${at.port} is taken: another program listens on ${where}; choose another -listen`;
    case 'EACCES':
      return `no permission to listen on ${where}: ports below 1024 need it`;
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `host ${at.host} of -listen is not known`;
    case 'EADDRNOTAVAIL':
      return `${at.host} of -listen is not an address of this machine`;
    default:
      return `cannot listen on ${where}: ${messageOf(error)}`;
  }
}
