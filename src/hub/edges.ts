/** One edge as the hub works with it: how far it is, and which node answers at its address. */
import type { EdgeEnd, EdgeRow, HubStore, Seq } from './store.ts';

export class Edge {
  readonly url: string;
  /**
   * True once `/health` was asked for the first time, whatever came of it: before, an edge might get its own changes.
   */
  asked = false;
  /** Another edge has the same id; then a change of one of them may be news to the other. */
  shared = false;
  readonly #store: HubStore;
  #row: EdgeRow;

  constructor(store: HubStore, row: EdgeRow) {
    this.#store = store;
    this.url = row.url;
    this.#row = row;
  }

  /** The last seq that it has acknowledged, or brought itself. */
  get position(): Seq {
    return this.#row.position;
  }

  get nodeId(): string | undefined {
    return this.#row.nodeId;
  }

  get generation(): number {
    return this.#row.generation;
  }

  /** Nothing is sent to it. */
  get paused(): boolean {
    return this.#row.paused;
  }

  get inc(): string | undefined {
    return this.#row.inc;
  }

  /** The node that has shown the key here, as of the start. */
  get pinned(): string | undefined {
    return this.#row.pinned;
  }

  /** Whose changes are not to be sent here: the database that answers here, or the id of a plain node. */
  get ownOrigin(): string | undefined {
    if (this.position < this.#row.anewUpto) return undefined;
    return this.inc ?? (this.shared ? undefined : this.nodeId);
  }

  async advance({ seq, generation }: EdgeEnd): Promise<void> {
    if (generation !== this.generation || seq <= this.position) return;
    await this.#store.advance([{ url: this.url, generation, position: seq }]);
    // A position that is stored and not yet known here is sent once more; one that is known and not stored would be
    // lost.
    if (generation === this.generation) this.#row = { ...this.#row, position: Math.max(seq, this.position) };
  }

  async pause(paused: boolean): Promise<void> {
    await this.#store.pauseEdge(this.url, paused);
    this.#row = { ...this.#row, paused };
  }

  /** It is given everything once more: what is under way to it says nothing of how far it then is. */
  async reseed(): Promise<void> {
    this.#row = await this.#store.reseedEdge(this.url);
  }

  /** The node at this address has said its id, and how it introduces itself; null where it does not. */
  async identify(nodeId: string, said: string | null): Promise<void> {
    if (said !== null) await this.answered(said, this.generation);
    if (nodeId !== this.nodeId)
      this.#take(await this.#store.identify(this.url, this.generation, nodeId, said === null));
  }

  /** What was sent in that generation is answered by somebody who introduces himself so; false where that is no word of it. */
  async answered(said: string, generation: number): Promise<boolean> {
    const counts = await this.#store.company.answered(this.url, generation, said);
    await this.refresh();
    return counts;
  }

  /** Somebody else may have changed what the store has of it. */
  async refresh(): Promise<void> {
    this.#take(await this.#store.edge(this.url));
  }

  #take(row: EdgeRow): void {
    const position = row.generation === this.generation ? Math.max(row.position, this.position) : row.position;
    this.#row = { ...row, position };
  }
}

/** Makes room for the configured edges. One that was taken out is forgotten: named again, it is a new one. */
export async function enrolEdges(store: HubStore, urls: string[]): Promise<Edge[]> {
  const known = await store.edges();
  const wanted = new Set(urls);
  await store.forgetEdges(known.map(({ url }) => url).filter((url) => !wanted.has(url)));
  await store.addEdges(urls);
  const rows = new Map((await store.edges()).map((row) => [row.url, row]));
  return urls.map((url) => new Edge(store, rows.get(url) as EdgeRow));
}
