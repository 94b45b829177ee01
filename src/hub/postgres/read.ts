/** What the edges are sent, read from `rows` up to the horizon. */
import type { BatchLimit } from '../../wire/body.ts';
import { BATCH_END, type Body, batchHead, changeSql, ENVELOPE_BYTES } from '../../wire/body.ts';
import { toldTogether } from '../../wire/origins.ts';
import type { Run, Segment, Seq } from '../store.ts';
import { horizon } from './horizon.ts';
import type { Session, Sessions } from './sessions.ts';

export class PostgresReader {
  readonly #sessions: Sessions;
  readonly #asking = new Map<Seq, Promise<string | null | undefined>>();
  /** The batch before was of the kind that ALIKE reads: the next one will mostly be, too. */
  #areAlike = true;

  constructor(sessions: Sessions) {
    this.#sessions = sessions;
  }

  async read(after: Seq, limit: BatchLimit, except: string | undefined): Promise<Segment | undefined> {
    const found = await this.#sessions.use(async (session) => {
      const below = await horizon(session);
      if (below <= after + 1) return undefined;
      const params = [after, below, limit.changes, limit.bytes - ENVELOPE_BYTES];
      if (except === undefined) return this.#next(session, params);
      return (await session.query<Read>(NEXT_OF_OTHERS, ...params, except))[0];
    });
    const segment = found && segmentOf(found);
    if (!segment) return undefined;
    // No more than one header can tell the origins of.
    const told = toldTogether(segment.runs);
    return told < segment.count ? this.read(after, { ...limit, changes: told }, except) : segment;
  }

  async #next(session: Session, params: number[]): Promise<Read | undefined> {
    const bytes = params[3] as number;
    if (this.#areAlike) {
      const [found] = await session.query<Read & { isWhole: boolean }>(ALIKE, ...params);
      if (!found || (found.isWhole && Buffer.byteLength(found.changes) < bytes)) return found;
    }
    const [found] = await session.query<Read>(NEXT, ...params);
    this.#areAlike = found?.runs === null && 2 * found.changes.length < bytes;
    return found;
  }

  /** Also what is not settled yet: whoever waits for that waits for all that is stored. */
  async latest(): Promise<Seq> {
    const [found] = await this.#sessions.query<{ last: Seq | null }>('SELECT max(seq) AS last FROM rowcast.rows');
    return found?.last ?? 0;
  }

  async countBetween(after: Seq, upTo: Seq): Promise<number> {
    const sql = 'SELECT count(*) AS n FROM rowcast.rows WHERE seq > $1 AND seq <= $2';
    const [found] = await this.#sessions.query<{ n: number }>(sql, after, upTo);
    return found?.n ?? 0;
  }

  async skipOwn(after: Seq, origin: string, slice: number): Promise<Seq> {
    // Mostly it is somebody else's.
    if ((await this.#nextOrigin(after)) !== origin) return after;
    return this.#sessions.use(async (session) => {
      const below = await horizon(session);
      for (let from = after; ; ) {
        const params = [origin, from, below, slice] as const;
        const [own] = await session.query<{ last: Seq | null; others: number }>(OWN_SLICE, ...params);
        if (own?.last == null || own.others > 0) return from;
        from = own.last;
      }
    });
  }

  /** Who has brought the next row, settled or not. Edges that are at one place ask together. */
  #nextOrigin(after: Seq): Promise<string | null | undefined> {
    const asking = this.#asking.get(after);
    if (asking) return asking;
    const sql = 'SELECT r.origin FROM rowcast.rows AS r WHERE r.seq > $1 ORDER BY r.seq LIMIT 1';
    const asked = this.#sessions.query<{ origin: string | null }>(sql, after).then(([next]) => next?.origin);
    this.#asking.set(after, asked);
    const over = (): boolean => this.#asking.delete(after);
    asked.then(over, over);
    return asked;
  }
}

/** The node that has brought a row: its origin is its database, where it has said which. */
const ORIGIN_ID = 'coalesce((SELECT n.id FROM rowcast.nodes AS n WHERE n.inc = r.origin), r.origin)';
/** The node that has made it, as far as is known: empty where it was brought by one that does not know either. */
export const WRITER = `coalesce(r.writer, ${ORIGIN_ID})`;

/** Text as JSON. U+0001 begins what driver.ts spells otherwise; while that is undone, it stands for a backslash. */
function quoteSql(text: string): string {
  const json = `to_json(${text})::text`;
  const spelt = [
    [BACKSLASH, MARK],
    [String.raw`E'\\u0001\\u0001'`, String.raw`E'\\u0000'`],
    [String.raw`E'\\u0001\\u0002'`, String.raw`E'\\u0001'`],
    [MARK, BACKSLASH],
  ].reduce((sql, [from, to]) => `replace(${sql}, ${from}, ${to})`, json);
  return `CASE WHEN strpos(${text}, ${MARK}) = 0 THEN ${json} ELSE ${spelt} END`;
}

const MARK = 'chr(1)';
/** As JSON spells it. With E a server reads these alike, whatever it has been set to. */
const BACKSLASH = String.raw`E'\\\\'`;

/** A stored row as the change it came as. */
const CHANGE = changeSql(
  {
    op: 'r.op',
    table: 'r.table_name',
    row: 'r.row_data',
    oldId: `CASE WHEN r.op = 'DELETE' THEN ${quoteSql('r.row_id')} ELSE 'null' END`,
    more:
      `CASE WHEN r.base IS NULL THEN '' ELSE ',"base":' || r.base || ',"origin":' || ` +
      `coalesce(to_json(nullif(${WRITER}, ''))::text, 'null') END`,
  },
  (text) => `(${quoteSql(text)})`,
);

/** Rows of a batch came from more than one node, or were made by more than one. */
function mixed(t: string): string {
  return `(${differ(`${t}.origin`)} OR ${differ(`${t}.writer`)})`;
}

function differ(x: string): string {
  return `count(${x}) NOT IN (0, count(*)) OR coalesce(min(${x}) <> max(${x}), false)`;
}

/** No more than that has a change, and the comma behind it: the rest of it stands around these, or is escaped. */
const MOST_BYTES = [
  'octet_length(r.row_data) + 6 * octet_length(r.table_name) + 60',
  "CASE WHEN r.op = 'DELETE' THEN 6 * octet_length(r.row_id) ELSE 0 END",
  // An id of a node has no more than 200 bytes of ASCII.
  'CASE WHEN r.base IS NULL THEN 0 ELSE 460 END',
].join(' + ');

/**
 * The changes of the next batch as one text: no row becomes an object here. As many as fit, and at least one. Where lengths
 * alone do not tell how many that are, only as many are spelt out as can fit at all: what is large is not read in vain.
 *
 * The horizon bounds what was found, and not what is looked for: of a range PostgreSQL may think that to collect and sort it
 * is cheaper than to follow the index.
 */
function nextSql(where: string): string {
  return [
    'WITH near AS MATERIALIZED (SELECT * FROM',
    `(SELECT * FROM rowcast.rows AS r WHERE ${where} ORDER BY r.seq LIMIT $3) AS r WHERE r.seq < $2),`,
    `fits AS MATERIALIZED (SELECT CASE WHEN (SELECT sum(${MOST_BYTES}) FROM near AS r) <= $4 THEN $2`,
    `ELSE (${LAST_FITTING}) END AS upto),`,
    `taken AS MATERIALIZED (SELECT r.seq, r.origin, r.writer, ${CHANGE} AS change`,
    'FROM near AS r WHERE r.seq <= (SELECT upto FROM fits)),',
    "whole AS MATERIALIZED (SELECT string_agg(t.change, ',' ORDER BY t.seq) AS changes, max(t.seq) AS last,",
    `count(*) AS n, max(t.origin) AS origin, max(t.writer) AS writer, ${mixed('t')} AS mixed FROM taken AS t)`,
    `SELECT r.changes, r.last, r.n, r.origin, nullif(${WRITER}, '') AS node,`,
    `CASE WHEN r.mixed THEN (${RUNS}) END AS runs FROM whole AS r WHERE r.n > 0`,
  ].join(' ');
}

/**
 * The same for rows that came from one node and of which none is large, in half the time: each is looked at once, and nothing
 * is kept of it but its text. `isWhole` is false where they are others, and then nothing is worth its text.
 */
const ALIKE = [
  `SELECT r.changes, r.last, r.n, r.origin, nullif(${WRITER}, '') AS node, NULL AS runs, r."isWhole" FROM (SELECT`,
  `string_agg(${CHANGE}, ',' ORDER BY r.seq) FILTER (WHERE octet_length(r.row_data) <= $4 / $3) AS changes,`,
  'max(r.seq) AS last, count(*) AS n, max(r.origin) AS origin, max(r.writer) AS writer,',
  `NOT ${mixed('r')} AND max(octet_length(r.row_data)) <= $4 / $3 AS "isWhole" FROM`,
  '(SELECT * FROM (SELECT * FROM rowcast.rows AS r WHERE r.seq > $1 ORDER BY r.seq LIMIT $3) AS r WHERE r.seq < $2) AS r)',
  'AS r WHERE r.n > 0',
].join(' ');

/** Neighbours of one origin are one run: their number among all and that among their own grow alike. */
const RUNS = [
  `SELECT json_agg(json_build_array(r.origin, nullif(${WRITER}, ''), r.bytes, r.n) ORDER BY r.first)::text`,
  'FROM (SELECT i.origin, i.writer, sum(octet_length(i.change) + 1) AS bytes, count(*) AS n, min(i.seq) AS first',
  'FROM (SELECT t.*, row_number() OVER (ORDER BY t.seq) - row_number()',
  'OVER (PARTITION BY t.origin, t.writer ORDER BY t.seq) AS island FROM taken AS t) AS i',
  'GROUP BY i.origin, i.writer, i.island) AS r',
].join(' ');

/** `OFFSET 0`: the text is made once, and not for each time that its length is used. */
const LAST_FITTING = [
  'SELECT max(s.seq) FROM (SELECT m.seq, m.size, sum(m.size) OVER (ORDER BY m.seq) AS total FROM',
  `(SELECT r.seq, octet_length(${CHANGE}) + 1 AS size FROM`,
  '(SELECT n.*, sum(octet_length(n.row_data)) OVER (ORDER BY n.seq) AS bytes FROM near AS n) AS r',
  'WHERE r.bytes - octet_length(r.row_data) < $4 OFFSET 0) AS m) AS s',
  'WHERE s.total <= $4 OR s.total = s.size',
].join(' ');

const NEXT = nextSql('r.seq > $1');
const NEXT_OF_OTHERS = nextSql('r.seq > $1 AND r.origin IS DISTINCT FROM $5');

const OWN_SLICE =
  'SELECT max(seq) AS last, count(*) FILTER (WHERE origin IS DISTINCT FROM $1) AS others FROM ' +
  '(SELECT seq, origin FROM rowcast.rows WHERE seq > $2 ORDER BY seq LIMIT $4) AS slice WHERE seq < $3';

interface Read {
  /** Of each change its text, joined by commas. */
  changes: string;
  last: Seq;
  n: number;
  origin: string | null;
  node: string | null;
  /** Null where all came from one, and were made by one. */
  runs: string | null;
}

function segmentOf({ changes, last: end, n: count, origin, node, runs }: Read): Segment {
  const head = batchHead(end);
  const body = Buffer.from(head + changes + BATCH_END) as Body;
  const start = head.length;
  const made =
    runs === null
      ? [{ origin, node, start, end: body.byteLength - BATCH_END.length, count }]
      : runsOf(start, JSON.parse(runs));
  return { end, count, body, runs: made, origins: made };
}

/** `bytes` are those of the changes and of the comma behind each. */
function runsOf(start: number, found: [origin: string | null, node: string | null, bytes: number, n: number][]): Run[] {
  const runs: Run[] = [];
  let at = start;
  for (const [origin, node, bytes, n] of found) {
    const end = at + bytes - 1;
    const run = runs.at(-1);
    if (run?.origin === origin && run.node === node) Object.assign(run, { end, count: run.count + n });
    else runs.push({ origin, node, start: at, end, count: n });
    at = end + 1;
  }
  return runs;
}
