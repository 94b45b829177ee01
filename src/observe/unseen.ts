/**
 * What others write to the database while the application is in the middle of a query on our connection: until that ends, it
 * goes on seeing the database as it was when the query began. Nothing counts as pending then, nothing is sent, and no error
 * says so. That there is something to see shows in the WAL, which belongs to no connection.
 */
import { type Clock, passedSince } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { inTransaction, isNestedTransaction } from '../sqlite/explained.ts';
import { isReading, waitingAtMost } from '../sqlite/look.ts';
import type { OpenFile } from '../sqlite/open-file.ts';
import { isStale } from '../sqlite/result-codes.ts';

const WHAT = 'see what others write';
/** What is being committed at this moment is seen at the next look. */
const PAUSE_MS = 1_000;

interface Told {
  failed(what: string, error: unknown): void;
  succeeded(what: string): void;
}

export class Unseen {
  readonly #db: Connection;
  readonly #file: Pick<OpenFile, 'walState'>;
  readonly #clock: Clock;
  readonly #faults: Told;
  /** The WAL when everything in it could be seen. */
  #seen: string | undefined;
  #triedAt: number | undefined;

  constructor(
    db: Connection,
    { file, clock, faults }: { file: Pick<OpenFile, 'walState'>; clock: Clock; faults: Told },
  ) {
    this.#db = db;
    this.#file = file;
    this.#clock = clock;
    this.#faults = faults;
  }

  /** `isQuiet`: our connection sees what it saw at the look before. */
  tick(isQuiet: boolean): void {
    const wal = this.#file.walState;
    // With a transaction open nobody can tell by our connection whether it sees what is new.
    const isOpen = this.#db.isInTransaction === true;
    if ((!isQuiet && !isOpen) || wal === undefined || wal === this.#seen) {
      this.#isSeen(wal);
      return;
    }
    this.#triedAt ??= this.#clock.now();
    if (passedSince(this.#clock, this.#triedAt) < PAUSE_MS) return;
    this.#triedAt = this.#clock.now();
    const found = this.#try();
    if (found === 'all') this.#isSeen(wal);
    else if (found !== 'unknown') this.#faults.failed(WHAT, found);
  }

  /** Only who sees everything may write. A transaction that was taken back has left something there as well. */
  #try(): 'all' | 'unknown' | RowcastError {
    try {
      waitingAtMost(this.#db, 0, () => {
        this.#db.beginWriting();
        this.#db.exec('ROLLBACK');
      });
      return 'all';
    } catch (error) {
      if (isNestedTransaction(error)) return inTransaction(error);
      // Somebody else who is writing keeps us from writing, and not from seeing.
      return isReading(error) || isStale(error) ? behind() : 'unknown';
    }
  }

  #isSeen(wal: string | undefined): void {
    this.#seen = wal;
    if (this.#triedAt === undefined) return;
    this.#triedAt = undefined;
    this.#faults.succeeded(WHAT);
  }
}

function behind(): RowcastError {
  return new RowcastError(
    'DATABASE_BUSY',
    'the application is in the middle of a query on this connection, which does not see meanwhile what others have written',
    { hint: 'read its rows to the end, or use all() instead of iterate(), before the next await' },
  );
}
