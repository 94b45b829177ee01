/** One sleep for all requests that are under way: each is told in its time, and none is left when all are over. */
import { expect, test } from 'vitest';
import { Deadlines, deadlinesOf } from '../../src/send/deadlines.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

test('each is called in its time and once, and those that are over are not', async () => {
  const clock = new VirtualClock();
  const deadlines = new Deadlines(clock);
  const called: string[] = [];
  const act = (name: string) => (): void => void called.push(`${name} ${clock.now() - began}`);
  const began = clock.now();
  deadlines.after(300, act('late'));
  const over = deadlines.after(200, act('over'));
  deadlines.after(100, act('first'));
  expect(clock.pending).toBe(1);
  await clock.advance(100);
  deadlines.after(100, act('second'));
  over();
  over();
  await clock.advance(1_000);
  expect(called).toEqual(['first 100', 'second 200', 'late 300']);
  expect(clock.pending).toBe(0);
});

test('a thousand that are over in time leave nothing behind, and take one sleep', async () => {
  const clock = new VirtualClock();
  const deadlines = new Deadlines(clock);
  const ends = Array.from({ length: 1_000 }, () => deadlines.after(10_000, () => expect.unreachable()));
  expect(clock.requested).toEqual([10_000]);
  for (const end of ends) end();
  expect(clock.pending).toBe(0);
  await clock.advance(20_000);
});

test('what is called may ask for another', async () => {
  const clock = new VirtualClock();
  const deadlines = new Deadlines(clock);
  let again = 0;
  deadlines.after(10, () => deadlines.after(10, () => void again++));
  await clock.advance(19);
  expect(again).toBe(0);
  await clock.advance(1);
  expect([again, clock.pending]).toEqual([1, 0]);
});

test('by a clock that was set back nobody sleeps for longer than his own time', async () => {
  const asked: number[] = [];
  let now = 1_700_000_000_000;
  let wake = (): void => {};
  const sleep = (ms: number): Promise<void> => {
    asked.push(ms);
    return new Promise((resolve) => {
      wake = resolve;
    });
  };
  const deadlines = new Deadlines({ now: () => now, sleep });
  let called = 0;
  for (const ms of [100, 200]) deadlines.after(ms, () => void called++);
  now -= 3_600_000;
  wake();
  await Promise.resolve();
  expect([called, ...asked]).toEqual([1, 100, 200]);
});

test('those of one clock are the same for all that go by it', () => {
  const clock = new VirtualClock();
  expect(deadlinesOf(clock)).toBe(deadlinesOf(clock));
  expect(deadlinesOf(clock)).not.toBe(deadlinesOf(new VirtualClock()));
});
