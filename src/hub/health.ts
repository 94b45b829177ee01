/** The hub's health: the specification's six fields, where the peers are the edges, and how far each edge is. */

import type { DeadLetters } from '../dead-letters.ts';
import { messageOf } from '../errors.ts';
import type { PeerCondition, Shipper } from '../send/shipper.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { RowCounter } from '../sqlite/row-counter.ts';
import type { Edge } from './edges.ts';

export interface EdgeHealth {
  url: string;
  /** As its own `/health` says; null while it is not known. */
  node_id: string | null;
  state: PeerCondition;
  /** Rows it has not acknowledged: exact up to 10,000, at most that many beyond. */
  pending: number;
  last_acked: number;
  /** Age of the first of them, by its own updated_at. */
  lag_ms: number;
  last_acked_at: number | null;
  last_error: string | null;
}

export interface HubHealth {
  ok: boolean;
  node_id: string;
  /** Live rows; exact up to 10,000, as of the last count beyond. */
  item_count: number;
  /** For the edge that is furthest behind. */
  pending_changes: number;
  dead_letter: number;
  peers: string[];
  peer_states: EdgeHealth[];
  lag_ms: number;
  problems: string[];
}

const COUNT_AT_ONCE = 10_000;

export function hubHealth(
  id: string,
  db: Connection,
  letters: DeadLetters,
  links: { edge: Edge; shipper: Shipper }[],
  counter: RowCounter,
  now: number,
): HubHealth {
  const problems: string[] = [];
  const read = <T>(otherwise: T, query: () => T): T => {
    try {
      return query();
    } catch (error) {
      problems.push(`the database cannot be read: ${messageOf(error)}`);
      return otherwise;
    }
  };
  try {
    db.transaction(() => {});
  } catch (error) {
    if ((error as { code?: string }).code !== 'DATABASE_BUSY')
      problems.push(`the database cannot be written: ${messageOf(error)}`);
  }
  const states = read<EdgeHealth[]>([], () => {
    const latest = Number(db.get('SELECT max(seq) AS n FROM _hub_rows')?.n ?? 0);
    return links.map(({ edge, shipper }) => edgeHealth(db, edge, shipper, latest, now));
  });
  return {
    ok: problems.length === 0,
    node_id: id,
    item_count: read(0, () => counter.count('_hub_live', 'seq')),
    pending_changes: Math.max(0, ...states.map(({ pending }) => pending)),
    dead_letter: read(0, () => letters.count(counter)),
    peers: links.map(({ edge }) => edge.url),
    peer_states: states,
    lag_ms: Math.max(0, ...states.map(({ lag_ms }) => lag_ms)),
    problems: [...new Set(problems)],
  };
}

function edgeHealth(db: Connection, edge: Edge, shipper: Shipper, latest: number, now: number): EdgeHealth {
  const { position } = edge;
  const oldest = db.get<{ n: number; t: number | null }>(
    'SELECT count(*) AS n, (SELECT updated_at FROM _hub_rows WHERE seq > ? AND origin IS NOT ? ORDER BY seq LIMIT 1) AS t FROM ' +
      `(SELECT 1 FROM _hub_rows WHERE seq > ? AND origin IS NOT ? LIMIT ${COUNT_AT_ONCE})`,
    position,
    edge.ownId ?? '',
    position,
    edge.ownId ?? '',
  );
  const counted = oldest?.n ?? 0;
  return {
    url: edge.url,
    node_id: edge.nodeId ?? null,
    state: shipper.condition,
    pending: counted < COUNT_AT_ONCE ? counted : latest - position,
    last_acked: position,
    lag_ms: typeof oldest?.t === 'number' ? Math.max(0, now - oldest.t) : 0,
    last_acked_at: shipper.lastAckedAt ?? null,
    last_error: shipper.lastError ?? null,
  };
}
