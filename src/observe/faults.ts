/**
 * Why what is written here would not last. What has failed at writing to the database, until it has succeeded again: a disk
 * that is full lets a transaction begin and end, and only who wants to write something finds out. And a file that was
 * moved away under the process.
 */
import type { Clock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { OpenFile, TEMPORARY } from '../sqlite/open-file.ts';
import { isCode } from '../sqlite/result-codes.ts';
import { Unseen } from './unseen.ts';

/** Whoever fails tries again within seconds; where nobody does, nobody knows whether it would still fail. */
const LASTS_MS = 60_000;
/** A lock of somebody else's is given back, and then all goes on; one that is held for so long was forgotten. */
const HELD_MS = 30_000;

export class Faults {
  readonly #clock: Clock;
  readonly #file: OpenFile | undefined;
  readonly #unseen: Unseen | undefined;
  /** By what was tried. */
  readonly #failed = new Map<string, { message: string; at: number }>();
  /** What somebody else's lock, or a transaction of the application's own, keeps from being done; since when, at each try. */
  readonly #held = new Map<string, { message: string; since: number; at: number }>();

  /** Without a database of its own, as a hub whose store looks after that. */
  constructor(clock: Clock, db?: Connection) {
    this.#clock = clock;
    this.#file = db && new OpenFile(db);
    this.#unseen = db && this.#file && new Unseen(db, { file: this.#file, clock, faults: this });
  }

  /** Has to be called often. `isQuiet`: our connection sees what it saw the last time. */
  tick(isQuiet: boolean): void {
    this.#unseen?.tick(isQuiet);
  }

  /** A body that is no batch and the like are no faults of the database; somebody else's lock is one where it lasts. */
  failed(what: string, error: unknown): void {
    if (!(error instanceof RowcastError)) return;
    const [{ code, message }, at] = [error, this.#clock.now()];
    if (code === 'DATABASE_FAILED') this.#failed.set(what, { message: message + this.#where(error.cause), at });
    if (code !== 'DATABASE_BUSY' && code !== 'IN_TRANSACTION') return;
    const before = this.#held.get(what);
    // Who has not tried for long does not know how it was meanwhile; nor does a clock that was set back.
    const isSame = before !== undefined && Math.abs(at - before.at) < LASTS_MS;
    this.#held.set(what, { message, since: isSame ? Math.min(before.since, at) : at, at });
  }

  /** SQLite says the same of whichever disk is full, and whoever looks at that of the database finds nothing. */
  #where(cause: unknown): string {
    if (!isCode(cause, 'FULL') || !this.#file?.hasRoom) return '';
    return `; there is room beside the database, so look ${TEMPORARY}, and at quotas`;
  }

  succeeded(what: string): void {
    this.#failed.delete(what);
    this.#held.delete(what);
  }

  /** Nothing is acknowledged that would be lost with the process. */
  refuseIfMoved(): void {
    this.#file?.refuseIfMoved();
  }

  /** Whether a write may fail is to be found out by one. */
  get isShortOfRoom(): boolean {
    return this.#file?.isShortOfRoom ?? false;
  }

  problems(): string[] {
    const now = this.#clock.now();
    for (const tried of [this.#failed, this.#held]) {
      for (const [what, { at }] of tried) if (Math.abs(now - at) >= LASTS_MS) tried.delete(what);
    }
    const held = [...this.#held.values()].filter(({ since, at }) => at - since >= HELD_MS);
    const locked = held.map(({ message }) => `nothing could be written for half a minute: ${message}`);
    const moved = this.#file?.problem;
    const failed = [...this.#failed.values()].map(({ message }) => message);
    return [...new Set([...(moved === undefined ? [] : [moved]), ...failed, ...locked])];
  }
}
