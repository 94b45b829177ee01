/**
 * A row that was written with the triggers off and shows no time has no version to go by: it keeps no other from being compared,
 * and its node says so until it has been written once more.
 */
import { expect, test } from 'vitest';
import type { TestDatabase } from '../support/lane.ts';
import { exactRows, ITEMS } from '../support/nodes.ts';
import { HERE, pair, silently, THERE } from './pairs.ts';

const put = (db: TestDatabase, id: string, time: string): unknown =>
  db.exec(`INSERT INTO items VALUES ('${id}', 'n', NULL, 1, ${time})`);

test.each(["'2026-01-01'", '1.5', "x'00'", '9e999', '1700000000000000', 'NULL'])(
  'of a row that shows %s',
  async (time) => {
    const the = await pair({
      here: ITEMS,
      fill: (here, there) => {
        for (const db of [here, there]) put(db, 'same', '1000');
        put(there, 'other', '1000');
      },
    });
    silently([the.here], () => put(the.here, 'unseen', time));
    const warnings: string[] = [];
    the.manager.on('warning', ({ code, message }) => code === 'not-captured' && warnings.push(message));
    expect(the.manager.health().problems).toEqual([]);
    the.link.up = true;
    for (const [asker, peer] of [[the.other, HERE] as const, [the.manager, THERE] as const]) {
      const [compared] = await asker.verify(peer, { repair: true });
      expect(compared?.error).toBeUndefined();
      expect(compared?.tables[0]?.list.map(({ id }) => id)).toContain('unseen');
      expect(the.manager.health()).toMatchObject({
        ok: false,
        problems: [expect.stringContaining('"unseen" cannot be')],
      });
      expect(the.other.health()).toMatchObject({ ok: true });
    }
    expect(warnings).toEqual(the.manager.health().problems);
    expect(exactRows(the.here, 'items').filter((row) => !String(row).includes('unseen'))).toEqual(
      exactRows(the.there, 'items'),
    );
    // What the page of operations says to do about it.
    the.here.exec("UPDATE items SET updated_at = NULL WHERE id = 'unseen'");
    expect(the.manager.health()).toMatchObject({ ok: true, problems: [] });
    await the.manager.flush();
    expect(exactRows(the.there, 'items')).toEqual(exactRows(the.here, 'items'));
    expect(exactRows(the.here, 'items')).toHaveLength(3);
  },
);

test('one that was captured, and shows no time all the same, is none of these', async () => {
  const the = await pair({ here: ITEMS });
  put(the.here, 'seen', 'NULL');
  // The version that it got cannot be written into it: it is a stamp for ever.
  the.here.exec("CREATE TRIGGER no BEFORE UPDATE ON items WHEN NEW.id = 'seen' BEGIN SELECT RAISE(ABORT, 'no'); END");
  the.link.up = true;
  const [compared] = await the.manager.verify(THERE);
  // It was looked at by itself, and is on its way.
  expect(compared).toMatchObject({ differences: 0, pending: 1 });
  expect(compared?.requests).toBeGreaterThan(2);
  expect(the.here.prepare('SELECT updated_at FROM items').all()).toEqual([{ updated_at: null }]);
  expect(the.manager.health().problems).toEqual([]);
});

test('of many a few are named, and how many more there are; of a table that is not compared nothing is said', async () => {
  const the = await pair({ here: ITEMS });
  silently([the.here], () => {
    for (let i = 0; i < 7; i++) put(the.here, `r${i}`, 'NULL');
  });
  the.link.up = true;
  await the.manager.verify(THERE);
  expect(the.manager.health().problems).toEqual([
    expect.stringMatching(/^table "items": "r0", "r1", "r2" and 4 more cannot be compared: no usable time/),
  ]);
  the.here.exec("UPDATE items SET updated_at = NULL WHERE id < 'r5'");
  expect(the.manager.health().problems).toEqual([expect.stringMatching(/^table "items": "r5", "r6" cannot/)]);
  the.here.exec('DELETE FROM items');
  expect(the.manager.health()).toMatchObject({ ok: true });
});
