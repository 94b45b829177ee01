/** What REPLACE hides: the new row is above the old one, whatever time it came with. */
import { expect, test } from 'vitest';
import { captured, node } from '../support/nodes.ts';

const FUTURE = 4_000_000_000_000;

test.each<[string, string]>([
  ['beyond the range of a time', '9000000000000000'],
  ['a fraction', `${FUTURE}.5`],
  ['infinite', '9e999'],
  ['text', "'later'"],
  ['bytes', "x'ff'"],
  ['nothing', 'NULL'],
  ['the same', `${FUTURE}`],
  ['below', '5'],
])('INSERT OR REPLACE with a time that is %s', async (_, time) => {
  const { db, all } = await node();
  db.exec(`INSERT INTO items VALUES ('a', 'old', 1, 1, ${FUTURE})`);
  db.exec(`INSERT OR REPLACE INTO items VALUES ('a', 'new', 2, 2, ${time})`);
  expect(all('SELECT name, updated_at FROM items')).toEqual([{ name: 'new', updated_at: FUTURE + 1 }]);
  expect(captured(db).at(-1)?.row).toMatchObject({ name: 'new', updated_at: FUTURE + 1 });
});
