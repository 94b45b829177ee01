/** A seed that has to wait for the one before it, and whether any is under way: asked before every look for something to send. */
import type { Connection } from '../sqlite/connection.ts';
import { beginSeed, stateOf } from './peers.ts';

/** Is the peer being given the whole state? One that had to wait may begin `now`, where that is given. */
export function isBeingSeeded(db: Connection, peer: string, now: number | undefined): boolean {
  const { isUnderWay, isWaiting } = seedOf(db, peer);
  if (!isWaiting || now === undefined) return isUnderWay;
  beginWaitingSeed(db, peer, now);
  return seedOf(db, peer).isUnderWay;
}

/** One look-up of two columns: idle loops do little else. */
function seedOf(db: Connection, peer: string): { isUnderWay: boolean; isWaiting: boolean } {
  const row = db.get<{ walks: number; waits: number }>(
    'SELECT tail_from IS NOT NULL AND stale IS NOT 1 AS walks, again IS NOT NULL AS waits ' +
      'FROM main._peer_state WHERE peer_url = ?',
    peer,
  );
  return { isUnderWay: row?.walks === 1, isWaiting: row?.waits === 1 };
}

/** Begins with a seed that had to wait, where the peer has everything up to the end of the one before. */
function beginWaitingSeed(db: Connection, peer: string, now: number): void {
  const { tailFrom, again, lastAcked, stale } = stateOf(db, peer);
  if (again === null || tailFrom !== null || stale) return;
  const pending = 'SELECT 1 AS n FROM main._changes WHERE change_id > ? AND change_id <= ? LIMIT 1';
  if (db.get(pending, lastAcked, again)) return;
  db.transaction(() => beginSeed(db, peer, now, 'restored'));
}
