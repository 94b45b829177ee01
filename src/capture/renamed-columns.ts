/** Columns that somebody has renamed by ALTER TABLE, without a word to Rowcast. */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { renamedColumns } from './capture-record.ts';
import { type OwnTrigger, renamedIn, type Warning } from './installed-triggers.ts';
import { keepNames, Names, withRenamedColumns } from './names.ts';
import { renameUnsaid } from './unsaid.ts';

/** Other nodes may not have renamed it, so it goes on travelling as it did. `there` are our triggers on the table. */
export function followRenames(db: Connection, table: Table, there: OwnTrigger[], warnings: Warning[]): void {
  const pairs = renamedColumns(db, table, there);
  if (pairs.length === 0) return;
  keepNames(db, withRenamedColumns(Names.read(db).of(table.name), pairs));
  renameUnsaid(db, table.name, pairs);
  Names.read(db).describe(table);
  for (const pair of pairs) warnings.push(['column-renamed', renamedIn(table, pair)]);
}
