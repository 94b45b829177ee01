/**
 * The loop of one peer: outbox -> POST -> verdict -> ack | retry | isolate | set aside.
 *
 * It knows nothing of SQLite. The library and the hub each bring an Outbox; the loop, the backoff and the verdict table
 * are the same. One loop per peer, so that a slow or dead peer never delays another.
 */

import type { Clock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Emitter } from '../events.ts';
import type { Faults } from '../faults.ts';
import { nextBatchSize } from './batch-size.ts';
import type { Bond } from './bond.ts';
import { Courier, type Sent } from './courier.ts';
import { isolate, type Search, TOO_LARGE_ALONE } from './isolate.ts';
import type { Company, Outbox, Shipment } from './shipment.ts';
import type { Ask, Post } from './transport.ts';
import type { Acked, Verdict } from './verdict.ts';

export interface ShipperOptions<P> {
  nodeId: string;
  peer: string;
  outbox: Outbox<P>;
  company: Company;
  fetch: Post;
  /** Undefined where nothing but POST can be sent. */
  get: Ask | undefined;
  /** Resolves when a request that was just begun is on its way. */
  untilSent: () => Promise<void>;
  clock: Clock;
  random: () => number;
  events: Emitter;
  faults: Faults;
  pace: Pace;
  /** Where there are keys. */
  bond?: Bond | undefined;
}

/** How often, how much and how patiently is sent. It may change from one look to the next. */
export interface Pace {
  readonly batchMs: number;
  readonly batchSize: number;
  readonly maxBatchBytes: number;
  readonly requestTimeoutMs: number;
}

/** The delays after the first to the fifth failure; the sixth attempt belongs to the next tick. */
export const BACKOFF_MS = [50, 100, 200, 400, 800];
export const ATTEMPTS = BACKOFF_MS.length;

/**
 * A peer from which nothing was heard for so long is asked how it is. With five questions that nobody answers (courier.ts)
 * and the pauses after them, one that has died in silence is down within half a minute.
 */
export const IDLE_MS = 15_000;

export type PeerCondition = 'unknown' | 'up' | 'down';

/** How one pass over the outbox ended. */
type Pass = 'empty' | 'unreachable' | 'stopped';

export class Shipper<P = unknown> {
  readonly peer: string;
  condition: PeerCondition = 'unknown';
  lastError: string | undefined;
  lastAckedAt: number | undefined;
  readonly #o: ShipperOptions<P>;
  readonly #courier: Courier<P>;
  readonly #search: Search<P>;
  readonly #stop = new AbortController();
  /** Aborted to end the pause between two passes early, and replaced. */
  #wake = new AbortController();
  /** Those who wait for the end of the present or next pass. */
  #waiting: ((pass: Pass) => void)[] = [];
  #nudged = false;
  /** Smaller than batchSize after the peer has said 413, or has taken long to apply a batch. */
  #changesMax: number;
  #running: Promise<void> | undefined;
  /** The peer is being asked how it is, beside the loop. */
  #asking: Promise<void> | undefined;
  #askedAt = 0;

  constructor(options: ShipperOptions<P>) {
    const { events, peer, outbox } = options;
    this.#o = options;
    this.peer = peer;
    this.#changesMax = options.pace.batchSize;
    this.#courier = new Courier({
      ...options,
      stopped: this.#stop.signal,
      onAttempt: (attempt) => {
        if (events.has('attempt')) events.emit('attempt', { peer, ...attempt });
      },
    });
    this.#search = {
      outbox,
      send: (shipment) => this.#sendPatiently(shipment),
      acked: (shipment, verdict) => {
        this.#resize(shipment, verdict.applyMs);
        return this.#acked(acknowledged(shipment, verdict));
      },
      setAside: (shipment, reason) => this.#setAside(shipment, reason),
    };
  }

  /** The peer has shown by its answers that it is one; a plain peer is never sent anything but batches. */
  get isRowcast(): boolean {
    return this.#courier.isRowcast;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Ends the loop and resolves when nothing of it is left: no timer, no request. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#wake.abort();
    await this.#running;
    await this.#asking;
  }

  /** Does not wait for the tick. */
  nudge(): void {
    this.#nudged = true;
    this.#wake.abort();
  }

  /** Asks the peer who it is, though it may have answered a moment ago; a plain peer is not asked. */
  askNow(): void {
    if (this.#running && !this.#stop.signal.aborted && this.#courier.mayAsk) this.#asking ??= this.#askPeer();
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
    await this.#pause(this.#o.random() * this.#o.pace.batchMs);
    while (!this.#stop.signal.aborted) {
      this.#nudged = false;
      const waiting = this.#waiting;
      this.#waiting = [];
      const pass = await this.#guardedPass();
      for (const resolve of waiting) resolve(pass);
      if (pass === 'empty' && this.#isQuiet()) this.#asking ??= this.#askPeer();
      await this.#pause(this.#o.pace.batchMs);
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
    const { faults, events } = this.#o;
    try {
      const pass = await this.#drain();
      faults.succeeded(`ship ${this.peer}`);
      return pass;
    } catch (error) {
      // The application is in the middle of a transaction: its changes are not ours to read yet.
      if (error instanceof RowcastError && error.code === 'IN_TRANSACTION') return 'unreachable';
      const failure = failed(this.peer, error);
      faults.failed(`ship ${this.peer}`, failure);
      events.emit('error', failure);
      return 'unreachable';
    }
  }

  async #drain(): Promise<Pass> {
    let current = await this.#next();
    let second: Sent<P> | undefined;
    let failures = { unreachable: 0, refused: 0 };
    /** Acknowledged, and not yet noted here: the peer need not wait for that. */
    let delivered: Shipment<P> | undefined;
    while (current && !this.#stop.signal.aborted) {
      const attempt = failures.unreachable + failures.refused;
      const sent: Sent<P> = second ?? (await this.#courier.begin(current, attempt, 'first'));
      const ahead: Shipment<P> | undefined = attempt === 0 ? await this.#readAhead(sent, delivered) : undefined;
      second = ahead && this.#courier.mayPipeline ? await this.#courier.begin(ahead, 0, 'second') : undefined;
      delivered = undefined;
      const verdict: Verdict = await sent.verdict;
      if (verdict.kind === 'acked') {
        failures = { unreachable: 0, refused: 0 };
        this.#resize(current, verdict.applyMs);
        const acked = acknowledged(current, verdict);
        if (ahead) delivered = acked;
        else await this.#acked(acked);
        // The same comes again: not at once, whoever it is that keeps acknowledging what he should not.
        if (acked.counts === false) await this.#backOff(1);
        current = ahead ?? (await this.#next());
        continue;
      }
      // The second batch may have arrived or not: it is sent again after this one.
      second?.withdraw();
      await second?.verdict;
      second = undefined;
      if (verdict.kind === 'refused' && sent.packed.gzip) {
        // Not the changes may be to blame but how they were sent: that is no attempt yet.
        this.#courier.refusedCompressed();
        continue;
      }
      if (verdict.kind === 'too-large' && current.count > 1) {
        this.#changesMax = current.count >> 1;
        current = await this.#next();
        continue;
      }
      const reason = verdict.kind === 'too-large' ? TOO_LARGE_ALONE : verdict.reason;
      this.lastError = reason;
      // Only refusals lead to a dead letter, and only connection errors to "down": each needs five of its own.
      const failed = verdict.kind === 'unreachable' ? 'unreachable' : 'refused';
      failures[failed] += 1;
      if (failures.refused === ATTEMPTS) {
        const searched = await isolate(this.#search, current, reason);
        if (searched.kind === 'unreachable') {
          this.lastError = searched.reason;
          return 'unreachable';
        }
        failures = { unreachable: 0, refused: 0 };
        current = await this.#next();
        continue;
      }
      await this.#backOff(failures.unreachable + failures.refused);
      if (failures.unreachable < ATTEMPTS) continue;
      this.#down(reason);
      return 'unreachable';
    }
    await second?.verdict;
    if (delivered) await this.#acked(delivered);
    return this.#stop.signal.aborted ? 'stopped' : 'empty';
  }

  /** The next changes after `previous`; what the peer has acknowledged meanwhile is noted in the same transaction. */
  async #next(previous?: Shipment<P>, delivered?: Shipment<P>): Promise<Shipment<P> | undefined> {
    const { batchSize, maxBatchBytes } = this.#o.pace;
    const limit = { changes: Math.min(this.#changesMax, batchSize), bytes: maxBatchBytes };
    const next = await this.#o.outbox.next(limit, previous, delivered);
    if (delivered) this.#noteDelivered(delivered);
    return next;
  }

  /**
   * While the peer works on one batch, notes the one before it and makes the next ready. A failure to do so must not
   * keep us from hearing the answer.
   */
  async #readAhead(
    { shipment, verdict }: Sent<P>,
    delivered: Shipment<P> | undefined,
  ): Promise<Shipment<P> | undefined> {
    try {
      return await this.#next(shipment, delivered);
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

  /** A connection error in the middle of a search must not throw away what is known of the refused changes. */
  async #sendPatiently(shipment: Shipment<P>): Promise<Verdict> {
    for (let failures = 1; ; failures++) {
      const verdict = await this.#courier.send(shipment);
      if (verdict.kind !== 'unreachable' || failures === ATTEMPTS || this.#stop.signal.aborted) return verdict;
      await this.#backOff(failures);
    }
  }

  /** What was too large may have been a few large rows: after a 413 the batches grow again. */
  #resize({ count }: Shipment<P>, applyMs: number | undefined): void {
    this.#changesMax = nextBatchSize(this.#changesMax, this.#o.pace.batchSize, { changes: count, applyMs });
  }

  async #acked(shipment: Shipment<P>): Promise<void> {
    await this.#o.outbox.ack(shipment);
    this.#noteDelivered(shipment);
  }

  /** What follows from an acknowledgement once it is noted. */
  #noteDelivered(shipment: Shipment<P>): void {
    this.#up();
    if (shipment.counts === false) return;
    this.lastAckedAt = this.#o.clock.now();
    this.#o.events.emit('acked', { peer: this.peer, batchId: shipment.batchId, changes: shipment.count });
  }

  async #setAside(shipment: Shipment<P>, reason: string): Promise<void> {
    const rows = await this.#o.outbox.setAside(shipment, reason, ATTEMPTS);
    // What was sent only to see whether the peer is back is no letter.
    if (rows.length === 0 && shipment.count > 0) return;
    this.#o.events.emit('dead-letter', { direction: 'out', peer: this.peer, code: 'refused', reason, rows });
  }

  /** Nothing was written for a while, so nobody would notice that the peer is gone, or back. */
  #isQuiet(): boolean {
    const heard = Math.max(this.#courier.answeredAt, this.#askedAt);
    // The next chance is a tick away, and must not be too late.
    const byNextTick = this.#o.clock.now() + this.#o.pace.batchMs;
    return byNextTick - heard > IDLE_MS && this.#courier.mayAsk;
  }

  /** Beside the loop, which goes on with what is written meanwhile. As with batches, five failures make a peer down. */
  async #askPeer(): Promise<void> {
    const heard = this.#courier.answeredAt;
    for (let failures = 1; failures <= ATTEMPTS; failures++) {
      this.#askedAt = this.#o.clock.now();
      const pulse = await this.#courier.ask();
      const overtaken = pulse.kind !== 'alive' && this.#courier.answeredAt !== heard;
      if (pulse.kind === 'unknown' || overtaken || this.#stop.signal.aborted) break;
      if (pulse.kind === 'alive') {
        if (this.condition === 'down') this.#up();
        await this.#heard(pulse.said);
        break;
      }
      this.lastError = pulse.reason;
      await this.#backOff(failures);
      if (failures === ATTEMPTS) this.#down(pulse.reason);
    }
    this.#asking = undefined;
  }

  /** What its answer to a question says of it; where that cannot be noted, the next answer says it again. */
  async #heard(said: string | null): Promise<void> {
    if (said === null) return;
    try {
      await this.#o.company.heard(said);
    } catch (error) {
      if (!(error instanceof RowcastError && error.code === 'IN_TRANSACTION'))
        this.#o.events.emit('error', failed(this.peer, error));
    }
  }

  #up(): void {
    this.lastError = undefined;
    if (this.condition === 'up') return;
    this.condition = 'up';
    this.#o.events.emit('peer-up', { peer: this.peer });
  }

  #down(reason: string): void {
    if (this.condition === 'down' || this.#stop.signal.aborted) return;
    this.condition = 'down';
    this.#o.events.emit('peer-down', { peer: this.peer, reason });
  }
}

/** The shipment, with the word of the one that has it. */
function acknowledged<P>(shipment: Shipment<P>, { said }: Acked): Shipment<P> {
  return said === undefined ? shipment : { ...shipment, said };
}

function failed(peer: string, cause: unknown): RowcastError {
  if (cause instanceof RowcastError) return cause;
  return new RowcastError('DATABASE_FAILED', `shipping to ${peer} failed: ${messageOf(cause)}`, { cause });
}
