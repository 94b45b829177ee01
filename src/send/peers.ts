/** `_peer_state`: which peers there are, how far each of them is, and what is kept for them. */
import { lastChangeId } from '../capture/change-ids.ts';
import type { Registry } from '../capture/registry.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { quote } from '../sqlite/sql.ts';
import { type Attachment, OF_ANY_ATTACHMENT } from './attachment.ts';
import { inScope, snapshotKey } from './resend.ts';
import { remainingRows, type SnapshotPosition } from './snapshot.ts';

/** Where a shipment to a peer ends: a change_id, or a place in the snapshot. */
export type PeerPosition =
  | { kind: 'tail'; changeId: number }
  | { kind: 'snapshot'; run: number; position: SnapshotPosition };

export interface PeerState {
  lastAcked: number;
  /** Set while a snapshot is under way: the change_id after which the tail begins. */
  tailFrom: number | null;
  /** How far the snapshot is. */
  snapshot: SnapshotPosition;
  /** Its tables as a JSON array; null for all. */
  scope: string | null;
  /** Which walk it is: an answer to a page of an earlier one says nothing of this. */
  run: number;
  /** Tables that the peer is to be asked for, as a JSON array. */
  asks: string | null;
}

/**
 * Makes room for the configured peers. One that is new, or that has missed changes which are gone (it was removed from
 * the configuration for a while), begins with a snapshot of everything.
 */
export function enrolPeers(db: Connection, registry: Registry, attachment: Attachment): void {
  const peers = attachment.peers;
  db.transaction(() => {
    attachment.enter();
    const latest = lastChangeId(db);
    const oldest = Number(db.get('SELECT coalesce(min(change_id), ?) AS n FROM main._changes', latest + 1)?.n);
    const adopted = Number(db.get("SELECT coalesce(max(value), 0) AS n FROM main._meta WHERE key = 'adopted_upto'")?.n);
    const anything = registry.list().some((table) => hasRows(db, table.name));
    for (const peer of peers) {
      const state = findState(db, peer);
      if (!state) {
        const tail = oldest <= adopted ? 0 : latest;
        db.run(
          'INSERT INTO main._peer_state (peer_url, last_acked, tail_from) VALUES (?, 0, CAST(? AS INTEGER))',
          peer,
          anything ? tail : null,
        );
      } else {
        const missed = (state.tailFrom ?? state.lastAcked) < oldest - 1;
        if (missed) beginSeed(db, peer, attachment.now());
      }
      noteSnapshot(db, peer, attachment.now());
    }
    if (peers.length > 0) pruneChanges(db, peers);
  });
}

/**
 * The peer may lack anything: it is given the whole state, and then the changes after the last that it acknowledged.
 * One way for every cause: new here, away for too long, replaced, restored, or asked for. Inside a transaction.
 */
export function beginSeed(db: Connection, peer: string, now: number): void {
  db.run(
    'UPDATE main._peer_state SET tail_from = coalesce(tail_from, last_acked), snapshot_table = NULL, ' +
      'snapshot_after = NULL, snapshot_of = NULL, snapshot_run = snapshot_run + 1 WHERE peer_url = ?',
    peer,
  );
  noteSnapshot(db, peer, now);
}

export function stateOf(db: Connection, peer: string): PeerState {
  const state = findState(db, peer);
  if (!state) throw new Error(`no state for peer ${peer}`);
  return state;
}

/** What is in `_changes` after it is on its way to the peer; -1 where all rows are, undefined where nothing is sent there. */
export function deliveredUpTo(db: Connection, peer: string): number | undefined {
  const state = findState(db, peer);
  return state?.tailFrom == null ? state?.lastAcked : -1;
}

/** The peer has everything up to there. Inside a transaction. */
export function advancePeer(db: Connection, peer: string, end: PeerPosition): void {
  if (end.kind === 'snapshot') {
    db.run(
      'UPDATE main._peer_state SET snapshot_table = ?, snapshot_after = ? WHERE peer_url = ? AND snapshot_run = ?',
      end.position.section,
      end.position.after,
      peer,
      end.run,
    );
  } else {
    db.run('UPDATE main._peer_state SET last_acked = max(last_acked, ?) WHERE peer_url = ?', end.changeId, peer);
  }
}

/** The peer has the whole snapshot and goes on with the tail. Inside a transaction. */
export function endSnapshot(db: Connection, peer: string): void {
  db.run(
    'UPDATE main._peer_state SET last_acked = max(last_acked, tail_from), tail_from = NULL, ' +
      'snapshot_table = NULL, snapshot_after = NULL, snapshot_of = NULL WHERE peer_url = ?',
    peer,
  );
  db.run('DELETE FROM main._meta WHERE key = ?', snapshotKey(peer));
}

/**
 * Deletes what every peer has, the given ones and those of everybody who is attached to the file; a peer that is in no
 * configuration holds nothing back. Inside a transaction.
 */
export function pruneChanges(db: Connection, peers: string[]): void {
  const own = `peer_url IN (${peers.map(() => '?').join(', ')})`;
  const everybodyHas = `SELECT min(last_acked) FROM main._peer_state WHERE ${own} OR ${OF_ANY_ATTACHMENT}`;
  db.run(`DELETE FROM main._changes WHERE change_id <= (${everybodyHas})`, ...peers);
}

/** What a peer does not have yet. */
export interface PeerProgress {
  lastAcked: number;
  /** A snapshot is under way: the peer is being given the state from before the changes it will be sent. */
  snapshot: boolean;
  /** Changes, and rows and tombstones of the snapshot, that are still to come. */
  pending: number;
  /** False where the snapshot has more than were counted: then at least so many are to come. */
  exact: boolean;
  /** When the snapshot began; null where there is none. */
  snapshotSince: number | null;
  /** Writes here may have gone unseen, and the peer has not yet been asked to send its own rows of those tables. */
  toBeAsked: boolean;
}

/**
 * Rows and tombstones of a snapshot that are counted at the most: the work is bounded, whatever the size of the data.
 */
export const PROGRESS_COUNT_MAX = 10_000;

export function peerProgress(db: Connection, tables: Table[], peer: string): PeerProgress {
  const state = findState(db, peer) ?? NOTHING_KNOWN;
  const from = Math.max(state.lastAcked, state.tailFrom ?? 0);
  const changes = changesAfter(db, from);
  const snapshot = state.tailFrom !== null;
  const rows = snapshot ? remainingRows(db, inScope(tables, state.scope), state.snapshot, PROGRESS_COUNT_MAX) : 0;
  const since = snapshot ? db.get('SELECT value FROM main._meta WHERE key = ?', snapshotKey(peer))?.value : null;
  return {
    lastAcked: state.lastAcked,
    snapshot,
    pending: changes + rows,
    exact: rows < PROGRESS_COUNT_MAX,
    snapshotSince: typeof since === 'number' ? since : null,
    toBeAsked: state.asks !== null,
  };
}

const NOTHING_KNOWN: PeerState = {
  lastAcked: 0,
  tailFrom: null,
  snapshot: { section: null, after: null },
  scope: null,
  run: 0,
  asks: null,
};

/** Ids have few gaps in a backlog of our own making, so a large one is measured by its ends. */
export function changesAfter(db: Connection, watermark: number): number {
  const few = `SELECT 1 FROM main._changes WHERE change_id > ? LIMIT ${PROGRESS_COUNT_MAX}`;
  const counted = Number(db.get(`SELECT count(*) AS n FROM (${few})`, watermark)?.n);
  if (counted < PROGRESS_COUNT_MAX) return counted;
  return Number(db.get('SELECT max(change_id) AS n FROM main._changes')?.n) - watermark;
}

function findState(db: Connection, peer: string): PeerState | undefined {
  const row = db.get<{
    last_acked: number;
    tail_from: number | null;
    snapshot_table: string | null;
    snapshot_after: string | null;
    scope: string | null;
    run: number | null;
    asks: string | null;
  }>(
    'SELECT last_acked, tail_from, snapshot_table, snapshot_after, snapshot_of AS scope, snapshot_run AS run, asks ' +
      'FROM main._peer_state WHERE peer_url = ?',
    peer,
  );
  return (
    row && {
      lastAcked: row.last_acked,
      tailFrom: row.tail_from,
      snapshot: { section: row.snapshot_table, after: row.snapshot_after },
      scope: row.scope,
      run: row.run ?? 0,
      asks: row.asks,
    }
  );
}

/** When a snapshot began outlives the process that began it. */
function noteSnapshot(db: Connection, peer: string, now: number): void {
  if (findState(db, peer)?.tailFrom == null) db.run('DELETE FROM main._meta WHERE key = ?', snapshotKey(peer));
  else
    db.run(
      'INSERT INTO main._meta (key, value) VALUES (?, CAST(? AS INTEGER)) ON CONFLICT DO NOTHING',
      snapshotKey(peer),
      now,
    );
}

function hasRows(db: Connection, table: string): boolean {
  const rows = db.get(`SELECT 1 AS n FROM ${quote(table)} LIMIT 1`);
  return (rows ?? db.get('SELECT 1 AS n FROM main._tombstones WHERE table_name = ? LIMIT 1', table)) !== undefined;
}
