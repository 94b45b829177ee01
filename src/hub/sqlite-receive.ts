/** A received batch: merged into the newest versions, what is no change set aside, all of it committed, and counted. */

import type { RowcastEvents } from '../events.ts';
import type { DeadLetters } from '../letters/dead-letters.ts';
import type { LetterRoom } from '../letters/letter-room.ts';
import type { TimeLimit } from '../letters/time-limit.ts';
import { faultOf, ROWLESS_FORBIDDEN, withForbidden, withoutForbidden } from '../receive/forbidden.ts';
import { type IdLimit, TRAVELLING_IDS } from '../receive/plan.ts';
import type { Reason } from '../receive/report.ts';
import { checkSingly, SINGLY_MAX } from '../receive/singly.ts';
import type { Connection } from '../sqlite/connection.ts';
import { fold } from '../sqlite/sql.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { type OriginRun, originsOf, readOrigins, writeOrigins } from '../wire/origins.ts';
import { type Ack, BATCH_CHANGES_MAX, type Op, PLAIN_BATCH_CHANGES_MAX, type Rejection } from '../wire/protocol.ts';
import { type BatchDocument, readBatch } from '../wire/read-batch.ts';
import type { Rights } from '../wire/rights.ts';
import { keyOfRow } from './row-key.ts';
import { speltByText } from './spelt-text.ts';
import type { SqliteHubCompany } from './sqlite-company.ts';
import { changesSql, exceptSql, mergeSql, ONE_CHANGE, tallySql } from './sqlite-merge.ts';
import { canonicalIdOf, type Irregular, planOf } from './sqlite-plan.ts';
import { type Examined, readSpelt, speltSql } from './sqlite-spelt.ts';
import { deletedContent } from './sqlite-tables.ts';
import type { Sender, Stored } from './store.ts';

/** A row of the batch and what has become of it. */
interface Tally {
  n: number;
  last: number;
  placed: boolean;
}

/** Where changes are kept that cannot be merged. */
export type ReceivedLetters = Pick<DeadLetters, 'keepReceived'> & { room: Pick<LetterRoom, 'claim'> };

interface Reading {
  bodyBytes: number;
  jsonb: boolean;
  timeLimit: TimeLimit;
  /** Where rows are kept elsewhere, and longer ids than these cannot be. */
  idLimit?: IdLimit;
}

export class BatchMerger {
  readonly #db: Connection;
  readonly #letters: ReceivedLetters;
  readonly #bodyBytes: number;
  readonly #timeLimit: TimeLimit;
  readonly #jsonb: boolean;
  readonly #idLimit: IdLimit;
  readonly #company: Pick<SqliteHubCompany, 'tick' | 'requested'>;
  readonly #usual: Statements;
  readonly #large: Statements;

  constructor(
    db: Connection,
    letters: ReceivedLetters,
    { bodyBytes, jsonb, timeLimit, idLimit = TRAVELLING_IDS }: Reading,
    company: Pick<SqliteHubCompany, 'tick' | 'requested'>,
  ) {
    this.#db = db;
    this.#company = company;
    this.#letters = letters;
    this.#bodyBytes = bodyBytes;
    this.#timeLimit = timeLimit;
    this.#jsonb = jsonb;
    this.#idLimit = idLimit;
    this.#usual = statementsFor(jsonb, false, idLimit);
    this.#large = statementsFor(jsonb, true, idLimit);
  }

  /** When it returns, everything the acknowledgement speaks of is on disk. */
  receive(body: string | Uint8Array, sender: Sender): Stored & { advanced: boolean } {
    const document = this.#document(body, sender);
    const permitted = withoutForbidden(this.#db, this.#jsonb, document, sender.rights, (name) => [name]);
    if (!permitted) return this.#receive(document, sender);
    const told = originsOf(readOrigins(sender.origins, document.count), permitted.indexes);
    const rest = { ...sender, origins: told && writeOrigins(told) };
    const { ack, ...stored } = this.#receive(this.#document(permitted.body, sender), rest);
    const rejected = withForbidden(ack.rejected ?? [], permitted);
    return { ...stored, ack: { ...ack, ack: document.batchId, rejected }, changes: document.count };
  }

  /**
   * For a store that has the rows elsewhere: those that a batch is about, each once, and its changes, where all of them are
   * regular and the sender may make them.
   */
  examine(body: string | Uint8Array, sender: Sender): Examined {
    const document = this.#document(body, sender);
    const { latest } = this.#timeLimit;
    const regular =
      speltByText(document, latest, this.#idLimit.short) ??
      readSpelt(this.#db.get(this.#for(document).spelt, document.json, latest));
    const isRegular = regular.length === document.count;
    const irregular = isRegular ? [] : this.#irregular(document, latest);
    const isPermitted =
      withoutForbidden(this.#db, this.#jsonb, document, sender.rights, (name) => [name]) === undefined;
    const others = irregular.flatMap((change) => {
      const plan = planOf(this.#db, change, this.#idLimit);
      return plan.kind === 'dead-letter' ? [] : { table: plan.table.name, id: canonicalIdOf(this.#db, plan.id) };
    });
    const rows: Examined['rows'] = () => [...regular.map(({ tbl, id }) => ({ table: tbl, id })), ...others];
    const { batchId, count } = document;
    return { batchId, count, rows, regular: isRegular && isPermitted ? regular : undefined };
  }

  #document(body: string | Uint8Array, sender: Sender): BatchDocument {
    // The specification's ceiling binds senders that say they follow it; another's large batch would never get through.
    const batchChanges = sender.plain ? PLAIN_BATCH_CHANGES_MAX : BATCH_CHANGES_MAX;
    // Letters that are tried again have been let in, and their pages are bounded.
    const bodyBytes = sender.again ? Infinity : this.#bodyBytes;
    return readBatch(this.#db, this.#jsonb, { bodyBytes, batchChanges }, body);
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
        const before = this.latest();
        const stored = this.#merge(document, sender, superseded, isPresent);
        this.#nameWriters(before, sender.plain ? undefined : readOrigins(sender.origins, document.count));
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
    const from = isPresent && !again ? (readIntroduction(said)?.inc ?? nodeId) : undefined;
    const before = this.latest();
    const { latest } = this.#timeLimit;
    const { merge, tally, except } = this.#regular(document, superseded);
    this.#db.run(merge, before, from ?? null, document.json, latest, ...except);
    const ack: Ack = { applied: document.count, ack: document.batchId };
    // Every change was regular and won: the ordinary case, and the end of it, unless a plain sender has one row twice.
    const changes = document.count;
    const isDone =
      this.#db.changes() === changes && (!plain || superseded !== NONE || this.#isEachOnce(before, changes));
    if (isDone) return { ack, changes, advanced: changes > 0, letters: [] };

    const tallies = new Map<string, Tally>();
    let regular = 0;
    for (const { tbl, id, n, last, placed } of this.#tally(tally, document.json, latest, ...except)) {
      tallies.set(keyOfRow(tbl, id), { n, last, placed: placed === 1 });
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

  #for({ isLarge }: BatchDocument): Statements {
    return isLarge ? this.#large : this.#usual;
  }

  /** The statements for the regular changes, without those that are superseded, and what these bind. */
  #regular(document: BatchDocument, { changes }: Superseded): { merge: string; tally: string; except: string[] } {
    if (changes.size === 0) return { ...this.#for(document), except: [] };
    const source = exceptSql(changesSql(this.#jsonb, document.isLarge, this.#idLimit.short).regular);
    return { merge: mergeSql(source), tally: tallySql(source), except: [JSON.stringify([...changes.keys()])] };
  }

  /** Whether so many changes since then have advanced as many rows. */
  #isEachOnce(before: number, changes: number): boolean {
    return Number(this.#db.get('SELECT count(*) AS n FROM _hub_rows WHERE seq > ?', before)?.n) === changes;
  }

  /**
   * Of two changes of one row at one time, deletions among them, the later in the batch is a plain sender's state, as on a
   * node: the batch is merged once more, without the earlier ones.
   */
  #refuseSuperseded(document: BatchDocument, upTo: number, irregular: Irregular[]): void {
    const versions = this.#db.all<{ idx: number; tbl: string; id: string; ua: string }>(
      this.#for(document).versions,
      document.json,
      upTo,
    );
    for (const change of irregular) {
      const plan = planOf(this.#db, change, this.#idLimit);
      if (plan.kind !== 'upsert' && plan.kind !== 'delete') continue;
      const id = canonicalIdOf(this.#db, plan.id);
      versions.push({ idx: change.idx, tbl: fold(plan.table.name), id, ua: plan.updatedAt });
    }
    versions.sort((a, b) => a.idx - b.idx);
    const latest = new Map<string, number>();
    const superseded = new Map<number, string>();
    for (const { idx, tbl, id, ua } of versions) {
      const version = `${ua}\n${keyOfRow(tbl, id)}`;
      const earlier = latest.get(version);
      if (earlier !== undefined) superseded.set(earlier, keyOfRow(tbl, id));
      latest.set(version, idx);
    }
    if (superseded.size > 0) throw new Superseded(superseded);
  }

  /**
   * Another hub says who has made what it brings. A change that has advanced its row has its place by its index; a row that
   * was put together from two was made by neither.
   */
  #nameWriters(before: number, origins: OriginRun[] | undefined): void {
    let last = before;
    for (const { node, count } of origins ?? []) {
      const first = last + 1;
      last += count;
      const sql = 'UPDATE _hub_rows SET writer = ? WHERE seq BETWEEN ? AND ? AND origin IS NOT NULL';
      this.#db.run(sql, node ?? '', first, last);
    }
  }

  /** The seq of the latest advance. */
  latest(): number {
    return Number(this.#db.get('SELECT max(seq) AS n FROM _hub_rows')?.n ?? 0);
  }

  #irregular(document: BatchDocument, latest: number): Irregular[] {
    const found = this.#db.all<Irregular & Record<string, never>>(
      `${this.#for(document).irregular} LIMIT ${SINGLY_MAX + 1}`,
      document.json,
      latest,
    );
    checkSingly(found.length);
    return found;
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
    const merged: { params: (string | number | null)[]; tally: Tally }[] = [];
    const tallyOf = (table: string, id: string, idx: number): Tally => {
      const key = keyOfRow(fold(table), id);
      const tally = tallies.get(key) ?? { n: 0, last: idx, placed: false };
      tallies.set(key, tally);
      tally.n += 1;
      tally.last = Math.max(tally.last, idx);
      return tally;
    };
    for (const change of changes) {
      const plan = planOf(this.#db, change, this.#idLimit);
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
      const id = canonicalIdOf(this.#db, plan.id);
      const tally = tallyOf(table, id, change.idx);
      if (plan.kind === 'delete-any') {
        rowless.push({ change, table, id });
        continue;
      }
      const params = [change.idx, plan.op, table, id, plan.updatedAt, change.row as string, change.base];
      this.#db.run(MERGE_ONE, before, origin ?? null, ...params);
      merged.push({ params, tally });
    }
    // They remove whatever is there, so they come last; but what the same batch says of the row later stands against
    // them: otherwise the batch, sent again, would delete what it brought.
    for (const { change, table, id } of rowless) {
      const tally = tallies.get(keyOfRow(fold(table), id)) as Tally;
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
      if (this.#tally(TALLY_ONE, ...params)[0]?.placed === 1) tally.placed = true;
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

  /** Makes a tombstone of a live row, at its own version. False where nothing is known of it. */
  #deleteWhatIsThere(seq: number, table: string, id: string, from: string | undefined): boolean {
    const where = 'WHERE table_name = ? AND row_id = ?';
    const known = this.#db.get<{ op: string }>(`SELECT op FROM _hub_rows ${where}`, table, id);
    if (known && known.op !== 'DELETE') {
      this.#db.run(
        `UPDATE _hub_rows SET op = 'DELETE', row_data = ${deletedContent()}, ` +
          `seq = CAST(? AS INTEGER), origin = ?, base = NULL ${where}`,
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
    ...params: (string | number | Uint8Array | null)[]
  ): { tbl: string; id: string; n: number; last: number; placed: number }[] {
    return this.#db.all(sql, ...params);
  }
}

type Statements = Record<'merge' | 'tally' | 'versions' | 'irregular' | 'spelt', string>;

function statementsFor(jsonb: boolean, large: boolean, { short }: IdLimit): Statements {
  const { regular, irregular } = changesSql(jsonb, large, short);
  return {
    merge: mergeSql(regular),
    tally: tallySql(regular),
    versions: `SELECT idx, lower(tbl) AS tbl, id, CAST(ua AS TEXT) AS ua FROM (${regular})`,
    irregular,
    spelt: speltSql(regular),
  };
}

const MERGE_ONE = mergeSql(ONE_CHANGE);
const TALLY_ONE = tallySql(ONE_CHANGE);

/** The changes of a plain sender that a later one of the same batch stands for: their rows, by their indexes. */
class Superseded extends Error {
  readonly changes: ReadonlyMap<number, string>;

  constructor(changes: ReadonlyMap<number, string>) {
    super('superseded within the batch');
    this.changes = changes;
  }
}

const NONE = new Superseded(new Map());
