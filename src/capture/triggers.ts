/**
 * Which SQL runs on the application's write: one pure function from a table's description to the text of its triggers.
 *
 * Every local write must end up in `_changes` with a version above every version the row has had. On an honest clock
 * that is already so, and all a write pays is one INSERT. The other cases (`updated_at` forgotten, invalid or not above
 * the last version; an id that was deleted before; a row hidden by REPLACE) go through a second trigger that advances
 * `updated_at` with an UPDATE of its own. That UPDATE fires the capture trigger, which is never on the stack at that
 * moment, so it works whether `recursive_triggers` is on or off. An UPDATE is recorded by exactly one of the two. An INSERT
 * that has to be advanced may be recorded at its own version as well: that version is below the other everywhere and
 * changes nothing, and asking first would cost every insert a second look-up.
 *
 * The application's own triggers may write to the row again, such as the popular one that sets `updated_at` on every
 * update. Such a write can happen while an advancing trigger is on the stack, and SQLite does not fire a trigger within
 * itself. Therefore a table that k triggers of the application can write to has k + 1 copies of the advancing trigger: on
 * a stack with j of those k there are at most j advancing ones, so one is always free, and the last write to a row is
 * always recorded. There are two in any case, for a trigger that the application has made a moment ago. What the row's
 * version was before each of these writes is kept as a floor until the outbox sweeps it.
 */

import type { Table } from '../sqlite/schema.ts';
import { TRIGGER_PREFIX } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import { TIMESTAMP_MAX } from '../wire/protocol.ts';
import { rowJson } from '../wire/values.ts';

export interface Trigger {
  name: string;
  sql: string;
}

/** A missing flag row means capture: losing a change is worse than sending one too many. */
const NOT_SYNCING = "(SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1";

/** SQLite's clock, in milliseconds; julianday works in every version, and only the rare paths ask for the time. */
const NOW = "CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)";

/** An integer in range. Of what a column of INTEGER affinity can hold in that range, only a fraction is not one. */
const valid = (x: string): string =>
  `((${x} BETWEEN -${TIMESTAMP_MAX} AND ${TIMESTAMP_MAX} AND ${x} = CAST(${x} AS INTEGER)) IS TRUE)`;

/**
 * In the order of their creation. SQLite fires the youngest first, so what records a row as written comes before what
 * advances it, and the last change recorded of a row is the one that stands. Nothing breaks if it ever does otherwise.
 */
export function triggersFor(table: Table): Trigger[] {
  return [
    floorBeforeReplace(table),
    floorBeforeRename(table),
    ...captureReplaced(table),
    advanceInsert(table),
    captureRename(table),
    ...advanceUpdate(table),
    captureInsert(table),
    captureUpdate(table),
    captureDelete(table),
  ];
}

function captureInsert(table: Table): Trigger {
  return trigger(table, 'insert', 'AFTER INSERT', `${valid(`NEW.${ts(table)}`)} AND ${NOT_SYNCING}`, [
    record(table, 'INSERT', 'NEW'),
  ]);
}

/** An insert without a usable time, or at or below what its id has already been: a tombstone, or a row just replaced. */
function advanceInsert(table: Table): Trigger {
  const t = ts(table);
  const floor = `max(coalesce(${floorOf(table)}, -${TIMESTAMP_MAX}), coalesce(${tombstoneOf(table)}, -${TIMESTAMP_MAX}))`;
  const notAbove = (source: '_tombstones' | '_floors'): string =>
    `EXISTS (SELECT 1 FROM ${source} WHERE table_name = ${literal(table.name)} AND row_id = NEW.${quote(table.id)} AND version >= NEW.${t})`;
  return trigger(
    table,
    'insert_advance',
    'AFTER INSERT',
    `(NOT ${valid(`NEW.${t}`)} OR ${notAbove('_tombstones')} OR ${notAbove('_floors')}) AND ${NOT_SYNCING}`,
    [
      `UPDATE ${quote(table.name)} SET ${t} = min(${TIMESTAMP_MAX}, max(iif(${valid(t)}, ${t}, ${NOW}), ${floor} + 1)) ` +
        `WHERE ${table.rowKey} = NEW.${table.rowKey} AND NOT (${valid(t)} AND ${t} > ${floor})`,
    ],
  );
}

/**
 * INSERT OR REPLACE removes the old row without firing a DELETE trigger, and its version with it. Before that happens the
 * old version is noted as a floor, but only where the new row would not be above it anyway. A floor is meaningful between
 * this trigger and the AFTER trigger of the same row; those that an ignored or upserted row leaves behind are swept up
 * by the outbox.
 */
function floorBeforeReplace(table: Table): Trigger {
  const notAbove = `NOT (${valid(`NEW.${ts(table)}`)} AND ${ts(table)} < NEW.${ts(table)})`;
  const there = `FROM ${quote(table.name)} WHERE ${quote(table.id)} = NEW.${quote(table.id)} AND ${notAbove}`;
  return trigger(table, 'insert_floor', 'BEFORE INSERT', `EXISTS (SELECT 1 ${there}) AND ${NOT_SYNCING}`, [
    noteFloor(table, there),
  ]);
}

function captureUpdate(table: Table): Trigger {
  return trigger(table, 'update', 'AFTER UPDATE', `${advances(table)} AND ${NOT_SYNCING}`, [
    record(table, 'UPDATE', 'NEW'),
  ]);
}

/** The exact complement of captureUpdate: `updated_at` forgotten, invalid, or not above the row's last version. */
function advanceUpdate(table: Table): Trigger[] {
  const t = ts(table);
  const id = quote(table.id);
  const last = `max(iif(${valid(`OLD.${t}`)}, OLD.${t}, -${TIMESTAMP_MAX}), coalesce(${floorOf(table)}, -${TIMESTAMP_MAX}))`;
  const body = [
    // A trigger of the application may have moved the row on already; then there is nothing left to advance.
    `UPDATE ${quote(table.name)} SET ${t} = min(${TIMESTAMP_MAX}, max(iif(${valid(t)} AND ${t} IS NOT OLD.${t}, ${t}, ${NOW}), ${last} + 1)) ` +
      `WHERE ${table.rowKey} = NEW.${table.rowKey} AND NOT (${valid(t)} AND ${t} > ${last})`,
  ];
  if (table.writers > 0) {
    body.unshift(
      `INSERT INTO _floors (table_name, row_id, version) SELECT ${literal(table.name)}, NEW.${id}, OLD.${t} ` +
        `WHERE ${valid(`OLD.${t}`)} AND NEW.${id} IS NOT NULL ON CONFLICT DO UPDATE SET version = max(version, excluded.version)`,
    );
  }
  return Array.from({ length: Math.max(2, table.writers + 1) }, (_, copy) =>
    trigger(
      table,
      copy === 0 ? 'update_advance' : `update_advance_${copy + 1}`,
      'AFTER UPDATE',
      `NOT ${advances(table)} AND ${NOT_SYNCING}`,
      body,
    ),
  );
}

function captureDelete(table: Table): Trigger {
  return trigger(table, 'delete', 'AFTER DELETE', NOT_SYNCING, [recordDelete(table), entomb(table)]);
}

/** `SET id = ...` is the end of one row and the beginning of another: captureUpdate has the new one, this adds the old. */
function captureRename(table: Table): Trigger {
  const t = ts(table);
  const id = quote(table.id);
  const floor = `max(coalesce(${floorOf(table)}, -${TIMESTAMP_MAX}), coalesce(${tombstoneOf(table)}, -${TIMESTAMP_MAX}))`;
  return trigger(table, 'rename', `AFTER UPDATE OF ${id}`, `OLD.${id} IS NOT NEW.${id} AND ${NOT_SYNCING}`, [
    recordDelete(table),
    entomb(table),
    `UPDATE ${quote(table.name)} SET ${t} = min(${TIMESTAMP_MAX}, ${floor} + 1) WHERE ${table.rowKey} = NEW.${table.rowKey} ` +
      `AND ${t} <= ${floor}`,
  ]);
}

/** UPDATE OR REPLACE can take over the id of a living row; the same floor as for INSERT OR REPLACE. */
function floorBeforeRename(table: Table): Trigger {
  const id = quote(table.id);
  const there = `FROM ${quote(table.name)} WHERE ${id} = NEW.${id}`;
  return trigger(
    table,
    'rename_floor',
    `BEFORE UPDATE OF ${id}`,
    `OLD.${id} IS NOT NEW.${id} AND EXISTS (SELECT 1 ${there}) AND ${NOT_SYNCING}`,
    [noteFloor(table, there)],
  );
}

/**
 * With a second UNIQUE constraint, REPLACE also removes rows with other ids, and no trigger of theirs fires. They are
 * noted before the write and, if they are gone after it, recorded as deleted.
 */
function captureReplaced(table: Table): Trigger[] {
  if (table.uniques.length === 0) return [];
  const name = literal(table.name);
  const id = quote(table.id);
  const columns = [...new Set(table.uniques.flatMap((unique) => unique.columns.map((column) => quote(column.name))))];
  // An expression is asked of the new row by way of a subquery that has its columns under their own names.
  const fresh = `(SELECT ${table.columns.map((c) => `NEW.${quote(c.name)} AS ${quote(c.name)}`).join(', ')})`;
  const clash = table.uniques
    .map((unique) =>
      [
        ...unique.columns.map((c) =>
          c.expression === undefined
            ? `t.${quote(c.name)} = NEW.${quote(c.name)} COLLATE ${quote(c.collation)}`
            : `(${c.expression}\n) = (SELECT ${c.expression}\n FROM ${fresh}) COLLATE ${quote(c.collation)}`,
        ),
        ...(unique.where === undefined ? [] : [`(${unique.where}\n)`]),
      ].join(' AND '),
    )
    // One look-up per constraint: joined by OR, SQLite walks the whole table.
    .map((all) => `SELECT t.${id} FROM ${quote(table.name)} AS t WHERE ${all}`)
    .join(' UNION ALL ');
  const victims = (own: string): string =>
    `FROM ${quote(table.name)} AS t WHERE t.${id} IN (${clash}) AND t.${id} IS NOT ${own}.${id} AND t.${id} IS NOT NULL`;
  const note = (own: string): string =>
    `INSERT INTO _replaced (table_name, row_id, version, row_data) SELECT ${name}, t.${id}, t.${ts(table)}, ` +
    `${rowJson(table, 't')} ${victims(own)} ON CONFLICT (table_name, row_id) DO UPDATE SET version = excluded.version, row_data = excluded.row_data`;
  const gone = `FROM _replaced AS r WHERE r.table_name = ${name} AND NOT EXISTS (SELECT 1 FROM ${quote(table.name)} AS t WHERE t.${id} = r.row_id)`;
  const settle = [
    `INSERT INTO _changes (op, table_name, row_id, row_data) SELECT 'DELETE', ${name}, r.row_id, r.row_data ${gone}`,
    `INSERT INTO _tombstones (table_name, row_id, version) SELECT ${name}, r.row_id, r.version ${gone} ` +
      'ON CONFLICT DO UPDATE SET version = max(version, excluded.version)',
    `DELETE FROM _replaced WHERE table_name = ${name}`,
  ];
  const noted = `EXISTS (SELECT 1 FROM _replaced WHERE table_name = ${name}) AND ${NOT_SYNCING}`;
  // An UPDATE OF a generated column never fires: it is the columns it is made from that are written.
  const generated = columns.some((column) => !table.columns.some(({ name: stored }) => quote(stored) === column));
  // Nor is it known which columns a condition or an expression looks at.
  const hidden = table.uniques.some((u) => u.where !== undefined || u.columns.some((c) => c.expression !== undefined));
  const updates = generated || hidden ? 'UPDATE' : `UPDATE OF ${columns.join(', ')}`;
  return [
    trigger(table, 'insert_clash', 'BEFORE INSERT', `EXISTS (SELECT 1 ${victims('NEW')}) AND ${NOT_SYNCING}`, [
      note('NEW'),
    ]),
    trigger(table, 'insert_replaced', 'AFTER INSERT', noted, settle),
    trigger(table, 'update_clash', `BEFORE ${updates}`, `EXISTS (SELECT 1 ${victims('OLD')}) AND ${NOT_SYNCING}`, [
      note('OLD'),
    ]),
    trigger(table, 'update_replaced', `AFTER ${updates}`, noted, settle),
  ];
}

function trigger(table: Table, kind: string, event: string, when: string, body: string[]): Trigger {
  const name = `${TRIGGER_PREFIX}${fold(table.name)}_${kind}`;
  return {
    name,
    sql: `CREATE TRIGGER ${quote(name)} ${event} ON ${quote(table.name)} FOR EACH ROW WHEN ${when} BEGIN ${body.join('; ')}; END`,
  };
}

/** True where the update itself already carries a version above the row's last one. */
function advances(table: Table): string {
  const t = ts(table);
  // Without writers of the application's own, OLD is the last version; with them it may be what one of them put there.
  const aboveFloor = table.writers > 0 ? ` AND (NEW.${t} <= ${floorOf(table)}) IS NOT 1` : '';
  return `(${valid(`NEW.${t}`)} AND (NEW.${t} > OLD.${t} OR NOT ${valid(`OLD.${t}`)} OR NEW.${t} = ${TIMESTAMP_MAX})${aboveFloor})`;
}

function record(table: Table, op: 'INSERT' | 'UPDATE', source: 'NEW'): string {
  return (
    'INSERT INTO _changes (op, table_name, row_id, row_data) VALUES ' +
    `('${op}', ${literal(table.name)}, ${source}.${quote(table.id)}, ${rowJson(table, source)})`
  );
}

/** A deleted row that never had a usable time gets the present one, or no peer could place the deletion. */
function recordDelete(table: Table): string {
  return (
    'INSERT INTO _changes (op, table_name, row_id, row_data) VALUES ' +
    `('DELETE', ${literal(table.name)}, OLD.${quote(table.id)}, ${rowJson(table, 'OLD', { column: table.updatedAt, by: deletedAt(table) })})`
  );
}

function entomb(table: Table): string {
  return (
    `INSERT INTO _tombstones (table_name, row_id, version) SELECT ${literal(table.name)}, OLD.${quote(table.id)}, ` +
    `${deletedAt(table)} WHERE OLD.${quote(table.id)} IS NOT NULL ON CONFLICT DO UPDATE SET version = max(version, excluded.version)`
  );
}

function deletedAt(table: Table): string {
  return `CASE WHEN ${valid(`OLD.${ts(table)}`)} THEN OLD.${ts(table)} ELSE ${NOW} END`;
}

function noteFloor(table: Table, there: string): string {
  return (
    `INSERT INTO _floors (table_name, row_id, version) SELECT ${literal(table.name)}, ${quote(table.id)}, ` +
    `CASE WHEN ${valid(ts(table))} THEN ${ts(table)} ELSE ${NOW} END ${there} ON CONFLICT DO UPDATE SET version = max(version, excluded.version)`
  );
}

function floorOf(table: Table): string {
  return `(SELECT version FROM _floors WHERE table_name = ${literal(table.name)} AND row_id = NEW.${quote(table.id)})`;
}

function tombstoneOf(table: Table): string {
  return `(SELECT version FROM _tombstones WHERE table_name = ${literal(table.name)} AND row_id = NEW.${quote(table.id)})`;
}

function ts(table: Table): string {
  return quote(table.updatedAt);
}
