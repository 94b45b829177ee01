/** The clock of the machine: a pause of no time is a turn for everybody else. */
import { readFile } from 'node:fs';
import { expect, test } from 'vitest';
import { systemClock } from '../src/clock.ts';

test('while somebody pauses for no time again and again, timers and files have their turn', async () => {
  const done = new Set<string>();
  setTimeout(() => done.add('timer'), 1);
  readFile(new URL(import.meta.url), () => done.add('file'));
  // If they had none, this would never end.
  while (done.size < 2) await systemClock.sleep(0);
  expect([...done].sort()).toEqual(['file', 'timer']);
});

test('a pause ends when it is told to, whether it is of no time or of a long one', async () => {
  const stop = new AbortController();
  const long = systemClock.sleep(1_000_000, stop.signal);
  const none = systemClock.sleep(0, stop.signal);
  stop.abort();
  await Promise.all([long, none, systemClock.sleep(1_000_000, stop.signal)]);
  expect(stop.signal.aborted).toBe(true);
});
