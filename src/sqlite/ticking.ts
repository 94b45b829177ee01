/** A loop that does something again and again, and goes on when it fails. */
import type { Clock } from '../clock.ts';
import { asFailure, type RowcastError } from '../errors.ts';

interface Telling {
  emit(event: 'error', failure: RowcastError): void;
}

/** Resolves when `stopped` is aborted. What fails is told once, for as long as it fails in the same way. */
export async function tickingEvery(
  ms: number,
  { clock, stopped, events }: { clock: Clock; stopped: AbortSignal; events: Telling },
  tick: () => void,
): Promise<void> {
  let told: string | undefined;
  while (!stopped.aborted) {
    await clock.sleep(ms, stopped);
    if (stopped.aborted) return;
    try {
      tick();
      told = undefined;
    } catch (error) {
      const failure = asFailure('looking after the database failed', error);
      // Somebody else has the database for a moment; and what lasts is said once.
      const passing = failure.code === 'IN_TRANSACTION' || failure.code === 'DATABASE_BUSY';
      if (!passing && failure.message !== told) events.emit('error', failure);
      if (!passing) told = failure.message;
    }
  }
}
