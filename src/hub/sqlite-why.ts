/** What a hub knows of one row: its newest version, who brought it, and the edges that lack it. */

import { RowcastError } from '../errors.ts';
import type { Row } from '../journal/rows.ts';
import type { Why } from '../journal/why.ts';
import type { DeadLetters } from '../letters/dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import { exactJson } from '../wire/exact-text.ts';
import { canonicalId } from '../wire/values.ts';
import { WRITER } from './sqlite-read.ts';

/** Letters of a row that are told. */
export const LETTERS_TOLD = 20;

export function whyAtHub(db: Connection, letters: DeadLetters, table: string, id: string): Why {
  if (typeof table !== 'string' || typeof id !== 'string') {
    throw new RowcastError('INVALID_OPTION', 'why needs the name of a table and an id, as text');
  }
  const found = db.get<Found>(
    'SELECT seq, op, table_name AS name, updated_at AS version, CAST(row_data AS BLOB) AS bytes, origin, ' +
      `${WRITER} AS writer, (SELECT n.id FROM _nodes AS n WHERE n.inc = origin) AS node ` +
      `FROM _hub_rows WHERE table_name = ? AND row_id = (SELECT ${canonicalId('v')} FROM (SELECT ? AS v LIMIT -1))`,
    table,
    id,
  );
  const told = letters.ofRow([table], id, LETTERS_TOLD);
  const nothing = { floor: null, hiddenBy: null, conflicts: [], letters: told };
  if (!found) {
    const unknown = { state: 'absent' as const, version: null, row: null, tombstone: null, lastFrom: null };
    return { table, id, ...unknown, ...nothing, pending: [] };
  }
  const { seq, op, name, version, bytes, origin, writer, node } = found;
  const isDeleted = op === 'DELETE';
  const by = node ?? origin;
  const via = by === writer || by === null ? {} : { via: by };
  // An edge is not sent what it brought itself, unless it is being given everything.
  const missing = db.all<{ url: string }>(
    'SELECT url FROM _hub_edges WHERE position < ? AND (anew_upto >= ? OR ? IS NULL OR coalesce(inc, node_id) IS NOT ?) ' +
      'ORDER BY url',
    seq,
    seq,
    origin,
    origin,
  );
  const pending = { changeId: seq, op, version, peersMissing: missing.map(({ url }) => url) };
  return {
    table: name,
    id,
    state: isDeleted ? 'deleted' : 'live',
    version,
    row: isDeleted ? null : (JSON.parse(exactJson(bytes)) as Row),
    tombstone: isDeleted ? version : null,
    ...nothing,
    lastFrom: writer === null ? null : { node: writer === '' ? null : writer, ...via, at: null },
    pending: missing.length === 0 ? [] : [pending],
  };
}

interface Found {
  seq: number;
  op: string;
  name: string;
  version: number;
  bytes: Uint8Array;
  origin: string | null;
  /** Empty where the one that has brought it does not know. */
  writer: string | null;
  node: string | null;
}
