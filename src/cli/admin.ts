/** The operator's door of a running program: a socket beside the database file, and a port where one is asked for. */
import { createHash } from 'node:crypto';
import { chmodSync, unlinkSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { administer, type Routes, routesOf, type TokenNow } from '../admin/answer.ts';
import type { Administered } from '../admin/index.ts';
import { type Clock, systemClock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { toListener } from '../http/bridge.ts';
import type { AdminToken } from './admin-token.ts';
import { Doorman, isLoopback, onlyByName } from './door.ts';
import { choice, type Flag, file, UsageError } from './flags.ts';
import { explainListen, HEADERS_TIMEOUT_MS, type Listen, parseListen, StartError } from './listen.ts';
import type { Log } from './log.ts';
import { fileBehind } from './open.ts';
import type { RecentLines } from './recent-lines.ts';
import type { AlsoInHealth } from './tls-files.ts';

export const adminFlags = {
  admin: choice(['on', 'off'], 'A socket beside the database file, by which "rowcast status" and others speak to it.'),
  adminListen: {
    placeholder: 'host:port',
    help: 'For the same, and the console at /_rowcast/, in the clear: a loopback address, or any with -admin-token-file.',
    optional: true,
    parse: (value: string): Listen | undefined => parseListen(value),
  } satisfies Flag<Listen | undefined>,
  adminTokenFile: file('A file with the token that whoever asks at -admin-listen has to show.'),
};

interface AdminFlags {
  db: string;
  admin: 'on' | 'off';
  adminListen: Listen | undefined;
  adminTokenFile: string | undefined;
  host: string[];
  clientTimeoutMs: number;
}

export interface AdminDoor {
  /** Where it listens; undefined where it does not. */
  socket: string | undefined;
  url: string | undefined;
  close(): void;
}

/** The path of a socket is limited to this many bytes by the system. */
const PATH_MAX = 103;

/** Where the socket of a database file is; undefined for one that has no file. */
export function socketOf(db: string): string | undefined {
  if (db === ':memory:' || db === '') return undefined;
  const beside = `${resolve(fileBehind(db))}-rowcast.sock`;
  if (Buffer.byteLength(beside) <= PATH_MAX) return beside;
  const name = createHash('sha256').update(beside).digest('hex').slice(0, 24);
  return join(tmpdir(), `rowcast-${name}.sock`);
}

/** Checked before anything is opened: who may ask at the port. */
export function checkAdminFlags({ adminListen, adminTokenFile }: AdminFlags): void {
  if (adminListen && !isLoopback(adminListen.host) && adminTokenFile === undefined) {
    throw new UsageError('-admin-listen on another address than loopback needs -admin-token-file');
  }
}

/** The log, the last of what was written to it, what is wrong beside the subject, and what whoever asks at the port has to show. */
interface Beside {
  alsoInHealth?: AlsoInHealth;
  log: Log;
  recent: RecentLines;
  token: Pick<AdminToken, 'now'>;
  clock?: Clock;
}

/** How often a program without the socket of its file looks whether it can be had by now. */
const LOOK_MS = 5_000;

export async function openAdminDoor(
  subject: Administered,
  flags: AdminFlags,
  { log, recent, token, alsoInHealth = (health) => health, clock = systemClock }: Beside,
): Promise<AdminDoor> {
  // One comparison at a time, by whichever door it was begun, and seen through both.
  const routes = routesOf(subject, { log: (after) => recent.after(after) });
  routes['GET status'] = async () => alsoInHealth((await subject.status()) as { ok: boolean });
  const servers: http.Server[] = [];
  const socket = flags.admin === 'on' ? socketOf(flags.db) : undefined;
  const { adminListen } = flags;
  let url: string | undefined;
  if (adminListen) {
    const names = isLoopback(adminListen.host) ? flags.host : undefined;
    const server = serverFor(routes, token.now, names, flags.clientTimeoutMs);
    fewOfOneAddress(server);
    await listening(server, { port: adminListen.port, host: adminListen.host }).catch((error) => {
      throw new StartError(explainListen(adminListen, error).replaceAll('-listen', '-admin-listen'), { cause: error });
    });
    servers.push(server);
    const { port } = server.address() as net.AddressInfo;
    const host = adminListen.host ?? '127.0.0.1';
    url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
  }
  const over = new AbortController();
  let opened: http.Server | undefined;
  if (socket !== undefined) {
    const open = (): Promise<http.Server> => openSocket(routes, socket, flags.clientTimeoutMs);
    try {
      opened = await open();
      servers.push(opened);
    } catch (error) {
      log('warn', 'warning', { code: 'no-admin-socket', message: `${messageOf(error)}; it is looked for again` });
      void openLater(open, clock, over.signal).then((server) => {
        if (!server) return;
        servers.push(server);
        log('info', 'admin-socket', { socket });
      });
    }
  }
  return {
    socket: opened && socket,
    url,
    close: () => {
      over.abort();
      for (const server of servers) {
        server.close();
        server.closeAllConnections?.();
      }
    },
  };
}

/** A program that was killed leaves its socket behind; one that runs on the same file has it. */
async function openSocket(routes: Routes, path: string, clientTimeoutMs: number): Promise<http.Server> {
  if (await isAnswered(path)) {
    throw new Error(`another program answers at ${path}: it alone can be administered there until it has ended`);
  }
  try {
    removeStale(path);
    const server = serverFor(routes, NO_TOKEN, undefined, clientTimeoutMs);
    await listening(server, { path });
    // The umask has seen to it; a system that ignores it for sockets must not open the door.
    chmodSync(path, 0o600);
    return server;
  } catch (error) {
    throw new Error(`no socket at ${path}: ${messageOf(error)}`, { cause: error });
  }
}

/** Whoever else had it may end first: then nobody would answer for this file, although somebody runs on it. */
async function openLater(
  open: () => Promise<http.Server>,
  clock: Clock,
  signal: AbortSignal,
): Promise<http.Server | undefined> {
  for (;;) {
    await clock.sleep(LOOK_MS, signal);
    if (signal.aborted) return undefined;
    const server = await open().catch(() => undefined);
    if (server && signal.aborted) server.close();
    if (signal.aborted) return undefined;
    if (server) return server;
  }
}

/** Whoever is slow, or never reads what it has asked for, must not keep the operator out. */
function serverFor(routes: Routes, token: TokenNow, names: string[] | undefined, clientTimeoutMs: number): http.Server {
  const answer = administer(routes, token);
  const listener = toListener(names ? onlyByName(answer, names) : answer);
  const server = http.createServer(
    {
      requestTimeout: clientTimeoutMs,
      headersTimeout: Math.min(HEADERS_TIMEOUT_MS, clientTimeoutMs),
      connectionsCheckingInterval: Math.min(1_000, clientTimeoutMs),
    },
    listener,
  );
  server.maxConnections = CONNECTIONS_MAX;
  // Longer than at the other door: to try many letters again takes its time before there is an answer.
  server.timeout = 10 * clientTimeoutMs;
  return server;
}

/** The socket is for whoever may open it. */
const NO_TOKEN: TokenNow = () => undefined;

const CONNECTIONS_MAX = 100;
/** A browser has six. */
const CONNECTIONS_PER_ADDRESS_MAX = 25;

function fewOfOneAddress(server: http.Server): void {
  const doorman = new Doorman(CONNECTIONS_PER_ADDRESS_MAX);
  server.on('connection', (socket: net.Socket) => {
    const address = socket.remoteAddress ?? '';
    if (!doorman.enter(address)) {
      socket.destroy();
      return;
    }
    socket.on('close', () => doorman.leave(address));
  });
}

function listening(server: http.Server, at: net.ListenOptions): Promise<void> {
  return new Promise((done, fail) => {
    server.once('error', fail);
    server.listen(at, () => {
      server.off('error', fail);
      server.on('error', () => {});
      done();
    });
  });
}

function isAnswered(path: string): Promise<boolean> {
  return new Promise((done) => {
    const socket = net.connect({ path });
    socket.once('connect', () => {
      socket.destroy();
      done(true);
    });
    socket.once('error', () => done(false));
  });
}

function removeStale(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // There is none.
  }
}
