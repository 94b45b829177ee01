/** When changes go from `_changes`: no sooner than everybody has them. */
import { idsAreBehind, noteGiven } from '../capture/change-ids.ts';
import type { Connection } from '../sqlite/connection.ts';
import { OF_ANY_ATTACHMENT } from './attachment.ts';

/** Deleted at once: 5,000 changes take some 3 ms, and whatever is left goes with the next ticks. */
export const PRUNE_SLICE = 5_000;

/**
 * Deletes what every peer has, the given ones and those of everybody who is attached to the file: the oldest of it, as
 * much as does not block. A peer that is in no configuration, or stale, holds nothing back. Without any peer everything
 * is kept for the first one. What the feed, or a listener in this process (`seenUpTo`), has not seen yet stays as well.
 * Inside a transaction.
 */
export function pruneChanges(db: Connection, peers: string[], seenUpTo: number): void {
  const slice = `(SELECT min(change_id) FROM main._changes) + ${PRUNE_SLICE - 1}`;
  const limits = `(${everybodyHasUpTo(peers)}), ${slice}, CAST(? AS INTEGER), ${FEED_HAS_UP_TO}`;
  const upTo = db.get<{ n: number | null }>(`SELECT min(${limits}) AS n`, ...peers, seenUpTo)?.n;
  // Where ids are behind, a change may have one that a peer seems to have: it gets another with the next tick.
  if (upTo == null || idsAreBehind(db)) return;
  noteGiven(db, upTo);
  // Apart from the look: where a condition asks another query, SQLite collects all rows before it deletes the first.
  db.run('DELETE FROM main._changes WHERE change_id <= ?', upTo);
}

const FEED_HAS_UP_TO = `coalesce((SELECT CAST(value AS INTEGER) FROM main._meta WHERE key = 'feed_upto'), ${Number.MAX_SAFE_INTEGER})`;

/** Is there anything to prune? Cheap, and outside any transaction. */
export function canPrune(db: Connection, peers: string[]): boolean {
  const oldest = 'SELECT min(change_id) FROM main._changes';
  return db.get(`SELECT 1 AS n WHERE (${oldest}) <= (${everybodyHasUpTo(peers)})`, ...peers) !== undefined;
}

/** Where all are stale, nobody is waiting for any change. What somebody has written over says of no change that a peer has it. */
function everybodyHasUpTo(peers: string[]): string {
  const own = `peer_url IN (${peers.map(() => '?').join(', ')})`;
  const latest = '(SELECT max(change_id) FROM main._changes)';
  const acked = "iif(typeof(last_acked) = 'integer', last_acked, 0)";
  return (
    `SELECT iif(max(peer_url) IS NULL, NULL, coalesce(min(iif(stale = 1, NULL, ${acked})), ${latest})) ` +
    `FROM main._peer_state WHERE ${own} OR ${OF_ANY_ATTACHMENT}`
  );
}
