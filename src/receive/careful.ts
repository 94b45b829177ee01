/**
 * The careful way to apply a batch: look at every change, set aside what cannot be applied and say why, merge the rest.
 *
 * The changes are laid out in a temporary table and grouped by table and by the set of keys their rows have. Each group
 * is merged with the same statements as on the fast path; when one of them meets a row that a constraint forbids, the
 * group is halved until that row is alone. A poisoned change in ten thousand costs some thirty statements, not ten thousand.
 */

import type { Registry } from '../capture/registry.ts';
import type { DeadLetters } from '../dead-letters.ts';
import { messageOf } from '../errors.ts';
import type { RowRef } from '../events.ts';
import { type Connection, isRowFault } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { conjunction, fold, literal, quote } from '../sqlite/sql.ts';
import type { Op, RejectionCode } from '../wire/protocol.ts';
import { CANONICAL_ID, decode, rowJson } from '../wire/values.ts';
import type { Merged } from './fast.ts';
import {
  deleteSql,
  entombSql,
  type Shape,
  type Source,
  settledDeletesSql,
  settledUpsertsSql,
  updateSql,
  upsertSql,
} from './merge.ts';
import { type Batch, type Plan, planChange, type Staged } from './plan.ts';

interface Outcome {
  plans: Plan[];
  /** Index of each change that was set aside, in full or for its unknown columns. */
  letters: Map<number, { code: RejectionCode; reason: string; unknownColumns?: string[] }>;
  /** Changes that have just won and lack columns of their table. */
  mixed: Group[];
}

/** Changes of one table whose rows have the same keys. */
interface Group {
  table: Table;
  shape: Shape;
  indexes: number[];
}

export class CarefulApply {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;

  constructor(db: Connection, registry: Registry, letters: DeadLetters) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
  }

  /** Merges a batch inside the caller's transaction; `json` is the whole body, as text or JSONB. */
  merge(json: string | Uint8Array, from: string | undefined): Merged {
    this.#stage(json);
    const outcome = this.#classify();
    this.#mergeInOrder(outcome);
    for (const [index, { code, reason, unknownColumns }] of outcome.letters) {
      this.#letters.keepReceived({ ...this.#letterOf(index), unknownColumns }, code, reason, from);
    }
    const report = this.#report(outcome, from);
    for (const mixed of outcome.mixed) this.#announce(mixed);
    this.#db.exec('DELETE FROM temp._rowcast_stage');
    return report;
  }

  /**
   * A row from a node whose schema is behind now consists of its values and of what was here in the other columns: a state
   * that no other node has seen. It is told to all, at the version it has; whoever has nothing in those columns takes it,
   * because NULL is below everything.
   */
  #announce({ table, shape, indexes }: Group): void {
    const missing = table.columns.filter((column) => !shape.fields.some((field) => field.column === column));
    const untouched = missing.map((column) => `t.${quote(column.name)} COLLATE BINARY IS (${column.fallback})`);
    this.#select(indexes);
    this.#db.run(
      `INSERT INTO _changes (op, table_name, row_id, row_data) SELECT 'UPDATE', ${literal(table.name)}, t.${quote(table.id)}, ` +
        `${rowJson(table, 't')} FROM ${quote(table.name)} AS t WHERE t.${quote(table.id)} IN ` +
        `(SELECT id FROM temp._rowcast_stage WHERE grp = 1) AND NOT (${conjunction(untouched)})`,
    );
  }

  /** Makes the given changes the ones that the merge statements work on. */
  #select(indexes: number[]): void {
    this.#db.run('UPDATE temp._rowcast_stage SET grp = NULL WHERE grp IS NOT NULL');
    this.#db.run(
      'UPDATE temp._rowcast_stage SET grp = 1 WHERE idx IN (SELECT value FROM json_each(?))',
      JSON.stringify(indexes),
    );
  }

  /** Those of the given changes that are in place. */
  #inPlace({ table, shape, indexes }: Group): Set<number> {
    this.#select(indexes);
    return new Set(this.#db.all<{ idx: number }>(settledUpsertsSql(table, shape, STAGED)).map(({ idx }) => idx));
  }

  /** Sets every change of a batch aside without trying any of them. */
  setAsideAll(json: string, from: string | undefined, code: RejectionCode, reason: string): Merged {
    this.#stage(json);
    const outcome = this.#classify();
    outcome.plans.forEach((_, index) => {
      outcome.letters.set(index, { code, reason });
      this.#letters.keepReceived(this.#letterOf(index), code, reason, from);
    });
    return this.#report(outcome, from);
  }

  /** Lets go of the temporary table. */
  release(): void {
    this.#db.exec('DROP TABLE IF EXISTS temp._rowcast_stage');
  }

  #stage(json: string | Uint8Array): void {
    const each = this.#registry.features.jsonb ? 'jsonb' : 'json';
    this.#db.exec(
      'CREATE TEMP TABLE IF NOT EXISTS _rowcast_stage (idx INTEGER PRIMARY KEY, kind TEXT, change, r, grp INTEGER, id, ua)',
    );
    this.#db.exec('DELETE FROM temp._rowcast_stage');
    this.#db.run(
      `INSERT INTO temp._rowcast_stage (idx, kind, change, r) SELECT key, type, CASE WHEN type IN ('object', 'array') THEN value WHEN type IN ('true', 'false') THEN type ELSE json_quote(atom) END, ` +
        `iif(type = 'object' AND json_type(value, '$.row') = 'object', ${each}_extract(value, '$.row'), NULL) ` +
        `FROM ${each}_each(?, '$.changes')`,
      json,
    );
  }

  /** Decides for every change what is to be done with it, before anything is written. */
  #classify(): Outcome {
    // Read as text: an integer beyond 2^53 in the wrong place makes node:sqlite throw.
    const staged = this.#db.all<Staged>(
      "SELECT idx, kind, CAST(c ->> '$.op' AS TEXT) AS op, json_type(c, '$.op') AS op_type, CAST(c ->> '$.table' AS TEXT) AS tbl, json_type(c, '$.table') AS tbl_type, " +
        "json_type(c, '$.row') AS row_type, CAST(c ->> '$.old_id' AS TEXT) AS old_id, json_type(c, '$.old_id') AS old_type, " +
        '(SELECT json_group_array(key) FROM json_each(r)) AS keys ' +
        "FROM (SELECT idx, kind, iif(kind = 'object', change, NULL) AS c, r FROM temp._rowcast_stage) ORDER BY idx",
    );
    const outcome: Outcome = { plans: [], letters: new Map(), mixed: [] };
    const batch: Batch = {
      table: (name) => this.#registry.get(name),
      field: (idx, key) => this.#typed(idx, key),
      shapes: new Map(),
    };
    for (const change of staged) {
      const plan = planChange(change, batch);
      // Two spellings of one id must not be taken for two rows.
      if (plan.kind !== 'dead-letter' && plan.id.startsWith('$'))
        plan.id = String(this.#db.get(CANONICAL_ID, plan.id)?.id);
      outcome.plans.push(plan);
      if (plan.kind === 'dead-letter') outcome.letters.set(change.idx, plan);
      if (plan.kind === 'upsert' && plan.extra.length > 0) {
        outcome.letters.set(change.idx, {
          code: 'unknown-column',
          reason: `table "${plan.table.name}" has no column ${plan.extra.map((key) => JSON.stringify(key)).join(', ')} here; the others were applied`,
          unknownColumns: plan.extra,
        });
      }
    }
    return outcome;
  }

  #typed(idx: number, key: string | undefined): { type: string | null; value: string | number | null } {
    if (key === undefined) return { type: null, value: null };
    const found = this.#db.get<{ type: string; value: string | number }>(
      'SELECT e.type AS type, CAST(e.atom AS TEXT) AS value FROM temp._rowcast_stage AS s, json_each(s.r) AS e WHERE s.idx = ? AND e.key = ?',
      idx,
      key,
    );
    return found ?? { type: null, value: null };
  }

  /** Runs of ordinary changes are merged as sets; a row-less DELETE stands between two runs. */
  #mergeInOrder(outcome: Outcome): void {
    let start = 0;
    outcome.plans.forEach((plan, idx) => {
      if (plan.kind !== 'delete-any') return;
      this.#mergeRun(outcome, start, idx);
      start = idx + 1;
      // It has no version of its own, so what the same batch says of the row later stands against it: otherwise the batch,
      // sent again, would delete what it brought.
      const later = outcome.plans.slice(start).some((next) => next.kind !== 'dead-letter' && sameRow(next, plan));
      if (!later) this.#deleteAny(outcome, idx, plan);
    });
    this.#mergeRun(outcome, start, outcome.plans.length);
  }

  #mergeRun(outcome: Outcome, start: number, end: number): void {
    const deletions = new Map<Table, number[]>();
    const writes = new Map<Shape, { table: Table; indexes: number[] }>();
    for (let idx = start; idx < end; idx++) {
      const plan = outcome.plans[idx] as Plan;
      if (plan.kind === 'delete') {
        this.#prepareRow(idx, plan.table, plan.id);
        const indexes = deletions.get(plan.table) ?? [];
        deletions.set(plan.table, indexes);
        indexes.push(idx);
      } else if (plan.kind === 'upsert') {
        this.#prepareRow(idx, plan.table, plan.id, plan.shape);
        const group = writes.get(plan.shape) ?? { table: plan.table, indexes: [] };
        writes.set(plan.shape, group);
        group.indexes.push(idx);
      }
    }
    for (const [table, indexes] of deletions) {
      this.#bisect(outcome, indexes, [entombSql(table, STAGED), deleteSql(table, STAGED)]);
    }
    const groups = [...writes].map(([shape, group]) => ({ ...group, shape, whole: isInsertable(group.table, shape) }));
    const partial = groups
      .filter(({ table, shape }) => shape.fields.length < table.columns.length)
      .map((group) => ({ ...group, before: this.#inPlace(group) }));
    for (const { shape, table, indexes } of groups.filter(({ whole }) => whole)) {
      this.#bisect(outcome, indexes, [upsertSql(table, shape, STAGED)]);
    }
    // These could not be inserted, but may update a row that exists, or that the others have just brought.
    for (const { shape, table, indexes } of groups.filter(({ whole }) => !whole)) {
      for (const idx of indexes) {
        const exists = this.#db.get(
          `SELECT 1 AS n FROM ${quote(table.name)} WHERE ${quote(table.id)} = (SELECT id FROM temp._rowcast_stage WHERE idx = ?)`,
          idx,
        );
        this.#bisect(outcome, [idx], [exists ? updateSql(table, shape, STAGED) : upsertSql(table, shape, STAGED)]);
      }
    }
    this.#noteMixed(outcome, partial);
  }

  #noteMixed(outcome: Outcome, partial: (Group & { before: Set<number> })[]): void {
    for (const { before, ...group } of partial) {
      const indexes = [...this.#inPlace(group)].filter((idx) => !before.has(idx));
      if (indexes.length > 0) outcome.mixed.push({ ...group, indexes });
    }
  }

  /** Puts the decoded id and the time where the merge statements look for them. */
  #prepareRow(idx: number, table: Table, id: string, shape?: Shape): void {
    const key = shape?.fields.find((f) => f.column.name === table.updatedAt)?.key;
    const time = key === undefined ? this.#timeKey(idx, table) : key;
    this.#db.run(
      `UPDATE temp._rowcast_stage SET id = ${decode('v')}, ua = (SELECT e.atom FROM json_each(r) AS e WHERE e.key = ?) ` +
        'FROM (SELECT ? AS v) WHERE idx = ?',
      time,
      id,
      idx,
    );
  }

  #timeKey(idx: number, table: Table): string {
    const keys = this.#db.all<{ key: string }>(
      'SELECT e.key AS key FROM temp._rowcast_stage AS s, json_each(s.r) AS e WHERE s.idx = ?',
      idx,
    );
    if (keys.some(({ key }) => key === table.updatedAt)) return table.updatedAt;
    return keys.find(({ key }) => fold(key) === fold(table.updatedAt))?.key ?? table.updatedAt;
  }

  #bisect(outcome: Outcome, indexes: number[], statements: string[]): void {
    if (indexes.length === 0) return;
    // A statement that cannot even be prepared (a broken trigger of the application) is not the fault of any row.
    for (const sql of statements) this.#db.prepare(sql);
    this.#select(indexes);
    try {
      this.#db.savepoint(() => {
        for (const sql of statements) this.#db.run(sql);
      });
    } catch (error) {
      if (!isRowFault(error)) throw error;
      if (indexes.length === 1) {
        const idx = indexes[0] as number;
        // What else it needs, a column that is not here yet, is not forgotten over it.
        const unknownColumns = outcome.letters.get(idx)?.unknownColumns;
        outcome.letters.set(idx, {
          code: 'constraint',
          reason: messageOf(error),
          ...(unknownColumns && { unknownColumns }),
        });
        return;
      }
      const middle = indexes.length >> 1;
      this.#bisect(outcome, indexes.slice(0, middle), statements);
      this.#bisect(outcome, indexes.slice(middle), statements);
    }
  }

  #deleteAny(outcome: Outcome, idx: number, plan: Extract<Plan, { kind: 'delete-any' }>): void {
    try {
      this.#db.savepoint(() => this.#deleteWhatIsThere(plan));
    } catch (error) {
      if (!isRowFault(error)) throw error;
      outcome.letters.set(idx, { code: 'constraint', reason: messageOf(error) });
    }
  }

  #deleteWhatIsThere(plan: Extract<Plan, { kind: 'delete-any' }>): void {
    const { table } = plan;
    const id = `(SELECT ${decode('v')} FROM (SELECT ? AS v))`;
    const where = `WHERE ${quote(table.id)} = ${id}`;
    this.#db.run(
      `INSERT INTO _tombstones (table_name, row_id, version) SELECT ${literal(table.name)}, ${quote(table.id)}, ` +
        `${quote(table.updatedAt)} FROM ${quote(table.name)} ${where} ON CONFLICT DO UPDATE SET version = max(version, excluded.version)`,
      plan.id,
    );
    this.#db.run(`DELETE FROM ${quote(table.name)} ${where}`, plan.id);
  }

  #report(outcome: Outcome, from: string | undefined): Merged {
    const settled = this.#settled(outcome);
    const rows: RowRef[] = [];
    outcome.plans.forEach((plan, idx) => {
      if (plan.kind === 'dead-letter' || outcome.letters.has(idx)) return;
      const inPlace = plan.kind === 'delete-any' || settled.has(`${plan.table.name}\n${plan.id}`);
      if (inPlace) rows.push({ op: plan.op, table: plan.table.name, id: plan.id });
    });
    const rejected = [...outcome.letters].map(([index, { code, reason }]) => ({
      index,
      code,
      // The letter has all of it; the answer must stay one that a sender reads.
      message: reason.length > MESSAGE_MAX ? `${reason.slice(0, MESSAGE_MAX)}...` : reason,
    }));
    const letters = [...outcome.letters].map(([index, { code, reason }]) => {
      const { op, table, rowId } = this.#letterOf(index);
      const row = { op: (op ?? 'UPDATE') as Op, table: table ?? '', id: rowId ?? '' };
      return { direction: 'in' as const, peer: from, code, reason, rows: [row] };
    });
    return { applied: rows.length, rows, rejected: rejected.sort((a, b) => a.index - b.index), letters };
  }

  /** The rows, as table and wire id, whose newest version in this batch is the one that stands. */
  #settled(outcome: Outcome): Set<string> {
    const found = new Set<string>();
    const groups = new Map<string, { sql: string; indexes: number[]; table: Table }>();
    outcome.plans.forEach((plan, idx) => {
      if (plan.kind !== 'upsert' && plan.kind !== 'delete') return;
      const sql =
        plan.kind === 'delete'
          ? settledDeletesSql(plan.table, STAGED)
          : settledUpsertsSql(plan.table, plan.shape, STAGED);
      const group = groups.get(sql) ?? { sql, indexes: [], table: plan.table };
      groups.set(sql, group);
      group.indexes.push(idx);
    });
    for (const { sql, indexes, table } of groups.values()) {
      this.#select(indexes);
      for (const { idx } of this.#db.all<{ idx: number }>(sql)) {
        found.add(`${table.name}\n${(outcome.plans[idx] as Extract<Plan, { id: string }>).id}`);
      }
    }
    return found;
  }

  #letterOf(index: number): {
    op: string | null;
    table: string | null;
    rowId: string | null;
    row: string | null;
    change: string;
  } {
    const found = this.#db.get<{ change: string }>(
      "SELECT iif(kind IN ('object', 'array'), json(change), change) AS change FROM temp._rowcast_stage WHERE idx = ?",
      index,
    );
    const change = found?.change ?? 'null';
    const parts = this.#db.get<Record<'op' | 'tbl' | 'old_id' | 'id' | 'r', string | null>>(
      "SELECT CAST(c ->> '$.op' AS TEXT) AS op, CAST(c ->> '$.table' AS TEXT) AS tbl, CAST(c ->> '$.old_id' AS TEXT) AS old_id, " +
        "(SELECT CAST(e.atom AS TEXT) FROM json_each(c, '$.row') AS e WHERE e.key = 'id' COLLATE NOCASE) AS id, " +
        "c -> '$.row' AS r FROM (SELECT ? AS c)",
      change,
    );
    return {
      op: parts?.op ?? null,
      table: parts?.tbl ?? null,
      rowId: parts?.id ?? parts?.old_id ?? null,
      row: parts?.r ?? null,
      change,
    };
  }
}

/** Characters of a reason in the answer. */
const MESSAGE_MAX = 200;

/** The changes of the current group, as the merge statements want them. */
const STAGED: Source = {
  sql: 'SELECT idx, id, ua, r FROM temp._rowcast_stage WHERE grp = 1 ORDER BY idx LIMIT -1',
  id: 's.id',
  ua: 's.ua',
};

/** Has the shape every column without which the table takes no row? */
function isInsertable(table: Table, shape: Shape): boolean {
  const supplied = new Set(shape.fields.map(({ column }) => column));
  return table.columns.every((column) => !column.required || supplied.has(column));
}

function sameRow(a: Exclude<Plan, { kind: 'dead-letter' }>, b: Exclude<Plan, { kind: 'dead-letter' }>): boolean {
  return a.table === b.table && a.id === b.id;
}
