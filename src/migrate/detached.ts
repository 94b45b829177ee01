/** A database that is migrated by somebody who is not attached to it, while a node runs on it or while none does. */
import { capturedTables } from '../capture/capture-record.ts';
import { Registry } from '../capture/registry.ts';
import type { Clock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import { askForTables, resendTables } from '../send/resend.ts';
import { Connection, type Database } from '../sqlite/connection.ts';
import type { Subject } from './migrate.ts';

/** The synced tables are those that were captured last: whoever runs on the database finds the rest by itself. */
export function detached(handle: Database, clock: Clock, warn: (message: string) => void): Subject {
  const db = new Connection(handle);
  if (db.get("SELECT 1 AS n FROM main.sqlite_schema WHERE name = '_hub_rows'")) {
    throw new RowcastError('INVALID_DATABASE', "the database is a hub's, which has no schema", {
      hint: 'migrate its nodes; a hub takes whatever they send',
    });
  }
  const tables = capturedTables(db);
  if (tables.length === 0) {
    throw new RowcastError('INVALID_DATABASE', 'no table of the database is synced', {
      hint: 'a database that no node was ever attached to needs no more than its SQL',
    });
  }
  const registry = new Registry(db, {
    tables,
    warn: (_, message) => warn(message),
    // Whoever is attached sees that the schema is another, and tries its letters again.
    onRefresh: () => {},
    onUnseen: (unseen, ask) => resendTables(db, unseen, { ask, now: clock.now() }),
    onBack: (back) => askForTables(db, back),
  });
  return { db, handle, registry };
}
