/** Another state of a database, put under whoever has it open: in one transaction, as SQLite's backup API does. */
import { openDatabase } from './lane.ts';
import { rowsOf } from './nodes.ts';

export async function putUnder(from: string, to: string): Promise<void> {
  const db = await openDatabase(to);
  db.exec('PRAGMA busy_timeout = 30000');
  db.exec(`ATTACH '${from}' AS kept`);
  const tables = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'";
  // What the triggers write while this is done is in tables of Rowcast, and these come last.
  const names = rowsOf(db, `${tables} ORDER BY name LIKE '\\_%' ESCAPE '\\', name = 'sqlite_sequence'`);
  db.exec('BEGIN IMMEDIATE');
  for (const { name } of names)
    db.exec(`DELETE FROM main."${name}"; INSERT INTO main."${name}" SELECT * FROM kept."${name}"`);
  db.exec('COMMIT');
  db.close();
}
