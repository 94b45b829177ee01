/** What the edges are sent, read from `_hub_rows`: SQLite writes the body of a batch, and no row becomes an object. */
import { isUtf8 } from 'node:buffer';
import type { Connection } from '../sqlite/connection.ts';
import {
  BATCH_END,
  type BatchLimit,
  type Body,
  baseSql,
  batchHead,
  batchSql,
  changeSql,
  fitting,
  originSql,
  RELAYED_BYTES,
} from '../wire/body.ts';
import { exactText } from '../wire/exact-text.ts';
import { toldTogether } from '../wire/origins.ts';
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
      bytes: RELAYED_BYTES,
    };
    const params = [...line.params, fitting(this.#db, line, limit)];
    const found = this.#db.get<Read>(
      `SELECT body, last, n, origin, ${NAME} AS node, mixed FROM (SELECT ${batchSql('max(seq)')} AS body, ` +
        `max(seq) AS last, count(*) AS n, max(origin) AS origin, max(writer) AS writer, ${MIXED} AS mixed ` +
        `FROM (SELECT seq, origin, writer, ${CHANGE} AS change ${line.from}) LIMIT -1)`,
      ...params,
    );
    if (!found || found.last === null) return undefined;
    const { last: end, n: count, body, origin, node } = found;
    const start = batchHead(end).length;
    const segment = { end, count, body: exactText(body) };
    if (found.mixed === 0) {
      const runs = [{ origin, node, start, end: body.byteLength - BATCH_END.length, count }];
      return { ...segment, runs, origins: runs };
    }
    const parts = this.#db.get<{ changes: string }>(
      `SELECT json_group_array(json_array(origin, ${NAME}, size)) AS changes ` +
        `FROM (SELECT origin, writer, octet_length(${CHANGE}) AS size ${line.from})`,
      ...params,
    );
    const runs = runsOf(start, JSON.parse(parts?.changes ?? '[]'));
    const told = toldTogether(runs);
    if (told < count) return this.read(after, { ...limit, changes: told }, except);
    // Where bytes had to be mended, sizes no longer fit; such a batch goes to every edge whole.
    return { ...segment, runs: isUtf8(body) ? runs : [], origins: runs };
  }

  latest(): Seq {
    return Number(this.#db.get('SELECT coalesce(max(seq), 0) AS n FROM _hub_rows')?.n);
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

/** The id of the node that has brought it: the origin of a row is its database, where it has said which. */
const ORIGIN_ID = 'coalesce((SELECT n.id FROM _nodes AS n WHERE n.inc = origin), origin)';

/** The node that has made it, as far as is known: empty where it was brought by one that does not know either. */
export const WRITER = `coalesce(writer, ${ORIGIN_ID})`;
const NAME = `nullif(${WRITER}, '')`;

/** A stored row as the change it came as; of a deletion the id and the version, whatever an earlier hub has kept of it. */
export const CHANGE = changeSql({
  op: 'op',
  table: 'table_name',
  row: `iif(op = 'DELETE', ${deletedContent()}, row_data)`,
  oldId: "iif(op = 'DELETE', json_quote(row_id), 'null')",
  more: `iif(base IS NULL, '', ${baseSql('base')} || ${originSql(NAME)})`,
});

/** The rows of a batch came from more than one node, or were made by more than one. */
const MIXED = `(${differ('origin')} OR ${differ('writer')}) IS 1`;

function differ(x: string): string {
  return `min(${x}) <> max(${x}) OR count(${x}) NOT IN (0, count(*))`;
}

interface Read {
  body: Body;
  last: Seq | null;
  n: number;
  origin: string | null;
  node: string | null;
  mixed: number;
}

function runsOf(start: number, changes: [origin: string | null, node: string | null, size: number][]): Run[] {
  const runs: Run[] = [];
  let at = start;
  for (const [origin, node, size] of changes) {
    const end = at + size;
    const run = runs.at(-1);
    if (run?.origin === origin && run.node === node) Object.assign(run, { end, count: run.count + 1 });
    else runs.push({ origin, node, start: at, end, count: 1 });
    at = end + 1;
  }
  return runs;
}
