/**
 * Versions that Rowcast gives: they are recorded in `_changes` at once and written into the rows between transactions.
 *
 * Until then the row's version is its stamp. Whatever compares versions of rows, or reads them for a peer, calls
 * `writeStamps` first and makes sure in its own transaction that none is pending.
 */

import { messageOf } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { isMachineFault } from '../sqlite/result-codes.ts';
import type { Table } from '../sqlite/schema.ts';
import { orAbort, TRIGGER_PREFIX } from '../sqlite/schema.ts';
import { inMain, literal, quote } from '../sqlite/sql.ts';
import { exactString } from '../wire/exact-text.ts';
import { TIMESTAMP_MIN } from '../wire/protocol.ts';
import { BOUND_ID, idForWire } from '../wire/values.ts';
import {
  idOf,
  isOf,
  RESET_SYNCING,
  recordStamped,
  SET_SYNCING,
  timeOf,
  tombstoneOf,
  valid,
  versionOf,
} from './versions.ts';

/** Is there a row whose `updated_at` is not yet its version? The index of these is nearly always empty. */
export function hasStamps(db: Connection): boolean {
  return db.get('SELECT 1 AS n FROM main._stamps WHERE refused IS NULL LIMIT 1') !== undefined;
}

/** Is there one at all, be it refused? */
export function hasAnyStamps(db: Connection): boolean {
  return db.get('SELECT 1 AS n FROM main._stamps LIMIT 1') !== undefined;
}

/** Has a row of this table one? Once no stamp is pending, that is one that was refused, and the row's version is not its time. */
export function hasStampsOf(db: Connection, table: Table): boolean {
  return db.get('SELECT 1 AS n FROM main._stamps WHERE table_name = ? LIMIT 1', table.name) !== undefined;
}

/**
 * Writes every pending stamp into its row, as a change that nobody captures. A stamp that the application does not let in
 * (a trigger or a CHECK of its own forbids it) is kept: it stays the version of its row, and the caller is told.
 */
export function writeStamps(db: Connection, tables: Table[], refused: (message: string) => void): void {
  if (!hasStamps(db)) return;
  const told = new Map<string, string>();
  try {
    db.transaction(() => {
      for (const table of tables) write(db, table);
      keepRefused(db);
    });
  } catch (error) {
    if (isMachineFault(error)) throw error;
    for (const table of tables) writeOneByOne(db, table, (reason) => told.set(table.name, reason));
    db.transaction(() => keepRefused(db));
  }
  for (const [name, reason] of told) {
    refused(
      `a row of "${name}" was written without a usable "updated_at", and the one that it should get is refused: ` +
        `${reason}; set it in the write itself, or let the trigger stand back while "syncing" is 1 in _meta`,
    );
  }
}

/** After a change of the schema, what was refused may be let in. */
export function tryRefusedAgain(db: Connection): void {
  db.run('UPDATE main._stamps SET refused = NULL WHERE refused IS NOT NULL');
}

/** Gives the rows `t` that match `where` a version above their last one, and records them as they stand. */
export function recordAnew(db: Connection, table: Table, where: string, ...params: number[]): void {
  const last = `max(${versionOf(table, 't')}, coalesce(${tombstoneOf(table, idOf(table, 't'))}, ${TIMESTAMP_MIN}))`;
  const statements = recordStamped(table, 'UPDATE', { where, last, wanted: versionOf(table, 't') });
  for (const sql of statements) db.run(qualified(table, sql), ...params);
}

/** What is also said in triggers, which cannot name a database, said outside of them, where a temporary table could hide ours. */
export function qualified(table: Table, sql: string): string {
  const name = quote(table.name);
  return sql
    .replace(/\b(INTO|FROM|JOIN) (_stamps|_changes|_tombstones|_unsaid)\b/g, '$1 main.$2')
    .replaceAll(` FROM ${name} AS t`, ` FROM ${inMain(table.name)} AS t`);
}

/** Inside a transaction. Of all pending stamps of a table, or of one row's. */
function write(db: Connection, table: Table, id?: string): void {
  const time = timeOf(table, 't');
  const params = id === undefined ? [] : [id];
  const pending = `s.table_name = ${literal(table.name)} AND s.refused IS NULL${id === undefined ? '' : ` AND s.row_id = ${BOUND_ID}`}`;
  // A row that is gone, or whose own time is not below, needs no stamp.
  db.run(
    `DELETE FROM main._stamps AS s WHERE ${pending} AND NOT EXISTS (SELECT 1 FROM ${inMain(table.name)} AS t ` +
      `WHERE ${idOf(table, 't')} = s.row_id AND NOT (${valid(time)} AND ${time} >= s.version))`,
    ...params,
  );
  const conflict = isTimeUnique(table) ? orAbort(table) : '';
  const stamp = (): void =>
    db.run(
      `UPDATE${conflict} ${inMain(table.name)} AS t SET ${quote(table.updatedAt)} = s.version FROM main._stamps AS s ` +
        `WHERE ${pending} AND ${idOf(table, 't')} = s.row_id AND ${time} IS NOT s.version`,
      ...params,
    );
  const isOverruled = (): boolean =>
    db.get(
      `SELECT 1 AS n FROM main._stamps AS s JOIN ${inMain(table.name)} AS t ON ${idOf(table, 't')} = s.row_id ` +
        `WHERE ${pending} AND ${time} IS NOT s.version LIMIT 1`,
      ...params,
    ) !== undefined;
  db.run(SET_SYNCING);
  stamp();
  if (isOverruled()) {
    insisting(db, table, stamp);
    if (isOverruled()) throw new Overruled('a trigger of the application sets another time');
  }
  db.run(RESET_SYNCING);
  db.run(`DELETE FROM main._stamps AS s WHERE ${pending}`, ...params);
}

/** No other constraint can be broken by a version. */
function isTimeUnique({ uniques, updatedAt, generated }: Table): boolean {
  return uniques.some(({ columns }) => columns.some(({ name }) => name === updatedAt || generated.includes(name)));
}

/**
 * A trigger of the application that sets `updated_at` on every UPDATE also does so on this one. SQLite does not fire a
 * trigger within itself, so a trigger of ours that answers the application's has the last word.
 */
function insisting(db: Connection, table: Table, stamp: () => void): void {
  const name = quote(`${TRIGGER_PREFIX}insist`);
  const version = `(SELECT version FROM _stamps WHERE ${isOf(table, idOf(table, 'NEW'))} AND refused IS NULL)`;
  const differs = `${timeOf(table, 'NEW')} IS NOT coalesce(${version}, ${timeOf(table, 'NEW')})`;
  db.exec(
    `CREATE TEMP TRIGGER ${name} AFTER UPDATE ON main.${quote(table.name)} FOR EACH ROW WHEN ${differs} BEGIN ` +
      `UPDATE ${quote(table.name)} SET ${quote(table.updatedAt)} = ${version} ` +
      `WHERE ${table.rowKey} = NEW.${table.rowKey}; END`,
  );
  stamp();
  db.exec(`DROP TRIGGER temp.${name}`);
}

/** Each in a transaction of its own: a trigger may answer with RAISE(ROLLBACK). */
function writeOneByOne(db: Connection, table: Table, refused: (reason: string) => void): void {
  const pending = db.all<{ bytes: Uint8Array }>(
    `SELECT ${idForWire('row_id')} AS bytes FROM main._stamps WHERE table_name = ${literal(table.name)} AND refused IS NULL`,
  );
  for (const { bytes } of pending) {
    const id = exactString(bytes);
    try {
      db.transaction(() => write(db, table, id));
    } catch (error) {
      if (isMachineFault(error)) throw error;
      db.transaction(() => db.run(`UPDATE main._stamps SET refused = 1 WHERE ${isOf(table, BOUND_ID)}`, id));
      refused(messageOf(error));
    }
  }
}

/** Also those of tables that are not synced any more: nobody else would ever look at them. */
function keepRefused(db: Connection): void {
  db.run('UPDATE main._stamps SET refused = 1 WHERE refused IS NULL');
}

/** The application's trigger has had the last word after all. */
class Overruled extends Error {}
