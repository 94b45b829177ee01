/**
 * What a migration has done to the rows, found out by comparing them with a copy from before.
 *
 * While a migration runs, no trigger of ours looks. Whatever it did, by whatever statements, a row that is not as it was
 * is given a version above its last one and is recorded, one that is new is recorded, and one that is gone is recorded as
 * deleted. A column that was renamed has not changed, nor has a row that only got a column with its default, nor a value
 * that is what the column's new type makes of the old one: on a node that is migrated likewise it becomes the same.
 */
import { dayOf } from '../capture/floors.ts';
import { qualified } from '../capture/stamps.ts';
import { idOf, NOW, timeOf, tombstoneOf, valid, versionOf } from '../capture/versions.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Column, Table } from '../sqlite/schema.ts';
import { fold, literal, quote, shallow } from '../sqlite/sql.ts';
import { TIMESTAMP_MAX, TIMESTAMP_MIN } from '../wire/protocol.ts';
import { rowJson } from '../wire/row-json.ts';
import { toldByTrigger } from '../wire/told-json.ts';
import { affine, encode } from '../wire/values.ts';
import { forgetWhatWasSaid, isAsSaid, isKey, newColumns, putInWhatWasSaid } from './said-before.ts';

/** A table before the migration and after it, and which column became which. */
export interface Pair {
  was: Table;
  now: Table;
  /** The column that a column of `was` is in `now`, where it is there. */
  becomes(column: Column): Column | undefined;
}

/** The rows of tables as they were. In the transaction of the migration. */
export class Before {
  readonly #db: Connection;
  readonly #copies = new Map<Table, string>();

  constructor(db: Connection) {
    this.#db = db;
  }

  keep(tables: Table[]): void {
    for (const table of tables) {
      const name = `_rowcast_was_${this.#copies.size}`;
      this.#copies.set(table, `temp.${name}`);
      const columns = table.columns.map((column, i) => `t.${quote(column.name)} AS c${i}`);
      this.#db.exec(`DROP TABLE IF EXISTS temp.${name}`);
      this.#db.exec(
        qualified(
          table,
          `CREATE TEMP TABLE ${name} AS SELECT ${idOf(table, 't')} AS id, ${versionOf(table, 't')} AS version, ` +
            `${columns.join(', ')} FROM ${quote(table.name)} AS t WHERE ${idOf(table, 't')} IS NOT NULL`,
        ),
      );
      this.#db.exec(`CREATE UNIQUE INDEX temp.${name}_id ON ${name} (id)`);
    }
  }

  /** Records every row that is not as it was. Returns what there is to say. */
  recordChanges(pair: Pair): string[] {
    const copy = this.#copies.get(pair.was);
    if (copy === undefined) return [];
    const { now } = pair;
    const leftOut = putInWhatWasSaid(this.#db, pair);
    const last =
      `max(coalesce(w.version, ${TIMESTAMP_MIN}), ` +
      `coalesce(${tombstoneOf(now, idOf(now, 't'))}, ${TIMESTAMP_MIN}), ` +
      `iif(w.id IS NULL, ${now.floor ?? TIMESTAMP_MIN}, ${TIMESTAMP_MIN}))`;
    this.#db.exec('DROP TABLE IF EXISTS temp._rowcast_changed');
    this.#db.exec(
      qualified(
        now,
        `CREATE TEMP TABLE _rowcast_changed AS SELECT ${idOf(now, 't')} AS id, w.id IS NULL AS fresh, ${last} AS last ` +
          `FROM ${quote(now.name)} AS t LEFT JOIN ${copy} AS w ON w.id = ${idOf(now, 't')} ` +
          `WHERE ${idOf(now, 't')} IS NOT NULL AND (w.id IS NULL OR ${differs(pair)})`,
      ),
    );
    this.#stamp(now);
    this.#record(now);
    this.#recordNameless(now);
    this.#recordGone(now, copy);
    this.#db.exec('DROP TABLE temp._rowcast_changed');
    return leftOut;
  }

  release(): void {
    for (const copy of this.#copies.values()) this.#db.exec(`DROP TABLE IF EXISTS ${copy}`);
    this.#copies.clear();
    forgetWhatWasSaid(this.#db);
  }

  #stamp(table: Table): void {
    const time = timeOf(table, 't');
    const isOld = table.floor === undefined ? '' : ` AND NOT (x.fresh AND ${time} <= ${table.floor})`;
    const wanted = `iif(${valid(time)}${isOld}, ${time}, ${NOW})`;
    this.#db.run(
      'INSERT INTO main._stamps (table_name, row_id, version) ' +
        `SELECT ${literal(table.name)}, x.id, min(${TIMESTAMP_MAX}, max(${wanted}, x.last + 1)) ` +
        `FROM temp._rowcast_changed AS x JOIN ${table.target} AS t ON ${idOf(table, 't')} = x.id ` +
        `WHERE NOT (${valid(time)} AND ${time} > x.last) ` +
        'ON CONFLICT DO UPDATE SET version = max(version, excluded.version), refused = NULL',
    );
  }

  #record(table: Table): void {
    const row = toldByTrigger(table, 't', { column: table.updatedAt, by: versionOf(table, 't') });
    this.#db.run(
      qualified(
        table,
        'INSERT INTO main._changes (op, table_name, row_id, row_data) ' +
          `SELECT iif(x.fresh, 'INSERT', 'UPDATE'), ${literal(table.wireName)}, x.id, ${row} ` +
          `FROM temp._rowcast_changed AS x JOIN ${table.target} AS t ON ${idOf(table, 't')} = x.id ORDER BY x.id`,
      ),
    );
  }

  /** Rows without an id were not compared. One of them makes the outbox look for all, and a letter say so of each. */
  #recordNameless(table: Table): void {
    this.#db.run(
      qualified(
        table,
        'INSERT INTO main._changes (op, table_name, row_id, row_data) ' +
          `SELECT 'INSERT', ${literal(table.wireName)}, NULL, ${rowJson(table, 't')} ` +
          `FROM ${table.target} AS t WHERE ${idOf(table, 't')} IS NULL LIMIT 1`,
      ),
    );
  }

  #recordGone(table: Table, copy: string): void {
    const gone =
      `FROM ${copy} AS w WHERE NOT EXISTS ` +
      `(SELECT 1 FROM ${table.target} AS t WHERE ${idOf(table, 't')} = w.id) ORDER BY w.id`;
    const day = dayOf(table);
    const row = `json_object(${literal(table.id)}, ${encode('w.id', 'TEXT')}, ${literal(table.updatedAt)}, w.version)`;
    this.#db.run(
      'INSERT INTO main._changes (op, table_name, row_id, row_data) ' +
        `SELECT 'DELETE', ${literal(table.wireName)}, w.id, ${row} ${gone}`,
    );
    this.#db.run(
      `INSERT INTO main._tombstones (table_name, row_id, version${day.column}) ` +
        `SELECT ${literal(table.name)}, w.id, w.version${day.value} ${gone} ` +
        `ON CONFLICT DO UPDATE SET version = max(version, excluded.version)${day.update}`,
    );
  }
}

/** True of a row `t` that is not what its copy `w` says: another value, another time, or more than a default in a new column. */
function differs(pair: Pair): string {
  const { was, now, becomes } = pair;
  const terms = [`${timeOf(now, 't')} IS NOT w.version`];
  was.columns.forEach((column, i) => {
    const there = becomes(column);
    if (!there || isKey(now, there)) return;
    const [value, before] = [`t.${quote(there.name)}`, affine(`w.c${i}`, there.affinity)];
    terms.push(`(${value} COLLATE BINARY IS NOT ${before} OR typeof(${value}) <> typeof(${before}))`);
  });
  for (const column of newColumns(pair)) {
    terms.push(`(t.${quote(column.name)} COLLATE BINARY IS NOT (${column.fallback}) AND NOT ${isAsSaid(now, column)})`);
  }
  return `(${shallow(terms, ' OR ')})`;
}

/** By its name, or by the one that it was given. */
export function columnNamed(table: Table, name: string): Column | undefined {
  return table.columns.find((column) => fold(column.name) === fold(name));
}
