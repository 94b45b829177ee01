/** The triggers of ours that are in a database, compared with those that should be; and those of others that get in their way. */
import type { Connection } from '../sqlite/connection.ts';
import { OTHERS_TRIGGER, type Table, TRIGGER_PREFIX } from '../sqlite/schema.ts';
import { fold, inMain, literal } from '../sqlite/sql.ts';
import type { Trigger } from './triggers.ts';

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

export function dropTriggers(db: Connection, triggers: Trigger[]): void {
  for (const { name } of triggers) db.exec(`DROP TRIGGER ${inMain(name)}`);
}

export function isOn(table: Table): (trigger: OwnTrigger) => boolean {
  return (trigger) => fold(trigger.tbl_name) === fold(table.name);
}

export function gapIn(table: Table): string {
  return (
    `table "${table.name}" was without its capture triggers for a while (it was rebuilt, or somebody dropped or changed ` +
    'them): they are in place again, all its rows are sent to every peer, and the peers are asked for theirs. A row that ' +
    'was deleted meanwhile comes back; a peer that is not Rowcast cannot be asked, so compare with it'
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

export function hasNewColumn(before: Table | undefined, now: Table): boolean {
  return before === undefined || hasLostColumn(now, before);
}

export function hasLostColumn(before: Table | undefined, now: Table): boolean {
  const known = new Set(now.columns.map((column) => fold(column.name)));
  return before?.columns.some((column) => !known.has(fold(column.name))) ?? false;
}
