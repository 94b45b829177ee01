/**
 * What a hub keeps, and what it may rely on. The hub itself knows no database: SQLite is one store, and every store
 * has to pass the same tests (test/hub/store-conformance.ts). The rules that they hold a store to are numbered here.
 *
 * **I1** `receive` resolves after a flush of everything that its acknowledgement speaks of.
 * **I2** A row's state is the greatest version received, whoever brought it, merged as the protocol's M1 to M4 and M7
 *        say.
 * **I3** Once `read` has returned a segment that ends at E, no row ever appears at or below E: an edge's position
 *        passes E for good.
 * **I4** Reading from 0 until there is nothing more gives the newest version of every row. A row leaves its place only
 *        by taking a higher one.
 * **I5** One entry per row, deletions included. Nothing is trimmed, and nothing of a deleted row is kept but its id and
 *        its version.
 * **I6** A stored position never leads what (url, generation) has acknowledged. It may lag, or go back.
 * **I7** Nothing here depends on who else uses the store: what is sent twice, or by two, changes nothing.
 * **I8** When the store may have gone back (a failover that lost the latest commits) it tells `another-file`, and positions
 *        that were learnt before count no more.
 * **I9** Who of a group is alive is told by the store's clock alone.
 *
 * The last two are for a store that several hubs share: see HubGroup.
 */
import type { Id, Range } from '../compare/ids.ts';
import type { Columns, Early, Entry, Ledger, Listed, Portion, Spelt } from '../compare/ledger.ts';
import type { RowcastEvents, RowRef } from '../events.ts';
import type { Why } from '../journal/why.ts';
import type { DeadLetter } from '../letters/dead-letters.ts';
import type { Facts } from '../observe/facts.ts';
import type { Shipment } from '../send/shipment.ts';
import type { Forbidden } from '../send/verdict.ts';
import type { BatchLimit, Body } from '../wire/body.ts';
import type { OriginRun } from '../wire/origins.ts';
import type { Ack } from '../wire/protocol.ts';
import type { Rights } from '../wire/rights.ts';

/** A place in the order in which rows advanced. Every advance takes a higher one. */
export type Seq = number;

export interface HubStore {
  /** Who this hub is, and what it remembers of others. */
  readonly company: HubCompany;
  /** The processes that share this store; undefined where it is one's own. */
  readonly group?: HubGroup;

  /**
   * Creates what is missing. Rejects with INVALID_DATABASE where there is anything but a hub's data. Resolves to what an
   * operator is to be warned of.
   */
  open(): Promise<{ code: string; message: string }[]>;
  /** Lets go of everything; what it was given to use is the caller's to close. */
  close(): Promise<void>;

  /** Merges a batch (I1, I2). Rejects with a RowcastError that says why, and has then changed nothing. */
  receive(body: string | Uint8Array, sender: Sender): Promise<Stored>;
  /** Calls `hint` when a row may have advanced. It may come late, twice, or for nothing. */
  onAdvance(hint: () => void): void;
  /**
   * Gives a row's newest version the next place, so that it goes to every edge again. False where the row is not
   * known.
   */
  touch(table: string, rowId: string): Promise<boolean>;

  /** The names of all tables that it has rows or deletions of, folded. */
  tables(): Promise<string[]>;

  /** Notes tables that somebody has asked for; resolves after a flush. */
  noteAsked(tables: string[]): Promise<void>;
  /** Those that were asked for and not touched since. */
  askedFor(): Promise<string[]>;

  /** Gives everything of a table the next places, in its order, so that it goes to every edge again: nobody waits for it. */
  touchTable(table: string): Promise<void>;

  /** The next changes after a place, without those that `except` brought (I3, I4). Undefined where there are none. */
  read(after: Seq, limit: BatchLimit, except?: string): Promise<Segment | undefined>;
  /** The place behind which nothing is yet: what is stored before it is asked for is not behind it. */
  latest(): Promise<Seq>;
  /**
   * How many rows have their place after `after` and not after `upTo`: fewer than a segment had, and it is outdated.
   */
  countBetween(after: Seq, upTo: Seq): Promise<number>;
  /** Where to go on after whole slices of `slice` rows that `origin` alone brought. */
  skipOwn(after: Seq, origin: string, slice: number): Promise<Seq>;
  /** A shipment made of a segment, reduced to its change number `index`. */
  single(shipment: EdgeShipment, index: number): Promise<EdgeShipment>;

  edges(): Promise<EdgeRow[]>;
  /** New ones begin at 0, with a generation of their own; those that are there stay as they are. */
  addEdges(urls: string[]): Promise<void>;
  forgetEdges(urls: string[]): Promise<void>;
  edge(url: string): Promise<EdgeRow>;
  /** Notes, and flushes, that nothing is to be sent there, or that it is again. */
  pauseEdge(url: string, paused: boolean): Promise<void>;
  /** Notes, and flushes, which node has shown the key at a URL. */
  pinEdge(url: string, nodeId: string): Promise<void>;
  /** The edge begins at 0 once more, in the next generation. */
  reseedEdge(url: string): Promise<EdgeRow>;
  /**
   * The node at a URL has said its id. A plain one that has another than before begins at 0, in the next generation; one
   * that has introduced itself is known by that.
   */
  identify(url: string, generation: number, nodeId: string, isPlain: boolean): Promise<EdgeRow>;
  /** Moves positions forward, of the generations named and no others (I6). Not flushed. */
  advance(moves: { url: string; generation: number; position: Seq }[]): Promise<void>;
  /**
   * What edges have answered, in one transaction: who gives each answer is heard first, and where it counts, the position
   * moves forward (I6). Not flushed.
   */
  answered(answers: EdgeAnswer[]): Promise<Noted[]>;

  /** What it holds by ranges of ids, for comparisons: the state that I2 speaks of. */
  readonly ledger: HubLedger;
  /** What was noted of each edge by `noteVerified`, as it was. An edge that is forgotten is forgotten here, too. */
  verified(): Promise<Map<string, string>>;
  noteVerified(url: string, note: string): Promise<void>;

  /**
   * Merges the next changes that were too far ahead of the clock and are not any more, as if they came now and from
   * nobody, so that what wins goes to every edge. True where there may be more of them.
   */
  release(): Promise<boolean>;

  /** The greatest time that was noted by `noteClock`; undefined before the first. */
  clock(): Promise<number | undefined>;
  noteClock(time: number): Promise<void>;

  readonly letters: HubLetters;
  /** What is known of one row, and the edges that lack it. */
  why(table: string, id: string): Promise<Why>;
  /** For `/health`, with bounded work. Rejects where the store cannot be read. */
  counts(edges: { position: Seq; except: string | undefined }[]): Promise<Counts>;
  /** What a dashboard draws beside health; likewise with bounded work. */
  facts(): Promise<Facts>;
}

/** How long a process that has not been seen belongs to its group. */
export const GROUP_TTL_MS = 3_000;

export interface HubGroup {
  /** The name of this process; no other one of the group has it. */
  readonly instance: string;
  /** This process is alive; who else is. Rejects where another one has its name. */
  beat(ttlMs: number): Promise<Beat>;
  /** It is no longer. */
  leave(): Promise<void>;
}

export interface Beat {
  /** The names of all that were seen within that time, in their order. */
  members: string[];
  /** Another number whenever edges were added, forgotten, paused, or have begun anew. */
  roster: number;
}

/**
 * What is heard is noted in the transaction of what it came with; where an edge may have lost something, it begins at 0 in
 * the next generation, and up to the last seq of that moment it is sent its own changes as well.
 */
export interface HubCompany {
  /** The header for a request to an edge, and for an answer to a sender; undefined to a plain one. */
  toEdge(url: string): Promise<string>;
  toSender(said: string): Promise<string | undefined>;
  /** Somebody asks how the hub is, and says who it is. */
  hello(said: string): Promise<void>;
  /** Why what this one says of its rows is nothing to go by; undefined where it is. */
  another(url: string, said: string): Promise<string | undefined>;
  /** Why an acknowledgement by this one is worth nothing; undefined where it is. */
  objection(url: string, said: string): Promise<string | undefined>;
  /** Notices where another state of the file was put under this process. */
  look(): Promise<void>;
  onFound(listener: (found: Found) => void): void;
  /** What is wrong with those that were heard, without the ids of which it is `told` already that two databases use them. */
  problems(told: ReadonlySet<string>): string[];
  /** This database is at no edge any more. */
  left(inc: string): void;
}

export type Found =
  | { kind: 'restored' }
  /** Every edge is in the next generation, and may be further back, or not there at all. */
  | { kind: 'another-file' }
  /** A request says something of the databases at these URLs that only they can say: they are to be asked. */
  | { kind: 'doubted'; urls: string[] }
  | { kind: 'peer-replaced'; id: string; url: string }
  | { kind: 'peer-restored'; id: string; urls: string[] };

/** What one edge is sent. */
export type EdgeShipment = Shipment<EdgeEnd>;

/** Where a shipment to an edge ends. */
export interface EdgeEnd {
  seq: Seq;
  /** An answer may come from a node that another has replaced meanwhile: it says nothing of how far that one is. */
  generation: number;
}

/** An answer to something that was sent to an edge in that generation. */
export interface EdgeAnswer {
  url: string;
  generation: number;
  /** How the one who gives it introduces itself; undefined where it does not. */
  said: string | undefined;
  /** Up to where it acknowledges; undefined where it acknowledges nothing. */
  position: Seq | undefined;
}

export interface Noted {
  /** False where it is no word of the edge's that was meant: it then acknowledges nothing. */
  counts: boolean;
  /** The edge as it now is; undefined where it is none any more. */
  row: EdgeRow | undefined;
}

/** Who a batch is from. */
export interface Sender {
  from: string | undefined;
  /** How it introduces itself; undefined where it does not. */
  said?: string | undefined;
  /**
   * It is no Rowcast node, and may write one row twice in one millisecond: of two such changes in one batch the later
   * one is its state, whatever they contain.
   */
  plain: boolean;
  /** What it may do; undefined: everything. */
  rights?: Rights | undefined;
  /** Who has made the changes, as the header says it; undefined where the sender has. */
  origins?: string | undefined;
  /** Its changes are dead letters here already: there is no more to make room for, and what wins goes to its sender, too. */
  again?: boolean;
}

export interface Stored {
  ack: Ack;
  /** What was set aside. */
  letters: RowcastEvents['dead-letter'][];
  /** How many changes the batch had. */
  changes: number;
}

/** Consecutive changes as the body of a batch, whose id is where it ends. */
export interface Segment {
  end: Seq;
  count: number;
  body: Body;
  /** Who brought which part of the body. Empty where that is not known: then nothing can be left out of it. */
  runs: Run[];
  /** Who has made them. */
  origins: OriginRun[];
}

/** Neighbouring changes that came from one database and were made by one node: where they are in the body. */
export interface Run extends OriginRun {
  /** Whence they came. */
  origin: string | null;
  start: number;
  end: number;
}

export interface EdgeRow {
  url: string;
  position: Seq;
  nodeId: string | undefined;
  /** The database that acknowledged last at this URL; undefined where it has not introduced itself. */
  inc: string | undefined;
  /** Up to there it is sent what it brought itself, too. */
  anewUpto: Seq;
  /** The node that has shown the key at this URL. */
  pinned: string | undefined;
  paused: boolean;
  /** Tells apart the nodes that were at this URL one after the other. */
  generation: number;
}

/** A ledger as every side of a comparison has it, and what a hub can say of single ids. */
export interface HubLedger extends Omit<Ledger, 'look' | 'flushed' | 'spell' | 'list'> {
  /** The first piece of a range, no larger than a portion; tombstones up to `floor` are left out. */
  spell(table: string, columns: Columns, range: Range, portion: Portion, floor?: number): Promise<Spelt>;
  list(table: string, columns: Columns, range: Range, portion: Portion): Promise<Listed>;
  /** What is known of the first of these ids, no more than a portion of it, in their order. `rest` are the others. */
  entries(table: string, columns: Columns, ids: Id[], portion: Portion): Promise<{ entries: Entry[]; rest: Id[] }>;
  /** Those of these ids whose row has its place after a position. */
  after(table: string, ids: Id[], position: Seq): Promise<Id[]>;
  /** The changes of these ids that are kept until their time has come. */
  early(table: string, ids: Id[]): Promise<Early[]>;
}

export interface HubLetters {
  list(options?: { limit?: number; after?: number }): Promise<DeadLetter[]>;
  /** Rejects with NO_SUCH_LETTER. */
  get(id: number): Promise<DeadLetter>;
  /** The change as it came, where it was kept. */
  changeOf(id: number): Promise<string | undefined>;
  /** Makes a letter of each change of a refused shipment; the same change and edge again is the same letter. */
  setAside(
    shipment: Pick<EdgeShipment, 'body'>,
    refusal: { peer: string; reason: string; attempts: number },
  ): Promise<RowRef[]>;
  /** Only some of its changes, each with a reason of its own. */
  forbid(shipment: EdgeShipment, refusal: { peer: string; forbidden: Forbidden[] }): Promise<RowRef[]>;
  countRetry(id: number, code: string, reason: string): Promise<void>;
  remove(id: number): Promise<void>;
}

export interface Counts {
  /** Live rows. */
  rows: number;
  letters: number;
  /** For each edge that was asked for: how many rows are above its position, and the updated_at of the first. */
  edges: { pending: number; oldest: number | undefined }[];
  /** What keeps the store from being written. */
  problems: string[];
  /** The numbers that health is to say are not counted to the end yet. */
  at_least?: string[];
}
