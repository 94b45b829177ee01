/** A row that was written with the triggers off and shows no time has no version to go by: it keeps no other from being compared. */
import { expect, test } from 'vitest';
import type { TestDatabase } from '../support/lane.ts';
import { exactRows, ITEMS } from '../support/nodes.ts';
import { HERE, pair, silently, THERE } from './pairs.ts';

const put = (db: TestDatabase, id: string, time: string): unknown =>
  db.exec(`INSERT INTO items VALUES ('${id}', 'n', NULL, 1, ${time})`);

test.each(["'2026-01-01'", '1.5', "x'00'", '9e999', 'NULL'])('of a row that shows %s', async (time) => {
  const the = await pair({
    here: ITEMS,
    fill: (here, there) => {
      for (const db of [here, there]) put(db, 'same', '1000');
      put(there, 'other', '1000');
    },
  });
  silently([the.here], () => put(the.here, 'unseen', time));
  the.link.up = true;
  for (const [asker, peer] of [[the.other, HERE] as const, [the.manager, THERE] as const]) {
    const [compared] = await asker.verify(peer, { repair: true });
    expect(compared?.error).toBeUndefined();
    expect(compared?.tables[0]?.list.map(({ id }) => id)).toContain('unseen');
  }
  expect(exactRows(the.here, 'items').filter((row) => !String(row).includes('unseen'))).toEqual(
    exactRows(the.there, 'items'),
  );
  // What the page of operations says to do about it.
  the.here.exec("UPDATE items SET updated_at = NULL WHERE id = 'unseen'");
  await the.manager.flush();
  expect(exactRows(the.there, 'items')).toEqual(exactRows(the.here, 'items'));
  expect(exactRows(the.here, 'items')).toHaveLength(3);
});
