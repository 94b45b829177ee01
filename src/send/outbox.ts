/** The library's outbox: `_changes` for what was written here, and a snapshot for a peer that has none of it. */

import { adoptForeign } from '../capture/adopt.ts';
import { lastChangeId, noteGiven } from '../capture/change-ids.ts';
import type { Registry } from '../capture/registry.ts';
import type { RowRef } from '../events.ts';
import type { DeadLetters } from '../letters/dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import { yielding } from '../sqlite/yielding.ts';
import {
  ALIKE_BASED_SQL,
  ALIKE_SQL,
  alikeBytes,
  alikeParams,
  type BatchLimit,
  type Body,
  bareDeletion,
  ENVELOPE_BYTES,
  fitting,
  isJsonBody,
  writeText,
} from '../wire/body.ts';
import { exactJson, exactText } from '../wire/exact-text.ts';
import { hasAllUpTo, isToBeAsked, noteAsked, placeAfter, question } from './asking.ts';
import type { Attachment } from './attachment.ts';
import type { NodeCompany } from './company.ts';
import { type Convoy, PAGE_BYTES_MAX } from './convoy.ts';
import {
  advancePeer,
  beginSeed,
  endSnapshot,
  enrolPeers,
  type PeerPosition,
  type PeerState,
  START,
  stateOf,
} from './peers.ts';
import { pruneChanges } from './prune.ts';
import { inScope } from './resend.ts';
import { setAsideChanges, setAsideForbidden, singleChange } from './set-aside.ts';
import type { IsPaid, Outbox, Shipment } from './shipment.ts';
import { namelessRows, nextPage } from './snapshot.ts';
import { BASED, PLAIN, type Serialised } from './tail-sql.ts';
import type { Forbidden } from './verdict.ts';

type PeerShipment = Shipment<PeerPosition>;

export class PeerOutbox implements Outbox<PeerPosition> {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;
  readonly #peer: string;
  readonly #attachment: Attachment;
  readonly #company: NodeCompany;
  readonly #convoy: Convoy;

  /** A change is kept until every peer of the attachment, and of the others to this file, has it. */
  constructor(
    db: Connection,
    registry: Registry,
    letters: DeadLetters,
    peer: string,
    attachment: Attachment,
    company: NodeCompany,
    convoy: Convoy,
  ) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
    this.#peer = peer;
    this.#attachment = attachment;
    this.#company = company;
    this.#convoy = convoy;
  }

  async next(most: BatchLimit, previous?: PeerShipment, acked?: PeerShipment): Promise<PeerShipment | undefined> {
    // One of several peers has it noted with those of the others, and no sooner goes on: so they stay together.
    const together = this.#isOneOfSeveral;
    if (acked && together) await this.ack(acked);
    const unnoted = together ? undefined : acked;
    const limit = together ? { ...most, bytes: Math.min(most.bytes, PAGE_BYTES_MAX) } : most;
    const { shipment, isRead } = await yielding(this.#db, () => this.#find(limit, previous, unnoted));
    if (isRead) await yielding(this.#db, () => this.#company.look());
    else if (unnoted) await this.ack(unnoted);
    return shipment;
  }

  /** `isRead`: in a transaction, in which `unnoted` was noted. */
  #find(limit: BatchLimit, previous?: PeerShipment, unnoted?: PeerShipment): Next {
    // Tables that were without their triggers are something to send, though no change says so.
    this.#registry.refresh();
    const together = this.#isOneOfSeveral;
    const state = stateOf(this.#db, this.#peer);
    const isDue = isToBeAsked(state, previous);
    const shared = together && !isDue ? this.#shared(state, limit, previous) : undefined;
    if (shared || !this.#hasMore(state, previous)) return { shipment: shared, isRead: false };
    let found: Found | undefined | 'not-ready' = 'not-ready';
    // Another process may change the schema between the two; then its writes lack a column, and must not leave yet.
    while (found === 'not-ready') {
      this.#registry.refresh();
      if (!this.#attachment.isEntered()) enrolPeers(this.#db, this.#registry, this.#attachment);
      found = this.#db.transaction(() => this.#readDurably(limit, previous, unnoted), { durable: true });
    }
    for (const tell of this.#company.untold()) tell();
    if (!found) return { shipment: undefined, isRead: true };
    const { after, ...read } = found;
    const shipment = { ...read, body: exactText(read.body) };
    if (after !== undefined) this.#convoy.read(shipment.batchId, shipment.body);
    if (after !== undefined && together) {
      const { batchId: last, count, body } = shipment;
      this.#convoy.keep({ after, last, count, body }, this.#spelling);
    }
    return { shipment, isRead: true };
  }

  async ack(shipment: PeerShipment): Promise<void> {
    let told: (() => void)[] = [];
    shipment.counts = false;
    await this.#convoy.note(() => {
      this.#advance(shipment);
      told = this.#company.untold();
    });
    for (const tell of told) tell();
  }

  async setAside(shipment: PeerShipment, reason: string, attempts: number): Promise<RowRef[]> {
    return yielding(this.#db, () => this.#setAside(shipment, reason, attempts));
  }

  #setAside(shipment: PeerShipment, reason: string, attempts: number): RowRef[] {
    return this.#db.transaction(() => {
      // A refusal is an answer, too: the peer is back. Its seed will come upon what it refuses.
      if (stateOf(this.#db, this.#peer).stale) {
        this.#advanceAlone(shipment);
        return [];
      }
      const rows = setAsideChanges(this.#db, this.#letters, shipment, { peer: this.#peer, reason, attempts });
      // Who has refused it has not heard what it asks for; who refuses the question itself cannot be asked.
      const { asks: _, ...refused } = shipment;
      this.#advanceAlone(shipment.count === 0 ? shipment : refused);
      return rows;
    });
  }

  async forbid(shipment: PeerShipment, forbidden: Forbidden[]): Promise<RowRef[]> {
    // The rows of a snapshot are in their tables, and stay there; a letter for each would be a second copy of them.
    if (shipment.end.kind === 'snapshot') return [];
    const told = { peer: this.#peer, forbidden };
    return yielding(this.#db, () =>
      this.#db.transaction(() => setAsideForbidden(this.#db, this.#letters, shipment, told)),
    );
  }

  single(shipment: PeerShipment, index: number): PeerShipment | undefined {
    return isJsonBody(this.#db, shipment.body) ? singleChange(this.#db, shipment, index) : undefined;
  }

  bare(shipment: PeerShipment): PeerShipment | undefined {
    const body = bareDeletion(this.#db, shipment.body, shipment.batchId);
    return body && { ...shipment, body };
  }

  async owed(): Promise<IsPaid> {
    const upTo = await yielding(this.#db, () => lastChangeId(this.#db));
    const isPaid = (state: PeerState): boolean => state.asks === null && hasAllUpTo(state, upTo);
    return () => yielding(this.#db, () => isPaid(stateOf(this.#db, this.#peer)));
  }

  /** All on which it depends how changes are spelt, beside themselves. */
  get #spelling(): string {
    return `${this.#registry.schemaVersion} ${this.#company.isRowcast(this.#peer)}`;
  }

  get #isOneOfSeveral(): boolean {
    return this.#attachment.peers.length > 1;
  }

  /** What another peer was sent a moment ago, from where this one is. */
  #shared(state: PeerState, limit: BatchLimit, previous: PeerShipment | undefined): PeerShipment | undefined {
    const { tailFrom, stale, lastAcked, run } = state;
    if (stale || tailFrom !== null) return undefined;
    const after = placeAfter(previous, lastAcked);
    const page = this.#convoy.find(after, limit, () => this.#spelling);
    if (!page || !this.#attachment.isEntered()) return undefined;
    const { last, count, body } = page;
    return { batchId: last, body, count, end: { kind: 'tail', run, changeId: last } };
  }

  #readDurably(
    limit: BatchLimit,
    previous: PeerShipment | undefined,
    acked: PeerShipment | undefined,
  ): Found | undefined | 'not-ready' {
    if (!this.#registry.isCurrent() || !this.#attachment.isEntered()) return 'not-ready';
    if (acked) this.#advanceAlone(acked);
    const found = this.#readOrAsk(limit, previous);
    if (!found) return undefined;
    // The write makes this a commit that is flushed, and with it every commit before it. Never ship what could be lost.
    this.#db.run('UPDATE main._peer_state SET shipped = shipped + 1 WHERE peer_url = ?', this.#peer);
    this.#company.tick();
    return found;
  }

  #readOrAsk(limit: BatchLimit, previous: PeerShipment | undefined): Found | undefined {
    const isDue = isToBeAsked(stateOf(this.#db, this.#peer), previous);
    const found = isDue ? undefined : this.#read(limit, previous?.end);
    if (found || (previous && !isDue)) return found;
    return question(stateOf(this.#db, this.#peer), previous);
  }

  /** Cheap, and outside any transaction: an idle loop costs one look-up a tick. */
  #hasMore({ tailFrom, lastAcked, asks, stale }: PeerState, previous: PeerShipment | undefined): boolean {
    if (stale) return !previous;
    if (tailFrom !== null || (asks !== null && !previous)) return true;
    const after = placeAfter(previous, lastAcked);
    return this.#db.get('SELECT 1 AS n FROM main._changes WHERE change_id > ? LIMIT 1', after) !== undefined;
  }

  #read(limit: BatchLimit, previous: PeerPosition | undefined): Found | undefined {
    const { tailFrom, lastAcked, snapshot, scope, run, stale } = stateOf(this.#db, this.#peer);
    if (stale) return previous ? undefined : this.#knock(limit, run);
    if (tailFrom === null) return this.#readTail(previous?.kind === 'tail' ? previous.changeId : lastAcked, limit);
    const position = previous?.kind === 'snapshot' && previous.run === run ? previous.position : snapshot;
    const tables = inScope(this.#registry.list(), scope);
    // Ids begin with 1; zero would look like a missing batch_id to a simple peer.
    const batchId = Math.max(1, tailFrom);
    const page = nextPage(this.#db, tables, position, batchId, limit);
    if (page) {
      return { ...page, batchId, end: { kind: 'snapshot', run, position: page.end } };
    }
    // The end of the snapshot counts as reached only when its last page is acknowledged.
    if (previous) return undefined;
    this.#listNameless();
    endSnapshot(this.#db, this.#peer, this.#attachment.now());
    pruneChanges(this.#db, this.#attachment.peers, this.#attachment.seenUpTo);
    return this.#readTail(stateOf(this.#db, this.#peer).lastAcked, limit);
  }

  /**
   * To a stale peer goes the first row of its seed, and nothing else until it has answered: the seed begins then, because
   * from its beginning on changes are kept for the peer. Where there is no row, there is no need to wait.
   */
  #knock(limit: BatchLimit, run: number): Found | undefined {
    const batchId = Math.max(1, lastChangeId(this.#db));
    const page = nextPage(this.#db, this.#registry.list(), START, batchId, { ...limit, changes: 1 });
    if (page) return { ...page, batchId, end: { kind: 'snapshot', run, position: START } };
    beginSeed(this.#db, this.#peer, this.#attachment.now(), 'stale');
    return this.#read(limit, undefined);
  }

  #readTail(after: number, most: BatchLimit): Found | undefined {
    // A row that was listed for having none may have got an id by one of these.
    if (this.#letters.hasNameless()) this.#listNameless();
    const upTo = this.#cut(after, most);
    // What a change has seen is of use to Rowcast alone: a plain peer is sent nothing that was not always sent.
    const based = this.#company.isRowcast(this.#peer);
    const alike = most.suspect ? undefined : this.#readAlike(after, upTo, most, based);
    if (alike) return alike;
    const { line, sql } = based ? BASED : PLAIN;
    const limit = {
      ...most,
      changes: Math.min(this.#countUpTo(after, upTo, most.changes), most.mixed ?? most.changes),
    };
    const found = this.#db.get<Serialised>(sql, after, fitting(this.#db, { ...line, params: [after] }, limit));
    if (!found || found.n === 0) return undefined;
    if (found.foreign > 0) {
      adoptForeign(this.#db, this.#registry.list(), { after, upTo: found.last });
      return this.#readTail(after, most);
    }
    if (found.nameless > 0) {
      this.#setAsideNameless(after, found.last);
      return this.#readTail(after, most);
    }
    return this.#tail(after, found);
  }

  /** The usual case, at half the cost: the next changes are all writes of one kind to one table, and fit. */
  #readAlike(after: number, upTo: number, limit: BatchLimit, keepsJournal: boolean): Found | undefined {
    const first = this.#db.get<{ op: string; tbl: string }>(
      'SELECT op, table_name AS tbl FROM main._changes WHERE change_id > ? ORDER BY change_id LIMIT 1',
      after,
    );
    if (typeof first?.tbl !== 'string' || (first.op !== 'INSERT' && first.op !== 'UPDATE')) return undefined;
    const based = keepsJournal && first.op === 'UPDATE';
    const found = this.#db.get<{ n: number; last: number; alike: number; bytes: number }>(
      'SELECT count(*) AS n, max(change_id) AS last, sum(octet_length(row_data)) AS bytes, ' +
        'sum(op = ? AND table_name = ? AND row_id IS NOT NULL AND row_data IS NOT NULL) AS alike ' +
        'FROM main._changes WHERE change_id > ? AND change_id <= ?',
      first.op,
      first.tbl,
      after,
      upTo,
    );
    if (!found) return undefined;
    const bytes = found.bytes + found.n * alikeBytes(first.op, first.tbl, based);
    if (found.alike !== found.n || bytes > limit.bytes - ENVELOPE_BYTES) {
      const { mixed = found.n } = limit;
      // Fewer of them may be alike, and fit.
      return mixed < found.n
        ? this.#readAlike(after, this.#cut(after, { ...limit, changes: mixed }), limit, keepsJournal)
        : undefined;
    }
    const joined = this.#db.get<{ body: Body }>(
      `SELECT ${based ? ALIKE_BASED_SQL : ALIKE_SQL} AS body FROM ` +
        `(SELECT row_data${based ? ', base' : ''} FROM main._changes ` +
        'WHERE change_id > ? AND change_id <= ? ORDER BY change_id)',
      ...alikeParams(found.last, first.op, first.tbl, based),
      after,
      found.last,
    );
    return joined && this.#tail(after, { ...found, ...joined });
  }

  /** The last change of a batch that begins after `after`, as far as their number decides. */
  #cut(after: number, { changes, suspect }: BatchLimit): number {
    const full = this.#db.get<{ id: number }>(
      'SELECT change_id AS id FROM main._changes WHERE change_id > ? ORDER BY change_id LIMIT 1 OFFSET ?',
      after,
      changes - 1,
    );
    if (!full) return Number.MAX_SAFE_INTEGER;
    const shared = full.id - (full.id % CUT);
    return shared > after && changes > CUT && !suspect && this.#isOneOfSeveral ? shared : full.id;
  }

  #countUpTo(after: number, upTo: number, most: number): number {
    if (upTo === Number.MAX_SAFE_INTEGER) return most;
    const sql = 'SELECT count(*) AS n FROM main._changes WHERE change_id > ? AND change_id <= ?';
    return Math.max(1, Number(this.#db.get(sql, after, upTo)?.n));
  }

  #tail(after: number, { last, n: count, body }: Pick<Serialised, 'last' | 'n' | 'body'>): Found {
    this.#registry.markRead(last);
    noteGiven(this.#db, last);
    const { run } = stateOf(this.#db, this.#peer);
    return { batchId: last, body, count, end: { kind: 'tail', run, changeId: last }, after };
  }

  /** A row whose id is NULL has no identity on another node; the application's write stands, and a letter says so. */
  #setAsideNameless(after: number, last: number): void {
    this.#db.run('DELETE FROM main._changes WHERE change_id > ? AND change_id <= ? AND row_id IS NULL', after, last);
    this.#listNameless();
  }

  #listNameless(): void {
    const tables = this.#registry.list();
    const rows = namelessRows(this.#db, tables).map(({ tbl, r }) => {
      const row = exactJson(r);
      return { op: 'INSERT', table: tbl, rowId: null, row, change: writeText('INSERT', tbl, row) };
    });
    const names = tables.map(({ name }) => name);
    this.#letters.listNameless(names, rows, 'the row has no id (NULL): give it one');
  }

  #advance(shipment: PeerShipment): void {
    const { end, said } = shipment;
    if (!this.#company.answered(this.#peer, said, end.run)) return;
    noteAsked(this.#db, this.#peer, shipment);
    shipment.counts = advancePeer(this.#db, this.#peer, end);
    if (shipment.counts || !stateOf(this.#db, this.#peer).stale) return;
    // Whatever it has answered to: of the changes after that, some may be gone.
    beginSeed(this.#db, this.#peer, this.#attachment.now(), 'stale');
  }

  #advanceAlone(shipment: PeerShipment): void {
    shipment.counts = false;
    // Otherwise it was read from another state of the file.
    if (this.#company.isSameFile) this.#advance(shipment);
    if (shipment.end.kind === 'tail') pruneChanges(this.#db, this.#attachment.peers, this.#attachment.seenUpTo);
  }
}

interface Next {
  shipment: PeerShipment | undefined;
  isRead: boolean;
}

/** A shipment as it was read. */
interface Found extends PeerShipment {
  /** Of changes: the one before the first of them. */
  after?: number;
}

/**
 * Where a batch is full, it ends at a multiple of this, if it can: peers that came to different places, or take batches of
 * different sizes, meet again.
 */
const CUT = 500;
