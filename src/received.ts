/** The answer to a batch, and which failure gets which status. */
import { messageOf, RowcastError } from './errors.ts';
import type { Emitter } from './events.ts';
import type { Ack } from './wire.ts';

/** The answer to a batch, for the caller's own `/sync` route. */
export type Received =
  | { status: 200; body: Ack }
  /** 4xx: not a batch, and it never will be. 503: not now; the sender tries again. Nothing was changed. */
  | { status: 400 | 413 | 503; body: { error: string } };

/** Runs `apply` and turns whatever it throws into an answer; a failure of our own is reported as an event too. */
export function receiving(events: Emitter, apply: () => Ack): Received {
  try {
    return { status: 200, body: apply() };
  } catch (error) {
    const known = error instanceof RowcastError ? error : undefined;
    if (known?.code === 'INVALID_BATCH') return { status: 400, body: { error: known.message } };
    if (known?.code === 'BODY_TOO_LARGE') return { status: 413, body: { error: known.message } };
    const failure = known ?? asFailure(error);
    if (failure.code !== 'STOPPED') events.emit('error', failure);
    return { status: 503, body: { error: failure.message } };
  }
}

export function asFailure(cause: unknown): RowcastError {
  return new RowcastError('DATABASE_FAILED', `changes could not be applied: ${messageOf(cause)}`, { cause });
}
