/**
 * The fast way to apply a batch: SQLite merges it straight from the body, with a handful of statements per table, and no
 * row ever becomes a JavaScript object. It is for regular bodies (regular-body.ts) whose rows have exactly the columns of
 * their tables, which is what a node with the same schema sends. Where a row cannot be written all the same, everything is
 * taken back and the careful way begins from the state before the batch.
 */

import type { Registry } from '../capture/registry.ts';
import { hasStampsOf } from '../capture/stamps.ts';
import { SET_SYNCING } from '../capture/versions.ts';
import type { RowRef } from '../events.ts';
import type { Journal } from '../journal/journal.ts';
import { type Connection, TransactionLost, type Value } from '../sqlite/connection.ts';
import { isMachineFault } from '../sqlite/result-codes.ts';
import type { Table } from '../sqlite/schema.ts';
import { literal } from '../sqlite/sql.ts';
import type { BatchDocument, TabularDocument } from '../wire/read-batch.ts';
import type { TabularHead } from '../wire/tabular.ts';
import { KeptOut } from './kept-out.ts';
import {
  beatenByDeletesSql,
  belowFloorSql,
  deleteSql,
  entombSql,
  fieldOf,
  fullShape,
  keyShape,
  type Shape,
  type Source,
  settledRowsSql,
  tallySql,
  tiesSql,
  unwrittenSql,
  upsertSql,
} from './merge.ts';
import type { Delivery, Merged } from './outcome.ts';
import { overwrittenSql, ROWS_BOUND, seenInBody, seenInRows } from './overwritten.ts';
import { type RegularPart, SEEN_IN_REGULAR, SEEN_IN_TABULAR } from './regular-body.ts';
import type { UniqueRows } from './unique.ts';

interface Statements {
  entomb: string;
  remove: string;
  write: string;
  tally: string;
  ties: string;
  /** Where the table has a floor. */
  below: string | undefined;
  settled: string;
  /** For the conflict journal. */
  overwritten: string;
  /** Where triggers may keep changes out: those of each kind that they have. */
  keptOut: { writes: string; deletions: string } | undefined;
}

/** What came of it; `passed`: nothing has been decided yet, `isRefused` where that is because a row could not be written. */
export type FastOutcome = { kind: 'merged'; merged: Merged } | { kind: 'passed'; isRefused: boolean };

/** Of changes to several tables or of both kinds, of writes alone, of deletions alone; the op of a tabular body. */
type Kind = 'mixed' | 'writes' | 'deletions' | TabularHead['op'];

type Document = BatchDocument | TabularDocument;

export class FastApply {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #unique: UniqueRows;
  readonly #journal: Journal;
  readonly #statements = new WeakMap<Table, Map<string, Statements>>();

  constructor(db: Connection, registry: Registry, unique: UniqueRows, journal: Journal) {
    this.#db = db;
    this.#registry = registry;
    this.#unique = unique;
    this.#journal = journal;
  }

  /** `parts` are those of a regular body. */
  merge(document: Document, parts: RegularPart[] | undefined, delivery: Delivery): FastOutcome {
    // A row that is hidden is not in its table, where these statements would look for it, nor is a version that was refused.
    // And triggers of the application that fire are to see an UPDATE where a row is.
    const suits = ({ table, spelling }: RegularPart): boolean =>
      spelling.fits && !table.fires && !this.#unique.hasHidden(table) && !hasStampsOf(this.#db, table);
    if (!this.#registry.features.jsonb || !parts?.every(suits)) return { kind: 'passed', isRefused: false };
    try {
      const merged = this.#db.savepoint(() => this.#mergeParts(document, parts, delivery));
      return { kind: 'merged', merged };
    } catch (error) {
      if (error instanceof TransactionLost || isMachineFault(error)) throw error;
      return { kind: 'passed', isRefused: !(error instanceof Irregular) };
    }
  }

  /** How many changes of a tabular batch are `applied`, as things stand. */
  tally(document: TabularDocument, table: Table): number {
    const { tally } = this.#of(table, document.tabular.op, document);
    return Number(this.#db.get(tally, ...boundBy(document))?.applied);
  }

  #mergeParts(document: Document, parts: RegularPart[], delivery: Delivery): Merged {
    let applied = 0;
    const rows: RowRef[] = [];
    const sign = document.tabular ? SEEN_IN_TABULAR : SEEN_IN_REGULAR;
    const notes = this.#journal.begin(document.text, delivery.from, sign);
    const bound = boundBy(document);
    for (const part of parts) {
      const { table, writes, deletions } = part;
      const mixed = parts.length > 1 || (writes > 0 && deletions > 0);
      const kind = document.tabular?.op ?? (mixed ? 'mixed' : writes > 0 ? 'writes' : 'deletions');
      const merge = this.#of(table, kind, document);
      if (writes > 0) notes?.take(table, merge.overwritten, ...bound);
      const won = this.#mergePart(bound, part, merge);
      if (merge.keptOut) this.#refuseKeptOut(bound, part, merge.keptOut);
      // Every single change won: the ordinary case. Otherwise those that were in place already count as well.
      if (won === writes + deletions) applied += won;
      else {
        // Only where a change has lost may it have lost against an earlier one of the same sender.
        if (!delivery.isRowcast && this.#db.get(merge.ties, ...bound)) throw new Irregular();
        // Below the floor, a row that is not live here becomes a letter.
        if (merge.below !== undefined && writes > 0 && this.#db.get(merge.below, ...bound)) throw new Irregular();
        applied += Number(this.#db.get(merge.tally, ...bound)?.applied);
      }
      if (delivery.wantRows) rows.push(...this.#db.all<RowRef>(merge.settled, ...bound));
    }
    return { applied, rows, rejected: [], letters: [], conflicts: this.#journal.finish(notes) };
  }

  /** How many changes have won. Deletions first: they only ever make room for others. */
  #mergePart(bound: Value[], { writes, deletions }: RegularPart, merge: Statements): number {
    let won = 0;
    if (deletions > 0) {
      this.#db.run(merge.entomb, ...bound);
      won += this.#db.changes();
      this.#db.run(merge.remove, ...bound);
    }
    if (writes > 0) {
      // Once more, and right before it: what the triggers look up first goes by it.
      this.#db.run(SET_SYNCING);
      this.#db.run(merge.write, ...bound);
      won += this.#db.changes();
    }
    return won;
  }

  /** The careful way finds out which ones, and takes the tombstones of rows back that are still here. */
  #refuseKeptOut(
    bound: Value[],
    { table, writes, deletions }: RegularPart,
    keptOut: { writes: string; deletions: string },
  ): void {
    if (deletions > 0 && this.#db.get(keptOut.deletions, ...bound)) throw new KeptOut(table);
    if (writes > 0 && this.#db.get(keptOut.writes, ...bound)) throw new KeptOut(table);
  }

  /** The texts are long; they are made once per table and schema. */
  #of(table: Table, kind: Kind, { isEncoded, isLarge }: Document): Statements {
    const known = this.#statements.get(table) ?? new Map<string, Statements>();
    this.#statements.set(table, known);
    const key = `${kind} ${isEncoded} ${isLarge}`;
    const made = known.get(key) ?? statementsFor(table, kind, { verbatim: !isEncoded, large: isLarge });
    known.set(key, made);
    return made;
  }
}

/** What the statements of a document bind: of a tabular one the rows that are meant, too, since it may be a part of its body. */
function boundBy({ json, tabular, count, skip }: Document): Value[] {
  return tabular ? [json, count, skip] : [json];
}

/** Not for the fast way after all. */
class Irregular extends Error {}

function statementsFor(table: Table, kind: Kind, values: Pick<Source, 'verbatim' | 'large'>): Statements {
  const isTabular = kind === 'INSERT' || kind === 'UPDATE';
  const row = "jsonb_extract(value, '$.row') AS r FROM jsonb_each(?, '$.changes')";
  const lines = (where: string): string => {
    if (isTabular) return `'${kind}' AS op, value AS r FROM jsonb_each(?, '$.rows')`;
    if (kind === 'writes') return `'INSERT' AS op, ${row}`;
    if (kind === 'deletions') return `'DELETE' AS op, ${row}`;
    return `value ->> '$.op' AS op, ${row} WHERE value ->> '$.table' = ${literal(table.wireName)} AND ${where}`;
  };
  const source = (shape: Shape, where: string): Source => ({
    sql: `SELECT key AS idx, ${lines(where)} LIMIT ${isTabular ? ROWS_BOUND : '-1'}`,
    columns: ['idx', 'op', 'r'],
    id: fieldOf(shape, table.id),
    ua: fieldOf(shape, table.updatedAt),
    ...values,
    ...(isTabular && { order: table.columns }),
  });
  const shape = fullShape(table);
  const key = keyShape(table);
  const deletions = source(key, "value ->> '$.op' = 'DELETE'");
  const writes = source(shape, "value ->> '$.op' <> 'DELETE'");
  const ops = `SELECT key AS idx, value ->> '$.op' AS op, ${row} WHERE value ->> '$.table' = ${literal(table.wireName)} LIMIT -1`;
  const ofTable = kind === 'mixed' ? ` WHERE value ->> '$.table' = ${literal(table.wireName)}` : '';
  return {
    overwritten: overwrittenSql(table, shape, isTabular ? seenInRows(table) : seenInBody(table, ofTable)),
    entomb: entombSql(table, deletions),
    remove: deleteSql(table, deletions),
    write: upsertSql(table, shape, writes),
    keptOut: table.ignores
      ? { writes: unwrittenSql(table, shape, writes), deletions: beatenByDeletesSql(table, deletions) }
      : undefined,
    tally: tallySql(table, shape, source(shape, 'true')),
    below: table.floor === undefined ? undefined : belowFloorSql(table, source(key, "value ->> '$.op' <> 'DELETE'")),
    ties: tiesSql(table, source(key, 'true')),
    settled: settledRowsSql(table, shape, { ...source(shape, 'true'), ...(!isTabular && { sql: ops }) }),
  };
}
