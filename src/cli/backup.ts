/** `rowcast backup`: a copy that SQLite itself makes in one reading transaction, and that is checked before anybody relies on it. */
import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { messageOf } from '../errors.ts';
import { literal } from '../sqlite/sql.ts';
import { UsageError } from './flags.ts';
import { StartError } from './listen.ts';
import { type Binding, openDatabase } from './open.ts';
import { bytes } from './show.ts';

/** Nothing is ever written over: a name that exists is refused, and a copy that fails its check is removed. */
export function backupFile(
  db: string,
  target: string,
  binding: Binding | undefined,
  at: (phase: string) => void = () => {},
): { file: string; bytes: number } {
  if (existsSync(target)) throw new UsageError(`${target} exists already: a backup never replaces anything`);
  const half = `${target}.part`;
  rmSync(half, { force: true });
  try {
    const opened = openDatabase(db, { binding, busyMs: 5_000, existing: true });
    at(`copying ${bytes(statSync(db).size)}`);
    try {
      opened.db.exec(`VACUUM main INTO ${literal(half)}`);
    } finally {
      opened.close();
    }
    at('checking the copy');
    check(half, binding);
    flush(half);
    // Until here nothing bears the name that somebody will look for.
    if (existsSync(target)) throw new Error(`${target} has appeared meanwhile`);
    renameSync(half, target);
    flush(dirname(resolve(target)));
    return { file: target, bytes: statSync(target).size };
  } catch (error) {
    rmSync(half, { force: true });
    if (error instanceof UsageError) throw error;
    throw new StartError(`no backup was made: ${messageOf(error)}`, { cause: error });
  }
}

function check(file: string, binding: Binding | undefined): void {
  const copy = openDatabase(file, { binding, busyMs: 0, existing: true });
  try {
    const [found] = copy.db.prepare('PRAGMA integrity_check(1)').all() as Record<string, unknown>[];
    const verdict = String(Object.values(found ?? {})[0]);
    if (verdict !== 'ok') throw new Error(`the copy is damaged, and so is the database: ${verdict}`);
  } finally {
    copy.close();
  }
}

function flush(path: string): void {
  const handle = openSync(path, 'r');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}
