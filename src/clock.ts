import { setMaxListeners } from 'node:events';

/**
 * Time comes in from outside, so that a simulation can own it. Nothing else in `src/` may call `Date.now` or
 * `setTimeout`: a test reads the sources and says so.
 */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Resolves after `ms`, or as soon as `signal` aborts; it never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const done = (): void => {
        stop();
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const stop = ms > 0 ? after(ms, done) : next(done);
      signal?.addEventListener('abort', done, { once: true });
    }),
};

/**
 * Rings once after `ms`, unless what it returns is called before. Sleeping until a signal aborts costs several times as much,
 * and there are two of these to a batch: what ends a pause, and what ends a request.
 */
export function alarm(clock: Clock, ms: number, ring: () => void): () => void {
  if (clock === systemClock) return ms > 0 ? after(ms, ring) : next(ring);
  const off = new AbortController();
  void clock.sleep(ms, off.signal).then(() => {
    if (!off.signal.aborted) ring();
  });
  // Without a reason, Node would make an error with a stack for each.
  return () => off.abort('off');
}

/**
 * Ends whatever waits for it, however many do: of more than ten Node says on the standard error that they may be a leak, which
 * nobody could tell from one of the application's.
 */
export function endOfMany(): AbortController {
  const end = new AbortController();
  setMaxListeners(0, end.signal);
  return end;
}

/** Milliseconds of which only differences say anything, with their fractions where the clock is the system's. */
export function preciseNow(clock: Clock): number {
  return clock === systemClock ? performance.now() : clock.now();
}

/**
 * Milliseconds since `at`. Clocks are set back, by an hour or by a year: what is then still to come is as long ago as it is
 * away, so that whoever waits for so much to pass does not wait for that time to come again.
 */
export function passedSince(clock: Pick<Clock, 'now'>, at: number): number {
  return Math.abs(clock.now() - at);
}

/** A clock that moves on by more than this between two looks, or goes back, was set, or its machine has slept. */
const STEADY_MS = 10 * 60_000;
/** After that long it is believed. */
export const BELIEVED_MS = 3_600_000;

/**
 * Whether a clock runs on, for those who would do by it what cannot be undone: one that is wrong for a moment, a year ahead, must
 * not make them throw away what is a day old. Has to be asked often.
 */
export class Steadiness {
  readonly #clock: Pick<Clock, 'now'>;
  #lookedAt: number;
  #since: number;
  #wasSet = false;

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock;
    this.#lookedAt = clock.now();
    this.#since = this.#lookedAt;
  }

  /** For how long it has run steadily under our eyes. */
  look(): number {
    const now = this.#clock.now();
    const passed = now - this.#lookedAt;
    const isSet = passed < 0 || passed > STEADY_MS;
    if (isSet) this.#since = now;
    this.#wasSet ||= isSet;
    this.#lookedAt = now;
    return now - this.#since;
  }

  /** Nobody has set it under our eyes, or that is long enough ago. What it says at the beginning is all that there is to go by. */
  isBelieved(): boolean {
    return this.look() >= BELIEVED_MS || !this.#wasSet;
  }
}

function after(ms: number, done: () => void): () => void {
  const timer = setTimeout(done, ms);
  return () => clearTimeout(timer);
}

/**
 * When everybody else has had a turn: a timer would wait for a millisecond, and waking up from that is not free. What is set
 * while a request or an answer is being read is still called in that round of the event loop, before any timer: the
 * second of two is not.
 */
function next(done: () => void): () => void {
  let turn = setImmediate(() => {
    turn = setImmediate(done);
  });
  return () => clearImmediate(turn);
}

// Lengths of time as people write them: `90m`, `24h`, `7d`.

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Of what is kept as long as there is anything. */
export const FOREVER = 'forever';

export const EVERY_RULE = 'must be a time from 1s to 365d, such as 90m, 24h or 7d, or milliseconds';
const UNITS = { ms: 1, s: 1_000, m: 60_000, h: HOUR_MS, d: DAY_MS };

/** `24h` in milliseconds; undefined where it is no such time. */
export function parseEvery(every: unknown): number | undefined {
  const [, digits, unit] = typeof every === 'string' ? (/^(\d{1,9})(ms|s|m|h|d)$/.exec(every) ?? []) : [];
  const ms = typeof every === 'number' ? every : Number(digits) * UNITS[unit as keyof typeof UNITS];
  return Number.isInteger(ms) && ms >= 1_000 && ms <= 365 * DAY_MS ? ms : undefined;
}

export const KEEP_RULE = 'must be hours or days, such as 36h or 90d, from 1h to 36500d, or forever';

/** In milliseconds; undefined for ever, null where it is none. */
export function keepMs(text: string): number | undefined | null {
  if (text === FOREVER) return undefined;
  const [, digits, unit] = /^(\d{1,6})([hd])$/.exec(text) ?? [];
  const ms = Number(digits) * (unit === 'd' ? 24 * HOUR_MS : HOUR_MS);
  return ms >= HOUR_MS && ms <= 36_500 * 24 * HOUR_MS ? ms : null;
}
