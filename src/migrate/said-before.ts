/**
 * What letters say of columns that a migration makes. Nodes are migrated one after the other, and one that was before this one
 * has sent what its users have written to such a column since; it was kept as a letter, and the rest of the row was applied.
 * The same migration here fills the column for that row as well, with what it fills all with. What was written is later than
 * that, whatever the order in which the nodes are migrated, so it is put in its place before it is looked which rows have changed.
 */
import { idOf, isOf, RESET_SYNCING, SET_SYNCING } from '../capture/versions.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Column, Table } from '../sqlite/schema.ts';
import { literal, quote } from '../sqlite/sql.ts';
import { exactString } from '../wire/exact-text.ts';
import { affine, decode, idForWire, storedId } from '../wire/values.ts';
import type { Pair } from './rows.ts';

const SAID = 'temp._rowcast_said';

/**
 * In the transaction of the migration, when the triggers are there again. Returns what there is to say of values that the
 * table does not let in: a constraint of this node's, or a UNIQUE value that another row has here.
 */
export function putInWhatWasSaid(db: Connection, pair: Pair): string[] {
  const { now } = pair;
  db.exec('CREATE TEMP TABLE IF NOT EXISTS _rowcast_said (id, name, time, value, row, PRIMARY KEY (name, id))');
  db.exec(`DELETE FROM ${SAID}`);
  const added = newColumns(pair);
  const found = added.filter((column) => {
    db.run(saidOf(now, column), now.name);
    return db.changes() > 0;
  });
  if (found.length === 0) return [];
  for (const column of now.columns) if (!added.includes(column) && !isKey(now, column)) markOthers(db, now, column);
  for (const column of found) {
    const name = quote(column.name);
    const set = `UPDATE OR IGNORE ${now.target} AS t SET ${name} = s.value FROM ${SAID} AS s`;
    db.exec(SET_SYNCING);
    db.exec(`${set} WHERE ${isSaid(now, column)} AND t.${name} IS NOT s.value`);
    db.exec(RESET_SYNCING);
  }
  return found.flatMap((column) => leftOut(db, now, column));
}

function leftOut(db: Connection, table: Table, column: Column): string[] {
  const ids = db.all<{ bytes: Uint8Array }>(
    `SELECT ${idForWire('s.id')} AS bytes FROM ${SAID} AS s JOIN ${table.target} AS t ON ${isSaid(table, column)} ` +
      `WHERE t.${quote(column.name)} COLLATE BINARY IS NOT s.value ORDER BY s.id`,
  );
  if (ids.length === 0) return [];
  const shown = ids.slice(0, IDS_SHOWN).map(({ bytes }) => JSON.stringify(exactString(bytes)));
  const more = ids.length > IDS_SHOWN ? ` and ${ids.length - IDS_SHOWN} more` : '';
  return [
    `"${table.name}" does not let in here what other nodes have written to "${column.name}" before this migration, and what it ` +
      `has put there stands instead, on all nodes: look at the rows ${shown.join(', ')}${more}`,
  ];
}

const IDS_SHOWN = 5;

export function forgetWhatWasSaid(db: Connection): void {
  db.exec(`DROP TABLE IF EXISTS ${SAID}`);
}

/**
 * True of a row `t` that is what a letter says, of the very version that its copy `w` has. Then that version has gone to all
 * nodes from where it was written. A row that was chosen over it at the same time, and takes the value along, is a new one.
 */
export function isAsSaid(table: Table, column: Column): string {
  const same = `s.time = w.version AND t.${quote(column.name)} COLLATE BINARY IS s.value`;
  return `EXISTS (SELECT 1 FROM ${SAID} AS s WHERE ${isSaid(table, column)} AND ${same})`;
}

/** Those that no column from before has become. */
export function newColumns({ was, now, becomes }: Pair): Column[] {
  const kept = new Set(was.columns.map((column) => becomes(column)));
  return now.columns.filter((column) => !kept.has(column) && !isKey(now, column));
}

export function isKey({ id, updatedAt }: Table, { name }: Column): boolean {
  return name === id || name === updatedAt;
}

function isSaid(table: Table, column: Column): string {
  return `s.name = ${literal(column.name)} AND s.id = ${idOf(table, 't')}`;
}

/** What letters say of rows that are not what they say in another column loses its time: it is of another version. */
function markOthers(db: Connection, table: Table, column: Column): void {
  const name = quote(column.name);
  const stored = column.affinity === 'REAL' ? affine('v', 'REAL') : 'v';
  const says = `e.key COLLATE NOCASE IN (${keysOf(table, column)})`;
  const value =
    `(SELECT ${stored} FROM (SELECT ${decode('a')} AS v ` +
    `FROM (SELECT e.atom AS a FROM json_each(s.row) AS e WHERE ${says} LIMIT 1) LIMIT -1))`;
  db.exec(
    `UPDATE ${SAID} AS s SET time = NULL WHERE EXISTS (SELECT 1 FROM json_each(s.row) AS e WHERE ${says}) ` +
      `AND EXISTS (SELECT 1 FROM ${table.target} AS t WHERE ${idOf(table, 't')} = s.id AND t.${name} COLLATE BINARY IS NOT ${value})`,
  );
}

/** All names by which rows on the wire may call a column. */
function keysOf(table: Table, column: Column): string {
  const aliases = [...table.aliases].filter(([, one]) => one === column).map(([name]) => name);
  return [...new Set([column.name, column.wireName, ...aliases])].map(literal).join(', ');
}

/** A row has one letter of this kind at the most, which has what was said last; nothing counts that was deleted since. */
function saidOf(table: Table, column: Column): string {
  const letters =
    "SELECT d.row_id AS id, iif(json_valid(d.row_data), d.row_data, '{}') AS r, i.unknown_columns AS names " +
    'FROM main._dead_letter_info AS i JOIN main._dead_letter AS d USING (dead_id) ' +
    "WHERE i.code = 'unknown-column' AND i.direction = 'in' AND i.table_name = ? COLLATE NOCASE " +
    'AND json_valid(i.unknown_columns) LIMIT -1';
  const time = "(SELECT x.atom FROM json_each(l.r) AS x WHERE lower(x.key) = 'updated_at')";
  const values =
    `SELECT ${storedId('l.id')} AS id, ${time} AS time, e.atom AS v, l.r AS row FROM (${letters}) AS l, json_each(l.names) AS u ` +
    `JOIN json_each(l.r) AS e ON e.key = u.value WHERE u.value COLLATE NOCASE IN (${keysOf(table, column)}) LIMIT -1`;
  const deleted = `EXISTS (SELECT 1 FROM main._tombstones AS g WHERE g.${isOf(table, 'f.id')} AND g.version >= f.time)`;
  return (
    `INSERT OR IGNORE INTO ${SAID} (id, name, time, value, row) ` +
    `SELECT f.id, ${literal(column.name)}, f.time, ${decode('f.v')}, f.row FROM (${values}) AS f WHERE f.id IS NOT NULL AND NOT ${deleted}`
  );
}
