/** A clock was far ahead for a while: what was noted by it holds nothing up once it is set right. */
import { expect, test } from 'vitest';
import { Heard } from '../../src/identity/heard.ts';
import type { Other } from '../../src/identity/identity.ts';
import { noted } from '../../src/identity/last-heard.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { horizonOf } from '../../src/tombstones/horizon.ts';
import { Members } from '../../src/tombstones/members.ts';
import { Aging, DAY, tombstones } from '../support/aging.ts';
import { settled, write } from '../support/cluster.ts';
import { node } from '../support/nodes.ts';

const NOW = 1_800_000_000_000;
const YEAR = 365 * DAY;

/** What a node knows of `b`, by a clock that a test sets. */
async function knowing(heardAt?: number) {
  const db = new Connection((await node({})).db);
  const clock = { now: NOW };
  const b: Other = { id: 'b', inc: 'i', low: undefined, heardAt };
  const members = new Members(db, {
    id: 'a',
    company: { low: () => clock.now, others: () => [b] },
    peers: () => [],
    clock: { now: () => clock.now, sleep: async () => {} },
  });
  const held = (): string[] => horizonOf({ members: members.list(), keep: 90 * DAY, now: clock.now }).by;
  return { db, clock, b, members, held };
}

test('one that was heard then can be forgotten', async () => {
  const { clock, b, members, held } = await knowing(NOW + YEAR);
  clock.now += YEAR;
  members.note();
  // The next process has not heard it.
  b.heardAt = undefined;
  clock.now = NOW + DAY;
  expect(held()).toEqual(['b']);
  members.forget('b');
  clock.now += DAY;
  expect(held()).toEqual([]);
});

test('one of which nothing was heard since a start by that clock can be forgotten', async () => {
  const { clock, members, held } = await knowing();
  clock.now -= YEAR;
  expect(held()).toEqual(['b']);
  members.forget('b');
  clock.now += DAY;
  expect(held()).toEqual([]);
});

test('one that was forgotten then counts again when it is heard', async () => {
  const { clock, b, members, held } = await knowing();
  clock.now += YEAR;
  members.forget('b');
  expect(held()).toEqual([]);
  clock.now = NOW + DAY;
  members.note();
  expect(held()).toEqual([]);
  clock.now += 1_000;
  b.heardAt = clock.now;
  expect(held()).toEqual(['b']);
});

test('when it is heard later, that is noted', async () => {
  const { db, clock, b, members } = await knowing(NOW + YEAR);
  clock.now += YEAR;
  members.note();
  clock.now = NOW + DAY;
  b.heardAt = clock.now - 5_000;
  members.note();
  expect(noted(db, 'heard', 'b')).toBe(clock.now - 5_000);
});

test('what was heard then is not heard in the future', () => {
  let now = NOW + YEAR;
  const heard = new Heard({ now: () => now });
  heard.note({ id: 'b', inc: 'i', low: 5 });
  now = NOW;
  expect(heard.as('b', 'i')).toEqual({ id: 'b', low: 5, at: NOW });
  now += DAY;
  expect(heard.as('b', 'i')?.at).toBe(NOW);
  expect(heard.as('c', 'i')).toBeUndefined();
});

test('tombstones are collected by the right clock, and not first when the day has come up to which the wrong one did', {
  tags: 'long',
}, async () => {
  const cluster = new Aging();
  const a = await cluster.member('a', ['b']);
  const b = await cluster.member('b', ['a']);
  write(a, '1', '2');
  await settled('1 2', a, b);
  a.db.exec("DELETE FROM items WHERE id = '1'");
  await cluster.pass(200, a, b);
  await cluster.gone(a, b);
  cluster.offset -= 199 * DAY;
  a.db.exec("DELETE FROM items WHERE id = '2'");
  await cluster.pass(5, a, b);
  expect([tombstones(a), tombstones(b)]).toEqual([['2'], ['2']]);
  await cluster.pass(100, a, b);
  await cluster.gone(a, b);
});
