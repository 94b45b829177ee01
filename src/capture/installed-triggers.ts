/** The triggers of ours that are in a database, compared with those that should be; and those of others that get in their way. */
import type { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { OTHERS_TRIGGER, type Table, TRIGGER_PREFIX } from '../sqlite/schema.ts';
import { fold, inMain, literal } from '../sqlite/sql.ts';
import { noteCapture, noteCaptureOff } from './capture-record.ts';
import { type Trigger, triggersFor } from './triggers.ts';

/** A code and a message. */
export type Warning = [string, string];

export interface OwnTrigger extends Trigger {
  tbl_name: string;
}

export function ownTriggers(db: Connection): OwnTrigger[] {
  return db.all(
    "SELECT name, sql, tbl_name FROM main.sqlite_schema WHERE type = 'trigger' " +
      `AND substr(name, 1, ${TRIGGER_PREFIX.length}) = ${literal(TRIGGER_PREFIX)}`,
  );
}

/** Their texts take longer to write than to compare; once they are made, the description that they are made of stays as it is. */
const wantedTexts = new WeakMap<Table, Trigger[]>();

export function wantedOn(table: Table): Trigger[] {
  const wanted = wantedTexts.get(table) ?? triggersFor(table);
  wantedTexts.set(table, wanted);
  return wanted;
}

/**
 * `there` are those of ours that the database has. All of a table's or none, and before those of others: they fire by the
 * order of their creation.
 */
export function installTriggers(db: Connection, tables: Table[], there: OwnTrigger[]): void {
  const installed = (table: Table): OwnTrigger[] => there.filter(isOn(table));
  const anew = tables.filter((table) => !sameTriggers(wantedOn(table), installed(table)) || othersFireFirst(db, table));
  // All of them before any is made: tables that have changed names have triggers by the names of each other's.
  for (const table of anew) dropTriggers(db, installed(table));
  // Named with its database: beside a temporary table of that name it would be made for that one.
  for (const { sql } of anew.flatMap(wantedOn)) db.exec(sql.replace(/^CREATE TRIGGER /, 'CREATE TRIGGER main.'));
  for (const table of tables) noteCapture(db, table, wantedOn(table));
}

export function dropTriggers(db: Connection, triggers: Trigger[]): void {
  for (const { name } of triggers) db.exec(`DROP TRIGGER ${inMain(name)}`);
}

interface Found {
  tables: Table[];
  there: OwnTrigger[];
  /** Tables that should be among those and are not, with the reason; and the reasons that were told before. */
  lost: Map<string, RowcastError>;
  told: Map<string, string>;
}

/** Takes our triggers from tables that are not in the list, or no longer under the name that is; one warning a table. */
export function dropUnwanted(db: Connection, { tables, there, lost, told }: Found, warnings: Warning[]): void {
  const wanted = tables.map(isOn);
  const unwanted = there.filter((trigger) => !wanted.some((isIt) => isIt(trigger)));
  dropTriggers(db, unwanted);
  const renamed = new Map<string, string>();
  for (const { name, tbl_name } of unwanted) {
    const from = [...lost.keys()].find((was) => name.startsWith(`${TRIGGER_PREFIX}${was}_`));
    if (from !== undefined) renamed.set(from, tbl_name);
  }
  for (const name of new Set(unwanted.map(({ tbl_name }) => tbl_name))) {
    if ([...renamed.values()].includes(name)) continue;
    noteCaptureOff(db, name);
    warnings.push(['table-dropped', `table "${name}" is not in the list any more and no longer captured`]);
  }
  for (const [name, error] of lost) {
    if (told.get(name) === error.message) continue;
    warnings.push(['table-lost', lostTable(name, renamed.get(name), error)]);
  }
}

export function isOn(table: Table): (trigger: OwnTrigger) => boolean {
  const name = fold(table.name);
  return (trigger) => trigger.tbl_name === table.name || fold(trigger.tbl_name) === name;
}

/** Without `replaced`, it had its triggers, and a UNIQUE constraint that they did not know. */
export function gapIn(
  table: Table,
  replaced: { lost: string[]; got: string[] } | undefined,
  dropped: string[],
): string {
  if (!replaced) return dropped.length > 0 ? forgottenOf(table, dropped) : unwatchedIn(table);
  const { lost, got } = replaced;
  const [from, to] = [lost[0], got[0]];
  const renamed =
    from === undefined || to === undefined
      ? ''
      : `. It has lost "${lost.join('", "')}" and got "${got.join('", "')}": if that is one column under two names, say ` +
        `so here, migrate('', { rename: { ${table.name}: { ${from}: '${to}' } } }), or what others send of it is not found`;
  return (
    `table "${table.name}" was without its capture triggers for a while (it was rebuilt, or somebody dropped or changed ` +
    'them): they are in place again, all its rows are sent to every peer, and the peers are asked for theirs. A row that ' +
    `was deleted meanwhile comes back; a peer that is not Rowcast cannot be asked, so compare with it${renamed}`
  );
}

function forgottenOf(table: Table, dropped: string[]): string {
  return (
    `somebody has dropped ${dropped.join(' and ')}, and with it what was captured of table "${table.name}" and not yet sent: ` +
    'it is made anew, all rows of the table are sent to every peer, and the peers are asked for theirs. A row that was ' +
    'deleted and that some peer still has may come back. Leave the tables alone whose names begin with _'
  );
}

function unwatchedIn(table: Table): string {
  return (
    `table "${table.name}" was written to under a UNIQUE constraint that its capture triggers did not know yet: rows that a ` +
    'REPLACE has removed by it went unseen. They know it now, all its rows are sent to every peer, and the peers are asked ' +
    'for theirs. A row that was removed so comes back; let migrate() make the next one, and none is'
  );
}

/** As the table is described now. */
export function renamedIn(table: Table, [from, to]: [string, string]): string {
  const wireName = table.columns.find(({ name }) => name === to)?.wireName ?? from;
  const was = `column "${from}" of "${table.name}" was renamed to "${to}"`;
  if (wireName === to) return `${was}, and another column is called "${from}" now: it travels as "${to}"`;
  return (
    `${was}: it still travels as "${wireName}", for the nodes where ` +
    'it has that name; when it is renamed on all of them, drop the alias (rowcast aliases -drop)'
  );
}

/** `now` is what the table is called, where that can be told: one that lacks a column that it must have is called as it was. */
function lostTable(name: string, now: string | undefined, { message }: Error): string {
  if (now === undefined || fold(now) === fold(name)) return `${message}; its changes are dead letters until it is back`;
  return (
    `table "${name}" was renamed to "${now}" and is no longer captured: say so, ` +
    `migrate('', { renameTable: { ${name}: '${now}' } }), or give it its name back; until then changes to it are dead letters`
  );
}

/**
 * Another implementation's capture triggers would record every write twice, or fail on a `_changes` that is now ours. True
 * where there were any.
 */
export function dropForeignCapture(db: Connection, table: Table, warnings: Warning[]): boolean {
  const triggers = db.all<{ name: string; sql: string }>(
    `SELECT name, sql FROM main.sqlite_schema WHERE ${OTHERS_TRIGGER} AND tbl_name = ? COLLATE NOCASE`,
    table.name,
  );
  const foreign = triggers.filter(({ sql }) => /\binto\s+["`[]?_changes\b/i.test(sql));
  for (const { name } of foreign) {
    db.exec(`DROP TRIGGER ${inMain(name)}`);
    warnings.push(['foreign-trigger', `trigger "${name}" also wrote to _changes and was replaced by Rowcast's own`]);
  }
  return foreign.length > 0;
}

export function sameTriggers(wanted: Trigger[], there: Trigger[]): boolean {
  const texts = new Map(there.map(({ name, sql }) => [name, sql]));
  return wanted.length === there.length && wanted.every(({ name, sql }) => texts.get(name) === sql);
}

/**
 * SQLite fires the newest trigger first. One of the application's that comes before ours can end the statement and leave what it
 * has written: by RAISE(IGNORE), by RAISE(FAIL), or by a constraint in a statement that is OR FAIL. Then nobody has captured it.
 */
export function othersFireFirst(db: Connection, table: Table): boolean {
  const oldest =
    "SELECT min(rowid) FROM main.sqlite_schema WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE " +
    `AND substr(name, 1, ${TRIGGER_PREFIX.length}) = ${literal(TRIGGER_PREFIX)}`;
  const sql = `SELECT 1 AS n FROM main.sqlite_schema WHERE ${OTHERS_TRIGGER} AND tbl_name = ? COLLATE NOCASE AND rowid > (${oldest})`;
  return db.get(sql, table.name, table.name) !== undefined;
}

export function hasNewColumn(before: Table | undefined, now: Table): boolean {
  return before === undefined || hasLostColumn(now, before);
}

export function hasLostColumn(before: Table | undefined, now: Table): boolean {
  const known = new Set(now.columns.map((column) => fold(column.name)));
  return before?.columns.some((column) => !known.has(fold(column.name))) ?? false;
}

export function tableExists(db: Connection, name: string): boolean {
  const sql = "SELECT 1 AS n FROM main.sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE";
  return db.get(sql, name) !== undefined;
}
