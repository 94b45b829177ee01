/** One edge as the hub works with it: how far it is, and which node answers at its address. */
import type { Together } from '../send/together.ts';
import type { EdgeAnswer, EdgeEnd, EdgeRow, HubStore, Noted, Seq } from './store.ts';

/** What the edges answer in one turn of the event loop is noted together. */
export type Answers = Together<EdgeAnswer, Noted>;

export class Edge {
  readonly url: string;
  /**
   * True once `/health` was asked for the first time, whatever came of it: before, an edge might get its own changes.
   */
  asked = false;
  /** Another edge has the same id; then a change of one of them may be news to the other. */
  shared = false;
  /** Of an edge that has not said its id nobody knows whether that is another's. */
  others: { readonly haveAllSaidWho: boolean } = { haveAllSaidWho: true };
  readonly #store: HubStore;
  readonly #answers: Answers;
  #row: EdgeRow;

  constructor(store: HubStore, answers: Answers, row: EdgeRow) {
    this.#store = store;
    this.#answers = answers;
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
    return this.inc ?? (this.#isNamedAlone ? this.nodeId : undefined);
  }

  /** In a group another edge of the same id may be another process's. */
  get #isNamedAlone(): boolean {
    return this.#store.group === undefined && !this.shared && this.others.haveAllSaidWho;
  }

  /** What was brought in the name of its id may not have been sent to it. */
  get isKnownByName(): boolean {
    return this.#store.group === undefined && this.inc === undefined;
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
    if (said !== null) await this.answered(said);
    if (nodeId !== this.nodeId) this.take(await this.#store.identify(this.url, this.generation, nodeId, said === null));
  }

  /** What was sent is acknowledged, by somebody who introduces himself so; false where that is no word of this edge's. */
  acknowledged({ seq, generation }: EdgeEnd, said: string | undefined): Promise<boolean> {
    return this.#note({ url: this.url, generation, said, position: seq });
  }

  /** Whoever answers here introduces himself so, and acknowledges nothing. */
  async answered(said: string): Promise<void> {
    await this.#note({ url: this.url, generation: this.generation, said, position: undefined });
  }

  /** Somebody else may have changed what the store has of it. */
  async refresh(): Promise<void> {
    this.take(await this.#store.edge(this.url));
  }

  async #note(answer: EdgeAnswer): Promise<boolean> {
    const { counts, row } = await this.#answers.do(answer);
    if (row) this.take(row);
    return counts && row !== undefined;
  }

  /** As the store has it. Generations only grow: what was read of an earlier one has been under way. */
  take(row: EdgeRow): void {
    if (row.generation < this.generation) return;
    const position = row.generation === this.generation ? Math.max(row.position, this.position) : row.position;
    this.#row = { ...row, position };
  }
}

/**
 * Makes room for the configured edges. One that was taken out is forgotten: named again, it is a new one. In a group they are
 * only added, since another process may have been given others, and which of them this one serves is found out later.
 */
export async function enrolEdges(store: HubStore, urls: string[]): Promise<EdgeRow[]> {
  if (store.group) {
    await store.addEdges(urls);
    return [];
  }
  const known = await store.edges();
  const wanted = new Set(urls);
  await store.forgetEdges(known.map(({ url }) => url).filter((url) => !wanted.has(url)));
  await store.addEdges(urls);
  const rows = new Map((await store.edges()).map((row) => [row.url, row]));
  return urls.map((url) => rows.get(url) as EdgeRow);
}
