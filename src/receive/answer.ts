/** The answer to a batch, which failure gets which status, and what a sender of the next should know. */
import type { Clock } from '../clock.ts';
import { asFailure, messageOf, named, RowcastError } from '../errors.ts';
import type { Emitter } from '../events.ts';
import type { Faults } from '../observe/faults.ts';
import type { Connection } from '../sqlite/connection.ts';
import { isHeld, refuseIfHeld } from '../sqlite/yielding.ts';
import { ACCEPT_HEADER, type Ack, ANY_ORDER_HEADER, APPLY_MS_HEADER, ROWCAST_HEADER } from '../wire/protocol.ts';
import type { Rights } from '../wire/rights.ts';
import { tellForbidden } from './forbidden.ts';

/** The answer to a batch, for the caller's own `/sync` route: send `body` as JSON, with these headers. */
export type Received =
  | { status: 200; body: Ack; headers: Record<string, string> }
  /**
   * 4xx: not a batch, and it never will be. 503: not now; the sender tries again. Nothing was changed. `held`, where the
   * caller `comesAgain`: somebody else has the lock, and for so many milliseconds nobody is told.
   */
  | {
      status: 400 | 413 | 503;
      body: { error: string };
      headers: Record<string, string>;
      held?: number;
      /**
       * Where the caller says how many changes may be applied `atOnce`: some of them are, the caller gives the same bytes again
       * when others have had their turn, and this is a number that grows each time.
       */
      goesOn?: number;
    };

/**
 * What a `/sync` route knows of a request beside its body. Where a header is missing, node:http has undefined and
 * `Headers.get` gives null.
 */
export interface ReceiveOptions {
  /** The sender's node id, from the header `x-node-id`. */
  from?: string | null | undefined;
  /** The header `x-send-again`: the tables that the sender asks for. */
  sendAgain?: string | null | undefined;
  /** The header `x-rowcast`, as it is: by it a sender says that it is Rowcast. */
  said?: string | null | undefined;
  /** The header `x-origins`: who has made the changes, where that is not the sender. */
  origins?: string | null | undefined;
  /** What the sender may do, where it has shown by a key who it is; without, everything. */
  rights?: Rights | undefined;
  /**
   * Where somebody else has the lock of the database: true, the answer has `held` and comes at once, and the caller gives the
   * same body again later; false, this is the last time. Without it the call itself waits, and the whole process with it.
   */
  comesAgain?: boolean | undefined;
  /**
   * A batch of many more changes than this is applied in parts, one with each call that is given the same bytes, as long as the
   * answer has `goesOn`. Without it a batch is applied by one call, however large, and meanwhile nobody else has a turn.
   */
  atOnce?: number | undefined;
}

/** What is there of such options. */
export type Heard<T> = { [K in keyof T]: Exclude<T[K], null> };

export function present<T extends object>(options: T | null): Heard<T> {
  if (typeof options !== 'object') {
    throw new RowcastError('INVALID_OPTION', `what is known of a request must be an object, not ${named(options)}`);
  }
  const given = Object.entries(options ?? {}).filter(([, value]) => value !== null);
  for (const [name, value] of given) {
    if (name === 'comesAgain' && value !== undefined && typeof value !== 'boolean') {
      throw new RowcastError('INVALID_OPTION', `"comesAgain" must be true or false, not ${named(value)}`);
    }
    if (name === 'atOnce' && value !== undefined && !(Number.isInteger(value) && Number(value) > 0)) {
      throw new RowcastError('INVALID_OPTION', `"atOnce" must be an integer from 1, not ${named(value)}`);
    }
    if (!HEADERS.includes(name) || value === undefined || typeof value === 'string') continue;
    throw new RowcastError('INVALID_OPTION', `"${name}" must be the text of a header, not ${named(value)}`, {
      hint: 'where there are several of one name, give one of them',
    });
  }
  return Object.fromEntries(given) as Heard<T>;
}

const HEADERS = ['from', 'sendAgain', 'said', 'origins'];

/** What every answer of `/sync` says: the sender of the next batch may compress it. */
export const SYNC_HEADERS = { [ACCEPT_HEADER]: 'gzip' };

/** What is told of a batch beside the answer. */
export interface Taken {
  ack: Ack;
  /** How many changes it had. */
  changes: number;
  /** It was applied in part. */
  goesOn?: number | undefined;
}

interface Receiver {
  /** Undefined where the caller cannot be held up, because others have their turn meanwhile. */
  db?: Connection;
  events: Emitter;
  faults: Faults;
  clock: Clock;
  /** How it introduces itself to a sender that has; undefined to a plain one. */
  introduction: () => string | undefined;
}

/**
 * Runs `apply`, takes its time by the receiver's clock, and turns whatever it throws into an answer. A node applies at once,
 * a hub's store may take its time: the answer comes the way `apply` does.
 */
export function receiving(receiver: Receiver, batch: Arrived, apply: () => Taken): Received;
export function receiving(receiver: Receiver, batch: Arrived, apply: () => Promise<Taken>): Promise<Received>;
export function receiving(
  receiver: Receiver,
  batch: Arrived,
  apply: () => Taken | Promise<Taken>,
): Received | Promise<Received> {
  const began = receiver.clock.now();
  const answer = (outcome: () => Taken): Received => {
    const bare = answerTo(receiver, outcome);
    const ms = spent(receiver.clock, batch, began, bare.goesOn !== undefined);
    if (bare.goesOn === undefined) return finish(receiver, batch, ms, bare);
    return { status: 503, body: { error: GOES_ON }, headers: SYNC_HEADERS, goesOn: bare.goesOn };
  };
  let taken: Taken | Promise<Taken>;
  try {
    receiver.faults.refuseIfMoved();
    if (batch.comesAgain && receiver.db) refuseIfHeld(receiver.db);
    taken = receiver.db && batch.comesAgain === undefined ? receiver.db.patiently(apply) : apply();
  } catch (error) {
    if (batch.comesAgain && receiver.db && isHeld(error)) {
      return { status: 503, body: { error: messageOf(error) }, headers: SYNC_HEADERS, held: receiver.db.toleratedMs };
    }
    return answer(() => raise(error));
  }
  if (!(taken instanceof Promise)) return answer(() => taken as Taken);
  return taken.then(
    (value) => answer(() => value),
    (error) => answer(() => raise(error)),
  );
}

interface Arrived {
  body: string | Uint8Array;
  from?: string | undefined;
  comesAgain?: boolean | undefined;
}

function raise(error: unknown): never {
  throw error;
}

const GOES_ON = 'some of the batch is applied: give the same bytes again, and the rest will be';

/** How long the receiver was kept, by all parts together, and by each of them on average. */
interface Spent {
  all: number;
  each: number;
}

const parts = new WeakMap<Uint8Array, { ms: number; steps: number }>();

function spent(clock: Clock, { body }: Arrived, began: number, goesOn: boolean): Spent {
  const now = Math.max(0, clock.now() - began);
  if (!(body instanceof Uint8Array)) return { all: now, each: now };
  const { ms, steps } = parts.get(body) ?? { ms: 0, steps: 0 };
  if (goesOn) parts.set(body, { ms: ms + now, steps: steps + 1 });
  else parts.delete(body);
  return { all: ms + now, each: Math.ceil((ms + now) / (steps + 1)) };
}

function finish({ events, introduction }: Receiver, batch: Arrived, ms: Spent, taken: Bare<Received>): Received {
  const { changes, goesOn: _, ...answer } = taken;
  if (answer.status === 200) tellForbidden(events, batch.from, answer.body);
  if (events.has('received')) {
    const { from, body } = batch;
    const applied = answer.status === 200 ? answer.body.applied : 0;
    const bytes = typeof body === 'string' ? Buffer.byteLength(body) : (body?.byteLength ?? 0);
    events.emit('received', { from, changes, applied, bytes, ms: ms.all, status: answer.status });
  }
  const self = introduction();
  const headers = {
    ...SYNC_HEADERS,
    [APPLY_MS_HEADER]: String(ms.each),
    [ANY_ORDER_HEADER]: '1',
    ...(self !== undefined && { [ROWCAST_HEADER]: self }),
  };
  return { ...answer, headers };
}

type Bare<A> = A extends { headers: unknown }
  ? Omit<A, 'headers' | 'goesOn'> & { changes: number; goesOn?: number | undefined }
  : never;

/** A failure of our own is reported as an event too. */
function answerTo({ events, faults }: Receiver, apply: () => Taken): Bare<Received> {
  try {
    const { ack, changes, goesOn } = apply();
    if (changes > 0 && goesOn === undefined) faults.succeeded('receive');
    return { status: 200, body: ack, changes, goesOn };
  } catch (error) {
    const known = error instanceof RowcastError ? error : undefined;
    if (known?.code === 'INVALID_BATCH') return { status: 400, body: { error: known.message }, changes: 0 };
    if (known?.code === 'BODY_TOO_LARGE') return { status: 413, body: { error: known.message }, changes: 0 };
    const failure = asFailure('changes could not be applied', error);
    faults.failed('receive', failure);
    // A wrong clock is told once, as a warning, and by health for as long as it lasts.
    if (failure.code !== 'STOPPED' && failure.code !== 'CLOCK_BEHIND') events.emit('error', failure);
    return { status: 503, body: { error: failure.message }, changes: 0 };
  }
}
