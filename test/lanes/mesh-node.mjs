/** One node of mesh.mjs, on whichever runtime this is: answers a line with a line. */
import { createHash } from 'node:crypto';
import http from 'node:http';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { createListener } from '../../dist/src/http/index.js';
import { attach } from '../../dist/src/index.js';
import { fromNodeSqlite } from '../../dist/src/sqlite/node-sqlite.js';

// Not from this folder, whose better-sqlite3 is for newer ones than the present Node.
const require = createRequire(new URL('../../package.json', import.meta.url));
const [name, binding, port, file, ...peers] = process.argv.slice(2);
const db = open();
db.exec('PRAGMA journal_mode = WAL');
db.exec('CREATE TABLE IF NOT EXISTS items (id TEXT PRIMARY KEY, name TEXT, value, bytes BLOB, updated_at INTEGER)');
const manager = attach(db, { id: name, peers }, ['items']);
const server = http.createServer(createListener(manager));
await new Promise((resolve) => server.listen(Number(port), '127.0.0.1', resolve));

const answers = { hello, write, state, stop };
for await (const line of createInterface({ input: process.stdin })) {
  const { what, count } = JSON.parse(line);
  console.log(JSON.stringify({ name, ...(await answers[what](count)) }));
  // Nothing else keeps the process alive: it ends by itself, or the library has left something open.
  if (what !== 'stop') continue;
  process.stdin.destroy();
  break;
}

function hello() {
  const [{ version }] = db.prepare('SELECT sqlite_version() AS version').all();
  const { bun, deno, node } = process.versions;
  const runtime = deno ? `Deno ${deno}` : bun ? `Bun ${bun}` : `Node ${node}`;
  return { versions: `${runtime}, ${binding}, SQLite ${version}` };
}

/** Half of them are its own, half are the same rows on every node; every tenth of those is deleted again. */
async function write(count) {
  const insert = db.prepare(
    'INSERT INTO items VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET ' +
      'name = excluded.name, value = excluded.value, bytes = excluded.bytes, updated_at = excluded.updated_at',
  );
  for (let i = 0; i < count; i++) {
    const id = i % 2 === 0 ? `${name}-${i}` : `shared-${i}`;
    const value = [i, i / 3, `text ${i} ünï €`, null][i % 4];
    insert.run(id, `by ${name}`, value, new Uint8Array([i % 256, 0, 255]), Date.now());
    if (i % 20 === 19) db.exec(`DELETE FROM items WHERE id = '${id}'`);
    // The others' rows arrive in between.
    if (i % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return {};
}

/** Compared as JavaScript sees the values: two versions of SQLite need not print a REAL alike. */
function state() {
  const rows = db
    .prepare('SELECT id, name, typeof(value) AS type, value, hex(bytes) AS bytes, updated_at FROM items ORDER BY id')
    .all();
  const hash = createHash('sha256');
  for (const row of rows) hash.update(`${JSON.stringify(Object.values(row))}\n`);
  const health = manager.health();
  return {
    ok: health.ok,
    rows: rows.length,
    hash: hash.digest('hex'),
    pending: health.pending_changes,
    deadLetters: health.dead_letter,
  };
}

async function stop() {
  server.closeAllConnections();
  server.close();
  await manager.stop();
  db.close();
  return {};
}

function open() {
  if (binding === 'bun-sqlite') return new (require('bun:sqlite').Database)(file, { create: true, readwrite: true });
  if (binding === 'node-sqlite') {
    const inner = new (require('node:sqlite').DatabaseSync)(file);
    return Object.assign(fromNodeSqlite(inner), { close: () => inner.close() });
  }
  return new (require(process.env.ROWCAST_BETTER_SQLITE3 ?? 'better-sqlite3'))(file);
}
