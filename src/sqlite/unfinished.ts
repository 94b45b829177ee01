/**
 * A statement of the application's that writes, and whose rows it has not read to the end (`iterate()` over RETURNING), is a
 * transaction that nobody sees: `inTransaction` is false, and BEGIN goes through. But then no COMMIT does, and the ROLLBACK that
 * has to follow takes the application's rows along, without a word to it. SQLite opens no savepoint there, and says so.
 */
import { messageOf } from '../errors.ts';
import type { Connection } from './connection.ts';
import { iterating } from './explained.ts';

/** Outside of a transaction a savepoint begins one that locks nothing, and its release ends it. In one call: nothing comes between. */
export const PROBE = 'SAVEPOINT rowcast_probe; RELEASE rowcast_probe';

/** Asked before every BEGIN. */
export function refuseUnfinished(db: Connection): void {
  try {
    db.exec(PROBE);
  } catch (error) {
    throw /SQL statements in progress/.test(messageOf(error)) ? iterating(error) : error;
  }
}

/** What is read from here on is of one moment, until the ROLLBACK. */
export function beginReading(db: Connection): void {
  refuseUnfinished(db);
  db.exec('BEGIN');
}
