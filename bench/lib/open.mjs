/** Opens a database the way an application does: WAL, `synchronous = NORMAL`, whichever binding the runtime has. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/**
 * `handle` is for `attach`, `db` for the application: on node:sqlite they are two faces of one connection.
 * `dist` is the URL of the build that is measured, because the adapter for node:sqlite is part of it.
 */
export async function openFile(file, binding, dist) {
  const { db, handle } = await OPEN[binding](file, dist);
  db.exec('PRAGMA busy_timeout = 5000');
  db.exec('PRAGMA journal_mode = WAL');
  db.exec('PRAGMA synchronous = NORMAL');
  const { version } = db.prepare('SELECT sqlite_version() AS version').get();
  return { db, handle, sqlite: version };
}

const OPEN = {
  'better-sqlite3': (file) => {
    const db = new (require('better-sqlite3'))(file);
    return { db, handle: db };
  },
  'bun-sqlite': (file) => {
    const db = new (require('bun:sqlite').Database)(file, { create: true, readwrite: true });
    return { db, handle: db };
  },
  'node-sqlite': async (file, dist) => {
    // An earlier commit, measured beside this one, has it in another folder.
    const places = ['sqlite/node-sqlite.js', 'adapters/node-sqlite.js'].map((file) => new URL(file, dist));
    const { fromNodeSqlite } = await import(places.find((place) => existsSync(place)));
    const db = new (require('node:sqlite').DatabaseSync)(file);
    return { db, handle: fromNodeSqlite(db) };
  },
};

/** What was loaded, for the report. */
export function bindingVersion(binding) {
  if (binding === 'better-sqlite3') return `better-sqlite3 ${require('better-sqlite3/package.json').version}`;
  return binding === 'bun-sqlite' ? `bun:sqlite of Bun ${process.versions.bun}` : `node:sqlite of ${process.version}`;
}
