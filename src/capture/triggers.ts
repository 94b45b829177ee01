/**
 * Which SQL runs on the application's write: one pure function from a table's description to the text of its triggers.
 *
 * What must hold: after every local write, `_changes` has the row as it stands, at a version above every version that the
 * row has had. The application's tables are only read here. So no write of the application fails because of these
 * triggers, and none of its own triggers fires because of them.
 *
 * The version of a row is the greater of its `updated_at` and its stamp in `_stamps` (versions.ts). A write that brings a
 * time above both is recorded from NEW, which is all that most writes cost. Any other (`updated_at` forgotten, invalid or
 * not above the last version; an id that was deleted; a row that REPLACE has hidden) gets a stamp above the last version
 * and is recorded with it. stamps.ts writes the stamps into the rows later, between transactions.
 *
 * Why it holds with triggers of the application that write to the row again, in any order of firing:
 * - No trigger here writes to a captured table, so none of them is ever on the stack when the application writes, and
 *   each fires for every write at any depth, whether `recursive_triggers` is on or off.
 * - A write nested in another sees the outer write's values as OLD, so it is recorded above them. If it fires before the
 *   outer write is recorded, NEW of the outer write is out of date: recorded from NEW it is below what the nested write has
 *   recorded, and loses everywhere. What gets a stamp is read again from the table.
 * - A nested write may lower the time of a row below what it was before the outer write. Then the outer write lowered it
 *   first, so it is one that gets a stamp, and its OLD has the version to be above.
 * - A stamp never sinks, whoever notes it, until stamps.ts has written it. A write that is recorded from NEW and also gets a
 *   stamp is in `_changes` twice, the second time above the first; asking first would cost every write a look-up.
 * A rollback, to a savepoint or of everything, takes the row, the change and the stamp back alike.
 */

import type { Table } from '../sqlite/schema.ts';
import { TRIGGER_PREFIX } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import { rareRowJson, rowJson } from '../wire/row-json.ts';
import { toldByTrigger } from '../wire/told-json.ts';
import { dayOf } from './floors.ts';
import { captureReplaced, replacedByRowid } from './replaced.ts';
import { sayInserted, sayUpdated } from './unsaid.ts';
import {
  idOf,
  isOf,
  lastDeletion,
  lastVersion,
  NOT_SYNCING,
  NOW,
  noteStamp,
  presentIfInvalid,
  recordStamped,
  recordStampedUpdate,
  SEEMS_LOCAL,
  timeOf,
  valid,
  versionOf,
} from './versions.ts';

/**
 * Raised with every change of the texts below, or of what they are made of, so that of two builds on one file the one with the
 * older texts leaves those of the other in place (other-builds.ts). test/capture/trigger-form.test.ts notices who forgets it,
 * for most tables. An older build that leaves them still gives the internal tables its own shape: a text that needs a column
 * there that they have not had since form 1 needs more than a new number.
 */
export const TRIGGER_FORM = 1;

export interface Trigger {
  name: string;
  sql: string;
}

export interface TriggerParts {
  kind: string;
  event: string;
  when: string;
  body: string[];
}

/** SQLite fires the youngest first. Nothing here depends on it. */
export function triggersFor(table: Table): Trigger[] {
  const parts = [
    noteBeforeInsert(table),
    noteBeforeRename(table),
    ...captureReplaced(table),
    stampInsert(table),
    captureRename(table),
    stampUpdate(table),
    captureInsert(table),
    captureUpdate(table),
    stampDelete(table),
    captureDelete(table),
  ];
  return parts.map(({ kind, event, when, body }) => {
    const name = `${TRIGGER_PREFIX}${fold(table.name)}_${kind}`;
    const head = `CREATE TRIGGER ${quote(name)} ${event} ON ${quote(table.name)} FOR EACH ROW`;
    return { name, sql: `${head} WHEN ${when} BEGIN ${body.join('; ')}; END` };
  });
}

function captureInsert(table: Table): TriggerParts {
  return {
    kind: 'insert',
    event: 'AFTER INSERT',
    when: `${valid(timeOf(table, 'NEW'))}${aboveFloor(table)} AND ${NOT_SYNCING}`,
    body: [...sayInserted(table), record(table, 'INSERT')],
  };
}

/**
 * An insert without a usable time, or at or below what its id has already been: a tombstone, a row just replaced, or,
 * where tombstones are collected, whatever there may have been.
 */
function stampInsert(table: Table): TriggerParts {
  const time = timeOf(table, 'NEW');
  const hiddenAbove = table.uniques.length > 0 ? ` OR ${reached(table, '_hidden')}` : '';
  const { when, body } = replacedByRowid(table)?.after ?? {};
  return {
    kind: 'insert_stamp',
    event: 'AFTER INSERT',
    when:
      `${SEEMS_LOCAL} AND (NOT ${valid(time)} OR ${reached(table, '_tombstones')} OR ` +
      `${reached(table, '_stamps')}${hiddenAbove}` +
      `${table.floor === undefined ? '' : ` OR ${time} <= ${table.floor}`}${when ? ` OR ${when}` : ''}) ` +
      `AND ${NOT_SYNCING}`,
    body: [
      ...(body ?? []),
      ...sayInserted(table),
      ...recordStamped(table, 'INSERT', {
        where: sameRow(table),
        last: lastVersion(lastDeletion(table, idOf(table, 't'))),
        wanted: presentIfOld(table),
      }),
    ],
  };
}

/**
 * INSERT OR REPLACE removes the old row without firing a DELETE trigger, and its version with it. Before that happens the
 * old version is noted as the id's stamp, but only where the new row would not be above it anyway. Where the insert is
 * ignored or becomes an UPDATE, the stamp says what the row has, and that is no stamp at all.
 */
function noteBeforeInsert(table: Table): TriggerParts {
  const [id, time] = [quote(table.id), quote(table.updatedAt)];
  const there = `FROM ${quote(table.name)} WHERE ${id} = ${idOf(table, 'NEW')}`;
  const above = `(${valid(timeOf(table, 'NEW'))} AND ${time} < ${timeOf(table, 'NEW')})`;
  // Mostly there is none: that the index says by itself, and the table is not opened for it.
  const notAbove = `EXISTS (SELECT 1 ${there}) AND EXISTS (SELECT 1 ${there} AND NOT ${above})`;
  const { when, body } = replacedByRowid(table)?.before ?? {};
  return {
    kind: 'insert_floor',
    event: 'BEFORE INSERT',
    when: `${SEEMS_LOCAL} AND ${when ? `(${when} OR ${notAbove})` : notAbove} AND ${NOT_SYNCING}`,
    body: [noteStamp(table, { id, version: time, from: `${there} AND ${valid(time)}` }), ...(body ?? [])],
  };
}

function captureUpdate(table: Table): TriggerParts {
  return {
    kind: 'update',
    event: 'AFTER UPDATE',
    when: `${advances(table)} AND ${NOT_SYNCING}`,
    body: [...sayUpdated(table), record(table, 'UPDATE', seenVersion(table))],
  };
}

/** An update whose `updated_at` was forgotten, is invalid, or is not above the row's last version. */
function stampUpdate(table: Table): TriggerParts {
  const [time, old] = [timeOf(table, 't'), timeOf(table, 'OLD')];
  const stamped = recordStampedUpdate(table, idOf(table, 'OLD'), {
    where: sameRow(table),
    last: lastVersion(`iif(${valid(old)}, ${old}, NULL)`),
    wanted: `iif(${valid(time)} AND ${time} IS NOT ${old}, ${time}, ${NOW})`,
  });
  const body = [...sayUpdated(table), ...stamped];
  if (table.writers > 0) body.push(...recordGone(table));
  return {
    kind: 'update_stamp',
    event: 'AFTER UPDATE',
    when: `(NOT ${advances(table)} OR ${reached(table, '_stamps')}) AND ${NOT_SYNCING}`,
    body,
  };
}

function captureDelete(table: Table): TriggerParts {
  const time = timeOf(table, 'OLD');
  return {
    kind: 'delete',
    event: 'AFTER DELETE',
    when: `${valid(time)} AND ${NOT_SYNCING}`,
    body: recordDelete(table, time, rowJson),
  };
}

/** A row that has no usable time of its own, or a stamp: it is deleted at its version. */
function stampDelete(table: Table): TriggerParts {
  const stamped = `EXISTS (SELECT 1 FROM _stamps WHERE ${isOf(table, idOf(table, 'OLD'))})`;
  const body = recordDelete(table, versionOf(table, 'OLD'));
  if (table.writers > 0) body.push(...recordBack(table));
  const there = `SELECT 1 FROM ${quote(table.name)} AS t WHERE ${idOf(table, 't')} = ${idOf(table, 'OLD')}`;
  const back = table.writers > 0 ? ` OR EXISTS (${there})` : '';
  return {
    kind: 'delete_stamp',
    event: 'AFTER DELETE',
    when: `(NOT ${valid(timeOf(table, 'OLD'))} OR ${stamped}${back}) AND ${NOT_SYNCING}`,
    body,
  };
}

/** `SET id = ...` is the end of one row and the beginning of another: the other triggers have the new one, this the old. */
function captureRename(table: Table): TriggerParts {
  const [id, old] = [idOf(table, 'NEW'), idOf(table, 'OLD')];
  return {
    kind: 'rename',
    event: `AFTER UPDATE OF ${quote(table.id)}`,
    // A row that had no id was never sent to anybody.
    when: `${old} IS NOT ${id} AND ${old} IS NOT NULL AND ${NOT_SYNCING}`,
    body: [...recordDelete(table, versionOf(table, 'OLD')), ...(table.writers > 0 ? recordBack(table) : [])],
  };
}

/** The new id may have been deleted before, and UPDATE OR REPLACE can take over that of a living row. */
function noteBeforeRename(table: Table): TriggerParts {
  const id = idOf(table, 'NEW');
  const time = quote(table.updatedAt);
  const living = `FROM ${quote(table.name)} WHERE ${quote(table.id)} = ${id}`;
  const there = `${living} AND ${valid(time)}`;
  return {
    kind: 'rename_floor',
    event: `BEFORE UPDATE OF ${quote(table.id)}`,
    when: `${idOf(table, 'OLD')} IS NOT ${id} AND ${NOT_SYNCING}`,
    body: [
      noteStamp(table, { id: quote(table.id), version: time, from: there }),
      noteStamp(table, { id: 'row_id', version: 'version', from: `FROM _tombstones WHERE ${isOf(table, id)}` }),
      ...(table.floor === undefined
        ? []
        : [
            noteStamp(table, {
              id,
              version: `max(${table.floor}, ${NOW} - 1)`,
              // Of an id that lives, what its row has is noted already: where the update is ignored, this would be above that.
              from: `WHERE (${timeOf(table, 'NEW')} > ${table.floor}) IS NOT 1 AND NOT EXISTS (SELECT 1 ${living})`,
            }),
          ]),
      ...(table.uniques.length > 0
        ? [noteStamp(table, { id: 'row_id', version: 'version', from: `FROM _hidden WHERE ${isOf(table, id)}` })]
        : []),
    ],
  };
}

/** True where the update itself carries a version above the one that the row had before. */
function advances(table: Table): string {
  const [time, old] = [timeOf(table, 'NEW'), timeOf(table, 'OLD')];
  return `(${valid(time)} AND (${time} > ${old} OR NOT ${valid(old)}))`;
}

/** True where NEW is not above what is noted of its id. */
function reached(table: Table, source: '_tombstones' | '_stamps' | '_hidden'): string {
  const noted = `SELECT 1 FROM ${source} WHERE ${isOf(table, idOf(table, 'NEW'))}`;
  return `EXISTS (${noted} AND version >= ${timeOf(table, 'NEW')})`;
}

/** The row that was written, wherever a trigger of the application has moved it meanwhile. */
function sameRow(table: Table): string {
  return `t.${table.rowKey} = NEW.${table.rowKey}`;
}

/** Of a write whose time is valid: it has been asked. */
function record(table: Table, op: 'INSERT' | 'UPDATE', base?: string): string {
  const [column, value] = base === undefined ? ['', ''] : [', base', `, ${base}`];
  const row = toldByTrigger(table, 'NEW', { column: table.updatedAt, by: timeOf(table, 'NEW') });
  return (
    `INSERT INTO _changes (op, table_name, row_id, row_data${column}) VALUES ` +
    `('${op}', ${literal(table.wireName)}, ${idOf(table, 'NEW')}, ${row}${value})`
  );
}

/**
 * The version that an UPDATE has seen, for the conflict journal: what is above it where the update arrives was not seen.
 * Too great a one would hide a conflict, too small a one would make one up; so a pending stamp counts. What has another
 * id now was another row before.
 */
function seenVersion(table: Table): string {
  const [id, old, time] = [idOf(table, 'NEW'), idOf(table, 'OLD'), timeOf(table, 'OLD')];
  const stamped = `SELECT max(version, ${time}) FROM _stamps WHERE ${isOf(table, old)}`;
  return `iif(${old} IS ${id}, coalesce((${stamped}), ${time}), NULL)`;
}

/** OLD is gone. */
function recordDelete(table: Table, version: string, row = rareRowJson): string[] {
  const id = idOf(table, 'OLD');
  return [
    'INSERT INTO _changes (op, table_name, row_id, row_data) VALUES ' +
      `('DELETE', ${literal(table.wireName)}, ${id}, ${row(table, 'OLD', { column: table.updatedAt, by: version })})`,
    entomb(table, id, version, `${id} IS NOT NULL`),
  ];
}

/** A trigger of the application may have put OLD back already, and then it must be above its own deletion. */
function recordBack(table: Table): string[] {
  return recordStamped(table, 'INSERT', {
    where: `${idOf(table, 't')} = ${idOf(table, 'OLD')}`,
    last: lastVersion(lastDeletion(table, idOf(table, 't'))),
    wanted: presentIfOld(table),
  });
}

/**
 * A trigger of the application may have deleted the row that was just updated, at a time below the one it had before. The
 * deletion is recorded once more, at that.
 */
function recordGone(table: Table): string[] {
  const [id, old] = [idOf(table, 'NEW'), timeOf(table, 'OLD')];
  const there = `SELECT 1 FROM ${quote(table.name)} AS t WHERE ${idOf(table, 't')} = ${id}`;
  const gone = `${valid(old)} AND ${id} IS NOT NULL AND NOT EXISTS (${there})`;
  return [
    'INSERT INTO _changes (op, table_name, row_id, row_data) ' +
      `SELECT 'DELETE', ${literal(table.wireName)}, ${id}, ` +
      `${rareRowJson(table, 'NEW', { column: table.updatedAt, by: old })} WHERE ${gone}`,
    entomb(table, id, old, gone),
  ];
}

function entomb(table: Table, id: string, version: string, where: string): string {
  const day = dayOf(table);
  return (
    `INSERT INTO _tombstones (table_name, row_id, version${day.column}) ` +
    `SELECT ${literal(table.name)}, ${id}, ${version}${day.value} WHERE ${where} ` +
    `ON CONFLICT DO UPDATE SET version = max(version, excluded.version)${day.update}`
  );
}

/**
 * The time of an inserted row; the present where it is unusable, or at or below the floor. Just above the floor would do
 * here, but another node may have collected more, and then it would not take the row.
 */
function presentIfOld(table: Table): string {
  const time = timeOf(table, 't');
  if (table.floor === undefined) return presentIfInvalid(time);
  return `iif(${valid(time)} AND ${time} > ${table.floor}, ${time}, ${NOW})`;
}

/** Below the floor an insert gets a stamp, and is recorded with that alone: nobody would take it as it is. */
function aboveFloor(table: Table): string {
  return table.floor === undefined ? '' : ` AND ${timeOf(table, 'NEW')} > ${table.floor}`;
}
