/** A comparison that meets a change which waits for its time on one side: nothing is wrong, and nothing is put right. */
import { expect, test } from 'vitest';
import type { VerifyResult } from '../../src/index.ts';
import { exactRows, ITEMS } from '../support/nodes.ts';
import { type Pair, pair, silently, THERE } from './pairs.ts';

const DAY = 86_400_000;
const NOW = 1_700_000_000_000;
const FAR = NOW + 100 * DAY;

async function compare(the: Pair, repair = true): Promise<VerifyResult> {
  const [result] = await the.manager.verify(THERE, { repair });
  expect(result?.error).toBeUndefined();
  return result as VerifyResult;
}

const batches = ({ requests }: Pair): number => requests.filter(({ path }) => path === '/sync').length;

test('it waits there: it is pending, is not sent again, and is the same on both when its time has come', async () => {
  const the = await pair({ here: ITEMS, config: { maxAheadMs: DAY } });
  the.link.up = true;
  the.here.exec(`INSERT INTO items VALUES ('x', 'late', 1, 1, ${FAR}), ('y', 'now', 1, 1, ${NOW})`);
  await the.manager.flush();
  expect(the.other.deadLetters.list()).toMatchObject([{ code: 'future-stamp', rowId: 'x' }]);
  const before = batches(the);
  for (let i = 0; i < 3; i++) {
    const result = await compare(the);
    expect(result).toMatchObject({ equal: false, differences: 0, repaired: 0, pending: 1 });
  }
  expect(batches(the)).toBe(before);
  expect(the.other.health().dead_letter).toBe(1);
  await the.clock.jump(100 * DAY);
  await the.clock.advance(100);
  expect(await compare(the)).toMatchObject({ equal: true });
  expect(exactRows(the.there, 'items')).toEqual(exactRows(the.here, 'items'));
});

test('it waits here: it is pending likewise', async () => {
  const the = await pair({ here: ITEMS, config: { maxAheadMs: DAY } });
  the.link.up = true;
  the.there.exec(`INSERT INTO items VALUES ('x', 'late', 1, 1, ${FAR})`);
  await the.other.flush();
  expect(await compare(the)).toMatchObject({ differences: 0, pending: 1 });
  expect(the.manager.health().dead_letter).toBe(1);
});

test('nobody has sent it: it is fetched, waits, and is not fetched again', async () => {
  const the = await pair({
    here: ITEMS,
    config: { maxAheadMs: DAY },
    fill: (_, there) => there.exec(`INSERT INTO items VALUES ('x', 'late', 1, 1, ${FAR})`),
  });
  expect(await compare(the)).toMatchObject({ differences: 1, repaired: 0 });
  expect(the.manager.deadLetters.list()).toMatchObject([{ code: 'future-stamp', rowId: 'x' }]);
  expect(await compare(the)).toMatchObject({ differences: 0, pending: 1 });
  expect(the.manager.health().dead_letter).toBe(1);
});

test('another change of the row that is missing is put right meanwhile', async () => {
  const the = await pair({ here: ITEMS, config: { maxAheadMs: DAY } });
  const row = { id: 'x', name: 'late', value: 1, created_at: 1, updated_at: FAR };
  const late = JSON.stringify({ batch_id: 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
  the.other.receive(late);
  silently([the.here], () => the.here.exec(`INSERT INTO items VALUES ('x', 'now', 1, 1, ${NOW})`));
  the.link.up = true;
  expect(await compare(the)).toMatchObject({ equal: true, differences: 1, repaired: 1 });
  expect(exactRows(the.there, 'items')).toEqual(exactRows(the.here, 'items'));
  expect(the.other.health().dead_letter).toBe(1);
});
