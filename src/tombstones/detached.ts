/** Forgetting a node by somebody who is not attached to the database, while a node runs on it or while none does. */
import type { Clock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { Members } from './members.ts';

/** Whoever runs on the database finds it there within a minute. */
export function forgetNode(db: Connection, id: string, clock: Clock): void {
  const tables = "SELECT 1 AS n FROM main.sqlite_schema WHERE name IN ('_names', '_peer_state', '_meta')";
  if (db.all(tables).length < 3) {
    throw new RowcastError('INVALID_DATABASE', "the database is no node's: nobody is known there", {
      hint: 'name the file of a node; an edge of a hub is forgotten when it is taken out of its edges',
    });
  }
  const own = db.get<{ id: string }>('SELECT id FROM main._nodes WHERE self = 1')?.id ?? '';
  const others = db
    .all<{ id: string; inc: string }>('SELECT id, inc FROM main._names ORDER BY id')
    .map((other) => ({ ...other, low: undefined, heardAt: undefined }));
  const peers = db.all<{ url: string }>('SELECT peer_url AS url FROM main._peer_state').map(({ url }) => url);
  const company = { low: () => undefined, others: () => others };
  new Members(db, { id: own, company, peers: () => peers, clock }).forget(id);
}
