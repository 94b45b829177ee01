/** Who has made the changes of a batch, as a header. */
import { expect, test } from 'vitest';
import { madeByOthers, originAt, originsOf, readOrigins, toldTogether, writeOrigins } from '../../src/wire/origins.ts';

const runs = [
  { node: 'a', count: 3 },
  { node: 'shop,7;x=%', count: 1 },
  { node: null, count: 12 },
  { node: 'a', count: 1 },
];

test('is spelt in one way, and read back', () => {
  const spelt = writeOrigins(runs);
  expect(spelt).toBe('a,shop%2C7%3Bx%3D%25,;0x3,1,2x12,0');
  expect(readOrigins(spelt, 17)).toEqual(runs);
  expect(writeOrigins(madeByOthers(5))).toBe(';0x5');
  expect(readOrigins(';0x5', 5)).toEqual([{ node: null, count: 5 }]);
});

test.each([
  ['of another number of changes', 'a;0x3', 4],
  ['of no name', 'a;1', 1],
  ['of nothing', '', 0],
  ['without runs', 'a;', 0],
  ['with a run of nothing', 'a;0x0,0', 1],
  ['with a third part', 'a;0;0', 1],
  ['with a number that is none', 'a;-1', 1],
  ['with a number that is none', 'a;0x1e3', 1_000],
  ['with half an escape', '%E0%A4;0', 1],
  ['with what no node is called', 'a%20b;0', 1],
  ['with what no node is called', 'a%1B%5B2J;0', 1],
  ['with a name that is too long', `${'n'.repeat(201)};0`, 1],
  ['that is too long', `a;${'0,'.repeat(2_000)}0`, 2_001],
])('a header %s is none: %s', (_, header, count) => {
  expect(readOrigins(header, count)).toBeUndefined();
});

test('what one header cannot tell of is left to the next, and it is never too long to be read', () => {
  const many = Array.from({ length: 10_000 }, (_, i) => ({
    node: `node-${i}-${'é'.repeat(i % 30)}`,
    count: 1 + (i % 3),
  }));
  const named = many.map((run) => ({ ...run, node: run.node.replaceAll('é', '%') }));
  for (let from = 0; from < named.length; ) {
    const told = toldTogether(named.slice(from));
    let [count, end] = [0, from];
    while (count < told) count += named[end++]?.count ?? 0;
    expect(count).toBe(told);
    expect(end).toBeGreaterThan(from);
    const some = named.slice(from, end);
    expect(readOrigins(writeOrigins(some), told)).toEqual(some);
    from = end;
  }
  // Two who take turns are told of by the thousand.
  const turns = Array.from({ length: 300 }, (_, i) => ({ node: i % 2 === 0 ? 'a' : 'b', count: 1 }));
  expect(toldTogether(turns)).toBe(300);
});

test('is that of single changes', () => {
  expect([0, 2, 3, 4, 15, 16].map((index) => originAt(runs, index)?.node)).toEqual([
    'a',
    'a',
    'shop,7;x=%',
    null,
    null,
    'a',
  ]);
  expect(originAt(runs, 17)).toBeUndefined();
  expect(originAt(undefined, 0)).toBeUndefined();
  expect(originsOf(runs, [3, 16])).toEqual([
    { node: 'shop,7;x=%', count: 1 },
    { node: 'a', count: 1 },
  ]);
  expect(originsOf(undefined, [3])).toBeUndefined();
});
