/** The answer to a batch, which failure gets which status, and how long the batch took. */
import type { Clock } from './clock.ts';
import { messageOf, RowcastError } from './errors.ts';
import type { Emitter } from './events.ts';
import type { Ack } from './wire.ts';

/** The answer to a batch, for the caller's own `/sync` route. */
export type Received =
  | { status: 200; body: Ack }
  /** 4xx: not a batch, and it never will be. 503: not now; the sender tries again. Nothing was changed. */
  | { status: 400 | 413 | 503; body: { error: string } };

/** Beside the answers and not in them: an application sends `body` as it is, and the time travels in a header. */
const measured = new WeakMap<Received, number>();

/** Runs `apply`, takes its time by `clock`, and turns whatever it throws into an answer. */
export function receiving(events: Emitter, clock: Clock, apply: () => Ack): Received {
  const began = clock.now();
  const received = answerTo(events, apply);
  measured.set(received, Math.max(0, clock.now() - began));
  return received;
}

/** How many milliseconds the batch kept the node or the hub that gave this answer; undefined where somebody else did. */
export function applyMsOf(received: Received): number | undefined {
  return measured.get(received);
}

/** A failure of our own is reported as an event too. */
function answerTo(events: Emitter, apply: () => Ack): Received {
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
