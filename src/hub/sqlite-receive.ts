/** A received batch: merged into the newest versions, what is no change set aside, all of it committed, and counted. */

import type { DeadLetters } from '../dead-letters.ts';
import type { RowcastEvents } from '../events.ts';
import { faultOf, ROWLESS_FORBIDDEN, withForbidden, withoutForbidden } from '../receive/forbidden.ts';
import { planChange, type Staged } from '../receive/plan.ts';
import type { Reason } from '../receive/report.ts';
import type { TimeLimit } from '../receive/time-limit.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { type Ack, BATCH_CHANGES_MAX, type Op, type Rejection, TABLE_NAME_BYTES_MAX } from '../wire/protocol.ts';
import { type BatchDocument, readBatch } from '../wire/read-batch.ts';
import type { Rights } from '../wire/rights.ts';
import { canonicalId } from '../wire/values.ts';
import type { SqliteHubCompany } from './sqlite-company.ts';
import { changesSql, exceptSql, mergeSql, ONE_CHANGE, tallySql } from './sqlite-merge.ts';
import { deletedContent } from './sqlite-tables.ts';
import type { Sender, Stored } from './store.ts';

/** A change that is unusual, or none at all. */
interface Irregular extends Staged {
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

export class BatchMerger {
  readonly #db: Connection;
  readonly #letters: DeadLetters;
  readonly #bodyBytes: number;
  readonly #timeLimit: TimeLimit;
  readonly #jsonb: boolean;
  readonly #company: Pick<SqliteHubCompany, 'tick' | 'requested'>;
  readonly #sql: Record<'merge' | 'mergeOne' | 'tally' | 'tallyOne' | 'versions' | 'irregular', string>;

  constructor(
    db: Connection,
    letters: DeadLetters,
    { bodyBytes, jsonb, timeLimit }: { bodyBytes: number; jsonb: boolean; timeLimit: TimeLimit },
    company: Pick<SqliteHubCompany, 'tick' | 'requested'>,
  ) {
    this.#db = db;
    this.#company = company;
    this.#letters = letters;
    this.#bodyBytes = bodyBytes;
    this.#timeLimit = timeLimit;
    this.#jsonb = jsonb;
    const { regular, irregular } = changesSql(jsonb);
    this.#sql = {
      merge: mergeSql(regular),
      mergeOne: mergeSql(ONE_CHANGE),
      tally: tallySql(regular),
      tallyOne: tallySql(ONE_CHANGE),
      versions: `SELECT idx, lower(tbl) AS tbl, id, CAST(ua AS TEXT) AS ua FROM (${regular}) WHERE op <> 'DELETE'`,
      irregular,
    };
  }

  /** When it returns, everything the acknowledgement speaks of is on disk. */
  receive(body: string | Uint8Array, sender: Sender): Stored & { advanced: boolean } {
    // The specification's ceiling binds senders that say they follow it; another's large batch would never get through.
    const batchChanges = sender.plain ? Number.POSITIVE_INFINITY : BATCH_CHANGES_MAX;
    const limits = { bodyBytes: this.#bodyBytes, batchChanges };
    const document = readBatch(this.#db, this.#jsonb, limits, body);
    const permitted = withoutForbidden(this.#db, this.#jsonb, document, sender.rights, (name) => [name]);
    if (!permitted) return this.#receive(document, sender);
    const { ack, ...stored } = this.#receive(readBatch(this.#db, this.#jsonb, limits, permitted.body), sender);
    const rejected = withForbidden(ack.rejected ?? [], permitted);
    return { ...stored, ack: { ...ack, ack: document.batchId, rejected }, changes: document.count };
  }

  #receive(document: BatchDocument, sender: Sender): Stored & { advanced: boolean } {
    try {
      return this.#inTransaction(document, sender, NONE);
    } catch (error) {
      if (!(error instanceof Superseded)) throw error;
      return this.#inTransaction(document, sender, error);
    }
  }

  #inTransaction(document: BatchDocument, sender: Sender, superseded: Superseded): Stored & { advanced: boolean } {
    return this.#db.transaction(
      () => {
        const isPresent = sender.said === undefined || this.#company.requested(sender.said);
        const stored = this.#merge(document, sender, superseded, isPresent);
        this.#company.tick();
        return stored;
      },
      { durable: true },
    );
  }

  #merge(
    document: BatchDocument,
    { from: nodeId, said, plain, rights, again }: Sender,
    superseded: Superseded,
    isPresent: boolean,
  ): Stored & { advanced: boolean } {
    // Two databases may have one id, and one that has lost its data is another: what it brought before is news to it. So may
    // be what comes late, from before its latest start: then it goes to all.
    const from = isPresent ? (readIntroduction(said)?.inc ?? nodeId) : undefined;
    const before = this.latest();
    const { latest } = this.#timeLimit;
    const { merge, tally, except } = this.#regular(superseded);
    this.#db.run(merge, before, from ?? null, document.json, latest, ...except);
    const ack: Ack = { applied: document.count, ack: document.batchId };
    // Every change was regular and won: the ordinary case, and the end of it.
    const changes = document.count;
    if (this.#db.changes() === changes) return { ack, changes, advanced: changes > 0, letters: [] };

    const tallies = new Map<string, Tally>();
    let regular = 0;
    for (const { tbl, id, n, last, placed } of this.#tally(tally, document.json, latest, ...except)) {
      tallies.set(`${tbl}\n${id}`, { n, last, placed: placed === 1 });
      regular += n;
    }
    const irregular = regular < document.count ? this.#irregular(document, latest) : [];
    if (plain && superseded === NONE) this.#refuseSuperseded(document, latest, irregular);
    const others = irregular.filter(({ idx }) => !superseded.changes.has(idx));
    const by = { origin: from, from: nodeId, rights };
    const aside = this.#mergeIrregular(others, { before, latest }, by, tallies);
    const letters = aside.flatMap(({ event }) => event ?? []);
    if (!again) this.#letters.room.claim(nodeId, { letters: letters.length, bytes: document.json.length });
    // A row counts with all its changes, those included that a later one of the batch stands for.
    for (const row of superseded.changes.values()) {
      const tally = tallies.get(row);
      if (tally) tally.n += 1;
    }
    const placed = [...tallies.values()].filter((row) => row.placed);
    ack.applied = placed.reduce((sum, row) => sum + row.n, 0);
    if (aside.length > 0) ack.rejected = aside.map(({ rejection }) => rejection);
    return { ack, changes, advanced: this.latest() > before, letters };
  }

  /** The statements for the regular changes, without those that are superseded, and what these bind. */
  #regular({ changes }: Superseded): { merge: string; tally: string; except: string[] } {
    if (changes.size === 0) return { ...this.#sql, except: [] };
    const source = exceptSql(changesSql(this.#jsonb).regular);
    return { merge: mergeSql(source), tally: tallySql(source), except: [JSON.stringify([...changes.keys()])] };
  }

  /**
   * Of two live versions of one row at one time the later in the batch is a plain sender's state. Where every change
   * has won, it stands already; otherwise the batch is merged once more, without the earlier ones.
   */
  #refuseSuperseded(document: BatchDocument, upTo: number, irregular: Irregular[]): void {
    const versions = this.#db.all<{ idx: number; tbl: string; id: string; ua: string }>(
      this.#sql.versions,
      document.json,
      upTo,
    );
    for (const change of irregular) {
      const plan = this.#plan(change);
      if (plan.kind !== 'upsert') continue;
      const id = this.#canonicalId(plan.id);
      versions.push({ idx: change.idx, tbl: fold(plan.table.name), id, ua: plan.updatedAt });
    }
    versions.sort((a, b) => a.idx - b.idx);
    const latest = new Map<string, number>();
    const superseded = new Map<number, string>();
    for (const { idx, tbl, id, ua } of versions) {
      const version = `${tbl}\n${ua}\n${id}`;
      const earlier = latest.get(version);
      if (earlier !== undefined) superseded.set(earlier, `${tbl}\n${id}`);
      latest.set(version, idx);
    }
    if (superseded.size > 0) throw new Superseded(superseded);
  }

  /** The seq of the latest advance. */
  latest(): number {
    return Number(this.#db.get('SELECT max(seq) AS n FROM _hub_rows')?.n ?? 0);
  }

  #irregular(document: BatchDocument, latest: number): Irregular[] {
    return this.#db.all<Irregular & Record<string, never>>(this.#sql.irregular, document.json, latest);
  }

  /** Looks at each change that is not regular; merges what is one all the same, and sets aside what is not. */
  #mergeIrregular(
    changes: Irregular[],
    { before, latest }: { before: number; latest: number },
    { origin, from, rights }: { origin: string | undefined; from: string | undefined; rights: Rights | undefined },
    tallies: Map<string, Tally>,
  ): { rejection: Rejection; event?: RowcastEvents['dead-letter'] }[] {
    const aside = new Map<Irregular, Reason>();
    const rowless: { change: Irregular; table: string; id: string }[] = [];
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
      if (plan.kind === 'delete-any' && rights?.rowless === false) {
        aside.set(change, { code: 'forbidden', reason: ROWLESS_FORBIDDEN });
        continue;
      }
      const version = Number(plan.updatedAt);
      if (plan.kind !== 'delete-any' && version > latest) {
        aside.set(change, { code: 'future-stamp', reason: this.#timeLimit.reasonFor(version), version });
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
      this.#db.run(this.#sql.mergeOne, before, origin ?? null, ...params);
      merged.push({ params, tally });
    }
    // They remove whatever is there, so they come last; but what the same batch says of the row later stands against
    // them: otherwise the batch, sent again, would delete what it brought.
    for (const { change, table, id } of rowless) {
      const tally = tallies.get(`${fold(table)}\n${id}`) as Tally;
      if (tally.last > change.idx || this.#deleteWhatIsThere(before + 1 + change.idx, table, id, origin)) {
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
      .map(([change, { code, reason, version, isTooMuch }]) => {
        const fault = faultOf(rights, code, reason);
        if (fault !== undefined) return { rejection: { index: change.idx, code: 'forbidden', message: fault } };
        const { op, tbl: table, id: rowId, row } = change;
        const letter = { op, table, rowId, row, change: change.change };
        if (!isTooMuch) this.#letters.keepReceived(letter, { code, reason, version, from });
        const ref = { op: (op ?? 'UPDATE') as Op, table: table ?? '', id: rowId ?? '' };
        return {
          rejection: { index: change.idx, code, message: reason },
          event: { direction: 'in' as const, peer: from, code, reason, rows: [ref] },
        };
      });
  }

  /** The library's own judgement, for a table of which only the two columns are known that every table has. */
  #plan(change: Irregular): ReturnType<typeof planChange> & { updatedAt: string } {
    let updatedAt = '';
    const plan = planChange(change, {
      table: (name) => (name === '' || Buffer.byteLength(name) > TABLE_NAME_BYTES_MAX ? undefined : anyTable(name)),
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
    return id.startsWith('$')
      ? String(this.#db.get(`SELECT ${canonicalId('v')} AS id FROM (SELECT ? AS v LIMIT -1)`, id)?.id)
      : id;
  }

  /** Makes a tombstone of a live row, at its own version. False where nothing is known of it. */
  #deleteWhatIsThere(seq: number, table: string, id: string, from: string | undefined): boolean {
    const where = 'WHERE table_name = ? AND row_id = ?';
    const known = this.#db.get<{ op: string }>(`SELECT op FROM _hub_rows ${where}`, table, id);
    if (known && known.op !== 'DELETE') {
      this.#db.run(
        `UPDATE _hub_rows SET op = 'DELETE', row_data = ${deletedContent()}, ` +
          `seq = CAST(? AS INTEGER), origin = ? ${where}`,
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

/** The changes of a plain sender that a later one of the same batch stands for: their rows, by their indexes. */
class Superseded extends Error {
  readonly changes: ReadonlyMap<number, string>;

  constructor(changes: ReadonlyMap<number, string>) {
    super('superseded within the batch');
    this.changes = changes;
  }
}

const NONE = new Superseded(new Map());

function anyTable(name: string): Table {
  return { name, columns: KEY_COLUMNS, id: 'id', updatedAt: 'updated_at', ...NO_NAMES_BEFORE } as Table;
}

const KEY_COLUMNS = [
  { name: 'id', wireName: 'id', affinity: 'TEXT', required: true },
  { name: 'updated_at', wireName: 'updated_at', affinity: 'INTEGER', required: true },
];

const NO_NAMES_BEFORE = { aliases: new Map(), dropped: new Set() };
