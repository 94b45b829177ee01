/** Rows are first read without a look at their values. What is odd among them is compared as ever, wherever it stands. */
import { expect, test } from 'vitest';
import { pair, silently, THERE } from './pairs.ts';

const T = 1_600_000_000_000;
const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, updated_at INTEGER)';
const ROWS = 9_000;
/** By the number of the row: what is odd here, and what is there. Between them are more rows than are read at once. */
const ODD: [number, string, string, string][] = [
  [7, 'value', '1.5', '1.25'],
  [2_900, 'name', "x'AB'", "x'AC'"],
  [5_500, 'value', "printf('%.*c', 9000, 'x')", "printf('%.*c', 9000, 'y')"],
  [7_777, 'value', '9e999', '-9e999'],
  [8_888, 'name', "'1.5'", "'1.50'"],
];
/** Blobs that SQLite takes for JSONB: it prints them as what they mean, or fails. */
const JSONB: [number, string, string, string][] = [
  [100, 'name', "x'1778'", "'x'"],
  [3_100, 'name', "x'00'", 'NULL'],
  [6_100, 'name', "x'1331'", "'1'"],
  [8_000, 'name', "x'1bff'", "x'1bfe'"],
];
const idOf = (i: number): string => `row-${String(i).padStart(5, '0')}`;

test.each([
  ['none of them', []],
  ['one of them', [ODD[2]]],
  ['all of them', ODD],
  ['those that look like JSONB', JSONB],
])('of rows that are odd, %s differs', async (_, differing) => {
  const the = await pair({ here: SCHEMA });
  the.link.up = true;
  silently([the.here, the.there], () => {
    for (const db of [the.here, the.there]) {
      db.exec(
        `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS}) ` +
          `INSERT INTO items SELECT printf('row-%05d', i), 'x', i, ${T} FROM n`,
      );
      for (const [i, column, here] of [...ODD, ...JSONB])
        db.exec(`UPDATE items SET ${column} = ${here} WHERE id = '${idOf(i)}'`);
    }
    for (const one of differing) {
      const [i, column, , there] = one as (typeof ODD)[0];
      the.there.exec(`UPDATE items SET ${column} = ${there} WHERE id = '${idOf(i)}'`);
    }
  });
  // The second time the one side begins where it knows of oddities, and the other as ever.
  for (const times of [1, 2]) {
    const [found] = await the.manager.verify(THERE);
    expect([times, found?.error, found?.tables[0]?.rows]).toEqual([times, undefined, ROWS]);
    expect(found?.tables[0]?.list.map(({ id }) => id)).toEqual(differing.map((one) => idOf(one?.[0] ?? 0)));
    if (times === 1) await the.other.verify(undefined);
  }
});
