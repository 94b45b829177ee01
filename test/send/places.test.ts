/** The places for requests: bounded, in order, and none is held by who does not answer. */
import { expect, test } from 'vitest';
import { Places } from '../../src/send/places.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

function withPlaces(places: number) {
  const clock = new VirtualClock();
  const stop = new AbortController();
  const of = new Places(places, clock, stop.signal);
  const begun: number[] = [];
  const ends = new Map<number, () => void>();
  const pass = (n: number): Promise<void> =>
    of.pass(() => {
      begun.push(n);
      return new Promise((resolve) => ends.set(n, resolve));
    });
  const end = async (n: number): Promise<void> => {
    ends.get(n)?.();
    await settle();
  };
  return { clock, stop, of, begun, pass, end };
}

test('so many at once, and then one for each that ends, in order', async () => {
  const { clock, begun, pass, end } = withPlaces(2);
  for (let n = 1; n <= 5; n++) void pass(n);
  await settle();
  expect(begun).toEqual([1, 2]);
  await end(2);
  expect(begun).toEqual([1, 2, 3]);
  await end(1);
  await end(3);
  expect(begun).toEqual([1, 2, 3, 4, 5]);
  await end(4);
  await end(5);
  await clock.advance(10_000);
  expect(clock.pending).toBe(0);
});

test('one that has no answer for long gives up its place, once', async () => {
  const { clock, begun, pass, end } = withPlaces(2);
  for (let n = 1; n <= 6; n++) void pass(n);
  await clock.advance(499);
  expect(begun).toEqual([1, 2]);
  await clock.advance(1);
  expect(begun).toEqual([1, 2, 3, 4]);
  // Their places are others' by now: that they end at last makes none.
  await end(1);
  await end(2);
  expect(begun).toEqual([1, 2, 3, 4]);
  await end(3);
  expect(begun).toEqual([1, 2, 3, 4, 5]);
});

test('what fails gives its place back, and its reason to who asked', async () => {
  const { of, begun, pass } = withPlaces(1);
  const failed = of.pass(() => Promise.reject(new Error('no')));
  void pass(1);
  await expect(failed).rejects.toThrow('no');
  await settle();
  expect(begun).toEqual([1]);
});

test('without anybody who waits there is no timer', async () => {
  const { clock, pass } = withPlaces(2);
  void pass(1);
  void pass(2);
  await settle();
  expect(clock.pending).toBe(0);
});
