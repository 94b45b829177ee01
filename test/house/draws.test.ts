/** What `npm test` leaves out on one runtime it has on the other: a mistake here would leave cases out in silence. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript, for a runner that starts before anything is built
import { DEALT, lanes } from '../lanes/lanes.mjs';
import { root } from '../support/build.ts';
import { cleanUp } from '../support/clean-up.ts';
import { draws, firstOf, isTaken, meetings, shared } from '../support/draws.ts';

function withEnv<T>(name: string, value: string | undefined, run: () => T): T {
  const before = process.env[name];
  const set = (to: string | undefined): void => {
    if (to === undefined) delete process.env[name];
    else process.env[name] = to;
  };
  cleanUp(() => set(before));
  set(value);
  return run();
}

test.each([1, 2, 3, 4])('of %i runtimes each case is taken by exactly one', (parts) => {
  for (let length = 0; length <= 25; length++) {
    const cases = Array.from({ length }, (_, i) => i);
    const taken = Array.from({ length: parts }, (_, i) =>
      withEnv('ROWCAST_SHARE', `${i + 1}/${parts}`, () => shared(cases)),
    );
    expect(taken.flat().sort((a, b) => a - b)).toEqual(cases);
    expect(Math.max(...taken.map((one) => one.length)) - Math.min(...taken.map((one) => one.length))).toBeLessThan(2);
  }
});

test('of pairs each runtime has both members in turn', () => {
  const pairs = ['a', 'b', 'c', 'd'].flatMap((name) => [`${name}0`, `${name}1`]);
  expect(withEnv('ROWCAST_SHARE', '1/2', () => shared(pairs))).toEqual(['a0', 'b1', 'c0', 'd1']);
  expect(withEnv('ROWCAST_SHARE', '2/2', () => shared(pairs))).toEqual(['a1', 'b0', 'c1', 'd0']);
});

test('alone, a runtime takes all; all is drawn where it is asked for', () => {
  expect(withEnv('ROWCAST_SHARE', undefined, () => shared([1, 2, 3]))).toEqual([1, 2, 3]);
  expect(withEnv('ROWCAST_DRAWS', undefined, () => draws(10))).toBe(2);
  expect(withEnv('ROWCAST_DRAWS', 'all', () => draws(10))).toBe(10);
  expect(withEnv('ROWCAST_DRAWS', 'half', () => draws(10))).toBe(5);
  expect(withEnv('ROWCAST_DRAWS', 'half', () => firstOf([1, 2, 3]))).toEqual([1, 2, 3]);
  expect(withEnv('ROWCAST_DRAWS', undefined, () => firstOf([1, 2, 3]))).toEqual([1]);
  expect(withEnv('ROWCAST_DRAWS', 'all', () => firstOf([1, 2, 3]))).toEqual([1, 2, 3]);
});

test('where each of one list meets each of another, every one of either is in some case, and in full all are', () => {
  for (const [a, b] of [
    [1, 1],
    [3, 2],
    [2, 3],
    [10, 3],
    [3, 10],
  ] as const) {
    const some = Array.from({ length: a }, (_, i) => `a${i}`);
    const others = Array.from({ length: b }, (_, i) => `b${i}`);
    const few = withEnv('ROWCAST_DRAWS', undefined, () => meetings(some, others));
    expect(few).toHaveLength(Math.max(a, b));
    expect(new Set(few.flat())).toEqual(new Set([...some, ...others]));
    const all = withEnv('ROWCAST_DRAWS', 'all', () => meetings(some, others));
    expect(new Set(all.map(String)).size).toBe(a * b);
    expect(all).toEqual(expect.arrayContaining(few));
  }
});

interface Selection {
  files: string;
  also?: string[];
  without?: string[];
  hand?: string;
}
const both = (lanes as { name: string; test?: Selection; deep: Selection }[]).filter((lane) => lane.test);

test('files that leave something out run once more in full, on both runtimes of npm test', () => {
  expect(both).toHaveLength(2);
  for (const { deep } of both) {
    expect(deep.also).toEqual(expect.arrayContaining(['receive/merge.', 'capture/stamps.', 'interop.']));
  }
});

test('of what is dealt, each runtime has in test:deep what the other has in npm test', () => {
  expect(DEALT).toEqual(expect.arrayContaining(['send/roster.test.ts', 'tombstones/members.test.ts']));
  expect((DEALT as string[]).filter((name) => /^(wire|http|sqlite)|deep/.test(name))).toEqual([]);
  expect(both.map((lane) => [lane.test?.hand, lane.deep.hand])).toEqual([
    ['1/2', '2/2'],
    ['2/2', '1/2'],
  ]);
  const filters = (DEALT as string[]).map((name) => name.replace('test.ts', ''));
  for (const { deep } of both) {
    expect(filters.filter((name) => !deep.also?.includes(name))).toEqual([]);
    expect(filters.filter((name) => deep.without?.some((other) => name.startsWith(other)))).toEqual([]);
  }
});

test('what is dealt shares nothing besides: the list of its tests must be the same on both', () => {
  const read = (name: string): string => readFileSync(join(root, 'test', name), 'utf8');
  expect((DEALT as string[]).filter((name) => read(name).includes('shared('))).toEqual([]);
});

test('what is long runs on both runtimes of test:deep, and of no file is everything long', () => {
  const read = (name: string): string => readFileSync(join(root, 'test', name), 'utf8');
  const all = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' });
  const files = all.filter((name) => /(?<!\.deep)\.test\.ts$/.test(name) && !name.startsWith('lanes'));
  const count = (name: string, what: RegExp): number => read(name).match(what)?.length ?? 0;
  const withLong = files.filter((name) => count(name, /tags: 'long'/g) > 0);
  expect(withLong).toContain('tombstones/members.test.ts');
  const runsInDeep = (name: string): boolean =>
    (DEALT as string[]).includes(name) || both.every(({ deep }) => deep.also?.includes(name.replace('test.ts', '')));
  expect(withLong.filter((name) => !runsInDeep(name))).toEqual([]);
  expect(withLong.filter((name) => count(name, /\btest(\.each)?\(/g) <= count(name, /tags: 'long'/g))).toEqual([]);
});

test('what is skipped is every other one', () => {
  const taken = (hand: string): boolean[] => Array.from({ length: 9 }, (_, i) => isTaken(i, hand));
  expect(taken('1/2')).toEqual(taken('2/2').map((one) => !one));
  expect(taken('1/2').filter(Boolean)).toHaveLength(5);
});
