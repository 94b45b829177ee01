/** A DELETE without a row: it has no version of its own, and removes whatever is there. */
import { dayOf } from '../capture/floors.ts';
import { qualified } from '../capture/stamps.ts';
import { versionOf } from '../capture/versions.ts';
import type { Connection } from '../sqlite/connection.ts';
import { literal, quote } from '../sqlite/sql.ts';
import { BOUND_ID } from '../wire/values.ts';
import { ROWLESS_FORBIDDEN } from './forbidden.ts';
import { deleteRow } from './kept-out.ts';
import type { Plan } from './plan.ts';
import type { Work } from './report.ts';
import type { UniqueRows } from './unique.ts';

export type Rowless = Extract<Plan, { kind: 'delete-any' }>;

/** Removes the row, visible or hidden, and leaves a tombstone at the version that it had. */
export function deleteWhatIsThere(db: Connection, unique: UniqueRows, { table, id }: Rowless): void {
  const where = `WHERE ${quote(table.id)} = ${BOUND_ID}`;
  const day = dayOf(table);
  db.run(
    `INSERT INTO main._tombstones (table_name, row_id, version${day.column}) ` +
      `SELECT ${literal(table.name)}, t.${quote(table.id)}, ${qualified(table, versionOf(table, 't'))}${day.value} ` +
      `FROM ${table.target} AS t ${where} ` +
      `ON CONFLICT DO UPDATE SET version = max(version, excluded.version)${day.update}`,
    id,
  );
  deleteRow(db, table, id);
  unique.entomb(table, id);
}

/** For a sender that may not do that. */
export function forbidRowless({ sorted, letters }: Work): void {
  for (const { idx } of sorted.rowless) letters.set(idx, { code: 'forbidden', reason: ROWLESS_FORBIDDEN });
  sorted.rowless = [];
}
