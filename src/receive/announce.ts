/**
 * What a batch has made of a row that no other node has seen yet: it is recorded for all peers, at the version it has.
 * `isPlaced` is true of the changes that are what stands.
 */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { conjunction, literal, quote } from '../sqlite/sql.ts';
import { toldJson } from '../wire/told-json.ts';
import { BOUND_ID, encode } from '../wire/values.ts';
import { extract } from './merge.ts';
import { type Group, STAGE } from './stage.ts';

/**
 * A row from a node whose schema is behind now consists of its values and of what was here in the other columns: a state
 * that no other node has seen. It is told to all, at the version it has; whoever has nothing in those columns takes it,
 * because NULL is below everything.
 */
export function announceMixed(db: Connection, { number, table, shape }: Group, isPlaced: string): void {
  const missing = table.columns.filter((column) => !shape?.fields.some((field) => field.column === column));
  const untouched = missing.map((column) => `t.${quote(column.name)} COLLATE BINARY IS (${column.fallback})`);
  const mixed = `(SELECT id FROM ${STAGE} WHERE grp = ? AND ${isPlaced} AND was IS NULL)`;
  db.run(
    'INSERT INTO main._changes (op, table_name, row_id, row_data) ' +
      `SELECT 'UPDATE', ${literal(table.wireName)}, t.${quote(table.id)}, ${toldJson(table, 't')} ` +
      `FROM ${table.target} AS t WHERE t.${quote(table.id)} IN ${mixed} AND NOT (${conjunction(untouched)})`,
    number,
  );
  if (table.uniques.length === 0) return;
  // One that a UNIQUE value keeps out of its table, be it only until all rows of the batch are there, is as live as any.
  const unsaid = missing.map(
    ({ wireName, affinity, fallback }) =>
      `${extract('h.row_data', wireName)} IS (SELECT ${encode('x', affinity)} FROM (SELECT (${fallback}) AS x LIMIT -1))`,
  );
  db.run(
    'INSERT INTO main._changes (op, table_name, row_id, row_data) ' +
      `SELECT 'UPDATE', ${literal(table.wireName)}, h.row_id, h.row_data FROM main._hidden AS h ` +
      `WHERE h.table_name = ${literal(table.name)} AND h.row_id IN ${mixed} AND NOT (${conjunction(unsaid)})`,
    number,
  );
}

/** A row that a letter has filled in: others may have it without that value, or not have the column any more. */
export function announceFilled(db: Connection, table: Table, rowId: string | null): void {
  db.run(
    'INSERT INTO main._changes (op, table_name, row_id, row_data) ' +
      `SELECT 'UPDATE', ${literal(table.wireName)}, t.${quote(table.id)}, ${toldJson(table, 't')} ` +
      `FROM ${table.target} AS t WHERE t.${quote(table.id)} = ${BOUND_ID}`,
    rowId,
  );
}

/**
 * A row that is in its table again, and was hidden until now. That is no write; but whoever is being given everything may be
 * past its place in the table, and would not find it among the hidden rows any more.
 */
export function announceVisible(db: Connection, table: Table, rowId: string): void {
  const isWalking = 'SELECT 1 AS n FROM main._peer_state WHERE tail_from IS NOT NULL LIMIT 1';
  if (db.get(isWalking)) announceFilled(db, table, rowId);
}

/** What has won, wherever it is now, is told to all peers at the version it has. */
export function announceAll(db: Connection, { number, table, shape }: Group, isPlaced: string): void {
  const placed = `(SELECT id FROM ${STAGE} WHERE grp = ? AND ${isPlaced})`;
  const tell = (op: string, row: { id: string; json: string; from: string }): void =>
    db.run(
      'INSERT INTO main._changes (op, table_name, row_id, row_data) ' +
        `SELECT '${op}', ${literal(table.wireName)}, ${row.id}, ${row.json} FROM ${row.from} AND ${row.id} IN ${placed}`,
      number,
    );
  const ofTable = `table_name = ${literal(table.name)}`;
  if (shape) {
    tell('UPDATE', {
      id: `t.${quote(table.id)}`,
      json: toldJson(table, 't'),
      from: `${table.target} AS t WHERE true`,
    });
    tell('UPDATE', { id: 'h.row_id', json: 'h.row_data', from: `main._hidden AS h WHERE h.${ofTable}` });
    return;
  }
  const id = encode('g.row_id', 'TEXT');
  const json = `json_object(${literal(table.id)}, ${id}, ${literal(table.updatedAt)}, g.version)`;
  tell('DELETE', { id: 'g.row_id', json, from: `main._tombstones AS g WHERE g.${ofTable}` });
}
