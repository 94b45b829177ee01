/** A group of hubs and its nodes as real processes: a PostgreSQL, hubs behind one address, nodes that know that address. */
import { readdirSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { systemClock } from '../src/clock.ts';
import { ask } from './client.ts';
import { type Comparison, compare, type OpenReader } from './compare.ts';
import { LOOPBACK, Wire } from './link.ts';
import { ClusterNode } from './nodes.ts';
import { freePorts } from './ports.ts';
import { Postgres } from './postgres.ts';

export interface GroupOptions {
  folder: string;
  hubs: number;
  nodes: number;
  open: OpenReader;
  say(text: string): void;
}

/** How often it is looked whether all are equal. */
const LOOK_MS = 250;

export class Group {
  readonly postgres: Postgres;
  readonly hubs: ClusterNode[];
  readonly nodes: ClusterNode[];
  /** By which each hub reaches the server. */
  readonly wires: Wire[];
  readonly #wirePorts: number[] = [];
  readonly #balancer: Balancer;
  readonly #open: OpenReader;

  static async create(options: GroupOptions): Promise<Group> {
    const postgres = await Postgres.start();
    return new Group(options, postgres, await freePorts(3 * options.hubs + 2 * options.nodes + 1));
  }

  private constructor({ folder, hubs, nodes, open, say }: GroupOptions, postgres: Postgres, ports: number[]) {
    const next = (): number => ports.pop() as number;
    const numbered = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);
    const address = next();
    this.postgres = postgres;
    this.#open = open;
    const told = (id: string) => ({
      onLog: () => {},
      onFailure: (reason: string) => say(`${id} has ended: ${reason}`),
    });
    this.nodes = numbered(nodes).map((n) => {
      const peers = [`http://${LOOPBACK}:${address}`];
      const file = join(folder, `n${n}.db`);
      return new ClusterNode({ id: `n${n}`, port: next(), consolePort: next(), file, peers, ...told(`n${n}`) });
    });
    const edges = this.nodes.flatMap((node) => ['-edge', this.edgeOf(node)]);
    this.hubs = numbered(hubs).map((n) => {
      const [port, consolePort] = [next(), next()];
      const name = ['-id', 'hub', '-instance', `h${n}`];
      const at = ['-listen', `${LOOPBACK}:${port}`, '-admin-listen', `${LOOPBACK}:${consolePort}`];
      // Behind one address, all that come are from one.
      const args = ['hub', ...name, ...at, '-max-connections-per-address', '0', ...(n === 1 ? edges : [])];
      const wire = next();
      this.#wirePorts.push(wire);
      const program = { args, env: { ROWCAST_STORE: postgres.url().replace(`:${postgres.port}/`, `:${wire}/`) } };
      return new ClusterNode({ id: `h${n}`, port, consolePort, file: '', peers: [], program, ...told(`h${n}`) });
    });
    this.wires = this.hubs.map(() => new Wire(postgres.port));
    this.#balancer = new Balancer(
      address,
      this.hubs.map(({ port }) => port),
    );
  }

  /** One hub first: it makes the tables, and knows the edges. */
  async start(): Promise<void> {
    await this.#balancer.listen();
    await Promise.all(this.wires.map((wire, i) => wire.listen(this.#wirePorts[i])));
    const [first, ...others] = this.hubs;
    await first?.start();
    await Promise.all([...others, ...this.nodes].map((one) => one.start()));
  }

  /** Ids of new rows, acknowledged by that node. */
  async write(node: ClusterNode, count: number, name: string): Promise<string[]> {
    const ids: string[] = [];
    for (let i = 0; i < count; i++) {
      const { status, json } = await ask('POST', node.port, '/api/items', { name: `${name} ${i}`, value: i });
      if (status !== 201) throw new Error(`${node.id} answered ${status}: ${JSON.stringify(json)}`);
      ids.push(json.id);
    }
    return ids;
  }

  /** Resolves when all nodes are equal and have these rows, or when the time is over. */
  async settle(acknowledged: Set<string>, ms: number): Promise<Comparison & { missing: string[] }> {
    for (const end = systemClock.now() + ms; ; ) {
      const files = this.nodes.map(({ id, file }) => ({ id, file }));
      const found = await compare(files, this.#open);
      const first = found.rows.values().next().value ?? new Map<string, string>();
      const missing = [...acknowledged].filter((id) => !first.has(id));
      if ((found.equal && missing.length === 0) || systemClock.now() > end) return { ...found, missing };
      await systemClock.sleep(LOOK_MS);
    }
  }

  /** Whoever talks to a hub by the common address reaches the next one. */
  flap(): void {
    this.#balancer.cut();
  }

  /** By which an edge is named. */
  edgeOf({ port }: ClusterNode): string {
    return `http://${LOOPBACK}:${port}`;
  }

  /** A process of the server that serves one of the hubs; undefined where this system does not tell. */
  backend(): number | undefined {
    const parent = this.postgres.pid;
    const pids = parent === undefined ? [] : processes().filter(({ ppid }) => ppid === parent);
    return pids.find(({ title }) => title.includes(`${LOOPBACK}(`))?.pid;
  }

  async close(): Promise<void> {
    for (const one of [...this.hubs, ...this.nodes]) one.pause(false);
    await Promise.all([...this.hubs, ...this.nodes].map((one) => one.stop()));
    await this.#balancer.close();
    await Promise.all(this.wires.map((wire) => wire.close()));
    await this.postgres.stop();
  }

  /** The last resort, for an exit handler. */
  killNow(): void {
    for (const one of [...this.hubs, ...this.nodes]) one.killNow();
  }
}

interface Process {
  pid: number;
  ppid: number;
  title: string;
}

/** As Linux tells of them. */
function processes(): Process[] {
  try {
    const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
    return pids.flatMap((pid) => {
      try {
        const ppid = /\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))?.[1];
        return [{ pid: Number(pid), ppid: Number(ppid), title: readFileSync(`/proc/${pid}/cmdline`, 'utf8') }];
      } catch {
        // It has ended meanwhile.
        return [];
      }
    });
  } catch {
    return [];
  }
}

/** What stands before the hubs: each connection goes to the next of them that takes it. */
class Balancer {
  readonly #port: number;
  readonly #targets: number[];
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();
  #next = 0;

  constructor(port: number, targets: number[]) {
    this.#port = port;
    this.#targets = targets;
    this.#server = net.createServer((near) => {
      this.#keep(near);
      this.#join(near, this.#targets.length);
    });
  }

  listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(this.#port, LOOPBACK, resolve);
    });
  }

  /** Ends all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): Promise<void> {
    this.cut();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #join(near: net.Socket, left: number): void {
    if (left === 0 || near.destroyed) {
      near.destroy();
      return;
    }
    const far = net.connect(this.#targets[this.#next++ % this.#targets.length] as number, LOOPBACK);
    this.#keep(far);
    far.once('error', () => {
      if (!far.bytesRead && !near.bytesRead) this.#join(near, left - 1);
      else near.destroy();
    });
    far.once('connect', () => {
      near.pipe(far);
      far.pipe(near);
      near.once('close', () => far.destroy());
      far.once('close', () => near.destroy());
    });
  }

  #keep(socket: net.Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => this.#sockets.delete(socket));
  }
}
