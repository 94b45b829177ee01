/**
 * What a database has said of its attaches, and may not know any more: its words are kept, and told to it with whatever it is
 * sent and answered, until it is known to have heard them. By the seal it knows whether they are its own, and by what it
 * has itself whether it was put back to what it was before.
 *
 * There are two kinds. What a request says of a database that was started again is not believed before that one has been
 * asked: anybody can make a request. But what the request brings is kept, and if the database is put back in that very
 * moment, nothing else tells that it has had more. And the last that was heard of the attach before: a backup that is started
 * often enough has counted as far as it had before, and looks like one that was merely started again.
 */
import { type Introduction, numberOf, type Remembered, readRemembered } from '../wire/introduction.ts';
import type { Memory } from './judge.ts';

interface Claimed extends Memory {
  inc: string;
  /** `<tick>.<boot>.<seal>` of each, the latest first. */
  claim: string | null;
  /** The tick here at which something new was last heard of it. */
  heard: number | null;
}

/** Attaches of which that is kept. */
const KEPT = 4;

/** As it is told to that database. */
export function claimed({ inc, claim }: Pick<Claimed, 'inc' | 'claim'>): Remembered[] {
  const all = claim?.split(' ').map((one) => readRemembered(`${inc}.${one}`)) ?? [];
  return all.filter((one) => one !== undefined);
}

/** With what a request has said now. */
export function claimedBy(said: Introduction, known: Claimed): string | null {
  return spelt(added(claimed(known), said));
}

/**
 * When it is remembered as `memory` from now on, by what it has `said` to the database `own`. What it remembers of that one
 * is later than all that was heard of it before: then it has been told.
 */
export function claimsLeft(known: Claimed, memory: Memory, said: Introduction, own: string): string | null {
  const isNext = memory.boot !== known.boot;
  if (known.claim === null && !isNext) return null;
  const isTold = said.you?.inc === own && known.heard !== null && said.you.tick > known.heard;
  const left = claimed(known).filter(({ boot, tick }) => {
    if (boot === memory.boot) return tick > memory.tick;
    return !isTold || numberOf(boot) > numberOf(memory.boot);
  });
  return spelt(isNext ? added(left, { ...known, seal: known.seal ?? undefined }) : left);
}

function added(all: Remembered[], { inc, boot, tick, seal }: Remembered): Remembered[] {
  const of = all.find((one) => one.boot === boot);
  if (seal === undefined || (of && of.tick >= tick)) return all;
  return [{ inc, boot, tick, seal }, ...all.filter((one) => one !== of)].slice(0, KEPT);
}

function spelt(all: Remembered[]): string | null {
  return all.length === 0 ? null : all.map(({ tick, boot, seal }) => `${tick}.${boot}.${seal}`).join(' ');
}
