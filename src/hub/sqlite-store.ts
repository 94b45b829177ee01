/**
 * The hub's store in one SQLite file, for one process. Everything is done when its promise is made, unless somebody else has
 * the lock: then it is done when that is free, and the hub answers others meanwhile.
 */
import { type Clock, endOfMany } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { Why } from '../journal/why.ts';
import { DeadLetters } from '../letters/dead-letters.ts';
import { TimeLimit } from '../letters/time-limit.ts';
import { type Facts, factsOf } from '../observe/facts.ts';
import { setAsideChanges, setAsideForbidden, singleChange } from '../send/set-aside.ts';
import type { Connection } from '../sqlite/connection.ts';
import { featuresOf, requireVersion } from '../sqlite/features.ts';
import { proveWritable, writeIfFree } from '../sqlite/look.ts';
import { OpenFile } from '../sqlite/open-file.ts';
import { atLeastOf, RowCounter } from '../sqlite/row-counter.ts';
import { refuseIfHeld, yielding } from '../sqlite/yielding.ts';
import { type BatchLimit, batchText } from '../wire/body.ts';
import { SqliteHubCompany } from './sqlite-company.ts';
import { SqliteEdges } from './sqlite-edges.ts';
import { Forgetting } from './sqlite-forget.ts';
import { SqliteHubLedger } from './sqlite-ledger.ts';
import { HubLock } from './sqlite-lock.ts';
import { pendingOf } from './sqlite-pending.ts';
import { SegmentReader, WRITER } from './sqlite-read.ts';
import { BatchMerger } from './sqlite-receive.ts';
import { prepareHubDatabase } from './sqlite-tables.ts';
import { whyAtHub } from './sqlite-why.ts';
import type {
  Counts,
  EdgeAnswer,
  EdgeRow,
  EdgeShipment,
  HubLetters,
  HubStore,
  Noted,
  Segment,
  Sender,
  Seq,
  Stored,
} from './store.ts';

/**
 * The rows of a table and the next places, one after the other. Never as far apart as they were: the gaps would double with each
 * time, until the numbers are none any more that are exact.
 */
const MOVED =
  'FROM (SELECT seq AS was, (SELECT max(seq) FROM _hub_rows) + row_number() OVER (ORDER BY seq) AS place ' +
  'FROM _hub_rows WHERE table_name = ?) AS m WHERE seq = m.was';

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
  readonly #file: OpenFile;
  readonly #clock: Clock;
  readonly #letters: DeadLetters;
  readonly #merger: BatchMerger;
  readonly #reader: SegmentReader;
  readonly #edges: SqliteEdges;
  readonly #counter: RowCounter;
  readonly #forgetting: Forgetting;
  readonly #lock: HubLock;
  readonly #hints = new Set<() => void>();
  readonly #closed = endOfMany();

  constructor(db: Connection, options: SqliteStoreOptions) {
    const { clock, maxBodyBytes, maxAheadMs, id, random, jsonb = true } = options;
    this.#db = db;
    this.#file = new OpenFile(db);
    this.#clock = clock;
    this.#edges = new SqliteEdges(db);
    this.company = new SqliteHubCompany(db, { id, random, clock, maxAheadMs }, this.#edges);
    const timeLimit = new TimeLimit(clock, maxAheadMs);
    this.#letters = new DeadLetters(db, clock, timeLimit);
    const reading = { bodyBytes: maxBodyBytes, jsonb: jsonb && featuresOf(db).jsonb, timeLimit };
    this.#merger = new BatchMerger(db, this.#letters, reading, this.company);
    this.#reader = new SegmentReader(db);
    this.#counter = new RowCounter(db, clock);
    this.#forgetting = new Forgetting(db, clock);
    this.#lock = new HubLock(db, clock);
    this.letters = lettersOf(db, this.#letters);
    this.ledger = new SqliteHubLedger(db, () => this.tables());
  }

  async open(): Promise<{ code: string; message: string }[]> {
    requireVersion(this.#db);
    const above = prepareHubDatabase(this.#db, this.#clock.now());
    const lockless = await this.#lock.take();
    this.company.begin();
    this.#forgetting.start();
    this.#db.yieldBy({ clock: this.#clock, stopped: this.#closed.signal });
    const dated = `${above} rows or deletions were dated after the year 2200: they were brought to the present`;
    const unseen = `${lockless}: another hub that is started on the same file would not be noticed, and harm this one`;
    return [
      ...(above === 0 ? [] : [{ code: 'time-above-ceiling', message: dated }]),
      ...(lockless === undefined ? [] : [{ code: 'no-lock', message: unseen }]),
    ];
  }

  /** Resolves when the content of all rows that were deleted under an earlier hub is gone from the file. */
  async forgotten(): Promise<void> {
    await this.#forgetting.done();
  }

  async close(): Promise<void> {
    this.#closed.abort();
    this.#counter.stop();
    await this.#forgetting.stop();
    this.#lock.release();
    try {
      this.#db.release();
    } catch {
      // The caller has closed the database already: then there is nothing left to let go of.
    }
  }

  async receive(body: string | Uint8Array, sender: Sender): Promise<Stored> {
    this.#file.refuseIfMoved();
    let merged: ReturnType<BatchMerger['receive']> | undefined;
    try {
      const { advanced: _, ...stored } = await yielding(this.#db, () => {
        if (!merged) refuseIfHeld(this.#db);
        merged ??= this.#merger.receive(body, sender);
        this.company.settle();
        return merged;
      });
      return stored;
    } finally {
      // Whatever fails after the commit: who then sends it again brings nothing new, and would wake nobody.
      if (merged?.advanced) this.#advanced();
    }
  }

  async release(): Promise<boolean> {
    const due = this.#letters.due(RELEASED);
    if (due.length === 0) return false;
    const lost = due.filter(({ change }) => change === null);
    const whole = due.filter(({ change }) => change !== null);
    const body = batchText(0, whole.map(({ change }) => change).join(','));
    const { ack } = await this.receive(body, { from: undefined, plain: false, again: true });
    const rejected = new Map(ack.rejected?.map((one) => [one.index, one]));
    await this.#transaction(() => {
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
    await this.#transaction(() => {
      this.#db.run('DELETE FROM _hub_clock WHERE noted < ?', time);
      this.#db.run('INSERT INTO _hub_clock (noted) VALUES (CAST(? AS INTEGER))', time);
    });
  }

  onAdvance(hint: () => void): void {
    this.#hints.add(hint);
  }

  async touch(table: string, rowId: string): Promise<boolean> {
    const known = await this.#transaction(() => {
      this.#db.run(
        `UPDATE _hub_rows SET seq = (SELECT max(seq) + 1 FROM _hub_rows), writer = ${WRITER}, origin = NULL ` +
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
    await this.#transaction(
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
    await this.#transaction(() => {
      this.#db.run(`UPDATE _hub_rows SET seq = m.place, writer = ${WRITER}, origin = NULL ${MOVED}`, table);
      this.#db.run('DELETE FROM _hub_asked WHERE table_name = ?', table);
    });
    this.#advanced();
  }

  async read(after: Seq, limit: BatchLimit, except?: string): Promise<Segment | undefined> {
    return this.#reader.read(after, limit, except);
  }

  async latest(): Promise<Seq> {
    return this.#reader.latest();
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
    return this.#edges.all();
  }

  async addEdges(urls: string[]): Promise<void> {
    await yielding(this.#db, () => this.#edges.add(urls));
  }

  async forgetEdges(urls: string[]): Promise<void> {
    await yielding(this.#db, () => this.#edges.forget(urls));
  }

  async edge(url: string): Promise<EdgeRow> {
    return this.#edges.get(url);
  }

  async pauseEdge(url: string, paused: boolean): Promise<void> {
    await yielding(this.#db, () => this.#edges.pause(url, paused));
  }

  async pinEdge(url: string, nodeId: string): Promise<void> {
    await yielding(this.#db, () => this.#edges.pin(url, nodeId));
  }

  async reseedEdge(url: string): Promise<EdgeRow> {
    return yielding(this.#db, () => this.#edges.reseed(url));
  }

  async identify(url: string, generation: number, nodeId: string, isPlain: boolean): Promise<EdgeRow> {
    return yielding(this.#db, () => this.#edges.identify(url, generation, nodeId, isPlain));
  }

  async advance(moves: { url: string; generation: number; position: Seq }[]): Promise<void> {
    await this.#transaction(() => {
      // What was acknowledged was read from another state of the file.
      if (!this.company.isSameFile) return;
      for (const move of moves) this.#edges.advance(move);
    });
  }

  async answered(answers: EdgeAnswer[]): Promise<Noted[]> {
    await this.company.look();
    let noted: Noted[] | undefined;
    return yielding(this.#db, () => {
      noted ??= this.#db.transaction(() => this.#noted(answers));
      this.company.settle();
      return noted;
    });
  }

  /** In a transaction. */
  #noted(answers: EdgeAnswer[]): Noted[] {
    const isSameFile = this.company.beginAnswers();
    return answers.map(({ url, generation, said, position }) => {
      const heeded = said === undefined || this.company.answered(url, generation, said);
      const counts = heeded && isSameFile && this.#edges.isOf(url, generation);
      if (counts && position !== undefined) this.#edges.advance({ url, generation, position });
      return { counts, row: this.#edges.find(url) };
    });
  }

  async verified(): Promise<Map<string, string>> {
    const rows = this.#db.all<{ url: string; note: string }>('SELECT url, note FROM _hub_verified');
    return new Map(rows.map(({ url, note }) => [url, note]));
  }

  async noteVerified(url: string, note: string): Promise<void> {
    const sql = 'INSERT INTO _hub_verified (url, note) VALUES (?, ?) ON CONFLICT DO UPDATE SET note = excluded.note';
    await this.#transaction(() => this.#db.run(sql, url, note));
  }

  async counts(edges: { position: Seq; except: string | undefined }[]): Promise<Counts> {
    const others = [this.#letters.room.problem, this.#file.problem, this.#db.damage];
    const problems = [...this.#writeProblems(), ...others.filter((problem) => problem !== undefined)];
    this.#counter.beginLook();
    const dead_letter = this.#letters.count(this.#counter);
    const item_count = this.#counter.count({ name: '_hub_rows', id: 'seq', only: "op <> 'DELETE'" });
    return {
      rows: item_count.rows,
      letters: dead_letter.rows,
      ...atLeastOf({ item_count, dead_letter }),
      edges: pendingOf(this.#db, edges),
      problems,
    };
  }

  async why(table: string, id: string): Promise<Why> {
    return whyAtHub(this.#db, this.#letters, table, id);
  }

  async facts(): Promise<Facts> {
    return factsOf(this.#db, this.#counter);
  }

  async #transaction<T>(fn: () => T, options?: { durable: boolean }): Promise<T> {
    return yielding(this.#db, () => this.#db.transaction(fn, options));
  }

  #advanced(): void {
    for (const hint of this.#hints) hint();
  }

  /** Takes the write lock and gives it back; writes where that may not be enough to know. */
  #writeProblems(): string[] {
    const before = this.#db.writeFailure;
    try {
      const isInDoubt = before !== undefined || this.#file.isShortOfRoom;
      const found = isInDoubt ? proveWritable(this.#db, PROOF) : writeIfFree(this.#db);
      if (found === 'done') this.#db.forgetWriteFailure();
      return found === 'done' || before === undefined ? [] : [`the database cannot be written: ${before}`];
    } catch (error) {
      return [`the database cannot be written: ${messageOf(error)}`];
    }
  }
}

const PROOF = { table: '_hub_verified', key: 'url', value: 'note' };

function lettersOf(db: Connection, letters: DeadLetters): HubLetters {
  const inOne = async <T>(fn: () => T): Promise<T> => yielding(db, () => db.transaction(fn));
  return {
    list: async (options) => letters.list(options),
    get: async (id) => letters.get(id),
    changeOf: async (id) => letters.changeOf(id)?.change,
    setAside: (shipment, refusal) => inOne(() => setAsideChanges(db, letters, shipment, refusal)),
    forbid: (shipment, refusal) => inOne(() => setAsideForbidden(db, letters, shipment, refusal)),
    countRetry: (id, code, reason) => inOne(() => letters.countRetry(id, code, reason)),
    remove: (id) => inOne(() => letters.remove(id)),
  };
}
