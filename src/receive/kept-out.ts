/**
 * A trigger of the application may end a write without an error, by RAISE(IGNORE). Where a table has such a trigger, what
 * the merge has written is looked for afterwards: one that is not in place was refused, and is kept like any other.
 */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { quote } from '../sqlite/sql.ts';
import { BOUND_ID } from '../wire/values.ts';

export class KeptOut extends Error {
  constructor(table: Table) {
    super(`a trigger of yours on "${table.name}" ends the write without an error, by RAISE(IGNORE)`);
  }
}

/** `id` as it travels. */
export function deleteRow(db: Connection, table: Table, id: string): void {
  const row = `FROM ${table.target} WHERE ${quote(table.id)} = ${BOUND_ID}`;
  db.run(`DELETE ${row}`, id);
  if (table.ignores && db.get(`SELECT 1 AS n ${row}`, id)) throw new KeptOut(table);
}
