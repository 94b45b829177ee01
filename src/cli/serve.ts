/** `rowcast serve`: one node as a program. Opens the database, serves the routes, ships to the peers, stops in order. */

import { endOfMany, systemClock } from '../clock.ts';
import { FEED } from '../feed/options.ts';
import type { Answer } from '../http/bridge.ts';
import { type RespondOptions, respond } from '../http/respond.ts';
import { attach, type Config, type Manager, type Settings } from '../index.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { Database } from '../sqlite/connection.ts';
import { fold } from '../sqlite/sql.ts';
import { type AdminDoor, adminFlags, checkAdminFlags, openAdminDoor } from './admin.ts';
import { AdminToken } from './admin-token.ts';
import { withChanges } from './feed-route.ts';
import { choice, describeFlags, type Environment, limit, text, type Values } from './flags.ts';
import { type ItemOptions, respondItems } from './items/routes.ts';
import { createItems, hasItemColumns, ITEM_COLUMNS, ITEMS_TABLE, ItemStore, indexItems } from './items/store.ts';
import { keyFlags } from './keys.ts';
import { StartError } from './listen.ts';
import { type Log, logConflicts } from './log.ts';
import { isMissing, type Opened, openDatabase } from './open.ts';
import {
  begin,
  endWhenUnread,
  FLAGS_HELP,
  observe,
  READ_METRICS,
  runningHelp,
  shutDown,
  stopSignal,
  warnOfOpenRoutes,
} from './program.ts';
import { type Configured, configured, NODE_PEERS, Reload } from './reload.ts';
import {
  backlogFlags,
  backlogOf,
  bindingFlag,
  configFlag,
  conflictFlags,
  conflictsOf,
  idFlag,
  keepFlag,
  listenFlag,
  peersFileFlag,
  peersFlag,
  processFlags,
  RELOADABLE,
  settingFlags,
  verifyOption,
} from './shared-flags.ts';
import { certificatesInHealth, sendingBy, TlsFiles, tlsFlags, watchEnds } from './tls-files.ts';
import { Tokens, tokensFileFlag } from './tokens.ts';

export const SERVE_FLAGS = {
  id: idFlag("This node's id: unlike every other node's, and the same after a restart."),
  db: text('file', 'The database file, created when missing and put into WAL mode. :memory: for a try.'),
  listen: listenFlag(9001),
  peer: peersFlag('Base URL of a node to ship to. Name every other node; /sync is appended.'),
  peersFile: peersFileFlag('peer'),
  config: configFlag,
  table: text(
    'name',
    'Sync this existing table instead of items. It needs id TEXT PRIMARY KEY and updated_at INTEGER.\n' +
      'The item routes are then served only if items is one of the tables and has their columns.',
    { repeatable: true },
  ),
  binding: bindingFlag,
  synchronous: choice(
    ['full', 'normal'],
    'full: an answered write survives a power cut. normal: faster, the latest writes may not.',
  ),
  tombstonesKeep: keepFlag,
  feedKeep: limit(
    `${FEED.keep.help} With a number, GET /_rowcast/changes is served.\n` +
      'off: they are let go of. unchanged: the database keeps what it kept before, and there is no such route.',
    { default: 'unchanged', words: ['off', 'unchanged'] },
  ),
  ...settingFlags({ batchMs: 'Writes through the routes ship at once.' }),
  ...keyFlags,
  ...backlogFlags,
  ...conflictFlags,
  ...tlsFlags,
  tokensFile: tokensFileFlag,
  ...adminFlags,
  ...processFlags,
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

Routes: POST /sync, /sync/compare and /sync/fetch, GET /health, /livez, /readyz and /metrics, GET and POST /api/items,
POST /api/items/batch, GET, PUT and DELETE /api/items/:id; with -feed-keep, GET /_rowcast/changes.
${runningHelp('node')}`;

/** Runs until a signal stops it; resolves to the exit code. */
export async function serve(args: string[], env: Environment): Promise<number> {
  const first = configured(SERVE_FLAGS, NODE_PEERS, args, env);
  if (first === 'help') {
    endWhenUnread('rowcast serve');
    process.stdout.write(SERVE_HELP);
    return 0;
  }
  const { flags, peers, auth } = first;
  const { binding, busyMs, synchronous, maxBodyBytes, maxAheadMs } = flags;
  checkAdminFlags(flags);
  const tls = new TlsFiles(flags);
  const tokens = new Tokens(flags.tokensFile, env);
  const adminToken = new AdminToken(flags.adminTokenFile);
  const { log, logging, recent, server, answerWith } = await begin(flags, {
    hasKeys: auth !== undefined,
    tls: tls.server,
  });
  const tables = flags.table.length > 0 ? flags.table : [ITEMS_TABLE];
  let opened: Opened | undefined;
  let manager: Manager | undefined;
  let store: ItemStore | undefined;
  let metrics: Metrics | undefined;
  let door: AdminDoor;
  const alsoInHealth = certificatesInHealth(tls, systemClock);
  try {
    if (flags.table.length > 0) refuseIfMissing(flags.db);
    opened = openDatabase(flags.db, { binding, busyMs, synchronous });
    refuseHub(opened.db, flags.db);
    const routed = preparedItems(opened.db, flags.table);
    const { tombstonesKeep: keep } = flags;
    const beside = { maxBodyBytes, maxAheadMs, verify: verifyOption(flags), tombstones: { keep }, ...feedOf(flags) };
    const trust = { ...(auth && { auth }), ...sendingBy(tls) };
    manager = attach(opened.db, { id: flags.id, peers, ...beside, ...settingsOf(flags), ...trust }, tables);
    // Before anything is waited for: what is told meanwhile is not told again.
    metrics = observe(manager, { flags, log, alsoInHealth });
    logNode(manager, log);
    // After attach, which knows whether this is a table at all.
    if (routed) indexItems(opened.db);
    door = await openAdminDoor(manager, flags, { log, recent, token: adminToken, alsoInHealth });
    store = routed ? new ItemStore(opened.db, flags.id, systemClock) : undefined;
  } catch (error) {
    server.cut();
    await manager?.stop();
    if (manager) opened?.close();
    else opened?.giveBack();
    throw error;
  }
  const running = manager;
  const closing = endOfMany();
  const routes = compose(running, store, tokens, { metrics, alsoInHealth });
  // Bun ends a connection on which nothing was said for as long as a client may take.
  const feed = { signal: closing.signal, keepAliveMs: Math.min(15_000, flags.clientTimeoutMs / 2) };
  answerWith(typeof flags.feedKeep === 'number' ? withChanges(running, tokens, feed, routes) : routes);
  tls.onChange(async (next) => {
    if (next.sending) running.configure({ tls: next.sending });
    if (next.server) await server.secure(next.server);
  });
  const held = [tls, tokens, adminToken];
  const reload = new Reload({
    first,
    held,
    names: NODE_PEERS,
    read: (running) => configured(SERVE_FLAGS, NODE_PEERS, args, env, running) as Configured<typeof SERVE_FLAGS>,
    members: {
      add: (url) => {
        running.peers.add(url);
        warnOfSelf([url]);
      },
      remove: (url) => running.peers.remove(url),
      list: () => running.peers.list(),
    },
    reloadable: [...RELOADABLE, ...BACKLOG_FLAGS, ...CONFLICT_FLAGS],
    apply: (next, keys) => {
      running.configure({ ...settingsOf(next), ...(keys && { auth: keys }) });
      Object.assign(logging, { level: next.logLevel, format: next.logFormat });
    },
    log,
    clock: systemClock,
  });
  const stop = stopSignal(log, () => void reload.reload());
  log('info', 'started', {
    url: server.url,
    port: server.port,
    db: flags.db,
    binding: opened.binding,
    tables,
    peers,
    ...(manager.trust && { keys: manager.trust.mode }),
    admin: door.url ?? door.socket,
    ...(door.url !== undefined && { console: `${door.url}/_rowcast/` }),
    pid: process.pid,
  });
  if (auth && !tokens.inUse) {
    const routes = [
      ...(store ? ['read and write by the item routes'] : []),
      ...(typeof flags.feedKeep === 'number' ? ['read the feed'] : []),
      ...(metrics ? [READ_METRICS] : []),
    ];
    warnOfOpenRoutes(log, flags.listen, tls.server, routes);
  }
  if (!store && tables.some(isItems)) {
    log('warn', 'warning', { code: 'items', message: `the item routes are not served: ${NOT_ITEMS}` });
  }
  const warnOfSelf = (urls: string[]): void => {
    if (!urls.includes(server.url)) return;
    log('warn', 'warning', { code: 'own-peer', message: `-peer ${server.url} is this node itself` });
  };
  warnOfSelf(peers);

  for (const { warnings } of held) for (const warning of warnings) log('warn', 'warning', warning);
  const watching = watchEnds(tls, log, systemClock);

  await stop;
  closing.abort();
  watching.stop();
  door.close();
  await reload.stop();
  const outcome = await shutDown(server, manager, flags.stopMs);
  store?.release();
  opened.close();
  log('info', 'stopped', outcome);
  return 0;
}

function logNode(manager: Manager, log: Log): void {
  logConflicts(manager, log, systemClock);
  manager.on('peer-stale', (stale) => log('warn', 'peer-stale', { ...stale }));
  manager.on('tombstones-collected', (collected) => log('info', 'tombstones-collected', { ...collected }));
}

const BACKLOG_FLAGS = Object.keys(backlogFlags) as (keyof typeof backlogFlags)[];
const CONFLICT_FLAGS = Object.keys(conflictFlags) as (keyof typeof conflictFlags)[];

/** What can be changed while the program runs. */
function settingsOf(flags: Values<typeof SERVE_FLAGS>): Settings {
  const { batchMs, batchSize, maxBatchBytes, requestTimeoutMs } = flags;
  return {
    batchMs,
    batchSize,
    maxBatchBytes,
    requestTimeoutMs,
    maxBacklog: backlogOf(flags),
    conflicts: conflictsOf(flags),
  };
}

/** Undefined: as it is in the file. */
function feedOf({ feedKeep: keep }: Values<typeof SERVE_FLAGS>): Pick<Config, 'feed'> {
  if (keep === 'unchanged') return {};
  return { feed: keep === 'off' ? false : { keep: keep as number } };
}

/** Creates the items table unless other tables are asked for. True where the item routes can be served. */
function preparedItems(db: Database, tables: string[]): boolean {
  if (tables.length === 0) createItems(db);
  else if (!tables.some(isItems)) return false;
  if (hasItemColumns(db)) return true;
  if (tables.length === 0) throw new StartError(`${NOT_ITEMS}; name the tables to sync with -table`);
  return false;
}

/** A new file has no tables: the path is wrong, or what creates them has not run yet. */
function refuseIfMissing(path: string): void {
  if (path === ':memory:' || !isMissing(path)) return;
  throw new StartError(`there is no file ${path}, and -table names tables that exist: check -db, or create them first`);
}

/** Before a table is made in it: with anybody's tables in its file a hub does not begin any more. */
function refuseHub(db: Database, path: string): void {
  if (db.prepare("SELECT 1 FROM main.sqlite_schema WHERE name = '_hub_rows'").all().length === 0) return;
  throw new StartError(`${path} is the file of a hub: give the node a file of its own, or start it by rowcast hub`);
}

const NOT_ITEMS = `the table items lacks one of the columns ${ITEM_COLUMNS.join(', ')}`;

function isItems(table: string): boolean {
  return fold(table) === ITEMS_TABLE;
}

/** The item routes and Rowcast's own as one answer function. */
function compose(manager: Manager, store: ItemStore | undefined, tokens: Tokens, options: RespondOptions): Answer {
  const items: ItemOptions = {
    changed: () => manager.nudge(),
    refusal: (incoming, right) => tokens.refusal(incoming, right),
  };
  return async (incoming) => {
    const item = store && (await respondItems(store, incoming, items));
    return item ?? (await respond(manager, { ...options, readers: tokens }, incoming));
  };
}
