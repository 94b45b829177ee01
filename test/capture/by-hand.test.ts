/** What a person may do to a database by hand, and is told of it. */
import { expect, test } from 'vitest';
import { node } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

test('"syncing" that is set and left is a problem until it is set back: nothing is captured', async () => {
  const { db, manager } = await node();
  expect(manager.health()).toMatchObject({ ok: true, problems: [] });
  db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'; INSERT INTO items (id) VALUES ('unseen')");
  expect(manager.health()).toMatchObject({
    ok: false,
    pending_changes: 0,
    problems: [expect.stringMatching(/^capture is switched off: /)],
  });
  db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
  expect(manager.health()).toMatchObject({ ok: true, problems: [] });
});

test.each(['id', 'updated_at'])('where %s has another name, it is not the table that was renamed', async (column) => {
  const clock = new VirtualClock();
  const { db, manager } = await node({ clock });
  const told: string[] = [];
  manager.on('warning', ({ code, message }) => told.push(`${code}: ${message}`));
  await clock.advance(100);
  db.exec(`ALTER TABLE items RENAME COLUMN ${column} TO other`);
  await clock.advance(100);
  expect(told).toEqual([expect.stringMatching(new RegExp(`^table-lost: table "items" has no .*"${column}"`))]);
});
