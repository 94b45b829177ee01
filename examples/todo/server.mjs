// A to-do list on two nodes that shows what others do as it happens. In two terminals, from the root of the repository:
//   node examples/todo/server.mjs a 8001 a.db http://127.0.0.1:8002
//   node examples/todo/server.mjs b 8002 b.db http://127.0.0.1:8001
// Then open http://127.0.0.1:8001 and http://127.0.0.1:8002 side by side. Stop one, go on with the other, start it again.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import Database from 'better-sqlite3';
import { attach } from 'rowcast';
import { createChangesListener, createListener } from 'rowcast/http';

const [id, port, file, ...peers] = process.argv.slice(2);
if (file === undefined) {
  console.error('usage: node examples/todo/server.mjs <id> <port> <database file> <peer URL>...');
  process.exit(2);
}
const db = new Database(file);
db.pragma('journal_mode = WAL');
db.exec('CREATE TABLE IF NOT EXISTS todos (id TEXT PRIMARY KEY, title TEXT, done INTEGER, updated_at INTEGER)');

const manager = attach(db, { id, peers, feed: { keep: 10_000 } }, ['todos']);
manager.on('peer-down', ({ peer, reason }) => console.log(`${peer} is down: ${reason}`));
manager.on('error', ({ message }) => console.error(message));
const closing = new AbortController();
const changes = createChangesListener(manager, { signal: closing.signal }); // GET /_rowcast/changes
const rowcast = createListener(manager); // POST /sync, /sync/compare and /sync/fetch, GET /health
const page = readFileSync(new URL('index.html', import.meta.url));

const server = http.createServer(async (request, response) => {
  const [path] = request.url.split('?');
  if (path === '/') return response.setHeader('content-type', 'text/html; charset=utf-8').end(page);
  if (path === '/_rowcast/changes') return changes(request, response);
  if (!path.startsWith('/todos')) return rowcast(request, response);
  if (request.method !== 'GET') {
    // A page of another site may send text to any address, but not JSON.
    if (request.headers['content-type'] !== 'application/json') return response.writeHead(415).end();
    const { title = '', done = 0 } = JSON.parse(Buffer.concat(await request.toArray()).toString() || '{}');
    const todo = path.slice('/todos/'.length) || randomUUID();
    if (request.method === 'DELETE') db.prepare('DELETE FROM todos WHERE id = ?').run(todo);
    else {
      const sql =
        'INSERT INTO todos VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET title = excluded.title, done = excluded.done, updated_at = excluded.updated_at';
      db.prepare(sql).run(todo, String(title), done ? 1 : 0, Date.now());
    }
    manager.nudge();
  }
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ node: id, todos: db.prepare('SELECT * FROM todos ORDER BY id').all() }));
});
server.listen(Number(port), '127.0.0.1');

async function stop() {
  closing.abort();
  server.close();
  await manager.stop();
  db.close();
}
process.once('SIGTERM', stop).once('SIGINT', stop);
