/** What SQLite has said of the file and its disk to anybody who uses a handle: an application's routes and the manager have a Connection each. */
import { messageOf } from '../errors.ts';
import type { Database } from './connection.ts';
import { isCode } from './result-codes.ts';

const writing = new WeakMap<Database, string>();
const damaged = new WeakMap<Database, string>();

export function noteFailure(db: Database, error: unknown): void {
  if (isCode(error, 'FULL', 'IOERR')) writing.set(db, messageOf(error));
  if (isCode(error, 'CORRUPT', 'NOTADB') && !isOfSchema(error)) damaged.set(db, messageOf(error));
}

/** What cannot be understood of the schema may be of a newer SQLite, and whoever drops it mends that: every statement says it until then. */
function isOfSchema(error: unknown): boolean {
  return messageOf(error).includes('malformed database schema');
}

/** What a full disk or a failing one has last said: whether it still does shows when something is written again. */
export function writeFailureOf(db: Database): string | undefined {
  return writing.get(db);
}

export function forgetWriteFailure(db: Database): void {
  writing.delete(db);
}

/** Damage is met by whoever reads the page, by others never, and does not mend itself: it is told until another file is there. */
export function damageOf(db: Database): string | undefined {
  const said = damaged.get(db);
  return said === undefined ? undefined : `${IS_DAMAGED}: ${said}. ${REMEDY}`;
}

export function forgetDamage(db: Database): void {
  damaged.delete(db);
}

const IS_DAMAGED = 'the database file is damaged';
const REMEDY =
  'Keep a copy of it, stop whatever uses it, and put back a backup, or begin with none: the other nodes fill it. What only ' +
  'this file has, .recover of the sqlite3 shell may save';
