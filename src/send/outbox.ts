/** The library's outbox: `_changes` for what was written here, and a snapshot for a peer that has none of it. */

import { adoptForeign, UNUSABLE } from '../capture/adopt.ts';
import { lastChangeId } from '../capture/change-ids.ts';
import type { Registry } from '../capture/registry.ts';
import type { DeadLetters } from '../dead-letters.ts';
import type { RowRef } from '../events.ts';
import type { Connection } from '../sqlite/connection.ts';
import {
  ALIKE_SQL,
  alikeBytes,
  alikeParams,
  type BatchLimit,
  type Body,
  batchSql,
  batchText,
  changeSql,
  ENVELOPE_BYTES,
  fitting,
  type Line,
  STORED_BYTES,
  writeText,
} from '../wire/body.ts';
import { exactJson, exactText } from '../wire/exact-text.ts';
import { encode } from '../wire/values.ts';
import type { Attachment } from './attachment.ts';
import type { NodeCompany } from './company.ts';
import {
  advancePeer,
  beginSeed,
  endSnapshot,
  enrolPeers,
  type PeerPosition,
  pruneChanges,
  START,
  stateOf,
} from './peers.ts';
import { askHeader, inScope } from './resend.ts';
import { setAsideChanges, singleChange } from './set-aside.ts';
import type { Outbox, Shipment } from './shipment.ts';
import { namelessRows, nextPage } from './snapshot.ts';

type PeerShipment = Shipment<PeerPosition>;

export class PeerOutbox implements Outbox<PeerPosition> {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;
  readonly #peer: string;
  readonly #attachment: Attachment;
  readonly #company: NodeCompany;

  /** A change is kept until every peer of the attachment, and of the others to this file, has it. */
  constructor(
    db: Connection,
    registry: Registry,
    letters: DeadLetters,
    peer: string,
    attachment: Attachment,
    company: NodeCompany,
  ) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
    this.#peer = peer;
    this.#attachment = attachment;
    this.#company = company;
  }

  next(limit: BatchLimit, previous?: PeerShipment, acked?: PeerShipment): PeerShipment | undefined {
    // Tables that were without their triggers are something to send, though no change says so.
    this.#registry.refresh();
    if (!this.#hasMore(previous)) {
      if (acked) this.ack(acked);
      return undefined;
    }
    let shipment: PeerShipment | undefined | 'not-ready' = 'not-ready';
    // Another process may change the schema between the two; then its writes lack a column, and must not leave yet.
    while (shipment === 'not-ready') {
      this.#registry.refresh();
      if (!this.#attachment.isEntered()) enrolPeers(this.#db, this.#registry, this.#attachment);
      shipment = this.#db.transaction(() => this.#readDurably(limit, previous, acked), { durable: true });
    }
    this.#company.settle();
    return shipment && { ...shipment, body: exactText(shipment.body) };
  }

  ack(shipment: PeerShipment): void {
    this.#db.transaction(() => this.#advance(shipment));
    this.#company.settle();
  }

  setAside(shipment: PeerShipment, reason: string, attempts: number): RowRef[] {
    return this.#db.transaction(() => {
      // A refusal is an answer, too: the peer is back. Its seed will come upon what it refuses.
      if (stateOf(this.#db, this.#peer).stale) {
        this.#advance(shipment);
        return [];
      }
      const rows = setAsideChanges(this.#db, this.#letters, shipment, { peer: this.#peer, reason, attempts });
      // Who has refused it has not heard what it asks for; who refuses the question itself cannot be asked.
      const { asks: _, ...refused } = shipment;
      this.#advance(shipment.count === 0 ? shipment : refused);
      return rows;
    });
  }

  single(shipment: PeerShipment, index: number): PeerShipment | undefined {
    const isJson = this.#db.get<{ ok: number }>('SELECT json_valid(CAST(? AS TEXT)) AS ok', shipment.body)?.ok === 1;
    return isJson ? singleChange(this.#db, shipment, index) : undefined;
  }

  #readDurably(
    limit: BatchLimit,
    previous: PeerShipment | undefined,
    acked: PeerShipment | undefined,
  ): PeerShipment | undefined | 'not-ready' {
    if (!this.#registry.isCurrent() || !this.#attachment.isEntered()) return 'not-ready';
    if (acked) this.#advance(acked);
    const found = this.#read(limit, previous?.end) ?? (previous ? undefined : this.#question());
    if (!found) return undefined;
    // The write makes this a commit that is flushed, and with it every commit before it. Never ship what could be lost.
    this.#db.run('UPDATE main._peer_state SET shipped = shipped + 1 WHERE peer_url = ?', this.#peer);
    this.#company.tick();
    return found;
  }

  /**
   * Asks the peer for tables: with an empty batch, when it has everything that there is to send. What was captured before
   * the triggers went may not be in the table any more; the peer must have it before it looks, or it would not send it.
   */
  #question(): PeerShipment | undefined {
    const { asks, lastAcked, run } = stateOf(this.#db, this.#peer);
    if (asks === null) return undefined;
    const batchId = Math.max(1, lastAcked);
    const body = new TextEncoder().encode(batchText(batchId, ''));
    return { batchId, body, count: 0, end: { kind: 'tail', run, changeId: lastAcked }, asks: askHeader(asks) };
  }

  /** Cheap, and outside any transaction: an idle loop costs one look-up a tick. */
  #hasMore(previous: PeerShipment | undefined): boolean {
    const { tailFrom, lastAcked, asks, stale } = stateOf(this.#db, this.#peer);
    if (stale) return !previous;
    if (tailFrom !== null || (asks !== null && !previous)) return true;
    const after = previous?.end.kind === 'tail' ? previous.end.changeId : lastAcked;
    return this.#db.get('SELECT 1 AS n FROM main._changes WHERE change_id > ? LIMIT 1', after) !== undefined;
  }

  #read(limit: BatchLimit, previous: PeerPosition | undefined): PeerShipment | undefined {
    const { tailFrom, lastAcked, snapshot, scope, run, stale } = stateOf(this.#db, this.#peer);
    if (stale) return previous ? undefined : this.#knock(limit, run);
    if (tailFrom === null) return this.#readTail(previous?.kind === 'tail' ? previous.changeId : lastAcked, limit);
    const position = previous?.kind === 'snapshot' && previous.run === run ? previous.position : snapshot;
    const tables = inScope(this.#registry.list(), scope);
    // Ids begin with 1; zero would look like a missing batch_id to a simple peer.
    const batchId = Math.max(1, tailFrom);
    const page = nextPage(this.#db, tables, position, batchId, limit);
    if (page) {
      return { batchId, body: page.body, count: page.count, end: { kind: 'snapshot', run, position: page.end } };
    }
    // The end of the snapshot counts as reached only when its last page is acknowledged.
    if (previous) return undefined;
    this.#listNameless();
    endSnapshot(this.#db, this.#peer, this.#attachment.now());
    pruneChanges(this.#db, this.#attachment.peers);
    return this.#readTail(stateOf(this.#db, this.#peer).lastAcked, limit);
  }

  /**
   * To a stale peer goes the first row of its seed, and nothing else until it has answered: the seed begins then, because
   * from its beginning on changes are kept for the peer. Where there is no row, there is no need to wait.
   */
  #knock(limit: BatchLimit, run: number): PeerShipment | undefined {
    const batchId = Math.max(1, lastChangeId(this.#db));
    const page = nextPage(this.#db, this.#registry.list(), START, batchId, { ...limit, changes: 1 });
    if (page) return { batchId, body: page.body, count: page.count, end: { kind: 'snapshot', run, position: START } };
    beginSeed(this.#db, this.#peer, this.#attachment.now());
    return this.#read(limit, undefined);
  }

  #readTail(after: number, limit: BatchLimit): PeerShipment | undefined {
    // A row that was listed for having none may have got an id by one of these.
    if (this.#letters.hasNameless()) this.#listNameless();
    const alike = limit.suspect ? undefined : this.#readAlike(after, limit);
    if (alike) return alike;
    const found = this.#db.get<Serialised>(SERIALISE, after, fitting(this.#db, { ...LINE, params: [after] }, limit));
    if (!found || found.n === 0) return undefined;
    if (found.foreign > 0) {
      adoptForeign(this.#db, this.#registry.list(), { after, upTo: found.last });
      return this.#readTail(after, limit);
    }
    if (found.nameless > 0) {
      this.#setAsideNameless(after, found.last);
      return this.#readTail(after, limit);
    }
    return this.#tail(found.last, found.n, found.body);
  }

  /** The usual case, at half the cost: the next changes are all writes of one kind to one table, and fit. */
  #readAlike(after: number, limit: BatchLimit): PeerShipment | undefined {
    const first = this.#db.get<{ op: string; tbl: string }>(
      'SELECT op, table_name AS tbl FROM main._changes WHERE change_id > ? ORDER BY change_id LIMIT 1',
      after,
    );
    if (typeof first?.tbl !== 'string' || (first.op !== 'INSERT' && first.op !== 'UPDATE')) return undefined;
    const full = this.#db.get<{ id: number }>(
      'SELECT change_id AS id FROM main._changes WHERE change_id > ? ORDER BY change_id LIMIT 1 OFFSET ?',
      after,
      limit.changes - 1,
    );
    const found = this.#db.get<{ n: number; last: number; alike: number; bytes: number }>(
      'SELECT count(*) AS n, max(change_id) AS last, sum(octet_length(row_data)) AS bytes, ' +
        'sum(op = ? AND table_name = ? AND row_id IS NOT NULL AND row_data IS NOT NULL) AS alike ' +
        'FROM main._changes WHERE change_id > ? AND change_id <= ?',
      first.op,
      first.tbl,
      after,
      full?.id ?? Number.MAX_SAFE_INTEGER,
    );
    if (!found || found.alike !== found.n) return undefined;
    if (found.bytes + found.n * alikeBytes(first.op, first.tbl) > limit.bytes - ENVELOPE_BYTES) return undefined;
    const joined = this.#db.get<{ body: Body }>(
      `SELECT ${ALIKE_SQL} AS body FROM ` +
        '(SELECT row_data FROM main._changes WHERE change_id > ? AND change_id <= ? ORDER BY change_id)',
      ...alikeParams(found.last, first.op, first.tbl),
      after,
      found.last,
    );
    return joined && this.#tail(found.last, found.n, joined.body);
  }

  #tail(last: number, count: number, body: Body): PeerShipment {
    this.#registry.markRead(last);
    const { run } = stateOf(this.#db, this.#peer);
    return { batchId: last, body, count, end: { kind: 'tail', run, changeId: last } };
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
    const { end, asks, said } = shipment;
    shipment.counts = false;
    if (said !== undefined && !this.#company.answered(this.#peer, said, end.run)) return;
    if (asks !== undefined) this.#heard(asks);
    // Whatever it has answered to: of the changes after that, some may be gone.
    if (stateOf(this.#db, this.#peer).stale) {
      beginSeed(this.#db, this.#peer, this.#attachment.now());
      return;
    }
    shipment.counts = advancePeer(this.#db, this.#peer, end);
    if (end.kind === 'tail') pruneChanges(this.#db, this.#attachment.peers);
  }

  /** The peer has been asked; unless more is to be asked meanwhile, that was all. */
  #heard(asked: string): void {
    const { asks } = stateOf(this.#db, this.#peer);
    if (asks === null || askHeader(asks) !== asked) return;
    this.#db.run('UPDATE main._peer_state SET asks = NULL WHERE peer_url = ?', this.#peer);
  }
}

interface Serialised {
  body: Body;
  last: number;
  n: number;
  /** Rows without an id, which no other node could tell apart. */
  nameless: number;
  /** Changes that no trigger of ours has recorded, and that lack something. */
  foreign: number;
}

/** The next changes: after which, and how many. */
const NEXT = 'FROM main._changes WHERE change_id > ? ORDER BY change_id LIMIT ?';

/** One of them, as it goes onto the wire. */
const CHANGE = changeSql({
  op: 'op',
  table: 'table_name',
  row: "coalesce(row_data, 'null')",
  oldId: `iif(op = 'DELETE', json_quote(${encode('row_id', 'TEXT')}), 'null')`,
});

const LINE: Omit<Line, 'params'> = { from: NEXT, place: 'change_id', change: CHANGE, bytes: STORED_BYTES };

/** The whole request body is made by SQLite, as bytes: no row ever becomes a JavaScript object or string. */
const SERIALISE =
  `SELECT ${batchSql('max(change_id)')} AS body, max(change_id) AS last, count(*) AS n, sum(nameless) AS nameless, ` +
  'sum("foreign") AS "foreign" ' +
  `FROM (SELECT change_id, row_id IS NULL AS nameless, ${UNUSABLE} AS "foreign", ${CHANGE} AS change ${NEXT})`;
