/**
 * One hub to a file. What a hub has in memory of its edges is true as long as nobody else serves them: two on one file would
 * forget each other's, and take back what the other has noted of how far one is.
 *
 * The lock is SQLite's own, on an empty database beside the file, which a connection keeps for as long as it is open. The system
 * takes it from a process that is killed, so whoever is started after it need not wait, or ask anybody.
 */
import type { Clock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { waitingAtMost } from '../sqlite/look.ts';
import { isCode } from '../sqlite/result-codes.ts';

/** As a database of the connection. */
const NAME = 'rowcast_lock';
const SUFFIX = '-lock';
/** One that is being stopped has so long to come to its end; each time it is tried again after a moment. */
const PATIENCE_MS = 5_000;
const AGAIN_MS = 50;

export class HubLock {
  readonly #db: Connection;
  readonly #clock: Clock;
  #isAttached = false;

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Rejects where another hub has it. Resolves to why there is none, where there can be none. */
  async take(): Promise<string | undefined> {
    const [main] = this.#db.all<{ name: string; file: string }>('PRAGMA database_list').filter(isMain);
    if (!main?.file) return undefined;
    const wasDamaged = this.#db.damage !== undefined;
    for (let left = PATIENCE_MS; ; left -= AGAIN_MS) {
      try {
        this.#attach(`${main.file}${SUFFIX}`);
        return undefined;
      } catch (error) {
        this.release();
        if (isCode(error, 'CANTOPEN', 'READONLY', 'PERM')) return `${main.file}${SUFFIX} cannot be written`;
        if (isCode(error, 'NOTADB', 'CORRUPT')) {
          // It is not the hub's own file of which that was said.
          if (!wasDamaged) this.#db.forgetDamage();
          throw isForeign(`${main.file}${SUFFIX}`, error);
        }
        if (!isCode(error, 'BUSY', 'LOCKED')) throw error;
        if (left <= 0) throw isServed(error);
      }
      await this.#clock.sleep(AGAIN_MS);
    }
  }

  release(): void {
    if (!this.#isAttached) return;
    try {
      this.#db.exec(`DETACH DATABASE ${NAME}`);
      this.#isAttached = false;
    } catch {
      // The connection is closed already, or has a transaction of the application's open: its end is that of the lock.
    }
  }

  #attach(path: string): void {
    const db = this.#db;
    const names = db.all<{ name: string; file: string }>('PRAGMA database_list').map(({ name }) => name);
    // A hub that was not stopped has it by this very connection.
    if (names.includes(NAME)) throw isServed();
    // Nothing is ever kept there, so that it needs no journal, and a transaction of the hub's is one of one database.
    const settings = ['locking_mode = EXCLUSIVE', 'journal_mode = MEMORY', 'synchronous = OFF', 'user_version = 1'];
    waitingAtMost(db, 0, () => {
      db.run(`ATTACH DATABASE ? AS ${NAME}`, path);
      this.#isAttached = true;
      for (const setting of settings) db.exec(`PRAGMA ${NAME}.${setting}`);
    });
  }
}

function isMain({ name }: { name: string }): boolean {
  return name === 'main';
}

function isForeign(path: string, cause: unknown): RowcastError {
  const hint = 'move it away: a hub makes it for itself, and it holds nothing';
  return new RowcastError('INVALID_DATABASE', `${path} is where a hub has its lock, and it is somebody else's file`, {
    hint,
    cause,
  });
}

function isServed(cause?: unknown): RowcastError {
  return new RowcastError('INVALID_DATABASE', 'the database is served by another hub at this moment', {
    hint:
      'stop that one first, or give this one a file of its own; a running hub is given edges by -edges-file or ' +
      'hub.edges.add, and several processes are one hub on PostgreSQL, by -store',
    ...(cause !== undefined && { cause }),
  });
}
