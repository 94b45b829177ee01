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

/** An edge, and the time of the first row that it lacks; null where it lacks none. */
interface EdgeState {
  inc: string | null;
  oldest: number | null;
}

/** It goes into every header, and a second makes no difference to anybody. An old one promises less, so it is never wrong. */
const LOOK_MS = 1_000;

export class SqliteHubLow {
  readonly #db: Connection;
  readonly #o: HubLowOptions;
  #edges: EdgeState[] = [];
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(db: Connection, options: HubLowOptions) {
    this.#db = db;
    this.#o = options;
  }

  /** Undefined where an edge has not spoken yet, or never does. */
  toldTo(inc: string | null | undefined): number | undefined {
    const { clock, saidBy } = this.#o;
    const now = clock.now();
    if (Math.abs(now - this.#lookedAt) >= LOOK_MS) {
      this.#edges = this.#db.all<EdgeState>(EDGES);
      this.#lookedAt = now;
    }
    const others = this.#edges.filter((edge) => edge.inc === null || edge.inc !== inc);
    const said = others.map((edge) => (edge.inc === null ? undefined : saidBy(edge.inc)));
    if (said.includes(undefined)) return undefined;
    const lacking = this.#edges.map(({ oldest }) => oldest ?? this.#lookedAt);
    return Math.max(0, Math.min(this.#lookedAt, ...lacking, ...(said as number[])));
  }
}

const EDGES =
  'SELECT e.inc AS inc, (SELECT r.updated_at FROM _hub_rows AS r WHERE r.seq > e.position ' +
  'AND (r.seq <= e.anew_upto OR r.origin IS NOT e.inc) ORDER BY r.seq LIMIT 1) AS oldest FROM _hub_edges AS e';
