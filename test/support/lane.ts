/** The binding under test. One set of test files runs once per lane; a test opens its database here and nowhere else. */
import { createRequire } from 'node:module';
import type { Database } from '../../src/sqlite/connection.ts';

export type LaneName = 'better-sqlite3' | 'node-sqlite' | 'bun-sqlite';

export const lane: LaneName =
  process.versions.bun !== undefined
    ? 'bun-sqlite'
    : process.env.ROWCAST_LANE === 'node-sqlite'
      ? 'node-sqlite'
      : 'better-sqlite3';

/** A database as a test wants it: Rowcast's own contract and `close`. */
export interface TestDatabase extends Database {
  close(): void;
}

/** node:sqlite and better-sqlite3 13 are not there on Node 20, and bun:sqlite only on Bun: required by name, at run time. */
const require = createRequire(import.meta.url);

export async function openDatabase(path = ':memory:', options: { readonly?: boolean } = {}): Promise<TestDatabase> {
  if (lane === 'bun-sqlite') {
    const { Database: Bun } = require('bun:sqlite');
    return new Bun(path, options.readonly ? { readonly: true } : { create: true, readwrite: true });
  }
  if (lane === 'node-sqlite') {
    const { DatabaseSync } = require('node:sqlite');
    const { fromNodeSqlite } = await import('../../src/sqlite/node-sqlite.ts');
    const db = new DatabaseSync(path, { readOnly: options.readonly ?? false });
    return Object.assign(fromNodeSqlite(db), { close: () => void (db.isOpen && db.close()) });
  }
  const BetterSqlite3 = require(betterSqlite3());
  return new BetterSqlite3(path, { readonly: options.readonly ?? false });
}

let found: string | undefined;

/** The one that the lane names; else the project's own, where it is compiled for this Node; else that of test/lanes. */
export function betterSqlite3(): string {
  found ??= process.env.ROWCAST_BETTER_SQLITE3 || (worksHere('better-sqlite3') ? 'better-sqlite3' : ofTheLanes());
  return found;
}

function worksHere(name: string): boolean {
  try {
    const BetterSqlite3 = require(name);
    new BetterSqlite3(':memory:').close();
    return true;
  } catch {
    return false;
  }
}

function ofTheLanes(): string {
  return require.resolve('better-sqlite3', { paths: [new URL('../lanes', import.meta.url).pathname] });
}
