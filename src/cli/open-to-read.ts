/**
 * Opens a database file to look at it, also where nothing can be written to it: a disk that was mounted read-only, a
 * snapshot, a file of another user. Nothing is made beside it then: what SQLite keeps there would be in the way of whom the
 * file belongs to.
 */
import {
  chmodSync,
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  statfsSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { messageOf } from '../errors.ts';
import {
  BESIDE,
  type Binding,
  checkFile,
  fileBehind,
  OpenError,
  type Opened,
  openDatabase,
  openReadOnly,
  refusal,
  whyNotWritable,
} from './open.ts';

interface ReadOptions {
  binding: Binding | undefined;
  busyMs: number;
  /** The folder in which there is room for a copy, where one is needed. */
  aside?: string;
}

export function openToRead(named: string, { binding, busyMs, aside = tmpdir() }: ReadOptions): Opened {
  const path = fileBehind(named);
  checkFile(path);
  if (!existsSync(path) || whyNotWritable(path) === undefined) {
    return openDatabase(path, { binding, busyMs, existing: true });
  }
  const closed = ['', ...BESIDE].map((suffix) => path + suffix).find((part) => isClosed(part));
  if (closed !== undefined) {
    throw new OpenError(`no permission to read ${closed}: run this as the user whom it belongs to (ls -l)`);
  }
  return isReadableAsItIs(path) ? openReadOnly(path, { binding, busyMs }) : openCopy(path, binding, aside);
}

function isClosed(part: string): boolean {
  return existsSync(part) && refusal(part, constants.R_OK) !== undefined;
}

/** With a WAL, SQLite needs what it keeps beside the file, and makes it where it is not; so it does with a journal. */
function isReadableAsItIs(path: string): boolean {
  if (hasWal(path)) return existsSync(`${path}-wal`) && existsSync(`${path}-shm`);
  return !existsSync(`${path}-journal`);
}

/** By the version in the header that a reader has to know. */
function hasWal(path: string): boolean {
  const handle = openSync(path, 'r');
  try {
    const header = Buffer.alloc(20);
    readSync(handle, header, 0, header.length, 0);
    return header[19] === 2;
  } finally {
    closeSync(handle);
  }
}

/** Of the file and of what was not yet written to it, which counts as well. */
function openCopy(path: string, binding: Binding | undefined, aside: string): Opened {
  const parts = ['', '-wal', '-journal'].filter((suffix) => existsSync(path + suffix));
  const before = seenOf(path, parts);
  refuseWithoutRoom(path, parts, aside);
  let folder: string | undefined;
  const remove = (): void => {
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  };
  try {
    folder = mkdtempSync(join(aside, 'rowcast-look-'));
    const copy = join(folder, basename(path));
    for (const suffix of parts) {
      copyFileSync(path + suffix, copy + suffix, constants.COPYFILE_FICLONE);
      chmodSync(copy + suffix, 0o600);
    }
    if (seenOf(path, parts) !== before) throw new Error('somebody has written to it meanwhile; try again');
    const opened = openDatabase(copy, { binding, existing: true });
    const close = (): void => {
      opened.close();
      remove();
    };
    return { ...opened, close };
  } catch (error) {
    remove();
    throw new OpenError(
      `${path} cannot be written, and can only be read from a copy: ${messageOf(error)}. ${COPY_IT}`,
      { cause: error },
    );
  }
}

const COPY_IT =
  'Copy the file, with its -wal where there is one, to another place, and name that one, ' +
  'or set TMPDIR to a folder with room for it';

function refuseWithoutRoom(path: string, parts: string[], aside: string): void {
  const needed = parts.reduce((sum, suffix) => sum + statSync(path + suffix).size, 0);
  let free = Number.POSITIVE_INFINITY;
  try {
    const { bavail, bsize } = statfsSync(aside);
    free = bavail * bsize;
  } catch {
    // Where that cannot be told, the copy itself tells.
  }
  if (needed < free) return;
  const what = `there is no room in ${aside} for its ${needed} bytes`;
  throw new OpenError(`${path} cannot be written, and can only be read from a copy: ${what}. ${COPY_IT}`);
}

/** Another text where somebody has written to one of them, or has made another one. */
function seenOf(path: string, parts: string[]): string {
  const seen = parts.map((suffix) => {
    const { ino, size, mtimeNs } = statSync(path + suffix, { bigint: true });
    return `${ino} ${size} ${mtimeNs}`;
  });
  return [...seen, existsSync(`${path}-wal`), existsSync(`${path}-journal`)].join(', ');
}
