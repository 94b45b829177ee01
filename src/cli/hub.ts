/** `rowcast hub`, also `rowcast-hub`: the relay as a program. Opens its own database, serves /sync and /health, ships to the edges. */

import { systemClock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import { respond } from '../http/respond.ts';
import { createHub, type Hub, type HubSettings } from '../hub/index.ts';
import { collectMetrics } from '../observe/metrics.ts';
import { type AdminDoor, adminFlags, checkAdminFlags, openAdminDoor } from './admin.ts';
import { describeFlags, type Environment, text, type Values } from './flags.ts';
import { keyFlags } from './keys.ts';
import { StartError } from './listen.ts';
import { logEvents } from './log.ts';
import { type Opened, openDatabase } from './open.ts';
import { begin, FLAGS_HELP, RUNNING_HELP, shutDown, stopSignal } from './program.ts';
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

export const HUB_FLAGS = {
  id: idFlag("The hub's id: unlike every node's and every other hub's, and the same after a restart."),
  listen: listenFlag(9100),
  db: text('file', "The hub's own database file, created when missing. Not a node's: that is refused."),
  edge: peersFlag('Base URL of a node to serve, or of another hub. Name every one; /sync is appended.'),
  edgesFile: peersFileFlag('edge'),
  config: configFlag,
  binding: bindingFlag,
  ...settingFlags({
    batchMs: 'What is received goes out at once.',
    requestTimeoutMs: 'How long an edge may take to answer.',
  }),
  ...keyFlags,
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

${FLAGS_HELP}

${describeFlags(HUB_FLAGS)}

Routes: POST /sync, /sync/compare and /sync/fetch, GET /health, /livez, /readyz and /metrics.
${RUNNING_HELP}`;

/** Runs until a signal stops it; resolves to the exit code. */
export async function hub(args: string[], env: Environment): Promise<number> {
  const first = configured(HUB_FLAGS, HUB_PEERS, args, env);
  if (first === 'help') {
    process.stdout.write(HUB_HELP);
    return 0;
  }
  const { flags, peers: edges, auth } = first;
  const { id, binding, maxBodyBytes } = flags;
  checkAdminFlags(flags);
  const { log, logging, server, answerWith } = await begin(flags, auth !== undefined);
  let opened: Opened | undefined;
  let created: Hub | undefined;
  let door: AdminDoor;
  try {
    // What is received is flushed by the hub itself, whatever this says; how far the edges are need not be.
    opened = openDatabase(flags.db, { binding, busyMs: flags.busyMs, synchronous: 'normal' });
    created = await createHub(opened.db, {
      id,
      edges,
      maxBodyBytes,
      verify: verifyOption(flags),
      ...settingsOf(flags),
      ...(auth && { auth }),
    });
    door = await openAdminDoor(created, flags, log);
  } catch (error) {
    server.cut();
    await created?.stop();
    opened?.close();
    if (!(error instanceof RowcastError) || error.code !== 'INVALID_DATABASE') throw error;
    throw new StartError(error.message.replace('the database', `database ${flags.db}`), { cause: error });
  }
  const relay = created;
  const metrics = flags.metrics === 'on' ? collectMetrics(relay) : undefined;
  answerWith((incoming) => respond(relay, { metrics }, incoming));
  const reload = new Reload({
    first,
    names: HUB_PEERS,
    read: () => configured(HUB_FLAGS, HUB_PEERS, args, env) as Configured<typeof HUB_FLAGS>,
    members: relay.edges,
    reloadable: RELOADABLE,
    apply: (next, keys) => {
      relay.configure({ ...settingsOf(next), ...(keys && { auth: keys }) });
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
    edges,
    ...(relay.trust && { keys: relay.trust.mode }),
    admin: door.url ?? door.socket,
    pid: process.pid,
  });
  logEvents(relay, log, systemClock);
  if (edges.length === 0) {
    log('warn', 'warning', { code: 'no-edges', message: 'no -edge is given: what is received goes nowhere' });
  }

  await stop;
  door.close();
  await reload.stop();
  const outcome = await shutDown(server, relay, flags.stopMs);
  opened.close();
  log('info', 'stopped', outcome);
  return 0;
}

/** What can be changed while the program runs. */
function settingsOf(flags: Values<typeof HUB_FLAGS>): HubSettings {
  const { batchMs, batchSize, maxBatchBytes, requestTimeoutMs } = flags;
  return { batchMs, batchSize, maxBatchBytes, requestTimeoutMs };
}
