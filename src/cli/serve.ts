/** `rowcast serve`: one node as a program. Opens the database, serves the routes, ships to the peers, stops in order. */

import { systemClock } from '../clock.ts';
import type { Answer } from '../http/bridge.ts';
import { respond } from '../http/respond.ts';
import { attach, type Manager } from '../index.ts';
import type { Database } from '../sqlite/connection.ts';
import { fold } from '../sqlite/sql.ts';

import { choice, describeFlags, type Environment, integer, parseFlags, text } from './flags.ts';
import { respondItems } from './items/routes.ts';
import { createItems, hasItemColumns, ITEM_COLUMNS, ITEMS_TABLE, ItemStore, indexItems } from './items/store.ts';
import { parseListen, StartError } from './listen.ts';
import { logEvents } from './log.ts';
import { type Opened, openDatabase } from './open.ts';
import { begin, FLAGS_HELP, parseId, parsePeer, RUNNING_HELP, stopSignal, wind } from './program.ts';

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
  batchSize: integer('Most changes in one batch.', { default: 1_000, min: 1, max: 10_000 }),
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

${FLAGS_HELP}

${describeFlags(SERVE_FLAGS)}

Routes: POST /sync, GET /health, GET and POST /api/items, POST /api/items/batch, GET, PUT and DELETE /api/items/:id.
${RUNNING_HELP}`;

/** Runs until a signal stops it; resolves to the exit code. */
export async function serve(args: string[], env: Environment): Promise<number> {
  const flags = parseFlags(SERVE_FLAGS, args, env);
  if (flags === 'help') {
    process.stdout.write(SERVE_HELP);
    return 0;
  }
  const { binding, busyMs, synchronous, batchMs, batchSize, requestTimeoutMs, maxBodyBytes, stopMs } = flags;
  const { log, server, answerWith } = await begin(flags);
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
  answerWith(compose(manager, store));
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

/** The item routes and Rowcast's own as one answer function. */
function compose(manager: Manager, store: ItemStore | undefined): Answer {
  return async (incoming) => {
    const item = store && (await respondItems(store, incoming, () => manager.nudge()));
    return item ?? (await respond(manager, {}, incoming));
  };
}
