/** PouchDB on LevelDB with live replication; the other side is express-pouchdb. */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { serveClient } from '../client.mjs';

const require = createRequire(import.meta.url);
const PouchDB = require('pouchdb-core')
  .plugin(require('pouchdb-adapter-leveldb'))
  .plugin(require('pouchdb-adapter-http'))
  .plugin(require('pouchdb-replication'))
  .plugin(require('pouchdb-mapreduce'));

let db;
let server;
let replication;

await serveClient({
  async connect({ path, other }) {
    const Local = PouchDB.defaults({ adapter: 'leveldb', prefix: join(path, '/') });
    db = new Local('items');
    await db.info();
    if (other) {
      // A name alone would be taken for a LevelDB: the defaults above are for this constructor's own databases.
      replication = db.replicate.to(new PouchDB(`${other}/items`), { live: true, retry: true, batch_size: 1_000 });
      replication.on('error', (error) => {
        throw error;
      });
      return undefined;
    }
    const app = require('express')();
    app.use(
      '/',
      require('express-pouchdb')(Local, {
        mode: 'minimumForPouchDB',
        inMemoryConfig: true,
        logPath: join(path, 'log'),
      }),
    );
    server = await new Promise((resolve) => {
      const listening = app.listen(0, '127.0.0.1', () => resolve(listening));
    });
    return `http://127.0.0.1:${server.address().port}`;
  },
  async write(rows) {
    const results = await db.bulkDocs(
      rows.map(([_id, name, value, created_at, updated_at]) => ({ _id, name, value, created_at, updated_at })),
    );
    if (results.some((result) => result.error)) throw new Error('bulkDocs refused a document');
  },
  present: (id) =>
    db.get(id).then(
      () => true,
      () => false,
    ),
  watch: (wanted, arrived) =>
    new Promise((resolve) => {
      let missing = wanted.length;
      const feed = db.changes({ live: true, since: 'now' });
      feed.on('change', ({ id }) => {
        arrived(id);
        missing -= 1;
        if (missing > 0) return;
        feed.cancel();
        resolve();
      });
    }),
  rows: async () => (await db.allDocs({ include_docs: true })).rows.map(({ doc }) => [doc._id, doc.name, doc.value]),
  async close() {
    replication?.cancel();
    server?.closeAllConnections();
    server?.close();
    await db.close();
  },
});
