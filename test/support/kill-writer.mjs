/**
 * Writes without end and says on stdout what is committed, one line each, until it is killed:
 * `+ id n` a row that now has the value n, `? id` a row about to be deleted, `- id` a row that is deleted.
 * With `drain` as its third argument it only ships what is left, and ends.
 */
import { writeSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { attach, openDatabase } from './kill-library.mjs';

const [path, peer, mode] = process.argv.slice(2);
const db = await openDatabase(path);
const manager = attach(db, { id: 'writer', peers: [peer], batchMs: 1, batchSize: 20 }, ['items']);

if (mode === 'drain') {
  const { delivered } = await manager.flush();
  await manager.stop();
  writeSync(1, delivered.length === 1 ? 'drained\n' : 'unreachable\n');
  process.exit(0);
}

// Not buffered: a line is in the pipe before the next write begins, whenever the kill comes.
const say = (line) => writeSync(1, `${line}\n`);
const own = [];
for (let n = 1; ; n++) {
  const id = `${process.pid}-${n}`;
  db.exec(`INSERT INTO items VALUES ('${id}', 'new', ${n}, 1, ${Date.now()})`);
  say(`+ ${id} ${n}`);
  own.push(id);
  if (n % 3 === 0) {
    const changed = own[n % own.length];
    db.exec(`UPDATE items SET value = ${n}, updated_at = ${Date.now()} WHERE id = '${changed}'`);
    say(`+ ${changed} ${n}`);
  }
  if (n % 5 === 0) {
    const [gone] = own.splice(n % own.length, 1);
    say(`? ${gone}`);
    db.exec(`DELETE FROM items WHERE id = '${gone}'`);
    say(`- ${gone}`);
  }
  await setImmediate();
}
