/**
 * What a hub says of what is still to come through it: it speaks for its edges, whom the others never hear. All that was
 * written before has reached every edge, as far as the hub and what the edges say of themselves go.
 *
 * Whoever is told so knows of itself already, so what it says is left out of what it is told. That keeps two hubs which
 * are edges of each other from repeating to each other for ever what one of them has said once.
 */
import type { Clock } from '../clock.ts';
import type { Connection } from '../sqlite/connection.ts';

export interface HubLowOptions {
  clock: Clock;
  /** What a database has last said of itself; undefined where it has not, since the hub was started. */
  saidBy(inc: string): number | undefined;
}

export interface EdgeState {
  inc: string | null;
  /** The time of the first row that it lacks; null where it lacks none. */
  oldest: number | null;
  /** What it has last said of itself. */
  said: number | undefined;
}

/**
 * It goes into every header, and a second makes no difference to anybody. An old one promises less, so it is never wrong.
 * With thousands of edges it is looked more rarely: to look costs some microseconds for each.
 */
const LOOK_MS = 1_000;
const LOOK_MS_AN_EDGE = 0.5;

export class SqliteHubLow {
  readonly #db: Connection;
  readonly #o: HubLowOptions;
  #seen: Seen = NOTHING_SEEN;

  constructor(db: Connection, options: HubLowOptions) {
    this.#db = db;
    this.#o = options;
  }

  /** Undefined where an edge has not spoken yet, or never does. */
  toldTo(inc: string | null | undefined): number | undefined {
    const now = this.#o.clock.now();
    if (isOutdated(this.#seen, now)) {
      const edges = this.#db.all<Omit<EdgeState, 'said'> & Record<string, never>>(EDGES);
      const said = (of: string | null): number | undefined => (of === null ? undefined : this.#o.saidBy(of));
      this.#seen = seenOf(
        edges.map(({ inc: of, oldest }) => ({ inc: of, oldest, said: said(of) })),
        now,
      );
    }
    return toldTo(this.#seen, inc);
  }
}

export function isOutdated({ at, count }: Seen, now: number): boolean {
  return Math.abs(now - at) >= (count === undefined ? 0 : Math.max(LOOK_MS, LOOK_MS_AN_EDGE * count));
}

function seenOf(edges: EdgeState[], now: number): Seen {
  const seen: Seen = { at: now, count: edges.length, lacking: now, unheard: new Set(), least: [] };
  for (const { inc, oldest, said } of edges) {
    seen.lacking = Math.min(seen.lacking, oldest ?? now);
    if (said === undefined) seen.unheard.add(inc);
    else if (inc !== null) noteLeast(seen.least, inc, said);
  }
  return seen;
}

/** Keeps the two that have said the least, of two databases. */
function noteLeast(least: Seen['least'], inc: string, said: number): void {
  if (least.length === 2 && said >= (least[1] as { said: number }).said) return;
  if (least.some((one) => one.inc === inc)) return;
  least.push({ inc, said });
  least.sort((a, b) => a.said - b.said).splice(2);
}

export function toldTo(seen: Seen, inc: string | null | undefined): number | undefined {
  const { at, count, lacking, unheard, least } = seen;
  if (count === undefined) return undefined;
  // Whoever is told is left out; of the others the least counts, which is the first or the second of all.
  if (unheard.size > (inc != null && unheard.has(inc) ? 1 : 0)) return undefined;
  const said = least.find((one) => one.inc !== inc)?.said ?? at;
  return Math.max(0, Math.min(at, lacking, said));
}

/** All edges, as far as it matters to each of them. */
export interface Seen {
  /** When that was. */
  at: number;
  /** How many there were; undefined before the first look. */
  count: number | undefined;
  /** The time of the first row that any of them lacks. */
  lacking: number;
  /** The databases that have not spoken; null for those of which it is not known which they are. */
  unheard: Set<string | null>;
  /** The two that have said the least. */
  least: { inc: string; said: number }[];
}

export const NOTHING_SEEN: Seen = {
  at: Number.NEGATIVE_INFINITY,
  count: undefined,
  lacking: 0,
  unheard: new Set(),
  least: [],
};

const EDGES =
  'SELECT e.inc AS inc, (SELECT r.updated_at FROM _hub_rows AS r WHERE r.seq > e.position ' +
  'AND (r.seq <= e.anew_upto OR r.origin IS NOT e.inc) ORDER BY r.seq LIMIT 1) AS oldest FROM _hub_edges AS e';
