/** `rowcast hub`, also `rowcast-hub`: the relay as a program. Opens its own database, serves /sync and /health, ships to the edges. */

import { hostname } from 'node:os';
import { setFlagsFromString } from 'node:v8';
import { systemClock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Answer } from '../http/bridge.ts';
import { respond } from '../http/respond.ts';
import { createHub, type Hub, type HubSettings } from '../hub/index.ts';
import type { Metrics } from '../observe/metrics.ts';
import { type AdminDoor, adminFlags, checkAdminFlags, openAdminDoor } from './admin.ts';
import { AdminToken } from './admin-token.ts';
import { describeFlags, type Environment, file, text, UsageError, type Values } from './flags.ts';
import { elsewhereMeanwhile, joinGroup, whileWaiting } from './group.ts';
import { keyFlags } from './keys.ts';
import { StartError } from './listen.ts';
import type { Log } from './log.ts';
import { type Opened, openDatabase } from './open.ts';
import {
  begin,
  endWhenUnread,
  FLAGS_HELP,
  hangUpLater,
  observe,
  READ_METRICS,
  runningHelp,
  shutDown,
  stopSignal,
  warnOfOpenRoutes,
} from './program.ts';
import { type Configured, configured, HUB_PEERS, Reload } from './reload.ts';
import {
  bindingFlag,
  configFlag,
  idFlag,
  listenFlag,
  peersFileFlag,
  peersFlag,
  processFlags,
  RELOADABLE,
  settingFlags,
  verifyOption,
} from './shared-flags.ts';
import { loadDriver, shownStore, storeFlags, storeOf } from './store.ts';
import { certificatesInHealth, sendingBy, TlsFiles, tlsFlags, watchEnds } from './tls-files.ts';
import { Tokens, tokensFileFlag } from './tokens.ts';

export const HUB_FLAGS = {
  id: idFlag("The hub's id: unlike every node's and every other hub's, and the same after a restart."),
  listen: listenFlag(9100),
  db: {
    ...file("The hub's own database file, created when missing. Not a node's: that is refused."),
    parse: (value: string): string | undefined => value,
  },
  ...storeFlags,
  instance: {
    ...text('name', 'With -store: the name of this process, which no other one of the group has. Without: host:port.'),
    optional: true as const,
    parse: (value: string): string | undefined => value,
  },
  edge: peersFlag('Base URL of a node to serve, or of another hub. Name every one; /sync is appended.'),
  edgesFile: peersFileFlag('edge'),
  config: configFlag,
  binding: bindingFlag,
  ...settingFlags({
    batchMs: 'What is received goes out at once.',
    requestTimeoutMs: 'How long an edge may take to answer.',
  }),
  ...keyFlags,
  ...tlsFlags,
  tokensFile: tokensFileFlag,
  ...adminFlags,
  ...processFlags,
};

export const HUB_HELP = `rowcast hub (also rowcast-hub): relay between any number of nodes

  rowcast-hub -id hub -listen 127.0.0.1:9100 -db hub.db -edge http://127.0.0.1:9001 -edge http://127.0.0.1:9002
  rowcast serve -id a -db a.db -listen 127.0.0.1:9001 -peer http://127.0.0.1:9100
  rowcast serve -id b -db b.db -listen 127.0.0.1:9002 -peer http://127.0.0.1:9100

To a node the hub is an ordinary peer. It keeps the newest version of every row, and sends it to every edge but the one
it came from; an edge that was away, or is new, gets the present state. Edges are added and removed by a change of
-edges-file or -config while it runs. Two hubs may be edges of each other.

  ROWCAST_STORE=postgres://rowcast:secret@db/rowcast rowcast-hub -id hub -listen :9100 -edge http://n1:9001

With -store any number of processes, on any number of machines, are one hub behind one address (a balancer, or DNS).
They share its rows and its edges; what one of them has acknowledged all of them have. What -edge names is added to the
edges of the group; "rowcast hub-edges forget" takes one out. It needs the package pg, and PostgreSQL 13 or newer.

${FLAGS_HELP}

${describeFlags(HUB_FLAGS)}

Routes: POST /sync, /sync/compare and /sync/fetch, GET /health, /livez, /readyz and /metrics.
${runningHelp('hub')}`;

/** Runs until a signal stops it; resolves to the exit code. */
export async function hub(args: string[], env: Environment): Promise<number> {
  const first = configured(HUB_FLAGS, HUB_PEERS, args, env);
  if (first === 'help') {
    endWhenUnread('rowcast hub');
    process.stdout.write(HUB_HELP);
    return 0;
  }
  growSlowly();
  const { flags, peers: edges, auth } = first;
  const { id, binding, maxBodyBytes, maxAheadMs } = flags;
  const admin = { ...flags, db: flags.db ?? '' };
  checkAdminFlags(admin);
  const store = storeOf(flags, args);
  if (store === undefined && flags.db === undefined) {
    throw new UsageError('-db is required: -db <file>, or ROWCAST_DB; or -store, for a group of hubs');
  }
  const group = store === undefined ? undefined : { url: store, driver: loadDriver() };
  const tls = new TlsFiles(flags);
  const tokens = new Tokens(flags.tokensFile, env);
  const adminToken = new AdminToken(flags.adminTokenFile);
  const { log, logging, recent, server, answerWith } = await begin(flags, {
    hasKeys: auth !== undefined,
    tls: tls.server,
  });
  const early = hangUpLater();
  let opened: Opened | undefined;
  let created: Hub | undefined;
  let metrics: Metrics | undefined;
  let door: AdminDoor;
  const alsoInHealth = certificatesInHealth(tls, systemClock);
  try {
    const verify = verifyOption(flags);
    const trust = { ...(auth && { auth }), ...sendingBy(tls) };
    const config = { id, edges, maxBodyBytes, maxAheadMs, verify, ...settingsOf(flags), ...trust };
    if (!group) {
      // What is received is flushed by the hub itself, whatever this says; how far the edges are need not be.
      opened = openDatabase(flags.db as string, { binding, busyMs: flags.busyMs, synchronous: 'normal' });
      created = await createHub(opened.db, config);
    } else {
      const instance = flags.instance ?? `${hostname()}:${server.port}`;
      answerWith(whileWaiting);
      ({ opened, hub: created } = await joinGroup({ ...group, instance }, config, { log, binding }));
    }
    metrics = observe(created, { flags, log, alsoInHealth });
    // A group has no file that a socket could be beside.
    door = await openAdminDoor(created, store === undefined ? admin : { ...admin, db: '' }, {
      log,
      recent,
      token: adminToken,
      alsoInHealth,
    });
  } catch (error) {
    early.over();
    server.cut();
    await created?.stop();
    if (created) opened?.close();
    else opened?.giveBack();
    if (store !== undefined || !(error instanceof RowcastError) || error.code !== 'INVALID_DATABASE') throw error;
    throw new StartError(error.message.replace('the database', `database ${flags.db}`), { cause: error });
  }
  const relay = created;
  const answer: Answer = (incoming) => respond(relay, { metrics, readers: tokens, alsoInHealth }, incoming);
  answerWith(store === undefined ? answer : elsewhereMeanwhile(answer));
  tls.onChange(async (next) => {
    if (next.sending) relay.configure({ tls: next.sending });
    if (next.server) await server.secure(next.server);
  });
  const held = [tls, tokens, adminToken];
  const reload = new Reload({
    first,
    held,
    names: HUB_PEERS,
    read: (running) => configured(HUB_FLAGS, HUB_PEERS, args, env, running) as Configured<typeof HUB_FLAGS>,
    members: store === undefined ? relay.edges : { add: (url) => relay.edges.add(url), remove: keepEdge(log) },
    reloadable: RELOADABLE,
    apply: (next, keys) => {
      relay.configure({ ...settingsOf(next), ...(keys && { auth: keys }) });
      Object.assign(logging, { level: next.logLevel, format: next.logFormat });
    },
    log,
    clock: systemClock,
  });
  const stop = stopSignal(log, () => void reload.reload());
  const isAsked = early.over();
  log('info', 'started', {
    url: server.url,
    port: server.port,
    ...(store === undefined ? { db: flags.db } : { store: shownStore(store) }),
    binding: opened.binding,
    edges,
    ...(relay.trust && { keys: relay.trust.mode }),
    admin: door.url ?? door.socket,
    ...(door.url !== undefined && { console: `${door.url}/_rowcast/` }),
    pid: process.pid,
  });
  if (isAsked) void reload.reload();
  if (auth && !tokens.inUse && metrics) warnOfOpenRoutes(log, flags.listen, tls.server, [READ_METRICS]);
  if ((await relay.edges.list()).length === 0) {
    log('warn', 'warning', { code: 'no-edges', message: 'no -edge is given: what is received goes nowhere' });
  }

  for (const { warnings } of held) for (const warning of warnings) log('warn', 'warning', warning);
  const watching = watchEnds(tls, log, systemClock);

  await stop;
  watching.stop();
  door.close();
  await reload.stop();
  const outcome = await shutDown(server, relay, flags.stopMs);
  opened.close();
  log('info', 'stopped', outcome);
  return 0;
}

/** Others of the group may have it in their files: whoever means it says so once, to all. */
function keepEdge(log: Log): (url: string) => void {
  return (url) => {
    const message = `${url} is still an edge of the group: rowcast hub-edges forget ${url} takes it out`;
    log('warn', 'warning', { code: 'edge-kept', message });
  };
}

/** What can be changed while the program runs. */
function settingsOf(flags: Values<typeof HUB_FLAGS>): HubSettings {
  const { batchMs, batchSize, maxBatchBytes, requestTimeoutMs } = flags;
  return { batchMs, batchSize, maxBatchBytes, requestTimeoutMs };
}

/**
 * V8 lets the heap grow to four times what a collection has left before it collects again, and what a hub holds is little beside
 * what it lets go: with 1,000 edges it took 50 MiB more, for the same CPU. Bun has another engine.
 */
function growSlowly(): void {
  if (process.versions.bun === undefined) setFlagsFromString('--heap-growing-percent=60');
}
