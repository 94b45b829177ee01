/** A listening HTTP server on Node and on Bun, with limits on slow clients and an orderly end; for all programs. */
import { randomBytes } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { systemClock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { type Answer, toListener } from '../http/bridge.ts';
import { TLS_MIN_VERSION } from '../send/tls.ts';
import { Doorman } from './door.ts';
import { UsageError } from './flags.ts';
import { type Log, sparingly } from './log.ts';
import type { ServerTls } from './tls-files.ts';

const KEEP_ALIVE_MS = 65_000;
/** How long the headers of a request may take, and a handshake. */
export const HEADERS_TIMEOUT_MS = 10_000;
/** Until a port is tried again that somebody else has taken. */
const AGAIN_MS = 1_000;

/** The program cannot run, for a reason outside of it: told without a stack, with exit code 1. */
export class StartError extends Error {}

export interface Server {
  url: string;
  port: number;
  /** No new connections; resolves when the running requests are answered. */
  stop(): Promise<true>;
  /** Ends what is still open. */
  cut(): void;
  /** Resolves when these certificates count for whoever connects; for a server that was started with some. */
  secure(tls: ServerTls): Promise<void>;
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
    const open: Open = (port, certificates) => started({ ...at, port }, limits, answer, log, certificates);
    const first = await open(at.port, tls);
    const server = tls && !first.secure ? changingHands(first, open, log) : { secure: async () => {}, ...first };
    const host = at.host ?? '127.0.0.1';
    return { ...server, url: `${tls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${server.port}` };
  } catch (error) {
    throw new StartError(explainListen(at, error), { cause: error });
  }
}

type Listening = Omit<Server, 'url' | 'secure'> & Partial<Pick<Server, 'secure'>>;
type Open = (port: number, tls: ServerTls | undefined) => Promise<Listening>;

/** Bun has no way to give a server other certificates: another one takes over its port. */
function changingHands(first: Listening, open: Open, log: Log): Omit<Server, 'url'> {
  const { port } = first;
  let server = first;
  let change = Promise.resolve();
  const stopped = new AbortController();
  /** Those before, as long as requests to them are under way. */
  const before = new Map<Listening, Promise<true>>();
  return {
    port,
    stop: async () => {
      stopped.abort();
      await change;
      await Promise.all([server.stop(), ...before.values()]);
      return true;
    },
    cut: () => {
      stopped.abort();
      for (const one of [server, ...before.keys()]) one.cut();
    },
    secure: (next) => {
      change = change.then(async () => {
        const old = server;
        before.set(
          old,
          old.stop().finally(() => before.delete(old)),
        );
        while (server === old && !stopped.signal.aborted) {
          try {
            server = await open(port, next);
          } catch (error) {
            // Somebody else may have taken the port in between.
            const message = explainListen({ host: undefined, port }, error);
            log('error', 'error', { code: 'LISTENER_FAILED', message });
            await systemClock.sleep(AGAIN_MS, stopped.signal);
          }
        }
      });
      return change;
    },
  };
}

async function started(
  at: Listen,
  { clientTimeoutMs, maxConnections, maxConnectionsPerAddress }: ClientLimits,
  answer: Answer,
  log: Log,
  tls: ServerTls | undefined,
): Promise<Listening> {
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
  const sparing = sparingly(log, systemClock);
  server.maxConnections = maxConnections;
  server.on('drop', () => sparing('warn', 'warning', { code: 'too-many-connections', message: FULL }));
  // A client that does not read its answer.
  server.timeout = 2 * clientTimeoutMs;
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
    if (socket.destroyed) return;
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
    ...(canChange(server) && {
      secure: async (next: ServerTls) => {
        // With the old keys a client whom the new authorities do not know could resume its session.
        server.setSecureContext({ ...secureContext(next), ticketKeys: randomBytes(48) });
        endConnections();
      },
    }),
  };
}

function canChange(server: http.Server | https.Server): server is https.Server {
  return 'setSecureContext' in server;
}

function secureContext({ cert, key, ca }: ServerTls) {
  const clients = ca === undefined ? {} : { ca, requestCert: true, rejectUnauthorized: true };
  return { cert, key, minVersion: TLS_MIN_VERSION, ...clients } as const;
}

function endOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

const FULL = 'there are as many connections as there may be, and others were cut off; -max-connections allows more';
const CROWDED = 'an address has as many connections as one may; -max-connections-per-address allows more';

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
