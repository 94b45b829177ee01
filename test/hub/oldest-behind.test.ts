/** The oldest row behind a place: never later than it is, whatever the places and the rows do between two looks. */
import { expect, test } from 'vitest';
import { type Asked, OldestBehind, type Read } from '../../src/hub/oldest-behind.ts';
import { draws } from '../support/draws.ts';
import { Random } from '../support/model.ts';

interface Row {
  seq: number;
  time: number;
}

function read(rows: Row[], { after, limit }: Asked): Read {
  const found = rows
    .filter(({ seq }) => seq > after)
    .sort((a, b) => a.seq - b.seq)
    .slice(0, limit);
  const oldest = found.length === 0 ? null : Math.min(...found.map(({ time }) => time));
  return { rows: found.length, end: found.at(-1)?.seq ?? null, oldest };
}

/** What it tells, and how many rows it has read for that. */
function look(behind: OldestBehind, rows: Row[], position: number): { oldest: number | undefined; cost: number } {
  const looking = behind.look(position);
  let cost = 0;
  for (let step = looking.next(); ; ) {
    if (step.done) return { oldest: step.value, cost };
    const found = read(rows, step.value);
    cost += found.rows;
    step = looking.next(found);
  }
}

test('is not the first', () => {
  const rows = [90, 50, 70].map((time, i) => ({ seq: i + 1, time }));
  const behind = new OldestBehind();
  expect([0, 1, 2, 3].map((position) => look(behind, rows, position).oldest)).toEqual([50, 50, 70, Infinity]);
});

test('is read a slice at a look, and is not known until all were', () => {
  const rows = Array.from({ length: 25 }, (_, i) => ({ seq: i + 1, time: 100 - i }));
  const behind = new OldestBehind(10);
  expect([1, 2, 3].map(() => look(behind, rows, 0))).toEqual([
    { oldest: undefined, cost: 10 },
    { oldest: undefined, cost: 10 },
    { oldest: 76, cost: 5 },
  ]);
  rows.push({ seq: 26, time: 3 });
  // What is known holds, and what is new is read at once.
  expect(look(behind, rows, 0)).toEqual({ oldest: 3, cost: 11 });
  // The place goes back: nothing is known of what is before.
  const further = new OldestBehind(10);
  expect(look(further, rows, 20).oldest).toBe(3);
  expect(look(further, rows, 2).oldest).toBeUndefined();
});

test('is in the end what it is, and never later', () => {
  for (let seed = 1; seed <= draws(400); seed++) {
    const random = new Random(seed);
    const whole = (n: number): number => Math.floor(random.next() * n);
    const behind = new OldestBehind(1 + whole(6));
    const rows: Row[] = [];
    let last = 0;
    let position = 0;
    const step = (): void => {
      const kind = whole(5);
      if (kind <= 1) for (let left = whole(9); left > 0; left--) rows.push({ seq: ++last, time: whole(1_000) });
      const row = rows[whole(rows.length)];
      if (kind === 2 && row) Object.assign(row, { seq: ++last, time: row.time + whole(5) });
      if (kind === 3) position += whole(last - position + 1);
      if (kind === 4 && whole(4) === 0) position = whole(position + 1);
    };
    const truth = (): number => read(rows, { after: position, limit: Infinity }).oldest ?? Infinity;
    for (let i = 0; i < 60; i++) {
      step();
      const { oldest } = look(behind, rows, position);
      if (oldest !== undefined) expect(oldest, `seed ${seed}, step ${i}`).toBeLessThanOrEqual(truth());
    }
    for (let i = 0; i < 2 * rows.length + 2; i++) look(behind, rows, position);
    expect(look(behind, rows, position).oldest, `seed ${seed}`).toBe(truth());
  }
});
