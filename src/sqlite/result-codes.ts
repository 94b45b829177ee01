/** SQLite's result codes by name, read from whichever property a binding puts them into. */
import { RowcastError } from '../errors.ts';

const CODES = {
  ERROR: 1,
  INTERNAL: 2,
  PERM: 3,
  ABORT: 4,
  BUSY: 5,
  LOCKED: 6,
  NOMEM: 7,
  READONLY: 8,
  INTERRUPT: 9,
  IOERR: 10,
  CORRUPT: 11,
  NOTFOUND: 12,
  FULL: 13,
  CANTOPEN: 14,
  PROTOCOL: 15,
  SCHEMA: 17,
  TOOBIG: 18,
  CONSTRAINT: 19,
  MISMATCH: 20,
  MISUSE: 21,
  NOLFS: 22,
  AUTH: 23,
  RANGE: 25,
  NOTADB: 26,
} as const;

export type ResultCode = keyof typeof CODES;

/** What says nothing about the row that was being written: the same row may go through at another time, or elsewhere. */
const OF_THE_MACHINE: ReadonlySet<ResultCode> = new Set<ResultCode>([
  'INTERNAL',
  'PERM',
  'BUSY',
  'LOCKED',
  'NOMEM',
  'READONLY',
  'INTERRUPT',
  'IOERR',
  'CORRUPT',
  'FULL',
  'CANTOPEN',
  'PROTOCOL',
  'SCHEMA',
  'MISUSE',
  'NOLFS',
  'AUTH',
  'RANGE',
  'NOTADB',
]);

/** SQLite's primary result code by name; undefined when it is not SQLite's error. */
export function resultCode(error: unknown): ResultCode | undefined {
  const e = error as { errcode?: unknown; errno?: unknown; code?: unknown } | null | undefined;
  if (is(error, CORRUPT_VTAB)) return 'ERROR';
  // node:sqlite
  if (typeof e?.errcode === 'number') return nameOf(e.errcode);
  // better-sqlite3 and bun:sqlite, whose names may be those of extended codes, as in SQLITE_CONSTRAINT_CHECK.
  if (typeof e?.code === 'string') {
    const [, primary] = /^SQLITE_([A-Z]+)/.exec(e.code) ?? [];
    if (primary === undefined) return undefined;
    return primary in CODES ? (primary as ResultCode) : 'ERROR';
  }
  return typeof e?.errno === 'number' && e.errno > 0 ? nameOf(e.errno) : undefined;
}

export function isCode(error: unknown, ...names: ResultCode[]): boolean {
  const code = resultCode(error);
  return code !== undefined && names.includes(code);
}

/**
 * The machine is at fault and not the row: a full disk, a lock, a damaged file, a closed database. Everything else that
 * writing a row can throw is the row's own: a constraint, a type, a size, a RAISE in a trigger of the application, and an
 * exception of a function that the application has defined, which may come without any code.
 */
export function isMachineFault(error: unknown): boolean {
  if (error instanceof RowcastError) return true;
  const code = resultCode(error);
  return code !== undefined && OF_THE_MACHINE.has(code);
}

interface ExtendedCode {
  name: string;
  number: number;
}

const BUSY_SNAPSHOT = { name: 'SQLITE_BUSY_SNAPSHOT', number: 517 };
/**
 * A virtual table is not what it has to be, and nothing else is damaged: a full-text index of the application's that its triggers
 * do not keep up with its table. It is that write which fails.
 */
const CORRUPT_VTAB = { name: 'SQLITE_CORRUPT_VTAB', number: 267 };

/** Who reads the database as it was may not write to it as it is. */
export function isStale(error: unknown): boolean {
  return is(error, BUSY_SNAPSHOT);
}

function is(error: unknown, { name, number }: ExtendedCode): boolean {
  const e = error as { errcode?: unknown; errno?: unknown; code?: unknown } | null | undefined;
  return e?.code === name || e?.errcode === number || e?.errno === number;
}

/** An extended code has the primary one in its lowest byte. */
function nameOf(code: number): ResultCode {
  const primary = code & 0xff;
  return (Object.keys(CODES) as ResultCode[]).find((name) => CODES[name] === primary) ?? 'ERROR';
}
