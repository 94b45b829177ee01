/** The edges: how far each of them is, and which node answers at its address. */
import type { Clock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Emitter } from '../events.ts';
import { askHealth, nodeIdIn } from '../send/request.ts';
import type { Get } from '../send/transport.ts';
import type { Connection } from '../sqlite/connection.ts';

/** How long a `/health` may take, and the pauses before it is asked for again: while it is not known, and once it is. */
const ANSWER_MS = 5_000;
const UNKNOWN_MS = 1_000;
const UNKNOWN_MS_MAX = 30_000;
const KNOWN_MS = 30_000;

export class Edge {
  readonly url: string;
  /** True once `/health` was asked for the first time, whatever came of it: before, an edge might get its own changes. */
  asked = false;
  /** Another edge has the same id; then a change of one of them may be news to the other. */
  shared = false;
  nodeId: string | undefined;
  /** How many nodes there were at this address one after the other. */
  generation = 0;
  readonly #db: Connection;

  constructor(db: Connection, url: string) {
    this.#db = db;
    this.url = url;
    this.nodeId = this.#row().node_id ?? undefined;
  }

  /** The last seq that it has acknowledged, or brought itself. */
  get position(): number {
    return this.#row().position;
  }

  /** The id of the node whose changes are not to be sent here. */
  get ownId(): string | undefined {
    return this.shared ? undefined : this.nodeId;
  }

  /** Inside a transaction. Not flushed: what a power cut takes back is sent again. */
  advance(seq: number): void {
    this.#db.run(
      'UPDATE _hub_edges SET position = max(position, CAST(? AS INTEGER)) WHERE url = ? AND position < ?',
      seq,
      this.url,
      seq,
    );
  }

  /** Another node at a known address has nothing of what the one before it had: it begins with the whole state. */
  identify(nodeId: string): void {
    if (nodeId === this.nodeId) return;
    const replaced = this.nodeId !== undefined;
    this.#db.transaction(() => {
      this.#db.run('UPDATE _hub_edges SET node_id = ? WHERE url = ?', nodeId, this.url);
      if (replaced) this.#db.run('UPDATE _hub_edges SET position = 0 WHERE url = ?', this.url);
    });
    if (replaced) this.generation += 1;
    this.nodeId = nodeId;
  }

  #row(): { position: number; node_id: string | null } {
    const row = this.#db.get<{ position: number; node_id: string | null }>(
      'SELECT position, node_id FROM _hub_edges WHERE url = ?',
      this.url,
    );
    if (!row) throw new Error(`no state for edge ${this.url}`);
    return row;
  }
}

/** Makes room for the configured edges. One that was taken out is forgotten: named again, it is a new one. */
export function enrolEdges(db: Connection, urls: string[]): Edge[] {
  db.transaction(() => {
    const known = db.all<{ url: string }>('SELECT url FROM _hub_edges').map(({ url }) => url);
    for (const url of known) if (!urls.includes(url)) db.run('DELETE FROM _hub_edges WHERE url = ?', url);
    for (const url of urls) db.run('INSERT INTO _hub_edges (url) VALUES (?) ON CONFLICT DO NOTHING', url);
  });
  return urls.map((url) => new Edge(db, url));
}

export interface CensusOptions {
  hubId: string;
  get: Get;
  clock: Clock;
  events: Emitter;
  /** An edge was asked: it may be shipped to now. */
  onAsked(edge: Edge): void;
}

/** Asks the edges who they are: at the start, after they were down, and now and then. */
export class Census {
  readonly #edges: Edge[];
  readonly #o: CensusOptions;
  readonly #stop = new AbortController();
  readonly #wake = new Map<Edge, AbortController>();
  readonly #requests = new Set<AbortController>();
  /** What was said already, so that it is said once. */
  readonly #reported = new Set<string>();
  #running: Promise<unknown> | undefined;

  constructor(edges: Edge[], options: CensusOptions) {
    this.#edges = edges;
    this.#o = options;
    this.#compare();
  }

  start(): void {
    this.#running ??= Promise.all(this.#edges.map((edge) => this.#watch(edge)));
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    for (const running of [...this.#wake.values(), ...this.#requests]) running.abort();
    await this.#running;
  }

  /** The edge is up again: it may be another one. */
  askAgain(url: string): void {
    for (const [edge, wake] of this.#wake) if (edge.url === url) wake.abort();
  }

  async #watch(edge: Edge): Promise<void> {
    let pause = UNKNOWN_MS;
    while (!this.#stop.signal.aborted) {
      const known = await this.#ask(edge);
      if (this.#stop.signal.aborted) return;
      if (!edge.asked) {
        edge.asked = true;
        this.#o.onAsked(edge);
      }
      pause = known ? UNKNOWN_MS : Math.min(2 * pause, UNKNOWN_MS_MAX);
      const wake = new AbortController();
      this.#wake.set(edge, wake);
      await this.#o.clock.sleep(known ? KNOWN_MS : pause, wake.signal);
    }
  }

  async #ask(edge: Edge): Promise<boolean> {
    const id = await this.#nodeIdOf(edge.url);
    if (id === undefined || this.#stop.signal.aborted) return false;
    try {
      edge.identify(id);
      this.#compare();
      return true;
    } catch (error) {
      this.#o.events.emit('error', new RowcastError('DATABASE_FAILED', messageOf(error), { cause: error }));
      return false;
    }
  }

  /** Undefined where it cannot be learnt; the edge is then sent its own changes as well, which costs and harms nothing. */
  async #nodeIdOf(url: string): Promise<string | undefined> {
    const request = new AbortController();
    this.#requests.add(request);
    try {
      const options = { clock: this.#o.clock, timeoutMs: ANSWER_MS, stopped: request.signal };
      const { status, body } = await askHealth(this.#o.get, url, options);
      // 503 is what a node answers that is not well; it is still that node.
      return status === 200 || status === 503 ? nodeIdIn(body) : undefined;
    } catch {
      return undefined;
    } finally {
      this.#requests.delete(request);
    }
  }

  #compare(): void {
    for (const edge of this.#edges) {
      const twins = this.#edges.filter((other) => other.nodeId !== undefined && other.nodeId === edge.nodeId);
      edge.shared = twins.length > 1;
      if (edge.shared) {
        const urls = twins.map(({ url }) => url).join(', ');
        this.#report('same-id', `edges ${urls} have the same id ${JSON.stringify(edge.nodeId)}; all are served`);
      }
      if (edge.nodeId === this.#o.hubId) {
        this.#report('own-id', `edge ${edge.url} has the hub's own id ${JSON.stringify(this.#o.hubId)}`);
      }
    }
  }

  #report(code: string, message: string): void {
    if (this.#reported.has(message)) return;
    this.#reported.add(message);
    // Nobody can listen before the hub is returned to its caller.
    queueMicrotask(() => this.#o.events.emit('warning', { code, message }));
  }
}
