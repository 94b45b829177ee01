/** `rowcast serve`: one node as a program. Opens the database, serves the routes, ships to the peers, stops in order. */
import http from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { type Opened, openDatabase } from '../adapters/open.ts';
import { attach, type Manager } from '../attach.ts';
import { fold } from '../capture/schema.ts';
import { systemClock } from '../clock.ts';
import { normalisePeer } from '../config.ts';
import { type Database, isBusy } from '../database.ts';
import { messageOf } from '../errors.ts';
import { type Answer, type Outgoing, toHandler, toListener } from '../http/bridge.ts';
import { respond } from '../http/respond.ts';
import { respondItems } from '../items/routes.ts';
import { createItems, hasItemColumns, ITEM_COLUMNS, ITEMS_TABLE, ItemStore, indexItems } from '../items/store.ts';
import { choice, describeFlags, type Environment, integer, parseFlags, text, UsageError } from './flags.ts';
import { createLog, type Log, logEvents, sparingly } from './log.ts';

const MIB = 1024 * 1024;

export const SERVE_FLAGS = {
  id: { ...text('name', "This node's id: unlike every other node's, and the same after a restart."), parse: parseId },
  db: text('file', 'The database file, created when missing and put into WAL mode. :memory: for a try.'),
  listen: {
    ...text('host:port', 'Where to listen. :9001 is every interface, port 0 is any free one.'),
    parse: parseListen,
    default: '127.0.0.1:9001',
  },
  peer: {
    ...text('url', 'Base URL of a node to ship to. Name every other node; /sync is appended.'),
    parse: parsePeer,
    repeatable: true as const,
  },
  table: text(
    'name',
    'Sync this existing table instead of items. It needs id TEXT PRIMARY KEY and updated_at INTEGER.\n' +
      'The item routes are then served only if items is one of the tables and has their columns.',
    { repeatable: true },
  ),
  binding: choice(
    ['auto', 'better-sqlite3', 'node-sqlite', 'bun-sqlite'],
    'The SQLite binding. auto: bun:sqlite on Bun; on Node better-sqlite3 if it loads, else node:sqlite.',
  ),
  synchronous: choice(
    ['full', 'normal'],
    'full: an answered write survives a power cut. normal: faster, the latest writes may not.',
  ),
  batchMs: integer('How often to look for changes, in milliseconds. Writes through the routes ship at once.', {
    default: 50,
    min: 1,
    max: 3_600_000,
  }),
  batchSize: integer('Most changes in one batch.', { default: 2_000, min: 1, max: 10_000 }),
  requestTimeoutMs: integer('How long a peer may take to answer.', { default: 30_000, min: 1, max: 3_600_000 }),
  maxBodyBytes: integer('Largest body that /sync reads.', { default: 64 * MIB, min: 1_024, max: 512 * MIB }),
  clientTimeoutMs: integer('How long a client may take to send its request.', {
    default: 60_000,
    min: 100,
    max: 3_600_000,
  }),
  busyMs: integer(
    "How long a start waits for another process's lock on the database; a running node waits 5000 or more.",
    {
      default: 5_000,
      min: 0,
      max: 600_000,
    },
  ),
  stopMs: integer('How long a stop may take: half for running requests, the rest for shipping.', {
    default: 5_000,
    min: 0,
    max: 3_600_000,
  }),
};

export const SERVE_HELP = `rowcast serve: run one node

  rowcast serve -id a -db a.db -listen 127.0.0.1:9001 -peer http://127.0.0.1:9002
  rowcast serve -id b -db b.db -listen 127.0.0.1:9002 -peer http://127.0.0.1:9001

Then, in a third terminal, write to one node and read from the other:

  curl -H 'content-type: application/json' -d '{"name":"first","value":1}' http://127.0.0.1:9001/api/items
  curl http://127.0.0.1:9002/api/items

Sync the tables of a database that your application writes to:

  rowcast serve -id a -db app.db -table users -table orders -peer http://10.0.0.2:9001

Flags (-id x, --id x and --id=x are the same; a flag wins over its environment variable):

${describeFlags(SERVE_FLAGS)}

Routes: POST /sync, GET /health, GET and POST /api/items, POST /api/items/batch, GET, PUT and DELETE /api/items/:id.
There is no authentication: listen on a private network, or behind a proxy that has it.

Standard output is a log of one JSON object per line, written when a state changes: started, peer-up, peer-down,
dead-letter, parked, warning, error, stopping, stopped. Why the program could not start is on standard error.

SIGTERM or SIGINT stops in order: no new connections, running requests end, what is pending is shipped, the database is
closed. A second signal ends the program at once.
Exit codes: 0 stopped as asked, 1 it could not run, 2 a wrong command line.
`;

/** Ctrl-C under npm or npx comes twice, from the terminal and from npm: signals this close together are one. */
const SAME_SIGNAL_MS = 250;
const SIGNALS = { SIGINT: 130, SIGTERM: 143 } as const;
const CONNECTIONS_MAX = 10_000;
const KEEP_ALIVE_MS = 65_000;
const HEADERS_TIMEOUT_MS = 10_000;

/** The program cannot run, for a reason outside of it: told without a stack, with exit code 1. */
export class StartError extends Error {}

/** Runs until a signal stops it; resolves to the exit code. */
export async function serve(args: string[], env: Environment): Promise<number> {
  const flags = parseFlags(SERVE_FLAGS, args, env);
  if (flags === 'help') {
    process.stdout.write(SERVE_HELP);
    return 0;
  }
  // Whoever reads the log may go away; the node does not.
  process.stdout.on('error', () => {});
  const log = createLog(flags.id, systemClock, (line) => process.stdout.write(line));
  const { binding, busyMs, synchronous, batchMs, batchSize, requestTimeoutMs, maxBodyBytes, stopMs } = flags;
  let answer: Answer = async () => failure(503, 'starting');
  // The port comes first: a second start of the same command must not touch the database.
  const server = await listen(flags.listen, flags.clientTimeoutMs, (incoming) => answer(incoming), log);
  const tables = flags.table.length > 0 ? flags.table : [ITEMS_TABLE];
  let opened: Opened | undefined;
  let manager: Manager | undefined;
  let store: ItemStore | undefined;
  try {
    opened = openDatabase(flags.db, { binding: binding === 'auto' ? undefined : binding, busyMs, synchronous });
    const routed = preparedItems(opened.db, flags.table);
    const config = { id: flags.id, peers: flags.peer, batchMs, batchSize, requestTimeoutMs, maxBodyBytes };
    manager = attach(opened.db, config, tables);
    // After attach, which knows whether this is a table at all.
    if (routed) indexItems(opened.db);
    store = routed ? new ItemStore(opened.db, systemClock) : undefined;
  } catch (error) {
    server.cut();
    await manager?.stop();
    opened?.close();
    throw error;
  }
  answer = compose(manager, store, maxBodyBytes, sparingly(log, systemClock));
  const stop = stopSignal(log);
  log('info', 'started', {
    url: server.url,
    port: server.port,
    db: flags.db,
    binding: opened.binding,
    tables,
    peers: [...new Set(flags.peer)],
    pid: process.pid,
  });
  logEvents(manager, log, systemClock);
  if (!store && tables.some(isItems)) {
    log('warn', 'warning', { code: 'items', message: `the item routes are not served: ${NOT_ITEMS}` });
  }
  if (flags.peer.includes(server.url)) {
    log('warn', 'warning', { code: 'own-peer', message: `-peer ${server.url} is this node itself` });
  }

  await stop;
  const outcome = await wind(server, manager, stopMs);
  store?.release();
  opened.close();
  log('info', 'stopped', outcome);
  return 0;
}

/** Stops accepting, lets requests end, ships: each for its share of the time and no longer. */
async function wind(server: Server, manager: Manager, stopMs: number): Promise<Record<string, unknown>> {
  const started = systemClock.now();
  const drained = await within(stopMs / 2, server.stop());
  server.cut();
  const left = Math.max(0, stopMs - (systemClock.now() - started));
  const flushed = await within(left, manager.flush());
  const pending = pendingChanges(manager);
  await manager.stop();
  return { requests: drained ? 'finished' : 'cut off', shipped: flushed?.unreachable.length === 0, pending };
}

/** A database that cannot be read any more must not keep the program from stopping. */
function pendingChanges(manager: Manager): number | null {
  try {
    return manager.health().pending_changes;
  } catch {
    return null;
  }
}

/** Creates the items table unless other tables are asked for. True where the item routes can be served. */
function preparedItems(db: Database, tables: string[]): boolean {
  if (tables.length === 0) createItems(db);
  else if (!tables.some(isItems)) return false;
  if (hasItemColumns(db)) return true;
  if (tables.length === 0) throw new StartError(`${NOT_ITEMS}; name the tables to sync with -table`);
  return false;
}

const NOT_ITEMS = `the table items has not the columns ${ITEM_COLUMNS.join(', ')}`;

function isItems(table: string): boolean {
  return fold(table) === ITEMS_TABLE;
}

/** The item routes and Rowcast's own as one answer function, which fails only where the client is gone. */
function compose(manager: Manager, store: ItemStore | undefined, maxBodyBytes: number, log: Log): Answer {
  return async (incoming) => {
    let gone = false;
    const read = async (max: number): Promise<Uint8Array | 'too-large'> => {
      try {
        return await incoming.read(max);
      } catch (error) {
        gone = true;
        throw error;
      }
    };
    const guarded = { ...incoming, read };
    try {
      const item = store && (await respondItems(store, guarded, () => manager.nudge()));
      return item ?? (await respond(manager, { maxBodyBytes }, guarded));
    } catch (error) {
      if (gone) throw error;
      if ((error as { code?: string }).code === 'STOPPED') return failure(503, 'stopping');
      if (isBusy(error) || (error as { code?: string }).code === 'DATABASE_BUSY') {
        return failure(503, 'the database is busy: another process holds the write lock');
      }
      log('error', 'error', { code: 'REQUEST_FAILED', message: messageOf(error) });
      return failure(500, 'the request failed; the log of the node says why');
    }
  };
}

function failure(status: number, error: string): Outgoing {
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  if (status === 503) headers['retry-after'] = '1';
  return { status, headers, body: JSON.stringify({ error }) };
}

/** Resolves with the first signal; a later one ends the process. */
function stopSignal(log: Log): Promise<void> {
  return new Promise((resolve) => {
    let since: number | undefined;
    for (const [signal, code] of Object.entries(SIGNALS)) {
      process.on(signal, () => {
        if (since !== undefined && systemClock.now() - since >= SAME_SIGNAL_MS) process.exit(code);
        if (since !== undefined) return;
        since = systemClock.now();
        log('info', 'stopping', { signal });
        resolve();
      });
    }
  });
}

interface Server {
  url: string;
  port: number;
  /** No new connections; resolves when the running requests are answered. */
  stop(): Promise<true>;
  /** Ends what is still open. */
  cut(): void;
}

async function listen(at: Listen, clientTimeoutMs: number, answer: Answer, log: Log): Promise<Server> {
  try {
    const server =
      process.versions.bun !== undefined
        ? listenOnBun(at, clientTimeoutMs, answer)
        : await listenOnNode(at, clientTimeoutMs, answer, log);
    const host = at.host ?? '127.0.0.1';
    return { ...server, url: `http://${host.includes(':') ? `[${host}]` : host}:${server.port}` };
  } catch (error) {
    throw new StartError(explainListen(at, error), { cause: error });
  }
}

async function listenOnNode(
  at: Listen,
  clientTimeoutMs: number,
  answer: Answer,
  log: Log,
): Promise<Omit<Server, 'url'>> {
  const server = http.createServer({
    headersTimeout: Math.min(HEADERS_TIMEOUT_MS, clientTimeoutMs),
    requestTimeout: clientTimeoutMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(1_000, clientTimeoutMs),
  });
  server.maxConnections = CONNECTIONS_MAX;
  // A client that does not read its answer.
  server.timeout = 2 * clientTimeoutMs;
  const sparing = sparingly(log, systemClock);
  const idle = new Set<Socket>();
  const running = new Set<http.ServerResponse>();
  let stopping = false;
  server.on('connection', (socket) => {
    idle.add(socket);
    socket.on('close', () => idle.delete(socket));
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

/** The part of Bun that is used; its own types are not there when this is compiled for Node. */
interface BunLike {
  serve(options: {
    port: number;
    hostname?: string;
    idleTimeout: number;
    fetch(request: Request): Promise<Response>;
    error(): Response;
  }): { port: number; stop(now?: boolean): Promise<void> };
}

function listenOnBun(at: Listen, clientTimeoutMs: number, answer: Answer): Omit<Server, 'url'> {
  const { Bun } = globalThis as unknown as { Bun: BunLike };
  const server = Bun.serve({
    port: at.port,
    ...(at.host !== undefined && { hostname: at.host }),
    // In seconds; between any two bytes. Bun has no limit for a whole request, hence the deadline for the body.
    idleTimeout: Math.min(255, Math.max(1, Math.ceil(clientTimeoutMs / 1_000))),
    fetch: toHandler(withDeadline(answer, clientTimeoutMs)),
    // The client is gone, and nobody reads this.
    error: () => new Response(null, { status: 400 }),
  });
  return {
    port: server.port,
    stop: () => server.stop().then(() => true),
    cut: () => void server.stop(true),
  };
}

function withDeadline(answer: Answer, ms: number): Answer {
  return async (incoming) => {
    let late = false;
    const read = async (max: number): Promise<Uint8Array | 'too-large'> => {
      const body = await within(ms, incoming.read(max));
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
async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  const settled = new AbortController();
  const timeout = systemClock.sleep(ms, settled.signal).then(() => undefined);
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    settled.abort();
  }
}

interface Listen {
  /** Undefined: every interface. */
  host: string | undefined;
  port: number;
}

function parseListen(value: string): Listen {
  const [, host, port] = /^(?:(\[[^\]]+\]|[^:[\]]*):)?(\d{1,5})$/.exec(value) ?? [];
  if (port === undefined || Number(port) > 65_535) {
    throw new UsageError(`must be host:port such as 127.0.0.1:9001, not ${JSON.stringify(value)}`);
  }
  return { host: host ? host.replace(/^\[|\]$/g, '') : undefined, port: Number(port) };
}

function parseId(value: string): string {
  if (/^[\x21-\x7e]{1,200}$/.test(value)) return value;
  throw new UsageError('must be at most 200 printable ASCII characters without spaces');
}

function parsePeer(value: string): string {
  try {
    return normalisePeer(value);
  } catch (error) {
    throw new UsageError(messageOf(error).replace(/^peer /, ''));
  }
}

function explainListen(at: Listen, error: unknown): string {
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
