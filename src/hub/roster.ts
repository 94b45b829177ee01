/** The edges of a hub while it runs: who they are, a loop for each, and which of them are to be sent anything. */
import { checkPeer, type PeerOptions, refuseStranger } from '../config.ts';
import { Loop } from '../send/loop.ts';
import type { PeerCondition, Shipper } from '../send/shipper.ts';
import { Edge } from './edges.ts';
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
  identities: EdgeIdentities;
  /** The loop of an edge, not yet started. */
  shipper(edge: Edge): Shipper;
  /** It is none of the edges any more. */
  onRemoved(url: string): void;
  /** Throws once the hub was stopped. */
  refuseIfStopped(): void;
}

/** An edge and its loop. */
export interface Link {
  edge: Edge;
  loop: Loop;
}

export class EdgeRoster implements Edges {
  links: Link[];
  readonly #o: EdgeRosterOptions;
  /** One change after the other: each takes several turns, and must not meet another half done. */
  #changing: Promise<unknown> = Promise.resolve();

  constructor(edges: Edge[], options: EdgeRosterOptions) {
    this.#o = options;
    this.links = edges.map((edge) => this.#link(edge));
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
    await Promise.all(this.links.map(({ loop }) => loop.ended));
  }

  nudge(edge?: Edge): void {
    for (const link of this.links) if (edge === undefined || link.edge === edge) link.loop.shipper.nudge();
  }

  add(given: string | PeerOptions): Promise<void> {
    return this.#change(async () => {
      const url = checkPeer(given);
      if (this.links.some(({ edge }) => edge.url === url)) return;
      const { store } = this.#o;
      await store.addEdges([url]);
      const row = (await store.edges()).find((one) => one.url === url) as EdgeRow;
      const link = this.#link(new Edge(store, row));
      this.links = [...this.links, link];
      if (!link.edge.paused) link.loop.begin();
      this.#o.identities.add(link.edge);
    });
  }

  remove(url: string): Promise<void> {
    return this.#change(async () => {
      const link = this.#find(url);
      const { edge, loop } = link;
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
      this.links = this.links.filter((other) => other !== link);
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

  #link(edge: Edge): Link {
    return { edge, loop: new Loop(edge.url, () => this.#o.shipper(edge)) };
  }

  #find(given: string): Link {
    const url = checkPeer(given);
    const known = this.links.map(({ edge }) => edge.url);
    return this.links.find(({ edge }) => edge.url === url) ?? refuseStranger(url, known, 'edge');
  }
}
