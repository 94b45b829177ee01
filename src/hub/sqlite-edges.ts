/** The edges as the hub's file has them: where each is, who answers there, and whether it is paused. */
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { EdgeRow, Seq } from './store.ts';

export class SqliteEdges {
  readonly #db: Connection;
  /**
   * By URL. They need not outlast the process: what was under way when it ended is never answered. A number never comes
   * again, so that an edge which was forgotten is a new one when it is named again.
   */
  readonly #generations = new Map<string, number>();
  #lastGeneration = 0;

  constructor(db: Connection) {
    this.#db = db;
  }

  all(): EdgeRow[] {
    return this.#db.all<StoredEdge>(`${EDGES} ORDER BY url`).map((row) => this.#row(row));
  }

  get(url: string): EdgeRow {
    return this.#row(this.#stored(url));
  }

  find(url: string): EdgeRow | undefined {
    const row = this.#db.get<StoredEdge>(`${EDGES} WHERE url = ?`, url);
    return row && this.#row(row);
  }

  add(urls: string[]): void {
    this.#db.transaction(() => {
      const sql = `INSERT INTO _hub_edges (url, anew_upto) VALUES (?, ${LATEST}) ON CONFLICT DO NOTHING`;
      for (const url of urls) this.#db.run(sql, url);
    });
  }

  forget(urls: string[]): void {
    const forgotten = (): void => {
      for (const url of urls) {
        this.#db.run('DELETE FROM _hub_edges WHERE url = ?', url);
        this.#db.run('DELETE FROM _hub_verified WHERE url = ?', url);
      }
    };
    // Named again, it is a new one: its old place must not come back with a power cut.
    if (urls.length > 0) this.#db.transaction(forgotten, { durable: true });
    for (const url of urls) this.#generations.delete(url);
  }

  pause(url: string, paused: boolean): void {
    const sql = 'UPDATE _hub_edges SET paused = CAST(? AS INTEGER) WHERE url = ?';
    this.#db.transaction(() => this.#db.run(sql, paused ? 1 : 0, url), { durable: true });
  }

  pin(url: string, nodeId: string): void {
    const sql = 'UPDATE _hub_edges SET pinned = ? WHERE url = ?';
    this.#db.transaction(() => this.#db.run(sql, nodeId, url), { durable: true });
  }

  reseed(url: string): EdgeRow {
    const sql = `UPDATE _hub_edges SET position = 0, anew_upto = ${LATEST} WHERE url = ?`;
    // A person has said so, who would not be asked again after a power cut.
    this.#db.transaction(() => this.#db.run(sql, url), { durable: true });
    this.nextGeneration(url);
    return this.get(url);
  }

  identify(url: string, generation: number, nodeId: string, isPlain: boolean): EdgeRow {
    const row = this.#stored(url);
    if (row.node_id === nodeId || generation !== this.generationOf(url)) return this.#row(row);
    // Another node has nothing of what the one before it had.
    const isAnother = row.node_id !== null && isPlain;
    const anew = isAnother ? `, position = 0, anew_upto = ${LATEST}, inc = NULL` : '';
    this.#db.transaction(() => this.#db.run(`UPDATE _hub_edges SET node_id = ?${anew} WHERE url = ?`, nodeId, url));
    if (isAnother) this.nextGeneration(url);
    return this.get(url);
  }

  /** In a transaction. */
  advance({ url, generation, position }: { url: string; generation: number; position: Seq }): void {
    if (!this.isOf(url, generation)) return;
    const sql = 'UPDATE _hub_edges SET position = CAST(? AS INTEGER) WHERE url = ? AND position < ?';
    this.#db.run(sql, position, url, position);
  }

  isOf(url: string, generation: number): boolean {
    return this.#generations.get(url) === generation;
  }

  generationOf(url: string): number {
    const known = this.#generations.get(url) ?? ++this.#lastGeneration;
    this.#generations.set(url, known);
    return known;
  }

  /** What is under way to this URL, or to any, is worth nothing from now on. */
  nextGeneration(url?: string): void {
    if (url === undefined) this.#generations.clear();
    else this.#generations.delete(url);
  }

  #stored(url: string): StoredEdge {
    const row = this.#db.get<StoredEdge>(`${EDGES} WHERE url = ?`, url);
    if (!row) throw new RowcastError('INVALID_PEER', `${url} is no edge of this hub`);
    return row;
  }

  #row({ url, position, node_id, inc, anew_upto: anewUpto, paused, pinned }: StoredEdge): EdgeRow {
    const generation = this.generationOf(url);
    const known = { nodeId: node_id ?? undefined, inc: inc ?? undefined, pinned: pinned ?? undefined };
    return { url, position, ...known, anewUpto, paused: paused === 1, generation };
  }
}

interface StoredEdge {
  url: string;
  position: Seq;
  node_id: string | null;
  paused: number;
  inc: string | null;
  anew_upto: Seq;
  pinned: string | null;
}

const EDGES = 'SELECT url, position, node_id, paused, inc, anew_upto, pinned FROM _hub_edges';

/** Up to there an edge that begins anew is sent what it brought itself, too. */
export const LATEST = '(SELECT coalesce(max(seq), 0) FROM _hub_rows)';
