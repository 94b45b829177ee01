/** The bound on the backlog at its size: a peer falls 100,000 changes of 1 kB behind, ten times what it may, and comes back. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { database, exactRows, ITEMS, rowsOf, scratchFolder } from '../support/nodes.ts';
import { receivers, sender } from '../support/receivers.ts';

const A = 'http://a.test';
const B = 'http://b.test';
const ROWS = 2_000;
const ROUNDS = 50;
const LIMIT = 10_000;

test('the file stays bounded, the other peer has everything all the time, and in the end all are equal', async () => {
  const path = join(scratchFolder(), 'node.db');
  const network = await receivers(A, B);
  const db = await database(ITEMS, path);
  const { manager, clock, events } = sender(db, network, [A, B], { maxBacklog: { changes: LIMIT } });
  db.exec(
    `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS}) ` +
      "INSERT INTO items SELECT printf('row-%05d', i), printf('%.1000c', 'x'), 0, 10, 1000 FROM n",
  );
  await manager.flush();
  network.away.add(B);
  let kept = 0;
  for (let round = 1; round <= ROUNDS; round++) {
    db.exec(`UPDATE items SET value = ${round}, updated_at = updated_at + 1`);
    const { delivered } = await manager.flush();
    expect(delivered).toEqual([A]);
    kept = Math.max(kept, Number(rowsOf(db, 'SELECT count(*) AS n FROM _changes')[0]?.n));
    await clock.advance(61_000);
  }
  expect(rowsOf(db, "SELECT seq FROM sqlite_sequence WHERE name = '_changes'")).toEqual([{ seq: ROWS * (ROUNDS + 1) }]);
  expect(exactRows(network.at(A).db, 'items')).toEqual(exactRows(db, 'items'));
  expect(events.filter((event) => event.startsWith('peer-stale'))).toEqual([`peer-stale ${B}`]);
  // One round more than the limit, until the next look.
  expect(kept).toBeLessThanOrEqual(LIMIT + 2 * ROWS);
  expect(rowsOf(db, 'SELECT count(*) AS n FROM _changes')).toEqual([{ n: 0 }]);
  db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  // Everything that was written would be more than 100 MB.
  expect(statSync(path).size).toBeLessThan(40 * 1024 * 1024);
  network.away.clear();
  await manager.flush();
  expect(exactRows(network.at(B).db, 'items')).toEqual(exactRows(db, 'items'));
  expect(manager.health().peer_states[1]).toMatchObject({ stale: false, snapshot: false, pending: 0 });
});
