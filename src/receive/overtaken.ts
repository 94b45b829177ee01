/** Changes that a constraint refuses and that would lose in any case. */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { quote } from '../sqlite/sql.ts';
import { entombed } from './merge.ts';
import { STAGE } from './stage.ts';

/**
 * What is here is newer than this change of the stage, so that it is stale, whatever the table says of it: SQLite asks the
 * constraints of a row before it looks for the one that is there.
 */
export function isOvertaken(db: Connection, table: Table, idx: number): boolean {
  const [id, time] = [`t.${quote(table.id)}`, `t.${quote(table.updatedAt)}`];
  const isNewer = `${id} = s.id AND typeof(${time}) = 'integer' AND ${time} > s.ua`;
  const isDead = entombed(table, { id: 's.id', ua: 's.ua' });
  const sql =
    `SELECT 1 AS n FROM ${STAGE} AS s WHERE s.idx = ? ` +
    `AND (EXISTS (SELECT 1 FROM ${table.target} AS t WHERE ${isNewer}) OR ${isDead})`;
  return db.get(sql, idx) !== undefined;
}
