/** `-store`: the database of PostgreSQL that a group of hubs shares. Its password is never on a command line, nor in a log. */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { messageOf } from '../errors.ts';
import type { PostgresDriver } from '../hub/postgres/driver.ts';
import { readText } from './config-file.ts';
import { text, UsageError } from './flags.ts';
import { StartError } from './listen.ts';

export const storeFlags = {
  store: {
    ...text(
      'url',
      'Share a database of PostgreSQL with other processes of the same -id: postgres://rowcast@db/rowcast.\n' +
        'Then -db is not used. A password is in ROWCAST_STORE, -store-file or PGPASSWORD.',
    ),
    optional: true as const,
    parse: parseStore,
  },
  storeFile: {
    ...text('file', 'A file with that URL, which may have the password in it.'),
    optional: true as const,
    parse: (value: string): string | undefined => value,
  },
};

interface StoreValues {
  store: string | undefined;
  storeFile: string | undefined;
}

/** The URL with all that is in it; undefined where none is given. */
export function storeOf({ store, storeFile }: StoreValues, args: string[]): string | undefined {
  const secret = args.find((arg) => passwordOf(arg.replace(/^--?store=/, '')) !== '');
  if (secret !== undefined) {
    throw new UsageError(
      '-store has a password in it, and every user of this machine can read command lines: ' +
        'use ROWCAST_STORE, or -store-file, or leave it out and set PGPASSWORD',
    );
  }
  if (store !== undefined && storeFile !== undefined) {
    throw new UsageError('-store and -store-file are both given: use one of them');
  }
  if (storeFile === undefined) return store;
  try {
    return parseStore(readText('-store-file', storeFile).trim());
  } catch (error) {
    throw error instanceof UsageError ? new UsageError(`-store-file ${storeFile}: ${error.message}`) : error;
  }
}

/** As it may be shown. */
export function shownStore(url: string): string {
  const shown = new URL(url);
  shown.password = '';
  // Files of certificates and the like are nobody's business; a password may be here as well.
  shown.search = '';
  return shown.href;
}

/** From beside this package, or from the folder the program was started in. */
export function loadDriver(): PostgresDriver {
  let failure: unknown;
  for (const from of [import.meta.url, join(process.cwd(), 'package.json')]) {
    try {
      return createRequire(from)('pg') as PostgresDriver;
    } catch (error) {
      failure ??= error;
    }
  }
  const isMissing = (failure as { code?: string }).code === 'MODULE_NOT_FOUND';
  const why = isMissing ? 'it is not installed' : messageOf(failure);
  throw new StartError(`-store needs the package pg: ${why} (npm install pg)`, { cause: failure });
}

/** The message says nothing of what was given: there may be a password in it. */
function parseStore(value: string): string | undefined {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url && (url.protocol === 'postgres:' || url.protocol === 'postgresql:')) return value;
  throw new UsageError('must be a URL: postgres://user@host:5432/database');
}

function passwordOf(text: string): string {
  if (!/^postgres(ql)?:/.test(text) || !URL.canParse(text)) return '';
  const url = new URL(text);
  return url.password || (url.searchParams.get('password') ?? '');
}
