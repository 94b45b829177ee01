import { named, RowcastError, suggest } from './errors.ts';
import type { LetterCode } from './wire/protocol.ts';

/** A row, named the way an application can look it up. */
export interface RowRef {
  op: 'INSERT' | 'UPDATE' | 'DELETE';
  table: string;
  id: string;
}

/** What the library tells its caller instead of logging. */
export interface RowcastEvents {
  /**
   * Rows have changed, and that is committed: by writes here, of whichever connection or process (`local`), or by what
   * was received. A row may be named more than once. `missed`: some may have changed that are not named; read them anew.
   */
  change: { local: boolean; from: string | undefined; rows: RowRef[]; missed?: true };
  /** A received batch, or a part of a large one, is committed; `rows` are those it decided. */
  applied: { from: string | undefined; applied: number; rows: RowRef[] };
  /** A batch was answered, whatever the answer; `applied` is as in the answer, `ms` how long it took. */
  received: {
    from: string | undefined;
    changes: number;
    applied: number;
    bytes: number;
    ms: number;
    status: number;
  };
  /** A peer acknowledged a batch and the watermark moved. */
  acked: { peer: string; batchId: number; changes: number };
  /**
   * A request with a batch is over, whatever came of it; one that was taken back says nothing and is not told. `bytes` are
   * those that travelled, compressed where `encoding` says so; `ms` is from the request to the complete answer. Several of
   * these may be about one batch.
   */
  attempt: {
    peer: string;
    batchId: number;
    changes: number;
    bytes: number;
    encoding: 'gzip' | 'identity';
    ms: number;
    result: 'acked' | 'unreachable' | 'refused' | 'too-large';
  };
  /** This database is an earlier state of itself, or a copy: it has taken an identity of its own, and is being seeded. */
  restored: Record<string, never>;
  /** Another database answers at this URL than before: it is given everything. `id` is its node id. */
  'peer-replaced': { peer: string; id: string };
  /** The node with this id has lost a part of what it had: it is given everything, at the URLs where it is a peer. */
  'peer-restored': { id: string; peers: string[] };
  'peer-up': { peer: string };
  /** A whole round of attempts failed; the changes stay and the attempts go on. */
  'peer-down': { peer: string; reason: string };
  /**
   * A peer was away for too long: nothing is kept for it any more, and when it is back it is given the whole state. It
   * lacked so many changes, of about so many bytes.
   */
  'peer-stale': { peer: string; changes: number; bytes: number };
  /**
   * A change is kept in `_dead_letter`. `out`: the peer with that URL refused it for good. `in`: it came from the node with
   * that id, where known, and could not be applied here. Rows that lack the same columns here are told together.
   */
  'dead-letter': {
    direction: 'in' | 'out';
    peer: string | undefined;
    code: LetterCode;
    reason: string;
    rows: RowRef[];
  };
  /**
   * What stood here was replaced by a change that had not seen it; `from` is the node that made that change, where known.
   * The row that lost is in the journal, and no content of it here: `conflicts.get(conflictId)`.
   */
  conflict: {
    conflictId: number;
    table: string;
    id: string;
    lostVersion: number;
    wonVersion: number;
    from: string | undefined;
  };
  /** Rows that a stronger one with the same UNIQUE value had hidden are in their table again, and their letters are gone. */
  visible: { rows: { table: string; id: string }[] };
  /**
   * A comparison with a peer is over, on demand or by itself; `cause` says why it was made. `error` says why it could not be
   * finished. The rows are in what verify() returns, and no content of them anywhere.
   */
  'verify-done': {
    peer: string;
    cause: string;
    equal: boolean;
    differences: number;
    repaired: number;
    pending: number;
    /** How many rows differed, by table. */
    tables: Record<string, number>;
    ms: number;
    error?: string;
  };
  /** So many deletions were forgotten: every node has had them for as long as tombstones are kept. */
  'tombstones-collected': { removed: number };
  warning: { code: string; message: string };
  /** Something failed in the background; the loop goes on. */
  error: RowcastError;
}

export type EventName = keyof RowcastEvents;
/** What a hub never emits: it has no tables, keeps nothing for the sake of an edge, and forgets no deletion. */
export type NodeOnlyEvent = 'applied' | 'change' | 'conflict' | 'visible' | 'peer-stale' | 'tombstones-collected';
/** The names, for callers without types: the compiler keeps this list complete. */
const EVENTS: Record<EventName, true> = {
  change: true,
  applied: true,
  acked: true,
  attempt: true,
  received: true,
  restored: true,
  'peer-replaced': true,
  'peer-restored': true,
  'peer-up': true,
  'peer-down': true,
  'peer-stale': true,
  'dead-letter': true,
  conflict: true,
  visible: true,
  'verify-done': true,
  'tombstones-collected': true,
  warning: true,
  error: true,
};

export type Listener<E extends EventName> = (event: RowcastEvents[E]) => void;

/** So many warnings are kept for the first who listens. */
const UNHEARD_MAX = 100;

/**
 * A typed emitter. Node's own EventEmitter throws on an 'error' nobody listens to and lets a listener's exception travel
 * into the ship loop; neither may happen to a library that runs in the background of somebody's application.
 */
export class Emitter {
  readonly #listeners = new Map<EventName, Set<(event: never) => void>>();
  /** What a start finds is said before anybody can listen, and is not found again. */
  #unheard: RowcastEvents['warning'][] = [];
  /** A handle that was closed never comes back: whatever fails for it until stop() has nothing to say that was not said. */
  #isClosed = false;

  /** Returns the function that unsubscribes. */
  on<E extends EventName>(name: E, listener: Listener<E>): () => void {
    checkSubscription(name, listener);
    const set = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, set);
    set.add(listener);
    // All who begin to listen in this turn hear it.
    if (name === 'warning' && this.#unheard.length > 0) queueMicrotask(() => this.#tellUnheard());
    return () => void set.delete(listener);
  }

  #tellUnheard(): void {
    for (const warning of this.#unheard.splice(0)) this.emit('warning', warning);
  }

  has(name: EventName): boolean {
    return (this.#listeners.get(name)?.size ?? 0) > 0;
  }

  emit<E extends EventName>(name: E, event: RowcastEvents[E]): void {
    if (name === 'error' && (event as RowcastError).code === 'DATABASE_CLOSED') {
      if (this.#isClosed) return;
      this.#isClosed = this.has('error');
    }
    if (name === 'warning' && (this.#unheard.length > 0 || !this.has('warning'))) {
      if (this.#unheard.length < UNHEARD_MAX) this.#unheard.push(event as RowcastEvents['warning']);
      return;
    }
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      try {
        (listener as Listener<E>)(event);
      } catch (cause) {
        // An 'error' listener that throws has nobody left to tell.
        if (name === 'error') continue;
        this.emit('error', new RowcastError('LISTENER_FAILED', `a listener for '${name}' threw`, { cause }));
      }
    }
  }
}

/** What is found in the middle of something is told when that is over: whoever listens may call us. */
export function warningLater(events: Emitter): (code: string, message: string) => void {
  return (code, message) => queueMicrotask(() => events.emit('warning', { code, message }));
}

/** A listener for an event that never comes would wait in silence. */
function checkSubscription(name: unknown, listener: unknown): void {
  const events = Object.keys(EVENTS);
  if (typeof name !== 'string' || !Object.hasOwn(EVENTS, name)) {
    const near = typeof name === 'string' ? suggest(name, events) : '';
    throw new RowcastError('INVALID_OPTION', `there is no event ${named(name)}${near}`, {
      hint: `the events are ${events.join(', ')}`,
    });
  }
  if (typeof listener !== 'function') {
    throw new RowcastError('INVALID_OPTION', `the listener for "${name}" must be a function, not ${typeof listener}`);
  }
}
