/** Tombstones collected at a moment of the test's choosing, by a second registry on the file, as another process would. */
import { beginDays } from '../../src/capture/floors.ts';
import { Registry } from '../../src/capture/registry.ts';
import { systemClock } from '../../src/clock.ts';
import { DeadLetters } from '../../src/letters/dead-letters.ts';
import { TimeLimit } from '../../src/letters/time-limit.ts';
import { Connection, type Database } from '../../src/sqlite/connection.ts';
import { Collection } from '../../src/tombstones/collect.ts';

/** Later than anything that a test writes: every tombstone is old enough. */
export const AFTER_ALL = 7_000_000_000_000;

export interface Walk {
  tables?: string[];
  before?: number;
  slice?: number;
  /** After each step. */
  onStep?(): void;
  /** The handle gives the same statement to everybody who prepares its text: then they are not ours to let go of. */
  sharesStatements?: boolean;
}

/** Goes on as far as `steps`; all the way without. */
export function collect(db: Database, walk: Walk = {}, steps = 1e6): void {
  const { tables = ['items'], before = AFTER_ALL, slice, onStep, sharesStatements = false } = walk;
  const connection = new Connection(db);
  const registry = new Registry(connection, { tables, warn() {}, onRefresh() {}, onUnseen() {} });
  try {
    registry.install();
    registry.remake(() => beginDays(connection));
    const letters = new DeadLetters(connection, systemClock, new TimeLimit(systemClock, 0));
    const collection = new Collection({ db: connection, registry, letters }, before, slice);
    for (let step = 0; step < steps && !collection.isDone; step++) {
      collection.step();
      onStep?.();
    }
  } finally {
    if (!sharesStatements) connection.release();
  }
}
