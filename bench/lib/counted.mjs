/** The work whose instructions are counted, in one process: `node counted.mjs <dist> <file> nothing|capture|receive <rows>`. */
import { openFile } from './open.mjs';
import { columnNames, createTable, makeRow, rowId } from './rows.mjs';

const [dist, path, work, count] = process.argv.slice(2);
const rows = work === 'nothing' ? 0 : Number(count);
const { attach } = await import(new URL('index.js', dist));
const { db, handle } = await openFile(path, 'better-sqlite3', dist);
db.exec(createTable());
const peers = ['http://127.0.0.1:9'];
const manager = attach(handle, { id: 'a', peers, random: () => 1, batchMs: 3_600_000 }, ['items']);

/** Both kinds of work go through the same rows three times: written, changed, removed. */
const TIMES = [1_750_000_000_000, 1_750_000_001_000];

if (work === 'receive') {
  for (const op of ['INSERT', 'UPDATE', 'DELETE']) {
    for (let from = 0; from < rows; from += 1_000) {
      const { body } = manager.receive(batch(op, from), { from: 'bench' });
      if (body.applied !== 1_000) throw new Error(`wrong result: ${JSON.stringify(body)}`);
    }
  }
} else {
  const statements = [
    [db.prepare('INSERT INTO items VALUES (?, ?, ?, ?, ?)'), (i) => makeRow(i, { now: TIMES[0] })],
    [
      db.prepare('UPDATE items SET name = ?, updated_at = ? WHERE id = ?'),
      (i) => [`item ${i}, again`, TIMES[1], rowId(i)],
    ],
    [db.prepare('DELETE FROM items WHERE id = ?'), (i) => [rowId(i)]],
  ];
  for (const [statement, parameters] of statements) {
    for (let from = 0; from < rows; from += 1_000) {
      db.exec('BEGIN');
      for (let i = from; i < from + 1_000; i++) statement.run(...parameters(i));
      db.exec('COMMIT');
    }
  }
  const { n } = db.prepare('SELECT count(*) AS n FROM _changes').get();
  if (n !== rows * 3) throw new Error(`wrong result: ${n} changes captured`);
}
await manager.stop();
db.close();

function batch(op, from) {
  const names = columnNames();
  const changes = Array.from({ length: 1_000 }, (_, i) => {
    const values = makeRow(from + i, { now: op === 'INSERT' ? TIMES[0] : TIMES[1] });
    const row = Object.fromEntries(names.map((name, c) => [name, values[c]]));
    return { op, table: 'items', row, old_id: op === 'DELETE' ? values[0] : null };
  });
  return Buffer.from(JSON.stringify({ batch_id: from + 1_000, changes }));
}
