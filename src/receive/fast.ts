/**
 * The fast way to apply a batch: SQLite merges it straight from the body, with a handful of statements per table, and no
 * row ever becomes a JavaScript object. It is for batches in which every change is regular and has exactly the columns of
 * its table. A body from a node with the same schema says so by its text (plain-body.ts), and is merged without further
 * checks; of any other it finds out while it merges, and takes everything back where it is not so.
 */

import type { Registry } from '../capture/registry.ts';
import type { RowcastEvents, RowRef } from '../events.ts';
import { type Connection, isRowFault } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { literal } from '../sqlite/sql.ts';
import type { Rejection } from '../wire/protocol.ts';
import { TIMESTAMP_MAX } from '../wire/protocol.ts';
import type { BatchDocument } from '../wire/read-batch.ts';
import {
  deleteSql,
  entombSql,
  fieldOf,
  fullShape,
  hasAllFields,
  keyShape,
  type Shape,
  type Source,
  settledRowsSql,
  tallySql,
  upsertSql,
} from './merge.ts';
import { PlainBodies, type PlainPart } from './plain-body.ts';

/** What one way through a batch yields. */
export interface Merged {
  applied: number;
  rows: RowRef[];
  rejected: Rejection[];
  letters: RowcastEvents['dead-letter'][];
}

/** A table of the batch, and what the batch's outside says of its changes. */
interface Part {
  table: Table;
  /** The first change is a write: most likely all of them are. */
  writes: boolean;
  /** Too few keys for whole rows: regular only if all are deletions, which need no more than id and time. */
  deletionsOnly: boolean;
}

interface Tally {
  applied: number;
  regular: number;
  deletions: number;
}

interface Merge {
  entomb: string;
  remove: string;
  write: string;
  tally: string;
}

interface Statements {
  /** Check every change; what they leave out is not regular. */
  checked: Merge;
  /** For a plain body: of changes to several tables or of both kinds, of writes alone, of deletions alone. */
  plain: { mixed: Merge; writes: Merge; deletions: Merge };
  settled: string;
}

export class FastApply {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #plain: PlainBodies;
  readonly #statements = new WeakMap<Table, Statements>();

  constructor(db: Connection, registry: Registry) {
    this.#db = db;
    this.#registry = registry;
    this.#plain = new PlainBodies((name) => {
      const table = registry.get(name);
      return table?.name === name ? table : undefined;
    });
  }

  /** Undefined where the batch holds anything out of the ordinary: then nothing has been decided yet. */
  merge(document: BatchDocument, wantRows: boolean): Merged | undefined {
    if (!this.#registry.features.jsonb) return undefined;
    try {
      // A savepoint, so that the careful way starts from the state before the batch.
      return this.#db.savepoint(() => {
        const plain = this.#plain.recognise(document.text);
        const checked = plain ? [] : this.#parts(document);
        const applied = plain ? this.#mergePlain(document, plain) : this.#mergeChecked(document, checked);
        const tables = wantRows ? (plain ?? checked).map(({ table }) => table) : [];
        const rows = tables.flatMap((table) => this.#db.all<RowRef>(this.#of(table).settled, document.json));
        return { applied, rows, rejected: [], letters: [] };
      });
    } catch (error) {
      if (error instanceof NotRegular || isRowFault(error)) return undefined;
      throw error;
    }
  }

  #mergePlain(document: BatchDocument, parts: PlainPart[]): number {
    let applied = 0;
    for (const { table, writes, deletions } of parts) {
      const { mixed, ...sole } = this.#of(table).plain;
      const merge =
        parts.length > 1 || (writes > 0 && deletions > 0) ? mixed : writes > 0 ? sole.writes : sole.deletions;
      let won = 0;
      // Deletions first: they only ever make room for others.
      if (deletions > 0) {
        this.#db.run(merge.entomb, document.json);
        won += this.#db.changes();
        this.#db.run(merge.remove, document.json);
      }
      if (writes > 0) {
        this.#db.run(merge.write, document.json);
        won += this.#db.changes();
      }
      // Every single change won: the ordinary case. Otherwise those that were in place already count as well.
      applied += won === writes + deletions ? won : this.#tally(document, merge).applied;
    }
    return applied;
  }

  #mergeChecked(document: BatchDocument, parts: Part[]): number {
    let regular = 0;
    let applied = 0;
    for (const part of parts) {
      const tally = this.#mergePart(document, part);
      regular += tally.regular;
      applied += tally.applied;
    }
    if (regular !== document.count) throw new NotRegular();
    return applied;
  }

  /**
   * The tables of the batch. Every key of every object is accounted for: more keys than the columns explain means a
   * column that is not known here. That none is missing is checked by the statements themselves.
   */
  #parts(document: BatchDocument): Part[] {
    const ends = this.#db.get<{ first: unknown; last: unknown; deletes: number }>(
      "SELECT CAST(d ->> '$.changes[0].table' AS TEXT) AS first, CAST(d ->> '$.changes[#-1].table' AS TEXT) AS last, " +
        "d ->> '$.changes[0].op' IS 'DELETE' AS deletes FROM (SELECT ? AS d LIMIT -1)",
      document.json,
    );
    // Nearly every batch is about one table, and its two ends tell which. Where the text looks as if they deceived, the
    // changes are asked one by one; where they do all the same, the count comes out short.
    const sole =
      typeof ends?.first === 'string' &&
      ends.first === ends.last &&
      namesOnly(ends.first, document.text, document.count);
    const found = sole
      ? [{ tbl: ends.first, n: document.count }]
      : this.#db.all<{ tbl: unknown; n: number }>(
          `SELECT CAST(tbl AS TEXT) AS tbl, count(*) AS n FROM (${CHANGES}) GROUP BY 1`,
          document.json,
        );
    let whole = 2;
    const tables = found.map(({ tbl, n }) => {
      const table = typeof tbl === 'string' ? this.#registry.get(tbl) : undefined;
      if (!table || table.name !== tbl) throw new NotRegular();
      whole += n * (4 + table.columns.length);
      return table;
    });
    const keys = countKeys(document.text);
    if (keys === undefined || keys > whole) throw new NotRegular();
    const deletionsOnly = keys < whole;
    return tables.map((table) => ({
      table,
      writes: sole && ends.deletes === 0,
      deletionsOnly,
    }));
  }

  #mergePart(document: BatchDocument, part: Part): { applied: number; regular: number } {
    const merge = this.#of(part.table).checked;
    // Deletions first: they only ever make room for others.
    if (!part.writes) this.#mergeDeletions(document, merge);
    if (!part.deletionsOnly) {
      this.#db.run(merge.write, document.json);
      // Every single change was regular and won: the ordinary case, and the end of it.
      if (this.#db.changes() === document.count) return { applied: document.count, regular: document.count };
    }
    let tally = this.#tally(document, merge);
    if (part.writes && tally.deletions > 0) {
      this.#mergeDeletions(document, merge);
      tally = this.#tally(document, merge);
    }
    return { applied: tally.applied, regular: part.deletionsOnly ? tally.deletions : tally.regular };
  }

  #mergeDeletions(document: BatchDocument, { entomb, remove }: Merge): void {
    this.#db.run(entomb, document.json);
    this.#db.run(remove, document.json);
  }

  #tally(document: BatchDocument, { tally }: Merge): Tally {
    return this.#db.get<Tally & Record<string, never>>(tally, document.json) as Tally;
  }

  /** The texts are long; they are made once per table and schema. */
  #of(table: Table): Statements {
    const known = this.#statements.get(table);
    if (known) return known;
    const made = statementsFor(table);
    this.#statements.set(table, made);
    return made;
  }
}

class NotRegular extends Error {}

/** One line per change. A change that is not an object makes SQLite complain, and the careful way takes over. */
const CHANGES = changes("json_type(value, '$.old_id') AS old_type");
const CHANGES_WITH_OLD_ID = changes("json_type(value, '$.old_id') AS old_type, value ->> '$.old_id' AS old_id");

function changes(more: string): string {
  return (
    `SELECT key AS idx, value ->> '$.op' AS op, value ->> '$.table' AS tbl, jsonb_extract(value, '$.row') AS r, ${more} ` +
    "FROM jsonb_each(?, '$.changes') LIMIT -1"
  );
}

function statementsFor(table: Table): Statements {
  const shape = fullShape(table);
  const whole = plain(table, shape);
  const key = plain(table, keyShape(table));
  const isWrite = `s.op IN ('INSERT', 'UPDATE') AND s.old_type IS NOT NULL AND ${hasAllFields(shape)}`;
  const isDeletion = (id: string): string => `s.op = 'DELETE' AND s.old_id = ${id} AND typeof(s.r) = 'blob'`;
  const deletions = { sql: CHANGES_WITH_OLD_ID, ...key, where: `${isDeletion(key.id)} AND ${key.where}` };
  const all = { sql: CHANGES_WITH_OLD_ID, id: whole.id, ua: whole.ua, where: `s.tbl = ${literal(table.name)}` };
  const deletion = `(${isDeletion(whole.id)} AND ${whole.where})`;
  // A deletion with a short row is as good as any, but it would make room for an unknown column in the count of keys.
  const regular = `(${whole.where} AND iif(s.op = 'DELETE', ${isDeletion(whole.id)} AND ${hasAllFields(shape)}, ${isWrite}))`;
  return {
    checked: {
      entomb: entombSql(table, deletions),
      remove: deleteSql(table, deletions),
      write: upsertSql(table, shape, { sql: CHANGES, ...whole, where: `${isWrite} AND ${whole.where}` }),
      tally: tallySql(table, shape, all, { regular, deletion }),
    },
    plain: {
      mixed: plainMerge(
        table,
        (where) =>
          `value ->> '$.op' AS op, ${PLAIN_ROW} WHERE value ->> '$.table' = ${literal(table.name)} AND ${where}`,
      ),
      writes: plainMerge(table, () => `'INSERT' AS op, ${PLAIN_ROW}`),
      deletions: plainMerge(table, () => `'DELETE' AS op, ${PLAIN_ROW}`),
    },
    settled: settledRowsSql(table, shape, all),
  };
}

const PLAIN_ROW = "jsonb_extract(value, '$.row') AS r FROM jsonb_each(?, '$.changes')";

/** `lines` selects the changes that meet a condition on `value`. */
function plainMerge(table: Table, lines: (where: string) => string): Merge {
  const source = (shape: Shape, where: string): Source => ({
    sql: `SELECT key AS idx, ${lines(where)} LIMIT -1`,
    id: fieldOf(shape, table.id),
    ua: fieldOf(shape, table.updatedAt),
    verbatim: true,
  });
  const shape = fullShape(table);
  const deletions = source(keyShape(table), "value ->> '$.op' = 'DELETE'");
  return {
    entomb: entombSql(table, deletions),
    remove: deleteSql(table, deletions),
    write: upsertSql(table, shape, source(shape, "value ->> '$.op' <> 'DELETE'")),
    tally: tallySql(table, shape, source(shape, 'true'), { regular: '1', deletion: '0' }),
  };
}

/** Does every change name this table, as far as the text tells? */
function namesOnly(table: string, text: string, count: number): boolean {
  const name = Buffer.from(`"table":${JSON.stringify(table)}`).toString('latin1');
  let found = 0;
  for (let at = text.indexOf(name); at >= 0; at = text.indexOf(name, at + name.length)) found += 1;
  return found >= count;
}

/**
 * Every key of a JSON object ends in `":`, and inside a string the quote would be escaped; only one that belongs to an
 * escaped quote is counted too many. White space before a colon is legal and makes the count meaningless.
 */
function countKeys(text: string): number | undefined {
  if (/"[ \t\r\n]+:/.test(text)) return undefined;
  let keys = 0;
  for (let at = text.indexOf('":'); at >= 0; at = text.indexOf('":', at + 2)) keys += 1;
  return keys;
}

/**
 * What makes a change regular: an id that is plain text (nested JSON reads as text beginning with a bracket, encoded ids
 * begin with `$`) and a time that is an integer in range (true and false read as 1 and 0).
 */
function plain(table: Table, shape: Shape): { id: string; ua: string; where: string } {
  const id = fieldOf(shape, table.id);
  const ua = fieldOf(shape, table.updatedAt);
  return {
    id,
    ua,
    where:
      `s.tbl = ${literal(table.name)} AND typeof(${id}) = 'text' AND NOT (${id} >= '$' AND ${id} < '%') ` +
      `AND NOT (${id} >= '[' AND ${id} < '\\') AND NOT (${id} >= '{' AND ${id} < '|') AND typeof(${ua}) = 'integer' ` +
      `AND (${ua} BETWEEN 2 AND ${TIMESTAMP_MAX} OR ${ua} BETWEEN -${TIMESTAMP_MAX} AND -1)`,
  };
}
