/**
 * What a hub says of what is still to come through it: it speaks for its edges, whom the others never hear. All that was
 * written before has reached every edge, as far as the hub and what the edges say of themselves go.
 *
 * Whoever is told so knows of itself already, so what it says is left out of what it is told. That keeps two hubs which
 * are edges of each other from repeating to each other for ever what one of them has said once.
 */
import type { Clock } from '../clock.ts';
import type { Connection } from '../sqlite/connection.ts';
import { type Asked, OldestBehind, type Read } from './oldest-behind.ts';
import type { Seq } from './store.ts';

export interface HubLowOptions {
  clock: Clock;
  /** What a database has last said of itself; undefined where it has not, since the hub was started. */
  saidBy(inc: string): number | undefined;
}

export interface EdgeState {
  inc: string | null;
  position: Seq;
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
  readonly #behind = new OldestBehind();
  #seen: Seen = NOTHING_SEEN;

  constructor(db: Connection, options: HubLowOptions) {
    this.#db = db;
    this.#o = options;
  }

  /** Another state of the file is there. */
  forget(): void {
    this.#behind.forget();
    this.#seen = NOTHING_SEEN;
  }

  /** Undefined where an edge has not spoken yet, or never does, and while the rows that are lacking are not known. */
  toldTo(inc: string | null | undefined): number | undefined {
    const now = this.#o.clock.now();
    if (isOutdated(this.#seen, now)) {
      const edges = this.#db.all<Omit<EdgeState, 'said'> & Record<string, never>>(EDGES);
      const said = (of: string | null): number | undefined => (of === null ? undefined : this.#o.saidBy(of));
      const states = edges.map(({ inc: of, position }) => ({ inc: of, position, said: said(of) }));
      this.#seen = seenOf(states, this.#lacking(states, now), now);
    }
    return toldTo(this.#seen, inc);
  }

  /**
   * What the edge that is furthest behind lacks, others may lack as well. Its own rows are among them for as long as its
   * place is not beyond them, which is not long where it can be reached.
   */
  #lacking(edges: EdgeState[], now: number): number | undefined {
    if (edges.length === 0) return now;
    const look = this.#behind.look(edges.reduce((least, { position }) => Math.min(least, position), Infinity));
    for (let step = look.next(); ; step = look.next(this.#read(step.value))) if (step.done) return step.value;
  }

  #read({ after, limit }: Asked): Read {
    return this.#db.get<Read & Record<string, never>>(NEXT_ROWS, after, limit) as Read;
  }
}

export function isOutdated({ at, count }: Seen, now: number): boolean {
  return Math.abs(now - at) >= (count === undefined ? 0 : Math.max(LOOK_MS, LOOK_MS_AN_EDGE * count));
}

function seenOf(edges: EdgeState[], lacking: number | undefined, now: number): Seen {
  const seen: Seen = { at: now, count: edges.length, lacking, unheard: new Set(), least: [] };
  for (const { inc, said } of edges) {
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
  if (count === undefined || lacking === undefined) return undefined;
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
  /** The time of the oldest row that any of them lacks; undefined while that is not known. */
  lacking: number | undefined;
  /** The databases that have not spoken; null for those of which it is not known which they are. */
  unheard: Set<string | null>;
  /** The two that have said the least. */
  least: { inc: string; said: number }[];
}

export const NOTHING_SEEN: Seen = {
  at: Number.NEGATIVE_INFINITY,
  count: undefined,
  lacking: undefined,
  unheard: new Set(),
  least: [],
};

const EDGES = 'SELECT inc, position FROM _hub_edges';

const NEXT_ROWS =
  'SELECT count(*) AS rows, max(seq) AS end, min(updated_at) AS oldest FROM ' +
  '(SELECT seq, updated_at FROM _hub_rows WHERE seq > ? ORDER BY seq LIMIT CAST(? AS INTEGER))';
