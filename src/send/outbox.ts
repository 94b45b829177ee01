/** The library's outbox: `_changes` for what was written here, `_peer_state` for how far each peer is. */

import { isUtf8 } from 'node:buffer';
import { keepChangeIdsAbove, lastChangeId, noteLastId } from '../capture/change-ids.ts';
import type { Registry } from '../capture/registry.ts';
import type { DeadLetters } from '../dead-letters.ts';
import type { RowRef } from '../events.ts';
import type { Connection } from '../sqlite/connection.ts';
import { quote } from '../sqlite/sql.ts';

import { encode } from '../wire/values.ts';
import type { Shipment } from './courier.ts';
import type { Outbox } from './shipper.ts';
import { namelessRows, nextPage, type SnapshotPosition } from './snapshot.ts';

/** Where a shipment ends: a change_id, or a place in the snapshot. */
type End = { kind: 'tail'; changeId: number } | { kind: 'snapshot'; position: SnapshotPosition };

interface PeerState {
  last_acked: number;
  /** Set while a snapshot is under way. */
  tail_from: number | null;
  snapshot_table: string | null;
  snapshot_after: string | null;
}

export class PeerOutbox implements Outbox {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;
  readonly #peer: string;
  readonly #peers: string[];

  /** `peers` are all the configured ones: a change is kept until every one of them has it. */
  constructor(db: Connection, registry: Registry, letters: DeadLetters, peer: string, peers: string[]) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
    this.#peer = peer;
    this.#peers = peers;
  }

  next(limit: { changes: number; bytes: number }, previous?: Shipment, acked?: Shipment): Shipment | undefined {
    if (!this.#hasMore(previous)) {
      if (acked) this.ack(acked);
      return undefined;
    }
    let shipment: Shipment | undefined | 'schema-changed' = 'schema-changed';
    // Another process may change the schema between the two; then its writes lack a column, and must not leave yet.
    while (shipment === 'schema-changed') {
      this.#registry.refresh();
      shipment = this.#db.transaction(() => this.#readDurably(limit, previous, acked), { durable: true });
    }
    return shipment && { ...shipment, body: wellFormed(shipment.body) };
  }

  #readDurably(
    limit: { changes: number; bytes: number },
    previous: Shipment | undefined,
    acked: Shipment | undefined,
  ): Shipment | undefined | 'schema-changed' {
    if (!this.#registry.isCurrent()) return 'schema-changed';
    if (acked) this.#advance(acked);
    const found = this.#read(limit, previous);
    if (!found) return undefined;
    // The write makes this a commit that is flushed, and with it every commit before it. Never ship what could be lost.
    this.#db.run('UPDATE _peer_state SET shipped = shipped + 1 WHERE peer_url = ?', this.#peer);
    const end = found.end as End;
    if (end.kind === 'tail') noteLastId(this.#db, end.changeId);
    return found;
  }

  ack(shipment: Shipment): void {
    this.#db.transaction(() => this.#advance(shipment));
  }

  setAside(shipment: Shipment, reason: string, attempts: number): RowRef[] {
    return this.#db.transaction(() => {
      const rows = setAsideChanges(this.#db, this.#letters, shipment, { peer: this.#peer, reason, attempts });
      this.#advance(shipment);
      return rows;
    });
  }

  single(shipment: Shipment, index: number): Shipment {
    return singleChange(this.#db, shipment, index);
  }

  /** Cheap, and outside any transaction: an idle loop costs one look-up a tick. */
  #hasMore(previous: Shipment | undefined): boolean {
    const state = this.#state();
    if (state.tail_from !== null) return true;
    const end = previous?.end as End | undefined;
    const after = end?.kind === 'tail' ? end.changeId : state.last_acked;
    return this.#db.get('SELECT 1 AS n FROM _changes WHERE change_id > ? LIMIT 1', after) !== undefined;
  }

  #read(limit: { changes: number; bytes: number }, previous: Shipment | undefined): Shipment | undefined {
    const state = this.#state();
    const end = previous?.end as End | undefined;
    if (state.tail_from === null) {
      return this.#readTail(end?.kind === 'tail' ? end.changeId : state.last_acked, limit);
    }
    const position =
      end?.kind === 'snapshot' ? end.position : { section: state.snapshot_table, after: state.snapshot_after };
    // Ids begin with 1; zero would look like a missing batch_id to a simple peer.
    const batchId = Math.max(1, state.tail_from);
    const page = nextPage(this.#db, this.#registry.list(), position, batchId, {
      changes: limit.changes,
      bytes: limit.bytes - ENVELOPE_BYTES,
    });
    if (page) {
      return {
        batchId,
        body: page.body,
        count: page.count,
        end: { kind: 'snapshot', position: page.end },
      };
    }
    // The end of the snapshot counts as reached only when its last page is acknowledged.
    if (previous) return undefined;
    for (const { op, tbl, r } of namelessRows(this.#db, this.#registry.list())) this.#setAsideRow(op, tbl, r);
    this.#db.run(
      'UPDATE _peer_state SET last_acked = max(last_acked, tail_from), tail_from = NULL, snapshot_table = NULL, snapshot_after = NULL WHERE peer_url = ?',
      this.#peer,
    );
    pruneChanges(this.#db, this.#peers);
    return this.#readTail(this.#state().last_acked, limit);
  }

  #readTail(after: number, limit: { changes: number; bytes: number }): Shipment | undefined {
    const alike = this.#readAlike(after, limit);
    if (alike) return alike;
    const count = this.#fitting(after, limit);
    const found = this.#db.get<{ body: Uint8Array<ArrayBuffer>; last: number; n: number; nameless: number }>(
      SERIALISE,
      after,
      count,
    );
    if (!found || found.n === 0) return undefined;
    if (found.nameless > 0) {
      this.#setAsideNameless(after, found.last);
      return this.#readTail(after, limit);
    }
    return this.#tail(found.last, found.n, found.body);
  }

  /**
   * The usual case, at half the cost: the next changes are all writes of one kind to one table, and fit. Then what stands
   * between two rows is the same everywhere, and the body is the rows joined by it.
   */
  #readAlike(after: number, limit: { changes: number; bytes: number }): Shipment | undefined {
    const first = this.#db.get<{ op: string; tbl: string }>(
      'SELECT op, table_name AS tbl FROM _changes WHERE change_id > ? ORDER BY change_id LIMIT 1',
      after,
    );
    if (typeof first?.tbl !== 'string' || (first.op !== 'INSERT' && first.op !== 'UPDATE')) return undefined;
    const full = this.#db.get<{ id: number }>(
      'SELECT change_id AS id FROM _changes WHERE change_id > ? ORDER BY change_id LIMIT 1 OFFSET ?',
      after,
      limit.changes - 1,
    );
    const found = this.#db.get<{ n: number; last: number; alike: number; bytes: number }>(
      'SELECT count(*) AS n, max(change_id) AS last, sum(octet_length(row_data)) AS bytes, ' +
        'sum(op = ? AND table_name = ? AND row_id IS NOT NULL AND row_data IS NOT NULL) AS alike ' +
        'FROM _changes WHERE change_id > ? AND change_id <= ?',
      first.op,
      first.tbl,
      after,
      full?.id ?? Number.MAX_SAFE_INTEGER,
    );
    if (!found || found.alike !== found.n) return undefined;
    const before = `{"op":"${first.op}","table":${JSON.stringify(first.tbl)},"row":`;
    const behind = ',"old_id":null}';
    const around = Buffer.byteLength(before) + behind.length + 1;
    if (found.bytes + found.n * around > limit.bytes - ENVELOPE_BYTES) return undefined;
    const joined = this.#db.get<{ body: Uint8Array<ArrayBuffer> }>(
      'SELECT CAST(? || group_concat(row_data, ?) || ? AS BLOB) AS body FROM ' +
        '(SELECT row_data FROM _changes WHERE change_id > ? AND change_id <= ? ORDER BY change_id)',
      `{"batch_id":${found.last},"changes":[${before}`,
      `${behind},${before}`,
      `${behind}]}`,
      after,
      found.last,
    );
    return joined && this.#tail(found.last, found.n, joined.body);
  }

  #tail(last: number, count: number, body: Uint8Array<ArrayBuffer>): Shipment {
    this.#registry.markRead(last);
    return { batchId: last, body, count, end: { kind: 'tail', changeId: last } satisfies End };
  }

  /** How many of the next changes fit into the limit of bytes: at least one, however large it is. */
  #fitting(after: number, limit: { changes: number; bytes: number }): number {
    const bytes = limit.bytes - ENVELOPE_BYTES;
    // First a bound that costs little, because lengths are read without what they are the length of: escaping makes a
    // character six times as long at the most.
    const atMost = 'octet_length(row_data) + 6 * (octet_length(table_name) + coalesce(octet_length(row_id), 0)) + 60';
    const total = this.#db.get<{ n: number | null }>(
      `SELECT sum(size) AS n FROM (SELECT ${atMost} AS size ${NEXT})`,
      after,
      limit.changes,
    );
    if ((total?.n ?? 0) <= bytes) return limit.changes;
    const fits = this.#db.get<{ n: number }>(
      'SELECT count(*) AS n FROM (SELECT sum(octet_length(change) + 1) OVER (ORDER BY change_id) AS running ' +
        `FROM (SELECT change_id, ${CHANGE} AS change ${NEXT})) WHERE running <= ?`,
      after,
      limit.changes,
      bytes,
    );
    return Math.max(1, fits?.n ?? 1);
  }

  /** A row whose id is NULL has no identity on another node; the application's write stands, and a letter says so. */
  #setAsideNameless(after: number, last: number): void {
    const where = 'WHERE change_id > ? AND change_id <= ? AND row_id IS NULL';
    const rows = this.#db.all<{ op: string; tbl: string; r: string }>(
      `SELECT op, table_name AS tbl, row_data AS r FROM _changes ${where}`,
      after,
      last,
    );
    for (const { op, tbl, r } of rows) this.#setAsideRow(op, tbl, r);
    this.#db.run(`DELETE FROM _changes ${where}`, after, last);
    keepChangeIdsAbove(this.#db, last);
  }

  #setAsideRow(op: string, table: string, row: string): void {
    const change = `{"op":"${op}","table":${JSON.stringify(table)},"row":${row},"old_id":null}`;
    this.#letters.keepRefused({ op, table, rowId: null, row, change }, '', 'the row has no id (NULL): give it one', 0);
  }

  #advance(shipment: Shipment): void {
    const end = shipment.end as End;
    if (end.kind === 'snapshot') {
      this.#db.run(
        'UPDATE _peer_state SET snapshot_table = ?, snapshot_after = ? WHERE peer_url = ?',
        end.position.section,
        end.position.after,
        this.#peer,
      );
      return;
    }
    this.#db.run('UPDATE _peer_state SET last_acked = max(last_acked, ?) WHERE peer_url = ?', end.changeId, this.#peer);
    pruneChanges(this.#db, this.#peers);
  }

  #state(): PeerState {
    const state = this.#db.get<PeerState & Record<string, never>>(
      'SELECT last_acked, tail_from, snapshot_table, snapshot_after FROM _peer_state WHERE peer_url = ?',
      this.#peer,
    );
    if (!state) throw new Error(`no state for peer ${this.#peer}`);
    return state;
  }
}

/** Makes a dead letter of every change of a refused shipment. Inside a transaction. */
export function setAsideChanges(
  db: Connection,
  letters: DeadLetters,
  shipment: Shipment,
  refusal: { peer: string; reason: string; attempts: number },
): RowRef[] {
  const changes = db.all<{ op: string; tbl: string; id: string; r: string | null; change: string }>(
    "SELECT c.value ->> '$.op' AS op, c.value ->> '$.table' AS tbl, coalesce(c.value ->> '$.old_id', " +
      "(SELECT e.atom FROM json_each(c.value, '$.row') AS e WHERE e.key = 'id' COLLATE NOCASE)) AS id, " +
      "c.value -> '$.row' AS r, c.value AS change FROM json_each(CAST(? AS TEXT), '$.changes') AS c",
    shipment.body,
  );
  for (const { op, tbl, id, r, change } of changes) {
    letters.keepRefused({ op, table: tbl, rowId: id, row: r, change }, refusal.peer, refusal.reason, refusal.attempts);
  }
  return changes.map(({ op, tbl, id }) => ({ op: op as RowRef['op'], table: tbl, id }));
}

/** The shipment reduced to its change number `index`. */
export function singleChange(db: Connection, shipment: Shipment, index: number): Shipment {
  const change = db.get<{ value: string }>(
    "SELECT value FROM json_each(CAST(? AS TEXT), '$.changes') WHERE key = ?",
    shipment.body,
    index,
  );
  const body = new TextEncoder().encode(`{"batch_id":${shipment.batchId},"changes":[${change?.value}]}`);
  return { ...shipment, body, count: 1 };
}

/**
 * Makes room for the configured peers. One that is new, or that has missed changes which are gone (it was removed from
 * the configuration for a while), begins with a snapshot of everything; so does every peer when a table is new here.
 */
export function enrolPeers(db: Connection, registry: Registry, peers: string[], newTables: string[]): void {
  db.transaction(() => {
    const latest = lastChangeId(db);
    keepChangeIdsAbove(db, latest);
    const oldest = Number(db.get('SELECT coalesce(min(change_id), ?) AS n FROM _changes', latest + 1)?.n);
    const adopted = Number(db.get("SELECT coalesce(max(value), 0) AS n FROM _meta WHERE key = 'adopted_upto'")?.n);
    const anything = registry.list().some((table) => hasRows(db, table.name));
    for (const peer of peers) {
      const state = db.get<{ last_acked: number; tail_from: number | null }>(
        'SELECT last_acked, tail_from FROM _peer_state WHERE peer_url = ?',
        peer,
      );
      if (!state) {
        const tail = oldest <= adopted ? 0 : latest;
        db.run(
          'INSERT INTO _peer_state (peer_url, last_acked, tail_from) VALUES (?, 0, CAST(? AS INTEGER))',
          peer,
          anything ? tail : null,
        );
        continue;
      }
      const missed = (state.tail_from ?? state.last_acked) < oldest - 1;
      const behind = newTables.some((name) => hasRows(db, name));
      if (missed || behind) {
        db.run(
          'UPDATE _peer_state SET tail_from = coalesce(tail_from, last_acked), snapshot_table = NULL, snapshot_after = NULL WHERE peer_url = ?',
          peer,
        );
      }
    }
    if (peers.length > 0) pruneChanges(db, peers);
  });
}

/** Deletes what every configured peer has; a peer that is no longer configured holds nothing back. In a transaction. */
function pruneChanges(db: Connection, peers: string[]): void {
  db.run(
    `DELETE FROM _changes WHERE change_id <= (SELECT min(last_acked) FROM _peer_state WHERE peer_url IN (${peers.map(() => '?').join(', ')}))`,
    ...peers,
  );
  db.run('DELETE FROM _floors');
}

function hasRows(db: Connection, table: string): boolean {
  const rows = db.get(`SELECT 1 AS n FROM ${quote(table)} LIMIT 1`);
  return (rows ?? db.get('SELECT 1 AS n FROM _tombstones WHERE table_name = ? LIMIT 1', table)) !== undefined;
}

/**
 * A JavaScript string can hold half of a surrogate pair, and some bindings store it as bytes that are not UTF-8. Peers
 * refuse such a body; with U+FFFD in its place the row arrives.
 */
export function wellFormed(body: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return isUtf8(body) ? body : new TextEncoder().encode(new TextDecoder().decode(body));
}

/** The position of everything that has been written, for `flush` and health. */
export function pendingFor(db: Connection, peer: string): { pending: number; snapshot: boolean; lastAcked: number } {
  const state = db.get<{ last_acked: number; tail_from: number | null }>(
    'SELECT last_acked, tail_from FROM _peer_state WHERE peer_url = ?',
    peer,
  );
  const lastAcked = state?.last_acked ?? 0;
  const latest = Number(db.get('SELECT max(change_id) AS n FROM _changes')?.n ?? 0);
  const from = Math.max(lastAcked, state?.tail_from ?? 0);
  return { pending: Math.max(0, latest - from), snapshot: (state?.tail_from ?? null) !== null, lastAcked };
}

/** `{"batch_id":` with the longest id, `,"changes":[` and `]}`. */
export const ENVELOPE_BYTES = 50;

/** One change of `_changes`, as it goes onto the wire. */
const CHANGE =
  `'{"op":"' || op || '","table":' || json_quote(table_name) || ',"row":' || coalesce(row_data, 'null') || ',"old_id":' || ` +
  `iif(op = 'DELETE', json_quote(${encode('row_id', 'TEXT')}), 'null') || '}'`;

/** After which, and how many. */
const NEXT = 'FROM _changes WHERE change_id > ? ORDER BY change_id LIMIT ?';

/** The whole request body is made by SQLite, as bytes: no row ever becomes a JavaScript object or string. */
const SERIALISE =
  `SELECT CAST('{"batch_id":' || max(change_id) || ',"changes":[' || group_concat(change) || ']}' AS BLOB) AS body, ` +
  'max(change_id) AS last, count(*) AS n, sum(nameless) AS nameless ' +
  `FROM (SELECT change_id, row_id IS NULL AS nameless, ${CHANGE} AS change ${NEXT})`;
