/** What the file of a node or hub says of it, whether or not somebody runs on it. Nothing is written. */
import { systemClock } from '../clock.ts';
import { SETTINGS } from '../config.ts';
import { type DeadLetter, DeadLetters } from '../dead-letters.ts';
import { factsOf } from '../observe/facts.ts';
import { TimeLimit } from '../receive/time-limit.ts';
import { Connection } from '../sqlite/connection.ts';
import { TRIGGER_PREFIX } from '../sqlite/schema.ts';
import { inMain, literal } from '../sqlite/sql.ts';
import { Refused } from './ask.ts';
import { type Binding, openDatabase } from './open.ts';
import type { ShownStatus } from './show.ts';

export function statusOffline(file: string, binding: Binding | undefined): ShownStatus {
  return reading(file, binding, (db) => {
    const own = db.get<{ id: string }>('SELECT id FROM main._nodes WHERE self = 1');
    const number = (sql: string, ...params: string[]): number => Number(db.get<{ n: number }>(sql, ...params)?.n ?? 0);
    const letters = number('SELECT count(*) AS n FROM main._dead_letter');
    const isHub = db.get("SELECT 1 AS n FROM main.sqlite_schema WHERE name = '_hub_rows'") !== undefined;
    const rest = isHub ? ofHub(db, number) : ofNode(db, number);
    const lacking = rest.peer_states.map(({ pending }) => pending);
    return {
      ok: true,
      offline: true,
      problems: [],
      node_id: own?.id ?? '',
      ...factsOf(db),
      dead_letter: letters,
      lag_ms: 0,
      pending_changes: Math.max(0, ...lacking),
      ...rest,
    };
  });
}

type Counting = (sql: string, ...params: string[]) => number;
type Rest = Pick<ShownStatus, 'item_count' | 'peer_states' | 'tables' | 'captured'>;

function ofNode(db: Connection, number: Counting): Rest {
  const tables = db
    .all<{ name: string }>(
      "SELECT DISTINCT tbl_name AS name FROM main.sqlite_schema WHERE type = 'trigger' " +
        `AND substr(name, 1, ${TRIGGER_PREFIX.length}) = ${literal(TRIGGER_PREFIX)} ORDER BY 1`,
    )
    .map(({ name }) => ({
      name,
      rows: number(`SELECT count(*) AS n FROM ${inMain(name)}`),
      tombstones: number('SELECT count(*) AS n FROM main._tombstones WHERE table_name = ?', name),
    }));
  const peers = db.all<{ url: string; acked: number; paused: number; stale: number; seeding: number }>(
    'SELECT peer_url AS url, last_acked AS acked, paused, stale, tail_from IS NOT NULL AS seeding ' +
      'FROM main._peer_state WHERE removed IS NULL ORDER BY peer_url',
  );
  return {
    tables,
    captured: number("SELECT coalesce(max(seq), 0) AS n FROM main.sqlite_sequence WHERE name = '_changes'"),
    item_count: tables.reduce((sum, { rows }) => sum + rows, 0),
    peer_states: peers.map(({ url, acked, paused, stale, seeding }) => ({
      ...unasked(url, paused),
      stale: stale === 1,
      snapshot: seeding === 1,
      pending: number(`SELECT count(*) AS n FROM main._changes WHERE change_id > ${Number(acked)}`),
    })),
  };
}

function ofHub(db: Connection, number: Counting): Rest {
  const edges = db.all<{ url: string; position: number; paused: number }>(
    'SELECT url, position, paused FROM main._hub_edges ORDER BY url',
  );
  return {
    item_count: number('SELECT count(*) AS n FROM main._hub_live'),
    peer_states: edges.map(({ url, position, paused }) => ({
      ...unasked(url, paused),
      pending: number(`SELECT count(*) AS n FROM main._hub_rows WHERE seq > ${Number(position)}`),
    })),
  };
}

/** Nobody has been asked whether it answers. */
function unasked(url: string, paused: number) {
  const state = { state: 'unknown', lag_ms: 0, last_acked_at: null, last_error: null, verified: null };
  return { url, paused: paused === 1, ...state };
}

export function lettersOffline(
  file: string,
  binding: Binding | undefined,
  page: { limit: number; after: number },
): DeadLetter[] {
  return reading(file, binding, (db) => lettersIn(db).list(page));
}

export function letterOffline(file: string, binding: Binding | undefined, id: number): DeadLetter {
  return reading(file, binding, (db) => lettersIn(db).get(id));
}

/** What the node is configured with is not in its file: when a letter is due is told for what is usual. */
function lettersIn(db: Connection): DeadLetters {
  return new DeadLetters(db, systemClock, new TimeLimit(systemClock, SETTINGS.maxAheadMs.default));
}

function reading<T>(file: string, binding: Binding | undefined, look: (db: Connection) => T): T {
  const opened = openDatabase(file, { binding, busyMs: 5_000, existing: true });
  try {
    const db = new Connection(opened.db);
    const known = db.get("SELECT 1 AS n FROM main.sqlite_schema WHERE type = 'table' AND name = '_nodes'");
    if (!known) throw new Refused(`${file} is no database of a node or a hub: nothing was ever attached to it`);
    const found = look(db);
    db.release();
    return found;
  } finally {
    opened.close();
  }
}
