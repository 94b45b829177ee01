/**
 * What a group says of what is still to come through it: see ../sqlite-low.ts. An edge speaks to the process that serves it,
 * so what each has said is kept in the store, where all of them read it.
 */
import { isOutdated, NOTHING_SEEN, type Seen, seenOf, toldTo } from '../sqlite-low.ts';
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
    const edges = await sessions.query<{ inc: string | null; oldest: number | null; low: number | null }>(EDGES);
    this.#seen = seenOf(
      edges.map(({ inc, oldest, low }) => ({ inc, oldest, said: low ?? undefined })),
      now,
    );
  }
}

/** In one order, in which all take their locks. */
const NOTE =
  'UPDATE rowcast.nodes AS n SET low = h.low FROM (SELECT k.inc, h.low FROM rowcast.nodes AS k ' +
  'JOIN unnest($1::text[], $2::bigint[]) AS h (inc, low) ON h.inc = k.inc ORDER BY k.inc FOR UPDATE OF k) AS h ' +
  'WHERE n.inc = h.inc';

/** Positions may lag, and then less is promised. */
const EDGES =
  'SELECT e.inc, n.low, (SELECT r.updated_at FROM rowcast.rows AS r WHERE r.seq > e.position ' +
  'AND (r.seq <= e.anew_upto OR r.origin IS DISTINCT FROM e.inc) ORDER BY r.seq LIMIT 1) AS oldest ' +
  'FROM rowcast.edges AS e LEFT JOIN rowcast.nodes AS n ON n.inc = e.inc';
