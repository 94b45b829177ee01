// node:http and node:sqlite: no dependency at all (Node 22.13 or newer). Two nodes, in two terminals:
//   node examples/node-sqlite.mjs a 8001 a.db http://127.0.0.1:8002
//   node examples/node-sqlite.mjs b 8002 b.db http://127.0.0.1:8001
// Write on one, read on the other:
//   curl -d 'hello' 127.0.0.1:8001/notes
//   curl 127.0.0.1:8002/notes
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { DatabaseSync } from 'node:sqlite';
import { attach } from 'rowcast';
import { createListener } from 'rowcast/http';
import { fromNodeSqlite } from 'rowcast/node-sqlite';

const [id, port, file, ...peers] = process.argv.slice(2);
if (file === undefined) {
  console.error('usage: node examples/node-sqlite.mjs <id> <port> <database file> <peer URL>...');
  process.exit(2);
}
const db = new DatabaseSync(file);
db.exec('PRAGMA journal_mode = WAL');
db.exec('CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, text TEXT, updated_at INTEGER)');

const manager = attach(fromNodeSqlite(db), { id, peers }, ['notes']); // the only line that differs from the others
manager.on('peer-down', ({ peer, reason }) => console.log(`${peer} is down: ${reason}`));
manager.on('error', ({ message }) => console.error(message));
const rowcast = createListener(manager); // POST /sync, /sync/compare and /sync/fetch, GET /health

const server = http.createServer(async (request, response) => {
  if (request.url !== '/notes') return rowcast(request, response);
  if (request.method === 'POST') {
    const chunks = await request.toArray();
    db.prepare('INSERT INTO notes VALUES (?, ?, ?)').run(randomUUID(), Buffer.concat(chunks).toString(), Date.now());
  }
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(db.prepare('SELECT * FROM notes ORDER BY updated_at').all()));
});
server.listen(Number(port), '127.0.0.1');

async function stop() {
  server.close();
  await manager.stop();
  db.close();
}
process.once('SIGTERM', stop).once('SIGINT', stop);
