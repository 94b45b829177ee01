/**
 * The present state for a peer that has none of it, in ordinary batches: live rows as INSERT, tombstones as DELETE.
 *
 * It walks every table by id, so it can stop and go on anywhere, and writes may continue meanwhile: a row that changes
 * behind the walk is in `_changes` after the position where the tail begins.
 */

import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { literal, quote } from '../sqlite/sql.ts';
import { encode, rowJson } from '../wire/values.ts';

export interface SnapshotPosition {
  /** `rows:<table>` or `tombstones:<table>`; null before the first. */
  section: string | null;
  /** The last id sent in that section; null before the first. */
  after: string | Uint8Array | null;
}

interface Page {
  body: Uint8Array<ArrayBuffer>;
  count: number;
  end: SnapshotPosition;
}

/** The next page after `position`, or undefined when everything has been sent. */
export function nextPage(
  db: Connection,
  tables: Table[],
  position: SnapshotPosition,
  batchId: number,
  limit: { changes: number; bytes: number },
): Page | undefined {
  // By name, whatever the order of the configuration: a position must mean the same after a restart.
  const ordered = tables.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const sections = ordered.flatMap((table) => [
    { name: `rows:${table.name}`, select: rowsOf(table) },
    { name: `tombstones:${table.name}`, select: tombstonesOf(table) },
  ]);
  const known = sections.findIndex(({ name }) => name === position.section);
  for (let i = Math.max(0, known); i < sections.length; i++) {
    const { name, select } = sections[i] as (typeof sections)[number];
    const after = name === position.section ? position.after : null;
    const found = db.get<{ body: Uint8Array<ArrayBuffer>; n: number; last: string | Uint8Array }>(
      `SELECT CAST('{"batch_id":${batchId},"changes":[' || group_concat(change) || ']}' AS BLOB) AS body, count(*) AS n, max(id) AS last ` +
        'FROM (SELECT id, change, row_number() OVER w AS place, sum(octet_length(change) + 1) OVER w AS running ' +
        `FROM (${select(after !== null)}) WINDOW w AS (ORDER BY id)) WHERE place = 1 OR running <= ?`,
      ...(after === null ? [] : [after]),
      limit.changes,
      limit.bytes,
    );
    if (found && found.n > 0) return { body: found.body, count: found.n, end: { section: name, after: found.last } };
  }
  return undefined;
}

/** Rows that no snapshot can send, because their id is NULL; a bounded number of them. */
export function namelessRows(db: Connection, tables: Table[]): { op: string; tbl: string; r: string }[] {
  return tables.flatMap((table) =>
    db.all<{ op: string; tbl: string; r: string }>(
      `SELECT 'INSERT' AS op, ${literal(table.name)} AS tbl, ${rowJson(table, 't')} AS r FROM ${quote(table.name)} AS t ` +
        `WHERE t.${quote(table.id)} IS NULL LIMIT 1000`,
    ),
  );
}

function rowsOf(table: Table): (resumed: boolean) => string {
  const id = `t.${quote(table.id)}`;
  return (resumed) =>
    `SELECT ${id} AS id, '{"op":"INSERT","table":' || json_quote(${literal(table.name)}) || ',"row":' || ${rowJson(table, 't')} || ',"old_id":null}' AS change ` +
    `FROM ${quote(table.name)} AS t WHERE ${resumed ? `${id} > ?` : `${id} IS NOT NULL`} ORDER BY ${id} LIMIT ?`;
}

/** A tombstone below a live row says nothing any more. */
function tombstonesOf(table: Table): (resumed: boolean) => string {
  const id = encode('g.row_id', 'TEXT');
  return (resumed) =>
    `SELECT g.row_id AS id, '{"op":"DELETE","table":' || json_quote(${literal(table.name)}) || ',"row":' || ` +
    `json_object(${literal(table.id)}, ${id}, ${literal(table.updatedAt)}, g.version) || ',"old_id":' || json_quote(${id}) || '}' AS change ` +
    `FROM _tombstones AS g WHERE g.table_name = ${literal(table.name)} ${resumed ? 'AND g.row_id > ?' : ''} ` +
    `AND NOT EXISTS (SELECT 1 FROM ${quote(table.name)} AS t WHERE t.${quote(table.id)} = g.row_id) ORDER BY g.row_id LIMIT ?`;
}
