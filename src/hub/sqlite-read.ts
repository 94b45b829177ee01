/** What the edges are sent, read from `_hub_rows`: SQLite writes the body of a batch, and no row becomes an object. */
import { isUtf8 } from 'node:buffer';
import type { Connection } from '../sqlite/connection.ts';
import {
  BATCH_END,
  type BatchLimit,
  type Body,
  batchHead,
  batchSql,
  changeSql,
  fitting,
  STORED_BYTES,
} from '../wire/body.ts';
import { exactText } from '../wire/exact-text.ts';
import { deletedContent } from './sqlite-tables.ts';
import type { Run, Segment, Seq } from './store.ts';

export class SegmentReader {
  readonly #db: Connection;

  constructor(db: Connection) {
    this.#db = db;
  }

  read(after: Seq, limit: BatchLimit, except: string | undefined): Segment | undefined {
    const line = {
      from:
        `FROM _hub_rows WHERE seq > ? ${except === undefined ? '' : 'AND origin IS NOT ? '}` +
        'ORDER BY seq LIMIT CAST(? AS INTEGER)',
      params: except === undefined ? [after] : [after, except],
      place: 'seq',
      change: CHANGE,
      bytes: STORED_BYTES,
    };
    const params = [...line.params, fitting(this.#db, line, limit)];
    const found = this.#db.get<{ body: Body; last: Seq | null; n: number; origin: string | null; mixed: number }>(
      `SELECT ${batchSql('max(seq)')} AS body, max(seq) AS last, count(*) AS n, ` +
        `max(origin) AS origin, ${MIXED} AS mixed FROM (SELECT seq, origin, ${CHANGE} AS change ${line.from})`,
      ...params,
    );
    if (!found || found.last === null) return undefined;
    const { last: end, n: count, body, origin } = found;
    const start = batchHead(end).length;
    const segment = { end, count, body: exactText(body) };
    if (found.mixed === 0) {
      return { ...segment, runs: [{ origin, start, end: body.byteLength - BATCH_END.length, count }] };
    }
    // Where bytes had to be mended, sizes no longer fit; such a batch goes to every edge whole.
    if (!isUtf8(body)) return { ...segment, runs: [] };
    const parts = this.#db.get<{ origins: string; sizes: string }>(
      'SELECT json_group_array(origin) AS origins, json_group_array(size) AS sizes ' +
        `FROM (SELECT origin, octet_length(${CHANGE}) AS size ${line.from})`,
      ...params,
    );
    return { ...segment, runs: runsOf(start, JSON.parse(parts?.origins ?? '[]'), JSON.parse(parts?.sizes ?? '[]')) };
  }

  countBetween(after: Seq, upTo: Seq): number {
    const sql = 'SELECT count(*) AS n FROM _hub_rows WHERE seq > ? AND seq <= ?';
    return Number(this.#db.get(sql, after, upTo)?.n);
  }

  skipOwn(after: Seq, origin: string, slice: number): Seq {
    for (let from = after; ; ) {
      // One row first: mostly it is somebody else's.
      if (!this.#ownSlice(from, origin, 1)) return from;
      const last = this.#ownSlice(from, origin, slice);
      if (last === undefined) return from;
      from = last;
    }
  }

  /** The last seq of the next `count` rows, where there are any and all of them came from `origin`. */
  #ownSlice(from: Seq, origin: string, count: number): Seq | undefined {
    const slice = this.#db.get<{ last: Seq | null; others: number | null }>(
      'SELECT max(seq) AS last, sum(origin IS NOT ?) AS others FROM ' +
        '(SELECT seq, origin FROM _hub_rows WHERE seq > ? ORDER BY seq LIMIT CAST(? AS INTEGER))',
      origin,
      from,
      count,
    );
    return slice?.others === 0 ? (slice.last as Seq) : undefined;
  }
}

/** A stored row as the change it came as; of a deletion the id and the version, whatever an earlier hub has kept of it. */
export const CHANGE = changeSql({
  op: 'op',
  table: 'table_name',
  row: `iif(op = 'DELETE', ${deletedContent()}, row_data)`,
  oldId: "iif(op = 'DELETE', json_quote(row_id), 'null')",
});

/** The rows of a batch came from more than one node. */
const MIXED = '(min(origin) <> max(origin) OR count(origin) NOT IN (0, count(*))) IS 1';

function runsOf(start: number, origins: (string | null)[], sizes: number[]): Run[] {
  const runs: Run[] = [];
  let at = start;
  origins.forEach((origin, i) => {
    const end = at + (sizes[i] as number);
    const run = runs.at(-1);
    if (run?.origin === origin) Object.assign(run, { end, count: run.count + 1 });
    else runs.push({ origin, start: at, end, count: 1 });
    at = end + 1;
  });
  return runs;
}
