/** Changes that a constraint refuses and that would lose in any case. */
import { valid } from '../capture/versions.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { quote } from '../sqlite/sql.ts';
import { entombed } from './merge.ts';
import type { Work } from './report.ts';
import { STAGE } from './stage.ts';

/**
 * What is here is newer: such a change is stale, whatever the table says of it, since SQLite asks the constraints of a row before
 * it looks for the one that is there. Asked once everything is merged: what came later in the same batch has overtaken it as well,
 * and the batch has the same answer when it comes again.
 */
export function dropOvertaken(db: Connection, { sorted, letters, decided }: Work): void {
  for (const [idx, { code }] of letters) {
    if (code !== 'constraint') continue;
    const number = db.get<{ grp: number }>(`SELECT grp FROM ${STAGE} WHERE idx = ?`, idx)?.grp;
    const group = sorted.groups.find((one) => one.number === number);
    if (!group?.shape || !isOvertaken(db, group.table, idx)) continue;
    letters.delete(idx);
    // It has neither won nor was it set aside.
    decided.delete(group);
  }
}

function isOvertaken(db: Connection, table: Table, idx: number): boolean {
  const [id, time] = [`t.${quote(table.id)}`, `t.${quote(table.updatedAt)}`];
  const isNewer = `${id} = s.id AND ${valid(time)} AND ${time} > s.ua`;
  const isDead = entombed(table, { id: 's.id', ua: 's.ua' });
  const sql =
    `SELECT 1 AS n FROM ${STAGE} AS s WHERE s.idx = ? ` +
    `AND (EXISTS (SELECT 1 FROM ${table.target} AS t WHERE ${isNewer}) OR ${isDead})`;
  return db.get(sql, idx) !== undefined;
}
