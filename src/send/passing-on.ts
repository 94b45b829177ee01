/**
 * What one has reaches all. What was brought here by a peer that is gone, or that has lost a part, may be here and nowhere else:
 * then whoever is left is given all that there is. Where nothing can be missing, nobody is sent anything.
 *
 * Of one that introduces itself it is known whether it has brought anything, and whether it is at another URL now. Of those
 * that do not, plain peers, it is known of all together whether they have, since everybody was last given everything.
 */
import { LATE_MS } from '../identity/identity.ts';
import type { Connection } from '../sqlite/connection.ts';
import { OF_ANY_ATTACHMENT } from './attachment.ts';
import { AT_URLS, beginSeed, seedOnceMore } from './peers.ts';

/** Nobody has answered there who may yet say who he is. */
const IS_UNHEARD = 'inc IS NULL AND plain IS NULL';
/** It is to be given everything, and nothing has been read for that. */
const HAS_NOT_BEGUN =
  'inc IS NULL AND shipped = 0 AND tail_from IS NOT NULL AND snapshot_table IS NULL AND snapshot_of IS NULL';
const BROUGHT = 'plain_brought';
const STRANGERS = 'strangers_brought';

/**
 * Every peer is given all that there is, and whoever else may have something of it does the same. A stale one is given
 * everything in any case, when it is back; one that is no peer at present, if it ever is again; `besides` are given it already.
 * In a transaction.
 */
export function compareAllPeers(db: Connection, now: number, besides: string[] = []): void {
  const peers = db.all<{ url: string; isPeer: number }>(
    `SELECT peer_url AS url, ${OF_ANY_ATTACHMENT} AS isPeer FROM main._peer_state ` +
      `WHERE stale IS NOT 1 AND NOT (${HAS_NOT_BEGUN})`,
  );
  for (const { url, isPeer } of peers) {
    if (besides.includes(url)) continue;
    if (isPeer) seedOnceMore(db, url, now);
    else db.run('UPDATE main._peer_state SET again = 0 WHERE peer_url = ?', url);
  }
  db.run('DELETE FROM main._meta WHERE key = ?', BROUGHT);
}

/**
 * A node that was taken out of the configuration may have brought something here and to nobody else. It may also have
 * moved: that is known once every new peer has said who it is. A plain one is never known again, and nobody is waited for. One
 * that has never said so may have been the last that was waited for to know who is at no URL. In a transaction.
 */
export function noteRemoved(db: Connection, now: number): void {
  const configured = OF_ANY_ATTACHMENT;
  db.run(`UPDATE main._peer_state SET removed = NULL WHERE removed IS NOT NULL AND ${configured}`);
  const isNew = `${IS_UNHEARD} AND last_acked = 0 AND tail_from IS NOT NULL AND snapshot_table IS NULL`;
  const waits = db.get(`SELECT 1 AS n FROM main._peer_state WHERE ${isNew} AND ${configured}`) !== undefined;
  const removed = `removed IS NULL AND NOT (${configured})${waits ? ' AND plain = 1' : ''}`;
  const left = db.all<{ inc: string | null }>(`SELECT inc FROM main._peer_state WHERE ${removed}`);
  if (left.length === 0) return;
  db.run(`UPDATE main._peer_state SET removed = CAST(? AS INTEGER) WHERE ${removed}`, now);
  if (left.some(({ inc }) => inc !== null) || havePlainBrought(db)) compareAllPeers(db, now);
  else passOnOfStrangers(db, now);
}

/**
 * Whoever has brought something here and is at no URL, though every peer has said who it is, or that it does not say so, may
 * have been at one before anybody had answered there: then what it brought may be here and nowhere else. In a transaction.
 */
export function passOnOfStrangers(db: Connection, now: number): void {
  if (db.get(`SELECT 1 AS n FROM main._peer_state WHERE ${IS_UNHEARD} AND ${OF_ANY_ATTACHMENT}`)) return;
  if (db.get(`SELECT 1 AS n FROM main._names WHERE inc NOT IN (${AT_URLS})`)) compareAllPeers(db, now);
}

/** Somebody who does not say which database it is has brought something. In the transaction of what that is. */
export function notePlainBrought(db: Connection): void {
  note(db, BROUGHT);
}

/** Those who are at no URL, and go on sending: each request brings something, and each would be a reason to give everybody everything. */
export class Strangers {
  readonly #db: Connection;
  #passedOnAt = Number.NEGATIVE_INFINITY;

  constructor(db: Connection) {
    this.#db = db;
  }

  /** What comes soon after the last time is passed on together. In the transaction of what that is. */
  brought(now: number): void {
    if (Math.abs(now - this.#passedOnAt) < LATE_MS) {
      note(this.#db, STRANGERS);
      return;
    }
    this.#passedOnAt = now;
    passOnOfStrangers(this.#db, now);
  }
}

/** One that introduces itself is where a plain one was: it may be another database, and lack what that one had. In a transaction. */
export function isNoMorePlain(db: Connection, peer: string, now: number): void {
  beginSeed(db, peer, now, 'replaced');
  if (havePlainBrought(db)) compareAllPeers(db, now, [peer]);
}

function havePlainBrought(db: Connection): boolean {
  return isNoted(db, BROUGHT);
}

function note(db: Connection, what: string): void {
  db.run('INSERT INTO main._meta (key, value) VALUES (?, 1) ON CONFLICT DO NOTHING', what);
}

function isNoted(db: Connection, what: string): boolean {
  return db.get('SELECT 1 AS n FROM main._meta WHERE key = ?', what) !== undefined;
}

/**
 * What a plain peer had sent by the time that it was taken out may come a moment later, or be the last that it has sent: it is
 * looked at once more, with what others have brought since. So it is for those who are at no URL. Every `LATE_MS`.
 */
export function passOnLate(db: Connection, now: number): void {
  if (isNoted(db, STRANGERS)) {
    db.transaction(() => {
      db.run('DELETE FROM main._meta WHERE key = ?', STRANGERS);
      passOnOfStrangers(db, now);
    });
  }
  if (!havePlainBrought(db)) return;
  const isLate = 'inc IS NULL AND abs(removed - CAST(? AS INTEGER)) < CAST(? AS INTEGER)';
  const left = db.get(`SELECT 1 AS n FROM main._peer_state WHERE ${isLate}`, now, 2 * LATE_MS);
  if (left) db.transaction(() => compareAllPeers(db, now));
}
