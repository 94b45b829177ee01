/** What the child processes of the durability tests share: the built library, and a database of the lane under test. */
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const library = process.env.ROWCAST_BUILD;

export const { attach } = await import(`${library}/index.js`);
export const { createListener } = await import(`${library}/http/index.js`);
export const { createHub } = await import(`${library}/hub/hub.js`);

export const ITEMS =
  'CREATE TABLE IF NOT EXISTS items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER)';

/**
 * Synchronous NORMAL on every binding: whatever is durable beyond that is so because the library made it so. Without a WAL
 * it is FULL, below which SQLite itself does not promise that a power cut leaves the database whole.
 */
export async function openDatabase(path, { journal = 'WAL', table = true } = {}) {
  const db = await openHandle(path);
  db.exec('PRAGMA busy_timeout = 5000');
  db.exec(`PRAGMA journal_mode = ${journal}`);
  db.exec(`PRAGMA synchronous = ${journal === 'WAL' ? 'NORMAL' : 'FULL'}`);
  if (table) db.exec(ITEMS);
  return db;
}

async function openHandle(path) {
  if (process.versions.bun !== undefined) return new (require('bun:sqlite').Database)(path);
  if (process.env.ROWCAST_LANE === 'node-sqlite') {
    const { fromNodeSqlite } = await import(`${library}/sqlite/node-sqlite.js`);
    return fromNodeSqlite(new (require('node:sqlite').DatabaseSync)(path));
  }
  // The path of the binding is the parent's, which knows which version fits this Node.
  return new (require(process.env.ROWCAST_BETTER_SQLITE3))(path);
}
