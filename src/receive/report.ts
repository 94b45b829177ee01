/**
 * What came of a batch that went the careful way: which changes count as applied, which became dead letters and why, and
 * what the sender and the application are told of it.
 */
import type { DeadLetters, LetterContent } from '../dead-letters.ts';
import type { RowRef } from '../events.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { literal, quote } from '../sqlite/sql.ts';
import type { Op, Rejection, RejectionCode } from '../wire/protocol.ts';
import type { BatchDocument } from '../wire/read-batch.ts';
import { contentOfWire } from '../wire/values.ts';
import type { Source } from './merge.ts';
import type { Delivery, Merged } from './outcome.ts';
import { type Group, type Sorted, STAGE, type Stage } from './stage.ts';

export interface Reason {
  code: RejectionCode;
  reason: string;
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

  /** Keeps the letters, counts, and empties the stage. */
  finish(document: BatchDocument, work: Work, delivery: Delivery): Merged {
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
    this.#letters.room.claim(delivery.from, { letters: rejected.length, bytes: document.json.length });
    rejected.sort((a, b) => a.index - b.index);
    const result = this.#count(work, delivery.wantRows);
    this.#stage.empty();
    return { ...result, rejected, letters: events };
  }

  /**
   * The known columns were merged with the others. A value of an unknown one is kept where its change is what stands, to be
   * filled in when the column is there; a change that is older than what stands has lost with all its columns. One of the
   * same time may have lost here and yet win where the column is known, because it counts there: of several of one time
   * the greatest is kept, and when the column is there it is decided once more.
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
    const several = this.#db.get(
      `SELECT 1 AS n FROM ${STAGE} WHERE grp = ? GROUP BY wire HAVING count(*) > 1 LIMIT 1`,
      number,
    );
    // Of a row that has one change here, which has won, that change is what stands.
    const isOfItsTime = work.won.has(group) && !several ? 'true' : isOfThePresentTime(table);
    const sql = `UPDATE ${STAGE} AS s SET tied = 1 WHERE grp = ? AND ${isOfItsTime}`;
    this.#db.run(`${sql} AND idx NOT IN (SELECT value FROM json_each(?))`, number, JSON.stringify(refused));
    const one = `SELECT idx, op, wire AS row_id, json(r) AS row FROM ${STAGE} WHERE grp = ? AND tied = 1`;
    this.#letters.unknownColumns.keep(several ? greatestOfEach('grp = ? AND tied = 1') : one, [number], {
      table: table.name,
      columns: extra,
      reason,
      from: delivery.from,
    });
    const message = shortened(reason);
    for (const index of this.#indexesOf(number)) {
      if (!work.letters.has(index)) rejected.push({ index, code: 'unknown-column', message });
    }
    if (!delivery.wantLetters) return;
    const kept = `SELECT op, wire FROM ${STAGE} WHERE grp = ? AND tied = 1 ORDER BY idx`;
    const rows = this.#db.all<{ op: Op; wire: string }>(kept, number);
    const refs = rows.map(({ op, wire }) => ({ op, table: table.name, id: wire }));
    if (refs.length > 0) tell('unknown-column', reason, refs);
  }

  /** As one text: a thousand lines of one number each would cost more than all that is done with them. */
  #indexesOf(group: number): number[] {
    const sql = `SELECT json_group_array(idx ORDER BY idx) AS indexes FROM ${STAGE} WHERE grp = ?`;
    return JSON.parse(String(this.#db.get(sql, group)?.indexes));
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
    const rowless = work.sorted.rowless.filter(({ idx }) => !work.letters.has(idx));
    const standing = `SELECT idx, op, tbl, wire, letter, max(placed) OVER (PARTITION BY tbl, id) AS stands FROM ${STAGE} WHERE grp IS NOT NULL`;
    const counted = 'WHERE stands = 1 AND letter IS NULL';
    const counting = this.#db.get(`SELECT 1 AS n FROM ${STAGE} WHERE grp IS NOT NULL AND letter IS NULL LIMIT 1`);
    if (!wantRows && !counting) return { applied: rowless.length, rows: [] };
    if (!wantRows) {
      const unsettled = this.#db.get(
        `SELECT 1 AS n FROM ${STAGE} WHERE grp IS NOT NULL AND placed IS NULL AND letter IS NULL LIMIT 1`,
      );
      const from = unsettled ? `(${standing}) ${counted}` : `${STAGE} WHERE grp IS NOT NULL AND letter IS NULL`;
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
