/** Who was at an edge's URL at the same time as another: by what was asked before what was answered, and by no clock. */
import { expect, test } from 'vitest';
import { SeenTogether } from '../../src/hub/seen-together.ts';

const [one, two] = [{ url: 'http://one.test' }, { url: 'http://two.test' }];

function seenBy(clock = { now: () => 0 }) {
  const seen = new SeenTogether(clock);
  const answer = (place: { url: string }, inc: string | undefined, asked = seen.ask()): string | undefined =>
    seen.note(place, asked, 'a', inc);
  return { seen, answer, problem: () => seen.problem('a', [one, two]) };
}

test('two are there at the same time where each was there before and after the other was found', () => {
  const { seen, answer, problem } = seenBy();
  answer(one, 'x');
  answer(two, 'y');
  expect(problem()).toBeUndefined();
  expect([seen.doubted(one, [one, two]), seen.doubted(two, [one, two])]).toEqual([[two], [one]]);
  answer(one, 'x');
  expect(problem()).toBeUndefined();
  answer(two, 'y');
  expect(problem()).toMatch(
    /^node id "a" is used by two databases: .* \(edges http:\/\/one.test, http:\/\/two.test\)$/,
  );
  expect(seen.doubted(one, [one, two])).toEqual([]);
});

test('an answer says nothing of later than it was asked for', () => {
  const { seen, answer, problem } = seenBy();
  answer(one, 'x');
  const late = seen.ask();
  answer(two, 'y');
  answer(two, 'y');
  // It was on its way while the one that gave it ended and the other began.
  answer(one, 'x', late);
  answer(two, 'y');
  expect(problem()).toBeUndefined();
});

test('who was there before is told where it is another one, or none', () => {
  const { seen, answer } = seenBy();
  expect(answer(one, 'x')).toBeUndefined();
  expect(answer(one, 'x')).toBeUndefined();
  expect(answer(one, 'y')).toBe('x');
  expect(answer(one, undefined)).toBe('y');
  expect(seen.forget(one)).toBeUndefined();
});

test('a thousand of one id are one mistake, and ten of them are named', () => {
  const { seen, answer } = seenBy();
  const all = Array.from({ length: 1_000 }, (_, i) => ({ url: `http://n${i}.test` }));
  for (let i = 0; i < 2; i++) for (const [n, place] of all.entries()) answer(place, `x${n}`);
  expect(seen.problem('a', all)?.match(/http:/g)).toHaveLength(10);
});
