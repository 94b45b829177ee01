/**
 * Rows that do not show their version, because the application refuses the stamp, or because they get it only now: the merge
 * compares with what a row shows, and would take an older change for a newer one, and one of the same version likewise. What
 * loses belongs to no group.
 */
import { hasStampsOf } from '../capture/stamps.ts';
import type { Uncaptured } from '../capture/uncaptured.ts';
import type { Connection } from '../sqlite/connection.ts';
import { literal, quote } from '../sqlite/sql.ts';
import { outweighedSql, type Source } from './merge.ts';
import { type Group, STAGE } from './stage.ts';

/** The groups of tables that have such rows; what nobody has captured of the rows that the changes meet gets its version first. */
export function stampedAmong(db: Connection, groups: Group[], uncaptured: Uncaptured): Group[] {
  const ids = `SELECT id FROM ${STAGE} WHERE grp = CAST(? AS INTEGER)`;
  for (const { table, number } of groups) uncaptured.record(table, ids, number);
  return groups.filter(({ table }) => hasStampsOf(db, table));
}

export function outdate(db: Connection, { number, table, shape }: Group, source: Source, end: number): void {
  const id = `t.${quote(table.id)}`;
  db.run(
    `UPDATE ${STAGE} AS s SET grp = 0 WHERE grp = ? AND EXISTS (SELECT 1 FROM main._stamps AS g ` +
      `JOIN ${table.target} AS t ON ${id} = g.row_id ` +
      `WHERE g.table_name = ${literal(table.name)} AND g.row_id = s.id AND g.version > s.ua)`,
    number,
  );
  // A deletion beats what has its version.
  if (!shape) return;
  db.run(`UPDATE ${STAGE} SET grp = 0 WHERE idx IN (${outweighedSql(table, shape, source)})`, number, 0, end);
}
