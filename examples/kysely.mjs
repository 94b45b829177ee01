// Kysely on better-sqlite3: the application's queries stay what they are. Two nodes, in two terminals:
//   node examples/kysely.mjs a 8001 a.db http://127.0.0.1:8002
//   node examples/kysely.mjs b 8002 b.db http://127.0.0.1:8001
// Write on one, read on the other:
//   curl -d 'hello' 127.0.0.1:8001/notes
//   curl 127.0.0.1:8002/notes
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import Database from 'better-sqlite3';
import { Kysely, SqliteDialect } from 'kysely';
import { attach } from 'rowcast';
import { createListener } from 'rowcast/http';

const [id, port, file, ...peers] = process.argv.slice(2);
if (file === undefined) {
  console.error('usage: node examples/kysely.mjs <id> <port> <database file> <peer URL>...');
  process.exit(2);
}
const database = new Database(file);
database.pragma('journal_mode = WAL');
const db = new Kysely({ dialect: new SqliteDialect({ database }) });
const table = db.schema
  .createTable('notes')
  .ifNotExists()
  .addColumn('id', 'text', (column) => column.primaryKey());
await table.addColumn('text', 'text').addColumn('updated_at', 'integer').execute();

const manager = attach(database, { id, peers }, ['notes']); // the handle that Kysely uses
manager.on('peer-down', ({ peer, reason }) => console.log(`${peer} is down: ${reason}`));
manager.on('error', ({ message }) => console.error(message));
const rowcast = createListener(manager);

const server = http.createServer(async (request, response) => {
  if (request.url !== '/notes') return rowcast(request, response);
  if (request.method === 'POST') {
    const text = Buffer.concat(await request.toArray()).toString();
    await db.insertInto('notes').values({ id: randomUUID(), text, updated_at: Date.now() }).execute();
  }
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(await db.selectFrom('notes').selectAll().orderBy('updated_at').execute()));
});
server.listen(Number(port), '127.0.0.1');

async function stop() {
  server.close();
  await manager.stop();
  await db.destroy();
}
process.once('SIGTERM', stop).once('SIGINT', stop);
