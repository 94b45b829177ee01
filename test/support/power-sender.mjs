/** Writes two rounds of rows and ships each; ends by itself. The second round is the one to look at. */
import { attach, openDatabase } from './kill-library.mjs';

const [path, peer] = process.argv.slice(2);
const db = await openDatabase(path);
const manager = attach(db, { id: 'sender', peers: [peer], batchMs: 3_600_000 }, ['items']);
for (const round of ['first', 'second']) {
  db.exec(`INSERT INTO items VALUES ('${round}', 'round-${round}', 1, 1, 1000)`);
  const { delivered } = await manager.flush();
  if (delivered.length !== 1) throw new Error('not delivered');
}
await manager.stop();
process.exit(0);
