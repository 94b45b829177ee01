/**
 * What rows that were applied said of columns that are not here: kept until the columns are, one letter a row. They are
 * many at a time, a whole batch of a rolling migration, so they are written as sets.
 */
import type { Clock } from '../clock.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import { literal } from '../sqlite/sql.ts';
import { contentOfWire } from '../wire/content.ts';
import { REASON_MAX } from './letter-room.ts';

/** What rows of one table said of columns that are not here. */
export interface UnknownColumns {
  table: string;
  columns: string[];
  reason: string;
  from: string | undefined;
}

export class UnknownColumnLetters {
  readonly #db: Connection;
  readonly #clock: Clock;

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  /**
   * Keeps what rows that were applied said of columns that are not here: one letter a row, so a newer version replaces an
   * older one. `source` selects `idx`, `op`, `row_id` and `row`, each row once. Inside a transaction.
   */
  keep(source: string, params: Value[], letter: UnknownColumns): void {
    const columns = JSON.stringify(letter.columns);
    const reason = letter.reason.slice(0, REASON_MAX);
    const from = letter.from ?? null;
    const prefix = rowPrint(letter.table, '');
    const last = lastLetterId(this.#db);
    const known = `FROM main._dead_letter_info AS i WHERE i.fingerprint = ? || s.row_id`;
    const some = this.#db.get(
      `SELECT 1 AS n FROM (${source}) AS s WHERE EXISTS (SELECT 1 ${known}) LIMIT 1`,
      ...params,
      prefix,
    );
    if (some) this.#replaceOlder(source, params, letter, prefix);
    this.#db.run(
      'INSERT INTO main._dead_letter (op, row_id, row_data, failed_at, retry_count) ' +
        `SELECT s.op, s.row_id, s.row, CAST(? AS INTEGER), 0 FROM (${source}) AS s ` +
        `${some ? `WHERE NOT EXISTS (SELECT 1 ${known}) ` : ''}ORDER BY s.idx`,
      this.#clock.now(),
      ...params,
      ...(some ? [prefix] : []),
    );
    this.#db.run(
      'INSERT INTO main._dead_letter_info (dead_id, direction, table_name, peer, code, reason, unknown_columns, fingerprint) ' +
        "SELECT dead_id, 'in', ?, ?, 'unknown-column', ?, ?, ? || row_id FROM main._dead_letter WHERE dead_id > ?",
      letter.table,
      from,
      reason,
      columns,
      prefix,
      last,
    );
  }

  /** The letters of rows that have one already. */
  #replaceOlder(source: string, params: Value[], letter: UnknownColumns, prefix: string): void {
    const columns = JSON.stringify(letter.columns);
    const known =
      `SELECT i.dead_id AS dead_id, i.unknown_columns AS columns, ` +
      `s.idx AS idx, s.op AS op, s.row_id AS row_id, s.row AS row FROM (${source}) AS s ` +
      'JOIN main._dead_letter_info AS i ON i.fingerprint = ? || s.row_id JOIN main._dead_letter AS d ON d.dead_id = i.dead_id ' +
      // The same version again is the same letter, and so is a lesser one of the same time.
      `WHERE d.row_data IS NOT s.row AND NOT (i.unknown_columns = ${literal(columns)} ` +
      `AND ${timeIn('d.row_data')} = ${timeIn('s.row')} AND ${contentOfWire('d.row_data')} > ${contentOfWire('s.row')})`;
    const others = this.#db.all<{ dead_id: number; row_id: string; row: string }>(
      `SELECT dead_id, row_id, row FROM (${known}) WHERE columns <> ?`,
      ...params,
      prefix,
      columns,
    );
    const joined = others.map(({ dead_id, row_id, row }) => [dead_id, ...this.#joined(dead_id, letter, row_id, row)]);
    const said = [letter.from ?? null, letter.reason.slice(0, REASON_MAX), columns];
    this.#db.run(
      'UPDATE main._dead_letter_info SET peer = ?, reason = ?, unknown_columns = ? ' +
        `WHERE dead_id IN (SELECT dead_id FROM (${known} AND (i.peer, i.reason, i.unknown_columns) IS NOT (?, ?, ?)))`,
      ...said,
      ...params,
      prefix,
      ...said,
    );
    this.#db.run(
      'UPDATE main._dead_letter AS d SET op = s.op, row_data = s.row, failed_at = CAST(? AS INTEGER) ' +
        `FROM (${known}) AS s WHERE d.dead_id = s.dead_id`,
      this.#clock.now(),
      ...params,
      prefix,
    );
    for (const [id, more, row] of joined as [number, string, string][]) {
      this.#db.run('UPDATE main._dead_letter SET row_data = ? WHERE dead_id = ?', row, id);
      this.#db.run('UPDATE main._dead_letter_info SET unknown_columns = ? WHERE dead_id = ?', more, id);
    }
  }

  /** The columns that only the older version has spoken of are not forgotten over the newer one, unless it was deleted between. */
  #joined(
    id: number,
    { table, columns }: { table: string; columns: string[] },
    rowId: string,
    row: string,
  ): [columns: string, row: string] {
    const older = this.#db.all<{ key: string; value: string }>(
      'SELECT u.value AS key, json_object(u.value, e.atom) AS value ' +
        'FROM main._dead_letter AS d JOIN main._dead_letter_info AS i USING (dead_id), json_each(i.unknown_columns) AS u ' +
        'JOIN json_each(d.row_data) AS e ON e.key = u.value WHERE d.dead_id = ? AND NOT EXISTS (SELECT 1 FROM main._tombstones AS g ' +
        'WHERE g.table_name = ? AND g.row_id = ? ' +
        "AND g.version >= (SELECT e.atom FROM json_each(d.row_data) AS e WHERE lower(e.key) = 'updated_at'))",
      id,
      table,
      rowId,
    );
    const kept = older.filter(({ key }) => !columns.includes(key));
    // A key that the newer row has as well, as a column that is known, is first in it and is the one that counts.
    const more = kept.map(({ value }) => `,${value.slice(1, -1)}`).join('');
    return [JSON.stringify([...columns, ...kept.map(({ key }) => key)]), `${row.slice(0, -1)}${more}}`];
  }
}

/** What a row's letter about unknown columns is known by. */
export function rowPrint(table: string, rowId: string): string {
  return `unknown-column\n${table}\n${rowId}`;
}

/** The time of a row on the wire. */
export function timeIn(row: string): string {
  return `(SELECT e.atom FROM json_each(${row}) AS e WHERE lower(e.key) = 'updated_at')`;
}

/** The greatest id that was ever given to a letter. */
export function lastLetterId(db: Connection): number {
  return Number(
    db.get(
      "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '_dead_letter'), 0), " +
        'coalesce((SELECT max(dead_id) FROM main._dead_letter), 0)) AS n',
    )?.n,
  );
}
