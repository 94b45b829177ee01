/**
 * Applying a received batch: one transaction in which `syncing` is set, the changes are merged, and `syncing` is reset.
 *
 * There are two ways through. The fast one (fast.ts) hands the body to SQLite as it came and merges it with a handful of
 * statements per table; it is taken when the body is regular and its rows have exactly the columns of their tables.
 * Everything else takes the careful one (careful.ts), which sorts the changes and sets aside those that cannot be applied.
 */

import { lastChangeId } from '../capture/change-ids.ts';
import type { Registry } from '../capture/registry.ts';
import { RESET_SYNCING, SET_SYNCING } from '../capture/versions.ts';
import type { Emitter, RowcastEvents } from '../events.ts';
import type { Journal } from '../journal/journal.ts';
import type { DeadLetters } from '../letters/dead-letters.ts';
import type { TimeLimit } from '../letters/time-limit.ts';
import { type Connection, TransactionLost } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { batchText } from '../wire/body.ts';
import { type OriginRun, originsBetween, originsOf, readOrigins } from '../wire/origins.ts';
import { type Ack, BATCH_CHANGES_MAX, PLAIN_BATCH_CHANGES_MAX } from '../wire/protocol.ts';
import { type BatchDocument, readEitherForm, type TabularDocument } from '../wire/read-batch.ts';
import { mayWrite } from '../wire/rights.ts';
import { namesIn } from '../wire/tabular.ts';
import { CarefulApply } from './careful.ts';
import { FastApply } from './fast.ts';
import { type Permitted, withForbidden, withoutForbidden } from './forbidden.ts';
import { LateLetters } from './late-letters.ts';
import type { Delivery, Merged } from './outcome.ts';
import { Parted, partsOf } from './parts.ts';
import { RegularBodies, type RegularPart } from './regular-body.ts';
import { heedSaid, isAnythingUnsaid } from './said.ts';
import { UniqueRows } from './unique.ts';

/** What came of a batch, and the events to emit once it is committed. */
export interface Applied {
  ack: Ack;
  event: RowcastEvents['applied'];
  letters: RowcastEvents['dead-letter'][];
  /** How many changes the batch had. */
  changes: number;
}

/** The same of a part: the events are those of the part, and the rest is what came of the batch so far. */
export interface AppliedInPart extends Omit<Applied, 'event'> {
  /** Undefined where the batch was only read. */
  event?: Applied['event'];
  /** It is not over yet: which step comes next. */
  goesOn?: number;
}

/** Counts a transaction that is on disk when it is over, and that others may be told of. */
interface Ticking {
  tick(): void;
}

interface Around {
  /** The largest body that is read. */
  bodyBytes: number;
  self: Ticking;
}

export class Applier {
  /** Letters that may be void after a batch. */
  readonly lateLetters: LateLetters;
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #bodies: RegularBodies;
  readonly #fast: FastApply;
  readonly #careful: CarefulApply;
  readonly #unique: UniqueRows;
  readonly #timeLimit: TimeLimit;
  readonly #bodyBytes: number;
  readonly #self: Ticking;
  readonly #journal: Journal;
  /** The last change that was recorded, and the schema, when the visible rows were last settled. */
  #settledUpTo = -1;
  #settledSchema = -1;
  #cameBack: RowcastEvents['visible']['rows'] = [];
  /** By their bytes: whoever does not come back leaves nothing behind. */
  readonly #begun = new WeakMap<Uint8Array, Parted>();

  constructor(db: Connection, registry: Registry, letters: DeadLetters, journal: Journal, around: Around) {
    this.#db = db;
    this.#registry = registry;
    this.#unique = new UniqueRows(db, letters);
    this.#bodies = new RegularBodies((name) => {
      const table = registry.get(name);
      return table?.wireName === name ? table : undefined;
    });
    this.#fast = new FastApply(db, registry, this.#unique, journal);
    this.#careful = new CarefulApply(db, registry, letters, this.#unique, journal);
    this.lateLetters = new LateLetters(db, registry, letters);
    this.#timeLimit = letters.timeLimit;
    this.#journal = journal;
    this.#bodyBytes = around.bodyBytes;
    this.#self = around.self;
  }

  /** Applies a request body; throws a RowcastError that says why when it is not a batch at all, and then changes nothing. */
  apply(body: string | Uint8Array, delivery: Delivery): Applied {
    const document = this.#read(body, delivery);
    return this.#applyWhole(document, delivery, this.#permitted(document, delivery));
  }

  /**
   * The same for a caller that comes back with the same bytes as long as it `goesOn`: a batch of many more changes than
   * `atOnce` is read by the first call, and applied in parts by those after it.
   */
  applyInParts(body: string | Uint8Array, delivery: Delivery, atOnce: number | undefined): AppliedInPart {
    if (atOnce === undefined || typeof body === 'string') return this.apply(body, delivery);
    const begun = this.#begun.get(body);
    // A caller's right may have gone meanwhile, and its place in memory to another one.
    if (begun?.isStill(body) && !this.#permitted(begun.document, delivery))
      return this.#applyPart(begun, body, delivery);
    const document = this.#read(body, delivery);
    const permitted = this.#permitted(document, delivery);
    const parted = permitted ? undefined : this.#parted(body, document, delivery, atOnce);
    if (!parted) {
      this.#begun.delete(body);
      return this.#applyWhole(document, delivery, permitted);
    }
    this.#begun.set(body, parted);
    return { ...parted.outcome, letters: [] };
  }

  /**
   * Undefined where it is small enough to be applied at once, or not regular. Of a plain peer's changes to one row at one time the
   * last one counts, wherever it stands: its batches are applied at once, too.
   */
  #parted(body: Uint8Array, document: Document, { isRowcast }: Delivery, atOnce: number): Parted | undefined {
    // Without JSONB there is no fast way, by which parts are counted.
    if (!isRowcast || !document.tabular || !this.#registry.features.jsonb) return undefined;
    const parts = partsOf(document, atOnce);
    if (parts < 2) return undefined;
    const ends: number[] = [];
    const [regular] = this.#bodies.recogniseTabular(document.text, document.tabular, this.#regularBefore, ends) ?? [];
    return regular && new Parted(body, document, { regular, ends }, parts);
  }

  /** It was read already, and perhaps applied in part. */
  isBegun(body: string | Uint8Array): boolean {
    return typeof body !== 'string' && this.#begun.has(body);
  }

  #applyWhole(document: Document, delivery: Delivery, permitted?: Permitted): Applied {
    const taken = permitted ? this.#read(permitted.body, delivery) : document;
    const merged = this.#merge(taken, delivery);
    const rejected = permitted ? withForbidden(merged.rejected, permitted) : merged.rejected;
    const told = originsTold(delivery, document.count);
    const origins = permitted ? originsOf(told, permitted.indexes) : told;
    const ack = { applied: merged.applied, ack: document.batchId, ...(rejected.length > 0 && { rejected }) };
    return { ack, changes: document.count, ...this.#committed(taken, delivery, merged, origins) };
  }

  #applyPart(begun: Parted, body: Uint8Array, delivery: Delivery): AppliedInPart {
    const { part, regular } = begun.next();
    // Who the sender says it is was noted with the first.
    const { note, ...later } = delivery;
    const merged = this.#merge(part, begun.isNew ? { ...later, note } : later, regular);
    begun.applied(part, merged);
    if (begun.isOver) {
      this.#begun.delete(body);
      this.#countOver(begun, regular.table);
    }
    const origins = originsBetween(originsTold(delivery, begun.document.count), part.skip, part.count);
    return { ...begun.outcome, ...this.#committed(part, delivery, merged, origins) };
  }

  /**
   * The same batch gets the same answer however often it is sent, so a row that stands counts with all its changes; and these
   * may be in several parts.
   */
  #countOver(begun: Parted, table: Table): void {
    // A row that is hidden stands as well, and not in its table.
    if (begun.hasLost && !this.#unique.hasHidden(table) && this.#registry.get(table.name) === table) {
      begun.counted(this.#fast.tally(begun.document, table));
    }
  }

  /** What is told of it. */
  #committed(
    { text }: Document,
    { from }: Delivery,
    { applied, rows, letters, conflicts }: Merged,
    origins: OriginRun[] | undefined,
  ): Pick<Applied, 'event' | 'letters'> {
    this.#journal.committed({ text, from, origins }, conflicts);
    return { event: { from, applied, rows }, letters };
  }

  /** Undefined where all of it is. */
  #permitted(document: Document, { rights }: Delivery): Permitted | undefined {
    if (!rights?.write) return undefined;
    const names = (name: string): string[] => {
      const table = this.#registry.get(name);
      return table ? [table.name, table.wireName] : [name];
    };
    const isAllowed = (table: string): boolean => names(table).some((name) => mayWrite(rights, name));
    if (document.tabular && isAllowed(namesIn(document.tabular).table)) return undefined;
    return withoutForbidden(this.#db, this.#registry.features.jsonb, inPlainForm(document), rights, names);
  }

  /** `regular`: what it was recognised as before. */
  #merge(document: Document, delivery: Delivery, regular?: RegularPart): Merged {
    try {
      return this.syncing(() => {
        const merged = this.#mergeEitherWay(document, delivery, regular);
        delivery.note?.(merged.applied);
        if (this.lateLetters.areWaiting) this.lateLetters.heed(inPlainForm(document));
        const tables = this.#registry.list();
        if (isAnythingUnsaid(this.#db, tables)) heedSaid(this.#db, tables, inPlainForm(document));
        return merged;
      });
    } catch (error) {
      if (error instanceof TransactionLost) return this.#applyInHalves(inPlainForm(document), delivery, error);
      throw error;
    }
  }

  #mergeEitherWay(document: Document, delivery: Delivery, regular: RegularPart | undefined): Merged {
    const before = this.#regularBefore;
    // Of a table that is another one since then, it has to be asked again.
    const isKnown = regular !== undefined && this.#registry.get(regular.table.name) === regular.table;
    const parts = isKnown ? [regular] : this.#recognised(document, before);
    const fast = delivery.announce ? undefined : this.#fast.merge(document, parts, delivery);
    if (fast?.kind === 'merged') return fast.merged;
    const plain = inPlainForm(document);
    const known = plain === document ? parts : this.#bodies.recognise(plain.text, before);
    const isRefused = fast?.isRefused === true;
    return this.#careful.merge(plain, delivery, { parts: known, isRefused }, this.#timeLimit);
  }

  #recognised(document: Document, before: number): RegularPart[] | undefined {
    return document.tabular
      ? this.#bodies.recogniseTabular(document.text, document.tabular, before)
      : this.#bodies.recognise(document.text, before);
  }

  /** A regular body has no time from here on. */
  get #regularBefore(): number {
    return this.#timeLimit.regularBelow(this.#timeLimit.latest);
  }

  /**
   * A write of the application may have set a UNIQUE value free that a hidden row waits for, and so may a change of the
   * schema. Asked on every tick; where nothing happened since the last time, that is one look-up.
   */
  settleUnique(): RowcastEvents['dead-letter'][] {
    const latest = lastChangeId(this.#db);
    const schema = this.#registry.schemaVersion;
    if (latest === this.#settledUpTo && schema === this.#settledSchema) return [];
    const tables = this.#registry.list().filter((table) => this.#unique.isUnsettled(table));
    const hidden = tables.length === 0 ? [] : this.syncing(() => tables.flatMap((table) => this.#unique.settle(table)));
    // What a transaction of the application has recorded it may take back, and the number is given again.
    if (this.#db.isInTransaction === true) return hidden;
    this.#settledUpTo = latest;
    this.#settledSchema = schema;
    return hidden;
  }

  /**
   * Runs `fn` in a transaction in which nothing is captured. The flag is set and reset inside it: no other connection
   * ever sees it set, and a crash takes it back.
   */
  syncing<T>(fn: () => T): T {
    let done: { result: T } | undefined;
    // Another process may write between the two; then there are rows whose version is not the one that is compared.
    while (!done) {
      this.#registry.refresh();
      this.#unique.prepare(this.#registry.list());
      // Of a transaction that failed.
      this.#unique.takeCameBack();
      done = this.#trySyncing(fn);
    }
    this.#cameBack.push(...this.#unique.takeCameBack());
    return done.result;
  }

  #trySyncing<T>(fn: () => T): { result: T } | undefined {
    return this.#db.transaction(
      () => {
        if (!this.#registry.isCurrent()) return undefined;
        this.#db.run(SET_SYNCING);
        const result = fn();
        this.#db.run(RESET_SYNCING);
        this.#self.tick();
        return { result };
      },
      // The acknowledgement promises that the changes survive a power cut, whatever the application's own setting is. A
      // child may come before its parent, so foreign keys wait; where there are none, the pragma is spared, because it
      // makes SQLite prepare every statement anew.
      { durable: true, ...(this.#registry.hasForeignKeys && { foreignKeys: 'suspended' }) },
    );
  }

  /** The rows that have come back, by transactions that are committed, since this was last asked. */
  takeCameBack(): RowcastEvents['visible']['rows'] {
    const rows = this.#cameBack;
    this.#cameBack = [];
    return rows;
  }

  /** Once, before the first batch and outside of any transaction. */
  prepare(): void {
    this.#careful.prepare();
  }

  /** When nothing more comes. */
  release(): void {
    this.#journal.stop();
    this.#careful.release();
  }

  /**
   * Rowcast itself never sends more than that; of others, what can be applied without holding everybody else up. The limit of a
   * body is one of requests: what is kept here already has been let in, and whoever tries it again has bounded it.
   */
  #read(body: string | Uint8Array, { isRowcast, again }: Delivery): Document {
    const batchChanges = isRowcast ? BATCH_CHANGES_MAX : PLAIN_BATCH_CHANGES_MAX;
    const bodyBytes = again ? Infinity : this.#bodyBytes;
    return readEitherForm(this.#db, this.#registry.features.jsonb, { bodyBytes, batchChanges }, body);
  }

  /**
   * A trigger of the application has rolled everything back, not only its own row. The batch is applied in halves, each
   * in a transaction of its own, until the change that does this is alone; the order of changes does not matter to Rowcast.
   */
  #applyInHalves(document: BatchDocument, delivery: Delivery, lost: TransactionLost): Merged {
    const changes = this.#db.all<{ change: string }>(
      "SELECT CASE WHEN type IN ('object', 'array') THEN json(value) WHEN type IN ('true', 'false') THEN type " +
        "ELSE json_quote(atom) END AS change FROM json_each(?, '$.changes') ORDER BY key",
      this.#registry.features.jsonb ? this.#asText(document.json) : document.json,
    );
    const half = (start: number, end: number): string =>
      batchText(
        0,
        changes
          .slice(start, end)
          .map(({ change }) => change)
          .join(','),
      );
    if (changes.length === 1) {
      const reason = { code: 'constraint' as const, reason: lost.message };
      return this.syncing(() => this.#careful.setAsideAll(document, delivery, reason));
    }
    const middle = changes.length >> 1;
    const left = this.#merge(this.#read(half(0, middle), delivery), delivery);
    const right = this.#merge(this.#read(half(middle, changes.length), delivery), delivery);
    return {
      applied: left.applied + right.applied,
      rows: [...left.rows, ...right.rows],
      rejected: [...left.rejected, ...right.rejected.map((one) => ({ ...one, index: one.index + middle }))],
      letters: [...left.letters, ...right.letters],
      conflicts: [...left.conflicts, ...right.conflicts],
    };
  }

  #asText(json: string | Uint8Array): string {
    return String(this.#db.get('SELECT json(?) AS text', json)?.text);
  }
}

/** What somebody listens for. */
export function wantedBy(events: Emitter): Pick<Delivery, 'wantRows' | 'wantLetters'> {
  return { wantRows: events.has('applied'), wantLetters: events.has('dead-letter') };
}

/** What came of a batch, once it is committed. */
export function tellCommitted(events: Emitter, { event, letters }: Pick<Applied, 'event' | 'letters'>): void {
  for (const one of letters) events.emit('dead-letter', one);
  events.emit('applied', event);
}

type Document = BatchDocument | TabularDocument;

/** Who has made the changes of a batch. A plain sender has made them itself, whatever it says. */
function originsTold({ isRowcast, origins }: Delivery, changes: number): OriginRun[] | undefined {
  return isRowcast ? readOrigins(origins, changes) : undefined;
}

/** For all that is not the fast way. */
function inPlainForm(document: Document): BatchDocument {
  return document.tabular ? document.plain() : document;
}
