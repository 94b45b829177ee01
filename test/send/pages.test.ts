/** Batches that are kept for whoever comes to the same place. */
import { expect, test } from 'vitest';
import { type Page, Pages } from '../../src/send/pages.ts';

const page = (after: number, count = 10, bytes = 100): Page => ({ after, count, body: new Uint8Array(bytes) });
const ALL = { changes: 1_000, bytes: 1_000_000 };

test('a page is found at its own place, and where it fits', () => {
  const pages = new Pages({ pages: 4, bytes: 10_000 });
  const one = page(5);
  pages.keep(one);
  expect(pages.find(5, ALL)).toBe(one);
  expect([4, 6].map((after) => pages.find(after, ALL))).toEqual([undefined, undefined]);
  expect(pages.find(5, { changes: 9, bytes: 1_000 })).toBeUndefined();
  expect(pages.find(5, { changes: 10, bytes: 99 })).toBeUndefined();
  expect(pages.find(5, { ...ALL, suspect: true })).toBeUndefined();
});

test('those that were used last are kept, so many and of so many bytes', () => {
  const pages = new Pages({ pages: 3, bytes: 1_000 });
  const [a, b, c] = [page(1), page(2), page(3)];
  for (const one of [a, b, c, a]) pages.keep(one);
  pages.keep(page(4));
  expect([1, 2, 3, 4].filter((after) => pages.find(after, ALL))).toEqual([1, 3, 4]);
  pages.keep(page(5, 10, 950));
  expect([1, 3, 4, 5].filter((after) => pages.find(after, ALL))).toEqual([5]);
  pages.clear();
  expect(pages.find(5, ALL)).toBeUndefined();
});
