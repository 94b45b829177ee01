/**
 * Whether the file that a connection has open still bears its name. Where somebody has moved, deleted or replaced it,
 * SQLite goes on in the file without a name, with a WAL without a word: all that is written from then on is gone when
 * the process ends.
 */
import { statfsSync, statSync } from 'node:fs';
import { RowcastError } from '../errors.ts';
import type { Connection } from './connection.ts';

export class OpenFile {
  /** Undefined for a database in memory, and where the file could not be looked at. */
  readonly #path: string | undefined;
  readonly #known: string | undefined;

  constructor(db: Connection) {
    const all = db.all<{ name: string; file: string }>('PRAGMA database_list');
    this.#path = all.find(({ name }) => name === 'main')?.file || undefined;
    this.#known = this.#path && fileAt(this.#path);
  }

  /** Why what is written now would be lost; undefined where it would not. */
  get problem(): string | undefined {
    if (this.#path === undefined || this.#known === undefined) return undefined;
    const found = fileAt(this.#path);
    if (found === undefined || found === this.#known) return undefined;
    const what = found === '' ? 'was moved or deleted' : 'is another file now';
    return (
      `the database file ${this.#path} ${what}, and this process still has the one before open: what is written to that ` +
      'is lost when it ends. Stop it, put the right file in its place, start it again'
    );
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
