/** `rowcast hub`, also `rowcast-hub`: the relay as a program. Opens its own database, serves /sync and /health, ships to the edges. */

import { systemClock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import { respond } from '../http/respond.ts';
import { createHub, type Hub } from '../hub/index.ts';
import { choice, describeFlags, type Environment, integer, parseFlags, text } from './flags.ts';
import { parseListen, StartError } from './listen.ts';
import { logEvents } from './log.ts';
import { type Opened, openDatabase } from './open.ts';
import { begin, FLAGS_HELP, parseId, parsePeer, RUNNING_HELP, stopSignal, wind } from './program.ts';

const MIB = 1024 * 1024;

export const HUB_FLAGS = {
  id: {
    ...text('name', "The hub's id: unlike every node's and every other hub's, and the same after a restart."),
    parse: parseId,
  },
  listen: {
    ...text('host:port', 'Where to listen. :9100 is every interface, port 0 is any free one.'),
    parse: parseListen,
    default: '127.0.0.1:9100',
  },
  db: text('file', "The hub's own database file, created when missing. Not a node's: that is refused."),
  edge: {
    ...text('url', 'Base URL of a node to serve, or of another hub. Name every one; /sync is appended.'),
    parse: parsePeer,
    repeatable: true as const,
  },
  binding: choice(
    ['auto', 'better-sqlite3', 'node-sqlite', 'bun-sqlite'],
    'The SQLite binding. auto: bun:sqlite on Bun; on Node better-sqlite3 if it loads, else node:sqlite.',
  ),
  batchMs: integer('How often to look for changes, in milliseconds. What is received goes out at once.', {
    default: 50,
    min: 1,
    max: 3_600_000,
  }),
  batchSize: integer('Most changes in one batch.', { default: 1_000, min: 1, max: 10_000 }),
  requestTimeoutMs: integer('How long an edge may take to answer.', { default: 30_000, min: 1, max: 3_600_000 }),
  maxBodyBytes: integer('Largest body that /sync reads.', { default: 64 * MIB, min: 1_024, max: 512 * MIB }),
  clientTimeoutMs: integer('How long a client may take to send its request.', {
    default: 60_000,
    min: 100,
    max: 3_600_000,
  }),
  busyMs: integer("How long a start waits for another process's lock on the database.", {
    default: 5_000,
    min: 0,
    max: 600_000,
  }),
  stopMs: integer('How long a stop may take: half for running requests, the rest for shipping.', {
    default: 5_000,
    min: 0,
    max: 3_600_000,
  }),
};

export const HUB_HELP = `rowcast hub (also rowcast-hub): relay between any number of nodes

  rowcast-hub -id hub -listen 127.0.0.1:9100 -db hub.db -edge http://127.0.0.1:9001 -edge http://127.0.0.1:9002
  rowcast serve -id a -db a.db -listen 127.0.0.1:9001 -peer http://127.0.0.1:9100
  rowcast serve -id b -db b.db -listen 127.0.0.1:9002 -peer http://127.0.0.1:9100

To a node the hub is an ordinary peer. It keeps the newest version of every row, and sends it to every edge but the one it
came from; an edge that was away, or is new, gets the present state. Edges are added and removed by a restart with other
flags. Two hubs may be edges of each other.

${FLAGS_HELP}

${describeFlags(HUB_FLAGS)}

Routes: POST /sync, GET /health.
${RUNNING_HELP}`;

/** Runs until a signal stops it; resolves to the exit code. */
export async function hub(args: string[], env: Environment): Promise<number> {
  const flags = parseFlags(HUB_FLAGS, args, env);
  if (flags === 'help') {
    process.stdout.write(HUB_HELP);
    return 0;
  }
  const { id, edge: edges, batchMs, batchSize, requestTimeoutMs, maxBodyBytes } = flags;
  const { log, server, answerWith } = await begin(flags);
  let opened: Opened | undefined;
  let relay: Hub;
  try {
    // What is received is flushed by the hub itself, whatever this says; how far the edges are need not be.
    const binding = flags.binding === 'auto' ? undefined : flags.binding;
    opened = openDatabase(flags.db, { binding, busyMs: flags.busyMs, synchronous: 'normal' });
    relay = await createHub(opened.db, { id, edges, batchMs, batchSize, requestTimeoutMs, maxBodyBytes });
  } catch (error) {
    server.cut();
    opened?.close();
    if (!(error instanceof RowcastError) || error.code !== 'INVALID_DATABASE') throw error;
    throw new StartError(error.message.replace('the database', `database ${flags.db}`), { cause: error });
  }
  answerWith((incoming) => respond(relay, {}, incoming));
  const stop = stopSignal(log);
  log('info', 'started', {
    url: server.url,
    port: server.port,
    db: flags.db,
    binding: opened.binding,
    edges: [...new Set(edges)],
    pid: process.pid,
  });
  logEvents(relay, log, systemClock);
  if (edges.length === 0) {
    log('warn', 'warning', { code: 'no-edges', message: 'no -edge is given: what is received goes nowhere' });
  }

  await stop;
  const outcome = await wind(server, relay, flags.stopMs);
  opened.close();
  log('info', 'stopped', outcome);
  return 0;
}
