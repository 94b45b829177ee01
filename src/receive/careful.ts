/**
 * The careful way to apply a batch: set aside what cannot be applied and say why, merge the rest.
 *
 * The changes lie in a temporary table (stage.ts), in groups of one table whose rows have the same keys. Each group is
 * merged with the same statements as on the fast way; when one of them meets a row that cannot be written, the group is
 * halved until that row is alone. A poisoned change in ten thousand costs some thirty statements, not ten thousand.
 */

import type { Registry } from '../capture/registry.ts';
import type { DeadLetters, LetterContent } from '../dead-letters.ts';
import { messageOf } from '../errors.ts';
import type { RowRef } from '../events.ts';
import { type Connection, TransactionLost } from '../sqlite/connection.ts';
import { isMachineFault } from '../sqlite/result-codes.ts';
import { conjunction, literal, quote } from '../sqlite/sql.ts';
import type { Op, Rejection, RejectionCode } from '../wire/protocol.ts';
import type { BatchDocument } from '../wire/read-batch.ts';
import { decode, rowJson } from '../wire/values.ts';
import {
  deleteSql,
  entombSql,
  isInsertable,
  type Shape,
  type Source,
  settledDeletesSql,
  settledUpsertsSql,
  updateSql,
  upsertSql,
} from './merge.ts';
import type { Delivery, Merged } from './outcome.ts';
import type { Plan } from './plan.ts';
import { type Group, type Sorted, STAGE, Stage, stagedSource } from './stage.ts';

interface Reason {
  code: RejectionCode;
  reason: string;
}

/** A batch on its way through. */
interface Work {
  sorted: Sorted;
  source: Source;
  /** Changes that become a letter of their own, by index. */
  letters: Map<number, Reason>;
  /** Groups of which every single change has won. */
  won: Set<Group>;
}

/** Changes of a group with `lo <= idx < hi`. */
interface Range {
  group: Group;
  lo: number;
  hi: number;
}

type Rowless = Extract<Plan, { kind: 'delete-any' }>;

const END = Number.MAX_SAFE_INTEGER;

export class CarefulApply {
  readonly #db: Connection;
  readonly #letters: DeadLetters;
  readonly #stage: Stage;

  constructor(db: Connection, registry: Registry, letters: DeadLetters) {
    this.#db = db;
    this.#letters = letters;
    this.#stage = new Stage(db, registry);
  }

  /** Merges a batch inside the caller's transaction. */
  merge(document: BatchDocument, delivery: Delivery): Merged {
    const sorted = this.#stage.fill(document.json);
    if (!delivery.isRowcast) this.#stage.supersede();
    const source = stagedSource(!document.isEncoded);
    const work: Work = { sorted, source, letters: new Map<number, Reason>(sorted.refused), won: new Set() };
    const { groups } = sorted;
    const partial = groups.filter(({ table, shape }) => shape && shape.fields.length < table.columns.length);
    for (const group of partial) this.#mark('was', work, group);
    this.#mergeInOrder(work);
    for (const group of groups) {
      const all = work.won.has(group) && group.extra.length === 0 && !partial.includes(group);
      if (all) this.#db.run(`UPDATE ${STAGE} SET placed = 1 WHERE grp = ?`, group.number);
      else this.#mark('placed', work, group);
    }
    for (const group of partial) this.#announce(group);
    return this.#finish(document, work, delivery);
  }

  /** Sets every change of a batch aside without trying any of them. */
  setAsideAll(document: BatchDocument, delivery: Delivery, reason: Reason): Merged {
    const sorted = this.#stage.fill(document.json);
    const work: Work = { sorted, source: stagedSource(true), letters: new Map(), won: new Set() };
    for (let index = 0; index < document.count; index++) work.letters.set(index, reason);
    sorted.groups = [];
    return this.#finish(document, work, delivery);
  }

  release(): void {
    this.#stage.release();
  }

  /** Runs of ordinary changes are merged as sets; a row-less DELETE stands between two runs. */
  #mergeInOrder(work: Work): void {
    const { groups, rowless } = work.sorted;
    if (rowless.length === 0) {
      this.#mergeRun(work, groups, 0, END);
      return;
    }
    const numbers = this.#db.all<{ idx: number; grp: number; tbl: string; wire: string }>(
      `SELECT idx, grp, tbl, wire FROM ${STAGE} WHERE grp IS NOT NULL ORDER BY idx`,
    );
    const nameOf = (table: string, id: string): string => `${table}\n${id}`;
    const latest = new Map(numbers.map(({ idx, tbl, wire }) => [nameOf(tbl, wire), idx]));
    for (const { idx, plan } of rowless) {
      const name = nameOf(plan.table.name, plan.id);
      latest.set(name, Math.max(idx, latest.get(name) ?? 0));
    }
    let start = 0;
    let at = 0;
    const runUpTo = (end: number): void => {
      const present = new Set<number>();
      for (; at < numbers.length && (numbers[at]?.idx as number) < end; at++) present.add(numbers[at]?.grp as number);
      this.#mergeRun(
        work,
        groups.filter(({ number }) => present.has(number)),
        start,
        end,
      );
      start = end;
    };
    for (const { idx, plan } of rowless) {
      runUpTo(idx);
      // It has no version of its own, so what the same batch says of the row later stands against it: otherwise the batch,
      // sent again, would delete what it brought.
      if (latest.get(nameOf(plan.table.name, plan.id)) === idx) this.#deleteAny(work, idx, plan);
    }
    runUpTo(END);
  }

  /** Deletions first: they only ever make room for others. */
  #mergeRun(work: Work, groups: Group[], lo: number, hi: number): void {
    const { source } = work;
    for (const group of groups) {
      if (group.shape) continue;
      this.#bisect(work, { group, lo, hi }, [entombSql(group.table, source), deleteSql(group.table, source)]);
    }
    for (const group of groups) {
      if (!group.shape || !isInsertable(group.table, group.shape)) continue;
      this.#bisect(work, { group, lo, hi }, [upsertSql(group.table, group.shape, source)]);
    }
    // These could not be inserted, but may update a row that exists, or that the others have just brought.
    for (const group of groups) {
      if (group.shape && !isInsertable(group.table, group.shape)) this.#update(work, { group, lo, hi }, group.shape);
    }
  }

  /** An UPDATE takes one change a row: the first of each are merged as a set, the others one by one. */
  #update(work: Work, { group, lo, hi }: Range, shape: Shape): void {
    const { table } = group;
    const exists = `EXISTS (SELECT 1 FROM ${quote(table.name)} AS t WHERE t.${quote(table.id)} = s.id)`;
    const changes = this.#db.all<{ idx: number; nth: number; there: number }>(
      `SELECT idx, row_number() OVER (PARTITION BY id ORDER BY idx) AS nth, ${exists} AS there ` +
        `FROM ${STAGE} AS s WHERE grp = ? AND idx >= ? AND idx < ? ORDER BY idx`,
      group.number,
      lo,
      hi,
    );
    const { source } = work;
    const once: Source = {
      ...source,
      sql: `SELECT min(idx) AS idx, id, ua, r FROM (${source.sql}) GROUP BY id LIMIT -1`,
    };
    const update = updateSql(table, shape, source);
    this.#bisect(work, { group, lo, hi }, [updateSql(table, shape, once)]);
    work.won.delete(group);
    for (const { idx, nth, there } of changes) {
      if (there && nth === 1) continue;
      this.#bisect(work, { group, lo: idx, hi: idx + 1 }, [there ? update : upsertSql(table, shape, source)]);
      work.won.delete(group);
    }
  }

  /** Whatever fails and is not the machine's fault is a row's: a queue never stands still for a row. */
  #bisect(work: Work, range: Range, statements: string[]): void {
    const broken = this.#unpreparable(statements);
    if (broken !== undefined) this.#setAsideRange(work, range, broken);
    else this.#tryRange(work, range, statements);
  }

  #tryRange(work: Work, range: Range, statements: string[]): void {
    const { group, lo } = range;
    try {
      const written = this.#db.savepoint(() => {
        let first: number | undefined;
        for (const sql of statements) {
          this.#db.run(sql, group.number, lo, range.hi);
          first ??= this.#db.changes();
        }
        return first;
      });
      // Where a row-less DELETE may follow, what has won need not stand.
      if (written === group.size && work.sorted.rowless.length === 0) work.won.add(group);
    } catch (error) {
      if (error instanceof TransactionLost || isMachineFault(error)) throw error;
      const hi = Math.min(range.hi, this.#last(range) + 1);
      if (hi - lo <= 1) {
        this.#setAsideRange(work, { group, lo, hi }, messageOf(error));
        return;
      }
      const middle = lo + ((hi - lo) >> 1);
      this.#tryRange(work, { group, lo, hi: middle }, statements);
      this.#tryRange(work, { group, lo: middle, hi }, statements);
    }
  }

  /** A broken trigger of the application, or a function that is not there yet: no row of the table can be written. */
  #unpreparable(statements: string[]): string | undefined {
    try {
      for (const sql of statements) this.#db.prepare(sql);
      return undefined;
    } catch (error) {
      if (isMachineFault(error)) throw error;
      return messageOf(error);
    }
  }

  #setAsideRange(work: Work, { group, lo, hi }: Range, reason: string): void {
    const sql = `SELECT idx FROM ${STAGE} WHERE grp = ? AND idx >= ? AND idx < ?`;
    for (const { idx } of this.#db.all<{ idx: number }>(sql, group.number, lo, hi)) {
      work.letters.set(idx, { code: 'constraint', reason });
    }
  }

  #last({ group, lo, hi }: Range): number {
    const sql = `SELECT coalesce(max(idx), ?) AS n FROM ${STAGE} WHERE grp = ? AND idx >= ? AND idx < ?`;
    return Number(this.#db.get(sql, lo, group.number, lo, hi)?.n);
  }

  #deleteAny(work: Work, idx: number, plan: Rowless): void {
    try {
      this.#db.savepoint(() => this.#deleteWhatIsThere(plan));
    } catch (error) {
      if (error instanceof TransactionLost || isMachineFault(error)) throw error;
      work.letters.set(idx, { code: 'constraint', reason: messageOf(error) });
    }
  }

  #deleteWhatIsThere({ table, id }: Rowless): void {
    const where = `WHERE ${quote(table.id)} = (SELECT ${decode('v')} FROM (SELECT ? AS v))`;
    this.#db.run(
      `INSERT INTO _tombstones (table_name, row_id, version) SELECT ${literal(table.name)}, ${quote(table.id)}, ` +
        `${quote(table.updatedAt)} FROM ${quote(table.name)} ${where} ` +
        'ON CONFLICT DO UPDATE SET version = max(version, excluded.version)',
      id,
    );
    this.#db.run(`DELETE FROM ${quote(table.name)} ${where}`, id);
  }

  /** Notes which changes of a group are what stands. */
  #mark(column: 'was' | 'placed', { source }: Work, { number, table, shape }: Group): void {
    const settled = shape ? settledUpsertsSql(table, shape, source) : settledDeletesSql(table, source);
    this.#db.run(`UPDATE ${STAGE} SET ${column} = 1 WHERE idx IN (${settled})`, number, 0, END);
  }

  /**
   * A row from a node whose schema is behind now consists of its values and of what was here in the other columns: a state
   * that no other node has seen. It is told to all, at the version it has; whoever has nothing in those columns takes it,
   * because NULL is below everything.
   */
  #announce({ number, table, shape }: Group): void {
    const missing = table.columns.filter((column) => !shape?.fields.some((field) => field.column === column));
    const untouched = missing.map((column) => `t.${quote(column.name)} COLLATE BINARY IS (${column.fallback})`);
    this.#db.run(
      'INSERT INTO _changes (op, table_name, row_id, row_data) ' +
        `SELECT 'UPDATE', ${literal(table.name)}, t.${quote(table.id)}, ${rowJson(table, 't')} ` +
        `FROM ${quote(table.name)} AS t WHERE t.${quote(table.id)} IN ` +
        `(SELECT id FROM ${STAGE} WHERE grp = ? AND placed = 1 AND was IS NULL) AND NOT (${conjunction(untouched)})`,
      number,
    );
  }

  #finish(document: BatchDocument, work: Work, delivery: Delivery): Merged {
    const rejected: Rejection[] = [];
    const events: Merged['letters'] = [];
    const tell = (code: RejectionCode, reason: string, rows: RowRef[]): void => {
      if (delivery.wantLetters) events.push({ direction: 'in', peer: delivery.from, code, reason, rows });
    };
    for (const group of work.sorted.groups) {
      if (group.extra.length > 0) this.#keepUnknownColumns(group, work, delivery, rejected, tell);
    }
    for (const [index, letter] of this.#contents(document, work.letters)) {
      const { code, reason } = work.letters.get(index) as Reason;
      this.#letters.keepReceived(letter, code, reason, delivery.from);
      rejected.push({ index, code, message: shortened(reason) });
      const { op, table, rowId } = letter;
      tell(code, reason, [{ op: (op ?? 'UPDATE') as Op, table: table ?? '', id: rowId ?? '' }]);
    }
    rejected.sort((a, b) => a.index - b.index);
    const result = this.#count(work, delivery.wantRows);
    this.#stage.empty();
    return { ...result, rejected, letters: events };
  }

  /**
   * The known columns were merged with the others. A value of an unknown one is kept where its change is what stands, to be
   * filled in when the column is there; a change that has lost against another has lost with all its columns.
   */
  #keepUnknownColumns(
    group: Group,
    work: Work,
    delivery: Delivery,
    rejected: Rejection[],
    tell: (code: RejectionCode, reason: string, rows: RowRef[]) => void,
  ): void {
    const { table, extra, number } = group;
    const names = extra.map((key) => JSON.stringify(key)).join(', ');
    const reason = `table "${table.name}" has no column ${names} here; the others were applied`;
    const refused = [...work.letters.keys()];
    this.#db.run(`UPDATE ${STAGE} SET letter = 1 WHERE grp = ?`, number);
    if (refused.length > 0) {
      const sql = `UPDATE ${STAGE} SET placed = NULL WHERE idx IN (SELECT value FROM json_each(?)) AND grp = ?`;
      this.#db.run(sql, JSON.stringify(refused), number);
    }
    const kept = `SELECT max(idx) AS idx, op, wire AS row_id, json(r) AS row FROM ${STAGE} WHERE grp = ? AND placed = 1 GROUP BY wire`;
    this.#letters.keepUnknownColumns(kept, [number], {
      table: table.name,
      columns: extra,
      reason,
      from: delivery.from,
    });
    const members = this.#db.all<{ idx: number; placed: number | null; op: Op; wire: string }>(
      `SELECT idx, placed, op, wire FROM ${STAGE} WHERE grp = ? ORDER BY idx`,
      number,
    );
    const message = shortened(reason);
    const own = new Set(refused);
    for (const { idx } of members) if (!own.has(idx)) rejected.push({ index: idx, code: 'unknown-column', message });
    const standing = members.filter(({ placed }) => placed === 1);
    if (standing.length > 0)
      tell(
        'unknown-column',
        reason,
        standing.map(({ op, wire }) => ({ op, table: table.name, id: wire })),
      );
  }

  /** The changes of the given indexes, as letters keep them. */
  *#contents(document: BatchDocument, letters: Map<number, Reason>): Generator<[number, LetterContent]> {
    if (letters.size === 0) return;
    const indexes = JSON.stringify([...letters.keys()].sort((a, b) => a - b));
    this.#db.run(`UPDATE ${STAGE} SET letter = 1 WHERE idx IN (SELECT value FROM json_each(?))`, indexes);
    const found = this.#db.all<LetterContent & { idx: number }>(
      `SELECT idx, change, op, "table", "row", coalesce(id, old_id) AS rowId FROM (SELECT idx, change, ` +
        `CAST(c ->> '$.op' AS TEXT) AS op, CAST(c ->> '$.table' AS TEXT) AS "table", c -> '$.row' AS "row", ` +
        "(SELECT CAST(e.atom AS TEXT) FROM json_each(c, '$.row') AS e WHERE e.key = 'id' COLLATE NOCASE) AS id, " +
        "CAST(c ->> '$.old_id' AS TEXT) AS old_id FROM (SELECT key AS idx, iif(type IN ('object', 'array'), json(value), NULL) AS c, " +
        "CASE WHEN type IN ('object', 'array') THEN json(value) WHEN type IN ('true', 'false') THEN type " +
        `ELSE json_quote(atom) END AS change FROM json_each(?, '$.changes') AS e ` +
        `WHERE EXISTS (SELECT 1 FROM ${STAGE} AS s WHERE s.idx = e.key AND s.letter = 1) LIMIT -1))`,
      document.json,
    );
    for (const { idx, ...parts } of found) if (letters.has(idx)) yield [idx, parts];
  }

  /**
   * A row whose newest version in this batch is the one that stands counts with all its changes, those apart that were set
   * aside; so does a row-less DELETE.
   */
  #count(work: Work, wantRows: boolean): { applied: number; rows: RowRef[] } {
    const rowless = work.sorted.rowless.filter(({ idx }) => !work.letters.has(idx));
    const standing = `SELECT idx, op, tbl, wire, letter, max(placed) OVER (PARTITION BY tbl, id) AS stands FROM ${STAGE} WHERE grp IS NOT NULL`;
    const counted = 'WHERE stands = 1 AND letter IS NULL';
    const counting = this.#db.get(`SELECT 1 AS n FROM ${STAGE} WHERE grp IS NOT NULL AND letter IS NULL LIMIT 1`);
    if (!wantRows && !counting) return { applied: rowless.length, rows: [] };
    if (!wantRows) {
      const unsettled = this.#db.get(
        `SELECT 1 AS n FROM ${STAGE} WHERE grp IS NOT NULL AND (placed IS NULL OR letter = 1) LIMIT 1`,
      );
      const from = unsettled ? `(${standing}) ${counted}` : `${STAGE} WHERE grp IS NOT NULL`;
      return { applied: rowless.length + Number(this.#db.get(`SELECT count(*) AS n FROM ${from}`)?.n), rows: [] };
    }
    const found = this.#db.all<RowRef & { idx: number }>(
      `SELECT idx, op, tbl AS "table", wire AS id FROM (${standing}) ${counted} ORDER BY idx`,
    );
    for (const { idx, plan } of rowless) found.push({ idx, op: plan.op, table: plan.table.name, id: plan.id });
    const rows = found.sort((a, b) => a.idx - b.idx).map(({ op, table, id }) => ({ op, table, id }));
    return { applied: rows.length, rows };
  }
}

/** Characters of a reason in the answer: the letter has all of it, and the answer must stay one that a sender reads. */
const MESSAGE_MAX = 200;

function shortened(reason: string): string {
  return reason.length > MESSAGE_MAX ? `${reason.slice(0, MESSAGE_MAX)}...` : reason;
}
