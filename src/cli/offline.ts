/** What the file of a node or hub says of it, whether or not somebody runs on it. Nothing is written. */
import { capturedTables, captureState } from '../capture/capture-record.ts';
import { withFloors } from '../capture/floors.ts';
import { isOn, ownTriggers, tableExists } from '../capture/installed-triggers.ts';
import { Names } from '../capture/names.ts';
import { systemClock } from '../clock.ts';
import { SETTINGS } from '../config.ts';
import { FORMAT, formatOf } from '../hub/sqlite-tables.ts';
import { whyAtHub } from '../hub/sqlite-why.ts';
import { Arrivals } from '../journal/arrivals.ts';
import {
  type Conflict,
  type ConflictDetail,
  type ConflictPage,
  conflictDetail,
  conflictsAsked,
} from '../journal/conflicts.ts';
import { type Why, whyOf } from '../journal/why.ts';
import { type DeadLetter, DeadLetters } from '../letters/dead-letters.ts';
import { TimeLimit } from '../letters/time-limit.ts';
import { factsOf } from '../observe/facts.ts';
import { Connection } from '../sqlite/connection.ts';
import { describeTable, type Table } from '../sqlite/schema.ts';
import { fold, inMain } from '../sqlite/sql.ts';
import { Refused } from './ask.ts';
import type { Binding } from './open.ts';
import { openToRead } from './open-to-read.ts';
import type { ShownStatus } from './show.ts';

export function statusOffline(file: string, binding: Binding | undefined): ShownStatus {
  return reading(file, binding, (db) => {
    const own = db.get<{ id: string }>('SELECT id FROM main._nodes WHERE self = 1');
    const number = (sql: string, ...params: string[]): number => Number(db.get<{ n: number }>(sql, ...params)?.n ?? 0);
    const letters = number('SELECT count(*) AS n FROM main._dead_letter');
    const hub = isHub(db);
    const rest = hub ? ofHub(db, number) : ofNode(db, number);
    const lacking = rest.peer_states.map(({ pending }) => pending);
    const problems = hub ? [] : capturedTables(db).flatMap((name) => captureProblem(db, name));
    return {
      ok: problems.length === 0,
      offline: true,
      problems,
      node_id: own?.id ?? '',
      ...factsOf(db),
      dead_letter: letters,
      lag_ms: 0,
      pending_changes: Math.max(0, ...lacking),
      ...rest,
    };
  });
}

/** A table of a node that is not captured as it was when its triggers were last seen. */
function captureProblem(db: Connection, name: string): string[] {
  if (!tableExists(db, name))
    return [`the synced table "${name}" is gone: its changes are dead letters until it is back`];
  const table = Names.read(db).describe(describeTable(db, name));
  if (captureState(db, table, ownTriggers(db).filter(isOn(table))) !== 'gap') return [];
  return [
    `capture triggers are missing or changed on "${name}": start the node, which puts them back and sends the table`,
  ];
}

function isHub(db: Connection): boolean {
  return db.get("SELECT 1 AS n FROM main.sqlite_schema WHERE name = '_hub_rows'") !== undefined;
}

type Counting = (sql: string, ...params: string[]) => number;
type Rest = Pick<ShownStatus, 'item_count' | 'peer_states' | 'tables' | 'captured' | 'conflicts'>;

function ofNode(db: Connection, number: Counting): Rest {
  const captured = capturedTables(db);
  const names = Names.read(db);
  const tables = db
    .all<{ name: string }>("SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY name")
    .filter(({ name }) => captured.includes(fold(name)))
    .map(({ name }) => ({
      name,
      rows: number(`SELECT count(*) AS n FROM ${inMain(name)}`),
      tombstones: number('SELECT count(*) AS n FROM main._tombstones WHERE table_name = ?', names.of(name).name),
    }));
  const peers = db.all<{ url: string; acked: number; paused: number; stale: number; seeding: number }>(
    'SELECT peer_url AS url, last_acked AS acked, paused, stale, tail_from IS NOT NULL AS seeding ' +
      'FROM main._peer_state WHERE removed IS NULL ORDER BY peer_url',
  );
  return {
    tables,
    captured: number("SELECT coalesce(max(seq), 0) AS n FROM main.sqlite_sequence WHERE name = '_changes'"),
    conflicts: has(db, '_conflicts') ? number('SELECT count(*) AS n FROM main._conflicts') : 0,
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

/** A file that no present build has attached to has not all of them. */
function has(db: Connection, table: string): boolean {
  return db.get('SELECT 1 AS n FROM main.sqlite_schema WHERE name = ?', table) !== undefined;
}

function refuseHub(db: Connection): void {
  if (isHub(db))
    throw new Refused('a hub keeps no conflict journal (conflicts are noted where rows are written: ask the nodes)');
}

export function conflictsOffline(file: string, binding: Binding | undefined, page: ConflictPage): Conflict[] {
  return reading(file, binding, (db) => {
    refuseHub(db);
    return has(db, '_conflicts') ? conflictsAsked(db, () => capturedTables(db), page) : [];
  });
}

export function conflictOffline(file: string, binding: Binding | undefined, id: number): ConflictDetail {
  return reading(file, binding, (db) => {
    refuseHub(db);
    if (!has(db, '_conflicts')) throw new Refused(`there is no conflict ${id}: ${file} has no journal`);
    return conflictDetail(db, tableIn(db), id);
  });
}

export function whyOffline(file: string, binding: Binding | undefined, table: string, id: string): Why {
  return reading(file, binding, (db) => {
    const letters = lettersIn(db);
    const earlier = (what: string): Refused =>
      new Refused(`${file} is of an earlier build: start a ${what} on it once`);
    if (isHub(db)) {
      if (formatOf(db) < FORMAT) throw earlier('hub');
      return whyAtHub(db, letters, table, id);
    }
    if (!has(db, '_conflicts') || !has(db, '_arrivals')) throw earlier('node');
    const arrivals = new Arrivals(db, systemClock);
    return whyOf(db, { tableOf: tableIn(db), tables: () => capturedTables(db), letters, arrivals }, table, id);
  });
}

/** The synced tables, as the file describes them. */
function tableIn(db: Connection): (name: string) => Table | undefined {
  const names = Names.read(db);
  return (name) => {
    const present = names.presentName(name) ?? name;
    const isSynced = capturedTables(db).some((one) => fold(one) === fold(present));
    const [table] = isSynced ? withFloors(db, [names.describe(describeTable(db, present))]) : [];
    return table;
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
  { limit, after, code }: { limit: number; after: number; code: string | undefined },
): DeadLetter[] {
  return reading(file, binding, (db) => {
    const letters = lettersIn(db);
    if (code === undefined) return letters.list({ limit, after });
    const all = letters.list({ limit: Number.MAX_SAFE_INTEGER, after });
    return all.filter((one) => one.code === code).slice(0, limit);
  });
}

export function letterOffline(file: string, binding: Binding | undefined, id: number): DeadLetter {
  return reading(file, binding, (db) => lettersIn(db).get(id));
}

/** What the node is configured with is not in its file: when a letter is due is told for what is usual. */
function lettersIn(db: Connection): DeadLetters {
  return new DeadLetters(db, systemClock, new TimeLimit(systemClock, SETTINGS.maxAheadMs.default));
}

function reading<T>(file: string, binding: Binding | undefined, look: (db: Connection) => T): T {
  const opened = openToRead(file, { binding, busyMs: 5_000 });
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
