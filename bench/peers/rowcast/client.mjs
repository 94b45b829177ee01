/** Rowcast as a client of the comparison: the same library, asked in the same words as the others. */
import http from 'node:http';
import { openFile } from '../../lib/open.mjs';
import { createTable } from '../../lib/rows.mjs';
import { serveClient } from '../client.mjs';

let db;
let manager;
let server;
let insert;
let looked;

await serveClient({
  async connect({ path, dist, other }) {
    const { attach } = await import(new URL('index.js', dist));
    const { createListener } = await import(new URL('http/index.js', dist));
    const opened = await openFile(path, 'better-sqlite3', dist);
    db = opened.db;
    db.exec(createTable());
    insert = db.prepare('INSERT INTO items VALUES (?, ?, ?, ?, ?)');
    looked = db.prepare('SELECT 1 FROM items WHERE id = ?');
    manager = attach(opened.handle, { id: other ? 'a' : 'b', peers: other ? [other] : [] }, ['items']);
    server = http.createServer(createListener(manager));
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${server.address().port}`;
  },
  write(rows) {
    db.exec('BEGIN');
    for (const row of rows) insert.run(...row);
    db.exec('COMMIT');
    manager.nudge();
  },
  /** Acknowledged, and pruned. */
  async settled() {
    const left = db.prepare('SELECT 1 FROM _changes LIMIT 1');
    while (left.get()) await manager.flush();
  },
  present: (id) => looked.get(id) !== undefined,
  watch: (wanted, arrived) =>
    new Promise((resolve) => {
      let missing = wanted.length;
      manager.on('applied', ({ rows }) => {
        for (const { id } of rows) arrived(id);
        missing -= rows.length;
        if (missing === 0) resolve();
      });
    }),
  rows: () => db.prepare('SELECT id, name, value FROM items').raw().all(),
  async close() {
    server.closeAllConnections();
    server.close();
    await manager.stop();
    db.close();
  },
});
