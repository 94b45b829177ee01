/** What the hub does with a received batch: merge it into the newest versions, set aside what is no change, commit, count. */

import type { DeadLetters } from '../dead-letters.ts';
import type { RowcastEvents } from '../events.ts';
import { planChange, type Staged } from '../receive/plan.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import type { Ack, Op, Rejection, RejectionCode } from '../wire/protocol.ts';
import { type BatchDocument, type BatchLimits, readBatch } from '../wire/read-batch.ts';
import { CANONICAL_ID } from '../wire/values.ts';
import { changesSql, mergeSql, ONE_CHANGE, tallySql } from './merge.ts';

export interface Stored {
  ack: Ack;
  /** Did anything change that edges have to be told of? */
  advanced: boolean;
  letters: RowcastEvents['dead-letter'][];
  /** How many changes the batch had. */
  changes: number;
}

/** A change that is unusual, or none at all. */
interface Odd extends Staged {
  /** The row as JSON text. */
  row: string | null;
  change: string;
  id: string | null;
}

/** A row of the batch and what has become of it. */
interface Tally {
  n: number;
  last: number;
  placed: boolean;
}

export class HubStore {
  readonly #db: Connection;
  readonly #letters: DeadLetters;
  readonly #limits: BatchLimits;
  readonly #jsonb: boolean;
  readonly #sql: { merge: string; mergeOne: string; tally: string; tallyOne: string; irregular: string };

  constructor(db: Connection, letters: DeadLetters, limits: BatchLimits, jsonb: boolean) {
    this.#db = db;
    this.#letters = letters;
    this.#limits = limits;
    this.#jsonb = jsonb;
    const changes = changesSql(jsonb);
    this.#sql = {
      merge: mergeSql(changes.regular),
      mergeOne: mergeSql(ONE_CHANGE),
      tally: tallySql(changes.regular),
      tallyOne: tallySql(ONE_CHANGE),
      irregular: changes.irregular,
    };
  }

  /** When it returns, everything the acknowledgement speaks of is on disk. */
  receive(body: string | Uint8Array, from: string | undefined): Stored {
    const document = readBatch(this.#db, this.#jsonb, this.#limits, body);
    return this.#db.transaction(() => this.#merge(document, from), { durable: true });
  }

  #merge(document: BatchDocument, from: string | undefined): Stored {
    const before = this.latest();
    this.#db.run(this.#sql.merge, before, from ?? null, document.json);
    const ack: Ack = { applied: document.count, ack: document.batchId };
    // Every change was regular and won: the ordinary case, and the end of it.
    if (this.#db.changes() === document.count)
      return { ack, advanced: document.count > 0, letters: [], changes: document.count };

    const tallies = new Map<string, Tally>();
    let regular = 0;
    for (const { tbl, id, n, last, placed } of this.#tally(this.#sql.tally, document.json)) {
      tallies.set(`${tbl}\n${id}`, { n, last, placed: placed === 1 });
      regular += n;
    }
    const odd = regular < document.count ? this.#mergeOdd(document, before, from, tallies) : [];
    const placed = [...tallies.values()].filter((row) => row.placed);
    ack.applied = placed.reduce((sum, row) => sum + row.n, 0);
    if (odd.length > 0) ack.rejected = odd.map(({ rejection }) => rejection);
    return {
      ack,
      advanced: this.latest() > before,
      letters: odd.map(({ event }) => event),
      changes: document.count,
    };
  }

  /** The seq of the latest advance. */
  latest(): number {
    return Number(this.#db.get('SELECT max(seq) AS n FROM _hub_rows')?.n ?? 0);
  }

  /** Looks at each change that is not regular; merges what is one all the same, and sets aside what is not. */
  #mergeOdd(
    document: BatchDocument,
    before: number,
    from: string | undefined,
    tallies: Map<string, Tally>,
  ): { rejection: Rejection; event: RowcastEvents['dead-letter'] }[] {
    const changes = this.#db.all<Odd & Record<string, never>>(this.#sql.irregular, document.json) as Odd[];
    const aside = new Map<Odd, { code: RejectionCode; reason: string }>();
    const rowless: { change: Odd; table: string; id: string }[] = [];
    const merged: { params: (string | number)[]; tally: Tally }[] = [];
    const tallyOf = (table: string, id: string, idx: number): Tally => {
      const key = `${fold(table)}\n${id}`;
      const tally = tallies.get(key) ?? { n: 0, last: idx, placed: false };
      tallies.set(key, tally);
      tally.n += 1;
      tally.last = Math.max(tally.last, idx);
      return tally;
    };
    for (const change of changes) {
      const plan = this.#plan(change);
      if (plan.kind === 'dead-letter') {
        aside.set(change, plan);
        continue;
      }
      const table = plan.table.name;
      const id = this.#canonicalId(plan.id);
      const tally = tallyOf(table, id, change.idx);
      if (plan.kind === 'delete-any') {
        rowless.push({ change, table, id });
        continue;
      }
      const params = [change.idx, plan.op, table, id, plan.updatedAt, change.row as string];
      this.#db.run(this.#sql.mergeOne, before, from ?? null, ...params);
      merged.push({ params, tally });
    }
    // They remove whatever is there, so they come last; but what the same batch says of the row later stands against them:
    // otherwise the batch, sent again, would delete what it brought.
    for (const { change, table, id } of rowless) {
      const tally = tallies.get(`${fold(table)}\n${id}`) as Tally;
      if (tally.last > change.idx || this.#deleteWhatIsThere(before + 1 + change.idx, table, id, from)) {
        tally.placed = true;
        continue;
      }
      tally.n -= 1;
      aside.set(change, {
        code: 'bad-row',
        reason: 'a DELETE without a row has no version, and the row is not known here',
      });
    }
    for (const { params, tally } of merged) {
      if (this.#tally(this.#sql.tallyOne, ...params)[0]?.placed === 1) tally.placed = true;
    }
    return [...aside]
      .sort(([a], [b]) => a.idx - b.idx)
      .map(([change, { code, reason }]) => {
        const { op, tbl: table, id: rowId, row } = change;
        this.#letters.keepReceived({ op, table, rowId, row, change: change.change }, code, reason, from);
        const ref = { op: (op ?? 'UPDATE') as Op, table: table ?? '', id: rowId ?? '' };
        return {
          rejection: { index: change.idx, code, message: reason },
          event: { direction: 'in' as const, peer: from, code, reason, rows: [ref] },
        };
      });
  }

  /** The library's own judgement, for a table of which only the two columns are known that every table has. */
  #plan(change: Odd): ReturnType<typeof planChange> & { updatedAt: string } {
    let updatedAt = '';
    const plan = planChange(change, {
      table: (name) => (name === '' ? undefined : anyTable(name)),
      field: (_, key) => {
        const found = this.#field(change.row, key);
        if (key !== undefined && fold(key) === 'updated_at') updatedAt = String(found.value);
        return found;
      },
      shapes: new Map(),
    });
    return { ...plan, updatedAt };
  }

  #field(row: string | null, key: string | undefined): { type: string | null; value: string | null } {
    const none = { type: null, value: null };
    if (row === null || key === undefined) return none;
    const sql = 'SELECT e.type AS type, CAST(e.atom AS TEXT) AS value FROM json_each(?) AS e WHERE e.key = ?';
    return this.#db.get<{ type: string; value: string }>(sql, row, key) ?? none;
  }

  #canonicalId(id: string): string {
    return id.startsWith('$') ? String(this.#db.get(CANONICAL_ID, id)?.id) : id;
  }

  /** Makes a tombstone of a live row, at its own version and with its own content. False where nothing is known of it. */
  #deleteWhatIsThere(seq: number, table: string, id: string, from: string | undefined): boolean {
    const where = 'WHERE table_name = ? AND row_id = ?';
    const known = this.#db.get<{ op: string }>(`SELECT op FROM _hub_rows ${where}`, table, id);
    if (known && known.op !== 'DELETE') {
      this.#db.run(
        `UPDATE _hub_rows SET op = 'DELETE', seq = CAST(? AS INTEGER), origin = ? ${where}`,
        seq,
        from ?? null,
        table,
        id,
      );
    }
    return known !== undefined;
  }

  #tally(
    sql: string,
    ...params: (string | number | Uint8Array)[]
  ): { tbl: string; id: string; n: number; last: number; placed: number }[] {
    return this.#db.all(sql, ...params);
  }
}

function anyTable(name: string): Table {
  return { name, columns: KEY_COLUMNS, id: 'id', updatedAt: 'updated_at' } as Table;
}

const KEY_COLUMNS = [
  { name: 'id', affinity: 'TEXT', required: true },
  { name: 'updated_at', affinity: 'INTEGER', required: true },
];
