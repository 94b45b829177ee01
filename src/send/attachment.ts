/**
 * Who is attached to this file. Two processes with different peers must each keep what the peers of the other still need,
 * so each configuration has a row in `_attachments` while it is in use, and a change is deleted only when the peers of all
 * of them have it.
 *
 * A process that ends without stop() leaves its row behind. Whoever else is attached watches it: a process that finds
 * another's row counts up a number in its own, and a row whose number stands still for a minute is taken out. If that was
 * wrong, because the process was merely suspended, nothing is lost: before it reads another change it finds its row
 * missing and enters again, and a peer of its that has missed changes begins with a snapshot.
 */
import type { Clock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { yielding } from '../sqlite/yielding.ts';

export interface AttachmentOptions {
  nodeId: string;
  /** Those that are configured at the moment. */
  peers: () => string[];
  clock: Clock;
  /** Changes after this one are still to be told of in this process. */
  seenUpTo(): number;
  warn(code: string, message: string): void;
}

interface Other {
  node_id: string;
  peers: string;
  beat: number;
}

const BEAT_MS = 1_000;
const GONE_MS = 60_000;

export class Attachment {
  readonly #db: Connection;
  readonly #o: AttachmentOptions;
  /** The others by their configuration: the number last seen, since when it stands, and whether that was said. */
  readonly #others = new Map<string, { beat: number; since: number; told: boolean }>();
  #beatAt = -Infinity;
  #listed: { peers: string[]; text: string } | undefined;
  /** The peers of its own row: they may change while it is there. */
  #enteredWith: string | undefined;

  constructor(db: Connection, options: AttachmentOptions) {
    this.#db = db;
    this.#o = options;
  }

  get peers(): string[] {
    return this.#o.peers();
  }

  get seenUpTo(): number {
    return this.#o.seenUpTo();
  }

  get #peers(): string {
    const { peers } = this;
    // Asked with every batch, and the same list for as long as nobody changes it.
    if (this.#listed?.peers !== peers) this.#listed = { peers, text: JSON.stringify(peers.toSorted()) };
    return this.#listed.text;
  }

  now(): number {
    return this.#o.clock.now();
  }

  /** In a transaction, the one that makes room for the peers. Where these have changed, its row takes the place of the old. */
  enter(): void {
    const before = this.#enteredWith;
    if (before !== undefined && before !== this.#peers) this.#remove(before);
    this.#db.run(
      'INSERT INTO main._attachments (node_id, peers) VALUES (?, ?) ON CONFLICT DO NOTHING',
      this.#o.nodeId,
      this.#peers,
    );
  }

  /** The transaction is committed. Not before: tried again, it would leave the row of the old list behind, as somebody else's. */
  entered(): void {
    this.#enteredWith = this.#peers;
  }

  /** `besides` in the same transaction. What cannot be taken out now, whoever else is attached takes out in a while. */
  async leave(besides: () => void): Promise<void> {
    const remove = (): void => {
      this.#remove(this.#peers);
      besides();
    };
    try {
      await yielding(this.#db, () => this.#db.transaction(remove), 'although-stopped');
    } catch (error) {
      // As a part of what the application is about to commit.
      if (error instanceof RowcastError && error.code === 'IN_TRANSACTION') remove();
    }
  }

  #remove(peers: string): void {
    this.#db.run('DELETE FROM main._attachments WHERE node_id = ? AND peers = ?', this.#o.nodeId, peers);
  }

  isEntered(): boolean {
    const own = 'SELECT 1 AS n FROM main._attachments WHERE node_id = ? AND peers = ?';
    return this.#db.get(own, this.#o.nodeId, this.#peers) !== undefined;
  }

  /** Is it known of each peer how far it is? Somebody may have deleted that. */
  knowsAllPeers(): boolean {
    const states = this.#db.all<{ url: string }>('SELECT peer_url AS url FROM main._peer_state');
    const known = new Set(states.map(({ url }) => url));
    return this.peers.every((peer) => known.has(peer));
  }

  /** Were there others at the latest look? Whether they are alive is told by the time that passes. */
  get hasOthers(): boolean {
    return this.#others.size > 0;
  }

  /** Looks at the others; alone, it writes nothing. True where one has gone: what was kept for it alone can go as well. */
  watch(): boolean {
    const others = this.#db
      .all<Other>('SELECT node_id, peers, beat FROM main._attachments')
      .filter((row) => row.node_id !== this.#o.nodeId || row.peers !== this.#peers);
    const present = new Set(others.map(keyOf));
    const left = [...this.#others.keys()].filter((key) => !present.has(key));
    for (const key of left) this.#others.delete(key);
    if (others.length === 0) return left.length > 0;
    const now = this.#o.clock.now();
    if (Math.abs(now - this.#beatAt) >= BEAT_MS) {
      this.#beat();
      this.#beatAt = now;
    }
    const expelled = others.filter((other) => this.#look(other, now));
    return left.length + expelled.length > 0;
  }

  /** True where it is taken for dead, and taken out. */
  #look(other: Other, now: number): boolean {
    const key = keyOf(other);
    const seen = this.#others.get(key) ?? { beat: other.beat, since: now, told: false };
    this.#others.set(key, seen);
    if (other.beat !== seen.beat) {
      // Only now is it known to be alive: its row may have been left behind.
      if (!seen.told && isAtOdds(other, this.#o)) this.#o.warn('two-processes', differs(other, this.#o));
      this.#others.set(key, { beat: other.beat, since: now, told: true });
    } else if (now < seen.since) {
      // The clock was set back: it stands still from now on, and not from a moment that is hours away.
      seen.since = now;
    } else if (now - seen.since >= GONE_MS) {
      const { node_id, peers, beat } = other;
      const gone = 'DELETE FROM main._attachments WHERE node_id = ? AND peers = ? AND beat = ?';
      this.#db.transaction(() => this.#db.run(gone, node_id, peers, beat));
      this.#others.delete(key);
      return true;
    }
    return false;
  }

  #beat(): void {
    const sql = 'UPDATE main._attachments SET beat = beat + 1 WHERE node_id = ? AND peers = ?';
    this.#db.transaction(() => this.#db.run(sql, this.#o.nodeId, this.#peers));
  }
}

/** The peers of everybody who is attached, as a condition on `peer_url`. */
export const OF_ANY_ATTACHMENT =
  'peer_url IN (SELECT p.value FROM main._attachments AS a, ' +
  "json_each(iif(json_valid(a.peers), a.peers, '[]')) AS p)";

function keyOf({ node_id, peers }: Other): string {
  return `${node_id} ${peers}`;
}

/** One may send, and others have no peers. */
function isAtOdds(other: Other, own: AttachmentOptions): boolean {
  return other.node_id !== own.nodeId || (other.peers !== '[]' && own.peers().length > 0);
}

function differs(other: Other, own: AttachmentOptions): string {
  return (
    `another process is attached to this database as "${other.node_id}" with the peers ${other.peers}, this one as ` +
    `"${own.nodeId}" with ${JSON.stringify(own.peers())}: changes are kept until all of these have them. Attach with one ` +
    'configuration everywhere, or from one process only'
  );
}
