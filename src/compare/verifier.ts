/** Comparisons with all peers: one at a time, on demand at full speed, and by themselves once a day, gently. */
import { type Clock, preciseNow } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { VerifyNote, VerifyNotes, VerifySummary } from './notes.ts';
import { Pace } from './pace.ts';
import { type Comparison, type VerifyOptions, type VerifyResult, verify } from './verify.ts';

export interface VerifierOptions {
  /** Those that are configured at the moment. */
  peers(): string[];
  /** The parts of a comparison with a peer. */
  with(peer: string, signal: AbortSignal | undefined): Omit<Comparison, 'peer' | 'pace' | 'now'>;
  /** Can it be compared with now: is it up, known to be Rowcast, and not being given everything anyway? */
  isReady(peer: string): boolean;
  notes: VerifyNotes;
  /** What these say at the beginning. */
  remembered: ReadonlyMap<string, VerifyNote>;
  clock: Clock;
  random(): number;
  /** How often, in milliseconds; 0 is never by itself. */
  everyMs: number;
  repair: boolean;
  /** `hasTriedAll`: whatever differs in any table was to be put right. */
  onDone(result: VerifyResult & { cause: string }, hasTriedAll: boolean): void;
  /** What differed in these tables, by their names as they travel, was exchanged with a peer. */
  onRepaired?(peer: string, tables: string[]): void;
  onError(error: unknown): void;
  stopped: AbortSignal;
}

/** The part of the event loop's time that a comparison by itself may take. */
const GENTLE = 0.1;
/** How often it is looked who is due, and after what time a comparison that could not be finished is tried again. */
const LOOK_MS = 1_000;
const RETRY_MS = 10 * 60_000;

export const DAILY = 'daily';
export const ASKED = 'asked';

export class Verifier {
  readonly #o: VerifierOptions;
  /** The latest comparison by peer, for health. */
  #notes: ReadonlyMap<string, VerifyNote>;
  #last: Promise<unknown> = Promise.resolve();
  #underWay = false;
  #lookedAt = -Infinity;

  constructor(options: VerifierOptions) {
    this.#o = options;
    this.#notes = options.remembered;
  }

  /** What the latest comparison with a peer has found; undefined before the first. */
  summaryOf(peer: string): VerifySummary | undefined {
    return this.#notes.get(peer)?.last;
  }

  /** On demand: of one peer, or of all of them, one after the other. */
  async verify(peers: string[], options: VerifyOptions): Promise<VerifyResult[]> {
    const results: VerifyResult[] = [];
    for (const peer of peers) results.push(await this.#inTurn(() => this.#compare(peer, ASKED, 1, options)));
    return results;
  }

  /** Begins with whoever is due. Asked now and then. */
  tick(): void {
    const { clock } = this.#o;
    const now = clock.now();
    if (this.#o.everyMs === 0) return;
    if (this.#underWay || Math.abs(now - this.#lookedAt) < LOOK_MS) return;
    this.#lookedAt = now;
    this.#underWay = true;
    void this.#inTurn(() => this.#whoIsDue())
      .catch((error) => {
        if (!this.#o.stopped.aborted) this.#o.onError(error);
      })
      .finally(() => {
        this.#underWay = false;
      });
  }

  /** Resolves when nothing is under way any more; `stopped` has been aborted before. */
  async stop(): Promise<void> {
    await this.#last.catch(() => {});
  }

  async #whoIsDue(): Promise<void> {
    const { notes, isReady, everyMs, random, clock } = this.#o;
    const now = clock.now();
    this.#notes = await notes.read();
    const known = this.#notes;
    const unplanned = this.#o.peers().filter((peer) => isReady(peer) && !known.has(peer));
    // Many nodes that were started together do not begin together.
    await Promise.all(unplanned.map((peer) => notes.write(peer, { due: now + Math.ceil(everyMs * random()) })));
    for (const peer of this.#o.peers()) {
      const note = known.get(peer);
      if (!note || !isReady(peer)) continue;
      // A clock that was set back would put it off for as long; a second or an hour does not matter.
      if (now < note.due && note.due - now <= 2 * everyMs) continue;
      await this.#compare(peer, DAILY, GENTLE, { repair: this.#o.repair });
      return;
    }
  }

  async #compare(peer: string, cause: string, share: number, options: VerifyOptions): Promise<VerifyResult> {
    const { clock, stopped, notes, everyMs } = this.#o;
    const repair = options.repair === true;
    const pace = new Pace(clock, share, stopped, options.signal);
    const parts = this.#o.with(peer, options.signal);
    const result = await verify({ ...parts, peer, pace, now: () => preciseNow(clock) }, options);
    if (stopped.aborted) throw new RowcastError('STOPPED', 'this manager was stopped');
    if (options.tables === undefined) {
      const planned = (await notes.read()).get(peer)?.due;
      const isDone = result.error === undefined;
      const note = {
        due: nextDue(cause, { planned, isDone, repair, everyMs, now: clock.now() }),
        last: summary(result, clock.now()),
      };
      await notes.write(peer, note);
      this.#notes = new Map(this.#notes).set(peer, note);
    }
    const compared = result.tables.map(({ table }) => table);
    if (repair && result.error === undefined) this.#o.onRepaired?.(peer, compared);
    // Who only looks fetches nothing, and cannot come upon what is too large to be fetched.
    this.#o.onDone({ ...result, cause }, options.tables === undefined && (repair || result.equal));
    return result;
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#last.catch(() => {}).then(work);
    this.#last = run;
    return run;
  }
}

interface Compared {
  /** When it was due, where that was known. */
  planned: number | undefined;
  isDone: boolean;
  repair: boolean;
  everyMs: number;
  now: number;
}

/** When the next comparison of all tables is due. */
export function nextDue(cause: string, { planned, isDone, repair, everyMs, now }: Compared): number {
  // On demand and without repair it was only looked.
  if (cause === ASKED && planned !== undefined && !(isDone && repair)) return planned;
  // What could not be finished is still due.
  return now + (isDone || cause === ASKED ? everyMs : RETRY_MS);
}

function summary({ equal, differences, repaired, pending, tables, error }: VerifyResult, at: number): VerifySummary {
  return {
    at,
    equal,
    differences,
    repaired,
    pending,
    tables: differing(tables),
    ...(error !== undefined && { error }),
  };
}

function differing(tables: VerifyResult['tables']): Record<string, number> {
  const found = tables.filter((table) => table.differences > 0);
  return Object.fromEntries(found.map((table) => [table.table, table.differences]));
}

/** What is told of it as an event: no id of a row, and no content. */
export function eventOf({ requests: _, bytes: __, tables, ...told }: VerifyResult & { cause: string }): VerifyEvent {
  return { ...told, tables: differing(tables) };
}

type VerifyEvent = Omit<VerifyResult, 'tables' | 'requests' | 'bytes'> & {
  cause: string;
  tables: Record<string, number>;
};
