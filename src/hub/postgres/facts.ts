/** What is told of a group's store: of one row, of how far the edges are, and for dashboards. */
import { passedSince } from '../../clock.ts';
import { RowcastError } from '../../errors.ts';
import type { Row } from '../../journal/rows.ts';
import type { Why } from '../../journal/why.ts';
import { type Facts, factsOf } from '../../observe/facts.ts';
import { atLeastOf, type Counted } from '../../sqlite/row-counter.ts';
import { fold } from '../../sqlite/sql.ts';
import { exactJson } from '../../wire/exact-text.ts';
import { canonicalId } from '../../wire/values.ts';
import { LETTERS_TOLD } from '../sqlite-why.ts';
import type { Counts, Seq } from '../store.ts';
import { fromText, toText } from './driver.ts';
import type { PostgresLetters } from './letters.ts';
import type { Base } from './parts.ts';
import { WRITER } from './read.ts';

type Pending = Counts['edges'][number];

/** Rows that an edge has not acknowledged, and rows at all, are counted up to here. */
const COUNTED_EXACTLY = 10_000;
/** Beyond that all are counted, not more often than this, nor for more than a hundredth of the time. */
const COUNTED_AGAIN_MS = 60_000;
const COUNT_FACTOR = 100;
/** The machine may have slept in the middle of a count. */
const PAUSE_MS_MAX = 3_600_000;

const NOTHING: Pending = { pending: 0, oldest: undefined };

/** What comes after a place, whoever brought it. */
interface After {
  count: number;
  byOrigin: { origin: string | null; count: number; first: Seq; oldest: number }[];
}

export class PostgresFacts {
  readonly #base: Base;
  readonly #letters: PostgresLetters;
  /** More live rows than are counted each time. */
  #rows: { count: number; at: number; pauseMs: number } | undefined;
  #counting: Promise<void> | undefined;

  constructor(base: Base, letters: PostgresLetters) {
    this.#base = base;
    this.#letters = letters;
  }

  async why(table: string, id: string): Promise<Why> {
    if (typeof table !== 'string' || typeof id !== 'string') {
      throw new RowcastError('INVALID_OPTION', 'why needs the name of a table and an id, as text');
    }
    const spelt = `SELECT ${canonicalId('v')} AS id FROM (SELECT ? AS v LIMIT -1)`;
    const rowId = String(this.#base.scratch.get(spelt, id)?.id);
    const key = [toText(fold(table)), toText(rowId)];
    const [found] = await this.#base.sessions.query<FoundRow>(ROW, ...key);
    const letters = await this.#letters.ofRow(table, id, LETTERS_TOLD);
    const nothing = { floor: null, hiddenBy: null, conflicts: [], letters };
    if (!found) {
      const unknown = { state: 'absent' as const, version: null, row: null, tombstone: null, lastFrom: null };
      return { table, id, ...unknown, ...nothing, pending: [] };
    }
    const { seq, op, version, origin, writer, node } = found;
    const isDeleted = op === 'DELETE';
    const by = node ?? origin;
    const via = by === writer || by === null ? {} : { via: by };
    const missing = await this.#base.sessions.query<{ url: string }>(MISSING, seq, origin);
    const pending = { changeId: seq, op, version, peersMissing: missing.map(({ url }) => url) };
    return {
      table: fromText(found.name),
      id,
      state: isDeleted ? 'deleted' : 'live',
      version,
      row: isDeleted ? null : (JSON.parse(exactJson(Buffer.from(found.row))) as Row),
      tombstone: isDeleted ? version : null,
      ...nothing,
      lastFrom: writer === null ? null : { node: writer === '' ? null : writer, ...via, at: null },
      pending: missing.length === 0 ? [] : [pending],
    };
  }

  async counts(edges: { position: Seq; except: string | undefined }[]): Promise<Counts> {
    const letters = 'SELECT count(*) AS n FROM rowcast.letters';
    const [[kept], live] = [await this.#base.sessions.query<{ n: number }>(letters), await this.#liveRows()];
    const pending = await this.#pending(edges, live.rows);
    const problems = this.#letters.problem === undefined ? [] : [this.#letters.problem];
    // What an edge lacks is measured by how many rows there are, where that is more than can be counted.
    const pending_changes = { rows: 0, atLeast: live.atLeast && pending.some((one) => one.pending > COUNTED_EXACTLY) };
    const unknown = atLeastOf({ item_count: live, pending_changes });
    return { rows: live.rows, letters: kept?.n ?? 0, edges: pending, problems, ...unknown };
  }

  async facts(): Promise<Facts> {
    const { sessions, scratch } = this.#base;
    const [own] = await sessions.query<{ inc: string }>('SELECT inc FROM rowcast.nodes WHERE self');
    const letters = await sessions.query<Facts['letters'][number]>(LETTERS_BY_CODE);
    const [size] = await sessions.query<{ bytes: number }>(SIZE);
    return {
      ...factsOf(scratch),
      inc: own?.inc ?? '',
      letters,
      file: { bytes: size?.bytes ?? 0, wal_bytes: 0 },
    };
  }

  /** Exact up to COUNTED_EXACTLY; beyond that as of the last count, and until there is one, at least that many. */
  async #liveRows(): Promise<Counted> {
    const live = "SELECT 1 FROM rowcast.rows WHERE op <> 'DELETE'";
    const few = `SELECT count(*) AS n FROM (${live} LIMIT ${COUNTED_EXACTLY + 1}) AS r`;
    if (!this.#rows) {
      const [found] = await this.#base.sessions.query<{ n: number }>(few);
      const rows = found?.n ?? 0;
      if (rows <= COUNTED_EXACTLY) return { rows, atLeast: false };
    }
    if (!this.#rows || passedSince(this.#base.clock, this.#rows.at) >= this.#rows.pauseMs) {
      this.#counting ??= this.#countAll(live)
        .catch(() => {
          // Health says by itself that the store cannot be read.
        })
        .finally(() => {
          this.#counting = undefined;
        });
    }
    return { rows: this.#rows?.count ?? COUNTED_EXACTLY + 1, atLeast: this.#rows === undefined };
  }

  async #countAll(live: string): Promise<void> {
    const { clock } = this.#base;
    const began = clock.now();
    const [found] = await this.#base.sessions.query<{ n: number }>(`SELECT count(*) AS n FROM (${live}) AS r`);
    const pauseMs = Math.max(COUNTED_AGAIN_MS, COUNT_FACTOR * passedSince(clock, began));
    const count = found?.n ?? 0;
    this.#rows =
      count <= COUNTED_EXACTLY ? undefined : { count, at: clock.now(), pauseMs: Math.min(pauseMs, PAUSE_MS_MAX) };
  }

  /** Edges are mostly at a few places: what comes after one is counted once. */
  async #pending(edges: { position: Seq; except: string | undefined }[], rows: number): Promise<Pending[]> {
    const [last] = await this.#base.sessions.query<{ n: number | null; total: number }>(LAST);
    const latest = last?.n ?? 0;
    // Places are far apart: how many rows there are is never less than how many come after one of them.
    const most = Math.max(COUNTED_EXACTLY, rows, last?.total ?? 0);
    const places = new Map<Seq, After>();
    const pending: Pending[] = [];
    for (const { position, except } of edges) {
      if (position >= latest) {
        pending.push(NOTHING);
        continue;
      }
      const after = places.get(position) ?? (await this.#rowsAfter(position));
      places.set(position, after);
      const others = after.byOrigin.filter(({ origin }) => except === undefined || origin !== except);
      const isMore = after.count >= COUNTED_EXACTLY;
      if (isMore && others.length < after.byOrigin.length) {
        pending.push(await this.#countedAlone(position, except as string, most));
        continue;
      }
      const oldest = others.toSorted((a, b) => a.first - b.first)[0]?.oldest;
      const counted = others.reduce((sum, { count }) => sum + count, 0);
      pending.push({ pending: isMore ? most : counted, oldest });
    }
    return pending;
  }

  async #rowsAfter(position: Seq): Promise<After> {
    const byOrigin = await this.#base.sessions.query<After['byOrigin'][number]>(ROWS_AFTER, position);
    return { count: byOrigin.reduce((sum, { count }) => sum + count, 0), byOrigin };
  }

  /** Among more than were looked at, its own may be any number: these are not counted. */
  async #countedAlone(position: Seq, except: string, most: number): Promise<Pending> {
    const [found] = await this.#base.sessions.query<{ n: number; t: number | null }>(COUNTED_ALONE, position, except);
    const counted = found?.n ?? 0;
    return { pending: counted < COUNTED_EXACTLY ? counted : most, oldest: found?.t ?? undefined };
  }
}

interface FoundRow {
  seq: Seq;
  op: string;
  name: string;
  version: number;
  row: string;
  origin: string | null;
  /** Empty where the one that has brought it does not know. */
  writer: string | null;
  node: string | null;
}

const ROW =
  'SELECT r.seq, r.op, r.table_name AS name, r.updated_at AS version, r.row_data AS row, r.origin, ' +
  `${WRITER} AS writer, (SELECT n.id FROM rowcast.nodes AS n WHERE n.inc = r.origin) AS node ` +
  'FROM rowcast.rows AS r WHERE r.tkey = $1 AND r.row_id = $2';

/** An edge is not sent what it brought itself, unless it is being given everything. */
const MISSING =
  'SELECT url FROM rowcast.edges WHERE position < $1 AND ' +
  '(anew_upto >= $1 OR $2::text IS NULL OR coalesce(inc, node_id) IS DISTINCT FROM $2) ORDER BY url';

const LAST =
  'SELECT (SELECT max(seq) FROM rowcast.rows) AS n, ' +
  "(SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'rowcast.rows'::regclass) AS total";

const ROWS_AFTER =
  'SELECT origin, count(*) AS count, min(seq) AS first, (array_agg(updated_at ORDER BY seq))[1] AS oldest FROM ' +
  `(SELECT seq, origin, updated_at FROM rowcast.rows WHERE seq > $1 ORDER BY seq LIMIT ${COUNTED_EXACTLY}) AS r ` +
  'GROUP BY origin';

const OF_OTHERS = 'FROM rowcast.rows WHERE seq > $1 AND origin IS DISTINCT FROM $2';

const COUNTED_ALONE =
  `SELECT count(*) AS n, (SELECT updated_at ${OF_OTHERS} ORDER BY seq LIMIT 1) AS t ` +
  `FROM (SELECT 1 ${OF_OTHERS} LIMIT ${COUNTED_EXACTLY}) AS r`;

const LETTERS_BY_CODE =
  'SELECT direction, code, count(*) AS count FROM rowcast.letters WHERE code IS NOT NULL ' +
  'GROUP BY direction, code ORDER BY code, direction';

/** Of everything that is in the schema, indexes included. */
const SIZE =
  'SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint AS bytes FROM pg_class AS c ' +
  "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'rowcast' AND c.relkind = 'r'";
