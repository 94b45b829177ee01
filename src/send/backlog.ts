/**
 * The bound on what is kept for a peer that is away. Beyond it the peer is stale: nothing is kept for it any more, and it
 * is given the whole state when it is back. From about as many changes as there are rows on, that is cheaper anyway.
 */
import type { Registry } from '../capture/registry.ts';
import type { Clock } from '../clock.ts';
import type { BacklogLimits } from '../config.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { RowCounter } from '../sqlite/row-counter.ts';
import type { BacklogAge } from './backlog-age.ts';
import { markStale, stateOf } from './peers.ts';

export interface BoundOptions {
  db: Connection;
  registry: Registry;
  counter: RowCounter;
  age: BacklogAge;
  clock: Clock;
  /** As they are at the moment. */
  limits: () => BacklogLimits;
}

/** What a peer that has become stale lacked. */
export interface Stale {
  peer: string;
  changes: number;
  bytes: number;
}

const CHECK_MS = 60_000;
/** With fewer changes than these, however few rows there are, the backlog is the cheaper way. */
const AUTO_LEAST = 100_000;
const SAMPLES = 100;

export class BacklogBound {
  readonly #o: BoundOptions;
  #checkedAt = -Infinity;

  constructor(options: BoundOptions) {
    this.#o = options;
  }

  /** Called often with the peers that are away; looks once a minute, and returns those that have become stale. */
  check(away: string[]): Stale[] {
    const { db, clock } = this.#o;
    const now = clock.now();
    if (away.length === 0 || Math.abs(now - this.#checkedAt) < CHECK_MS) return [];
    const found = away.flatMap((peer) => this.#exceeding(peer) ?? []);
    if (found.length > 0) {
      const since = new Map(found.map(({ peer }) => [peer, this.#since(peer) ?? now]));
      db.transaction(() => {
        for (const { peer } of found) markStale(db, peer, since.get(peer) as number);
      });
    }
    this.#checkedAt = now;
    return found;
  }

  #exceeding(peer: string): Stale | undefined {
    const { db, limits, clock } = this.#o;
    const { changes: most, bytes: mostBytes, ageMs } = limits();
    const { stale, lastAcked, tailFrom } = stateOf(db, peer);
    const position = Math.max(lastAcked, tailFrom ?? 0);
    if (stale || position < adoptedUpTo(db)) return undefined;
    const { low: oldest, high } = endsOf(db);
    const low = Math.max(position + 1, oldest);
    const changes = high - low + 1;
    if (changes <= 0) return undefined;
    const bytes = Math.round(changes * meanBytes(db, { low, high }));
    const since = this.#since(peer);
    const exceeded =
      this.#isTooMany(changes, most) ||
      (mostBytes !== 'unlimited' && bytes > mostBytes) ||
      (ageMs !== 'unlimited' && since !== undefined && clock.now() - since > ageMs);
    return exceeded ? { peer, changes, bytes } : undefined;
  }

  #since(peer: string): number | undefined {
    const { lastAcked, tailFrom } = stateOf(this.#o.db, peer);
    return this.#o.age.sinceAfter(Math.max(lastAcked, tailFrom ?? 0));
  }

  #isTooMany(changes: number, most: BacklogLimits['changes']): boolean {
    if (most !== 'auto') return most !== 'unlimited' && changes > most;
    if (changes <= AUTO_LEAST) return false;
    const { db, registry, counter } = this.#o;
    counter.beginLook();
    const counted = registry.list().map((table) => counter.count(table));
    const rows = counted.reduce((sum, one) => sum + one.rows, 0);
    // Of what is still being counted there may be enough: that is known when it is looked at again.
    if (rows >= changes || counted.some(({ atLeast }) => atLeast)) return false;
    // No more are counted than decide it.
    const enough = `SELECT 1 FROM main._tombstones LIMIT ${changes - rows}`;
    return rows + Number(db.get(`SELECT count(*) AS n FROM (${enough})`)?.n) < changes;
  }
}

/** Deletions that another implementation has recorded left no tombstones: no seed has them, so they are kept. */
function adoptedUpTo(db: Connection): number {
  return Number(db.get("SELECT coalesce(max(value), 0) AS n FROM main._meta WHERE key = 'adopted_upto'")?.n);
}

interface Ends {
  low: number;
  high: number;
}

function endsOf(db: Connection): Ends {
  const one = (which: 'min' | 'max'): string => `(SELECT coalesce(${which}(change_id), 0) FROM main._changes)`;
  return db.get<Ends>(`SELECT ${one('min')} AS low, ${one('max')} AS high`) as Ends;
}

/** Of all of them where they are few, else of changes at equal distances. */
function meanBytes(db: Connection, { low, high }: Ends): number {
  const all = 'SELECT avg(octet_length(row_data)) AS n FROM main._changes WHERE change_id >= ?';
  const one =
    'SELECT octet_length(row_data) FROM main._changes ' +
    `WHERE change_id >= CAST(? AS INTEGER) + i * CAST(? AS INTEGER) / ${SAMPLES} ORDER BY change_id LIMIT 1`;
  const sampled =
    `WITH RECURSIVE sample (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM sample WHERE i < ${SAMPLES - 1}) ` +
    `SELECT avg((${one})) AS n FROM sample`;
  const mean = high - low < SAMPLES ? db.get(all, low) : db.get(sampled, low, high - low);
  return Number(mean?.n ?? 0);
}
