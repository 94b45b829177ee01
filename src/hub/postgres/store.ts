/** The store of a group of hubs: PostgreSQL, and any number of processes that use it. See ../store.ts for its rules. */
import { TimeLimit } from '../../letters/time-limit.ts';
import { singleChange } from '../../send/set-aside.ts';
import type { BatchLimit } from '../../wire/body.ts';
import {
  type EdgeAnswer,
  type EdgeRow,
  type EdgeShipment,
  GROUP_TTL_MS,
  type HubStore,
  type Noted,
  type Segment,
  type Sender,
  type Seq,
  type Stored,
} from '../store.ts';
import { Advances } from './advances.ts';
import { PostgresAnswers } from './answers.ts';
import { PostgresCompany } from './company.ts';
import { type Move, PostgresEdges } from './edges.ts';
import { Epoch } from './epoch.ts';
import { PostgresFacts } from './facts.ts';
import { PostgresGroup } from './group.ts';
import { testHorizon } from './horizon.ts';
import { PostgresLedger } from './ledger.ts';
import { PostgresLetters } from './letters.ts';
import { PostgresNotes } from './notes.ts';
import { openStore } from './open.ts';
import type { Base, PostgresStoreOptions } from './parts.ts';
import { PostgresReader } from './read.ts';
import { PostgresReceiver } from './receive.ts';
import { PostgresRows } from './rows.ts';
import { Sessions } from './sessions.ts';

export class PostgresStore implements HubStore {
  readonly letters: PostgresLetters;
  readonly company: PostgresCompany;
  readonly ledger: PostgresLedger;
  readonly group: PostgresGroup;
  readonly #base: Base;
  readonly #edges: PostgresEdges;
  readonly #answers: PostgresAnswers;
  readonly #facts: PostgresFacts;
  readonly #notes: PostgresNotes;
  readonly #reader: PostgresReader;
  readonly #receiver: PostgresReceiver;
  readonly #rows: PostgresRows;
  readonly #epoch: Epoch;
  readonly #advances: Advances;

  constructor(options: PostgresStoreOptions) {
    const { driver, url, instance, scratch, clock, maxAheadMs } = options;
    const sessions = new Sessions({ driver, url, name: `rowcast ${instance}` });
    const base: Base = { sessions, scratch, clock, timeLimit: new TimeLimit(clock, maxAheadMs), options };
    this.#base = base;
    this.#epoch = new Epoch(sessions);
    this.#advances = new Advances({ sessions, clock, instance });
    this.group = new PostgresGroup({ sessions, epoch: this.#epoch, clock, random: options.random, instance });
    this.#edges = new PostgresEdges(sessions, this.#epoch);
    this.letters = new PostgresLetters(base);
    this.company = new PostgresCompany(base, this.#edges);
    this.#answers = new PostgresAnswers(base, this.#edges, this.company);
    this.ledger = new PostgresLedger(base, this.letters, () => this.tables());
    this.#facts = new PostgresFacts(base, this.letters);
    this.#notes = new PostgresNotes(base, this.letters);
    this.#reader = new PostgresReader(sessions);
    this.#receiver = new PostgresReceiver(base, this.letters, this.company);
    this.#rows = new PostgresRows(sessions);
  }

  async open(): Promise<{ code: string; message: string }[]> {
    const { sessions } = this.#base;
    sessions.greet = (session) => this.#epoch.greet(session);
    const warnings = await openStore(this.#base);
    // Where they were made just now, nobody has seen yet which they are.
    await sessions.use((session) => this.#epoch.greet(session));
    await testHorizon(sessions);
    await this.group.enter(GROUP_TTL_MS);
    await this.company.begin();
    this.#epoch.onChange = () => {
      this.#advances.forget();
      this.company.tell({ kind: 'another-file' });
    };
    this.#advances.start();
    return warnings;
  }

  async close(): Promise<void> {
    await this.#advances.stop();
    await this.group.leave().catch(() => {});
    await this.#base.sessions.close();
  }

  async receive(body: string | Uint8Array, sender: Sender): Promise<Stored> {
    const { advanced, ...stored } = await this.#receiver.receive(body, sender);
    // Before anything that can fail: who then sends it again brings nothing new, and would wake nobody.
    if (advanced) this.#advances.advanced();
    await this.company.settle();
    return stored;
  }

  release(): Promise<boolean> {
    return this.#notes.release((body, sender) => this.receive(body, sender));
  }

  onAdvance(hint: () => void): void {
    this.#advances.add(hint);
  }

  async touch(table: string, rowId: string): Promise<boolean> {
    const known = await this.#rows.touch(table, rowId);
    if (known) this.#advances.advanced();
    return known;
  }

  tables(): Promise<string[]> {
    return this.#rows.tables();
  }

  noteAsked(tables: string[]): Promise<void> {
    return this.#rows.noteAsked(tables);
  }

  askedFor(): Promise<string[]> {
    return this.#rows.askedFor();
  }

  async touchTable(table: string): Promise<void> {
    await this.#rows.touchTable(table);
    this.#advances.advanced();
  }

  read(after: Seq, limit: BatchLimit, except?: string): Promise<Segment | undefined> {
    return this.#reader.read(after, limit, except);
  }

  latest(): Promise<Seq> {
    return this.#reader.latest();
  }

  countBetween(after: Seq, upTo: Seq): Promise<number> {
    return this.#reader.countBetween(after, upTo);
  }

  skipOwn(after: Seq, origin: string, slice: number): Promise<Seq> {
    return this.#reader.skipOwn(after, origin, slice);
  }

  async single(shipment: EdgeShipment, index: number): Promise<EdgeShipment> {
    return singleChange(this.#base.scratch, shipment, index);
  }

  edges(): Promise<EdgeRow[]> {
    return this.#edges.all();
  }

  addEdges(urls: string[]): Promise<void> {
    return this.#edges.add(urls);
  }

  forgetEdges(urls: string[]): Promise<void> {
    return this.#edges.forget(urls);
  }

  edge(url: string): Promise<EdgeRow> {
    return this.#edges.get(url);
  }

  pauseEdge(url: string, paused: boolean): Promise<void> {
    return this.#edges.pause(url, paused);
  }

  pinEdge(url: string, nodeId: string): Promise<void> {
    return this.#edges.pin(url, nodeId);
  }

  reseedEdge(url: string): Promise<EdgeRow> {
    return this.#edges.reseed(url);
  }

  identify(url: string, generation: number, nodeId: string, isPlain: boolean): Promise<EdgeRow> {
    return this.#edges.identify(url, generation, nodeId, isPlain);
  }

  advance(moves: Move[]): Promise<void> {
    return this.#answers.advance(moves);
  }

  answered(answers: EdgeAnswer[]): Promise<Noted[]> {
    return this.#answers.note(answers);
  }

  verified(): Promise<Map<string, string>> {
    return this.#notes.verified();
  }

  noteVerified(url: string, note: string): Promise<void> {
    return this.#notes.noteVerified(url, note);
  }

  clock(): Promise<number | undefined> {
    return this.#notes.clock();
  }

  noteClock(time: number): Promise<void> {
    return this.#notes.noteClock(time);
  }

  why: HubStore['why'] = (table, id) => this.#facts.why(table, id);
  counts: HubStore['counts'] = (edges) => this.#facts.counts(edges);
  facts: HubStore['facts'] = () => this.#facts.facts();
}
