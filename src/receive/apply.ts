/**
 * Applying a received batch: one transaction in which `syncing` is set, the changes are merged, and `syncing` is reset.
 *
 * There are two ways through. The fast one hands the body to SQLite as it came and merges it with a handful of statements
 * per table; it is taken when every change is regular and has exactly the columns of its table. Everything else takes the
 * careful one (apply-carefully.ts), which looks at each change and sets aside those that cannot be applied.
 */

import type { Registry } from '../capture/registry.ts';
import { RESET_SYNCING, SET_SYNCING } from '../capture/versions.ts';
import type { DeadLetters } from '../dead-letters.ts';
import type { RowcastEvents } from '../events.ts';
import { type Connection, TransactionLost } from '../sqlite/connection.ts';
import { batchText } from '../wire/body.ts';
import type { Ack } from '../wire/protocol.ts';
import { type BatchDocument, type BatchLimits, readBatch } from '../wire/read-batch.ts';
import { CarefulApply } from './careful.ts';
import { FastApply, type Merged } from './fast.ts';

/** What came of a batch, and the events to emit once it is committed. */
export interface Applied {
  ack: Ack;
  event: RowcastEvents['applied'];
  letters: RowcastEvents['dead-letter'][];
}

export class Applier {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #fast: FastApply;
  readonly #careful: CarefulApply;
  readonly #limits: BatchLimits;

  constructor(db: Connection, registry: Registry, letters: DeadLetters, limits: BatchLimits) {
    this.#db = db;
    this.#registry = registry;
    this.#fast = new FastApply(db, registry);
    this.#careful = new CarefulApply(db, registry, letters);
    this.#limits = limits;
  }

  /** Applies a request body; throws a RowcastError that says why when it is not a batch at all, and then changes nothing. */
  apply(body: string | Uint8Array, from: string | undefined, wantRows: boolean): Applied {
    const document = this.#read(body);
    const merged = this.#merge(document, from, wantRows);
    return {
      ack: {
        applied: merged.applied,
        ack: document.batchId,
        ...(merged.rejected.length > 0 && { rejected: merged.rejected }),
      },
      event: { from, applied: merged.applied, rows: merged.rows },
      letters: merged.letters,
    };
  }

  #merge(document: BatchDocument, from: string | undefined, wantRows: boolean): Merged {
    try {
      return this.syncing(() => this.#fast.merge(document, wantRows) ?? this.#careful.merge(document.json, from));
    } catch (error) {
      if (error instanceof TransactionLost) return this.#applyInHalves(document, from, wantRows, error);
      throw error;
    }
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
      done = this.#trySyncing(fn);
    }
    return done.result;
  }

  #trySyncing<T>(fn: () => T): { result: T } | undefined {
    return this.#db.transaction(
      () => {
        if (!this.#registry.isCurrent()) return undefined;
        this.#db.run(SET_SYNCING);
        const result = fn();
        this.#db.run(RESET_SYNCING);
        return { result };
      },
      // The acknowledgement promises that the changes survive a power cut, whatever the application's own setting is. A
      // child may come before its parent, so foreign keys wait; where there are none, the pragma is spared, because it
      // makes SQLite prepare every statement anew.
      { durable: true, ...(this.#registry.hasForeignKeys && { foreignKeys: 'suspended' }) },
    );
  }

  release(): void {
    this.#careful.release();
  }

  #read(body: string | Uint8Array): BatchDocument {
    return readBatch(this.#db, this.#registry.features.jsonb, this.#limits, body);
  }

  /**
   * A trigger of the application has rolled everything back, not only its own row. The batch is applied in halves, each
   * in a transaction of its own, until the change that does this is alone; the order of changes does not matter.
   */
  #applyInHalves(document: BatchDocument, from: string | undefined, wantRows: boolean, lost: TransactionLost): Merged {
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
      return this.syncing(() => this.#careful.setAsideAll(half(0, 1), from, 'constraint', lost.message));
    }
    const middle = changes.length >> 1;
    const left = this.#merge(this.#read(half(0, middle)), from, wantRows);
    const right = this.#merge(this.#read(half(middle, changes.length)), from, wantRows);
    return {
      applied: left.applied + right.applied,
      rows: [...left.rows, ...right.rows],
      rejected: [...left.rejected, ...right.rejected.map((one) => ({ ...one, index: one.index + middle }))],
      letters: [...left.letters, ...right.letters],
    };
  }

  #asText(json: string | Uint8Array): string {
    return String(this.#db.get('SELECT json(?) AS text', json)?.text);
  }
}
