/**
 * What follows from hearing of a database: a pure function of what it says and what is remembered of it.
 *
 * A database tells only ticks that are on its disk, and each attach begins (t0) at or above everything that the attaches
 * before it have told. So whoever speaks of less than is remembered of it is an earlier state of itself: a backup that was
 * put back, or a copy. No clock is involved.
 */
import { numberOf, type Remembered, type Self } from '../wire/introduction.ts';

/** What is remembered of a database. */
export interface Memory {
  boot: string;
  /** Its attaches before that, the latest first: a message of one of these is late. */
  before: string[];
  /** The tick at which its attach began. */
  t0: number;
  tick: number;
  /** How it has sealed that tick; null where it has not. */
  seal: string | null;
  /** An attach that was found to be an earlier state; what follows from that was done. */
  back: string | null;
}

export type Judgement =
  /** Never heard of, as ever, or started again. */
  | { kind: 'new' | 'same' | 'restarted'; remember: Memory }
  /** A message from before its latest start. */
  | { kind: 'late' }
  /** It is an earlier state of itself, or one of two that run. */
  | { kind: 'went-back'; remember: Memory; again: boolean };

/** Attaches that are remembered: a message may be delayed for longer than a start takes. */
const BOOTS_KEPT = 8;

export function judge(heard: Self, memory: Memory | undefined): Judgement {
  const { boot, t0, tick } = heard;
  const latest = { tick, seal: heard.seal ?? null };
  if (!memory) return { kind: 'new', remember: { boot, before: [], t0, ...latest, back: null } };
  if (boot === memory.boot) return { kind: 'same', remember: { ...memory, ...(tick > memory.tick && latest) } };
  // Of an attach before, heard of or not. A backup that was just put back may say no more: it is told what is remembered of
  // it with whatever it is sent or answered, and takes another identity.
  if (numberOf(boot) < numberOf(memory.boot) && tick <= memory.t0) return { kind: 'late' };
  if (memory.before.includes(boot)) {
    // It goes on after it has ended: the later one is a copy, and is found to be behind from now on.
    const before = memory.before.filter((one) => one !== boot);
    return { kind: 'went-back', remember: { boot, before, t0, ...latest, back: memory.boot }, again: false };
  }
  if (numberOf(boot) > numberOf(memory.boot) && t0 >= memory.tick) {
    return { kind: 'restarted', remember: { boot, before: earlier(memory), t0, ...latest, back: null } };
  }
  return { kind: 'went-back', remember: { ...memory, back: boot }, again: memory.back === boot };
}

/** The attaches before the next one. */
export function earlier({ boot, before }: Pick<Memory, 'boot' | 'before'>): string[] {
  return [boot, ...before].slice(0, BOOTS_KEPT);
}

/** What a database knows of itself besides: the tick at which each of its attaches before this one had ended. */
export interface Own extends Memory {
  ended: ReadonlyMap<string, number>;
}

/**
 * What somebody remembers of us is more than we have: we are an earlier state, or a copy. Of the latest attaches it is known
 * how far each has come, and that there was no other: a backup may have been started more than once, and have counted as
 * far as it had before.
 */
export function isBehind(own: Own, you: Remembered): boolean {
  if (you.boot === own.boot) return false;
  const ended = own.ended.get(you.boot);
  if (ended !== undefined) return you.tick > ended;
  const known = Math.min(...[own.boot, ...own.ended.keys()].map(numberOf));
  return you.tick > own.t0 || numberOf(you.boot) >= known;
}

/** Somebody else speaks under our own identity, and it is we who have come later. */
export function isCopyOf(own: Memory, heard: Self): boolean {
  if (heard.boot === own.boot || (own.before.includes(heard.boot) && heard.tick <= own.t0)) return false;
  const difference = numberOf(own.boot) - numberOf(heard.boot);
  return difference > 0 || (difference === 0 && own.boot > heard.boot);
}
