/** health(): the specification's six fields, and what an operator asks next. Bounded work, whatever the size of the data. */

import type { Registry } from './capture/registry.ts';
import type { DeadLetters } from './dead-letters.ts';
import { messageOf } from './errors.ts';
import { peerProgress } from './send/peers.ts';
import type { PeerCondition, Shipper } from './send/shipper.ts';
import type { Connection } from './sqlite/connection.ts';
import { COUNT_AT_ONCE, type RowCounter } from './sqlite/row-counter.ts';
import type { Table } from './sqlite/schema.ts';

export interface PeerHealth {
  url: string;
  state: PeerCondition;
  pending: number;
  last_acked: number;
  /** A snapshot is under way: this peer is being given the state from before the changes it is sent. */
  snapshot: boolean;
  last_acked_at: number | null;
  last_error: string | null;
}

export interface Health {
  /** False when the database cannot be written or the triggers are gone. A peer that is down does not make it false. */
  ok: boolean;
  node_id: string;
  /** Rows of all synced tables; exact up to 10,000 rows a table, as of the last count beyond. */
  item_count: number;
  pending_changes: number;
  dead_letter: number;
  peers: string[];
  peer_states: PeerHealth[];
  /** Age of the oldest change that some peer has not acknowledged, by its own updated_at. */
  lag_ms: number;
  /** Why `ok` is false. */
  problems: string[];
}

export function health(
  nodeId: string,
  db: Connection,
  registry: Registry,
  letters: DeadLetters,
  shippers: Shipper[],
  counter: RowCounter,
  now: number,
): Health {
  const problems = problemsOf(db, registry);
  // Whatever cannot be read is one more problem to report, never a reason to say nothing at all.
  const read = <T>(what: string, otherwise: T, query: () => T): T => {
    try {
      return query();
    } catch (error) {
      problems.push(`${what} cannot be read: ${messageOf(error)}`);
      return otherwise;
    }
  };
  const tables = registry.list();
  const counts = {
    item_count: read('a synced table', 0, () =>
      tables.reduce((sum, table) => sum + counter.count(table.name, table.id), 0),
    ),
    pending_changes: read('_changes', 0, () => pendingCount(db)),
    dead_letter: read('_dead_letter', 0, () => letters.count()),
    peer_states: read('_peer_state', [], () => shippers.map((shipper) => peerHealth(db, tables, shipper))),
    lag_ms: read('_changes', 0, () => lagOf(db, now)),
  };
  return {
    ok: problems.length === 0,
    node_id: nodeId,
    item_count: counts.item_count,
    pending_changes: counts.pending_changes,
    dead_letter: counts.dead_letter,
    peers: shippers.map((shipper) => shipper.peer),
    peer_states: counts.peer_states,
    lag_ms: counts.lag_ms,
    problems,
  };
}

function problemsOf(db: Connection, registry: Registry): string[] {
  const problems: string[] = [];
  try {
    if (!registry.intact()) problems.push('capture triggers are missing or changed: call attach again');
  } catch (error) {
    problems.push(`the database cannot be read: ${messageOf(error)}`);
  }
  try {
    // Takes the write lock and gives it back; the application's own open transaction proves the same.
    db.transaction(() => {});
  } catch (error) {
    const code = (error as { code?: string }).code;
    if (code !== 'IN_TRANSACTION' && code !== 'DATABASE_BUSY')
      problems.push(`the database cannot be written: ${messageOf(error)}`);
  }
  return problems;
}

function peerHealth(db: Connection, tables: Table[], shipper: Shipper): PeerHealth {
  const { pending, snapshot, lastAcked } = peerProgress(db, tables, shipper.peer);
  return {
    url: shipper.peer,
    state: shipper.condition,
    pending,
    last_acked: lastAcked,
    snapshot,
    last_acked_at: shipper.lastAckedAt ?? null,
    last_error: shipper.lastError ?? null,
  };
}

/** Ids have no gaps in a backlog of our own making, so a large one is measured by its ends. */
function pendingCount(db: Connection): number {
  const ends = db.get<{ low: number | null; high: number | null }>(
    'SELECT (SELECT min(change_id) FROM _changes) AS low, (SELECT max(change_id) FROM _changes) AS high',
  );
  if (ends?.low == null || ends.high == null) return 0;
  const span = ends.high - ends.low + 1;
  return span > COUNT_AT_ONCE ? span : Number(db.get('SELECT count(*) AS n FROM _changes')?.n);
}

function lagOf(db: Connection, now: number): number {
  const oldest = db.get<{ t: number | null }>(
    "SELECT iif(json_valid(row_data), row_data ->> '$.updated_at', NULL) AS t FROM _changes ORDER BY change_id LIMIT 1",
  );
  return typeof oldest?.t === 'number' ? Math.max(0, now - oldest.t) : 0;
}
