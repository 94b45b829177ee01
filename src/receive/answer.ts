/** The answer to a batch, which failure gets which status, and what a sender of the next should know. */
import type { Clock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Emitter } from '../events.ts';
import type { Ack } from '../wire/protocol.ts';

/** The answer to a batch, for the caller's own `/sync` route. */
export type Received =
  | { status: 200; body: Ack }
  /** 4xx: not a batch, and it never will be. 503: not now; the sender tries again. Nothing was changed. */
  | { status: 400 | 413 | 503; body: { error: string } };

/** What an answer says of the receiver, for the sender of the next batch. */
export interface Manner {
  /** How long the batch kept it, by its own clock. */
  applyMs: number;
  /** Batches may come in any order, or two at once: no constraint of its tables looks at more than one row. */
  anyOrder: boolean;
}

/** Beside the answers and not in them: an application sends `body` as it is, and this travels in headers. */
const manners = new WeakMap<Received, Manner>();

/** Runs `apply`, takes its time by `clock`, and turns whatever it throws into an answer. */
export function receiving(
  { events, clock, anyOrder }: { events: Emitter; clock: Clock; anyOrder: () => boolean },
  apply: () => Ack,
): Received {
  const began = clock.now();
  const received = answerTo(events, apply);
  manners.set(received, { applyMs: Math.max(0, clock.now() - began), anyOrder: anyOrder() });
  return received;
}

/** The same of an application that takes its time. */
export async function receivingLater(
  self: { events: Emitter; clock: Clock; anyOrder: () => boolean },
  apply: () => Promise<Ack>,
): Promise<Received> {
  const began = self.clock.now();
  const outcome = await apply().then(
    (ack) => () => ack,
    (error) => () => {
      throw error;
    },
  );
  const received = answerTo(self.events, outcome);
  manners.set(received, { applyMs: Math.max(0, self.clock.now() - began), anyOrder: self.anyOrder() });
  return received;
}

/** Undefined where neither a node nor a hub gave this answer. */
export function mannerOf(received: Received): Manner | undefined {
  return manners.get(received);
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
