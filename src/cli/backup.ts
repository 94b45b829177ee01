/** `rowcast backup`: a copy that SQLite itself makes in one reading transaction, and that is checked before anybody relies on it. */
import {
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  lstatSync,
  openSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { messageOf } from '../errors.ts';
import { STILL_OPEN } from '../sqlite/open-file.ts';
import { isCode } from '../sqlite/result-codes.ts';
import { literal } from '../sqlite/sql.ts';
import { asker, Refused, Unreachable } from './ask.ts';
import { UsageError } from './flags.ts';
import { StartError } from './listen.ts';
import { BESIDE, type Binding, checkFile, openDatabase, refusal } from './open.ts';
import { openToRead } from './open-to-read.ts';
import { bytes } from './show.ts';

/** Nothing is ever written over: a name that exists is refused, and a copy that fails its check is removed. */
export function backupFile(
  db: string,
  target: string,
  binding: Binding | undefined,
  at: (phase: string) => void = () => {},
): { file: string; bytes: number } {
  if (isTaken(target)) throw new UsageError(`${target} exists already: a backup never replaces anything`);
  refusePlace(target);
  refuseBeside(db, target);
  removeLeftovers(target);
  const half = `${target}.${process.pid}.part`;
  try {
    // There has to be room for the backup as well.
    const opened = openToRead(db, { binding, busyMs: 5_000, aside: dirname(resolve(target)) });
    at(`copying ${bytes(statSync(db).size)}`);
    try {
      makeReadableAs(db, half);
      opened.db.exec(`VACUUM main INTO ${literal(half)}`);
    } finally {
      opened.close();
    }
    at('checking the copy');
    check(half, binding);
    flush(half);
    // Until here nothing bears the name that somebody will look for.
    if (isTaken(target)) throw new Error(`${target} has appeared meanwhile: another backup to this name was under way`);
    renameSync(half, target);
    flush(dirname(resolve(target)));
    return { file: target, bytes: statSync(target).size };
  } catch (error) {
    for (const file of [half, `${half}-journal`]) rmSync(file, { force: true });
    if (error instanceof UsageError) throw error;
    throw new StartError(`no backup was made: ${whyNot(error, dirname(resolve(target)))}`, { cause: error });
  }
}

/** SQLite does not say which disk: it has written to that of the copy alone. */
function whyNot(error: unknown, folder: string): string {
  return isCode(error, 'FULL')
    ? `there is no room for it in ${folder}: make room there (df -h), or name another place`
    : messageOf(error);
}

/** By a link as well, though it may lead nowhere at present: whoever made it has meant something by it. */
function isTaken(target: string): boolean {
  try {
    return lstatSync(target, { throwIfNoEntry: false }) !== undefined;
  } catch {
    // It is no place for a file, and that is said next.
    return false;
  }
}

/** The copy has all that the database has, and is for nobody else. SQLite would make it for everybody, and keeps what is empty. */
function makeReadableAs(db: string, half: string): void {
  closeSync(openSync(half, 'wx', 0o600 | (statSync(db).mode & 0o066)));
}

/** SQLite would say no more than that it cannot open a file whose name nobody has given it. */
function refusePlace(target: string): void {
  const folder = dirname(resolve(target));
  try {
    checkFile(target);
  } catch (error) {
    throw new StartError(`no backup was made: ${messageOf(error)}`, { cause: error });
  }
  const code = refusal(folder, constants.W_OK);
  if (code === undefined) return;
  const why = code === 'EROFS' ? 'it is on a file system that is mounted read-only' : 'no permission';
  throw new StartError(
    `no backup was made: nothing can be written in the folder ${folder}: ${why}; name another place`,
  );
}

/** It would delete the backup, or write it into the database. */
function refuseBeside(db: string, target: string): void {
  if (!existsSync(db)) return;
  const place = join(realpathSync(dirname(resolve(target))), basename(target));
  if (!BESIDE.some((suffix) => place === realpathSync(db) + suffix)) return;
  throw new StartError(`no backup was made: ${target} is a name that SQLite uses beside ${db}; choose another`);
}

/** A process that runs on the file may have what nobody else sees any more. */
export async function refuseIfHidden(db: string): Promise<void> {
  if (!existsSync(db)) return;
  try {
    const target = { db, url: undefined, adminTokenFile: undefined };
    const { problems = [] } = await asker(target).get<{ problems?: string[] }>('status');
    const hidden = problems.find((problem) => problem.includes(STILL_OPEN));
    if (hidden !== undefined) throw new StartError(`no backup was made: ${hidden}`);
  } catch (error) {
    // Nobody runs on it, or nobody who can be asked.
    if (!(error instanceof Unreachable || error instanceof Refused)) throw error;
  }
}

/** Of backups to this name that were killed. */
function removeLeftovers(target: string): void {
  const folder = dirname(resolve(target));
  for (const name of readdirSync(folder)) {
    if (!name.startsWith(`${basename(target)}.`)) continue;
    const [, pid] = /\.(\d+)\.part(-journal|-wal|-shm)?$/.exec(name) ?? [];
    if (pid !== undefined && !isRunning(Number(pid))) rmSync(join(folder, name), { force: true });
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as { code?: string }).code !== 'ESRCH';
  }
}

function check(file: string, binding: Binding | undefined): void {
  const copy = openDatabase(file, { binding, busyMs: 0, existing: true });
  try {
    const [found] = copy.db.prepare('PRAGMA integrity_check(1)').all() as Record<string, unknown>[];
    const verdict = String(Object.values(found ?? {})[0]);
    if (verdict !== 'ok') throw new Error(`the copy is damaged, and so is the database: ${verdict}`);
    const ours = copy.db.prepare("SELECT 1 FROM sqlite_schema WHERE name IN ('_peer_state', '_hub_rows')").all();
    if (ours.length > 0) return;
    const why =
      'where a node runs on it, its -wal was moved or deleted, and is only to be had from that: stop it with SIGTERM';
    throw new Error(`the database holds nothing of a node or a hub; ${why}`);
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
