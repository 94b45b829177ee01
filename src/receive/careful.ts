/**
 * The careful way to apply a batch: set aside what cannot be applied and say why, merge the rest.
 *
 * The changes lie in a temporary table (stage.ts), in groups of one table whose rows have the same keys. Each group is
 * merged with the same statements as on the fast way; when one of them meets a row that cannot be written, the group is
 * divided until that row is alone. A poisoned change in ten thousand costs some forty statements, not ten thousand.
 */

import type { Registry } from '../capture/registry.ts';
import { hasStampsOf } from '../capture/stamps.ts';
import { messageOf } from '../errors.ts';
import type { Journal } from '../journal/journal.ts';
import type { DeadLetters } from '../letters/dead-letters.ts';
import type { TimeLimit } from '../letters/time-limit.ts';
import { type Connection, TransactionLost, type Value } from '../sqlite/connection.ts';
import { isMachineFault } from '../sqlite/result-codes.ts';
import type { Table } from '../sqlite/schema.ts';
import { quote } from '../sqlite/sql.ts';
import type { BatchDocument } from '../wire/read-batch.ts';
import { announceAll, announceMixed } from './announce.ts';
import { KeptOut } from './kept-out.ts';
import {
  belowFloorSql,
  isInsertable,
  type Shape,
  type Source,
  settledDeletesSql,
  settledUpsertsSql,
  updateSql,
  upsertSql,
} from './merge.ts';
import type { Delivery, Merged } from './outcome.ts';
import { dropOvertaken } from './overtaken.ts';
import { noteOverwritten } from './overwritten.ts';
import { outdate } from './refused-stamps.ts';
import type { RegularPart } from './regular-body.ts';
import { isPlaced, type Reason, Report, type Work } from './report.ts';
import { deleteWhatIsThere, forbidRowless, type Rowless } from './rowless.ts';
import { checkSingly } from './singly.ts';
import { type Group, type Sorted, STAGE, Stage, stagedAtTheirTime, stagedSource } from './stage.ts';
import { deletion, type Statements, update, upsert } from './statements.ts';
import type { UniqueRows } from './unique.ts';

/** Changes of a group with `lo <= idx < hi`. */
interface Range {
  group: Group;
  lo: number;
  hi: number;
}

const END = Number.MAX_SAFE_INTEGER;

/**
 * Into how many parts a range that failed is divided. With two, the changes beside a bad one would be written twice over;
 * with many, the statements themselves would cost more than that.
 */
const PARTS = 8;

/** What is known of a batch before the careful way begins. */
interface Known {
  /** Of a regular body. */
  parts: RegularPart[] | undefined;
  /** The fast way has met a row that cannot be written. */
  isRefused: boolean;
}

export class CarefulApply {
  readonly #db: Connection;
  readonly #unique: UniqueRows;
  readonly #journal: Journal;
  readonly #stage: Stage;
  readonly #report: Report;

  constructor(db: Connection, registry: Registry, letters: DeadLetters, unique: UniqueRows, journal: Journal) {
    this.#db = db;
    this.#unique = unique;
    this.#journal = journal;
    this.#stage = new Stage(db, registry);
    this.#report = new Report(db, letters, this.#stage);
  }

  /** Outside of any transaction: see Stage.prepare. */
  prepare(): void {
    this.#stage.prepare();
  }

  /** Merges a batch inside the caller's transaction. */
  merge(document: BatchDocument, delivery: Delivery, known: Known, timeLimit: TimeLimit): Merged {
    const sorted = this.#stage.fill(document, known.parts);
    if (!delivery.isRowcast) this.#stage.supersede();
    this.#stage.setAsideAhead(sorted, timeLimit);
    const stamped = sorted.groups.filter(({ table }) => hasStampsOf(this.#db, table));
    const unsure = stamped.length > 0;
    const source = stagedSource({ verbatim: !document.isEncoded, large: document.isLarge, unsure });
    const work: Work = {
      sorted,
      source,
      letters: new Map<number, Reason>(sorted.refused),
      decided: new Map(),
      won: new Set(),
      apart: 0,
      isRefused: known.isRefused,
    };
    if (delivery.rights?.rowless === false) forbidRowless(work);
    const { groups } = sorted;
    for (const group of stamped) outdate(this.#db, group, source, END);
    const before = this.#settle(sorted);
    const partial = groups.filter(({ table, shape }) => shape && shape.fields.length < table.columns.length);
    for (const group of partial) this.#mark('was', work, group);
    const notes = this.#journal.begin(document.text, delivery.from);
    for (const group of groups) {
      noteOverwritten(notes, group, delivery.again === true, () => this.#unique.hasHidden(group.table));
    }
    this.#mergeInOrder(work);
    dropOvertaken(this.#db, work);
    for (const group of groups) this.#parkBelowFloor(work, group);
    this.#report.markLetters(work);
    for (const group of groups) {
      const whole = group.extra.length === 0 && !partial.includes(group);
      if (this.#haveAllWon(work, group, whole)) work.won.add(group);
      else this.#mark('placed', work, group);
    }
    if (delivery.announce) for (const group of groups) announceAll(this.#db, group, isPlaced(work));
    else for (const group of partial) announceMixed(this.#db, group, isPlaced(work));
    const after = this.#settle(sorted, `SELECT id FROM ${STAGE}`);
    const conflicts = this.#journal.finish(notes);
    const merged = this.#report.finish(document, work, delivery);
    return { ...merged, letters: [...merged.letters, ...before, ...after], conflicts };
  }

  /** Sets every change of a batch aside without trying any of them. */
  setAsideAll(document: BatchDocument, delivery: Delivery, reason: Reason): Merged {
    const sorted = this.#stage.fill(document);
    const nothing = {
      letters: new Map(),
      decided: new Map(),
      won: new Set<Group>(),
      apart: 0,
      isRefused: true,
    };
    const work: Work = { sorted, source: stagedSource({ verbatim: true }), ...nothing };
    for (let index = 0; index < document.count; index++) work.letters.set(index, reason);
    sorted.groups = [];
    this.#report.markLetters(work);
    return this.#report.finish(document, work, delivery);
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
      this.#mergeRange(work, { group, lo, hi }, deletion(group.table, source));
    }
    for (const group of groups) {
      if (!group.shape || !isInsertable(group.table, group.shape)) continue;
      this.#mergeRange(work, { group, lo, hi }, upsert(group.table, group.shape, source));
    }
    // These could not be inserted, but may update a row that exists, or that the others have just brought.
    for (const group of groups) {
      if (group.shape && !isInsertable(group.table, group.shape)) this.#update(work, { group, lo, hi }, group.shape);
    }
    for (const group of groups) if (group.shape) this.#mergeHidden(work, { group, lo, hi });
  }

  /** An UPDATE takes one change a row: the first of each are merged as a set, the others one by one. */
  #update(work: Work, { group, lo, hi }: Range, shape: Shape): void {
    const { table } = group;
    const exists = `EXISTS (SELECT 1 FROM ${table.target} AS t WHERE t.${quote(table.id)} = s.id)`;
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
    this.#mergeRange(work, { group, lo, hi }, update(table, shape, once));
    const others = changes.filter(({ nth, there }) => !there || nth > 1);
    checkSingly(others.length);
    const [again, anew] = [update(table, shape, source), upsert(table, shape, source)];
    for (const { idx, there } of others) {
      this.#mergeRange(work, { group, lo: idx, hi: idx + 1 }, there ? again : anew);
    }
    work.decided.delete(group);
  }

  /** Whatever fails and is not the machine's fault is a row's: a queue never stands still for a row. */
  #mergeRange(work: Work, range: Range, statements: Statements): void {
    const broken = this.#unpreparable(statements);
    if (broken !== undefined) this.#setAsideRange(work, range, broken);
    else if (work.isRefused) this.#tryParts(work, range, statements);
    else this.#tryRange(work, range, statements);
  }

  #tryRange(work: Work, range: Range, statements: Statements): void {
    const { group, lo } = range;
    const { run, keptOut } = statements;
    try {
      const written = this.#db.savepoint(() => {
        let won = 0;
        for (const { sql, counts } of run) {
          this.#db.run(sql, group.number, lo, range.hi);
          if (counts) won += this.#db.changes();
        }
        if (keptOut !== undefined && this.#db.get(keptOut, group.number, lo, range.hi)) throw new KeptOut(group.table);
        return won;
      });
      decide(work, group, written);
    } catch (error) {
      if (error instanceof TransactionLost || isMachineFault(error)) throw error;
      const hi = this.#end(range);
      if (hi - lo > 1) this.#tryParts(work, { group, lo, hi }, statements);
      else if (!this.#mergeApart(work, group, lo, messageOf(error))) {
        this.#setAsideRange(work, { group, lo, hi }, messageOf(error));
      }
    }
  }

  /** For a range of which it is known, or likely, that it cannot be written as a whole. */
  #tryParts(work: Work, range: Range, statements: Statements): void {
    const { group, lo } = range;
    const hi = this.#end(range);
    const step = Math.ceil((hi - lo) / PARTS);
    for (let at = lo; at < hi; at += step) {
      this.#tryRange(work, { group, lo: at, hi: Math.min(hi, at + step) }, statements);
    }
  }

  /** Changes to rows that are hidden, some of them by this very batch, are merged where those are. */
  #mergeHidden(work: Work, { group, lo, hi }: Range): void {
    if (!this.#unique.hasHidden(group.table)) return;
    const hidden = this.#db.all<{ idx: number }>(
      `SELECT s.idx AS idx FROM ${STAGE} AS s JOIN main._hidden AS h ON h.table_name = ? AND h.row_id = s.id ` +
        'WHERE s.grp = ? AND s.idx >= ? AND s.idx < ? AND s.apart IS NULL ORDER BY s.idx',
      group.table.name,
      group.number,
      lo,
      hi,
    );
    for (const { idx } of hidden) this.#mergeApart(work, group, idx);
  }

  /** A change whose row another one keeps out of the table. False where no other row is to blame. */
  #mergeApart(work: Work, group: Group, idx: number, refusal?: string): boolean {
    const { table, shape } = group;
    if (!shape || table.uniques.length === 0) return false;
    work.apart += 1;
    checkSingly(work.apart);
    const change = this.#db.get<{ wire: string; ua: Value }>(`SELECT wire, ua FROM ${STAGE} WHERE idx = ?`, idx);
    const source = stagedSource(work.source, true);
    const range = [group.number, idx, idx + 1];
    const write = (target: Table): boolean => {
      const there = this.#db.get(`SELECT 1 AS n FROM ${target.target}`) !== undefined;
      this.#db.run(there ? updateSql(target, shape, source) : upsertSql(target, shape, source), ...range);
      return this.#db.get(settledUpsertsSql(target, shape, source), ...range) !== undefined;
    };
    const { wire, ua } = change as { wire: string; ua: Value };
    try {
      const outcome = this.#db.savepoint(() => this.#unique.merge(table, wire, ua, write));
      if (!outcome) return false;
      const { placed, was } = outcome;
      const sql = `UPDATE ${STAGE} SET apart = 1, placed = ?, was = ? WHERE idx = ?`;
      this.#db.run(sql, placed ? 1 : null, was ? 1 : null, idx);
      return true;
    } catch (error) {
      if (error instanceof TransactionLost || isMachineFault(error)) throw error;
      this.#db.run(`UPDATE ${STAGE} SET apart = 1 WHERE idx = ?`, idx);
      work.letters.set(idx, { code: 'constraint', reason: refusal ?? messageOf(error) });
      return true;
    }
  }

  /**
   * A write at or below the floor of a row that is not live here is neither applied nor dropped: the row may have been
   * deleted, and whoever knew has forgotten.
   */
  #parkBelowFloor({ source, letters }: Work, { table, shape, number }: Group): void {
    if (!shape || table.floor === undefined) return;
    const found = this.#db.all<{ idx: number }>(belowFloorSql(table, source), number, 0, END);
    checkSingly(letters.size + found.length);
    const reason =
      `older than the deletions that table "${table.name}" still knows (${table.floor}), and not here: it may have been ` +
      'deleted. Write the row anew if it should exist, and discard this';
    for (const { idx } of found) if (!letters.has(idx)) letters.set(idx, { code: 'below-floor', reason });
  }

  /**
   * Who is visible is decided twice. Before the batch, because the application may have written a hidden row under its own id
   * since the last look, or set it free, and each row must be compared where it is; and after it, because the batch may have
   * set a value free, or brought a stronger row.
   */
  #settle({ groups, rowless }: Sorted, touched?: string): Merged['letters'] {
    const tables = new Set([...groups.map(({ table }) => table), ...rowless.map(({ plan }) => plan.table)]);
    return [...tables].flatMap((table) => this.#unique.settle(table, touched));
  }

  /** A broken trigger of the application, or a function that is not there yet: no row of the table can be written. */
  #unpreparable({ run }: Statements): string | undefined {
    try {
      for (const { sql } of run) this.#db.prepare(sql);
      return undefined;
    } catch (error) {
      if (isMachineFault(error)) throw error;
      return messageOf(error);
    }
  }

  #setAsideRange(work: Work, { group, lo, hi }: Range, reason: string): void {
    const sql = `SELECT idx FROM ${STAGE} WHERE grp = ? AND idx >= ? AND idx < ?`;
    const changes = this.#db.all<{ idx: number }>(sql, group.number, lo, hi);
    checkSingly(work.letters.size + changes.length);
    for (const { idx } of changes) work.letters.set(idx, { code: 'constraint', reason });
    decide(work, group, changes.length);
  }

  /** Where a range ends that may be open. */
  #end({ group, lo, hi }: Range): number {
    const sql = `SELECT coalesce(max(idx), ?) + 1 AS n FROM ${STAGE} WHERE grp = ? AND idx >= ? AND idx < ?`;
    return Math.min(hi, Number(this.#db.get(sql, lo, group.number, lo, hi)?.n));
  }

  #deleteAny(work: Work, idx: number, plan: Rowless): void {
    try {
      this.#db.savepoint(() => deleteWhatIsThere(this.#db, this.#unique, plan));
    } catch (error) {
      if (error instanceof TransactionLost || isMachineFault(error)) throw error;
      work.letters.set(idx, { code: 'constraint', reason: messageOf(error) });
    }
  }

  /**
   * Has each change of the group won that was not set aside? Then the last one of each row is what stands, or for a row
   * that another group has as well, what stood until that group won. Only for `whole` rows is this no matter: of such a
   * row nothing but the number of its changes is asked. Where a row-less DELETE may follow, what has won need not stand.
   */
  #haveAllWon({ sorted, decided }: Work, group: Group, whole: boolean): boolean {
    if (decided.get(group) !== group.size || sorted.rowless.length > 0) return false;
    return whole || sorted.groups.every((other) => other === group || other.table !== group.table);
  }

  /** Notes which changes of a group are what stands. */
  #mark(column: 'was' | 'placed', { source }: Work, { number, table, shape }: Group): void {
    const settled = shape
      ? settledUpsertsSql(table, shape, stagedAtTheirTime(source, table))
      : settledDeletesSql(table, source);
    this.#db.run(`UPDATE ${STAGE} SET ${column} = 1 WHERE idx IN (${settled})`, number, 0, END);
  }
}

function decide({ decided }: Work, group: Group, changes: number): void {
  decided.set(group, (decided.get(group) ?? 0) + changes);
}
