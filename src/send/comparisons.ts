/** A node's comparisons with its peers: what it asks them, what it answers to them, and how rows get from one to the other. */
import type { Registry } from '../capture/registry.ts';
import { hasAnyStamps } from '../capture/stamps.ts';
import { noteCompared } from '../capture/unsaid.ts';
import { versionOf } from '../capture/versions.ts';
import type { Clock } from '../clock.ts';
import { type Answered, type AnswerOptions, Answers } from '../compare/answer.ts';
import type { Counterpart } from '../compare/ledger.ts';
import { NodeNotes, type VerifySummary } from '../compare/notes.ts';
import { checkVerifyCall } from '../compare/options.ts';
import { SqliteLedger } from '../compare/sqlite-ledger.ts';
import { eventOf, Verifier } from '../compare/verifier.ts';
import type { VerifyOptions, VerifyResult } from '../compare/verify.ts';
import type { CheckedConfig } from '../config.ts';
import { asFailure } from '../errors.ts';
import type { Emitter } from '../events.ts';
import type { DeadLetters } from '../letters/dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { quote } from '../sqlite/sql.ts';
import type { Body } from '../wire/body.ts';
import { normalisePeer } from '../wire/peer-url.ts';
import type { Bond } from './bond.ts';
import type { NodeCompany } from './company.ts';
import { TOO_LARGE_ALONE } from './isolate.ts';
import type { PeerOutbox } from './outbox.ts';
import { deliveredUpTo } from './peers.ts';
import { comparing } from './question.ts';
import { SeedOutbox } from './seed.ts';
import { setAsideChanges } from './set-aside.ts';
import type { Shipper } from './shipper.ts';
import { TooLargeRows } from './too-large.ts';
import type { Post } from './transport.ts';
import { UncapturedRows } from './uncaptured.ts';
import { Unmounted } from './unmounted.ts';

export interface ComparisonsOptions {
  registry: Registry;
  config: CheckedConfig;
  clock: Clock;
  events: Emitter;
  stopped: AbortSignal;
  random: () => number;
  fetch(peer: string, ...request: Parameters<Post>): ReturnType<Post>;
  /** What this node says of itself to a peer, and which database that peer is. */
  company: Pick<NodeCompany, 'introduction' | 'another' | 'nodes'>;
  /** Where there are keys. */
  bond(peer: string): Bond | undefined;
  /** Those that are configured at the moment. */
  peers(): string[];
  shipper(peer: string): Shipper | undefined;
  /** Applies a batch that a peer was asked for. */
  take(peer: string, body: string): void;
  letters: DeadLetters;
}

export class Comparisons {
  readonly ledger: SqliteLedger;
  readonly #db: Connection;
  readonly #o: ComparisonsOptions;
  readonly #answers: Answers;
  readonly #verifier: Verifier;
  readonly #unmounted: Unmounted;
  readonly #tooLarge: TooLargeRows;
  readonly #uncaptured: UncapturedRows;
  /** The peers by the node ids that they have told with their answers. */
  readonly #peerOf = new Map<string, string>();

  constructor(db: Connection, options: ComparisonsOptions) {
    const { clock, stopped } = options;
    this.#db = db;
    this.#o = options;
    this.ledger = new SqliteLedger(db, {
      tables: () => this.#tables(),
      version: (table, alias) => (hasAnyStamps(db) ? versionOf(table, alias) : `${alias}.${quote(table.updatedAt)}`),
      watermark: (other) => this.#deliveredTo(other),
      nodes: () => options.company.nodes(),
      onLook: (table, ids) => this.#uncaptured.look(table, ids),
    });
    this.#uncaptured = new UncapturedRows(db, options.events);
    this.#answers = new Answers(this.ledger, clock, stopped);
    this.#unmounted = new Unmounted(options.events);
    this.#tooLarge = new TooLargeRows(clock, options.events);
    this.#verifier = this.#verifying();
  }

  /** A peer has answered, and says who it is. */
  heard(peer: string, id: string): void {
    this.#peerOf.set(id, peer);
  }

  async verify(peer: string | undefined, options: VerifyOptions): Promise<VerifyResult[]> {
    const { registry } = this.#o;
    const named = peer === undefined ? undefined : normalisePeer(peer);
    const known = registry.list().flatMap(({ name, wireName }) => [name, wireName]);
    const peers = checkVerifyCall(named, options, this.#o.peers(), known);
    // What is compared has the names under which it travels.
    const tables = options.tables?.map((name) => registry.get(name)?.wireName ?? name);
    return this.#verifier.verify(peers, tables ? { ...options, tables } : options);
  }

  answer(path: string, body: string | Uint8Array, options: AnswerOptions): Promise<Answered> {
    return this.#answers.to(path, body, options);
  }

  summaryOf(peer: string): VerifySummary | undefined {
    return this.#verifier.summaryOf(peer);
  }

  /** Rows that cannot be brought here. */
  problems(): string[] {
    return this.#tooLarge.problems(this.#o.peers());
  }

  /** Rows here that no comparison can put right; asks the database. */
  uncaptured(): string[] {
    return this.#uncaptured.problems(this.#o.registry.list());
  }

  tick(): void {
    this.#verifier.tick();
  }

  stop(): Promise<void> {
    return this.#verifier.stop();
  }

  /** What it takes to compare with a peer. */
  with(peer: string, withdrawn?: AbortSignal): ReturnType<typeof comparing> & { ledger: SqliteLedger } {
    const { config, clock, stopped, company } = this.#o;
    const asker = {
      nodeId: config.id,
      introduction: (url: string) => company.introduction(url),
      another: (url: string, said: string) => company.another(url, said),
      fetch: (...request: Parameters<Post>) => this.#o.fetch(peer, ...request),
      clock,
      requestTimeoutMs: config.requestTimeoutMs,
      maxBodyBytes: config.maxBodyBytes,
      stopped,
      bond: this.#o.bond(peer),
      lacks: (url: string, path: string) => {
        if (this.#isRowcast(url)) this.#unmounted.found(url, path);
      },
    };
    const here: Parameters<typeof comparing>[2] = {
      take: (body) => this.#o.take(peer, body),
      tooLarge: ({ table, id, side, body }) => {
        if (side === 'there' && body) this.#setAside(peer, body);
        else this.#tooLarge.found({ peer, table, id });
      },
    };
    return { ledger: this.ledger, ...comparing(asker, peer, here, withdrawn) };
  }

  /** As where a change is too large for the peer. The row is in its table, and stays there. */
  #setAside(peer: string, body: Body): void {
    const refusal = { peer, reason: TOO_LARGE_ALONE, attempts: 1 };
    const rows = this.#db.transaction(() => setAsideChanges(this.#db, this.#o.letters, { body }, refusal));
    const told = { direction: 'out', peer, code: 'refused', reason: TOO_LARGE_ALONE, rows } as const;
    this.#o.events.emit('dead-letter', told);
  }

  /** The outbox of a peer, which is compared with where it would be given everything. */
  seeding(peer: string, outbox: PeerOutbox): SeedOutbox {
    const { clock, stopped } = this.#o;
    return new SeedOutbox(this.#db, outbox, {
      peer,
      isRowcast: () => this.#isRowcast(peer),
      sides: () => this.with(peer),
      clock,
      stopped,
    });
  }

  #verifying(): Verifier {
    const { config, clock, events, stopped } = this.#o;
    const notes = new NodeNotes(this.#db);
    return new Verifier({
      peers: () => this.#o.peers(),
      isReady: (peer) => {
        const shipper = this.#o.shipper(peer);
        return shipper?.isRowcast === true && shipper.condition === 'up' && deliveredUpTo(this.#db, peer) !== -1;
      },
      with: (peer, signal) => this.with(peer, signal),
      notes,
      remembered: notes.read(),
      clock,
      random: this.#o.random,
      ...config.verify,
      onDone: (result, hasTriedAll) => {
        if (hasTriedAll && result.error === undefined) this.#tooLarge.compared(result.peer, result.ms);
        events.emit('verify-done', eventOf(result));
      },
      onRepaired: (peer, names) => {
        const tables = this.#o.registry.list().filter(({ wireName }) => names.includes(wireName));
        noteCompared(this.#db, tables, peer, this.#o.peers());
      },
      onError: (error) => events.emit('error', asFailure('comparing failed', error)),
      stopped,
    });
  }

  /** It has shown so by its latest answer. */
  #isRowcast(peer: string): boolean {
    return this.#o.shipper(peer)?.isRowcast === true;
  }

  /** The tables as they are, every version in its row that can be. */
  #tables(): Table[] {
    this.#o.registry.refresh();
    return this.#o.registry.list();
  }

  /** How far a peer is, by its address or by its node id; of one that has not told its id yet, how far the last one is. */
  #deliveredTo(other: Counterpart | undefined): number | undefined {
    const peers = this.#o.peers();
    const named = this.#peerOf.get(other?.name ?? '');
    // One that was taken out is sent nothing, however far it was.
    const known = peers.find((peer) => peer === other?.name || peer === named);
    const told = new Set(this.#peerOf.values());
    const candidates = known === undefined ? peers.filter((peer) => !told.has(peer)) : [known];
    if (candidates.length === 0) return undefined;
    // To another database than has acknowledged there, under whatever name, everything is still on its way.
    const isItself = (peer: string): boolean => !other?.said || this.#o.company.another(peer, other.said) === undefined;
    const delivered = candidates.filter(isItself).map((peer) => deliveredUpTo(this.#db, peer) ?? -1);
    return delivered.length === 0 ? -1 : Math.min(...delivered);
  }
}
