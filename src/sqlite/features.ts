/** What Rowcast needs of SQLite, and what it makes use of where it is there. */
import { RowcastError } from '../errors.ts';
import type { Connection } from './connection.ts';
import { fold } from './sql.ts';

/** What this SQLite can do beyond the version that is required. */
export interface Features {
  /** jsonb_each: the whole batch is merged without a JavaScript object ever being made. */
  jsonb: boolean;
}

/** octet_length, unhex, `unixepoch('subsec')`, exact printing of REAL. */
const SQLITE_VERSION_MIN = [3, 43, 0];

/** What this SQLite can do. */
export function featuresOf(db: Connection): Features {
  return { jsonb: probes(db, "SELECT 1 FROM jsonb_each(jsonb('[1]'))") };
}

/** Refuses a database that is not for Rowcast, before anything in it is changed. */
export function requireSuited(db: Connection): void {
  requireVersion(db);
  requireUtf8(db);
  requireTableFunctions(db);
}

export function requireVersion(db: Connection): void {
  const version = db.get('SELECT sqlite_version() AS v')?.v;
  // Of one binding this is an option of the handle, which is undone where it can be; of others, of each statement.
  if (typeof version !== 'string') {
    throw new RowcastError('INVALID_DATABASE', 'the database handle gives rows without the names of their columns', {
      hint: 'open it without returnArrays, and let its statements be as prepare() gives them, without raw() or pluck()',
    });
  }
  const parts = version.split('.').map(Number);
  const order =
    SQLITE_VERSION_MIN.map((least, i) => (parts[i] ?? 0) - least).find((difference) => difference !== 0) ?? 0;
  if (order >= 0) return;
  throw new RowcastError('INVALID_DATABASE', `SQLite ${version} is too old`, {
    hint: `Rowcast needs ${SQLITE_VERSION_MIN.join('.')} or newer: update the binding`,
  });
}

/** Bodies are made and read as bytes by SQLite itself, in the encoding of the database. */
function requireUtf8(db: Connection): void {
  const encoding = String(db.get('PRAGMA encoding')?.encoding);
  if (encoding === 'UTF-8') return;
  throw new RowcastError('INVALID_DATABASE', `the database is encoded in ${encoding}`, {
    hint: 'Rowcast needs UTF-8: copy the data into a new database',
  });
}

/** The functions that are asked like tables, and are needed from the first moment on. */
const TABLE_FUNCTIONS = [
  'json_each',
  'pragma_foreign_key_list',
  'pragma_index_list',
  'pragma_index_xinfo',
  'pragma_table_list',
  'pragma_table_xinfo',
];

/** A table of such a name, in whichever database of the connection, stands before the function. */
function requireTableFunctions(db: Connection): void {
  const tables = db.all<{ name: string; type: string }>('PRAGMA table_list');
  const hiding = tables.find(({ name }) => TABLE_FUNCTIONS.includes(fold(name)));
  if (!hiding) return;
  const what = hiding.type === 'view' ? 'view' : 'table';
  throw new RowcastError('INVALID_DATABASE', `the ${what} "${hiding.name}" hides SQLite's function of that name`, {
    hint: `Rowcast needs the function: give the ${what} another name`,
  });
}

function probes(db: Connection, sql: string): boolean {
  try {
    return db.get(sql) !== undefined;
  } catch {
    return false;
  }
}
