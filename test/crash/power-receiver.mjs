/**
 * Serves `/sync` of a node or of a hub on a loopback port until its input ends; says `listening <port>` when it does.
 * A node writes a row of its own after each batch, at the application's `synchronous`: nobody promises that those survive.
 */
import { writeSync } from 'node:fs';
import http from 'node:http';
import { attach, createHub, createListener, openDatabase } from './kill-library.mjs';

const [kind, path, journal] = process.argv.slice(2);
const db = await openDatabase(path, { journal, table: kind === 'node' });
// Small, so that checkpoints fall between the batches.
db.exec('PRAGMA wal_autocheckpoint = 25');
const manager =
  kind === 'hub' ? await createHub(db, { id: 'hub', edges: [] }) : attach(db, { id: 'receiver', peers: [] }, ['items']);
const server = http.createServer(createListener(manager));
server.listen(0, '127.0.0.1', () => writeSync(1, `listening ${server.address().port}\n`));
let own = 0;
if (kind === 'node') {
  manager.on('applied', () =>
    setImmediate(() => {
      own += 1;
      db.exec(`INSERT INTO items VALUES ('own-${own}', 'written here', ${own}, 1, ${Date.now()})`);
    }),
  );
}
process.stdin.on('end', () => process.exit(0)).resume();
