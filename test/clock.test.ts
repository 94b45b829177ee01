/** The clock of the machine: a pause of no time is a turn for everybody else. */
import { readFile } from 'node:fs';
import { expect, test } from 'vitest';
import { alarm, type Clock, passedSince, Steadiness, systemClock } from '../src/clock.ts';

test('while somebody pauses for no time again and again, timers and files have their turn', async () => {
  const done = new Set<string>();
  setTimeout(() => done.add('timer'), 1);
  readFile(new URL(import.meta.url), () => done.add('file'));
  // If they had none, this would never end.
  while (done.size < 2) await systemClock.sleep(0);
  expect([...done].sort()).toEqual(['file', 'timer']);
});

test('a pause of no time that begins while a file is being read is over when those have had their turn who wait for the next', async () => {
  const turns: string[] = [];
  await new Promise<void>((resolve) => {
    readFile(new URL(import.meta.url), () => {
      void systemClock.sleep(0).then(() => resolve(void turns.push('after the pause')));
      // Node calls this before it looks at its timers, and would have called the other before this.
      setImmediate(() => turns.push('somebody else'));
    });
  });
  expect(turns).toEqual(['somebody else', 'after the pause']);
});

test('a pause ends when it is told to, whether it is of no time or of a long one', async () => {
  const stop = new AbortController();
  const long = systemClock.sleep(1_000_000, stop.signal);
  const none = systemClock.sleep(0, stop.signal);
  stop.abort();
  await Promise.all([long, none, systemClock.sleep(1_000_000, stop.signal)]);
  expect(stop.signal.aborted).toBe(true);
});

// A clock of somebody else's knows no alarms: for that one it sleeps.
const another: Clock = { now: () => systemClock.now(), sleep: (...args) => systemClock.sleep(...args) };

test.each([
  ['of the machine', systemClock],
  ['of another clock', another],
])('an alarm %s rings once, and not where it was turned off', async (_, clock) => {
  const rung: string[] = [];
  const turnOff = [0, 1].map((ms) => alarm(clock, ms, () => rung.push('turned off')));
  for (const off of turnOff) off();
  await new Promise<void>((resolve) => {
    alarm(clock, 0, () => {
      rung.push('at once');
      // Long enough for those that were turned off.
      alarm(clock, 5, () => resolve(void rung.push('later')));
    });
  });
  expect(rung).toEqual(['at once', 'later']);
});

test('what a clock that was set back has still before it is long ago', () => {
  expect(passedSince({ now: () => 5_000 }, 2_000)).toBe(3_000);
  expect(passedSince({ now: () => 5_000 }, 9_000_000)).toBeGreaterThan(60_000);
  expect(passedSince({ now: () => 5_000 }, Number.NEGATIVE_INFINITY)).toBe(Number.POSITIVE_INFINITY);
});

test('a clock is believed until it is set, and again when it has run on for an hour', () => {
  let now = 50_000_000;
  const clock = new Steadiness({ now: () => now });
  const seen: boolean[] = [];
  const minutes = (...steps: number[]): void => {
    for (const step of steps) {
      now += step * 60_000;
      seen.push(clock.isBelieved());
    }
  };
  minutes(0, 9, 10);
  expect(seen.splice(0)).toEqual([true, true, true]);
  minutes(11, 10, 10, 10, 10, 10, 9, 1);
  expect(seen.splice(0)).toEqual([false, false, false, false, false, false, false, true]);
  minutes(-1, 10, 10, 10, 10, 10, 10);
  expect(seen).toEqual([false, false, false, false, false, false, true]);
});
