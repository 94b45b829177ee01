import { expect, test, vi } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { exactRows, ITEMS, rowsOf } from '../support/nodes.ts';
import { pair, THERE } from './pairs.ts';

const T = 1_700_000_000_000;

test('two nodes that have the same are equal, at the cost of one round', async () => {
  const { manager, requests } = await pair({
    here: ITEMS,
    fill: (here, there) => {
      for (const db of [here, there])
        db.exec(`INSERT INTO items VALUES ('a', 'x', 1, 2, ${T}), ('b', NULL, 1, 2, ${T})`);
    },
  });
  const [result] = await manager.verify(THERE);
  expect(result).toMatchObject({ peer: THERE, equal: true, differences: 0, pending: 0 });
  expect(result?.tables).toMatchObject([{ table: 'items', rows: 2, differences: 0, list: [] }]);
  expect(requests.filter(({ path }) => path === '/sync/compare').length).toBe(2);
});

test('how long it took does not depend on whether the clock was set meanwhile', async () => {
  const the = await pair({ here: ITEMS, config: { clock: systemClock } });
  const real = Date.now;
  const daysOn = vi
    .spyOn(Date, 'now')
    .mockImplementation(() => real() + (the.requests.length > 0 ? 10 * 86_400_000 : 0));
  try {
    const [result] = await the.manager.verify(THERE);
    expect(result?.equal).toBe(true);
    expect(result?.ms).toBeLessThan(86_400_000);
  } finally {
    daysOn.mockRestore();
  }
});

test('what differs is named, with the versions of both sides, and repaired by the version order', async () => {
  const the = await pair({
    here: ITEMS,
    fill: (here, there) => {
      here.exec(`INSERT INTO items VALUES ('same', 'x', 1, 2, ${T}), ('newer-here', 'b', 1, 2, ${T + 5}),
        ('only-here', 'x', 1, 2, ${T}), ('newer-there', 'a', 1, 2, ${T}), ('tie', 'a', 1, 2, ${T})`);
      there.exec(`INSERT INTO items VALUES ('same', 'x', 1, 2, ${T}), ('newer-here', 'a', 1, 2, ${T}),
        ('only-there', 'x', 1, 2, ${T}), ('newer-there', 'b', 1, 2, ${T + 5}), ('tie', 'b', 1, 2, ${T})`);
    },
  });
  the.link.up = true;
  const [found] = await the.manager.verify(THERE);
  expect(found).toMatchObject({ equal: false, differences: 5, repaired: 0, pending: 0 });
  const live = (updatedAt: number) => ({ updatedAt, deleted: false });
  expect(found?.tables[0]?.list).toEqual([
    { id: 'newer-here', here: live(T + 5), there: live(T), repaired: false },
    { id: 'newer-there', here: live(T), there: live(T + 5), repaired: false },
    { id: 'only-here', here: live(T), there: null, repaired: false },
    { id: 'tie', here: live(T), there: live(T), repaired: false },
    { id: 'only-there', here: null, there: live(T), repaired: false },
  ]);
  const [result] = await the.manager.verify(THERE, { repair: true });
  expect(result).toMatchObject({ equal: true, differences: 5, repaired: 5 });
  expect(exactRows(the.here, 'items')).toEqual(exactRows(the.there, 'items'));
  expect(rowsOf(the.here, 'SELECT id, name FROM items ORDER BY id')).toEqual([
    { id: 'newer-here', name: 'b' },
    { id: 'newer-there', name: 'b' },
    { id: 'only-here', name: 'x' },
    { id: 'only-there', name: 'x' },
    { id: 'same', name: 'x' },
    { id: 'tie', name: 'b' },
  ]);
  expect((await the.manager.verify(THERE))[0]).toMatchObject({ equal: true, differences: 0 });
});
