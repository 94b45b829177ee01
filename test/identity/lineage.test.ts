/** Whether a file goes on from where a process has last seen it. */
import { expect, test } from 'vitest';
import { Lineage, type Place } from '../../src/identity/lineage.ts';

const place = (tick: number, boot = '3-c', before = ['2-b', '1-a'], inc = 'one'): Place => ({
  inc,
  boot,
  before,
  tick,
});

function after(...seen: Place[]): Lineage {
  const lineage = new Lineage();
  for (const one of seen) lineage.see(one);
  return lineage;
}

test('it goes on: nothing seen yet, the same, further, attached by another process meanwhile', () => {
  expect(new Lineage().see(place(5))).toBe('same');
  expect(after(place(5)).see(place(5))).toBe('same');
  expect(after(place(5)).see(place(6))).toBe('same');
  expect(after(place(5)).see(place(6, '5-e', ['4-d', '3-c']))).toBe('same');
});

test('it does not: an earlier tick, an earlier attach, the file of another', () => {
  expect(after(place(5)).see(place(4))).toBe('another');
  expect(after(place(5)).see(place(9, '2-b', ['1-a']))).toBe('another');
  expect(after(place(5)).see(place(9, '3-z', ['2-y']))).toBe('another');
  expect(after(place(5)).goesOn(place(4))).toBe(false);
  // From there it goes on.
  expect(after(place(5), place(4)).see(place(5))).toBe('same');
});

test('another process has given it another identity', () => {
  expect(after(place(5)).see(place(5, '3-c', ['2-b'], 'two'))).toBe('renewed');
  expect(after(place(5)).see(place(4, '3-c', ['2-b'], 'two'))).toBe('another');
});
