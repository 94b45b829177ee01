/** What a database has said of its attaches is kept until it is known to have heard it. */
import { expect, test } from 'vitest';
import { claimed, claimedBy, claimsLeft } from '../../src/identity/claim.ts';
import type { Memory } from '../../src/identity/judge.ts';

const INC = '5f0c1e9a77b2d310';
const SELF = '9be0aa10c2f4d871';
const SEAL = 'c'.repeat(16);
const boot = (number: number): string => `${number}-aaaaaaaa`;
const memory = (number: number, tick: number): Memory => ({
  boot: boot(number),
  before: [],
  t0: tick,
  tick,
  seal: SEAL,
  back: null,
});
const known = (number: number, tick: number, claim: string | null = null) => ({
  ...memory(number, tick),
  inc: INC,
  claim,
  heard: 50,
});
/** It says that it is at this boot and tick, and has heard this tick of ours. */
const said = (number: number, tick: number, heard = 0, seal: string | undefined = SEAL) => ({
  id: 'a',
  inc: INC,
  boot: boot(number),
  t0: tick,
  tick,
  seal,
  you: { inc: SELF, tick: heard, boot: boot(1) },
});
const word = (number: number, tick: number): string => `${tick}.${boot(number)}.${SEAL}`;

test('what a request says of another attach is kept, the latest of each, of four at the most', () => {
  const first = claimedBy(said(2, 7), known(1, 5));
  expect(first).toBe(word(2, 7));
  expect(claimedBy(said(2, 9), known(1, 5, first))).toBe(word(2, 9));
  expect(claimedBy(said(2, 6), known(1, 5, first))).toBe(first);
  expect(claimedBy(said(3, 8), known(1, 5, first))).toBe(`${word(3, 8)} ${word(2, 7)}`);
  const four = [5, 4, 3, 2].map((number) => word(number, 7)).join(' ');
  expect(claimedBy(said(6, 8), known(1, 5, four))?.split(' ')).toEqual([word(6, 8), ...four.split(' ').slice(0, 3)]);
});

test('nobody could ever know again what has no seal', () => {
  expect(claimedBy({ ...said(2, 7), seal: undefined }, known(1, 5))).toBeNull();
  expect(claimsLeft({ ...known(1, 5), seal: null }, memory(2, 6), said(2, 6), SELF)).toBeNull();
});

test('the attach before is told until it is known to have been heard, whatever comes in between', () => {
  const left = claimsLeft(known(1, 5), memory(2, 6), said(2, 6), SELF);
  expect(left).toBe(word(1, 5));
  expect(claimsLeft(known(2, 6, left), memory(2, 7), said(2, 7, 50), SELF)).toBe(left);
  expect(claimsLeft(known(2, 6, left), memory(2, 7), said(2, 7, 51), 'another')).toBe(left);
  expect(claimsLeft(known(2, 6, left), memory(2, 7), said(2, 7, 51), SELF)).toBeNull();
});

test('what was claimed stays until that much was heard of the attach itself', () => {
  const claim = word(2, 9);
  expect(claimsLeft(known(1, 5, claim), memory(1, 6), said(1, 6, 99), SELF)).toBe(claim);
  expect(claimsLeft(known(1, 5, claim), memory(2, 8), said(2, 8, 0), SELF)).toBe(`${word(1, 5)} ${claim}`);
  expect(claimsLeft(known(1, 5, claim), memory(2, 9), said(2, 9, 0), SELF)).toBe(word(1, 5));
});

test('it is told as what is remembered', () => {
  expect(claimed({ inc: INC, claim: `${word(2, 9)} ${word(1, 5)}` })).toEqual([
    { inc: INC, boot: boot(2), tick: 9, seal: SEAL },
    { inc: INC, boot: boot(1), tick: 5, seal: SEAL },
  ]);
  expect(claimed({ inc: INC, claim: null })).toEqual([]);
});
