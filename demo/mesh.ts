/** Three nodes, every one linked to every other: what can be done to them, and what is true of them. */
import { join } from 'node:path';
import { systemClock } from '../src/clock.ts';
import type { Health } from '../src/health.ts';
import { ask } from './client.ts';
import { type Comparison, compare, type OpenReader } from './compare.ts';
import { Link, LOOPBACK, Wire } from './link.ts';
import { ClusterNode } from './nodes.ts';
import type { Ports } from './ports.ts';

export const NODE_IDS = ['a', 'b', 'c'];

export interface MeshOptions {
  folder: string;
  ports: Ports;
  open: OpenReader;
  /** Something happened that a person wants to read. */
  say(text: string): void;
}

const HEALTH_MS = 1_000;
/** Rows per request; the rest of a larger write follows in the next one. */
const ROWS_PER_REQUEST = 500;

export class Mesh {
  readonly nodes: ClusterNode[] = [];
  readonly links: Link[] = [];
  /** The latest answer of each node that answers. */
  readonly health = new Map<string, Health>();
  readonly #options: MeshOptions;
  /** Which node a peer URL leads to: the nodes only know our ports. */
  readonly #peers = new Map<string, string>();
  /** Ways that a node has given up on for now, as "from to". */
  readonly #lost = new Set<string>();
  #written = 0;

  private constructor(options: MeshOptions) {
    this.#options = options;
  }

  /** Opens the links and prepares the nodes; nothing runs yet. */
  static async create(options: MeshOptions): Promise<Mesh> {
    const mesh = new Mesh(options);
    const peersOf = new Map<string, string[]>(NODE_IDS.map((id) => [id, []]));
    const wire = async (from: number, to: number): Promise<Wire> => {
      const wire = new Wire(options.ports.node(to));
      const url = `http://${LOOPBACK}:${await wire.listen(options.ports.wire(from, to))}`;
      mesh.#peers.set(url, NODE_IDS[to] as string);
      peersOf.get(NODE_IDS[from] as string)?.push(url);
      return wire;
    };
    for (const [i, one] of NODE_IDS.entries()) {
      for (const [j, other] of NODE_IDS.entries()) {
        if (i < j) mesh.links.push(new Link([one, other], [await wire(i, j), await wire(j, i)]));
      }
    }
    mesh.nodes.push(...NODE_IDS.map((id, index) => mesh.#node(id, index, peersOf.get(id) ?? [])));
    return mesh;
  }

  async startAll(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.start()));
  }

  async close(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.stop()));
    await Promise.all(this.links.map((link) => link.close()));
  }

  killNow(): void {
    for (const node of this.nodes) node.killNow();
  }

  node(id: string): ClusterNode | undefined {
    return this.nodes.find((node) => node.id === id);
  }

  /** In either order. */
  link(one: string, other: string): Link | undefined {
    return this.links.find(({ ends }) => one !== other && ends.includes(one) && ends.includes(other));
  }

  /** The node at the end of a peer URL. */
  peerName(url: string): string {
    return this.#peers.get(url) ?? url;
  }

  get running(): ClusterNode[] {
    return this.nodes.filter((node) => node.state === 'running');
  }

  /** Nothing is down and nothing is cut, so that everything arrives sooner or later. */
  get whole(): boolean {
    return this.running.length === this.nodes.length && !this.links.some((link) => link.isCut);
  }

  /** Creates rows on one node. The ids that it returns were acknowledged with 201. */
  async write(node: ClusterNode, count: number): Promise<string[]> {
    const ids: string[] = [];
    while (ids.length < count) {
      const items = Array.from({ length: Math.min(ROWS_PER_REQUEST, count - ids.length) }, () => {
        this.#written += 1;
        return { name: `row ${this.#written} from ${node.id}`, value: this.#written };
      });
      const { status, json } = await ask('POST', node.port, '/api/items/batch', items);
      if (status !== 201) throw new Error(`node ${node.id} answered ${status}: ${JSON.stringify(json)}`);
      ids.push(...json.items.map((item: { id: string }) => item.id));
    }
    return ids;
  }

  /** Asks every node how it is; one that does not answer soon has no health. */
  async look(patienceMs = HEALTH_MS): Promise<void> {
    await Promise.all(
      this.nodes.map(async (node) => {
        const asked = node.state === 'running' ? ask('GET', node.port, '/health', undefined, patienceMs) : undefined;
        const answer = await asked?.catch(() => undefined);
        // It may have been killed while it was asked.
        if (answer?.json?.node_id !== undefined && node.state === 'running') this.health.set(node.id, answer.json);
        else this.health.delete(node.id);
      }),
    );
  }

  compare(): Promise<Comparison> {
    return compare(this.nodes, this.#options.open);
  }

  /** Compares until they are equal, for as long as they still can become it within `limitMs`. */
  async settle(limitMs: number): Promise<Comparison> {
    const end = systemClock.now() + limitMs;
    for (;;) {
      await this.look(limitMs);
      const pending = this.nodes.some(({ id }) => (this.health.get(id)?.pending_changes ?? 1) > 0);
      const late = !this.whole || systemClock.now() > end;
      // Comparing reads every row: not worth it while the nodes themselves say that they are not done.
      if (!pending || late) {
        const comparison = await this.compare();
        if (comparison.equal || late) return comparison;
      }
      await systemClock.sleep(20);
    }
  }

  #node(id: string, index: number, peers: string[]): ClusterNode {
    const { folder, ports, say } = this.#options;
    return new ClusterNode({
      id,
      port: ports.node(index),
      consolePort: ports.console(index),
      file: join(folder, `${id}.db`),
      peers,
      onLog: (line) => {
        const text = this.#inWords(id, line);
        if (text) say(text);
      },
      onFailure: (reason) => say(`${id} ended by itself: ${reason}`),
    });
  }

  #inWords(id: string, line: Record<string, unknown>): string | undefined {
    const peer = this.peerName(String(line.peer));
    const way = `${id} ${peer}`;
    // The first contact is no news; a contact that comes back is.
    if (line.event === 'peer-up') return this.#lost.delete(way) ? `${id} reaches ${peer} again` : undefined;
    if (line.event === 'peer-down') {
      this.#lost.add(way);
      return `${id} cannot reach ${peer}: it keeps the changes for ${peer} and goes on trying`;
    }
    if (line.event === 'dead-letter') return `${id} put a change aside: ${line.reason}`;
    if (line.event === 'error' || line.event === 'warning') return `${id}: ${line.message}`;
    return undefined;
  }
}
