/**
 * Whether the file that a connection has open still bears its name, and its WAL. Where somebody has moved, deleted or
 * replaced it, SQLite goes on in the file without a name, with a WAL without a word: all that is written from then on is
 * gone when the process ends. Without the WAL, so is what was written since the latest checkpoint, where it is killed.
 */
import { fstatSync, readdirSync, statfsSync, statSync } from 'node:fs';
import { RowcastError } from '../errors.ts';
import type { Connection } from './connection.ts';

/** What whoever else looks at the file goes by: it does not have what that process has. */
export const STILL_OPEN = 'and this process still has the one before open';

export class OpenFile {
  /** Undefined for a database in memory, and where the file could not be looked at. */
  readonly #path: string | undefined;
  readonly #known: string | undefined;
  readonly #db: Connection;
  /** The WAL that this process has been seen to have open. */
  #wal: string | undefined;

  constructor(db: Connection) {
    this.#db = db;
    const all = db.all<{ name: string; file: string }>('PRAGMA database_list');
    this.#path = all.find(({ name }) => name === 'main')?.file || undefined;
    this.#known = this.#path && fileAt(this.#path);
  }

  /** Why what is written now would be lost; undefined where it would not. */
  get problem(): string | undefined {
    if (this.#path === undefined || this.#known === undefined) return undefined;
    const found = fileAt(this.#path);
    if (found === undefined) return undefined;
    if (found === this.#known) return this.#walProblem(`${this.#path}-wal`);
    const what = found === '' ? 'was moved or deleted' : 'is another file now';
    return (
      `the database file ${this.#path} ${what}, ${STILL_OPEN}: what is written to that ` +
      'is lost when it ends. Stop it, put the right file in its place, start it again'
    );
  }

  #walProblem(path: string): string | undefined {
    const found = fileAt(path);
    if (found === undefined || (found !== '' && found === this.#wal)) return undefined;
    if (!this.#opensWal()) return undefined;
    const there = fileAt(path);
    const open = openFiles();
    // Where the system does not tell, the database itself is not among them.
    if (there === undefined || !open.has(this.#known as string)) return undefined;
    if (open.has(there)) {
      this.#wal = there;
      return undefined;
    }
    const what = there === '' ? 'was moved or deleted' : 'is another file now';
    return (
      `the file ${path} ${what}, ${STILL_OPEN}: what is in that is lost if it is killed, ` +
      'and no other process sees it. Stop it with SIGTERM, never with kill -9: then it is written to the database. Start it again'
    );
  }

  /** Reading makes a WAL where there is none yet. Its mode may have been changed since the latest look, to and fro. */
  #opensWal(): boolean {
    try {
      const mode = this.#db.get<{ journal_mode: string }>('PRAGMA main.journal_mode')?.journal_mode;
      if (mode === 'wal') this.#db.get('SELECT 1 FROM main.sqlite_schema');
      return mode === 'wal';
    } catch {
      // Somebody has a lock on it, or is in the middle of a query: the next look tells.
      return false;
    }
  }

  /** So little is free beside it that only a write can tell whether there is room for one. */
  get isShortOfRoom(): boolean {
    return this.#path !== undefined && freeAt(this.#path) < SHORT_BYTES;
  }

  refuseIfMoved(): void {
    const { problem } = this;
    if (problem !== undefined) throw new RowcastError('INVALID_DATABASE', problem);
  }
}

/** The files that this process has open, where the system tells. */
function openFiles(): Set<string> {
  const found = new Set<string>();
  try {
    for (const name of readdirSync('/dev/fd')) {
      try {
        const { dev, ino } = fstatSync(Number(name), { bigint: true });
        found.add(`${dev} ${ino}`);
      } catch {
        // That of the list itself.
      }
    }
  } catch {
    // No such folder.
  }
  return found;
}

const SHORT_BYTES = 4 * 1024 * 1024;

/** Without end where that cannot be told. */
function freeAt(path: string): number {
  try {
    const { bavail, bsize } = statfsSync(path);
    return bavail * bsize;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/** Which file is there: empty where there is none, undefined where that cannot be told. */
function fileAt(path: string): string | undefined {
  try {
    const { dev, ino } = statSync(path, { bigint: true });
    return `${dev} ${ino}`;
  } catch (error) {
    const { code } = error as { code?: string };
    return code === 'ENOENT' || code === 'ENOTDIR' ? '' : undefined;
  }
}
