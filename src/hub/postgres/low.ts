/**
 * What a group says of what is still to come through it: see ../sqlite-low.ts. An edge speaks to the process that serves it,
 * so what each has said is kept in the store, where all of them read it.
 */
import { isOutdated, NOTHING_SEEN, type Seen, toldTo } from '../sqlite-low.ts';
import { integerArray, textArray } from './driver.ts';
import type { Base } from './parts.ts';

export class GroupLow {
  readonly #base: Base;
  /** What was heard and is not in the store yet. */
  readonly #heard = new Map<string, number>();
  #seen: Seen = NOTHING_SEEN;

  constructor(base: Base) {
    this.#base = base;
  }

  note(inc: string, low: number): void {
    this.#heard.set(inc, low);
  }

  /** Undefined where an edge has not spoken yet, or never does. */
  toldTo(inc: string | null | undefined): number | undefined {
    return toldTo(this.#seen, inc);
  }

  async look(): Promise<void> {
    const { sessions, clock } = this.#base;
    const now = clock.now();
    const heard = [...this.#heard];
    this.#heard.clear();
    if (heard.length > 0) {
      const lows = [textArray(heard.map(([inc]) => inc)), integerArray(heard.map(([, low]) => low))];
      await sessions.transaction((session) => session.run(NOTE, ...lows), 'lazy');
    }
    if (!isOutdated(this.#seen, now)) return;
    const [all] = await sessions.query<{ count: number; lacking: number | null; unheard: string; least: string }>(SEEN);
    if (!all) return;
    const unheard = new Set<string | null>(JSON.parse(all.unheard));
    this.#seen = {
      at: now,
      count: all.count,
      lacking: Math.min(now, all.lacking ?? now),
      unheard,
      least: JSON.parse(all.least),
    };
  }
}

/** In one order, in which all take their locks. */
const NOTE =
  'UPDATE rowcast.nodes AS n SET low = h.low FROM (SELECT k.inc, h.low FROM rowcast.nodes AS k ' +
  'JOIN unnest($1::text[], $2::bigint[]) AS h (inc, low) ON h.inc = k.inc ORDER BY k.inc FOR UPDATE OF k) AS h ' +
  'WHERE n.inc = h.inc';

/**
 * Positions may lag, and then less is promised. Of thousands of edges the server tells what matters: of two that have not spoken
 * there need not be a third, and whoever is told is one of the two that have said the least, or is not.
 */
const SEEN = [
  'WITH e AS MATERIALIZED (SELECT e.inc, n.low, (SELECT r.updated_at FROM rowcast.rows AS r WHERE r.seq > e.position',
  'AND (r.seq <= e.anew_upto OR r.origin IS DISTINCT FROM e.inc) ORDER BY r.seq LIMIT 1) AS oldest',
  'FROM rowcast.edges AS e LEFT JOIN rowcast.nodes AS n ON n.inc = e.inc)',
  'SELECT (SELECT count(*) FROM e) AS count, (SELECT min(e.oldest) FROM e) AS lacking,',
  'coalesce((SELECT json_agg(u.inc) FROM (SELECT DISTINCT e.inc FROM e WHERE e.low IS NULL LIMIT 2) AS u)::text,',
  "'[]') AS unheard, coalesce((SELECT json_agg(json_build_object('inc', l.inc, 'said', l.low) ORDER BY l.low) FROM",
  '(SELECT e.inc, min(e.low) AS low FROM e WHERE e.inc IS NOT NULL AND e.low IS NOT NULL GROUP BY e.inc',
  "ORDER BY min(e.low) LIMIT 2) AS l)::text, '[]') AS least",
].join(' ');
