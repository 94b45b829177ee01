/** The loop of a node beside those of its peers, and the only one where it has none. */
import type { Clock } from './clock.ts';
import { RowcastError } from './errors.ts';
import type { Emitter } from './events.ts';
import { asFailure } from './receive/answer.ts';

export interface WatchOptions {
  clock: Clock;
  ms: number;
  events: Emitter;
  stopped: AbortSignal;
}

/** Ends with the signal. What fails in a tick is told, and the next one is tried all the same. */
export async function watch(tick: () => void, { clock, ms, events, stopped }: WatchOptions): Promise<void> {
  let told: string | undefined;
  while (!stopped.aborted) {
    await clock.sleep(ms, stopped);
    if (stopped.aborted) return;
    try {
      tick();
      told = undefined;
    } catch (error) {
      const failure = error instanceof RowcastError ? error : asFailure(error);
      // Somebody else has the database for a moment; and what lasts is said once.
      const passing = failure.code === 'IN_TRANSACTION' || failure.code === 'DATABASE_BUSY';
      if (!passing && failure.message !== told) events.emit('error', failure);
      if (!passing) told = failure.message;
    }
  }
}
