/** A node whose clock is a year off holds what others write, or is held back by them: its health must not say that it is well. */
import { expect, test } from 'vitest';
import type { Clock } from '../../src/clock.ts';
import { PeerClocks } from '../../src/identity/clocks.ts';
import { Cluster, hurried, ids, type Member, write } from '../support/cluster.ts';
import { until } from '../support/nodes.ts';

const DAY = 86_400_000;
const YEAR = 365 * DAY;

/** Another machine's clock. */
class Off implements Clock {
  by: number;

  constructor(by: number) {
    this.by = by;
  }

  now(): number {
    return hurried.now() + this.by;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return hurried.sleep(ms, signal);
  }
}

async function three(by: number): Promise<{ a: Member; b: Member; c: Member; clock: Off }> {
  const cluster = new Cluster();
  const clock = new Off(by);
  const config = { maxAheadMs: DAY };
  const a = await cluster.node('a', ['b', 'c'], config);
  const b = await cluster.node('b', ['a', 'c'], config);
  const c = await cluster.node('c', ['a', 'b'], { ...config, clock });
  return { a, b, c, clock };
}

const problems = ({ manager }: Member): string => manager.health().problems.join();

test('a year behind: it says so, the others are well, and it is well when the clock is set', async () => {
  const { a, b, c, clock } = await three(-YEAR);
  write(a, '1');
  write(b, '2');
  await until('it says so', () => /clock: it is far behind the clocks of 2 of 2 peers/.test(problems(c)));
  expect(c.manager.health().ok).toBe(false);
  // As long as one of them has heard nobody but that one, it cannot know who is wrong.
  await until('the others are well', () => problems(a) === '' && problems(b) === '');
  clock.by = 0;
  write(c, '3');
  await until('it has what had to wait', () => ids(c) === '1 2 3');
  await until('it is well', () => c.manager.health().ok);
});

test('a year ahead: it says so when it writes, the others are well, and it is well when what it writes is let in', async () => {
  const { a, b, c } = await three(YEAR);
  c.db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, ?)').run('1', 'far', Date.now() + YEAR);
  await until('it says so', () => /clock: 2 of 2 peers keep what is written here/.test(problems(c)));
  expect(c.manager.health().ok).toBe(false);
  // As long as one of them has heard nobody but that one, it cannot know who is wrong.
  await until('the others are well', () => problems(a) === '' && problems(b) === '');
  write(c, '2');
  await until('it has arrived', () => ids(a) === '2' && ids(b) === '2');
  await until('it is well', () => problems(c) === '');
});

test('of two nobody can say who is right: both are not well', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b'], { maxAheadMs: DAY });
  const b = await cluster.node('b', ['a'], { maxAheadMs: DAY, clock: new Off(-YEAR) });
  write(a, '1');
  await until('both say so', () => !a.manager.health().ok && !b.manager.health().ok);
});

test('a hub among edges that are a year ahead of it says so', async () => {
  const cluster = new Cluster();
  await cluster.node('a', ['hub'], { maxAheadMs: DAY });
  await cluster.node('b', ['hub'], { maxAheadMs: DAY });
  const { hub } = await cluster.hub('hub', ['a', 'b'], { maxAheadMs: DAY, clock: new Off(-YEAR) });
  await until('it says so', async () => (await hub.health()).problems.some((one) => one.includes('of 2 peers')));
  expect((await hub.health()).ok).toBe(false);
});

test('half of them is no reason, nor is what was heard long ago, nor anything where all times are let in', () => {
  const clocks = new PeerClocks(DAY);
  clocks.note('x', 10 * DAY, DAY);
  expect(clocks.problem(DAY)).toContain('1 of 1 peers');
  clocks.note('y', DAY, DAY);
  expect(clocks.problem(DAY)).toBeUndefined();
  clocks.note('z', 10 * DAY, DAY);
  expect(clocks.problem(DAY)).toContain('2 of 3 peers');
  expect(clocks.problem(DAY + 11 * 60_000)).toBeUndefined();
  const any = new PeerClocks(0);
  any.note('x', 10 * DAY, DAY);
  expect(any.problem(DAY)).toBeUndefined();
});
