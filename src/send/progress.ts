/** How far a peer is, in figures: what health() tells, with bounded work. */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { findState, NOTHING_KNOWN, pausedPeers, START } from './peers.ts';
import { inScope, snapshotKey } from './resend.ts';
import { type SeedCause, seedsOf } from './seed-causes.ts';
import { remainingRows } from './snapshot.ts';

/** What a peer does not have yet. */
export interface PeerProgress {
  lastAcked: number;
  /** A snapshot is under way: the peer is being given the state from before the changes it will be sent. */
  snapshot: boolean;
  /** Changes, and rows and tombstones of the snapshot, that are still to come. */
  pending: number;
  /** False where the snapshot has more than were counted: then at least so many are to come. */
  exact: boolean;
  /** When the snapshot began, or since when a stale peer is behind; null where there is neither. */
  snapshotSince: number | null;
  paused: boolean;
  stale: boolean;
  /** Writes here may have gone unseen, and the peer has not yet been asked to send its own rows of those tables. */
  toBeAsked: boolean;
  /** How often it was given everything, or whole tables, by cause. */
  seeds: Record<SeedCause, number>;
}

/**
 * Rows and tombstones of a snapshot that are counted at the most: the work is bounded, whatever the size of the data.
 */
export const PROGRESS_COUNT_MAX = 10_000;

export function peerProgress(db: Connection, tables: Table[], peer: string): PeerProgress {
  const state = findState(db, peer) ?? NOTHING_KNOWN;
  const { stale } = state;
  const from = Math.max(state.lastAcked, state.tailFrom ?? 0);
  // A stale peer lacks the whole state, whatever is left of the changes.
  const changes = stale ? 0 : changesAfter(db, from);
  const snapshot = (state.tailFrom !== null || state.again !== null) && !stale;
  const whole = stale || state.again !== null;
  const left = whole ? { tables, at: START } : { tables: inScope(tables, state.scope), at: state.snapshot };
  const rows = snapshot || stale ? remainingRows(db, left.tables, left.at, PROGRESS_COUNT_MAX) : 0;
  const since =
    snapshot || stale ? db.get('SELECT value FROM main._meta WHERE key = ?', snapshotKey(peer))?.value : null;
  return {
    lastAcked: state.lastAcked,
    snapshot,
    pending: changes + rows,
    exact: rows < PROGRESS_COUNT_MAX,
    snapshotSince: typeof since === 'number' ? since : null,
    paused: pausedPeers(db).has(peer),
    stale,
    toBeAsked: state.asks !== null,
    seeds: seedsOf(db, peer),
  };
}

/** Ids have few gaps in a backlog of our own making, so a large one is measured by its ends. */
export function changesAfter(db: Connection, watermark: number): number {
  const after = 'FROM main._changes WHERE change_id > ?';
  // To step over them takes a third of what it takes to count them.
  const last = `SELECT (SELECT max(change_id) FROM main._changes) AS last ${after} LIMIT 1 OFFSET ${PROGRESS_COUNT_MAX - 1}`;
  const many = db.get(last, watermark);
  if (many) return Number(many.last) - watermark;
  return Number(db.get(`SELECT count(*) AS n FROM (SELECT 1 ${after} LIMIT ${PROGRESS_COUNT_MAX})`, watermark)?.n);
}
