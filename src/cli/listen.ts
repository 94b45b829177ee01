/** A listening HTTP server on Node and on Bun, with limits on slow clients and an orderly end; for all programs. */
import { randomBytes } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { systemClock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { type Answer, type BodyRead, type Incoming, toHandler, toListener } from '../http/bridge.ts';
import { TLS_MIN_VERSION } from '../send/tls.ts';
import { Doorman } from './door.ts';
import { failure } from './failure.ts';
import { UsageError } from './flags.ts';
import { type Log, sparingly } from './log.ts';
import type { ServerTls } from './tls-files.ts';

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
  /** From the next connection on, these certificates count; for a server that was started with some. */
  secure(tls: ServerTls): void;
}

/** What clients may take of the program. */
export interface ClientLimits {
  /** How long a client may take to send its request. */
  clientTimeoutMs: number;
  maxConnections: number;
  /** 0: as many as there are. */
  maxConnectionsPerAddress: number;
}

/** With `tls`, HTTPS and nothing else. */
export async function listen(
  at: Listen,
  limits: ClientLimits,
  answer: Answer,
  log: Log,
  tls?: ServerTls,
): Promise<Server> {
  try {
    const server =
      process.versions.bun !== undefined
        ? listenOnBun(at, limits, answer, tls)
        : await listenOnNode(at, limits, answer, log, tls);
    const host = at.host ?? '127.0.0.1';
    return { ...server, url: `${tls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${server.port}` };
  } catch (error) {
    throw new StartError(explainListen(at, error), { cause: error });
  }
}

async function listenOnNode(
  at: Listen,
  { clientTimeoutMs, maxConnections, maxConnectionsPerAddress }: ClientLimits,
  answer: Answer,
  log: Log,
  tls: ServerTls | undefined,
): Promise<Omit<Server, 'url'>> {
  const headersTimeout = Math.min(HEADERS_TIMEOUT_MS, clientTimeoutMs);
  const timeouts = {
    headersTimeout,
    requestTimeout: clientTimeoutMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(1_000, clientTimeoutMs),
  };
  const server = tls
    ? https.createServer({ ...timeouts, ...secureContext(tls), handshakeTimeout: headersTimeout })
    : http.createServer(timeouts);
  server.maxConnections = maxConnections;
  // A client that does not read its answer.
  server.timeout = 2 * clientTimeoutMs;
  const sparing = sparingly(log, systemClock);
  const idle = new Set<Socket>();
  const running = new Set<http.ServerResponse>();
  let stopping = false;
  const doorman = new Doorman(maxConnectionsPerAddress);
  /** Bare connections under HTTPS, by the client's end. */
  const handshakes = new Map<string, Socket>();
  const endConnections = (): void => {
    for (const response of running) if (!response.headersSent) response.setHeader('connection', 'close');
    for (const socket of idle) socket.destroy();
  };
  server.on('connection', (socket) => {
    const address = socket.remoteAddress ?? '';
    if (!doorman.enter(address)) {
      socket.destroy();
      sparing('warn', 'warning', { code: 'too-many-connections', message: CROWDED, address });
      return;
    }
    idle.add(socket);
    if (tls) handshakes.set(endOf(socket), socket);
    socket.on('close', () => {
      idle.delete(socket);
      if (tls) handshakes.delete(endOf(socket));
      doorman.leave(address);
    });
  });
  // From here on the connection is another object, and the bare one is not to be ended under it.
  server.on('secureConnection', (secured: TLSSocket) => {
    const bare = handshakes.get(endOf(secured));
    if (bare) idle.delete(bare);
    idle.add(secured);
    secured.on('close', () => idle.delete(secured));
  });
  server.on('tlsClientError', (error: Error & { code?: string }, socket: TLSSocket) => {
    // A text, whatever its type says: UNABLE_TO_VERIFY_LEAF_SIGNATURE.
    const reason = socket.authorizationError ? String(socket.authorizationError) : error.code;
    // Somebody who only looks whether the port is open.
    if (reason === undefined || reason === 'ECONNRESET') return;
    const address = socket.remoteAddress;
    sparing('warn', 'warning', { code: 'tls-handshake', message: `a client was turned away: ${reason}`, address });
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
      endConnections();
      return closed;
    },
    cut: () => {
      server.close();
      server.closeAllConnections();
      for (const socket of handshakes.values()) socket.destroy();
    },
    secure: (next) => {
      if (!(server instanceof https.Server)) return;
      // With the old keys a client whom the new authorities do not know could resume its session.
      server.setSecureContext({ ...secureContext(next), ticketKeys: randomBytes(48) });
      endConnections();
    },
  };
}

function secureContext({ cert, key, ca }: ServerTls) {
  const clients = ca === undefined ? {} : { ca, requestCert: true, rejectUnauthorized: true };
  return { cert, key, minVersion: TLS_MIN_VERSION, ...clients } as const;
}

function endOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

const CROWDED = 'an address has as many connections as one may; -max-connections-per-address allows more';

/** The part of Bun that is used; its own types are not there when this is compiled for Node. */
interface BunLike {
  serve(options: {
    port: number;
    hostname?: string;
    idleTimeout: number;
    tls?: ServerTls & { requestCert?: boolean; rejectUnauthorized?: boolean };
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
function listenOnBun(
  at: Listen,
  limits: ClientLimits,
  answer: Answer,
  first: ServerTls | undefined,
): Omit<Server, 'url'> {
  const { clientTimeoutMs, maxConnections, maxConnectionsPerAddress } = limits;
  const { Bun } = globalThis as unknown as { Bun: BunLike };
  const everybody = new Doorman(maxConnections);
  const doorman = new Doorman(maxConnectionsPerAddress);
  const handler = toHandler(withDeadline(answer, clientTimeoutMs));
  const fetch = async (request: Request, bun: BunServer): Promise<Response> => {
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
  };
  const serve = (port: number, tls: ServerTls | undefined): BunServer =>
    Bun.serve({
      port,
      ...(at.host !== undefined && { hostname: at.host }),
      // In seconds; between any two bytes. Bun has no limit for a whole request, hence the deadline for the body.
      idleTimeout: Math.min(255, Math.max(1, Math.ceil(clientTimeoutMs / 1_000))),
      ...(tls && { tls: { ...tls, ...(tls.ca !== undefined && { requestCert: true, rejectUnauthorized: true }) } }),
      fetch,
      // The client is gone, and nobody reads this.
      error: () => new Response(null, { status: 400 }),
    });
  let server = serve(at.port, first);
  // A server that was stopped does not know it any more.
  const { port } = server;
  /** Those before, as long as requests to them are under way. */
  const before = new Map<BunServer, Promise<void>>();
  return {
    port,
    stop: () => Promise.all([server.stop(), ...before.values()]).then(() => true as const),
    cut: () => {
      for (const one of [server, ...before.keys()]) void one.stop(true);
    },
    // Bun's reload() keeps the certificates: the port changes hands instead.
    secure: (next) => {
      const old = server;
      before.set(
        old,
        old.stop().finally(() => before.delete(old)),
      );
      server = serve(port, next);
    },
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
