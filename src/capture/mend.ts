/** Rows that were written while no trigger of ours was looking, or one that did not know the present schema. */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { conjunction, inMain, literal, quote } from '../sqlite/sql.ts';
import { TIMESTAMP_MAX } from '../wire/protocol.ts';

/**
 * Rows written between a schema change and the moment it was noticed were captured by triggers that did not know of it.
 * Two things can be amiss with them: the change lacks a column, or a trigger that the application has added moved the row
 * below the version that was recorded. Such rows are written once more, above what was recorded, by the present triggers.
 */
export function recapture(db: Connection, table: Table, since: number): void {
  const t = quote(table.updatedAt);
  const name = quote(table.name);
  const complete = table.columns
    .filter((column) => !/["\\]/.test(column.name))
    .map((column) => `json_type(row_data, ${literal(`$."${column.name}"`)}) IS NOT NULL`);
  // `complete` is that of the newest change of a row: beside max(), SQLite takes bare columns from the row that has it.
  const newest =
    `SELECT row_id, max(row_data ->> ${literal(`$."${table.updatedAt}"`)}) AS version, ` +
    `${conjunction(complete)} AS complete FROM main._changes ` +
    `WHERE change_id > ? AND table_name = ${literal(table.name)} ` +
    "AND op <> 'DELETE' AND json_valid(row_data) GROUP BY row_id";
  db.run(
    `UPDATE ${inMain(table.name)} SET ${t} = c.version + 1 FROM (${newest}) AS c ` +
      `WHERE ${name}.${quote(table.id)} = c.row_id AND c.version < ${TIMESTAMP_MAX} ` +
      `AND (NOT c.complete OR (${name}.${t} >= c.version) IS NOT 1)`,
    since,
  );
}

/** Rows from before the first attach may have no usable time; without one they have no version. */
export function stampInvalid(db: Connection, table: Table): void {
  const t = quote(table.updatedAt);
  db.exec(
    `UPDATE ${inMain(table.name)} SET ${t} = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) ` +
      `WHERE typeof(${t}) <> 'integer' OR ${t} NOT BETWEEN -${TIMESTAMP_MAX} AND ${TIMESTAMP_MAX}`,
  );
}

/** A row that was deleted, and inserted again unseen, stands at or below its tombstone: every peer would call it stale. */
export function liftAboveTombstones(db: Connection, table: Table): void {
  const t = quote(table.updatedAt);
  const name = quote(table.name);
  db.exec(
    `UPDATE ${inMain(table.name)} SET ${t} = min(${TIMESTAMP_MAX}, g.version + 1) FROM main._tombstones AS g ` +
      `WHERE g.table_name = ${literal(table.name)} AND g.row_id = ${name}.${quote(table.id)} AND ${name}.${t} <= g.version`,
  );
}
