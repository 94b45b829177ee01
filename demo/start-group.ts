/**
 * `npm run start:group`: a real PostgreSQL, three hubs and six nodes. Writes on all of them, kills a hub and the server with
 * -9, heals, compares the files row by row, and exits 0 when they are equal. With --faults there are so many of all kinds, with
 * --minutes they go on for so long.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describeFlags, integer, parseFlags, UsageError } from '../src/cli/flags.ts';
import { openDatabase } from '../src/cli/open.ts';
import { loadDriver } from '../src/cli/store.ts';
import { systemClock } from '../src/clock.ts';
import { messageOf } from '../src/errors.ts';
import { openEdgeList } from '../src/hub/postgres/edge-list.ts';
import { ask } from './client.ts';
import { Group } from './group.ts';
import type { Wire } from './link.ts';
import type { ClusterNode } from './nodes.ts';

const FLAGS = {
  minutes: integer('faults at random, one after the other, for so long; 0: one hub and the server, once each', {
    default: 0,
    min: 0,
    max: 1_440,
  }),
  faults: integer('so many faults: each kind once, and then at random', { default: 0, min: 0, max: 1_000_000 }),
  seed: integer('which faults these are', { default: 1, min: 1, max: 2_147_483_646 }),
  settleMs: integer('how long all may take to become equal at the end', { default: 120_000, min: 0, max: 3_600_000 }),
};

const HELP = `npm run start:group -- [flags]

${describeFlags(FLAGS)}
`;

/** Rows of each writer between two faults, and in one request after the other. */
const ROWS = 20;

async function main(): Promise<number> {
  try {
    const flags = parseFlags(FLAGS, process.argv.slice(2), process.env);
    if (flags !== 'help') return await run(flags);
    say(HELP);
    return 0;
  } catch (error) {
    process.stderr.write(`start:group: ${messageOf(error)}\n`);
    return error instanceof UsageError ? 2 : 1;
  }
}

interface Scenes {
  minutes: number;
  faults: number;
  seed: number;
  settleMs: number;
}

async function run(flags: Scenes): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'rowcast-group-'));
  const open = (file: string) => {
    const { db, close } = openDatabase(file);
    db.exec('PRAGMA query_only = 1');
    return { prepare: (sql: string) => db.prepare(sql), close };
  };
  const group = await Group.create({ folder, hubs: 3, nodes: 6, open, say });
  process.on('exit', () => group.killNow());
  const interrupted = new Promise<number>((end) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => end(130));
  });
  try {
    return await Promise.race([scenes(group, flags), interrupted]);
  } finally {
    await group.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function scenes(group: Group, flags: Scenes): Promise<number> {
  await group.start();
  say(`PostgreSQL: pid ${group.postgres.pid}, port ${group.postgres.port}`);
  for (const hub of group.hubs) say(`hub ${hub.id}: pid ${hub.pid}, console ${hub.console}`);
  for (const node of group.nodes) say(`node ${node.id}: pid ${node.pid}, http://127.0.0.1:${node.port}`);
  const writers = group.nodes.map((node) => new Writer(group, node));
  const more = async (rows = ROWS): Promise<void> => {
    await Promise.all(writers.map((writer) => writer.more(rows)));
  };
  await more();
  say('writing on all six nodes without pause');
  const isShort = flags.minutes === 0 && flags.faults === 0;
  const faults = isShort ? [FAULTS.hub, FAULTS.server] : drawn(flags);
  let count = 0;
  for (const fault of faults) {
    await fault(group, more, count);
    count += 1;
  }
  await Promise.all(writers.map((writer) => writer.stop()));
  const acknowledged = new Set(writers.flatMap(({ written }) => written));
  for (const deleted of writers.flatMap((writer) => writer.deleted)) acknowledged.delete(deleted);
  const began = systemClock.now();
  const { equal, missing, differences, fingerprint } = await group.settle(acknowledged, flags.settleMs);
  if (missing.length > 0) say(`FAILED: ${missing.length} acknowledged rows are missing, such as ${missing[0]}`);
  if (!equal) for (const difference of differences) say(`FAILED: ${difference}`);
  if (!equal || missing.length > 0) return 1;
  say(
    `${count} faults; all six are equal after ${systemClock.now() - began} ms: ${acknowledged.size} rows, ${fingerprint}`,
  );
  return 0;
}

/** Does something to the group, lets all write meanwhile, and puts it right. */
type Fault = (group: Group, more: (rows?: number) => Promise<void>, count: number) => Promise<void>;

const FAULTS = {
  hub: async (group, more, count) => {
    const hub = hubOf(group, count);
    const { pid } = hub;
    await hub.kill();
    say(`kill -9 ${pid}: hub ${hub.id}; the others serve its edges`);
    await more();
    await hub.start();
    say(`hub ${hub.id} is back: pid ${hub.pid}`);
  },
  server: async (group, more) => {
    const { pid } = group.postgres;
    await group.postgres.kill();
    say(`kill -9 ${pid}: PostgreSQL; the nodes keep what they cannot send`);
    await more();
    await group.postgres.start();
    say(`PostgreSQL is back: pid ${group.postgres.pid}`);
    await more();
  },
  backend: async (group, more) => {
    const pid = group.backend();
    if (pid !== undefined) process.kill(pid, 'SIGKILL');
    say(`kill -9 ${pid}: a process of PostgreSQL, which ends all its sessions`);
    await more();
  },
  pause: async (group, more, count) => {
    const hub = hubOf(group, count);
    hub.pause(true);
    say(`hub ${hub.id} stands still`);
    await more();
    await systemClock.sleep(PAUSED_MS);
    hub.pause(false);
    say(`hub ${hub.id} goes on`);
    await more();
  },
  wire: async (group, more, count) => {
    const hub = hubOf(group, count);
    const wire = group.wires[count % group.wires.length] as Wire;
    wire.cut();
    say(`hub ${hub.id} is cut off from PostgreSQL`);
    await more();
    wire.heal();
    say(`hub ${hub.id} reaches it again, and its connections break again and again`);
    for (let i = 0; i < CUTS; i++) {
      await more(FEW);
      wire.cut();
      wire.heal();
    }
  },
  flap: async (group, more) => {
    say('the balancer flaps: nodes reach another hub each time');
    for (let i = 0; i < CUTS; i++) {
      group.flap();
      await more(FEW);
    }
  },
  forget: async (group, more, count) => {
    const node = group.nodes[count % group.nodes.length] as ClusterNode;
    const url = group.edgeOf(node);
    const list = await openEdgeList(loadDriver(), group.postgres.url());
    try {
      say(`edge ${node.id} is forgotten and named again while hubs are restarted one after the other`);
      for (const hub of group.hubs) {
        await list.forget([url]);
        await hub.stop();
        await more(FEW);
        await list.add([url]);
        await hub.start();
        await more(FEW);
      }
    } finally {
      await list.close();
    }
  },
} satisfies Record<string, Fault>;

/** How often connections are ended in the midst of what is under way, and the rows in between. */
const CUTS = 4;
const FEW = 3;

/** Longer than a hub that is not seen belongs to its group. */
const PAUSED_MS = 4_000;

function hubOf({ hubs }: Group, count: number): ClusterNode {
  return hubs[count % hubs.length] as ClusterNode;
}

/** Each of them once, and then by chance, until there were so many and the time is over. */
function* drawn({ minutes, faults, seed }: Scenes): Generator<Fault> {
  const all = Object.values(FAULTS);
  const end = systemClock.now() + minutes * 60_000;
  yield* all;
  let state = seed;
  for (let count = all.length; count < faults || systemClock.now() < end; count++) {
    // Lehmer's generator: the same faults for the same seed.
    state = (state * 48_271) % 2_147_483_647;
    yield all[state % all.length] as Fault;
  }
}

/** Writes on one node until it is stopped: new rows, edits of rows that all have, and now and then a deletion. */
class Writer {
  readonly written: string[] = [];
  readonly deleted: string[] = [];
  readonly #group: Group;
  readonly #node: ClusterNode;
  #rounds = 0;
  #stopped = false;
  readonly #running: Promise<void>;

  constructor(group: Group, node: ClusterNode) {
    this.#group = group;
    this.#node = node;
    this.#running = this.#run();
  }

  /** Resolves after that many further rows. */
  async more(rows: number): Promise<void> {
    for (const goal = this.#rounds + rows; this.#rounds < goal && !this.#stopped; ) await systemClock.sleep(5);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }

  async #run(): Promise<void> {
    for (let failures = 0; !this.#stopped; ) {
      try {
        await this.#round();
        failures = 0;
      } catch (error) {
        // On a machine with far too much to do a node may hang up on a request. What became of it is not known, so it is not
        // counted on; but a node that does it again and again is gone, and no part of this kills nodes.
        failures += 1;
        if (failures === FAILURES_MAX) throw error;
      }
      await systemClock.sleep(10);
    }
  }

  async #round(): Promise<void> {
    const { port, id: name } = this.#node;
    const [id] = (await this.#group.write(this.#node, 1, name)) as [string];
    this.written.push(id);
    this.#rounds += 1;
    // One that was written elsewhere, where it has come already: all nodes edit the same few.
    const { json } = await ask('GET', port, '/api/items?limit=1');
    const other = (json.items ?? json)?.[0]?.id as string | undefined;
    if (other !== undefined) await ask('PUT', port, `/api/items/${other}`, { name: `${name} ${this.#rounds}` });
    if (this.#rounds % 10 !== 0) return;
    const { status } = await ask('DELETE', port, `/api/items/${id}`).catch((error) => {
      // Without an answer it may be deleted or not.
      this.deleted.push(id);
      throw error;
    });
    if (status === 200) this.deleted.push(id);
  }
}

/** So many requests in a row that a node does not answer. */
const FAILURES_MAX = 20;

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

// When everything above is there.
process.exit(await main());
