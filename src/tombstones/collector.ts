/** Tombstones that nobody needs any more, collected beside everything else: a slice a tick, once a day. */
import { beginDays, hasDays } from '../capture/floors.ts';
import type { Clock } from '../clock.ts';
import { Collection, DAY_MS, type Parts } from './collect.ts';
import { type Horizon, horizonOf } from './horizon.ts';
import type { Members } from './members.ts';

export interface CollectorOptions {
  /** In milliseconds. */
  keep: number;
  clock: Clock;
  members: Members;
  warn(code: string, message: string): void;
  onCollected(removed: number): void;
}

/** How often the horizon is asked for. */
const LOOK_MS = 60_000;
/** Whoever has not said by then what it still has to send is named. */
const UNSPOKEN_MS = 10 * 60_000;

export class Collector {
  readonly #parts: Parts;
  readonly #options: CollectorOptions;
  #collection: Collection | undefined;
  /** The day up to which all has been collected. */
  #collectedUpTo = Number.NEGATIVE_INFINITY;
  readonly #began: number;
  #lookedAt: number;
  #heldBy: string[] = [];

  constructor(parts: Parts, options: CollectorOptions) {
    this.#parts = parts;
    this.#options = options;
    // Before anybody can have been heard there is nothing to see.
    this.#began = options.clock.now();
    this.#lookedAt = this.#began;
    const { db, registry } = parts;
    if (!hasDays(db)) registry.remake(() => beginDays(db));
  }

  /** The nodes for which tombstones are kept longer than they should be. */
  get heldBy(): string[] {
    return this.#heldBy;
  }

  /** Something is known that was not: the next tick looks again. */
  lookAgain(): void {
    this.#lookedAt = Number.NEGATIVE_INFINITY;
  }

  tick(): void {
    this.#collection?.step();
    if (this.#collection?.isDone) {
      if (this.#collection.removed > 0) this.#options.onCollected(this.#collection.removed);
      this.#collection = undefined;
    }
    const now = this.#options.clock.now();
    if (this.#collection || Math.abs(now - this.#lookedAt) < LOOK_MS) return;
    this.#lookedAt = now;
    this.#look(now);
  }

  #look(now: number): void {
    const { members, keep } = this.#options;
    members.note();
    const horizon = horizonOf({ members: members.list(), keep, now });
    this.#note(horizon, now);
    if (horizon.kind !== 'open') return;
    const day = Math.floor(horizon.before / DAY_MS);
    // By a clock that was ahead, and set right since: otherwise nothing would be collected until that day comes.
    if (this.#collectedUpTo > Math.floor((now - keep) / DAY_MS)) this.#collectedUpTo = Number.NEGATIVE_INFINITY;
    if (day <= this.#collectedUpTo) return;
    members.noteUnawaited(horizon.without);
    this.#collectedUpTo = day;
    this.#collection = new Collection(this.#parts, horizon.before);
  }

  /** Who holds tombstones back is said when it changes, and not every minute. */
  #note(horizon: Horizon, now: number): void {
    // Soon after the start nobody may have spoken yet.
    const by = horizon.kind === 'waiting' && Math.abs(now - this.#began) < UNSPOKEN_MS ? [] : horizon.by;
    const fresh = by.filter((id) => !this.#heldBy.includes(id));
    this.#heldBy = by;
    if (fresh.length === 0) return;
    const names = fresh.map((id) => JSON.stringify(id)).join(', ');
    this.#options.warn(
      'tombstones-held-by',
      `tombstones are not collected because of ${names}: not heard from, or not able to deliver, for longer than they ` +
        'are kept, or no Rowcast node. Bring it back, or say that it is gone for good with forget(id)',
    );
  }
}
