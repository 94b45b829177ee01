/** `_peer_state`: which peers there are, how far each of them is, and what is kept for them. */
import { givenUpTo, lastChangeId } from '../capture/change-ids.ts';
import type { Registry } from '../capture/registry.ts';
import type { Connection } from '../sqlite/connection.ts';
import { quote } from '../sqlite/sql.ts';
import { exactString } from '../wire/exact-text.ts';
import { BOUND_ID, idForWire } from '../wire/values.ts';
import { type Attachment, OF_ANY_ATTACHMENT } from './attachment.ts';
import { pruneChanges } from './prune.ts';
import { snapshotKey } from './resend.ts';
import { countSeed, type SeedCause } from './seed-causes.ts';
import type { SnapshotPosition } from './snapshot.ts';

/**
 * Where a shipment to a peer ends: a change_id, or a place in the snapshot. `run` is that of `_peer_state` when it was
 * read: an answer to what was read before the peer's latest seed began says nothing of how far the peer is.
 */
export type PeerPosition =
  | { kind: 'tail'; run: number; changeId: number }
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
  /** The last change that there was when that was decided; null where an earlier build has. */
  asksAfter: number | null;
  /** The database that acknowledged last at this URL; null where it has not said who it is. */
  inc: string | null;
  /** Nothing is kept for it: changes that it lacks may be gone, and it is seeded when it is back. */
  stale: boolean;
  /** It is to be seeded once more, when the present seed is over and it has every change up to this one. */
  again: number | null;
}

/**
 * Makes room for the configured peers. One that is new, or that has missed changes which are gone (it was removed from
 * the configuration for a while), begins with a snapshot of everything. One that is stale stays so until it is back. `besides` is
 * done in the same transaction.
 */
export function enrolPeers(
  db: Connection,
  registry: Registry,
  attachment: Attachment,
  besides: () => void = () => {},
): void {
  const peers = attachment.peers;
  db.transaction(() => {
    attachment.enter();
    besides();
    const latest = givenUpTo(db);
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
        if (anything) countSeed(db, peer, 'new');
      } else if (!state.stale) {
        const missed = (state.tailFrom ?? state.lastAcked) < oldest - 1;
        if (missed) beginSeed(db, peer, attachment.now(), 'stale');
      }
      noteSnapshot(db, peer, attachment.now());
    }
    // One that is taken out, and named again later, is a new one: whoever answers there then is kept to.
    db.run(`UPDATE main._peer_state SET pinned = NULL WHERE pinned IS NOT NULL AND NOT (${OF_ANY_ATTACHMENT})`);
    pruneChanges(db, peers, attachment.seenUpTo);
  });
  attachment.entered();
}

/** By URL: the node that has shown the key there. */
export function pinnedPeers(db: Connection): Map<string, string> {
  const sql = 'SELECT peer_url AS url, pinned AS id FROM main._peer_state WHERE pinned IS NOT NULL';
  return new Map(db.all<{ url: string; id: string }>(sql).map(({ url, id }) => [url, id]));
}

export function pinPeer(db: Connection, peer: string, id: string): void {
  const sql = 'UPDATE main._peer_state SET pinned = ? WHERE peer_url = ?';
  db.transaction(() => db.run(sql, id, peer), { durable: true });
}

/**
 * The peer may lack anything: it is given the whole state, and then the changes after the last that it acknowledged.
 * One way for every cause: new here, away for too long, replaced, restored, or asked for. Inside a transaction.
 *
 * Of the changes that a stale peer lacks, some may be gone, and the state has them all: it goes on after the latest. From
 * here on it counts again, so a peer that is still away is left stale.
 */
export function beginSeed(db: Connection, peer: string, now: number, cause: SeedCause): void {
  countSeed(db, peer, cause);
  db.run(
    'UPDATE main._peer_state SET ' +
      'tail_from = iif(stale = 1, CAST(? AS INTEGER), coalesce(tail_from, last_acked)), stale = 0, ' +
      'snapshot_table = NULL, snapshot_after = NULL, snapshot_of = NULL, snapshot_run = snapshot_run + 1, ' +
      'again = NULL WHERE peer_url = ?',
    givenUpTo(db),
    peer,
  );
  noteSnapshot(db, peer, now);
}

/**
 * The peer is given everything that is here now, which it may lack. Where it is being given everything, it is so once more
 * when that is over: otherwise whoever gives cause for it again and again would keep a seed from ever ending, and what is
 * written meanwhile from being sent. In a transaction.
 */
export function seedOnceMore(db: Connection, peer: string, now: number): void {
  const { tailFrom, again } = stateOf(db, peer);
  if (tailFrom !== null) db.run('UPDATE main._peer_state SET again = 0 WHERE peer_url = ?', peer);
  else if (again === null) beginSeed(db, peer, now, 'restored');
}

/**
 * Another state of the file was put under the process: what is on its way was read from the one before, and may have numbers
 * that are given again. No answer to it counts: no walk has had the numbers from here on. `chance` is one. In a transaction.
 */
export function beginRunsAnew(db: Connection, chance: number): void {
  const more = 1 + Math.floor(chance * RUNS_APART);
  db.run('UPDATE main._peer_state SET snapshot_run = coalesce(snapshot_run, 0) + CAST(? AS INTEGER)', more);
}

const RUNS_APART = 2 ** 40;

/** The databases that have acknowledged at a URL. */
export const AT_URLS = 'SELECT inc FROM main._peer_state WHERE inc IS NOT NULL';

/** The URLs at which somebody may be who says that it is this one: by its id, or because nobody is known there. Or all. */
export function peersThatMayBe(db: Connection, sender?: { id: string; inc: string }): string[] {
  const same = 'inc IS NULL OR inc = ? OR inc IN (SELECT inc FROM main._nodes WHERE id = ?)';
  const found = sender
    ? db.all<{ url: string }>(`SELECT peer_url AS url FROM main._peer_state WHERE ${same}`, sender.inc, sender.id)
    : db.all<{ url: string }>('SELECT peer_url AS url FROM main._peer_state');
  return found.map(({ url }) => url);
}

/** The database that has acknowledged at a URL. In a transaction. */
export function noteDatabase(db: Connection, peer: string, inc: string): void {
  db.run('UPDATE main._peer_state SET inc = ?, plain = NULL WHERE peer_url = ?', inc, peer);
}

/** Whoever has answered at a URL does not say which database it is. In a transaction. */
export function notePlain(db: Connection, peer: string): void {
  db.run('UPDATE main._peer_state SET plain = 1 WHERE peer_url = ?', peer);
}

/** The URLs at which a database acknowledged last; a stale one is given everything in any case, when it is back. */
export function peersOf(db: Connection, inc: string): string[] {
  const sql = 'SELECT peer_url AS url FROM main._peer_state WHERE inc = ? AND stale IS NOT 1 ORDER BY peer_url';
  return db.all<{ url: string }>(sql, inc).map(({ url }) => url);
}

/**
 * A database that is at `peer` now was at a URL that is in no configuration any more: it has moved, and goes on where it
 * was, unless it has missed changes meanwhile. In a transaction.
 */
export function movePeer(db: Connection, inc: string, peer: string, now: number): void {
  const old = db.get<{ url: string }>(
    `SELECT peer_url AS url FROM main._peer_state WHERE inc = ? AND peer_url <> ? AND NOT (${OF_ANY_ATTACHMENT})`,
    inc,
    peer,
  )?.url;
  if (old === undefined) return;
  const { tailFrom, lastAcked, stale } = stateOf(db, old);
  if (stale) return;
  const kept = Number(db.get('SELECT min(change_id) AS n FROM main._changes')?.n ?? lastChangeId(db) + 1);
  if ((tailFrom ?? lastAcked) < kept - 1) return;
  const columns = [
    'last_acked',
    'tail_from',
    'snapshot_table',
    'snapshot_after',
    'snapshot_of',
    'asks',
    'asks_after',
    'again',
  ];
  db.run(
    `UPDATE main._peer_state SET snapshot_run = snapshot_run + 1, (${columns.join(', ')}) = ` +
      `(SELECT ${columns.join(', ')} FROM main._peer_state WHERE peer_url = ?) WHERE peer_url = ?`,
    old,
    peer,
  );
  db.run('DELETE FROM main._peer_state WHERE peer_url = ?', old);
  db.run('DELETE FROM main._meta WHERE key = ?', snapshotKey(old));
  noteSnapshot(db, peer, now);
}

/**
 * The peer is too far behind: nothing is kept for it any more. `since` is how long it has been behind, which nobody will
 * be able to tell once the changes are gone. Inside a transaction.
 */
export function markStale(db: Connection, peer: string, since: number): void {
  db.run('UPDATE main._peer_state SET stale = 1 WHERE peer_url = ?', peer);
  noteSnapshot(db, peer, since);
}

/** A paused peer is sent nothing, by whichever process, until it is resumed. Inside a transaction. */
export function setPaused(db: Connection, peer: string, paused: boolean): void {
  db.run('UPDATE main._peer_state SET paused = CAST(? AS INTEGER) WHERE peer_url = ?', paused ? 1 : 0, peer);
}

export function pausedPeers(db: Connection): Set<string> {
  const paused = db.all<{ url: string }>('SELECT peer_url AS url FROM main._peer_state WHERE paused = 1');
  return new Set(paused.map(({ url }) => url));
}

export function stateOf(db: Connection, peer: string): PeerState {
  const state = findState(db, peer);
  if (!state) throw new Error(`no state for peer ${peer}`);
  return state;
}

/** The database at a URL, and the walk that the peer is on: asked with every request and answer, where the rest is not. */
export function databaseAt(db: Connection, peer: string): Pick<PeerState, 'inc' | 'run'> & { plain: number | null } {
  const sql = 'SELECT inc, plain, coalesce(snapshot_run, 0) AS run FROM main._peer_state WHERE peer_url = ?';
  const found = db.get<ReturnType<typeof databaseAt>>(sql, peer);
  if (!found) throw new Error(`no state for peer ${peer}`);
  return found;
}

/**
 * What is in `_changes` after it is on its way to the peer; -1 where all rows are, undefined where nothing is sent there. What a
 * stale one lacks may not be there any more.
 */
export function deliveredUpTo(db: Connection, peer: string): number | undefined {
  const state = findState(db, peer);
  if (state?.stale) return -1;
  return state?.tailFrom == null && state?.again == null ? state?.lastAcked : -1;
}

/** The peer has all up to there; false where that was read before its latest seed, or it is stale. In a transaction. */
export function advancePeer(db: Connection, peer: string, end: PeerPosition): boolean {
  if (end.kind === 'snapshot') {
    db.run(
      `UPDATE main._peer_state SET snapshot_table = ?, snapshot_after = ${BOUND_ID} ` +
        'WHERE peer_url = ? AND snapshot_run = ? AND stale IS NOT 1',
      end.position.section,
      end.position.after,
      peer,
      end.run,
    );
    return db.changes() > 0;
  }
  const advanced = db.get(
    'UPDATE main._peer_state SET last_acked = max(last_acked, ?) WHERE peer_url = ? AND ' +
      'coalesce(snapshot_run, 0) = ? AND stale IS NOT 1 RETURNING 1 AS n',
    end.changeId,
    peer,
    end.run,
  );
  return advanced !== undefined;
}

/** The peer has the whole snapshot and goes on with the tail. Inside a transaction. */
export function endSnapshot(db: Connection, peer: string, now: number): void {
  db.run(
    'UPDATE main._peer_state SET last_acked = max(last_acked, tail_from), tail_from = NULL, ' +
      'snapshot_table = NULL, snapshot_after = NULL, snapshot_of = NULL, ' +
      'again = iif(again IS NULL, NULL, CAST(? AS INTEGER)) WHERE peer_url = ?',
    givenUpTo(db),
    peer,
  );
  noteSnapshot(db, peer, now);
}

/** Before the first page of a snapshot. */
export const START: SnapshotPosition = { section: null, after: null };

/** Of a peer that was never enrolled. */
export const NOTHING_KNOWN: PeerState = {
  lastAcked: 0,
  tailFrom: null,
  snapshot: START,
  scope: null,
  run: 0,
  asks: null,
  asksAfter: null,
  inc: null,
  stale: false,
  again: null,
};

const STATE =
  `SELECT last_acked, tail_from, snapshot_table, ${idForWire('snapshot_after')} AS snapshot_after, ` +
  'snapshot_of AS scope, snapshot_run AS run, asks, asks_after, inc, stale, again FROM main._peer_state WHERE peer_url = ?';

export function findState(db: Connection, peer: string): PeerState | undefined {
  const row = db.get<{
    last_acked: number;
    tail_from: number | null;
    snapshot_table: string | null;
    snapshot_after: Uint8Array | null;
    scope: string | null;
    run: number | null;
    asks: string | null;
    asks_after: number | null;
    inc: string | null;
    stale: number | null;
    again: number | null;
  }>(STATE, peer);
  return (
    row && {
      lastAcked: row.last_acked,
      tailFrom: row.tail_from,
      snapshot: { section: row.snapshot_table, after: row.snapshot_after && exactString(row.snapshot_after) },
      scope: row.scope,
      run: row.run ?? 0,
      asks: row.asks,
      asksAfter: row.asks_after,
      inc: row.inc,
      stale: row.stale === 1,
      again: row.again,
    }
  );
}

/** When a snapshot began outlives the process that began it. */
function noteSnapshot(db: Connection, peer: string, now: number): void {
  const { tailFrom, stale, again } = findState(db, peer) ?? NOTHING_KNOWN;
  if (tailFrom === null && again === null && !stale) db.run('DELETE FROM main._meta WHERE key = ?', snapshotKey(peer));
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
