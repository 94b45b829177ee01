/** The edges of a hub while it runs: who they are, a loop for each, and which of them are to be sent anything. */
import { checkPeer, type PeerOptions, refuseStranger } from '../config.ts';
import { Loop } from '../send/loop.ts';
import type { PeerCondition, Shipper } from '../send/shipper.ts';
import { type Answers, Edge } from './edges.ts';
import type { EdgeIdentities } from './identities.ts';
import type { EdgeRow, HubStore } from './store.ts';

export interface EdgeStatus {
  url: string;
  /** As its own `/health` says; null while it is not known. */
  node_id: string | null;
  state: PeerCondition;
  /** Nothing is sent to it, until it is resumed. */
  paused: boolean;
}

/** The edges at run time. They are not kept: after a restart, those of the configuration are the edges again. */
export interface Edges {
  /** Serves this one as well, which is given everything. One that is an edge already stays as it is. */
  add(edge: string | PeerOptions): Promise<void>;
  /** Forgets it; resolves when its loop has ended. */
  remove(url: string): Promise<void>;
  /** Sends it nothing, also after a restart, until `resume` or `remove`; resolves when nothing is on its way. */
  pause(url: string): Promise<void>;
  resume(url: string): Promise<void>;
  /** Gives it everything once more. */
  reseed(url: string): Promise<void>;
  list(): Promise<EdgeStatus[]>;
}

export interface EdgeRosterOptions {
  store: HubStore;
  answers: Answers;
  identities: EdgeIdentities;
  /** The loop of an edge, not yet started. */
  shipper(edge: Edge): Shipper;
  /** It is one of the edges now. */
  onTaken(row: EdgeRow): void;
  /** It is none of the edges any more. */
  onRemoved(url: string): void;
  /** Resolves when the event loop has come round. */
  nextTurn(): Promise<void>;
  /** Throws once the hub was stopped. */
  refuseIfStopped(): void;
}

/** An edge and its loop. */
export interface Link {
  edge: Edge;
  loop: Loop;
}

/** Edges that are woken in one turn of the event loop: whoever sends to the hub meanwhile must not wait for all. */
const WOKEN_A_TURN = 50;

export class EdgeRoster implements Edges {
  readonly #links = new Map<string, Link>();
  readonly #o: EdgeRosterOptions;
  #waking: Promise<void> | undefined;
  #wakeAgain = false;
  /** One change after the other: each takes several turns, and must not meet another half done. */
  #changing: Promise<unknown> = Promise.resolve();

  constructor(edges: Edge[], options: EdgeRosterOptions) {
    this.#o = options;
    for (const edge of edges) this.#link(edge);
  }

  /** In the order in which they were named. */
  get links(): Link[] {
    return [...this.#links.values()];
  }

  get loops(): Loop[] {
    return this.links.map(({ loop }) => loop);
  }

  start(): void {
    for (const { edge, loop } of this.links) if (!edge.paused) loop.begin();
  }

  async stop(): Promise<void> {
    await this.#changing;
    for (const { loop } of this.links) loop.end();
    await Promise.all([this.#waking, ...this.links.map(({ loop }) => loop.ended)]);
  }

  nudge(): void {
    for (const { loop } of this.#links.values()) loop.shipper.nudge();
  }

  find(url: string): Link | undefined {
    return this.#links.get(url);
  }

  /** There may be more to send. All are woken, one after the other; those that are down are left to their time. */
  wake(): void {
    this.#wakeAgain = true;
    this.#waking ??= this.#wakeAll().finally(() => {
      this.#waking = undefined;
    });
  }

  /** These begin anew, or may: the store knows how far they are. */
  async refresh(urls: string[]): Promise<void> {
    for (const url of urls) {
      const link = this.#links.get(url);
      await link?.edge.refresh();
      link?.loop.shipper.nudge();
    }
  }

  /**
   * Another state of the file is there, with the edges that it had. Who is one, and who is paused, this process knows better; of
   * a group none knows it of all.
   */
  beginAnew(): Promise<void> {
    return this.#change(async () => {
      const { store } = this.#o;
      await store.addEdges([...this.#links.keys()]);
      const others = store.group ? [] : (await store.edges()).filter(({ url }) => !this.#links.has(url));
      await store.forgetEdges(others.map(({ url }) => url));
      for (const { edge, loop } of this.links) {
        const { paused } = edge;
        await edge.refresh();
        if (edge.paused !== paused) await edge.pause(paused);
        loop.shipper.nudge();
      }
    });
  }

  add(given: string | PeerOptions): Promise<void> {
    return this.#change(async () => {
      const url = checkPeer(given);
      if (this.#links.has(url)) return;
      const { store, answers } = this.#o;
      await store.addEdges([url]);
      const link = this.#link(new Edge(store, answers, await store.edge(url)));
      if (!link.edge.paused) link.loop.begin();
      this.#o.identities.add(link.edge);
    });
  }

  /** Of all edges of a group these are served here: others are let go of, and new ones begun. */
  settle(rows: EdgeRow[]): Promise<void> {
    return this.#change(async () => {
      const mine = new Set(rows.map(({ url }) => url));
      await Promise.all(this.links.filter(({ edge }) => !mine.has(edge.url)).map((link) => this.#letGo(link)));
      for (const row of rows) {
        const link = this.#links.get(row.url) ?? this.#take(row);
        const isAnew = row.generation !== link.edge.generation;
        link.edge.take(row);
        if (row.paused) link.loop.end();
        else link.loop.begin();
        if (isAnew) link.loop.shipper.nudge();
      }
    });
  }

  #take(row: EdgeRow): Link {
    const { store, answers, onTaken, identities } = this.#o;
    onTaken(row);
    const link = this.#link(new Edge(store, answers, row));
    identities.add(link.edge);
    return link;
  }

  async #letGo({ edge, loop }: Link): Promise<void> {
    loop.end();
    await Promise.all([loop.ended, this.#o.identities.remove(edge)]);
    this.#links.delete(edge.url);
    this.#o.onRemoved(edge.url);
  }

  remove(url: string): Promise<void> {
    return this.#change(async () => {
      const { edge, loop } = this.#find(url);
      const wasRunning = loop.isRunning;
      loop.end();
      await Promise.all([loop.ended, this.#o.identities.remove(edge)]);
      try {
        await this.#o.store.forgetEdges([edge.url]);
      } catch (error) {
        // It could not be forgotten: then it is served as before.
        if (wasRunning) loop.begin();
        this.#o.identities.add(edge);
        throw error;
      }
      this.#links.delete(edge.url);
      this.#o.onRemoved(edge.url);
    });
  }

  pause(url: string): Promise<void> {
    return this.#change(async () => {
      const { edge, loop } = this.#find(url);
      await edge.pause(true);
      loop.end();
      await loop.ended;
    });
  }

  resume(url: string): Promise<void> {
    return this.#change(async () => {
      const { edge, loop } = this.#find(url);
      await edge.pause(false);
      loop.begin();
    });
  }

  reseed(url: string): Promise<void> {
    return this.#change(async () => {
      const { edge, loop } = this.#find(url);
      await edge.reseed();
      loop.shipper.nudge();
    });
  }

  async list(): Promise<EdgeStatus[]> {
    this.#o.refuseIfStopped();
    return this.links.map(({ edge: { url, nodeId, paused }, loop: { shipper } }) => {
      return { url, node_id: nodeId ?? null, state: shipper.condition, paused };
    });
  }

  #change(act: () => Promise<void>): Promise<void> {
    const done = this.#changing.then(() => {
      this.#o.refuseIfStopped();
      return act();
    });
    this.#changing = done.catch(() => {});
    return done;
  }

  async #wakeAll(): Promise<void> {
    while (this.#wakeAgain) {
      // Before the first is woken: what comes after that is for the next round.
      this.#wakeAgain = false;
      let woken = 0;
      for (const { loop } of this.#links.values()) {
        loop.shipper.wake();
        if (++woken % WOKEN_A_TURN === 0) await this.#o.nextTurn();
      }
    }
  }

  #link(edge: Edge): Link {
    const link = { edge, loop: new Loop(edge.url, () => this.#o.shipper(edge)) };
    this.#links.set(edge.url, link);
    return link;
  }

  #find(given: string): Link {
    const url = checkPeer(given);
    return this.#links.get(url) ?? refuseStranger(url, [...this.#links.keys()], 'edge');
  }
}
