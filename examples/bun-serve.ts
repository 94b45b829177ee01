// Bun.serve and bun:sqlite. Two nodes, in two terminals, from the root of the repository:
//   bun examples/bun-serve.ts a 8001 a.db http://127.0.0.1:8002
//   bun examples/bun-serve.ts b 8002 b.db http://127.0.0.1:8001
// Write on one, read on the other:
//   curl -d 'hello' 127.0.0.1:8001/notes
//   curl 127.0.0.1:8002/notes
import { Database } from 'bun:sqlite';
import { attach } from 'rowcast';
import { createHandler } from 'rowcast/http';

const [id = '', port, file = '', ...peers] = process.argv.slice(2);
if (file === '') {
  console.error('usage: bun examples/bun-serve.ts <id> <port> <database file> <peer URL>...');
  process.exit(2);
}
const db = new Database(file, { create: true });
db.run('PRAGMA journal_mode = WAL');
db.run('CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, text TEXT, updated_at INTEGER)');

const manager = attach(db, { id, peers }, ['notes']);
manager.on('peer-down', ({ peer, reason }) => console.log(`${peer} is down: ${reason}`));
manager.on('error', ({ message }) => console.error(message));
const rowcast = createHandler(manager);

const list = () => Response.json(db.query('SELECT * FROM notes ORDER BY updated_at').all());
const server = Bun.serve({
  hostname: '127.0.0.1',
  port: Number(port),
  routes: {
    '/sync': rowcast,
    '/sync/compare': rowcast,
    '/sync/fetch': rowcast,
    '/health': rowcast,
    '/notes': {
      GET: list,
      POST: async (request) => {
        db.query('INSERT INTO notes VALUES (?, ?, ?)').run(Bun.randomUUIDv7(), await request.text(), Date.now());
        return list();
      },
    },
  },
});

async function stop() {
  await server.stop();
  await manager.stop();
  db.close();
}
process.once('SIGTERM', stop).once('SIGINT', stop);
