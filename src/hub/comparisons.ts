/** A hub's comparisons with its edges, and its answers to theirs. */
import type { Clock } from '../clock.ts';
import { type Answered, type AnswerOptions, Answers } from '../compare/answer.ts';
import type { Exchange } from '../compare/exchange.ts';
import { EVERYTHING } from '../compare/ids.ts';
import { type Counterpart, type Ledger, smaller } from '../compare/ledger.ts';
import { noteIn, type VerifyNote, type VerifyNotes, type VerifySummary } from '../compare/notes.ts';
import { checkVerifyCall } from '../compare/options.ts';
import { eventOf, Verifier } from '../compare/verifier.ts';
import type { VerifyOptions, VerifyResult } from '../compare/verify.ts';
import type { CheckedConfig } from '../config.ts';
import { asFailure } from '../errors.ts';
import type { Emitter } from '../events.ts';
import type { Bond } from '../send/bond.ts';
import { TOO_LARGE_ALONE } from '../send/isolate.ts';
import { comparing } from '../send/question.ts';
import { TooLargeRows } from '../send/too-large.ts';
import type { Post } from '../send/transport.ts';
import { Unmounted } from '../send/unmounted.ts';
import type { Body } from '../wire/body.ts';
import { normalisePeer } from '../wire/peer-url.ts';
import type { Rights } from '../wire/rights.ts';
import type { Link } from './roster.ts';
import type { HubStore, Seq } from './store.ts';

export interface HubComparisonsOptions {
  config: CheckedConfig;
  clock: Clock;
  events: Emitter;
  random: () => number;
  stopped: AbortSignal;
  fetch: Post;
  /** Where there are keys. */
  bond(url: string): Bond | undefined;
  /** What the node there may write, where it is asked for rows; undefined: everything. */
  rightsAt(url: string): Rights | undefined;
  links(): Link[];
  link(url: string): Link | undefined;
  remembered: Map<string, VerifyNote>;
}

/** How often it is looked which edge is due. That takes a look at what is noted of each. */
const LOOK_MS = 1_000;
const LOOK_MS_AN_EDGE = 1;
/** Before the first. */
const NOTHING_SENT: Seq = 0;

export class HubComparisons {
  readonly #store: HubStore;
  readonly #o: HubComparisonsOptions;
  readonly #answers: Answers;
  readonly #verifier: Verifier;
  readonly #unmounted: Unmounted;
  readonly #tooLarge: TooLargeRows;
  readonly #ledger: Ledger;
  #watching: Promise<void> | undefined;

  constructor(store: HubStore, options: HubComparisonsOptions) {
    this.#store = store;
    this.#o = options;
    this.#ledger = this.#ledgerOf(store);
    this.#answers = new Answers(this.#ledger, options.clock, options.stopped);
    this.#unmounted = new Unmounted(options.events);
    this.#tooLarge = new TooLargeRows(options.clock, options.events);
    this.#verifier = this.#verifying();
  }

  start(): void {
    this.#watching ??= this.#watch();
  }

  async verify(edge: string | undefined, options: VerifyOptions): Promise<VerifyResult[]> {
    const named = edge === undefined ? undefined : normalisePeer(edge);
    return this.#verifier.verify(checkVerifyCall(named, options, this.#urls(), undefined), options);
  }

  answer(path: string, body: string | Uint8Array, options: AnswerOptions): Promise<Answered> {
    return this.#answers.to(path, body, options);
  }

  summaryOf(url: string): VerifySummary | undefined {
    return this.#verifier.summaryOf(url);
  }

  /** Rows that cannot be brought here. */
  problems(): string[] {
    return this.#tooLarge.problems(this.#urls());
  }

  async stop(): Promise<void> {
    await this.#watching;
    await this.#verifier.stop();
  }

  async #watch(): Promise<void> {
    const { clock, stopped } = this.#o;
    while (!stopped.aborted) {
      await clock.sleep(Math.max(LOOK_MS, LOOK_MS_AN_EDGE * this.#o.links().length), stopped);
      if (!stopped.aborted) this.#verifier.tick();
    }
  }

  /** What is after an edge's position is on its way to it; everything here was flushed before it was acknowledged. */
  #ledgerOf({ ledger }: HubStore): Ledger {
    const self = this.#o.config.id;
    const look: Ledger['look'] = async (table, columns, ids, other, portion) => {
      const position = await this.#positionOf(other);
      const { entries, rest } = await ledger.entries(table, columns, ids, portion);
      const left = new Set(rest);
      const some = ids.filter((id) => !left.has(id));
      const undelivered = position === undefined ? [] : await ledger.after(table, some, position);
      const sight = { entries, undelivered, parked: [], early: await ledger.early(table, some), rest };
      // An edge that has not said yet who it is may be the one that asks: nobody knows what it was sent, and it must not
      // take for deleted what it was not.
      return position === undefined ? { ...sight, nodes: { self, heard: [self], awaited: [] } } : sight;
    };
    return {
      outline: () => ledger.outline(),
      spell: async (table, columns, [range = EVERYTHING], each, portion, floor) => [
        await ledger.spell(table, columns, range, smaller(each, portion), floor),
      ],
      list: async (table, columns, [range = EVERYTHING], portion) => [
        await ledger.list(table, columns, range, portion),
      ],
      changes: (...asked) => ledger.changes(...asked),
      look,
      flushed: () => {},
    };
  }

  /** By its address, or by the node id that it has told; of several with one id, of the last of them. */
  async #positionOf(other: Counterpart | undefined): Promise<Seq | undefined> {
    const edges = this.#o
      .links()
      .map(({ edge }) => edge)
      .filter(({ url, nodeId }) => other !== undefined && (url === other.name || nodeId === other.name));
    if (edges.length === 0) return undefined;
    const positions: Seq[] = [];
    for (const { url, position } of edges) {
      const isAnother = other?.said ? await this.#store.company.another(url, other.said) : undefined;
      if (isAnother === undefined) positions.push(position);
    }
    // To another database than has acknowledged there everything is still on its way.
    return positions.length === 0 ? NOTHING_SENT : Math.min(...positions);
  }

  #urls(): string[] {
    return this.#o.links().map(({ edge }) => edge.url);
  }

  /** By its acknowledgements, or because it has said who it is. */
  #isRowcast(url: string): boolean {
    const { edge, loop } = this.#o.link(url) ?? {};
    return loop?.shipper.isRowcast === true || edge?.inc !== undefined;
  }

  #verifying(): Verifier {
    const { config, clock, events, random, stopped, link, remembered } = this.#o;
    return new Verifier({
      peers: () => this.#urls(),
      isReady: (url) => this.#isRowcast(url) && link(url)?.loop.shipper.condition === 'up',
      with: (url, signal) => this.#with(url, signal),
      notes: notesOf(this.#store),
      remembered,
      clock,
      random,
      ...config.verify,
      onDone: (result, hasTriedAll) => {
        if (hasTriedAll && result.error === undefined) this.#tooLarge.compared(result.peer, result.ms);
        events.emit('verify-done', eventOf(result));
      },
      onError: (error) => events.emit('error', asFailure('comparing failed', error)),
      stopped,
    });
  }

  #with(url: string, withdrawn: AbortSignal | undefined): ReturnType<typeof comparing> & { ledger: Ledger } {
    const { config, clock, fetch, stopped, link, bond, rightsAt } = this.#o;
    const { requestTimeoutMs, maxBodyBytes, id: nodeId } = config;
    const introduction = (to: string): Promise<string> => this.#store.company.toEdge(to);
    const another = (to: string, said: string): Promise<string | undefined> => this.#store.company.another(to, said);
    const lacks = (to: string, path: string): void => {
      if (this.#isRowcast(to)) this.#unmounted.found(to, path);
    };
    const asker = {
      nodeId,
      introduction,
      another,
      fetch,
      clock,
      requestTimeoutMs,
      stopped,
      bond: bond(url),
      lacks,
      maxBodyBytes,
    };
    const from = link(url)?.edge.ownOrigin;
    const take = async (body: string): Promise<void> => {
      const { letters } = await this.#store.receive(body, { from, plain: false, rights: rightsAt(url) });
      for (const one of letters) this.#o.events.emit('dead-letter', one);
    };
    const tooLarge: Exchange['tooLarge'] = ({ table, id, side, body }) => {
      if (side === 'there' && body) return this.#setAside(url, body);
      this.#tooLarge.found({ peer: url, table, id });
    };
    return { ledger: this.#ledger, ...comparing(asker, url, { take, tooLarge }, withdrawn) };
  }

  /** As where a change is too large for the edge. */
  async #setAside(url: string, body: Body): Promise<void> {
    const refusal = { peer: url, reason: TOO_LARGE_ALONE, attempts: 1 };
    const rows = await this.#store.letters.setAside({ body }, refusal);
    const told = { direction: 'out', peer: url, code: 'refused', reason: TOO_LARGE_ALONE, rows } as const;
    this.#o.events.emit('dead-letter', told);
  }
}

export function notesOf(store: HubStore): VerifyNotes {
  return {
    read: async () => {
      const notes = [...(await store.verified())].map(([url, note]): [string, VerifyNote | undefined] => [
        url,
        noteIn(note),
      ]);
      return new Map(notes.filter((entry): entry is [string, VerifyNote] => entry[1] !== undefined));
    },
    write: (url, note) => store.noteVerified(url, JSON.stringify(note)),
  };
}
