/**
 * How one batch gets to one peer and what the peer says of it. Its answers also teach about the link (is it worth
 * compressing for?) and about the peer (does it keep up? is it a Rowcast, which can be asked how it is?).
 */
import { type Clock, passedSince } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { type OriginRun, writeOrigins } from '../wire/origins.ts';
import {
  ACCEPT_HEADER,
  ANY_ORDER_HEADER,
  APPLY_MS_HEADER,
  HEALTH_PATH,
  ORIGINS_HEADER,
  ROWCAST_HEADER,
  SEND_AGAIN_HEADER,
} from '../wire/protocol.ts';
import { tabularForm } from '../wire/tabular.ts';
import type { Bond } from './bond.ts';
import { Link, type Packed, plain } from './link.ts';
import type { Places } from './places.ts';
import { askHealth, NoAnswer, nodeIdOf, type PeerAnswer, postBatch } from './request.ts';
import type { Company, Shipment } from './shipment.ts';
import type { Ask, Post } from './transport.ts';
import { judge, TOO_LARGE_ON_THE_WAY, type Verdict } from './verdict.ts';

/** On its way to the peer. */
export interface Sent<P> {
  shipment: Shipment<P>;
  packed: Packed;
  verdict: Promise<Verdict>;
  /** Takes the request back: whether it has arrived is then not known. Resolves when it is not on its way any more. */
  takeBack(): Promise<void>;
}

/** One request with a batch, when it is over. */
export interface Attempt {
  batchId: number;
  changes: number;
  /** As it travelled: compressed, where it was. */
  bytes: number;
  encoding: 'gzip' | 'identity';
  ms: number;
  result: Verdict['kind'];
}

export interface CourierOptions {
  nodeId: string;
  peer: string;
  company: Company;
  fetch: Post;
  /** Undefined where nothing but POST can be sent. */
  get: Ask | undefined;
  /** Resolves when a request that was just begun is on its way. */
  untilSent: () => Promise<void>;
  clock: Clock;
  pace: { readonly requestTimeoutMs: number };
  /** Where there are keys. */
  bond?: Bond | undefined;
  /** Where requests wait for their turn. */
  places?: Places | undefined;
  /** Aborted when nothing more is to be sent; it ends what is on its way. */
  stopped: AbortSignal;
  onAttempt(attempt: Attempt): void;
  /** Where somebody wants to know that a batch is under way and nothing was heard of the peer for so long. */
  silence?: { ms: number; tell(): void } | undefined;
}

/** What asking for `/health` has brought: `unknown` is an answer that says neither. */
export type Pulse =
  | { kind: 'alive'; nodeId: string; said: string | null }
  | { kind: 'silent'; reason: string }
  | { kind: 'unknown' };

/** An answer within this part of what is allowed is a swift one. */
const SWIFT = 0.1;

/**
 * After this many consecutive failures of a second batch under way, assume a proxy that allows one, and stop
 * pipelining.
 */
const SECOND_FAILURES_MAX = 3;

/** How long a `/health` may take. Five in a row have to fail before that means anything. */
const HEALTH_MS = 2_500;

/** A larger batch is read in one turn, and packed in another. */
const MANY = 1_500;

const NO_SUCH_PAGE = new Set([404, 405]);

/** How long that is believed of one that has introduced itself. */
const LACKS_HEALTH_MS = 60_000;

export class Courier<P> {
  readonly #o: CourierOptions;
  readonly #link = new Link();
  /** The latest answer was a swift acknowledgement, by a peer that takes batches in any order. */
  #swift = false;
  #secondFailures = 0;
  /** Its latest acknowledgement carried headers of ours, or its health an introduction. */
  #isRowcast = false;
  /** Its latest acknowledgement came without an introduction. */
  #isPlain = false;
  /** Its latest answer said that it reads the tabular form. */
  #saysTabular = false;
  #refusesTabular = false;
  /** When it was last said that it has no `/health`; undefined where its latest answer was another. */
  #lacksHealthAt: number | undefined;
  #answeredAt = 0;

  constructor(options: CourierOptions) {
    this.#o = options;
  }

  /** A second batch may be under way. On a slow link two would only keep each other waiting. */
  get mayPipeline(): boolean {
    return this.#swift && !this.#link.isSlow && this.#secondFailures < SECOND_FAILURES_MAX;
  }

  /** When the peer gave its latest complete answer, to whatever; 0 before the first. */
  get answeredAt(): number {
    return this.#answeredAt;
  }

  /** A peer that has not shown itself to be a Rowcast is never sent anything but batches. */
  get mayAsk(): boolean {
    return (this.#isRowcast || this.#o.company.isKnown) && !this.#lacksHealth && this.#o.get !== undefined;
  }

  /**
   * It has never answered and never introduced itself, but others have: it may be one of them. Where there are thousands,
   * somebody else asks.
   */
  get isStranger(): boolean {
    return this.#answeredAt === 0 && this.#o.silence !== undefined && !this.#o.company.isIntroduced && this.mayAsk;
  }

  /**
   * Who has introduced itself has a `/health`, or will have: what says otherwise may be a proxy, or a moment in which it is
   * set up anew. Anybody else is asked once.
   */
  get #lacksHealth(): boolean {
    const { company, clock } = this.#o;
    if (this.#lacksHealthAt === undefined) return false;
    if (this.#isPlain || !company.isIntroduced) return true;
    return passedSince(clock, this.#lacksHealthAt) < LACKS_HEALTH_MS;
  }

  /** Its latest answer has shown that it is a Rowcast: it may be asked more than to take a batch. */
  get isRowcast(): boolean {
    return this.#isRowcast;
  }

  get #readsTabular(): boolean {
    return this.#saysTabular && !this.#refusesTabular;
  }

  /** Resolves when the request is on its way: what comes next may keep the event loop for some milliseconds. */
  async begin(shipment: Shipment<P>, attempt: number, place: 'first' | 'second'): Promise<Sent<P>> {
    // To read that many has kept the event loop for some milliseconds, and to pack them will.
    if (shipment.count > MANY) await this.#o.untilSent();
    const packed = await this.#pack(shipment, attempt);
    const request = new AbortController();
    const verdict = this.#inTurn(() => this.#post(shipment, packed, request.signal, place));
    if (attempt === 0) await this.#o.untilSent();
    const takeBack = async (): Promise<void> => {
      request.abort();
      await verdict;
    };
    return { shipment, packed, verdict, takeBack };
  }

  /** What did not arrive in another form is tried in the plain one: the form may be what stands in the way. */
  async #pack({ body, count }: Shipment<P>, attempt: number): Promise<Packed> {
    const tabular = this.#readsTabular && attempt === 0 ? tabularForm(body, count) : undefined;
    const packed = await this.#link.pack(tabular ?? body, attempt);
    return tabular ? { ...packed, isTabular: true } : packed;
  }

  /** As it is, uncompressed, until there is an answer. */
  send(shipment: Shipment<P>): Promise<Verdict> {
    return this.#inTurn(() => this.#post(shipment, plain(shipment.body), undefined, 'first'));
  }

  /** Not the changes may be to blame for a refusal but how they were sent. */
  refusedAs({ gzip, isTabular }: Packed): void {
    if (gzip) this.#link.refused();
    if (isTabular) this.#refusesTabular = true;
  }

  /** Asks the peer how it is. */
  async ask(): Promise<Pulse> {
    const { get, peer, company, clock, stopped, bond } = this.#o;
    if (!get) return { kind: 'unknown' };
    try {
      const options = { clock, stopped, timeoutMs: HEALTH_MS, bond };
      const answer = await askHealth(get, peer, await company.introduction(), options);
      const { status } = answer;
      const nodeId = nodeIdOf(answer);
      this.#lacksHealthAt = nodeId === undefined && NO_SUCH_PAGE.has(status) ? clock.now() : undefined;
      if (nodeId !== undefined) {
        this.#answeredAt = clock.now();
        const said = answer.header(ROWCAST_HEADER);
        // Who has nothing to send is compared with its peers all the same.
        if (readIntroduction(said)) this.#isRowcast = true;
        return { kind: 'alive', nodeId, said };
      }
      // Somebody is there who has no /health, or none for us; what answers in a dead peer's place says 5xx, or
      // anything.
      if (status >= 400 && status < 500) return { kind: 'unknown' };
      return { kind: 'silent', reason: `HTTP ${status} to ${HEALTH_PATH}, and no health in it` };
    } catch (error) {
      const withdrawn = error instanceof NoAnswer && error.withdrawn;
      return withdrawn ? { kind: 'unknown' } : { kind: 'silent', reason: messageOf(error) };
    }
  }

  #inTurn(post: () => Promise<Verdict>): Promise<Verdict> {
    return this.#o.places ? this.#o.places.pass(post) : post();
  }

  async #post(
    shipment: Shipment<P>,
    packed: Packed,
    withdrawn: AbortSignal | undefined,
    place: 'first' | 'second',
  ): Promise<Verdict> {
    const { nodeId, peer, company, fetch, clock, stopped, bond, silence } = this.#o;
    const { requestTimeoutMs: timeoutMs } = this.#o.pace;
    const asks = shipment.asks === undefined ? {} : { [SEND_AGAIN_HEADER]: shipment.asks.header };
    const told = shipment.origins && !this.#isPlain ? { [ORIGINS_HEADER]: originsOf(shipment.origins) } : {};
    const headers = { ...packed.headers, ...asks, ...told };
    const began = clock.now();
    let verdict: Verdict;
    try {
      const introduction = await company.introduction();
      const batch = { nodeId, introduction, body: packed.body, count: shipment.count, headers };
      const answer = await postBatch(fetch, peer, batch, {
        clock,
        timeoutMs,
        stopped,
        bond,
        ...(withdrawn && { withdrawn }),
        silence: silence && { afterMs: this.#untilSilent(silence.ms), tell: silence.tell },
      });
      verdict = await this.#weighed(
        judge({ ...answer, applyMs: answer.header(APPLY_MS_HEADER) }, shipment.batchId),
        answer,
      );
      this.#learn(answer, verdict, packed, place, began);
    } catch (error) {
      this.#swift = false;
      const isTooLarge = error instanceof NoAnswer && error.isTooLarge;
      const reason = isTooLarge && shipment.count <= 1 ? TOO_LARGE_ON_THE_WAY : messageOf(error);
      verdict = { kind: 'unreachable', reason, ...(isTooLarge && { isTooLarge }) };
      // What was taken back says nothing of the link.
      if (error instanceof NoAnswer && error.withdrawn) return verdict;
      if (place === 'second') this.#secondFailures += 1;
      this.#link.failed(packed);
    }
    this.#o.onAttempt({
      batchId: shipment.batchId,
      changes: shipment.count,
      bytes: packed.body.byteLength,
      encoding: packed.gzip ? 'gzip' : 'identity',
      ms: Math.max(0, clock.now() - began),
      result: verdict.kind,
    });
    return verdict;
  }

  /** Of a peer that has never answered, or not for longer, from now on. */
  #untilSilent(ms: number): number {
    const left = ms - passedSince(this.#o.clock, this.#answeredAt);
    return left > 0 ? left : ms;
  }

  /** An acknowledgement with the word of who gives it; worth nothing where that one is not who it should be. */
  async #weighed(verdict: Verdict, answer: PeerAnswer): Promise<Verdict> {
    const said = answer.header(ROWCAST_HEADER);
    if (verdict.kind !== 'acked' || said === null) return verdict;
    const reason = await this.#o.company.objection(said);
    return reason === undefined ? { ...verdict, said } : { kind: 'unreachable', reason };
  }

  #learn(answer: PeerAnswer, verdict: Verdict, packed: Packed, place: 'first' | 'second', began: number): void {
    const now = this.#o.clock.now();
    // The time in which the peer still had the batch before is not this one's.
    const ms = Math.max(0, now - Math.max(began, this.#answeredAt));
    this.#answeredAt = now;
    const accepts = answer.header(ACCEPT_HEADER);
    this.#link.heard(accepts);
    this.#saysTabular = readIntroduction(answer.header(ROWCAST_HEADER))?.reads === 'tabular';
    const acked = verdict.kind === 'acked';
    const anyOrder = answer.header(ANY_ORDER_HEADER) === '1';
    this.#swift = acked && anyOrder && ms <= SWIFT * this.#o.pace.requestTimeoutMs;
    if (place === 'second') this.#secondFailures = acked ? 0 : this.#secondFailures + 1;
    if (verdict.kind === 'acked') {
      this.#isPlain = answer.header(ROWCAST_HEADER) === null;
      this.#isRowcast = anyOrder || accepts === 'gzip' || verdict.applyMs !== undefined;
      this.#link.acked(packed, ms, verdict.applyMs);
    } else {
      this.#link.failed(packed);
      // Who refuses the plain form as well has not refused the other one for its form.
      if (verdict.kind === 'refused' && !packed.isTabular) this.#refusesTabular = false;
    }
  }
}

/** A batch that several peers are sent has the same for all of them. */
const spelt = new WeakMap<OriginRun[], string>();

function originsOf(runs: OriginRun[]): string {
  const header = spelt.get(runs) ?? writeOrigins(runs);
  spelt.set(runs, header);
  return header;
}
