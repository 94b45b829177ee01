/** The pauses of a loop: no call is lost, whenever it comes. */
import { describe, expect, test } from 'vitest';
import { Rest } from '../../src/send/rest.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

function rest() {
  const clock = new VirtualClock();
  const stop = new AbortController();
  const of = new Rest(clock, stop.signal);
  const begun: string[] = [];
  const over = (name: string, pause: Promise<void>): void => void pause.then(() => begun.push(name));
  return { clock, stop, of, over, begun };
}

describe('a sleep', () => {
  test('has no timer, and ends when somebody calls', async () => {
    for (const call of ['wake', 'nudge'] as const) {
      const { clock, of, over, begun } = rest();
      of.begin();
      over('slept', of.sleep());
      await clock.advance(1_000_000);
      expect([clock.pending, begun]).toEqual([0, []]);
      of[call]();
      await settle();
      expect(begun).toEqual(['slept']);
    }
  });

  test('does not begin where somebody has called since the pass began', async () => {
    for (const call of ['wake', 'nudge'] as const) {
      const { of, over, begun } = rest();
      of.begin();
      // The pass has looked, and found nothing; now there is something.
      of[call]();
      over('slept', of.sleep());
      await settle();
      expect(begun).toEqual(['slept']);
      // The next pass has seen it.
      of.begin();
      over('slept again', of.sleep());
      await settle();
      expect(begun).toEqual(['slept']);
    }
  });

  test('does not begin once the loop is stopped', async () => {
    const { stop, of } = rest();
    stop.abort();
    await of.sleep();
    await of.pause(1_000);
    await of.pauseForDown(1_000);
  });
});

describe('the pause for a peer that is down', () => {
  test('lasts its time though there is more to send', async () => {
    const { clock, of, over, begun } = rest();
    of.begin();
    over('paused', of.pauseForDown(1_000));
    of.wake();
    await clock.advance(999);
    expect(begun).toEqual([]);
    await clock.advance(1);
    expect(begun).toEqual(['paused']);
  });

  test('ends when it is nudged, and keeps what was called meanwhile from the next sleep', async () => {
    const { of, over, begun } = rest();
    of.begin();
    of.wake();
    over('paused', of.pauseForDown(1_000));
    await settle();
    expect(begun).toEqual([]);
    of.nudge();
    await settle();
    expect(begun).toEqual(['paused']);
    // The pass that follows finds the peer up again and has looked; then there is more.
    of.begin();
    of.wake();
    over('slept', of.sleep());
    await settle();
    expect(begun).toEqual(['paused', 'slept']);
  });
});
