/** Looking at a database that others may be writing to, without waiting for them. */
import { messageOf } from '../errors.ts';
import type { Connection } from './connection.ts';
import { busy, isNestedTransaction } from './explained.ts';
import { isCode } from './result-codes.ts';
import { beginReading } from './unfinished.ts';

/** Runs `fn` with another limit for waiting for a lock, and restores the application's own. */
export function waitingAtMost<T>(db: Connection, ms: number, fn: () => T): T {
  const before = Number(Object.values(db.get('PRAGMA busy_timeout') ?? {})[0] ?? 0);
  if (before <= ms) return fn();
  try {
    db.exec(`PRAGMA busy_timeout = ${ms}`);
  } catch (error) {
    if (isReading(error)) return fn();
    throw error;
  }
  try {
    return fn();
  } finally {
    db.exec(`PRAGMA busy_timeout = ${before}`);
  }
}

/**
 * Runs `fn` in a write transaction where that can be had at once. `busy`: somebody else has the write lock. `open`: the
 * application has a transaction of its own open. Throws where the database cannot be written at all.
 */
export function writeIfFree(db: Connection, fn: () => void = () => {}): 'done' | 'busy' | 'open' {
  return waitingAtMost(db, 0, () => {
    try {
      db.beginWriting();
    } catch (error) {
      if (isNestedTransaction(error)) return 'open';
      if (isCode(error, 'BUSY', 'LOCKED') || isReading(error)) return 'busy';
      throw error;
    }
    try {
      fn();
      db.exec('COMMIT');
      return 'done';
    } catch (error) {
      try {
        db.exec('ROLLBACK');
      } catch {
        // A full disk has ended the transaction: what it said is the error to report.
      }
      throw error;
    }
  });
}

/** As much as a write of an application may take, so that a last free page does not pass for room. */
const PROOF_BYTES = 64 * 1024;

/** Where it goes: a table with a text as its key, and a value. */
interface ProofPlace {
  table: string;
  key: string;
  value: string;
}

/**
 * Writes something and takes it away again, as writeIfFree does: a full disk lets a transaction begin and end, and only
 * who writes finds out.
 */
export function proveWritable(db: Connection, { table, key, value }: ProofPlace): 'done' | 'busy' | 'open' {
  const row = `INSERT INTO main.${table} (${key}, ${value}) VALUES ('proof', zeroblob(?))`;
  const put = `${row} ON CONFLICT DO UPDATE SET ${value} = excluded.${value}`;
  const written = writeIfFree(db, () => db.run(put, PROOF_BYTES));
  if (written !== 'done') return written;
  return writeIfFree(db, () => db.run(`DELETE FROM main.${table} WHERE ${key} = 'proof'`));
}

/** All that `fn` reads is of one moment: inside a read transaction, or inside the application's own where one is open. */
export function readAtOnce<T>(db: Connection, fn: () => T): T {
  try {
    beginReading(db);
  } catch (error) {
    if (isNestedTransaction(error) || isReading(error)) return fn();
    throw error;
  }
  try {
    return fn();
  } finally {
    db.exec('ROLLBACK');
  }
}

/** In this time SQLite tries five times. */
const SHUT_MS = 20;

/**
 * Without a WAL who writes may keep even readers out. Asked before anything is read: what has not begun by then in this
 * process cannot begin before we are done, and another process needs nothing of us to come to its end.
 */
export function refuseIfShut(db: Connection): void {
  if (!db.isBrief || !db.isShutByWriters) return;
  try {
    waitingAtMost(db, SHUT_MS, () => db.get('PRAGMA main.schema_version'));
  } catch (error) {
    throw isCode(error, 'BUSY', 'LOCKED') ? busy(error) : error;
  }
}

/** Looks at the same things again and again, and need not where nobody has touched anything since it last did. */
export class Stillness {
  readonly #db: Connection;
  /** Before the latest look that went through, and before what that has done itself. */
  #seen: string | undefined;

  constructor(db: Connection) {
    this.#db = db;
  }

  look(fn: (isQuiet: boolean) => void): void {
    refuseIfShut(this.#db);
    const found = this.#db.fingerprint();
    const isQuiet = found !== undefined && found === this.#seen;
    // Where it fails on the way, all of it is done again.
    this.#seen = undefined;
    fn(isQuiet);
    this.#seen = found;
  }
}

/** better-sqlite3 lets nothing but reads through while the application is in the middle of an iterate(). */
export function isReading(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return code === 'DATABASE_BUSY' || /busy executing a query/.test(messageOf(error));
}
