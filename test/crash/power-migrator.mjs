/** Writes rows that no peer has yet, migrates, writes once more, and ends by itself. Two files say when it migrates. */
import { closeSync, openSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { attach, openDatabase } from './kill-library.mjs';

const [path, journal, migration] = process.argv.slice(2);
const mark = (name) => closeSync(openSync(join(dirname(path), name), 'ax'));
const db = await openDatabase(path, { journal });
// Small, so that checkpoints fall between the writes.
db.exec('PRAGMA wal_autocheckpoint = 25');
const manager = attach(db, { id: 'node', peers: ['http://127.0.0.1:9'], batchMs: 3_600_000 }, ['items']);
for (let n = 1; n <= 60; n++) {
  db.exec(`INSERT INTO items VALUES ('row-${n}', 'name ${n}', ${n}, 1, ${1_700_000_000_000 + n})`);
}
db.exec("UPDATE items SET name = 'changed', updated_at = 1700000001000 WHERE value % 7 = 0");
db.exec('DELETE FROM items WHERE value % 11 = 0');
mark('begun.db');
const { sql, options, after } = JSON.parse(migration);
manager.migrate(sql, options);
mark('done.db');
const [, name] = after.columns;
db.exec(`INSERT INTO ${after.table} (id, ${name}, created_at, updated_at) VALUES ('late', 'x', 1, 1700000002000)`);
await manager.stop();
process.exit(0);
