/**
 * The rows that transactions of ours write: of received batches, of rows that a UNIQUE value hides or that come back, of
 * letters that are tried again, and what triggers of the application make of all this. A version that is written into a row
 * of the application's is no other change than the one that was recorded with it. Temporary triggers note them while nothing is captured; so whatever writes them, they are noted in the
 * transaction that does, and a rollback takes the note back with the row.
 *
 * They are there only while somebody wants to know, and only for this connection.
 */
import { isOf, NOT_SYNCING } from '../capture/versions.ts';
import type { Connection } from '../sqlite/connection.ts';
import { isCode } from '../sqlite/result-codes.ts';
import { type Table, TRIGGER_PREFIX } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import { exactJson } from '../wire/exact-text.ts';
import { encode } from '../wire/values.ts';

const NAME = '_rowcast_touched';
const PREFIX = `${TRIGGER_PREFIX}touched_`;

export class TouchedRows {
  readonly #db: Connection;

  constructor(db: Connection) {
    this.#db = db;
  }

  /** Asked and not remembered: another manager on the same connection takes it away when it stops, and so does a rollback. */
  isWatching(tables: Table[]): boolean {
    const found = this.#db.get<{ n: number }>(
      `SELECT count(*) AS n FROM temp.sqlite_schema WHERE name >= '${NAME}' AND name < '${NAME}~'`,
    );
    return found?.n === 1 + tables.length * EVENTS.length;
  }

  watch(tables: Table[]): void {
    this.#dropTriggers();
    // Not made anew: while a SELECT of the application's is being read no table can be dropped, and taking that back ends it.
    this.#db.exec(`CREATE TEMP TABLE IF NOT EXISTS ${NAME} (op, tbl, id)`);
    this.#db.run(`DELETE FROM temp.${NAME}`);
    for (const table of tables) for (const event of EVENTS) this.#db.exec(triggerSql(table, event));
  }

  /** What was noted, as a JSON array of [op, table, id]; undefined where nothing was. It is noted no longer. */
  take(): { rows: string; count: number } | undefined {
    if (!this.#db.get(`SELECT 1 AS n FROM temp.${NAME} LIMIT 1`)) return undefined;
    const found = this.#db.get<{ rows: Uint8Array; count: number }>(
      `SELECT CAST(json_group_array(json_array(op, tbl, ${encode('id', 'TEXT')})) AS BLOB) AS rows, count(*) AS count ` +
        `FROM (SELECT op, tbl, id FROM temp.${NAME} WHERE id IS NOT NULL ORDER BY rowid)`,
    );
    this.#db.run(`DELETE FROM temp.${NAME}`);
    return found && found.count > 0 ? { rows: exactJson(found.rows), count: found.count } : undefined;
  }

  /** Outside of a transaction. */
  release(): void {
    this.#dropTriggers();
    try {
      this.#db.exec(`DROP TABLE IF EXISTS temp.${NAME}`);
    } catch (error) {
      // Empty it is in nobody's way.
      if (!isCode(error, 'LOCKED')) throw error;
    }
  }

  #dropTriggers(): void {
    const triggers = this.#db.all<{ name: string }>(
      `SELECT name FROM temp.sqlite_schema WHERE type = 'trigger' AND substr(name, 1, ${PREFIX.length}) = '${PREFIX}'`,
    );
    for (const { name } of triggers) this.#db.exec(`DROP TRIGGER temp.${quote(name)}`);
  }
}

const EVENTS = ['INSERT', 'UPDATE', 'DELETE', 'rename'] as const;

function triggerSql(table: Table, event: (typeof EVENTS)[number]): string {
  const id = quote(table.id);
  const name = quote(`${PREFIX}${fold(table.name)}_${event.toLowerCase()}`);
  // Where an id is changed the old one is gone.
  const when = event === 'rename' ? `UPDATE OF ${id}` : event;
  const gone = event === 'rename' || event === 'DELETE';
  const row = gone ? 'OLD' : 'NEW';
  const stamped = `SELECT 1 FROM main._stamps WHERE ${isOf(table, `NEW.${id}`)} AND refused IS NULL`;
  const stamp = event === 'UPDATE' ? ` AND NOT EXISTS (${stamped})` : '';
  const renamed = event === 'rename' ? ` AND OLD.${id} IS NOT NEW.${id}` : '';
  return (
    `CREATE TEMP TRIGGER ${name} AFTER ${when} ON main.${quote(table.name)} FOR EACH ROW ` +
    `WHEN NOT (${NOT_SYNCING})${renamed}${stamp} BEGIN ` +
    `INSERT INTO ${NAME} (op, tbl, id) VALUES ('${gone ? 'DELETE' : event}', ${literal(table.name)}, ${row}.${id}); END`
  );
}
