/** The story of one row: where it stands, since when, from whom, who lacks it, what it has beaten, and what waits. */

import { RowcastError } from '../errors.ts';
import type { DeadLetter, DeadLetters } from '../letters/dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import { exactString } from '../wire/exact-text.ts';
import { BOUND_ID, idForWire } from '../wire/values.ts';
import type { Arrivals } from './arrivals.ts';
import { type Conflict, listConflicts, notSynced } from './conflicts.ts';
import { type Row, rowAt } from './rows.ts';
import { SELF } from './self.ts';

export interface Why {
  table: string;
  /** As it travels. */
  id: string;
  /**
   * `hidden`: another row with the same UNIQUE value keeps it out of its table. `deleted`: it was there, or elsewhere, and
   * its deletion is remembered. `absent`: nothing is known of it.
   */
  state: 'live' | 'hidden' | 'deleted' | 'absent';
  /** Of the row or its deletion: when it was written, in milliseconds, by its writer's clock. */
  version: number | null;
  row: Row | null;
  /** The version of its deletion, where one is remembered, also beneath a later row. */
  tombstone: number | null;
  /** Deletions of this table up to this version may have been forgotten; null where none was. */
  floor: number | null;
  hiddenBy: { id: string; version: number } | null;
  /**
   * Who wrote that version, and how it came: `self`, or a node's id; `via` is whoever passed it on, such as a hub, and `at`
   * when it came. Its node is null where `via` does not know it either; all of it is, where that was too long ago.
   */
  lastFrom: { node: string | null; via?: string | undefined; at: number | null } | null;
  /** Changes of it that wait in the outbox, and for whom. Of a hub, its newest version and the edges that lack it. */
  pending: { changeId: number; op: string; version: number | null; peersMissing: string[] }[];
  letters: DeadLetter[];
  conflicts: Conflict[];
}

/** Of each, the latest are told. */
const LISTED = 20;
/** So many of the latest changes are looked through. */
const LOOKED_THROUGH = 200_000;

interface Subject {
  tableOf(name: string): Table | undefined;
  tables(): string[];
  letters: Pick<DeadLetters, 'ofRow'>;
  arrivals?: Arrivals;
}

export function whyOf(db: Connection, subject: Subject, name: string, id: string): Why {
  if (typeof name !== 'string' || typeof id !== 'string')
    throw wrong('why needs the name of a table and an id, as text');
  const table = subject.tableOf(name);
  if (!table) throw notSynced(name, subject.tables());
  const stands = standing(db, table, id);
  const pending = pendingOf(db, table, id);
  const conflicts = listConflicts(db, { table: table.name, id, limit: 1_000 }).slice(-LISTED);
  return {
    table: table.name,
    id,
    ...stands,
    floor: table.floor ?? null,
    lastFrom: lastFrom({ table, id, ...stands, pending, conflicts }, subject.arrivals),
    pending,
    letters: subject.letters.ofRow([table.name, table.wireName, ...table.was], id, LISTED),
    conflicts,
  };
}

type Standing = Pick<Why, 'state' | 'version' | 'row' | 'tombstone' | 'hiddenBy'>;

function standing(db: Connection, table: Table, id: string): Standing {
  const of = `table_name = ${literal(table.name)} AND row_id = ${BOUND_ID}`;
  const version = (sql: string): number | null => db.get<{ v: number | null }>(sql, id)?.v ?? null;
  const tombstone = version(`SELECT version AS v FROM main._tombstones WHERE ${of}`);
  const stamp = version(`SELECT version AS v FROM main._stamps WHERE ${of}`);
  const row = rowAt(db, table, id);
  const live = db.get<{ v: number | null }>(
    `SELECT ${quote(table.updatedAt)} AS v FROM ${table.target} WHERE ${quote(table.id)} = ${BOUND_ID}`,
    id,
  );
  if (live) {
    // A version that is not yet written into its row counts.
    const own = Math.max(live.v ?? Number.NEGATIVE_INFINITY, stamp ?? Number.NEGATIVE_INFINITY);
    return { state: 'live', version: Number.isFinite(own) ? own : null, row, tombstone, hiddenBy: null };
  }
  const hidden = db.get<{ version: number; by: Uint8Array | null; at: number | null }>(
    `SELECT version, ${idForWire('blocked_by')} AS "by", blocked_version AS at FROM main._hidden WHERE ${of}`,
    id,
  );
  if (hidden) {
    const by = hidden.by === null ? null : { id: exactString(hidden.by), version: Number(hidden.at) };
    return { state: 'hidden', version: hidden.version, row, tombstone, hiddenBy: by };
  }
  const state = tombstone === null ? 'absent' : 'deleted';
  return { state, version: tombstone, row: null, tombstone, hiddenBy: null };
}

/** The latest of them, the oldest first. */
function pendingOf(db: Connection, table: Table, id: string): Why['pending'] {
  const time = table.columns.find(({ name }) => name === table.updatedAt)?.wireName ?? table.updatedAt;
  const found = db.all<{ changeId: number; op: string; version: number | null }>(
    `SELECT change_id AS changeId, op, iif(json_valid(row_data), row_data ->> ${literal(`$."${time}"`)}, NULL) AS version ` +
      `FROM main._changes WHERE change_id > (SELECT max(change_id) FROM main._changes) - ${LOOKED_THROUGH} ` +
      `AND table_name = ${literal(table.wireName)} AND row_id = ${BOUND_ID} ORDER BY change_id DESC LIMIT ${LISTED}`,
    id,
  );
  const peers = db.all<{ url: string; acked: number; seeding: number }>(
    'SELECT peer_url AS url, last_acked AS acked, tail_from IS NOT NULL OR stale = 1 AS seeding ' +
      'FROM main._peer_state WHERE removed IS NULL ORDER BY peer_url',
  );
  return found.reverse().map((change) => ({
    ...change,
    peersMissing: peers.filter(({ acked, seeding }) => seeding === 1 || acked < change.changeId).map(({ url }) => url),
  }));
}

interface Known extends Pick<Why, 'id' | 'state' | 'version' | 'pending' | 'conflicts'> {
  table: Table;
}

/** What was brought is asked first: a change that was told on to all is in the outbox, too. */
function lastFrom(known: Known, arrivals: Arrivals | undefined): Why['lastFrom'] {
  const { table, id, state, version, pending, conflicts } = known;
  if (version === null) return null;
  const names = [table.name, table.wireName, ...table.was].map(fold);
  const isDeleted = state === 'deleted';
  const arrival = arrivals?.find(names, { id, version, isDeleted });
  if (arrival) return { node: arrival.node, ...(arrival.via !== undefined && { via: arrival.via }), at: arrival.at };
  const isThat = (one: Why['pending'][number]): boolean =>
    one.version === version && (one.op === 'DELETE') === isDeleted;
  if (pending.some(isThat)) return { node: SELF, at: null };
  if (isDeleted) return null;
  const won = conflicts.findLast((one) => one.wonVersion === version && one.wonBy !== null);
  return won ? { node: won.wonBy as string, at: won.at } : null;
}

function wrong(message: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message);
}
