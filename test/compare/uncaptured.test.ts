/** Rows that were written unseen and show no time: a comparison gives them a version, and none keeps others from being compared. */
import { expect, test } from 'vitest';
import { draws } from '../support/draws.ts';
import type { TestDatabase } from '../support/lane.ts';
import { exactRows, ITEMS, rowsOf } from '../support/nodes.ts';
import { HERE, type Pair, pair, silently, THERE } from './pairs.ts';

const T = 1_700_000_000_000;
const TIMES = ['NULL', "'2026-01-01'", '1.5', `${T}000`, "x'00'", '-9000000000000000', '9e999'];

function put(db: TestDatabase, id: string, time: string | number): void {
  db.exec(`INSERT OR REPLACE INTO items VALUES ('${id}', 'unseen', NULL, 1, ${time})`);
}

/** All of them here, one row on both sides, and one that is missing here. */
function filled(here: TestDatabase, there: TestDatabase): void {
  for (const [i, time] of TIMES.entries()) put(here, `r${i}`, time);
  for (const db of [here, there]) put(db, 'same', T);
  put(there, 'other', T);
}

function told(the: Pair): { code: string; message: string }[] {
  const warnings: { code: string; message: string }[] = [];
  the.manager.on('warning', (warning) => warnings.push(warning));
  return warnings;
}

const versions = (db: TestDatabase): number[] =>
  rowsOf(db, 'SELECT updated_at FROM items ORDER BY id').map(({ updated_at }) => updated_at as number);

test.each(['here', 'there'] as const)('both sides are the same after a repair that is asked for %s', async (side) => {
  const the = await pair({ here: ITEMS, fill: filled });
  const warnings = told(the);
  the.link.up = true;
  const [asker, peer] = side === 'here' ? [the.manager, THERE] : [the.other, HERE];
  const [first] = await asker.verify(peer, { repair: true });
  expect(first).toMatchObject({ equal: true });
  expect(exactRows(the.there, 'items')).toEqual(exactRows(the.here, 'items'));
  expect(versions(the.here).filter((version) => version !== T)).toEqual(TIMES.map(() => expect.any(Number)));
  expect(Math.max(...versions(the.here))).toBeLessThan(Date.UTC(2200, 0));
  expect(warnings).toEqual([{ code: 'uncaptured', message: expect.stringContaining(`${TIMES.length} rows`) }]);
  for (const one of [the.manager, the.other]) expect(one.deadLetters.list()).toEqual([]);
  const again = await asker.verify(peer, { repair: true });
  expect(again).toMatchObject([{ equal: true, differences: 0 }]);
});

test.each(TIMES)('one that shows %s is recorded by a comparison that only looks, once', async (time) => {
  const the = await pair({ here: ITEMS, fill: (here) => put(here, 'a', time) });
  for (let i = 0; i < 2; i++) expect((await the.other.verify(HERE))[0]?.error).toBeUndefined();
  const changes = rowsOf(the.here, "SELECT op, row_id, row_data ->> '$.updated_at' AS at FROM _changes");
  expect(changes).toEqual([{ op: 'UPDATE', row_id: 'a', at: versions(the.here)[0] }]);
});

test('it is above the tombstone of its id, and what differs beside it is repaired', async () => {
  const the = await pair({
    here: ITEMS,
    fill: (here, there) => {
      filled(here, there);
      here.exec(`INSERT INTO _tombstones (table_name, row_id, version) VALUES ('items', 'r0', ${Date.UTC(2150, 0)})`);
      here.exec(`INSERT INTO _tombstones (table_name, row_id, version) VALUES ('items', 'gone', ${T})`);
      put(there, 'gone', T - 1);
    },
  });
  the.link.up = true;
  expect(await the.other.verify(HERE, { repair: true })).toMatchObject([{ equal: true }]);
  expect(exactRows(the.there, 'items')).toEqual(exactRows(the.here, 'items'));
  expect(rowsOf(the.there, "SELECT updated_at AS at FROM items WHERE id = 'r0'")).toEqual([
    { at: Date.UTC(2150, 0) + 1 },
  ]);
});

const FRACTIONS = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, r REAL, b BLOB, updated_at INTEGER)';
const UNIQUE = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, r REAL, b BLOB, updated_at INTEGER)';

test.each([
  ['fractions', FRACTIONS, (i: number) => `'n${i}', ${i}.5, x'00'`],
  ['large rows', FRACTIONS, (i: number) => `printf('%.*c', 3000, 'x') || ${i}, 1, NULL`],
  ['UNIQUE values', UNIQUE, (i: number) => `'n${i}', 1, NULL`],
])('among rows with %s, in many places', async (_, schema, values) => {
  const rows = draws(400) * 8;
  const isOdd = (i: number): boolean => i % 37 === 5;
  const the = await pair({
    here: schema,
    fill: (here, there) => {
      for (let i = 0; i < rows; i++) {
        const insert = `INSERT INTO items VALUES ('r${String(i).padStart(5, '0')}', ${values(i)}`;
        here.exec(`${insert}, ${isOdd(i) ? TIMES[i % TIMES.length] : T})`);
        if (!isOdd(i)) there.exec(`${insert}, ${T})`);
      }
    },
  });
  the.link.up = true;
  expect(await the.other.verify(HERE, { repair: true })).toMatchObject([{ equal: true }]);
  expect(exactRows(the.there, 'items')).toEqual(exactRows(the.here, 'items'));
});

test('where its stamp is refused it is recorded once, and compared by its stamp', async () => {
  const the = await pair({
    here: `${ITEMS}; CREATE TRIGGER no BEFORE UPDATE ON items BEGIN SELECT RAISE(ABORT, 'append only'); END`,
    there: ITEMS,
    fill: (here) => put(here, 'a', "'2026-01-01'"),
  });
  the.link.up = true;
  for (let i = 0; i < 3; i++) {
    expect(await the.other.verify(HERE, { repair: true })).toMatchObject([{ equal: true }]);
  }
  expect(rowsOf(the.here, 'SELECT count(*) AS n FROM _changes')).toEqual([{ n: 1 }]);
  expect(rowsOf(the.here, 'SELECT version, refused FROM _stamps')).toEqual([
    { version: versions(the.there)[0], refused: 1 },
  ]);
});

test('a row without an id, and without a time, is left alone', async () => {
  const the = await pair({
    here: ITEMS,
    fill: (here) => here.exec("INSERT INTO items VALUES (NULL, 'nobody', NULL, 1, NULL)"),
  });
  const warnings = told(the);
  expect(await the.other.verify(HERE)).toMatchObject([{ equal: true }]);
  expect([warnings, rowsOf(the.here, 'SELECT * FROM _changes')]).toEqual([[], []]);
});

test('while the application has one open, nothing is recorded', async () => {
  const the = await pair({ here: ITEMS, fill: (here) => put(here, 'a', 'NULL') });
  the.here.exec('BEGIN');
  const asked = the.other.verify(HERE);
  for (let i = 0; i < 50; i++) await Promise.resolve();
  the.here.exec('ROLLBACK');
  expect((await asked)[0]?.error).toBeUndefined();
  expect(versions(the.here)).toEqual([expect.any(Number)]);
});

test('what the other side has of its id is older', async () => {
  const the = await pair({ here: ITEMS, fill: filled });
  silently([the.there], () => put(the.there, 'r1', T));
  the.link.up = true;
  expect(await the.other.verify(HERE, { repair: true })).toMatchObject([{ equal: true }]);
  expect(exactRows(the.there, 'items')).toEqual(exactRows(the.here, 'items'));
});
