/** Of the loops of many peers a few go on in one turn of the event loop, in the order in which they came. */
import { expect, test } from 'vitest';
import { AT_ONCE, Crowd } from '../../src/send/crowd.ts';
import { recordingFetch } from '../support/bad-servers.ts';
import { node } from '../support/nodes.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

/** Turns that come when they are told to. */
function turning(size: () => number) {
  let next: (() => void) | undefined;
  const crowd = new Crowd(size, () => new Promise((resolve) => (next = resolve)));
  const begun: number[] = [];
  const enter = async (n: number): Promise<void> => {
    await crowd.enter();
    begun.push(n);
  };
  const turn = async (): Promise<void> => {
    const come = next;
    next = undefined;
    come?.();
    await settle();
  };
  return { begun, enter, turn, isTurning: () => next !== undefined };
}

const upTo = (last: number): number[] => Array.from({ length: last }, (_, i) => i);

test('so many in a turn, and the others in the next ones', async () => {
  const { begun, enter, turn, isTurning } = turning(() => 100);
  for (const n of upTo(20)) void enter(n);
  await settle();
  expect(begun).toEqual(upTo(AT_ONCE));
  await turn();
  expect(begun).toEqual(upTo(2 * AT_ONCE));
  // Who comes last is last, though there is room in this turn.
  void enter(20);
  await turn();
  expect(begun).toEqual(upTo(21));
  await turn();
  expect(isTurning()).toBe(false);
  void enter(21);
  await settle();
  expect(begun).toEqual(upTo(22));
});

test('a few peers know of no turns, and nobody is left waiting where there are few by now', async () => {
  let size = AT_ONCE;
  const { begun, enter, turn, isTurning } = turning(() => size);
  for (const n of upTo(20)) void enter(n);
  await settle();
  expect([begun.length, isTurning()]).toEqual([20, false]);
  size = 100;
  for (const n of upTo(10)) void enter(20 + n);
  size = 1;
  await turn();
  expect(begun).toEqual(upTo(30));
});

test('a write for many dead peers does not become as many requests in one turn', async () => {
  const clock = new VirtualClock();
  let inTurn = 0;
  let most = 0;
  const network = recordingFetch(() => {
    if (inTurn === 0)
      setImmediate(() => {
        inTurn = 0;
      });
    inTurn += 1;
    most = Math.max(most, inTurn);
    throw new Error('ECONNREFUSED');
  });
  const peers = upTo(60).map((n) => `http://peer-${n}.test`);
  const { db, manager } = await node({ id: 'a', peers, clock, random: () => 0, fetch: network.fetch });
  db.exec("INSERT INTO items VALUES ('a', 'n', 1, 10, 1000)");
  manager.nudge();
  await clock.advance(2_000);
  expect(manager.health().peer_states.every(({ state }) => state === 'down')).toBe(true);
  // A turn as it is counted here may have a part of two of them.
  expect(most).toBeLessThanOrEqual(2 * AT_ONCE);
});
