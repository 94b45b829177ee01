/** Which node answers at an edge's address, learnt from its `/health`. */
import { type Clock, endOfMany, passedSince } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import { type Emitter, warningLater } from '../events.ts';
import type { Bond } from '../send/bond.ts';
import { Places } from '../send/places.ts';
import { askHealth, nodeIdOf } from '../send/request.ts';
import { IDLE_MS } from '../send/shipper.ts';
import type { Ask } from '../send/transport.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { NODE_ID_HEADER, ROWCAST_HEADER } from '../wire/protocol.ts';
import type { Edge } from './edges.ts';
import { SeenTogether } from './seen-together.ts';

/** How long a `/health` may take, and the pauses before the next: while the edge is not known, and once it is. */
const ANSWER_MS = 5_000;
const UNKNOWN_MS = 1_000;
const UNKNOWN_MS_MAX = 30_000;
const KNOWN_MS = 30_000;
/** An edge is asked because of what others say at most once in so long: anybody can say anything. */
const ASK_AGAIN_MS = 2_000;
/** How often it is looked whom to ask: one timer for all edges. */
const LOOK_MS = 1_000;
/** Beyond so many edges the pauses grow with their number: a question costs a fifth of a millisecond on either side. */
const ASKED_A_SECOND = 50;
/** Whose turn comes after so long need not be looked at each time: it is, so many times until then. */
const LOOKS_A_PAUSE = 20;
/** Edges of one id are told of, one after the other, up to so many: a thousand copies of one image are one mistake. */
const SAME_ID_TOLD = 10;
/** Questions under way at once. */
const PLACES = 64;

export interface IdentityOptions {
  hubId: string;
  get: Ask;
  /** The header for a request to an edge. */
  introduction(url: string): Promise<string>;
  /** Where there are keys. */
  bond(url: string): Bond | undefined;
  clock: Clock;
  events: Emitter;
  /** When an edge last answered to what it was sent; 0 where it has not. */
  answeredAt(edge: Edge): number;
  /** A database is no more where it was an edge. */
  onLeft(inc: string): void;
  /** An edge was asked for the first time: it may be shipped to now. */
  onAsked(edge: Edge): void;
  /** It has to be given everything, and its loop may be asleep. */
  onAnew(edge: Edge): void;
  /** Whether an edge has answered to who it is. */
  onAnswer(edge: Edge, isAlive: boolean): void;
}

/** An edge, and when it is to be asked. */
interface Watched {
  edge: Edge;
  /** When it was last asked, and how long it then has to be quiet. */
  askedAt: number;
  pause: number;
  isKnown: boolean;
  /** Under way; `again` where it must be asked once more after that. */
  asking: Promise<void> | undefined;
  again: boolean;
  /** Takes the question back. */
  request: AbortController | undefined;
}

/** Asks the edges who they are: at the start, after they were down, and when they have said nothing for a while. */
export class EdgeIdentities {
  readonly #edges = new Map<string, Watched>();
  readonly #o: IdentityOptions;
  readonly #stop = endOfMany();
  readonly #places: Places;
  /** Edges that are about to be asked because of what others say, and when each was last. */
  readonly #askingBack = new Set<string>();
  readonly #askedBackAt = new Map<string, number>();
  /** The edges that have said they are the node of that id; mostly one. */
  readonly #byId = new Map<string, Set<Edge>>();
  /** Those that have said nothing. */
  readonly #nameless = new Set<Edge>();
  readonly #seen: SeenTogether;
  /** What was said already, so that it is said once. */
  readonly #reported = new Set<string>();
  #looking: Promise<void> | undefined;

  constructor(edges: Edge[], options: IdentityOptions) {
    this.#o = options;
    this.#seen = new SeenTogether(options.clock);
    this.#places = new Places(PLACES, options.clock, this.#stop.signal);
    for (const edge of edges) this.#watch(edge);
  }

  start(): void {
    for (const watched of this.#edges.values()) this.#ask(watched);
    this.#looking ??= this.#look();
  }

  add(edge: Edge): void {
    this.#ask(this.#watch(edge));
  }

  /** Resolves when it is not asked any more. */
  async remove(edge: Edge): Promise<void> {
    const watched = this.#edges.get(edge.url);
    this.#edges.delete(edge.url);
    this.#nameless.delete(edge);
    if (edge.nodeId !== undefined) this.#regroup(edge.nodeId, (group) => group.delete(edge));
    this.#left(this.#seen.forget(edge));
    watched?.request?.abort();
    await watched?.asking;
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    const all = [...this.#edges.values()];
    for (const { request } of all) request?.abort();
    await Promise.all([this.#looking, ...all.map(({ asking }) => asking)]);
  }

  /** The edge is up again, or answers without a word of who it is: it may be another one. */
  askAgain(url: string): void {
    const watched = this.#edges.get(url);
    if (watched) this.#ask(watched);
  }

  /** Somebody says something of it that only itself can say. */
  askBack(url: string): void {
    if (this.#askingBack.has(url)) return;
    this.#askingBack.add(url);
    const since = passedSince(this.#o.clock, this.#askedBackAt.get(url) ?? -Infinity);
    const wait =
      since >= ASK_AGAIN_MS ? Promise.resolve() : this.#o.clock.sleep(ASK_AGAIN_MS - since, this.#stop.signal);
    void wait.then(() => {
      this.#askingBack.delete(url);
      this.#askedBackAt.set(url, this.#o.clock.now());
      this.askAgain(url);
    });
  }

  /** The ids that several edges use at once, though they are different databases, and what is said of that. */
  usedTwice(): Map<string, string> {
    const found = new Map<string, string>();
    for (const [id, group] of this.#byId) {
      const problem = group.size > 1 ? this.#seen.problem(id, group) : undefined;
      if (problem !== undefined) found.set(id, problem);
    }
    return found;
  }

  get haveAllSaidWho(): boolean {
    return this.#nameless.size === 0;
  }

  #watch(edge: Edge): Watched {
    const idle = { asking: undefined, again: false, request: undefined };
    const watched: Watched = { edge, askedAt: 0, pause: UNKNOWN_MS, isKnown: false, ...idle };
    this.#edges.set(edge.url, watched);
    edge.others = this;
    if (edge.nodeId === undefined) this.#nameless.add(edge);
    this.#note(edge, undefined);
    return watched;
  }

  /** At those whose turn it is to be looked at: each of them in its place, round and round. */
  async #look(): Promise<void> {
    const { clock } = this.#o;
    let rest = this.#edges.values();
    while (!this.#stop.signal.aborted) {
      await clock.sleep(LOOK_MS, this.#stop.signal);
      const everyMs = this.#lookedAtEveryMs;
      for (let left = Math.ceil((this.#edges.size * LOOK_MS) / everyMs); left > 0; left--) {
        let next = rest.next();
        if (next.done) {
          rest = this.#edges.values();
          next = rest.next();
        }
        if (!next.done && this.#isDue(next.value, everyMs)) this.#ask(next.value);
      }
    }
  }

  /** What is between two questions to an edge at least, where there are many. */
  get #leastMs(): number {
    return (1_000 * this.#edges.size) / ASKED_A_SECOND;
  }

  get #lookedAtEveryMs(): number {
    return LOOK_MS * Math.max(1, Math.floor(this.#leastMs / (LOOKS_A_PAUSE * LOOK_MS)));
  }

  /** By a clock that has jumped, in either direction, it is due as well. */
  #isDue({ edge, askedAt, pause, isKnown, asking }: Watched, everyMs: number): boolean {
    if (asking || this.#stop.signal.aborted) return false;
    const { clock } = this.#o;
    // What one of several with one id answers to a batch does not tell who of them is there.
    const isTold = isKnown && edge.inc !== undefined && !edge.shared;
    const heardMs = isTold ? passedSince(clock, this.#o.answeredAt(edge)) : Infinity;
    const quietMs = Math.min(heardMs, passedSince(clock, askedAt));
    // The next look is a while away, and must not be too late.
    return quietMs > Math.max(this.#leastMs, pause) - everyMs;
  }

  #ask(watched: Watched): void {
    watched.again = watched.asking !== undefined;
    watched.asking ??= this.#askInTurn(watched).finally(() => {
      watched.asking = undefined;
      if (watched.again && this.#isWatched(watched)) this.#ask(watched);
    });
  }

  async #askInTurn(watched: Watched): Promise<void> {
    const { edge } = watched;
    const isKnown = await this.#places.pass(() => this.#learn(watched));
    if (!this.#isWatched(watched)) return;
    watched.askedAt = this.#o.clock.now();
    const wasKnown = watched.isKnown;
    watched.isKnown = isKnown;
    // Who introduces itself does so with every answer: it is asked when there was none for a while, and then soon.
    if (isKnown) watched.pause = edge.inc === undefined ? KNOWN_MS : IDLE_MS;
    else watched.pause = wasKnown ? UNKNOWN_MS : Math.min(2 * watched.pause, UNKNOWN_MS_MAX);
    if (!edge.asked) {
      edge.asked = true;
      this.#o.onAsked(edge);
    }
    this.#o.onAnswer(edge, isKnown);
  }

  #isWatched(watched: Watched): boolean {
    return !this.#stop.signal.aborted && this.#edges.get(watched.edge.url) === watched;
  }

  async #learn(watched: Watched): Promise<boolean> {
    const { edge } = watched;
    const asked = this.#seen.ask();
    const found = this.#isWatched(watched) ? await this.#askHealth(watched) : undefined;
    if (found === undefined || !this.#isWatched(watched)) return false;
    try {
      const { nodeId: before, generation } = edge;
      if (found.id !== before) await this.#giveBack(found.id);
      await edge.identify(found.id, found.said);
      if (!this.#isWatched(watched)) return false;
      if (edge.generation !== generation) this.#o.onAnew(edge);
      this.#note(edge, before);
      this.#see(edge, asked, found);
      return true;
    } catch (error) {
      this.#o.events.emit('error', new RowcastError('DATABASE_FAILED', messageOf(error), { cause: error }));
      return false;
    }
  }

  /** Undefined where it cannot be learnt; the edge is then sent its own changes as well, which harms nothing. */
  async #askHealth(watched: Watched): Promise<{ id: string; said: string | null } | undefined> {
    const { url } = watched.edge;
    const request = new AbortController();
    watched.request = request;
    try {
      const bond = this.#o.bond(url);
      const options = { clock: this.#o.clock, timeoutMs: ANSWER_MS, stopped: request.signal, bond };
      const answer = await askHealth(this.#o.get, url, await this.#o.introduction(url), options);
      // 503 is what a node answers that is not well; it is still that node.
      const isNode = answer.status === 200 || answer.status === 503;
      const id = isNode ? ((bond && answer.header(NODE_ID_HEADER)) ?? nodeIdOf(answer)) : undefined;
      return id === undefined ? undefined : { id, said: answer.header(ROWCAST_HEADER) };
    } catch {
      return undefined;
    } finally {
      watched.request = undefined;
    }
  }

  /** Others of the same id are asked where they are: to have been there before says nothing. */
  #see(edge: Edge, asked: number, { id, said }: { id: string; said: string | null }): void {
    this.#left(this.#seen.note(edge, asked, id, readIntroduction(said)?.inc));
    const group = this.#byId.get(id);
    if (group && group.size > 1) for (const { url } of this.#seen.doubted(edge, group)) this.askBack(url);
  }

  #left(inc: string | undefined): void {
    if (inc !== undefined) this.#o.onLeft(inc);
  }

  /** Compares the edge with those of the same id alone, however many others there are. */
  #note(edge: Edge, before: string | undefined): void {
    const { nodeId } = edge;
    if (nodeId === undefined || nodeId === before) return;
    this.#nameless.delete(edge);
    if (before !== undefined) this.#regroup(before, (group) => group.delete(edge));
    this.#regroup(nodeId, (group) => group.add(edge));
    const group = this.#byId.get(nodeId) as Set<Edge>;
    if (group.size > 1 && group.size <= SAME_ID_TOLD) {
      const urls = [...group].map(({ url }) => url).sort();
      const id = JSON.stringify(nodeId);
      this.#report('same-id', `edges ${urls.join(', ')} have the same id ${id}; all are served`);
    }
    if (nodeId === this.#o.hubId) {
      this.#report('own-id', `edge ${edge.url} has the hub's own id ${JSON.stringify(this.#o.hubId)}`);
    }
  }

  /**
   * Another edge has this id. What it has brought until now was taken for the one's that is known by it, which was not sent that:
   * it is given everything, before the other is known by the id, so that it is not forgotten should the process end.
   */
  async #giveBack(id: string): Promise<void> {
    const [sole, ...more] = this.#byId.get(id) ?? [];
    if (!sole?.isKnownByName || more.length > 0) return;
    sole.shared = true;
    await sole.reseed();
    this.#o.onAnew(sole);
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
    warningLater(this.#o.events)(code, message);
  }
}
