/**
 * Rows that do not show their version, because the application refuses the stamp: the merge compares with what a row shows, and
 * would take an older change for a newer one, and one of the same version likewise. What loses belongs to no group.
 */
import type { Connection } from '../sqlite/connection.ts';
import { literal, quote } from '../sqlite/sql.ts';
import { outweighedSql, type Source } from './merge.ts';
import { type Group, STAGE } from './stage.ts';

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
