/** The edges of a group: whoever changes them tells the store, and the process that serves them hears of it there. */
import { checkPeer, type PeerOptions } from '../config.ts';
import type { Ownership } from './ownership.ts';
import type { EdgeRoster, EdgeStatus, Edges } from './roster.ts';
import type { HubStore } from './store.ts';

export class GroupEdges implements Edges {
  readonly #store: HubStore;
  readonly #roster: EdgeRoster;
  readonly #ownership: Ownership;

  constructor(store: HubStore, roster: EdgeRoster, ownership: Ownership) {
    this.#store = store;
    this.#roster = roster;
    this.#ownership = ownership;
  }

  async add(edge: string | PeerOptions): Promise<void> {
    await this.#store.addEdges([checkPeer(edge)]);
    await this.#ownership.look();
  }

  remove(url: string): Promise<void> {
    return this.#change(url, (known) => this.#store.forgetEdges([known]));
  }

  pause(url: string): Promise<void> {
    return this.#change(url, (known) => this.#store.pauseEdge(known, true));
  }

  resume(url: string): Promise<void> {
    return this.#change(url, (known) => this.#store.pauseEdge(known, false));
  }

  reseed(url: string): Promise<void> {
    return this.#change(url, (known) => this.#store.reseedEdge(known));
  }

  /** All of the group; of those that another process serves it is not known here whether they answer. */
  async list(): Promise<EdgeStatus[]> {
    const own = new Map((await this.#roster.list()).map((status) => [status.url, status]));
    return (await this.#store.edges()).map(
      ({ url, nodeId, paused }) => own.get(url) ?? { url, node_id: nodeId ?? null, state: 'unknown', paused },
    );
  }

  async #change(given: string, act: (url: string) => Promise<unknown>): Promise<void> {
    // Rejects where it is no edge.
    const { url } = await this.#store.edge(checkPeer(given));
    await act(url);
    await this.#ownership.look();
  }
}
