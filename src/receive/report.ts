/**
 * What came of a batch that went the careful way: which changes count as applied, which became dead letters and why, and
 * what the sender and the application are told of it.
 */

import type { RowRef } from '../events.ts';
import type { DeadLetters, LetterContent } from '../letters/dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { literal, quote } from '../sqlite/sql.ts';
import { contentOfWire } from '../wire/content.ts';
import type { Op, Rejection, RejectionCode } from '../wire/protocol.ts';
import type { BatchDocument } from '../wire/read-batch.ts';
import { faultOf } from './forbidden.ts';
import type { Source } from './merge.ts';
import type { Delivery, Merged } from './outcome.ts';
import { type Group, type Sorted, STAGE, type Stage } from './stage.ts';

export interface Reason {
  code: RejectionCode;
  reason: string;
  /** Of a change that waits for its time: its version. */
  version?: number;
  /** It is told to the sender, and not kept. */
  isTooMuch?: boolean;
}

/** A batch on its way through. */
export interface Work {
  sorted: Sorted;
  source: Source;
  /** Changes that become a letter of their own, by index. */
  letters: Map<number, Reason>;
  /** How many changes of a group have won or were set aside. */
  decided: Map<Group, number>;
  /** Groups of which every change that was not set aside has won. */
  won: Set<Group>;
  /** How many changes were merged by themselves, because a UNIQUE value keeps their row out of the table. */
  apart: number;
  /** Some row of it is known to be one that cannot be written. */
  isRefused: boolean;
}

/** True of the changes that are what stands. Groups of which all have won are not marked change by change. */
export function isPlaced({ won }: Work): string {
  return `iif(${isAmong(won)}, letter IS NULL, placed IS 1)`;
}

function isAmong(groups: Iterable<Group>): string {
  return `grp IN (${[...groups].map(({ number }) => number).join(', ')})`;
}

export class Report {
  readonly #db: Connection;
  readonly #letters: DeadLetters;
  readonly #stage: Stage;

  constructor(db: Connection, letters: DeadLetters, stage: Stage) {
    this.#db = db;
    this.#letters = letters;
    this.#stage = stage;
  }

  /** Notes which changes become letters of their own. */
  markLetters({ letters }: Work): void {
    if (letters.size === 0) return;
    const indexes = JSON.stringify([...letters.keys()]);
    this.#db.run(`UPDATE ${STAGE} SET letter = 1 WHERE idx IN (SELECT value FROM json_each(?))`, indexes);
  }

  /** Keeps the letters, counts, and empties the stage. */
  finish(document: BatchDocument, work: Work, delivery: Delivery): Merged {
    const rejected: Rejection[] = [];
    const events: Merged['letters'] = [];
    const tell = (code: RejectionCode, reason: string, rows: RowRef[]): void => {
      if (delivery.wantLetters) events.push({ direction: 'in', peer: delivery.from, code, reason, rows });
    };
    for (const group of work.sorted.groups.filter(isBeyond)) {
      const { reason, rows } = this.#keepUnknownColumns(group, work, delivery);
      const message = shortened(reason);
      for (const index of this.#indexesOf(group, work, document)) {
        if (!work.letters.has(index)) rejected.push({ index, code: 'unknown-column', message });
      }
      if (rows.length > 0) tell('unknown-column', reason, rows);
    }
    let kept = rejected.length;
    for (const [index, letter] of this.#contents(document, work.letters)) {
      const { code, reason, version, isTooMuch } = work.letters.get(index) as Reason;
      const fault = faultOf(delivery.rights, code, reason);
      if (fault !== undefined) {
        rejected.push({ index, code: 'forbidden', message: shortened(fault) });
        continue;
      }
      if (!isTooMuch) {
        kept += 1;
        this.#letters.keepReceived(letter, { code, reason, version, from: delivery.from });
      }
      rejected.push({ index, code, message: shortened(reason) });
      const { op, table, rowId } = letter;
      tell(code, reason, [{ op: (op ?? 'UPDATE') as Op, table: table ?? '', id: rowId ?? '' }]);
    }
    if (!delivery.again) this.#letters.room.claim(delivery.from, { letters: kept, bytes: document.json.length });
    rejected.sort((a, b) => a.index - b.index);
    const result = this.#count(work, delivery.wantRows);
    this.#stage.empty();
    return { ...result, rejected, letters: events, conflicts: [] };
  }

  /**
   * The known columns were merged with the others. A value of an unknown one is kept where its change is what stands, to be
   * filled in when the column is there; a change that is older than what stands has lost with all its columns. One of the
   * same time may have lost here and yet win where the column is known, because it counts there: of several of one time
   * the greatest is kept, and when the column is there it is decided once more.
   */
  #keepUnknownColumns(group: Group, work: Work, delivery: Delivery): { reason: string; rows: RowRef[] } {
    const { table, extra, number } = group;
    const names = extra.map((key) => JSON.stringify(key)).join(', ');
    const reason = `table "${table.name}" has no column ${names} here; the others were applied`;
    this.#db.run(`UPDATE ${STAGE} SET placed = NULL WHERE grp = ? AND letter = 1 AND placed = 1`, number);
    const several = this.#db.get(
      `SELECT 1 AS n FROM ${STAGE} WHERE grp = ? GROUP BY wire HAVING count(*) > 1 LIMIT 1`,
      number,
    );
    // Of a row that has one change here, which has won, that change is what stands.
    const stands = work.won.has(group) && !several;
    if (!stands) {
      const tied = `grp = ? AND letter IS NULL AND ${isOfThePresentTime(table)}`;
      this.#db.run(`UPDATE ${STAGE} AS s SET tied = 1 WHERE ${tied}`, number);
    }
    const those = `grp = ? AND ${stands ? 'letter IS NULL' : 'tied = 1'}`;
    const each = `SELECT idx, op, wire AS row_id, json(r) AS row FROM ${STAGE} WHERE ${those}`;
    this.#letters.unknownColumns.keep(several ? greatestOfEach(those) : each, [number], {
      table: table.name,
      columns: extra,
      reason,
      from: delivery.from,
    });
    if (!delivery.wantLetters) return { reason, rows: [] };
    const kept = `SELECT op, wire FROM ${STAGE} WHERE ${those} ORDER BY idx`;
    const rows = this.#db.all<{ op: Op; wire: string }>(kept, number);
    return { reason, rows: rows.map(({ op, wire }) => ({ op, table: table.name, id: wire })) };
  }

  /** As one text: a thousand lines of one number each would cost more than all that is done with them. */
  #indexesOf(group: Group, { won }: Work, { count }: BatchDocument): number[] {
    const { number, size } = group;
    if (won.has(group) && size === count) return Array.from({ length: count }, (_, index) => index);
    const sql = `SELECT json_group_array(idx ORDER BY idx) AS indexes FROM ${STAGE} WHERE grp = ?`;
    return JSON.parse(String(this.#db.get(sql, number)?.indexes));
  }

  /** The changes of the given indexes, as letters keep them. */
  *#contents(document: BatchDocument, letters: Map<number, Reason>): Generator<[number, LetterContent]> {
    if (letters.size === 0) return;
    const found = this.#db.all<LetterContent & { idx: number }>(
      `SELECT idx, change, op, "table", "row", coalesce(id, old_id) AS rowId FROM (SELECT idx, change, ` +
        `CAST(c ->> '$.op' AS TEXT) AS op, CAST(c ->> '$.table' AS TEXT) AS "table", c -> '$.row' AS "row", ` +
        "(SELECT CAST(e.atom AS TEXT) FROM json_each(c, '$.row') AS e WHERE e.key = 'id' COLLATE NOCASE) AS id, " +
        "CAST(c ->> '$.old_id' AS TEXT) AS old_id FROM (SELECT key AS idx, iif(type IN ('object', 'array'), json(value), NULL) AS c, " +
        "CASE WHEN type IN ('object', 'array') THEN json(value) WHEN type IN ('true', 'false') THEN type " +
        `ELSE json_quote(atom) END AS change FROM json_each(?, '$.changes') AS e ` +
        `WHERE EXISTS (SELECT 1 FROM ${STAGE} AS s WHERE s.idx = e.key AND s.letter = 1) LIMIT -1) LIMIT -1)`,
      document.json,
    );
    for (const { idx, ...parts } of found) if (letters.has(idx)) yield [idx, parts];
  }

  /**
   * A row whose newest version in this batch is the one that stands counts with all its changes, those apart that were set
   * aside; so does a row-less DELETE.
   */
  #count(work: Work, wantRows: boolean): { applied: number; rows: RowRef[] } {
    const { groups, rowless: all } = work.sorted;
    const rowless = all.filter(({ idx }) => !work.letters.has(idx));
    // What brings a column that is not here is rejected, though it may be what stands.
    const counted = `grp IS NOT NULL AND letter IS NULL AND NOT ${isAmong(groups.filter(isBeyond))}`;
    if (!wantRows) {
      const first = (where: string): unknown => this.#db.get(`SELECT 1 AS n FROM ${STAGE} WHERE ${where} LIMIT 1`);
      if (!first(counted)) return { applied: rowless.length, rows: [] };
      const from = first(`${counted} AND NOT ${isPlaced(work)}`)
        ? `${standing(work)} AND ${counted}`
        : `${STAGE} WHERE ${counted}`;
      return { applied: rowless.length + Number(this.#db.get(`SELECT count(*) AS n FROM ${from}`)?.n), rows: [] };
    }
    const found = this.#db.all<RowRef & { idx: number }>(
      `SELECT idx, op, tbl AS "table", wire AS id FROM ${standing(work)} AND ${counted} ORDER BY idx`,
    );
    for (const { idx, plan } of rowless) found.push({ idx, op: plan.op, table: plan.table.name, id: plan.id });
    const rows = found.sort((a, b) => a.idx - b.idx).map(({ op, table, id }) => ({ op, table, id }));
    return { applied: rows.length, rows };
  }
}

/** Has it brought columns that are not here? */
function isBeyond({ extra }: Group): boolean {
  return extra.length > 0;
}

/** The changes of rows whose newest version in this batch is the one that stands. */
function standing(work: Work): string {
  const stands = `max(${isPlaced(work)}) OVER (PARTITION BY tbl, id) AS stands`;
  return `(SELECT idx, op, tbl, wire, letter, grp, ${stands} FROM ${STAGE} WHERE grp IS NOT NULL) WHERE stands = 1`;
}

/** A change `s` whose time is that of the row, wherever the row is. */
function isOfThePresentTime(table: Table): string {
  const row = `t.${quote(table.id)} = s.id AND t.${quote(table.updatedAt)} = s.ua`;
  const hidden = `table_name = ${literal(table.name)} AND row_id = s.id AND version = s.ua`;
  return (
    `(EXISTS (SELECT 1 FROM ${table.target} AS t WHERE ${row}) ` +
    `OR EXISTS (SELECT 1 FROM main._hidden WHERE ${hidden}))`
  );
}

/** One change a row. What they contain is compared only where there are several. */
function greatestOfEach(where: string): string {
  const counted = `SELECT idx, op, wire, r, count(*) OVER (PARTITION BY wire) AS several FROM ${STAGE} WHERE ${where}`;
  const order = `iif(several > 1, ${contentOfWire('r')}, NULL) DESC, idx DESC`;
  const ranked = `SELECT idx, op, wire, r, row_number() OVER (PARTITION BY wire ORDER BY ${order}) AS nth FROM (${counted})`;
  return `SELECT idx, op, wire AS row_id, json(r) AS row FROM (${ranked}) WHERE nth = 1`;
}

/** Characters of a reason in the answer: the letter has all of it, and the answer must stay one that a sender reads. */
const MESSAGE_MAX = 200;

function shortened(reason: string): string {
  return reason.length > MESSAGE_MAX ? `${reason.slice(0, MESSAGE_MAX)}...` : reason;
}
