/** The line of a row with very many keys is found in another way, in time: it is the same line. */
import { expect, test } from 'vitest';
import { hub } from '../support/hubs.ts';

const T = 1_700_000_000_000;
const COLUMNS = {
  id: 'TEXT',
  t: 'TEXT',
  n: 'NUMERIC',
  i: 'INTEGER',
  r: 'REAL',
  b: 'BLOB',
  'odd "key': 'TEXT',
  updated_at: 'INTEGER',
};

/** Rows as they are written, without their ids: each kind of value in each kind of column, and keys in several spellings. */
const VALUES = [
  'null',
  'true',
  '1',
  '-0.0',
  '1.5',
  '1e300',
  '9007199254740993',
  '"text"',
  '"12"',
  '"$blob:00FF"',
  '"$real:Inf"',
  '"$text:$x"',
  '[1, {"a":2}]',
  '"\\u00e9\\""',
];
const ROWS = [
  ...VALUES.map((v) => `"t":${v},"n":${v},"i":${v},"r":${v},"b":${v},"odd \\"key":${v}`),
  '"T":"another case","N":1,"ODD \\"KEY":2',
  '"T":"first","t":"as asked for"',
  '"T":"first","t":null',
  '"t":null,"T":"second"',
  '"t":"first of two","t":"second of two"',
  '"t":null,"t":"second, after null"',
  '"i":3',
]; // biome-ignore format: lists

const bodyOf = (more: string, rows: string[]): string => {
  const changes = rows.map(
    (row, k) => `{"op":"INSERT","table":"items","row":{"id":"r${k}",${row},"updated_at":${T}${more}},"old_id":null}`,
  );
  return `{"batch_id":1,"changes":[${changes.join()}]}`;
};

async function hashes(more: string, columns: object, rows = ROWS): Promise<unknown[]> {
  const { hub: relay } = await hub();
  expect(await relay.receive(bodyOf(more, rows), { from: 'a' })).toMatchObject({
    status: 200,
    body: { applied: rows.length },
  });
  const question = { want: 'rows', table: 'items', columns, ranges: [[null, null]] };
  const { status, body } = await relay.answer('/sync/compare', JSON.stringify(question));
  expect([status, body.slice(0, 20)]).toEqual([200, expect.stringMatching(/^\{"rows"/)]);
  return JSON.parse(body).rows;
}

const unknown = (n: number): string => Array.from({ length: n }, (_, k) => `,"u${k}":${k}`).join('');
const named = (n: number): object => Object.fromEntries(Array.from({ length: n }, (_, k) => [`u${k}`, 'INTEGER']));

test('whatever the values are', async () => {
  const few = await hashes('', COLUMNS);
  expect(new Set(few.map((row) => (row as unknown[])[3])).size).toBeGreaterThan(15);
  expect(await hashes(unknown(1_900), COLUMNS)).toEqual(few);
});

test('of two thousand columns, the keys of which are there or not', { tags: 'long' }, async () => {
  const columns = { ...COLUMNS, ...named(1_992) };
  // So many columns take their time, and what the values are is the other test.
  const few = ROWS.filter((_, i) => i % 4 === 0);
  const wide = await hashes(unknown(1_900), columns, few);
  expect(await hashes(unknown(1_900).toUpperCase(), columns, few)).toEqual(wide);
  expect(await hashes('', columns, few)).not.toEqual(wide);
});
