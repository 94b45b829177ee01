/** Writes rounds of rows at `synchronous = NORMAL`, ships each round, and ends by itself. */
import { attach, openDatabase } from './kill-library.mjs';

const [path, peer, journal, rounds] = process.argv.slice(2);
const db = await openDatabase(path, { journal });
// Small, so that checkpoints fall between the rounds.
db.exec('PRAGMA wal_autocheckpoint = 25');
const manager = attach(db, { id: 'sender', peers: [peer], batchMs: 3_600_000, batchSize: 4 }, ['items']);
for (let n = 1; n <= Number(rounds); n++) {
  for (const part of ['a', 'b', 'c', 'd']) {
    db.exec(`INSERT INTO items VALUES ('${n}-${part}', 'round ${n}', ${n}, ${n}, ${Date.now()})`);
  }
  const shipping = manager.flush();
  // While the first batches are on their way: changes that the flush before them knows nothing of.
  db.exec(`UPDATE items SET name = 'changed in ${n}', updated_at = ${Date.now()} WHERE id = '${n >> 1}-b'`);
  db.exec(`DELETE FROM items WHERE id = '${n - 1}-c'`);
  const { delivered } = await shipping;
  if (delivered.length !== 1) throw new Error('not delivered');
}
await manager.stop();
process.exit(0);
