/** The hub's store in one SQLite file, for one process. Everything is done when its promise is made. */
import type { Clock } from '../clock.ts';
import { DeadLetters } from '../dead-letters.ts';
import { messageOf, RowcastError } from '../errors.ts';
import { type Facts, factsOf } from '../observe/facts.ts';
import { TimeLimit } from '../receive/time-limit.ts';
import { setAsideChanges, setAsideForbidden, singleChange } from '../send/set-aside.ts';
import type { Connection } from '../sqlite/connection.ts';
import { featuresOf, requireVersion } from '../sqlite/features.ts';
import { RowCounter } from '../sqlite/row-counter.ts';
import { type BatchLimit, batchText } from '../wire/body.ts';
import { LATEST, SqliteHubCompany } from './sqlite-company.ts';
import { Forgetting } from './sqlite-forget.ts';
import { SqliteHubLedger } from './sqlite-ledger.ts';
import { SegmentReader } from './sqlite-read.ts';
import { BatchMerger } from './sqlite-receive.ts';
import { prepareHubDatabase } from './sqlite-tables.ts';
import type { Counts, EdgeRow, EdgeShipment, HubLetters, HubStore, Segment, Sender, Seq, Stored } from './store.ts';

/** Rows that an edge has not acknowledged are counted up to here. */
const COUNTED_EXACTLY = 10_000;

/** How much is released at a time: a bounded transaction. */
const RELEASED = { limit: 200, characters: 256 * 1024 };

export interface SqliteStoreOptions {
  clock: Clock;
  /** The largest body that is read. */
  maxBodyBytes: number;
  /** How far ahead of the clock a change may be. */
  maxAheadMs: number;
  /** The hub's id, and chance, of which its identity is made. */
  id: string;
  random: () => number;
  /** Whether to read bodies as JSONB; by default where this SQLite can. */
  jsonb?: boolean;
}

export class SqliteHubStore implements HubStore {
  readonly letters: HubLetters;
  readonly company: SqliteHubCompany;
  readonly ledger: SqliteHubLedger;
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #letters: DeadLetters;
  readonly #merger: BatchMerger;
  readonly #reader: SegmentReader;
  readonly #counter: RowCounter;
  readonly #forgetting: Forgetting;
  readonly #hints = new Set<() => void>();
  /**
   * Of the edges by URL. They need not outlast the process: what was under way when it ended is never answered. A
   * number never comes again, so that an edge which was forgotten is a new one when it is named again.
   */
  readonly #generations = new Map<string, number>();
  #lastGeneration = 0;

  constructor(db: Connection, options: SqliteStoreOptions) {
    const { clock, maxBodyBytes, maxAheadMs, id, random, jsonb = true } = options;
    this.#db = db;
    this.#clock = clock;
    this.company = new SqliteHubCompany(
      db,
      { id, random, clock },
      {
        generationOf: (url) => this.#generationOf(url),
        nextGeneration: (url) => this.#generations.delete(url),
      },
    );
    const timeLimit = new TimeLimit(clock, maxAheadMs);
    this.#letters = new DeadLetters(db, clock, timeLimit);
    const reading = { bodyBytes: maxBodyBytes, jsonb: jsonb && featuresOf(db).jsonb, timeLimit };
    this.#merger = new BatchMerger(db, this.#letters, reading, this.company);
    this.#reader = new SegmentReader(db);
    this.#counter = new RowCounter(db, clock);
    this.#forgetting = new Forgetting(db, clock);
    this.letters = lettersOf(db, this.#letters);
    this.ledger = new SqliteHubLedger(db, () => this.tables());
  }

  async open(): Promise<{ code: string; message: string }[]> {
    requireVersion(this.#db);
    const above = prepareHubDatabase(this.#db, this.#clock.now());
    this.company.begin();
    this.#forgetting.start();
    const message = `${above} rows or deletions were dated after the year 2200: they were brought to the present`;
    return above === 0 ? [] : [{ code: 'time-above-ceiling', message }];
  }

  /** Resolves when the content of all rows that were deleted under an earlier hub is gone from the file. */
  async forgotten(): Promise<void> {
    await this.#forgetting.done();
  }

  async close(): Promise<void> {
    this.#counter.stop();
    await this.#forgetting.stop();
    try {
      this.#db.release();
    } catch {
      // The caller has closed the database already: then there is nothing left to let go of.
    }
  }

  async receive(body: string | Uint8Array, sender: Sender): Promise<Stored> {
    const { advanced, ...stored } = this.#merger.receive(body, sender);
    this.company.settle();
    if (advanced) this.#advanced();
    return stored;
  }

  async release(): Promise<boolean> {
    const due = this.#letters.due(RELEASED);
    if (due.length === 0) return false;
    const lost = due.filter(({ change }) => change === null);
    const whole = due.filter(({ change }) => change !== null);
    const body = batchText(0, whole.map(({ change }) => change).join(','));
    const { ack } = await this.receive(body, { from: undefined, plain: false, again: true });
    const rejected = new Map(ack.rejected?.map((one) => [one.index, one]));
    this.#db.transaction(() => {
      for (const { id } of lost) this.#letters.countRetry(id, 'bad-change', 'the change itself was not kept');
      for (const [index, { id, code }] of whole.entries()) {
        const rejection = rejected.get(index);
        if (!rejection) this.#letters.remove(id);
        else if (rejection.code !== code) this.#letters.countRetry(id, rejection.code, rejection.message);
      }
    });
    return true;
  }

  async clock(): Promise<number | undefined> {
    return this.#db.get<{ noted: number | null }>('SELECT max(noted) AS noted FROM _hub_clock')?.noted ?? undefined;
  }

  async noteClock(time: number): Promise<void> {
    this.#db.transaction(() => {
      this.#db.run('DELETE FROM _hub_clock WHERE noted < ?', time);
      this.#db.run('INSERT INTO _hub_clock (noted) VALUES (CAST(? AS INTEGER))', time);
    });
  }

  onAdvance(hint: () => void): void {
    this.#hints.add(hint);
  }

  async touch(table: string, rowId: string): Promise<boolean> {
    const known = this.#db.transaction(() => {
      this.#db.run(
        'UPDATE _hub_rows SET seq = (SELECT max(seq) + 1 FROM _hub_rows), origin = NULL ' +
          'WHERE table_name = ? AND row_id = ?',
        table,
        rowId,
      );
      return this.#db.changes() > 0;
    });
    if (known) this.#advanced();
    return known;
  }

  async tables(): Promise<string[]> {
    // One look-up per table by the index: a list of distinct names would read all of it.
    return this.#db
      .all<{ name: string }>(
        'WITH RECURSIVE t (name) AS (SELECT min(table_name) FROM _hub_rows UNION ALL ' +
          'SELECT (SELECT min(table_name) FROM _hub_rows WHERE table_name > t.name) FROM t WHERE t.name IS NOT NULL) ' +
          'SELECT lower(name) AS name FROM t WHERE name IS NOT NULL',
      )
      .map(({ name }) => name);
  }

  async noteAsked(tables: string[]): Promise<void> {
    const note = 'INSERT INTO _hub_asked (table_name) VALUES (?) ON CONFLICT DO NOTHING';
    this.#db.transaction(
      () => {
        for (const table of tables) this.#db.run(note, table);
      },
      { durable: true },
    );
  }

  async askedFor(): Promise<string[]> {
    const asked = this.#db.all<{ table_name: string }>('SELECT table_name FROM _hub_asked ORDER BY table_name');
    return asked.map(({ table_name: name }) => name);
  }

  async touchTable(table: string): Promise<void> {
    this.#db.transaction(() => {
      this.#db.run(
        'UPDATE _hub_rows SET seq = seq + (SELECT max(seq) FROM _hub_rows), origin = NULL WHERE table_name = ?',
        table,
      );
      this.#db.run('DELETE FROM _hub_asked WHERE table_name = ?', table);
    });
    this.#advanced();
  }

  async read(after: Seq, limit: BatchLimit, except?: string): Promise<Segment | undefined> {
    return this.#reader.read(after, limit, except);
  }

  async countBetween(after: Seq, upTo: Seq): Promise<number> {
    return this.#reader.countBetween(after, upTo);
  }

  async skipOwn(after: Seq, origin: string, slice: number): Promise<Seq> {
    return this.#reader.skipOwn(after, origin, slice);
  }

  async single(shipment: EdgeShipment, index: number): Promise<EdgeShipment> {
    return singleChange(this.#db, shipment, index);
  }

  async edges(): Promise<EdgeRow[]> {
    const rows = this.#db.all<StoredEdge>(`${EDGES} ORDER BY url`);
    return rows.map((row) => this.#edge(row));
  }

  async addEdges(urls: string[]): Promise<void> {
    this.#db.transaction(() => {
      const sql = `INSERT INTO _hub_edges (url, anew_upto) VALUES (?, ${LATEST}) ON CONFLICT DO NOTHING`;
      for (const url of urls) this.#db.run(sql, url);
    });
  }

  async forgetEdges(urls: string[]): Promise<void> {
    this.#db.transaction(() => {
      for (const url of urls) {
        this.#db.run('DELETE FROM _hub_edges WHERE url = ?', url);
        this.#db.run('DELETE FROM _hub_verified WHERE url = ?', url);
      }
    });
    for (const url of urls) this.#generations.delete(url);
  }

  async edge(url: string): Promise<EdgeRow> {
    return this.#edge(this.#storedEdge(url));
  }

  async pauseEdge(url: string, paused: boolean): Promise<void> {
    const sql = 'UPDATE _hub_edges SET paused = CAST(? AS INTEGER) WHERE url = ?';
    this.#db.transaction(() => this.#db.run(sql, paused ? 1 : 0, url), { durable: true });
  }

  async pinEdge(url: string, nodeId: string): Promise<void> {
    const sql = 'UPDATE _hub_edges SET pinned = ? WHERE url = ?';
    this.#db.transaction(() => this.#db.run(sql, nodeId, url), { durable: true });
  }

  async reseedEdge(url: string): Promise<EdgeRow> {
    const sql = `UPDATE _hub_edges SET position = 0, anew_upto = ${LATEST} WHERE url = ?`;
    this.#db.transaction(() => this.#db.run(sql, url));
    this.#generations.delete(url);
    return this.edge(url);
  }

  async identify(url: string, generation: number, nodeId: string, isPlain: boolean): Promise<EdgeRow> {
    const row = this.#storedEdge(url);
    if (row.node_id === nodeId || generation !== this.#generationOf(url)) return this.#edge(row);
    // Another node has nothing of what the one before it had.
    const isAnother = row.node_id !== null && isPlain;
    const anew = isAnother ? `, position = 0, anew_upto = ${LATEST}, inc = NULL` : '';
    this.#db.transaction(() => this.#db.run(`UPDATE _hub_edges SET node_id = ?${anew} WHERE url = ?`, nodeId, url));
    if (isAnother) this.#generations.delete(url);
    return this.edge(url);
  }

  async advance(moves: { url: string; generation: number; position: Seq }[]): Promise<void> {
    this.#db.transaction(() => {
      for (const { url, generation, position } of moves) {
        if (this.#generations.get(url) !== generation) continue;
        this.#db.run(
          'UPDATE _hub_edges SET position = CAST(? AS INTEGER) WHERE url = ? AND position < ?',
          position,
          url,
          position,
        );
      }
    });
  }

  async verified(): Promise<Map<string, string>> {
    const rows = this.#db.all<{ url: string; note: string }>('SELECT url, note FROM _hub_verified');
    return new Map(rows.map(({ url, note }) => [url, note]));
  }

  async noteVerified(url: string, note: string): Promise<void> {
    const sql = 'INSERT INTO _hub_verified (url, note) VALUES (?, ?) ON CONFLICT DO UPDATE SET note = excluded.note';
    this.#db.transaction(() => this.#db.run(sql, url, note));
  }

  async counts(edges: { position: Seq; except: string | undefined }[]): Promise<Counts> {
    const problems = [...this.#writeProblems(), ...this.company.problems()];
    if (this.#letters.room.problem !== undefined) problems.push(this.#letters.room.problem);
    const latest = Number(this.#db.get('SELECT max(seq) AS n FROM _hub_rows')?.n ?? 0);
    return {
      rows: this.#counter.count('_hub_live', 'seq'),
      letters: this.#letters.count(this.#counter),
      edges: edges.map(({ position, except }) => this.#pending(position, except, latest)),
      problems,
    };
  }

  async facts(): Promise<Facts> {
    return factsOf(this.#db);
  }

  #advanced(): void {
    for (const hint of this.#hints) hint();
  }

  #storedEdge(url: string): StoredEdge {
    const row = this.#db.get<StoredEdge>(`${EDGES} WHERE url = ?`, url);
    if (!row) throw new RowcastError('INVALID_PEER', `${url} is no edge of this hub`);
    return row;
  }

  #edge({ url, position, node_id, inc, anew_upto: anewUpto, paused, pinned }: StoredEdge): EdgeRow {
    const generation = this.#generationOf(url);
    const known = { nodeId: node_id ?? undefined, inc: inc ?? undefined, pinned: pinned ?? undefined };
    return { url, position, ...known, anewUpto, paused: paused === 1, generation };
  }

  #generationOf(url: string): number {
    const known = this.#generations.get(url) ?? ++this.#lastGeneration;
    this.#generations.set(url, known);
    return known;
  }

  /** Exact up to COUNTED_EXACTLY; beyond that the width of what is left, which is never less. */
  #pending(position: Seq, except: string | undefined, latest: Seq): Counts['edges'][number] {
    const above = 'FROM _hub_rows WHERE seq > ? AND origin IS NOT ?';
    const found = this.#db.get<{ n: number; t: number | null }>(
      `SELECT count(*) AS n, (SELECT updated_at ${above} ORDER BY seq LIMIT 1) AS t ` +
        `FROM (SELECT 1 ${above} LIMIT ${COUNTED_EXACTLY})`,
      position,
      except ?? '',
      position,
      except ?? '',
    );
    const counted = found?.n ?? 0;
    return { pending: counted < COUNTED_EXACTLY ? counted : latest - position, oldest: found?.t ?? undefined };
  }

  /** Takes the write lock and gives it back. */
  #writeProblems(): string[] {
    try {
      this.#db.transaction(() => {});
      return [];
    } catch (error) {
      const busy = error instanceof RowcastError && error.code === 'DATABASE_BUSY';
      return busy ? [] : [`the database cannot be written: ${messageOf(error)}`];
    }
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

function lettersOf(db: Connection, letters: DeadLetters): HubLetters {
  return {
    list: async (options) => letters.list(options),
    get: async (id) => letters.get(id),
    changeOf: async (id) => letters.changeOf(id)?.change,
    setAside: async (shipment, refusal) => db.transaction(() => setAsideChanges(db, letters, shipment, refusal)),
    forbid: async (shipment, refusal) => db.transaction(() => setAsideForbidden(db, letters, shipment, refusal)),
    countRetry: async (id, code, reason) => db.transaction(() => letters.countRetry(id, code, reason)),
    remove: async (id) => db.transaction(() => letters.remove(id)),
  };
}
