/**
 * A trigger of the application may end a write without an error, by RAISE(IGNORE). Where a table has such a trigger, what
 * the merge has written is looked for afterwards: one that is not in place was refused, and is kept like any other.
 */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { quote } from '../sqlite/sql.ts';
import { BOUND_ID } from '../wire/values.ts';
import {
  beatenByDeletesSql,
  deleteSql,
  entombSql,
  type Shape,
  type Source,
  unwrittenSql,
  updateSql,
  upsertSql,
} from './merge.ts';

export class KeptOut extends Error {
  constructor(table: Table) {
    super(`a trigger of yours on "${table.name}" ends the write without an error, by RAISE(IGNORE)`);
  }
}

/** What merges changes, and what finds one of them that a trigger has kept out all the same. */
export interface Statements {
  run: string[];
  /** Undefined where no trigger does so. */
  keptOut: string | undefined;
}

export function deletion(table: Table, source: Source): Statements {
  const run = [entombSql(table, source), deleteSql(table, source)];
  return { run, keptOut: table.ignores ? beatenByDeletesSql(table, source) : undefined };
}

export function upsert(table: Table, shape: Shape, source: Source): Statements {
  const run = [upsertSql(table, shape, source)];
  return { run, keptOut: table.ignores ? unwrittenSql(table, shape, source) : undefined };
}

/** For rows that exist. */
export function update(table: Table, shape: Shape, source: Source): Statements {
  const run = [updateSql(table, shape, source)];
  return { run, keptOut: table.ignores ? unwrittenSql(table, shape, source, 'updates') : undefined };
}

/** `id` as it travels. */
export function deleteRow(db: Connection, table: Table, id: string): void {
  const row = `FROM ${table.target} WHERE ${quote(table.id)} = ${BOUND_ID}`;
  db.run(`DELETE ${row}`, id);
  if (table.ignores && db.get(`SELECT 1 AS n ${row}`, id)) throw new KeptOut(table);
}
