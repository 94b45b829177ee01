/**
 * node:sqlite's sessions over HTTP, as one would write it in an afternoon: a changeset after every transaction, posted in
 * order over a kept connection, applied as it comes.
 */

import http from 'node:http';
import { DatabaseSync } from 'node:sqlite';
import { createTable } from '../../lib/rows.mjs';
import { serveClient } from '../client.mjs';

/** What applyChangeset does with a row that is there already: the newcomer wins, whatever its time. */
const REPLACE = 2;

let db;
let server;
let session;
let target;
let insert;
let looked;
let onApplied = () => {};
let sending = Promise.resolve();
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

await serveClient({
  async connect({ path, other }) {
    db = new DatabaseSync(path);
    db.exec('PRAGMA journal_mode = WAL');
    // The sender's own commits as everywhere here; the receiver's are flushed before it answers.
    db.exec(`PRAGMA synchronous = ${other ? 'NORMAL' : 'FULL'}`);
    db.exec(createTable());
    insert = db.prepare('INSERT INTO items VALUES (?, ?, ?, ?, ?)');
    looked = db.prepare('SELECT 1 FROM items WHERE id = ?');
    target = other;
    if (other) {
      session = db.createSession({ table: 'items' });
      return undefined;
    }
    server = http.createServer(async (request, response) => {
      const body = Buffer.concat(await request.toArray());
      db.applyChangeset(body, { onConflict: () => REPLACE });
      response.end('ok');
      onApplied();
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${server.address().port}`;
  },
  write(rows) {
    db.exec('BEGIN');
    for (const row of rows) insert.run(...row);
    db.exec('COMMIT');
    const changeset = session.changeset();
    session.close();
    session = db.createSession({ table: 'items' });
    sending = sending.then(() => post(changeset));
  },
  settled: () => sending,
  present: (id) => looked.get(id) !== undefined,
  watch: (wanted, arrived) =>
    new Promise((resolve) => {
      let at = 0;
      onApplied = () => {
        while (at < wanted.length && looked.get(wanted[at]) !== undefined) arrived(wanted[at++]);
        if (at === wanted.length) resolve();
      };
    }),
  rows: () =>
    db
      .prepare('SELECT id, name, value FROM items')
      .all()
      .map((row) => Object.values(row)),
  close() {
    agent.destroy();
    server?.closeAllConnections();
    server?.close();
    db.close();
  },
});

function post(body) {
  return new Promise((resolve, reject) => {
    const request = http.request(target, { method: 'POST', agent, headers: { 'content-length': body.length } });
    request.on('error', reject);
    request.on('response', (response) => {
      response.resume();
      response.on('end', () =>
        response.statusCode === 200 ? resolve() : reject(new Error(`HTTP ${response.statusCode}`)),
      );
    });
    request.end(body);
  });
}
