/** Which node answers at an edge's address, learnt from its `/health`. */
import type { Clock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Emitter } from '../events.ts';
import type { Bond } from '../send/bond.ts';
import { askHealth, nodeIdIn } from '../send/request.ts';
import type { Ask } from '../send/transport.ts';
import { NODE_ID_HEADER, ROWCAST_HEADER } from '../wire/protocol.ts';
import type { Edge } from './edges.ts';

/** How long a `/health` may take, and the pauses before the next: while the edge is not known, and once it is. */
const ANSWER_MS = 5_000;
const UNKNOWN_MS = 1_000;
const UNKNOWN_MS_MAX = 30_000;
const KNOWN_MS = 30_000;
/** An edge is asked because of what others say at most once in so long: anybody can say anything. */
const ASK_AGAIN_MS = 2_000;

export interface IdentityOptions {
  hubId: string;
  get: Ask;
  /** The header for a request to an edge. */
  introduction(url: string): Promise<string>;
  /** Where there are keys. */
  bond(url: string): Bond | undefined;
  clock: Clock;
  events: Emitter;
  /** An edge was asked: it may be shipped to now. */
  onAsked(edge: Edge): void;
}

/** Asks the edges who they are: at the start, after they were down, and now and then. */
export class EdgeIdentities {
  readonly #edges: Set<Edge>;
  readonly #o: IdentityOptions;
  readonly #stop = new AbortController();
  /** By the edge's URL: aborted to ask it before the pause is over. */
  readonly #wake = new Map<string, AbortController>();
  /** What is being asked. Each has a signal of its own: one for all would have a listener per edge. */
  readonly #requests = new Map<string, AbortController>();
  /** Edges that are about to be asked because of what others say, and when each was last. */
  readonly #askingBack = new Set<string>();
  readonly #askedBackAt = new Map<string, number>();
  /** The edges that have said they are the node of that id; mostly one. */
  readonly #byId = new Map<string, Set<Edge>>();
  /** What was said already, so that it is said once. */
  readonly #reported = new Set<string>();
  readonly #running = new Map<Edge, Promise<void>>();

  constructor(edges: Edge[], options: IdentityOptions) {
    this.#edges = new Set(edges);
    this.#o = options;
    for (const edge of edges) this.#note(edge, undefined);
  }

  start(): void {
    for (const edge of this.#edges) this.#running.set(edge, this.#watch(edge));
  }

  add(edge: Edge): void {
    this.#edges.add(edge);
    this.#note(edge, undefined);
    this.#running.set(edge, this.#watch(edge));
  }

  /** Resolves when it is not asked any more. */
  async remove(edge: Edge): Promise<void> {
    this.#edges.delete(edge);
    if (edge.nodeId !== undefined) this.#regroup(edge.nodeId, (group) => group.delete(edge));
    this.#wake.get(edge.url)?.abort();
    this.#requests.get(edge.url)?.abort();
    await this.#running.get(edge);
    this.#running.delete(edge);
    this.#wake.delete(edge.url);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    for (const running of [...this.#wake.values(), ...this.#requests.values()]) running.abort();
    await Promise.all(this.#running.values());
  }

  /** The edge is up again: it may be another one. */
  askAgain(url: string): void {
    this.#wake.get(url)?.abort();
  }

  /** Somebody says something of it that only itself can say. */
  askBack(url: string): void {
    if (this.#askingBack.has(url)) return;
    this.#askingBack.add(url);
    const now = this.#o.clock.now();
    const since = Math.abs(now - (this.#askedBackAt.get(url) ?? -Infinity));
    const wait =
      since >= ASK_AGAIN_MS ? Promise.resolve() : this.#o.clock.sleep(ASK_AGAIN_MS - since, this.#stop.signal);
    void wait.then(() => {
      this.#askingBack.delete(url);
      this.#askedBackAt.set(url, this.#o.clock.now());
      this.askAgain(url);
    });
  }

  async #watch(edge: Edge): Promise<void> {
    let pause = UNKNOWN_MS;
    while (this.#isWatched(edge)) {
      const known = await this.#ask(edge);
      if (!this.#isWatched(edge)) return;
      if (!edge.asked) {
        edge.asked = true;
        this.#o.onAsked(edge);
      }
      pause = known ? UNKNOWN_MS : Math.min(2 * pause, UNKNOWN_MS_MAX);
      const wake = new AbortController();
      this.#wake.set(edge.url, wake);
      await this.#o.clock.sleep(known ? KNOWN_MS : pause, wake.signal);
    }
  }

  #isWatched(edge: Edge): boolean {
    return !this.#stop.signal.aborted && this.#edges.has(edge);
  }

  async #ask(edge: Edge): Promise<boolean> {
    const found = await this.#askHealth(edge.url);
    if (found === undefined || !this.#isWatched(edge)) return false;
    try {
      const before = edge.nodeId;
      await edge.identify(found.id, found.said);
      this.#note(edge, before);
      return true;
    } catch (error) {
      this.#o.events.emit('error', new RowcastError('DATABASE_FAILED', messageOf(error), { cause: error }));
      return false;
    }
  }

  /** Undefined where it cannot be learnt; the edge is then sent its own changes as well, which harms nothing. */
  async #askHealth(url: string): Promise<{ id: string; said: string | null } | undefined> {
    const request = new AbortController();
    this.#requests.set(url, request);
    try {
      const bond = this.#o.bond(url);
      const options = { clock: this.#o.clock, timeoutMs: ANSWER_MS, stopped: request.signal, bond };
      const { status, body, header } = await askHealth(this.#o.get, url, await this.#o.introduction(url), options);
      // 503 is what a node answers that is not well; it is still that node.
      const isNode = status === 200 || status === 503;
      const id = isNode ? ((bond && header(NODE_ID_HEADER)) ?? nodeIdIn(body)) : undefined;
      return id === undefined ? undefined : { id, said: header(ROWCAST_HEADER) };
    } catch {
      return undefined;
    } finally {
      this.#requests.delete(url);
    }
  }

  /** Compares the edge with those of the same id alone, however many others there are. */
  #note(edge: Edge, before: string | undefined): void {
    const { nodeId } = edge;
    if (nodeId === undefined || nodeId === before) return;
    if (before !== undefined) this.#regroup(before, (group) => group.delete(edge));
    this.#regroup(nodeId, (group) => group.add(edge));
    const group = this.#byId.get(nodeId) as Set<Edge>;
    if (group.size > 1) {
      const urls = [...this.#edges].filter((one) => group.has(one)).map(({ url }) => url);
      const id = JSON.stringify(nodeId);
      this.#report('same-id', `edges ${urls.join(', ')} have the same id ${id}; all are served`);
    }
    if (nodeId === this.#o.hubId) {
      this.#report('own-id', `edge ${edge.url} has the hub's own id ${JSON.stringify(this.#o.hubId)}`);
    }
  }

  #regroup(nodeId: string, change: (group: Set<Edge>) => void): void {
    const group = this.#byId.get(nodeId) ?? new Set();
    const members = new Set(group);
    change(group);
    for (const edge of group) members.add(edge);
    for (const edge of members) edge.shared = group.has(edge) && group.size > 1;
    if (group.size === 0) this.#byId.delete(nodeId);
    else this.#byId.set(nodeId, group);
  }

  #report(code: string, message: string): void {
    if (this.#reported.has(message)) return;
    this.#reported.add(message);
    // Nobody can listen before the hub is returned to its caller.
    queueMicrotask(() => this.#o.events.emit('warning', { code, message }));
  }
}
