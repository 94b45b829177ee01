/**
 * A node that serves, writes and ships until it is killed, and says what it does on stdout, one line each:
 * `ready`, then `+ id n` a row of its own that is committed with the value n, `? id` a row about to be deleted, `- id` a row
 * that is deleted, `a n` n changes that the peer has acknowledged. Started with `drain` it writes nothing, and says
 * `drained` when its peer has everything. It ends when its input does.
 */
import { writeSync } from 'node:fs';
import http from 'node:http';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { attach, createListener, openDatabase } from './kill-library.mjs';

const [id, path, port, peer, life, mode] = process.argv.slice(2);
process.stdin.on('end', () => process.exit(0)).resume();

// Not buffered: a line is in the pipe before the next write begins, whenever the kill comes.
const say = (line) => writeSync(1, `${line}\n`);
const db = await openDatabase(path);
const manager = attach(db, { id, peers: [peer], batchMs: 1, batchSize: 20 }, ['items']);
manager.on('acked', ({ changes }) => say(`a ${changes}`));
await listen(http.createServer(createListener(manager)));
say('ready');
if (mode === 'drain') await drain();
else await write();

/** A connection of another process may hold the port for a moment. */
async function listen(server) {
  for (;;) {
    const failed = await new Promise((resolve) => {
      server.once('error', resolve).listen(Number(port), '127.0.0.1', () => resolve(undefined));
    });
    if (failed?.code !== 'EADDRINUSE') return;
    await sleep(10);
  }
}

async function drain() {
  while ((await manager.flush()).unreachable.length > 0) await sleep(5);
  say('drained');
}

async function write() {
  const own = [];
  const backlog = db.prepare('SELECT count(*) AS n FROM _changes');
  for (let n = 1; ; n++) {
    insert(`${id}-${life}-${n}`, n, own);
    if (n % 3 === 0) {
      const changed = own[(7 * n) % own.length];
      db.exec(`UPDATE items SET value = ${n}, updated_at = ${Date.now()} WHERE id = '${changed}'`);
      say(`+ ${changed} ${n}`);
    }
    if (n % 4 === 0) several(n, own);
    if (n % 5 === 0) {
      const [gone] = own.splice((3 * n) % own.length, 1);
      say(`? ${gone}`);
      db.exec(`DELETE FROM items WHERE id = '${gone}'`);
      say(`- ${gone}`);
    }
    // Rows that both nodes write: whoever is later wins, and both must agree who that was.
    if (n % 2 === 0) {
      db.exec(
        `INSERT INTO items VALUES ('shared-${n % 10}', '${id}', ${n}, 1, ${Date.now()}) ` +
          'ON CONFLICT (id) DO UPDATE SET name = excluded.name, value = excluded.value, updated_at = excluded.updated_at',
      );
    }
    // No faster than it is taken away, or the last drain is all that the test does.
    if (backlog.get().n > 300) await sleep(2);
    else await turn();
  }
}

function insert(row, n, own) {
  db.exec(`INSERT INTO items VALUES ('${row}', 'new', ${n}, 1, ${Date.now()})`);
  say(`+ ${row} ${n}`);
  own.push(row);
}

/** Three rows in one transaction, or none of them. */
function several(n, own) {
  const rows = ['x', 'y', 'z'].map((part) => `${id}-${life}-${n}-${part}`);
  db.exec('BEGIN');
  for (const row of rows) db.exec(`INSERT INTO items VALUES ('${row}', 'together', ${n}, 1, ${Date.now()})`);
  if (n % 12 === 0) return db.exec('ROLLBACK');
  db.exec('COMMIT');
  for (const row of rows) say(`+ ${row} ${n}`);
  own.push(...rows);
}
