/** When tombstones may go, by what is known of the other nodes. */
import { describe, expect, test } from 'vitest';
import { horizonOf, type Member } from '../../src/tombstones/horizon.ts';

const DAY = 86_400_000;
const NOW = 20_000 * DAY;
const KEEP = 90 * DAY;

function member(id: string, more: Partial<Member> = {}): Member {
  return { id, low: NOW, lastHeard: NOW, retired: false, left: false, plain: false, ...more };
}

const of = (...members: Member[]): ReturnType<typeof horizonOf> => horizonOf({ members, keep: KEEP, now: NOW });

describe('the horizon', () => {
  test('is what is kept before the least that anybody still has to send', () => {
    expect(of(member('self'), member('a', { low: NOW - 5 * DAY }), member('b'))).toEqual({
      kind: 'open',
      before: NOW - 95 * DAY,
      by: [],
      without: [],
    });
  });

  test('a clock that is ahead does not move it', () => {
    expect(of(member('self'), member('a', { low: NOW + 500 * DAY }))).toEqual({
      kind: 'open',
      before: NOW - KEEP,
      by: [],
      without: [],
    });
  });

  test('is held by who was not heard for longer than tombstones are kept, and by who is no Rowcast node', () => {
    const away = member('away', { lastHeard: NOW - KEEP - 1 });
    const plain = member('http://plain', { plain: true, low: undefined });
    expect(of(member('self'), away, plain)).toEqual({ kind: 'held', by: ['away', 'http://plain'] });
    expect(of(member('self'), member('a', { lastHeard: NOW - KEEP }))).toMatchObject({ kind: 'open' });
  });

  test('and by nobody who is retired', () => {
    const away = member('away', { lastHeard: 0, low: 0, retired: true });
    const plain = member('plain', { plain: true, retired: true, low: undefined });
    expect(of(member('self'), away, plain)).toEqual({
      kind: 'open',
      before: NOW - KEEP,
      by: [],
      without: ['away', 'plain'],
    });
  });

  test('nor, once it is silent for so long, by who is no peer any more, or a stale one', () => {
    const away = member('away', { lastHeard: NOW - KEEP - 1, low: 0, left: true });
    expect(of(member('self'), away)).toEqual({ kind: 'open', before: NOW - KEEP, by: [], without: ['away'] });
    const heard = member('heard', { low: NOW - 5 * DAY, left: true });
    expect(of(member('self'), heard)).toEqual({ kind: 'open', before: NOW - 95 * DAY, by: [], without: [] });
  });

  test('waits for who has not said what it still has to send; where nobody is known, there is none', () => {
    expect(of(member('self'), member('a', { low: undefined }))).toEqual({ kind: 'waiting', by: ['a'] });
    expect(of()).toEqual({ kind: 'waiting', by: [] });
    expect(of(member('a', { retired: true }))).toEqual({ kind: 'waiting', by: [] });
  });

  test('does not move for who has had something to send for longer than tombstones are kept, and says who', () => {
    expect(of(member('self'), member('a', { low: NOW - KEEP - 1 }), member('b', { low: NOW - KEEP }))).toEqual({
      kind: 'open',
      before: NOW - 2 * KEEP - 1,
      by: ['a'],
      without: [],
    });
  });
});
