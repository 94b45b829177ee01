/** A lock that somebody has forgotten, a disk that is full: nothing is received while it lasts, and health says so. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { database, node, rowsOf, scratchFolder } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const BATCH = JSON.stringify({
  batch_id: 1,
  changes: [
    {
      op: 'INSERT',
      table: 'items',
      row: { id: 'a', name: 'n', value: 1, created_at: 1, updated_at: 1000 },
      old_id: null,
    },
  ],
});

async function locked(by: 'another process' | 'the application') {
  const path = join(scratchFolder(), 'node.db');
  const clock = new VirtualClock();
  const { db, manager } = await node({ path, clock });
  // A lock that is held is known at once.
  db.exec('PRAGMA busy_timeout = 1');
  const holder = by === 'the application' ? db : await database('SELECT 1', path);
  holder.exec('BEGIN IMMEDIATE');
  return { clock, manager, release: () => holder.exec('ROLLBACK') };
}

test.each(['another process', 'the application'] as const)(
  'a transaction of %s that lasts is a problem, until it is over',
  async (by) => {
    const { clock, manager, release } = await locked(by);
    for (let tries = 0; tries < 3; tries++) {
      expect(manager.receive(BATCH).status).toBe(503);
      expect(manager.health().problems).toEqual([]);
      await clock.advance(10_000);
    }
    expect(manager.receive(BATCH).status).toBe(503);
    const { ok, problems } = manager.health();
    expect(ok).toBe(false);
    expect(problems).toEqual([
      expect.stringMatching(/^nothing could be written for half a minute: .*(lock|transaction)/),
    ]);
    release();
    expect(manager.receive(BATCH).status).toBe(200);
    expect(manager.health()).toMatchObject({ ok: true, problems: [] });
  },
);

test('two short ones are none, however far apart', async () => {
  const { clock, manager } = await locked('another process');
  expect(manager.receive(BATCH).status).toBe(503);
  await clock.advance(120_000);
  expect(manager.receive(BATCH).status).toBe(503);
  expect(manager.health()).toMatchObject({ ok: true, problems: [] });
});

test('a full disk that is not that of the database is looked for elsewhere', async () => {
  const path = join(scratchFolder(), 'node.db');
  const { db, manager } = await node({ path });
  const [{ page_count: pages }] = rowsOf(db, 'PRAGMA page_count') as [{ page_count: number }];
  // SQLite says so as well where only it has no room.
  db.exec(`PRAGMA max_page_count = ${pages}`);
  const batch = BATCH.replace('"n"', `"${'n'.repeat(100_000)}"`);
  expect(manager.receive(batch)).toMatchObject({ status: 503, body: { error: expect.stringMatching(/is full$/) } });
  expect(manager.health().problems).toContainEqual(
    expect.stringMatching(/^changes could not be applied: .* is full; there is room beside the database, .*TMPDIR/),
  );
  const sql = `UPDATE items SET name = '${'m'.repeat(100_000)}'; INSERT INTO items SELECT 'b', '${'m'.repeat(100_000)}', 1, 1, 1000`;
  expect(() => manager.migrate(sql)).toThrow(/is full, in: .*make room .*TMPDIR.*nothing was changed/);
  db.exec('PRAGMA max_page_count = 1000000');
  expect(manager.receive(batch).status).toBe(200);
  expect(manager.health()).toMatchObject({ ok: true, problems: [] });
});
