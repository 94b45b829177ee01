/** What a node says of itself with every message, so that others know whether anything old is still to come from it. */
import type { Clock } from '../clock.ts';
import { OF_ANY_ATTACHMENT } from '../send/attachment.ts';
import type { BacklogAge } from '../send/backlog-age.ts';
import { snapshotKey } from '../send/resend.ts';
import type { Connection } from '../sqlite/connection.ts';

export interface OwnLowOptions {
  /** Those that are configured at the moment. */
  peers: () => string[];
  age: BacklogAge;
  clock: Clock;
}

/** It goes into every header, and a second makes no difference to anybody. An old one promises less, so it is never wrong. */
const LOOK_MS = 1_000;

export class OwnLow {
  readonly #db: Connection;
  readonly #o: OwnLowOptions;
  #known = 0;
  /** Databases that are stale peers. */
  #stale = new Set<string>();
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(db: Connection, options: OwnLowOptions) {
    this.#db = db;
    this.#o = options;
  }

  now(): number {
    this.#look();
    return this.#known;
  }

  /**
   * What another database is told. One that is a stale peer is promised nothing: it may lack whatever was captured here
   * since it is away, and if it forgot deletions up to then, everybody who has such a row would take it for deleted. One
   * that is being given everything is told nothing, and goes by what it was told before: what is on its way to it may be
   * older than anything that is captured here.
   */
  toldTo(inc: string | null | undefined): number | undefined {
    this.#look();
    if (inc == null) return this.#known;
    if (this.#stale.has(inc)) return 0;
    return this.#db.get(SEEDED, inc, JSON.stringify(this.#o.peers())) ? undefined : this.#known;
  }

  #look(): void {
    const now = this.#o.clock.now();
    if (Math.abs(now - this.#lookedAt) < LOOK_MS) return;
    this.#known = lowOf(this.#db, { peers: this.#o.peers(), age: this.#o.age, now });
    const stale = this.#db.all<{ inc: string }>(STALE);
    this.#stale = new Set(stale.map(({ inc }) => inc));
    this.#lookedAt = now;
  }
}

const STALE = 'SELECT inc FROM main._peer_state WHERE stale = 1 AND inc IS NOT NULL';

/** The URL of a peer of this process, which may be forgotten as an attachment while it stands still, or of another's. */
const IS_PEER = `(peer_url IN (SELECT value FROM json_each(?)) OR ${OF_ANY_ATTACHMENT})`;

/** At a URL that is no peer's any more nothing is on its way, and nothing ends. */
const SEEDED =
  'SELECT 1 AS n FROM main._peer_state WHERE inc = ? AND (tail_from IS NOT NULL OR again IS NOT NULL) ' +
  `AND ${IS_PEER}`;

/**
 * All that was captured here before has reached every peer: since when the oldest of the rest may have been waiting. For a
 * stale peer nothing waits; it is compared with when it is back.
 */
export function lowOf(db: Connection, { peers, age, now }: { peers: string[]; age: BacklogAge; now: number }): number {
  const states = db.all<{ url: string; acked: number; walking: number; stale: number | null }>(
    'SELECT peer_url AS url, last_acked AS acked, tail_from IS NOT NULL AS walking, stale FROM main._peer_state ' +
      `WHERE ${IS_PEER}`,
    JSON.stringify(peers),
  );
  // Nothing is known of one that was taken away: then nothing is promised.
  if (!peers.every((peer) => states.some(({ url }) => url === peer))) return 0;
  return states.reduce((low, { url, acked, walking, stale }) => {
    if (stale === 1) return low;
    // While a peer is given the whole state, anything may be on its way that is as old as that.
    if (walking) return Math.min(low, snapshotSince(db, url));
    return Math.min(low, age.earliestAfter(acked));
  }, now);
}

function snapshotSince(db: Connection, peer: string): number {
  const began = db.get('SELECT value FROM main._meta WHERE key = ?', snapshotKey(peer))?.value;
  return typeof began === 'number' ? began : 0;
}
