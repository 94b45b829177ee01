/**
 * The loop of one peer: outbox -> POST -> verdict -> ack | retry | isolate | set aside.
 *
 * It knows nothing of SQLite. The library and the hub each bring an Outbox; the loop, the backoff and the verdict table
 * are the same. One loop per peer, so that a slow or dead peer never delays another.
 */

import { passedSince } from '../clock.ts';
import { asFailure, RowcastError } from '../errors.ts';
import { firstBatchSize, largestBatchSize, nextBatchSize } from './batch-size.ts';
import { Checkup } from './checkup.ts';
import { Courier, type Sent } from './courier.ts';
import { bareIfTooLarge, isolate, type Search, TOO_LARGE_ALONE } from './isolate.ts';
import { KeptBack } from './kept-back.ts';
import { ATTEMPTS, Rest } from './rest.ts';
import { acknowledged, type Shipment } from './shipment.ts';
import type { Pace, ShipperOptions, Told } from './shipper-options.ts';
import { StandStill } from './stand-still.ts';
import { Uncounted } from './uncounted.ts';
import { type Acked, isTooLarge, type Verdict } from './verdict.ts';
import { type Pass, Waiters } from './waiters.ts';

export type { Pace, ShipperOptions, Told };

/**
 * A peer from which nothing was heard for so long is asked how it is. With five questions that nobody answers (courier.ts)
 * and the pauses after them, one that has died in silence is down within half a minute.
 */
export const IDLE_MS = 15_000;

export type PeerCondition = 'unknown' | 'up' | 'down';

export class Shipper<P = unknown> {
  readonly peer: string;
  condition: PeerCondition = 'unknown';
  lastError: string | undefined;
  lastAckedAt: number | undefined;
  readonly keptBack: KeptBack;
  readonly standStill: StandStill;
  readonly #o: ShipperOptions<P>;
  readonly #courier: Courier<P>;
  readonly #search: Search<P>;
  readonly #stop = new AbortController();
  readonly #rest: Rest;
  readonly #uncounted: Uncounted;
  readonly #waiters = new Waiters();
  /** As the peer's answers allow: smaller after a 413, or when it has taken long to apply a batch. */
  #changesMax: number;
  #running: Promise<void> | undefined;
  readonly #checkup: Checkup;

  constructor(options: ShipperOptions<P>) {
    const { events, peer, outbox } = options;
    this.#o = options;
    this.peer = peer;
    this.keptBack = new KeptBack(peer, options);
    this.standStill = new StandStill({ peer, warn: (code, message) => events.emit('warning', { code, message }) });
    this.#changesMax = firstBatchSize(options.pace.batchSize);
    this.#rest = new Rest(options.clock, this.#stop.signal, options.crowd);
    this.#uncounted = new Uncounted(this.#rest);
    this.#courier = new Courier({
      ...options,
      places: options.told?.places,
      stopped: this.#stop.signal,
      onAttempt: (attempt) => {
        if (events.has('attempt')) events.emit('attempt', { peer, ...attempt });
      },
      // Where there are thousands, somebody else asks those of whom nothing is heard.
      silence: options.told ? undefined : { ms: IDLE_MS, tell: () => this.#askSilent() },
    });
    this.#checkup = new Checkup({
      courier: this.#courier,
      clock: options.clock,
      stopped: this.#stop.signal,
      attempts: ATTEMPTS,
      backOff: (failures) => this.#rest.backOff(failures),
      onAlive: (said) => {
        if (this.condition !== 'up') this.#up();
        return this.#heard(said);
      },
      onSilent: (reason) => {
        this.lastError = reason;
      },
      onDown: (reason) => this.#down(reason),
    });
    this.#search = {
      outbox,
      send: (shipment) => this.#sendPatiently(shipment),
      acked: async (shipment, verdict) => {
        this.#resize(shipment, verdict.applyMs);
        await this.#forbidden(shipment, verdict);
        this.keptBack.note(verdict.early);
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
    // Without a reason, Node would make an error with a stack for each of thousands.
    this.#stop.abort('stopped');
    this.#rest.nudge();
    await this.#running;
    // Also where it has not begun yet.
    this.#waiters.stop();
    await this.#checkup.ended();
  }

  /** Does not wait for the tick, or until a peer that is down is due. */
  nudge(): void {
    this.#rest.nudge();
  }

  /** There may be more to send. A peer that is down is tried when its time has come, and not each time. */
  wake(): void {
    this.#rest.wake();
  }

  /** When the peer gave its latest complete answer; 0 before the first. */
  get answeredAt(): number {
    return this.#courier.answeredAt;
  }

  /** Somebody else has had an answer from it. */
  alive(): void {
    const before = this.condition;
    if (before !== 'up') this.#up();
    if (before === 'down') this.#rest.nudge();
  }

  /** Asks the peer who it is, though it may have answered a moment ago; a plain peer is not asked. */
  askNow(): void {
    if (this.#running && !this.#stop.signal.aborted && this.#courier.mayAsk) this.#checkup.begin();
  }

  /** Ships now; true when the peer has everything that was pending, false when it cannot be reached. */
  async flush(): Promise<boolean> {
    if (this.#stop.signal.aborted) return false;
    const pass = this.#waiters.wait();
    this.nudge();
    return (await pass) === 'empty';
  }

  async #run(): Promise<void> {
    // Loops of several peers, or of many nodes started together, do not tick in step.
    await this.#rest.pause(this.#o.random() * this.#o.pace.batchMs);
    while (!this.#stop.signal.aborted) {
      await this.#rest.turn();
      this.#rest.begin();
      if (this.#o.outbox.isReady === false) {
        await this.#rest.sleep();
        continue;
      }
      const tellWaiters = this.#waiters.begin();
      const pass = await this.#guardedPass();
      tellWaiters(pass);
      if (pass === 'empty' && !this.#o.told && this.#isQuiet()) this.#checkup.begin();
      await this.#pauseAfter(pass);
    }
  }

  #pauseAfter(pass: Pass): Promise<void> {
    const { told, pace } = this.#o;
    if (!told) return this.#rest.pause(pace.batchMs);
    if (pass === 'empty') return this.#rest.sleep();
    return this.condition === 'down' ? this.#rest.pauseForDown(told.restMs()) : this.#rest.pause(pace.batchMs);
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
      const failure = asFailure(`shipping to ${this.peer} failed`, error);
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
      if (delivered?.counts === false) {
        // What is on its way behind it must not count either: how far the peer is would pass over what it may lack.
        await sent.takeBack();
        [second, delivered] = [undefined, undefined];
        if (await this.#givesUp()) return 'unreachable';
        current = await this.#next();
        continue;
      }
      second = ahead && this.#courier.mayPipeline ? await this.#courier.begin(ahead, 0, 'second') : undefined;
      delivered = undefined;
      const verdict: Verdict = await sent.verdict;
      if (verdict.kind === 'acked') {
        failures = { unreachable: 0, refused: 0 };
        this.#resize(current, verdict.applyMs);
        this.keptBack.note(verdict.early);
        const acked = acknowledged(current, verdict);
        await this.#forbidden(current, verdict);
        if (ahead) delivered = acked;
        else await this.#acked(acked);
        if (acked.counts === false && (await this.#givesUp())) return 'unreachable';
        current = ahead ?? (await this.#next());
        continue;
      }
      // The second batch may have arrived or not: it is sent again after this one.
      await second?.takeBack();
      second = undefined;
      if (verdict.kind === 'refused' && (sent.packed.gzip || sent.packed.isTabular)) {
        // Not the changes may be to blame but how they were sent: that is no attempt yet.
        this.#courier.refusedAs(sent.packed);
        continue;
      }
      if (isTooLarge(verdict) && current.count > 1) {
        this.#changesMax = current.count >> 1;
        current = await this.#next();
        continue;
      }
      const bare = await bareIfTooLarge(this.#o.outbox, current, verdict);
      if (bare) {
        current = bare;
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
          this.standStill.failed(searched.reason);
          return 'unreachable';
        }
        failures = { unreachable: 0, refused: 0 };
        current = await this.#next();
        continue;
      }
      await this.#rest.backOff(failures.unreachable + failures.refused);
      if (await this.#checkup.meets()) current = await this.#next();
      if (failures.unreachable < (this.#o.told && this.condition === 'down' ? 1 : ATTEMPTS)) continue;
      this.#down(reason);
      this.standStill.failed(reason);
      return 'unreachable';
    }
    await second?.verdict;
    if (delivered) await this.#acked(delivered);
    // Whatever it was, it is not waiting any more: what was overtaken meanwhile, for instance, has been passed over.
    if (!this.#stop.signal.aborted) this.standStill.moved();
    return this.#stop.signal.aborted ? 'stopped' : 'empty';
  }

  /** An acknowledgement has not counted, and perhaps many before it. */
  async #givesUp(): Promise<boolean> {
    this.lastError = await this.#uncounted.again();
    return this.lastError !== undefined;
  }

  /** The next changes after `previous`; what the peer has acknowledged meanwhile is noted in the same transaction. */
  async #next(previous?: Shipment<P>, delivered?: Shipment<P>): Promise<Shipment<P> | undefined> {
    const { batchSize, maxBatchBytes } = this.#o.pace;
    const changes = Math.min(this.#changesMax, largestBatchSize(batchSize));
    const limit = { changes, mixed: firstBatchSize(batchSize), bytes: maxBatchBytes };
    let next = await this.#o.outbox.next(limit, previous, delivered);
    if (next && (await this.#checkup.meets())) next = await this.#o.outbox.next(limit, previous);
    if (delivered) this.#noteDelivered(delivered);
    await this.#waiters.look(this.#o.outbox);
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

  /** A connection error in the middle of a search must not throw away what is known of the refused changes. */
  async #sendPatiently(shipment: Shipment<P>): Promise<Verdict> {
    for (let failures = 1; ; failures++) {
      const verdict = await this.#courier.send(shipment);
      const bare = await bareIfTooLarge(this.#o.outbox, shipment, verdict);
      if (bare) return this.#sendPatiently(bare);
      if (verdict.kind !== 'unreachable' || failures === ATTEMPTS || this.#stop.signal.aborted) return verdict;
      await this.#rest.backOff(failures);
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
    this.#uncounted.isOver();
    this.standStill.moved();
    this.lastAckedAt = this.#o.clock.now();
    this.#o.events.emit('acked', { peer: this.peer, batchId: shipment.batchId, changes: shipment.count });
  }

  async #setAside(shipment: Shipment<P>, reason: string): Promise<void> {
    const rows = await this.#o.outbox.setAside(shipment, reason, ATTEMPTS);
    this.standStill.moved();
    // What was sent only to see whether the peer is back is no letter.
    if (rows.length === 0 && shipment.count > 0) return;
    this.#o.events.emit('dead-letter', { direction: 'out', peer: this.peer, code: 'refused', reason, rows });
  }

  /** What the peer does not let this node write is kept here: nobody else has it. */
  async #forbidden(shipment: Shipment<P>, { forbidden = [] }: Acked): Promise<void> {
    const own = forbidden.filter(({ index }) => index >= 0 && index < shipment.count);
    if (own.length === 0) return;
    const rows = await this.#o.outbox.forbid(shipment, own);
    const reason = own[0]?.reason as string;
    const message = `${this.peer} lets this node not write everything that it is sent: ${reason}`;
    if (rows.length === 0) this.#o.events.emit('warning', { code: 'forbidden', message });
    else this.#o.events.emit('dead-letter', { direction: 'out', peer: this.peer, code: 'forbidden', reason, rows });
  }

  /** Nothing was written for a while, so nobody would notice that the peer is gone, or back. */
  #isQuiet(): boolean {
    const { clock, pace } = this.#o;
    const quietMs = Math.min(passedSince(clock, this.#courier.answeredAt), passedSince(clock, this.#checkup.askedAt));
    // The next chance is a tick away, and must not be too late.
    return quietMs + pace.batchMs > IDLE_MS && this.#courier.mayAsk;
  }

  /** A batch may wait for an answer that never comes, and five of them take minutes: the dead are found as if it were quiet. */
  #askSilent(): void {
    if (this.condition !== 'down' && this.#courier.mayAsk) this.#checkup.begin();
  }

  /** What its answer to a question says of it; where that cannot be noted, the next answer says it again. */
  async #heard(said: string | null): Promise<void> {
    if (said === null) return;
    try {
      await this.#o.company.heard(said);
    } catch (error) {
      if (!(error instanceof RowcastError && error.code === 'IN_TRANSACTION'))
        this.#o.events.emit('error', asFailure(`shipping to ${this.peer} failed`, error));
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
