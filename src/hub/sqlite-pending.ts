/** How many rows each edge has not acknowledged. Edges are mostly at a few places: what comes after one is counted once. */
import type { Connection } from '../sqlite/connection.ts';
import type { Counts, Seq } from './store.ts';

type Pending = Counts['edges'][number];

/** Rows that an edge has not acknowledged are counted up to here. */
const COUNTED_EXACTLY = 10_000;

const NOTHING: Pending = { pending: 0, oldest: undefined };

/** What comes after a place, whoever brought it. */
interface After {
  count: number;
  byOrigin: { origin: string | null; count: number; first: Seq; oldest: number }[];
}

export function pendingOf(db: Connection, edges: { position: Seq; except: string | undefined }[]): Pending[] {
  const latest = Number(db.get('SELECT max(seq) AS n FROM _hub_rows')?.n ?? 0);
  const places = new Map<Seq, After>();
  return edges.map(({ position, except }) => {
    if (position >= latest) return NOTHING;
    const after = places.get(position) ?? rowsAfter(db, position);
    places.set(position, after);
    const others = after.byOrigin.filter(({ origin }) => except === undefined || origin !== except);
    const isMore = after.count >= COUNTED_EXACTLY;
    // Among more than were looked at, its own may be any number: these are not counted for it alone.
    if (isMore && others.length < after.byOrigin.length) return countedAlone(db, position, except as string, latest);
    const oldest = others.toSorted((a, b) => a.first - b.first)[0]?.oldest;
    const counted = others.reduce((sum, { count }) => sum + count, 0);
    return { pending: isMore ? latest - position : counted, oldest };
  });
}

function rowsAfter(db: Connection, position: Seq): After {
  const rows = `SELECT seq, origin, updated_at FROM _hub_rows WHERE seq > ? ORDER BY seq LIMIT ${COUNTED_EXACTLY}`;
  // Of a bare column beside min() SQLite takes the row of the minimum.
  const byOrigin = db.all<After['byOrigin'][number]>(
    `SELECT origin, count(*) AS count, min(seq) AS first, updated_at AS oldest FROM (${rows}) GROUP BY origin`,
    position,
  );
  return { count: byOrigin.reduce((sum, { count }) => sum + count, 0), byOrigin };
}

/** Exact up to COUNTED_EXACTLY; beyond that the width of what is left, which is never less. */
function countedAlone(db: Connection, position: Seq, except: string, latest: Seq): Pending {
  const above = 'FROM _hub_rows WHERE seq > ? AND origin IS NOT ?';
  const found = db.get<{ n: number; t: number | null }>(
    `SELECT count(*) AS n, (SELECT updated_at ${above} ORDER BY seq LIMIT 1) AS t ` +
      `FROM (SELECT 1 ${above} LIMIT ${COUNTED_EXACTLY})`,
    position,
    except,
    position,
    except,
  );
  const counted = found?.n ?? 0;
  return { pending: counted < COUNTED_EXACTLY ? counted : latest - position, oldest: found?.t ?? undefined };
}
