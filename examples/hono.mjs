// Hono and better-sqlite3. Two nodes, in two terminals, from the root of the repository:
//   node examples/hono.mjs a 8001 a.db http://127.0.0.1:8002
//   node examples/hono.mjs b 8002 b.db http://127.0.0.1:8001
// Write on one, read on the other:
//   curl -d 'hello' 127.0.0.1:8001/notes
//   curl 127.0.0.1:8002/notes
import { randomUUID } from 'node:crypto';
import { serve } from '@hono/node-server';
import Database from 'better-sqlite3';
import { Hono } from 'hono';
import { attach } from 'rowcast';
import { createHandler } from 'rowcast/http';

const [id, port, file, ...peers] = process.argv.slice(2);
if (file === undefined) {
  console.error('usage: node examples/hono.mjs <id> <port> <database file> <peer URL>...');
  process.exit(2);
}
const db = new Database(file);
db.pragma('journal_mode = WAL');
db.exec('CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, text TEXT, updated_at INTEGER)');

const manager = attach(db, { id, peers }, ['notes']);
manager.on('peer-down', ({ peer, reason }) => console.log(`${peer} is down: ${reason}`));
manager.on('error', ({ message }) => console.error(message));
const rowcast = createHandler(manager);

const app = new Hono();
for (const path of ['/sync', '/sync/compare', '/sync/fetch']) app.post(path, (c) => rowcast(c.req.raw));
app.get('/health', (c) => rowcast(c.req.raw));

const list = () => db.prepare('SELECT * FROM notes ORDER BY updated_at').all();
app.get('/notes', (c) => c.json(list()));
app.post('/notes', async (c) => {
  db.prepare('INSERT INTO notes VALUES (?, ?, ?)').run(randomUUID(), await c.req.text(), Date.now());
  return c.json(list());
});
const server = serve({ fetch: app.fetch, hostname: '127.0.0.1', port: Number(port) });

async function stop() {
  server.close();
  await manager.stop();
  db.close();
}
process.once('SIGTERM', stop).once('SIGINT', stop);
