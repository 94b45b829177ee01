/**
 * What Rowcast does by itself, while somebody else has the lock: it waits without keeping the process from going on, because
 * that somebody may be another connection of the same process.
 */
import { RowcastError } from '../errors.ts';
import type { Connection } from './connection.ts';
import { refuseIfShut } from './look.ts';

/** After so long it is tried again. */
export const AGAIN_MS = 20;

/** Somebody else has the database for a moment; not the application on this very connection. */
export function isHeld(error: unknown): boolean {
  return error instanceof RowcastError && error.code === 'DATABASE_BUSY';
}

/**
 * Runs `fn`, in which nothing is awaited and which changes nothing where it throws; again and again, while somebody else has
 * the lock, for as long as the application lets SQLite wait for one. At once where nobody has.
 */
export function yielding<T>(db: Connection, fn: () => T, until: Until = 'stopped'): T | Promise<T> {
  try {
    refuseIfShut(db);
    return fn();
  } catch (error) {
    if (!db.isBrief || !isHeld(error)) throw error;
    return again(db, fn, until);
  }
}

/**
 * Where somebody else had the lock when it was last wanted: to ask whether it is free by now costs nothing; to read a large body
 * again and again, before that is known, would take all that a process can do.
 */
export function refuseIfHeld(db: Connection): void {
  if (db.isBrief && db.wasHeld) db.transaction(() => undefined);
}

/** The last things that are done are done when everything else has been stopped. */
type Until = 'stopped' | 'although-stopped';

async function again<T>(db: Connection, fn: () => T, until: Until): Promise<T> {
  const stopped = until === 'stopped' ? db.yields?.stopped : undefined;
  for (let tries = Math.ceil(db.toleratedMs / AGAIN_MS); ; tries--) {
    await db.yields?.clock.sleep(AGAIN_MS, stopped);
    try {
      refuseIfShut(db);
      return fn();
    } catch (error) {
      if (!isHeld(error) || tries <= 1 || stopped?.aborted) throw error;
    }
  }
}
