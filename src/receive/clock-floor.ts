/**
 * A clock that cannot be right. One that stands at 1970, after a battery has died, would make everything that others write
 * look far ahead, and all of it would be kept waiting. While it says a time before its floor, nothing is received: the
 * senders are answered 503, keep what they have, and try again.
 *
 * The floor is the day before which there was no Rowcast, or the greatest time at which this database was seen in use by a
 * clock that ran steadily for an hour: one that is wrong for a moment must not shut the door for years.
 */
import { BELIEVED_MS, type Clock, Steadiness } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';

export const EARLIEST = Date.UTC(2023, 10, 1);

/** How often a time is noted. */
const NOTE_MS = 3_600_000;

export class ClockFloor {
  readonly #clock: Clock;
  readonly #maxAheadMs: number;
  /** The greatest time that was noted, by this process or another. */
  noted: number;
  readonly #steadiness: Steadiness;

  constructor(clock: Clock, maxAheadMs: number, noted: number | undefined) {
    this.#clock = clock;
    this.#maxAheadMs = maxAheadMs;
    this.#steadiness = new Steadiness(clock);
    this.noted = noted ?? 0;
  }

  /** Why nothing can be received, for health and for the senders. A clock that is behind by less takes all that is right. */
  get problem(): string | undefined {
    const floor = Math.max(EARLIEST, this.noted);
    const now = this.#clock.now();
    if (this.#maxAheadMs === 0 || now + this.#maxAheadMs >= floor) return undefined;
    const what = `clock: it says ${iso(now)}, and this database was in use at ${iso(floor)}; nothing is received until it is set`;
    // Whoever has set it right a minute ago must not be told to do so once more.
    return floor === this.noted
      ? `${what}; if it is right, that time was not: docs/clocks.md says how to take it out`
      : what;
  }

  refuseIfBehind(): void {
    const { problem } = this;
    if (problem !== undefined) throw new RowcastError('CLOCK_BEHIND', problem);
  }

  /** Asked again and again. A time that is to be noted now, and is `noted` when it is: once in an hour, mostly undefined. */
  look(): number | undefined {
    const now = this.#clock.now();
    return this.#steadiness.look() < BELIEVED_MS || now - this.noted < NOTE_MS ? undefined : now;
  }
}

/** A node's, which is kept in `_meta`. */
export class NodeClockFloor extends ClockFloor {
  readonly #db: Connection;
  readonly #warn: (code: string, message: string) => void;
  #told = false;

  constructor(db: Connection, clock: Clock, maxAheadMs: number, warn: (code: string, message: string) => void) {
    super(clock, maxAheadMs, notedIn(db));
    this.#db = db;
    this.#warn = warn;
  }

  tick(): void {
    const time = this.look();
    if (time !== undefined) {
      note(this.#db, time);
      this.noted = time;
    }
    const { problem } = this;
    if (problem === undefined) return;
    if (!this.#told) this.#warn('clock', problem);
    this.#told = true;
    // What was noted may be wrong itself, and a person may have taken it away.
    this.noted = notedIn(this.#db);
  }
}

function notedIn(db: Connection): number {
  const noted = db.get<{ value: unknown }>("SELECT value FROM main._meta WHERE key = 'clock'")?.value;
  return typeof noted === 'number' ? noted : 0;
}

function note(db: Connection, time: number): void {
  const sql =
    "INSERT INTO main._meta (key, value) VALUES ('clock', CAST(? AS INTEGER)) " +
    'ON CONFLICT DO UPDATE SET value = max(value, excluded.value)';
  db.transaction(() => db.run(sql, time));
}

function iso(time: number): string {
  return new Date(time).toISOString();
}
