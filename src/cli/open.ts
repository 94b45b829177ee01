/**
 * Opens a database file for the programs, with the best SQLite binding that is present. The library itself never does:
 * there the application brings its own handle.
 */
import { accessSync, constants, existsSync, lstatSync, realpathSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { messageOf } from '../errors.ts';
import type { Database } from '../sqlite/connection.ts';
import { fromNodeSqlite } from '../sqlite/node-sqlite.ts';
import { isCode, resultCode } from '../sqlite/result-codes.ts';

export const BINDINGS = ['better-sqlite3', 'node-sqlite', 'bun-sqlite'] as const;
export type Binding = (typeof BINDINGS)[number];

export interface OpenOptions {
  /** Instead of the best that is present. */
  binding?: Binding | undefined;
  /** How long to wait for another process's lock. Default 5,000. */
  busyMs?: number;
  /** `full`: a commit is on disk when it returns. `normal`: a power cut may take back the latest ones. Default full. */
  synchronous?: 'full' | 'normal';
  /** Somebody else's database: it must be there, and keeps its journal as it is. */
  existing?: boolean;
}

export interface Opened {
  db: Database;
  binding: Binding;
  close(): void;
  /** Closes what could not be used after all: its journal is what it was before. */
  giveBack(): void;
}

/** The database cannot be opened; the message says why in the words of whoever chose the file. */
export class OpenError extends Error {}

type Handle = Pick<Opened, 'db' | 'close'>;
type Open = (path: string, how?: { readOnly: boolean }) => Handle;

/** The WAL file is cut back to this after a burst. */
const WAL_BYTES_KEPT = 64 * 1024 * 1024;

/** Opens or creates `path`, in WAL mode unless it is somebody else's, and proves that it can be written. */
export function openDatabase(path: string, options: OpenOptions = {}): Opened {
  const { binding, open } = findBinding(options.binding);
  if (path !== ':memory:') {
    checkFile(path);
    const closed = whyNotWritable(path);
    if (closed !== undefined) throw new OpenError(closed);
  }
  if (options.existing && !statSync(path, { throwIfNoEntry: false })) throw new OpenError(`there is no file ${path}`);
  let opened: Handle | undefined;
  try {
    opened = open(path);
    opened.db.exec(`PRAGMA busy_timeout = ${options.busyMs ?? 5_000}`);
    const journal = journalOf(opened.db);
    if (!options.existing) switchToWal(opened.db);
    opened.db.exec(`PRAGMA synchronous = ${options.synchronous ?? 'full'}`);
    opened.db.exec(`PRAGMA journal_size_limit = ${WAL_BYTES_KEPT}`);
    opened.db.exec('BEGIN IMMEDIATE');
    opened.db.exec('ROLLBACK');
    return { ...opened, binding, giveBack: givingBack(opened, journal) };
  } catch (error) {
    opened?.close();
    throw new OpenError(explain(path, error), { cause: error });
  }
}

/** Opens what is there and cannot be written. Where SQLite has to write beside it to read it, it says that it cannot. */
export function openReadOnly(path: string, options: Pick<OpenOptions, 'binding' | 'busyMs'>): Opened {
  const { binding, open } = findBinding(options.binding);
  let opened: Handle | undefined;
  try {
    opened = open(path, { readOnly: true });
    opened.db.exec(`PRAGMA busy_timeout = ${options.busyMs ?? 5_000}`);
    opened.db.prepare('SELECT 1 FROM sqlite_schema').all();
    return { ...opened, binding, giveBack: opened.close };
  } catch (error) {
    opened?.close();
    throw new OpenError(explain(path, error), { cause: error });
  }
}

/**
 * The switch to a WAL upgrades a lock, and there SQLite does not wait. Taking the whole file for a moment does wait, as
 * long as was asked for; after it the switch goes through unless somebody else came between.
 */
function switchToWal(db: Database): void {
  for (let attempt = 1; ; attempt++) {
    try {
      db.exec('PRAGMA journal_mode = WAL');
      return;
    } catch (error) {
      if (!isCode(error, 'BUSY', 'LOCKED') || attempt === WAL_ATTEMPTS) throw error;
    }
    db.exec('BEGIN EXCLUSIVE');
    db.exec('ROLLBACK');
  }
}

const WAL_ATTEMPTS = 5;

function journalOf(db: Database): string {
  const [row] = db.prepare('PRAGMA main.journal_mode').all() as { journal_mode: string }[];
  return String(row?.journal_mode);
}

/** A wrong -db must not change the file of somebody who never meant it for us. */
function givingBack({ db, close }: Handle, journal: string): () => void {
  return () => {
    try {
      if (journalOf(db) !== journal) db.exec(`PRAGMA main.journal_mode = ${journal}`);
    } catch {
      // Somebody else has it open by now, and goes on with the WAL as well as without.
    }
    close();
  };
}

/** The whole of it: a native module built for another Node says which on its second line, and what to do on its third. */
function inOneLine(message: string): string {
  const lines = message.split('\n').map((line) => line.trim());
  return lines.filter((line) => line !== '' && !line.startsWith('Require stack') && !line.startsWith('- ')).join(' ');
}

/** The bindings of this runtime in order of preference; the first that loads is taken. */
function findBinding(wanted: Binding | undefined): { binding: Binding; open: Open } {
  const here: Binding[] = process.versions.bun !== undefined ? ['bun-sqlite'] : ['better-sqlite3', 'node-sqlite'];
  if (wanted !== undefined && !here.includes(wanted)) {
    const runtime = process.versions.bun !== undefined ? 'Bun' : 'Node';
    throw new OpenError(`${wanted} is not a binding for ${runtime}: use ${here.join(' or ')}`);
  }
  const failures: string[] = [];
  for (const binding of wanted ? [wanted] : here) {
    try {
      return { binding, open: LOADERS[binding]() };
    } catch (error) {
      failures.push(`  ${binding}: ${inOneLine(messageOf(error))}`);
    }
  }
  const remedy =
    wanted === 'node-sqlite'
      ? 'node:sqlite is part of Node from 22.13 on'
      : 'install better-sqlite3 (npm install better-sqlite3), or use Node 22.13 or newer, which has node:sqlite';
  throw new OpenError(`no SQLite binding could be loaded:\n${failures.join('\n')}\n${remedy}`);
}

const LOADERS: Record<Binding, () => Open> = {
  'better-sqlite3': loadBetterSqlite3,
  'node-sqlite': () => {
    const { DatabaseSync } = createRequire(import.meta.url)('node:sqlite');
    return (path, { readOnly } = { readOnly: false }) => {
      const handle = new DatabaseSync(path, { readOnly });
      return { db: fromNodeSqlite(handle), close: () => handle.close() };
    };
  },
  'bun-sqlite': () => {
    const { Database: Bun } = createRequire(import.meta.url)('bun:sqlite');
    return (path, { readOnly } = { readOnly: false }) => {
      const handle = new Bun(path, readOnly ? { readonly: true } : { create: true, readwrite: true });
      return { db: handle, close: () => handle.close() };
    };
  },
};

/**
 * From beside this package, or from the folder the program was started in: a global or one-off installation (npx) then
 * still finds the binding of the project it is run for.
 */
function loadBetterSqlite3(): Open {
  const failures: unknown[] = [];
  for (const from of [() => import.meta.url, () => join(process.cwd(), 'package.json')]) {
    try {
      const require = createRequire(from());
      requireNodeApi(String(require('better-sqlite3/package.json').version));
      const BetterSqlite3 = require('better-sqlite3');
      // The native part is loaded by the first database, and is what fails when it was built for another Node.
      new BetterSqlite3(':memory:').close();
      return (path, { readOnly } = { readOnly: false }) => {
        const handle = new BetterSqlite3(path, { readonly: readOnly });
        return { db: handle, close: () => handle.close() };
      };
    } catch (error) {
      failures.push(error);
    }
  }
  // A module that is there and does not load says more than one that is not there.
  throw failures.find((error) => (error as { code?: string }).code !== 'MODULE_NOT_FOUND') ?? failures[0];
}

/** Version 13 takes the whole process down, without an error to catch, where Node-API 10 is missing. */
function requireNodeApi(version: string): void {
  if (Number(version.split('.')[0]) < 13 || Number(process.versions.napi) >= 10) return;
  throw new Error(`version ${version} needs Node 22.14 or newer; version 12 runs on this one`);
}

/** What the bindings report in three ways, or only as "unable to open database file", found out beforehand. */
export function checkFile(path: string): void {
  const folder = dirname(resolve(path));
  const hidden = [folder, path].find((place) => ['EACCES', 'EPERM'].includes(refusal(place, constants.F_OK) ?? ''));
  if (hidden !== undefined) {
    throw new OpenError(
      `no permission to look for ${hidden}: run this as the user whom it belongs to, or let this one into its folder`,
    );
  }
  const there = statSync(folder, { throwIfNoEntry: false });
  if (!there) throw new OpenError(`the folder ${folder} does not exist: create it first (mkdir -p)`);
  if (!there.isDirectory()) throw new OpenError(`${folder} is not a folder`);
  const file = statSync(path, { throwIfNoEntry: false });
  if (file?.isDirectory()) throw new OpenError(`${path} is a folder, not a database file`);
  if (file && file.nlink > 1) warnOfOtherNames(path, file.nlink);
}

/** What one program has written lies beside the name by which it has opened it, and nobody who uses another name sees that. */
function warnOfOtherNames(path: string, names: number): void {
  process.stderr.write(
    `warning: ${path} has ${names} names (hard links): opened by two of them at a time it is damaged, and a copy or a backup ` +
      'by another name than the program uses lacks what that has written last. Use one name, and take copies by rowcast backup\n',
  );
}

/** What SQLite keeps beside a file, and takes for its own whoever has made it. */
export const BESIDE = ['-wal', '-shm', '-journal'];

/** The file that a name stands for: SQLite follows a link, and what belongs to the file is beside that. */
export function fileBehind(path: string): string {
  try {
    return lstatSync(path).isSymbolicLink() ? realpathSync(path) : path;
  } catch {
    // It is not there yet, or cannot be looked at: whoever opens it is told.
    return path;
  }
}

/** Why nothing can be written to the file, and what to do; undefined where it can. It is there, or will be. */
export function whyNotWritable(named: string): string | undefined {
  const path = fileBehind(named);
  const file = statSync(path, { throwIfNoEntry: false });
  const folder = dirname(resolve(path));
  const beside = BESIDE.map((suffix) => path + suffix).filter((place) => file && existsSync(place));
  const places: [string, string][] = [
    ...(file ? [[path, path] as [string, string]] : []),
    // SQLite keeps its journal beside the file.
    [folder, `in the folder ${folder}, where SQLite's journal goes`],
    // Of what is there already, SQLite only says that it cannot open the database, or that this is read-only.
    ...beside.map((place): [string, string] => [place, place]),
  ];
  for (const [place, what] of places) {
    const code = refusal(place, constants.R_OK | constants.W_OK);
    if (code === 'EROFS') {
      return (
        `${path} is on a file system that is mounted read-only: mount it for writing again (dmesg says what happened ` +
        'to it), or copy the file with its -wal to another place and use that'
      );
    }
    if (code !== undefined) {
      return `no permission to write ${what}: run this as the user whom it belongs to (ls -l), or let this one write there`;
    }
  }
  return undefined;
}

/** There is no such file; one in a folder that this user may not look into may be there. */
export function isMissing(path: string): boolean {
  return ['ENOENT', 'ENOTDIR'].includes(refusal(path, constants.F_OK) ?? '');
}

/** The system's code for it; undefined where it is allowed. */
export function refusal(path: string, mode: number): string | undefined {
  try {
    accessSync(path, mode);
    return undefined;
  } catch (error) {
    return (error as { code?: string }).code ?? 'EACCES';
  }
}

function explain(path: string, error: unknown): string {
  switch (resultCode(error)) {
    case 'BUSY':
    case 'LOCKED':
      return `database ${path} is locked: another process holds it; stop that process, or use another file`;
    case 'READONLY':
      return `database ${path} is read-only`;
    case 'FULL':
      return `database ${path} cannot be opened: its disk is full; make room there first (df -h)`;
    case 'NOTADB':
      return `${path} is not a SQLite database`;
    case 'CORRUPT':
      return `database ${path} is damaged: ${messageOf(error)}`;
    default:
      return `database ${path} cannot be opened: ${messageOf(error)}`;
  }
}
