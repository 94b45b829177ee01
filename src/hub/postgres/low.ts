/**
 * What a group says of what is still to come through it: see ../sqlite-low.ts. An edge speaks to the process that serves it,
 * so what each has said is kept in the store, where all of them read it.
 */
import { RowcastError } from '../../errors.ts';
import { type Asked, OldestBehind, type Read } from '../oldest-behind.ts';
import { isOutdated, NOTHING_SEEN, type Seen, toldTo } from '../sqlite-low.ts';
import type { Seq } from '../store.ts';
import { integerArray, textArray } from './driver.ts';
import { horizon } from './horizon.ts';
import type { Base } from './parts.ts';

export class GroupLow {
  readonly #base: Base;
  /** What was heard and is not in the store yet. */
  readonly #heard = new Map<string, number>();
  readonly #behind = new OldestBehind();
  /** The state of the server that it has read: see epoch.ts. */
  #era: number;
  #seen: Seen = NOTHING_SEEN;
  #looking: Promise<void> | undefined;

  constructor(base: Base) {
    this.#base = base;
    this.#era = base.sessions.era;
  }

  note(inc: string, low: number): void {
    this.#heard.set(inc, low);
  }

  /** Undefined where an edge has not spoken yet, or never does. */
  toldTo(inc: string | null | undefined): number | undefined {
    return toldTo(this.#seen, inc);
  }

  look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #look(): Promise<void> {
    const { sessions, clock } = this.#base;
    const now = clock.now();
    const heard = [...this.#heard];
    this.#heard.clear();
    if (heard.length > 0) {
      const lows = [textArray(heard.map(([inc]) => inc)), integerArray(heard.map(([, low]) => low))];
      await sessions.transaction((session) => session.run(NOTE, ...lows), 'lazy');
    }
    if (this.#era !== sessions.era) this.#behind.forget();
    const { era } = sessions;
    this.#era = era;
    if (!isOutdated(this.#seen, now)) return;
    const [all] = await sessions.query<SeenThere>(SEEN);
    if (!all) return;
    const unheard = new Set<string | null>(JSON.parse(all.unheard));
    // After what the edges have said: what one of them has delivered by then is among the rows.
    const lacking = all.position === null || all.position >= all.last ? now : await this.#lacking(all.position);
    // What was read was of two states of the server.
    if (era !== sessions.era) return;
    this.#seen = { at: now, count: all.count, lacking, unheard, least: JSON.parse(all.least) };
  }

  async #lacking(position: Seq): Promise<number | undefined> {
    const look = this.#behind.look(position);
    for (let step = look.next(); ; step = look.next(await this.#read(step.value))) if (step.done) return step.value;
  }

  /** What is above the horizon is read each time: more may come below it. */
  #read({ after, limit }: Asked): Promise<Read> {
    return this.#base.sessions.use(async (session) => {
      const below = await horizon(session);
      const [found] = await session.query<Read & { above: number | null }>(NEXT_ROWS, after, below, limit);
      if (!found) throw new RowcastError('DATABASE_FAILED', 'PostgreSQL does not tell the times of rows');
      const { rows, oldest, above } = found;
      if (rows === limit) return found;
      return { rows, end: below - 1, oldest: above === null ? oldest : Math.min(oldest ?? above, above) };
    });
  }
}

interface SeenThere {
  count: number;
  /** Of the edge that is furthest behind; null where there is none. */
  position: Seq | null;
  /** That of the last row. */
  last: Seq;
  unheard: string;
  least: string;
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
  'WITH e AS MATERIALIZED (SELECT e.inc, n.low, e.position FROM rowcast.edges AS e',
  'LEFT JOIN rowcast.nodes AS n ON n.inc = e.inc)',
  'SELECT (SELECT count(*) FROM e) AS count, (SELECT min(e.position) FROM e) AS position,',
  '(SELECT coalesce(max(r.seq), 0) FROM rowcast.rows AS r) AS last,',
  'coalesce((SELECT json_agg(u.inc) FROM (SELECT DISTINCT e.inc FROM e WHERE e.low IS NULL LIMIT 2) AS u)::text,',
  "'[]') AS unheard, coalesce((SELECT json_agg(json_build_object('inc', l.inc, 'said', l.low) ORDER BY l.low) FROM",
  '(SELECT e.inc, min(e.low) AS low FROM e WHERE e.inc IS NOT NULL AND e.low IS NOT NULL GROUP BY e.inc',
  "ORDER BY min(e.low) LIMIT 2) AS l)::text, '[]') AS least",
].join(' ');

/** `LIMIT` within: the horizon bounds what was found, and not what is looked for (read.ts). */
const NEXT_ROWS = [
  'SELECT s.*, CASE WHEN s.rows < $3 THEN (SELECT min(r.updated_at) FROM rowcast.rows AS r WHERE r.seq > $1 AND r.seq >= $2)',
  'END AS above FROM (SELECT count(*) AS rows, max(r.seq) AS "end", min(r.updated_at) AS oldest FROM',
  '(SELECT r.seq, r.updated_at FROM rowcast.rows AS r WHERE r.seq > $1 ORDER BY r.seq LIMIT $3) AS r',
  'WHERE r.seq < $2) AS s',
].join(' ');
