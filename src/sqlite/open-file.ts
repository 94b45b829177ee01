/**
 * Whether the file that a connection has open still bears its name, and its WAL. Where somebody has moved, deleted or
 * replaced it, SQLite goes on in the file without a name, with a WAL without a word: all that is written from then on is
 * gone when the process ends. Without the WAL, so is what was written since the latest checkpoint, where it is killed.
 * Of one that somebody has emptied, to make room on a full disk perhaps, it takes zeros for what was there. And without the
 * index of the WAL, by which all processes agree what is in it, whoever comes next makes one of his own: then two write over each other.
 */
import { closeSync, fstatSync, openSync, readdirSync, readSync, statfsSync, statSync } from 'node:fs';
import { RowcastError } from '../errors.ts';
import type { Connection } from './connection.ts';
import { isCode } from './result-codes.ts';

/** What whoever else looks at the file goes by: it does not have what that process has. */
export const STILL_OPEN = 'and this process still has the one before open';

/** A batch that is being applied, and a table that is being compared, may need room there as well. */
export const TEMPORARY = 'where SQLite keeps temporary files (SQLITE_TMPDIR, TMPDIR, /var/tmp or /tmp)';

export class OpenFile {
  /** Undefined for a database in memory, and where the file could not be looked at. */
  readonly #path: string | undefined;
  readonly #known: string | undefined;
  readonly #db: Connection;
  #hadContent = false;
  /** The WAL that this process has been seen to have open, and how large it was when it was last seen to be whole. */
  #wal: string | undefined;
  #walSize: number | undefined;
  /** The index of the WAL that this process has been seen to have open. */
  #shm: string | undefined;

  constructor(db: Connection) {
    this.#db = db;
    const all = db.all<{ name: string; file: string }>('PRAGMA database_list');
    this.#path = all.find(({ name }) => name === 'main')?.file || undefined;
    this.#known = this.#path && fileAt(this.#path)?.id;
  }

  /** Why what is written now would be lost; undefined where it would not. */
  get problem(): string | undefined {
    if (this.#path === undefined || this.#known === undefined) return undefined;
    const found = fileAt(this.#path);
    if (found === undefined) return undefined;
    if (found.id === this.#known)
      return this.#emptied(found) ?? this.#walProblem(`${this.#path}-wal`) ?? this.#shmProblem(`${this.#path}-shm`);
    const what = found.id === '' ? 'was moved or deleted' : 'is another file now';
    return (
      `the database file ${this.#path} ${what}, ${STILL_OPEN}: what is written to that ` +
      'is lost when it ends. Stop it, put the right file in its place, start it again'
    );
  }

  #emptied({ size }: Found): string | undefined {
    this.#hadContent ||= size > 0;
    if (size > 0 || !this.#hadContent) return undefined;
    return (
      `the database file ${this.#path} was emptied, ${STILL_OPEN}: what is read and written here is not in it. ` +
      'Stop it, put a backup in its place, or nothing, and start it again: the peers give it what it lacks'
    );
  }

  #walProblem(path: string): string | undefined {
    const found = fileAt(path);
    if (found === undefined) return undefined;
    if (found.id !== '' && found.id === this.#wal) return this.#walEmptied(path, found);
    if (!this.#opensWal()) return undefined;
    const there = fileAt(path);
    const open = openFiles();
    // Where the system does not tell, the database itself is not among them.
    if (there === undefined || !open.has(this.#known as string)) return undefined;
    if (open.has(there.id)) {
      this.#wal = there.id;
      this.#walSize = undefined;
      return this.#walEmptied(path, there);
    }
    const what = there.id === '' ? 'was moved or deleted' : 'is another file now';
    return (
      `the file ${path} ${what}, ${STILL_OPEN}: what is in that is lost if it is killed, ` +
      'and no other process sees it. Stop it with SIGTERM, never with kill -9: then it is written to the database. Start it again'
    );
  }

  /** A process that has the database for itself alone (locking_mode) keeps its index in memory, and has no such file. */
  #shmProblem(path: string): string | undefined {
    const found = fileAt(path);
    if (found === undefined || found.id === (this.#shm ?? '')) return undefined;
    const open = openFiles();
    if (open.has(found.id)) {
      this.#shm = found.id;
      return undefined;
    }
    // Given back with the WAL, where the journal is another one now.
    if (this.#shm === undefined || !open.has(this.#shm)) return undefined;
    const what = found.id === '' ? 'was moved or deleted' : 'is another file now';
    return (
      `the file ${path} ${what}, ${STILL_OPEN}: another process that opens the database does not see what this one ` +
      'writes, and each writes over what the other has written. End every process that has it open with kill -9, since a stop ' +
      'might damage the database, and start them again'
    );
  }

  /** A checkpoint may leave it empty as well. What is written after somebody else has done so stands behind a hole. */
  #walEmptied(path: string, { size }: Found): string | undefined {
    if (size === this.#walSize) return undefined;
    if (size > 0 ? beginsAsWal(path) : !this.#lacksFrames()) {
      this.#walSize = size;
      return undefined;
    }
    return (
      `the file ${path} was emptied, ${STILL_OPEN}: what was written since the latest checkpoint is gone, and the next one, or ` +
      'a stop, would damage the database. End it with kill -9 and start it again: then the peers give it what it lacks'
    );
  }

  /** A checkpoint has nothing to do where the last one has emptied it. Where it was not one, it cannot read what it is to copy. */
  #lacksFrames(): boolean {
    try {
      this.#db.get('PRAGMA main.wal_checkpoint(PASSIVE)');
      return false;
    } catch (error) {
      return isCode(error, 'IOERR');
    }
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

  /** Another text whenever anybody has written to the WAL; undefined where there is none. */
  get walState(): string | undefined {
    if (this.#path === undefined) return undefined;
    try {
      const { ino, size, mtimeNs } = statSync(`${this.#path}-wal`, { bigint: true });
      return `${ino} ${size} ${mtimeNs}`;
    } catch {
      return undefined;
    }
  }

  /** So little is free beside it that only a write can tell whether there is room for one. */
  get isShortOfRoom(): boolean {
    return this.#path !== undefined && freeAt(this.#path) < SHORT_BYTES;
  }

  /** It is known that there is room. */
  get hasRoom(): boolean {
    return this.#path !== undefined && !this.isShortOfRoom && Number.isFinite(freeAt(this.#path));
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

interface Found {
  /** Which file it is: empty where there is none. */
  id: string;
  size: number;
}

/** Undefined where it cannot be told. */
function fileAt(path: string): Found | undefined {
  try {
    const { dev, ino, size } = statSync(path, { bigint: true });
    return { id: `${dev} ${ino}`, size: Number(size) };
  } catch (error) {
    const { code } = error as { code?: string };
    return code === 'ENOENT' || code === 'ENOTDIR' ? { id: '', size: 0 } : undefined;
  }
}

/** The numbers that a WAL begins with, by the order of bytes that its checksums go by. */
const WAL_MAGIC = [0x377f0682, 0x377f0683];

/** Nobody locks the WAL itself, so it does no harm to close it. Where it cannot be read, nothing is known against it. */
function beginsAsWal(path: string): boolean {
  try {
    const handle = openSync(path, 'r');
    try {
      const head = Buffer.alloc(4);
      return readSync(handle, head, 0, 4, 0) < 4 || WAL_MAGIC.includes(head.readUInt32BE());
    } finally {
      closeSync(handle);
    }
  } catch {
    return true;
  }
}
