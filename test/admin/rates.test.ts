/** The last minutes, in steps: what is counted into which, and what is forgotten. */
import { expect, test } from 'vitest';
import { Rates } from '../../src/admin/rates.ts';
import { Emitter } from '../../src/events.ts';

const STEP = 5_000;
const FIRST = 1_000;

function counted(): {
  rates: Rates;
  acked(peer: string, changes: number): void;
  received(n: number): void;
  at(step: number): void;
} {
  const events = new Emitter();
  let now = FIRST * STEP;
  const rates = new Rates(events, { now: () => now, sleep: async () => {} });
  const sent = { batchId: 1, bytes: 1, encoding: 'identity', ms: 1 } as const;
  return {
    rates,
    acked: (peer, changes) => events.emit('attempt', { ...sent, peer, changes, result: 'acked' }),
    received: (changes) => events.emit('received', { from: 'x', changes, applied: 0, bytes: 1, ms: 1, status: 200 }),
    at: (step) => {
      now = step * STEP + 1;
    },
  };
}

test('what was acknowledged and received stands in its step, for each peer and for all', () => {
  const { rates, acked, received, at } = counted();
  acked('b', 3);
  at(FIRST + 1);
  acked('b', 4);
  acked('c', 5);
  received(7);
  expect(rates.since(FIRST)).toEqual({
    began: FIRST * STEP,
    stepMs: STEP,
    last: FIRST + 1,
    from: FIRST,
    acked: [3, 9],
    received: [0, 7],
    peers: { b: [3, 4], c: [0, 5] },
  });
  expect(rates.since(FIRST + 1)).toMatchObject({ acked: [9], peers: { b: [4], c: [5] } });
});

test('an attempt that came to nothing, and a batch that was refused, are not counted', () => {
  const events = new Emitter();
  const rates = new Rates(events, { now: () => FIRST * STEP, sleep: async () => {} });
  const attempt = { peer: 'b', batchId: 1, changes: 5, bytes: 1, encoding: 'gzip', ms: 1 } as const;
  for (const result of ['unreachable', 'refused', 'too-large'] as const) events.emit('attempt', { ...attempt, result });
  events.emit('received', { from: 'x', changes: 5, applied: 0, bytes: 1, ms: 1, status: 503 });
  expect(rates.since(FIRST)).toMatchObject({ acked: [0], received: [0], peers: {} });
});

test('five minutes later it is forgotten, and the place is not mistaken for a new one', () => {
  const { rates, acked, at } = counted();
  acked('b', 3);
  at(FIRST + 60);
  expect(rates.since(0)).toMatchObject({ from: FIRST, last: FIRST + 60, peers: { b: expect.anything() } });
  at(FIRST + 61);
  expect(rates.since(0)).toMatchObject({ from: FIRST + 1, peers: {} });
  acked('b', 2);
  const { acked: counts, peers } = rates.since(0);
  expect([counts.reduce((sum, n) => sum + n, 0), counts.at(-1), peers.b?.at(-1)]).toEqual([2, 2, 2]);
  at(FIRST + 500);
  expect(rates.since(0).acked).toEqual(new Array(61).fill(0));
});

test('a clock that was ahead for a year, and is set right, counts from then on', () => {
  const { rates, acked, at } = counted();
  at(FIRST + 10_000);
  acked('b', 1);
  at(FIRST + 2);
  acked('b', 2);
  at(FIRST + 3);
  expect(rates.since(FIRST)).toMatchObject({ acked: [0, 0, 2, 0], peers: { b: [0, 0, 2, 0] } });
});

test('a clock that was set back counts into no step that is over, and a step from the future asks for the present one', () => {
  const { rates, acked, at } = counted();
  at(FIRST + 2);
  acked('b', 1);
  at(FIRST);
  acked('b', 1);
  at(FIRST + 2);
  expect(rates.since(FIRST).acked).toEqual([0, 0, 2]);
  expect(rates.since(FIRST + 9)).toMatchObject({ from: FIRST + 2, last: FIRST + 2, acked: [2] });
});
