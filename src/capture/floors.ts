/**
 * How far tombstones have been collected. A table's floor is at or above the version of every tombstone of it that was
 * ever removed, so that what a tombstone would have stopped is stopped by the floor: a row that is not live here never
 * comes in at or below it, and a row that is inserted here begins above it.
 *
 * A floor never sinks, and it stays when tombstones are no longer collected. It is part of the triggers, which are
 * shared by all who write to the file; so whether there is one is a fact of the file, and not of an option. The fact is
 * the column `day` of `_tombstones`.
 */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { TIMESTAMP_MIN } from '../wire/protocol.ts';

/** SQLite's days since 1970: when a tombstone was written. */
export const TODAY = "CAST(julianday('now') - 2440587.5 AS INTEGER)";

const SINCE = 'tombstones_since';

/** Does a tombstone of this file say when it was written? */
export function hasDays(db: Connection): boolean {
  return db.get("SELECT 1 AS n FROM pragma_table_info('_tombstones', 'main') WHERE name = 'day'") !== undefined;
}

/** From here on it does. What is there already counts as written today. Inside a transaction. */
export function beginDays(db: Connection): void {
  if (hasDays(db)) return;
  db.exec('ALTER TABLE main._tombstones ADD COLUMN day INTEGER');
  db.exec(
    `INSERT INTO main._meta (key, value) VALUES ('${SINCE}', ${TODAY}) ON CONFLICT DO UPDATE SET value = excluded.value`,
  );
}

/** The day from which on tombstones have one; nothing that has none is older. Undefined where nobody knows. */
export function daysSince(db: Connection): number | undefined {
  const value = db.get('SELECT value FROM main._meta WHERE key = ?', SINCE)?.value;
  return typeof value === 'number' ? value : undefined;
}

/** The floors of tables; undefined where nothing of this file is collected. */
export function withFloors(db: Connection, tables: Table[]): Table[] {
  if (!hasDays(db)) return tables;
  return tables.map((table) => {
    const value = db.get('SELECT value FROM main._meta WHERE key = ?', keyOf(table.name))?.value;
    return { ...table, floor: typeof value === 'number' ? value : TIMESTAMP_MIN };
  });
}

/** Inside a transaction that also makes the triggers anew: Registry.remake. */
export function raiseFloor(db: Connection, tableName: string, version: number): void {
  db.run(
    'INSERT INTO main._meta (key, value) VALUES (?, CAST(? AS INTEGER)) ' +
      'ON CONFLICT DO UPDATE SET value = max(value, excluded.value)',
    keyOf(tableName),
    version,
  );
}

/** The table has another name now, and so has its floor; what the name stood for before keeps its own. In a transaction. */
export function moveFloor(db: Connection, from: string, to: string): void {
  const floor = db.get<{ value: number }>('SELECT value FROM main._meta WHERE key = ?', keyOf(from));
  if (!floor || keyOf(from) === keyOf(to)) return;
  raiseFloor(db, to, floor.value);
  db.run('DELETE FROM main._meta WHERE key = ?', keyOf(from));
}

/** What a statement that writes a tombstone says of its day: parts that are empty where there are none. */
export function dayOf(table: Table): { column: string; value: string; update: string } {
  if (table.floor === undefined) return { column: '', value: '', update: '' };
  return { column: ', day', value: `, ${TODAY}`, update: ', day = excluded.day' };
}

function keyOf(tableName: string): string {
  return `floor:${fold(tableName)}`;
}
