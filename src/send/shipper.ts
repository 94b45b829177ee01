/**
 * The loop of one peer: outbox -> POST -> verdict -> ack | retry | isolate | set aside.
 *
 * It knows nothing of SQLite. The library and the hub each bring an Outbox; the loop, the backoff and the verdict table
 * are the same. One loop per peer, so that a slow or dead peer never delays another.
 */

import type { Clock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Emitter, RowRef } from '../events.ts';
import { nextBatchSize } from './batch-size.ts';
import { Courier, type Fetch, type Sent, type Shipment } from './courier.ts';
import type { Verdict } from './verdict.ts';

export interface Outbox {
  /**
   * The next changes for the peer: after `previous`, or after what has been acknowledged. What it returns is on disk here
   * already, so that a power cut cannot take back a write that a peer has. `acked` is noted on the way, whether or not
   * there is more.
   */
  next(limit: { changes: number; bytes: number }, previous?: Shipment, acked?: Shipment): Shipment | undefined;
  /** The peer has it. */
  ack(shipment: Shipment): void;
  /** The peer will not have it: keep it aside for a person, and go on after it. */
  setAside(shipment: Shipment, reason: string, attempts: number): RowRef[];
  /** The same shipment reduced to its change number `index`. */
  single(shipment: Shipment, index: number): Shipment;
}

export interface ShipperOptions {
  nodeId: string;
  peer: string;
  outbox: Outbox;
  fetch: Fetch;
  /** Resolves when a request that was just begun is on its way. */
  turn: () => Promise<void>;
  clock: Clock;
  random: () => number;
  events: Emitter;
  batchMs: number;
  batchSize: number;
  batchBytes: number;
  requestTimeoutMs: number;
}

/** The delays after the first to the fifth failure; the sixth attempt belongs to the next tick. */
export const BACKOFF_MS = [50, 100, 200, 400, 800];
export const ATTEMPTS = BACKOFF_MS.length;

/** Single changes, spread over the batch, by which a peer that refuses everything is told from a poisoned change. */
const PROBES = 8;

export type PeerCondition = 'unknown' | 'up' | 'down';

/** How one pass over the outbox ended. */
type Pass = 'empty' | 'unreachable' | 'stopped';

export class Shipper {
  readonly peer: string;
  condition: PeerCondition = 'unknown';
  lastError: string | undefined;
  lastAckedAt: number | undefined;
  readonly #o: ShipperOptions;
  readonly #courier: Courier;
  readonly #stop = new AbortController();
  /** Aborted to end the pause between two passes early, and replaced. */
  #wake = new AbortController();
  /** Those who wait for the end of the present or next pass. */
  #waiting: ((pass: Pass) => void)[] = [];
  #nudged = false;
  /** Smaller than batchSize after the peer has said 413, or has taken long to apply a batch. */
  #changesMax: number;
  #running: Promise<void> | undefined;

  constructor(options: ShipperOptions) {
    this.#o = options;
    this.peer = options.peer;
    this.#changesMax = options.batchSize;
    this.#courier = new Courier({ ...options, stopped: this.#stop.signal });
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Ends the loop and resolves when nothing of it is left: no timer, no request. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#wake.abort();
    await this.#running;
  }

  /** Does not wait for the tick. */
  nudge(): void {
    this.#nudged = true;
    this.#wake.abort();
  }

  /** Ships now; true when the peer has everything that was pending, false when it cannot be reached. */
  async flush(): Promise<boolean> {
    if (this.#stop.signal.aborted) return false;
    const pass = new Promise<Pass>((resolve) => this.#waiting.push(resolve));
    this.nudge();
    return (await pass) === 'empty';
  }

  async #run(): Promise<void> {
    // Loops of several peers, or of many nodes started together, do not tick in step.
    await this.#pause(this.#o.random() * this.#o.batchMs);
    while (!this.#stop.signal.aborted) {
      this.#nudged = false;
      const waiting = this.#waiting;
      this.#waiting = [];
      const pass = await this.#guardedPass();
      for (const resolve of waiting) resolve(pass);
      await this.#pause(this.#o.batchMs);
    }
    for (const resolve of this.#waiting) resolve('stopped');
  }

  async #pause(ms: number): Promise<void> {
    if (this.#nudged || this.#stop.signal.aborted) return;
    this.#wake = new AbortController();
    await this.#o.clock.sleep(ms, this.#wake.signal);
  }

  /** Whatever fails on our own side (a locked or full database) is reported and tried again on the next tick. */
  async #guardedPass(): Promise<Pass> {
    try {
      return await this.#drain();
    } catch (error) {
      // The application is in the middle of a transaction: its changes are not ours to read yet.
      if (error instanceof RowcastError && error.code === 'IN_TRANSACTION') return 'unreachable';
      const known = error instanceof RowcastError;
      this.#o.events.emit(
        'error',
        known
          ? error
          : new RowcastError('DATABASE_FAILED', `shipping to ${this.peer} failed: ${messageOf(error)}`, {
              cause: error,
            }),
      );
      return 'unreachable';
    }
  }

  async #drain(): Promise<Pass> {
    let current = this.#next();
    let begun: Sent | undefined;
    let failures = { unreachable: 0, refused: 0 };
    /** Acknowledged, and not yet noted here: the peer need not wait for that. */
    let delivered: Shipment | undefined;
    while (current && !this.#stop.signal.aborted) {
      const attempt = failures.unreachable + failures.refused;
      const sent: Sent = begun ?? (await this.#courier.begin(current, attempt, 'first'));
      const ahead: Shipment | undefined = attempt === 0 ? await this.#meanwhile(sent, delivered) : undefined;
      begun = ahead && this.#courier.keepsUp ? await this.#courier.begin(ahead, 0, 'second') : undefined;
      delivered = undefined;
      const verdict: Verdict = await sent.verdict;
      if (verdict.kind === 'acked') {
        failures = { unreachable: 0, refused: 0 };
        this.#resize(current, verdict.applyMs);
        if (ahead) delivered = current;
        else this.#acked(current);
        current = ahead ?? this.#next();
        continue;
      }
      // What follows it may be on its way as well. Whether it arrives or not, it is sent again after this one.
      begun?.request.abort();
      await begun?.verdict;
      begun = undefined;
      if (verdict.kind === 'refused' && sent.packed.gzip) {
        // Not the changes may be to blame but how they were sent: that is no attempt yet.
        this.#courier.refusedCompressed();
        continue;
      }
      if (verdict.kind === 'too-large' && current.count > 1) {
        this.#changesMax = current.count >> 1;
        current = this.#next();
        continue;
      }
      const reason = verdict.kind === 'too-large' ? 'HTTP 413 for a single change' : verdict.reason;
      this.lastError = reason;
      // Only refusals lead to a dead letter, and only connection errors to "down": each needs five of its own.
      const failed = verdict.kind === 'unreachable' ? 'unreachable' : 'refused';
      failures[failed] += 1;
      if (failures.refused === ATTEMPTS) {
        if ((await this.#isolate(current, reason)) === 'unreachable') return 'unreachable';
        failures = { unreachable: 0, refused: 0 };
        current = this.#next();
        continue;
      }
      await this.#backOff(failures.unreachable + failures.refused);
      if (failures.unreachable < ATTEMPTS) continue;
      this.#down(reason);
      return 'unreachable';
    }
    await begun?.verdict;
    if (delivered) this.#acked(delivered);
    return this.#stop.signal.aborted ? 'stopped' : 'empty';
  }

  /** The next changes after `previous`; what the peer has acknowledged meanwhile is noted in the same transaction. */
  #next(previous?: Shipment, delivered?: Shipment): Shipment | undefined {
    const limit = { changes: this.#changesMax, bytes: this.#o.batchBytes };
    const next = this.#o.outbox.next(limit, previous, delivered);
    if (delivered) this.#told(delivered);
    return next;
  }

  /**
   * While the peer works, the batch before is noted and the next made ready. Whatever keeps us from that must not keep us
   * from hearing the answer.
   */
  async #meanwhile({ shipment, verdict }: Sent, delivered: Shipment | undefined): Promise<Shipment | undefined> {
    try {
      return this.#next(shipment, delivered);
    } catch (error) {
      if (!delivered) return undefined;
      // Both batches will be sent again, which changes nothing; but never while one of them is still on its way.
      await verdict;
      throw error;
    }
  }

  async #backOff(failures: number): Promise<void> {
    await this.#o.clock.sleep(BACKOFF_MS[Math.min(failures, ATTEMPTS) - 1] as number, this.#stop.signal);
  }

  /** Finds the changes of a refused shipment that are to blame, delivers the others, and sets only those aside. */
  async #isolate(refused: Shipment, reason: string): Promise<'done' | 'unreachable'> {
    if (refused.count === 1) {
      this.#setAside(refused, reason);
      return 'done';
    }
    if (refused.count > PROBES) {
      const probed = await this.#refusesEverything(refused);
      if (probed === 'unreachable') return probed;
      if (probed) {
        this.#setAside(refused, reason);
        return 'done';
      }
    }
    return this.#split(refused.count);
  }

  async #refusesEverything(refused: Shipment): Promise<boolean | 'unreachable'> {
    for (let i = 0; i < PROBES; i++) {
      const index = Math.round((i * (refused.count - 1)) / (PROBES - 1));
      const verdict = await this.#sendPatiently(this.#o.outbox.single(refused, index));
      if (verdict.kind === 'unreachable') return 'unreachable';
      if (verdict.kind === 'acked') return false;
    }
    return true;
  }

  /** The next `count` changes were refused together: send the halves. A half that is the only suspect left is not sent whole. */
  async #split(count: number): Promise<'done' | 'unreachable'> {
    const left = await this.#deliver(count >> 1);
    if (left === 'unreachable') return left;
    const rest = count - (count >> 1);
    if (left === 'acked' && rest > 1) return this.#split(rest);
    const right = await this.#deliver(rest);
    return right === 'unreachable' ? right : 'done';
  }

  /** Sends the next `count` changes once; what is refused is split further, down to single changes, which become dead letters. */
  async #deliver(count: number): Promise<'acked' | 'done' | 'unreachable'> {
    const piece = this.#o.outbox.next({ changes: count, bytes: Number.MAX_SAFE_INTEGER });
    if (!piece) return 'done';
    const verdict = await this.#sendPatiently(piece);
    if (verdict.kind === 'unreachable') {
      this.lastError = verdict.reason;
      return 'unreachable';
    }
    if (verdict.kind === 'acked') {
      this.#resize(piece, verdict.applyMs);
      this.#acked(piece);
      return 'acked';
    }
    if (piece.count > 1) return this.#split(piece.count);
    this.#setAside(piece, verdict.kind === 'refused' ? verdict.reason : 'HTTP 413 for a single change');
    return 'done';
  }

  /** A connection error in the middle of a search must not throw away what is known of the refused changes. */
  async #sendPatiently(shipment: Shipment): Promise<Verdict> {
    for (let failures = 1; ; failures++) {
      const verdict = await this.#courier.send(shipment);
      if (verdict.kind !== 'unreachable' || failures === ATTEMPTS || this.#stop.signal.aborted) return verdict;
      await this.#backOff(failures);
    }
  }

  /** What was too large may have been a few large rows: after a 413 the batches grow again. */
  #resize({ count }: Shipment, applyMs: number | undefined): void {
    this.#changesMax = nextBatchSize(this.#changesMax, this.#o.batchSize, { changes: count, applyMs });
  }

  #acked(shipment: Shipment): void {
    this.#o.outbox.ack(shipment);
    this.#told(shipment);
  }

  /** What follows from an acknowledgement once it is noted. */
  #told(shipment: Shipment): void {
    this.lastAckedAt = this.#o.clock.now();
    this.lastError = undefined;
    if (this.condition !== 'up') {
      this.condition = 'up';
      this.#o.events.emit('peer-up', { peer: this.peer });
    }
    this.#o.events.emit('acked', { peer: this.peer, batchId: shipment.batchId, changes: shipment.count });
  }

  #setAside(shipment: Shipment, reason: string): void {
    const rows = this.#o.outbox.setAside(shipment, reason, ATTEMPTS);
    this.#o.events.emit('dead-letter', { direction: 'out', peer: this.peer, code: 'refused', reason, rows });
  }

  #down(reason: string): void {
    if (this.condition === 'down' || this.#stop.signal.aborted) return;
    this.condition = 'down';
    this.#o.events.emit('peer-down', { peer: this.peer, reason });
  }
}
