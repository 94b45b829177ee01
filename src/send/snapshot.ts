/**
 * The present state for a peer that has none of it, in ordinary batches: live rows as INSERT, tombstones as DELETE.
 *
 * It walks every table by id, so it can stop and go on anywhere, and writes may continue meanwhile: a row that changes
 * behind the walk is in `_changes` after the position where the tail begins.
 */

import { hasAnyStamps } from '../capture/stamps.ts';
import { versionOf } from '../capture/versions.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { BOUND_NUMBER, literal, quote, shallow } from '../sqlite/sql.ts';
import { type BatchLimit, type Body, type ByteBounds, batchSql, changeSql, fitting } from '../wire/body.ts';
import { exactString } from '../wire/exact-text.ts';
import { madeByOthers, type OriginRun } from '../wire/origins.ts';
import { rowJson } from '../wire/row-json.ts';
import { toldJson } from '../wire/told-json.ts';
import { BOUND_ID, encode, idForWire } from '../wire/values.ts';

export interface SnapshotPosition {
  /** `rows:<table>`, `hidden:<table>`, `tombstones:<table>` or `compare:<table>`; null before the first, `end` after all. */
  section: string | null;
  /** The last id of that section that the peer has, as it travels; null before the first. */
  after: string | null;
}

/** A table that is compared with the peer's, all of it by id; see seed.ts. */
export const COMPARED = 'compare:';
/** Everything has been given. */
export const WALKED = 'end';

const TOMBSTONES = 'tombstones:';

/** By name, whatever the order of the configuration: a position must mean the same after a restart. */
export function inOrder<T extends { name: string }>(tables: T[]): T[] {
  return tables.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

interface Page {
  body: Body;
  count: number;
  /** What stands here is not what was written here. */
  origins: OriginRun[];
  end: SnapshotPosition;
}

/** One table's rows or its tombstones, in the order of their ids, as parts of a query. */
interface Section {
  name: string;
  id: string;
  change: string;
  bytes: ByteBounds;
  /** From the beginning, or after an id that is bound; a limit is bound last. */
  from(resumed: boolean): string;
  /** How many there are after that, looking at no more than so many. */
  count(resumed: boolean): string;
}

/** The next page after `position`, or undefined when everything has been sent. */
export function nextPage(
  db: Connection,
  tables: Table[],
  position: SnapshotPosition,
  batchId: number,
  limit: BatchLimit,
): Page | undefined {
  for (const { name, id, change, bytes, from, params, resumed } of ahead(tables, position, hasAnyStamps(db))) {
    const line = { from: from(resumed), params, place: id, change, bytes };
    const found = db.get<{ body: Body; n: number; last: Uint8Array }>(
      `SELECT ${batchSql('CAST(? AS INTEGER)')} AS body, count(*) AS n, ${idForWire('max(id)')} AS last ` +
        `FROM (SELECT ${id} AS id, ${change} AS change ${line.from})`,
      batchId,
      ...params,
      fitting(db, line, name.startsWith(TOMBSTONES) ? inOneGo(limit) : limit),
    );
    if (found && found.n > 0) {
      const { body, n: count, last } = found;
      return { body, count, origins: madeByOthers(count), end: { section: name, after: exactString(last) } };
    }
  }
  return undefined;
}

/** Deletions have no tabular form. */
function inOneGo(limit: BatchLimit): BatchLimit {
  return { ...limit, changes: Math.min(limit.changes, limit.mixed ?? limit.changes) };
}

/** How many rows and tombstones are still to come after `position`, counting no further than `most`. */
export function remainingRows(db: Connection, tables: Table[], position: SnapshotPosition, most: number): number {
  let total = 0;
  for (const { count, params, resumed } of ahead(tables, position)) {
    if (total >= most) return most;
    total += Number(db.get<{ n: number }>(count(resumed), ...params, most - total)?.n);
  }
  return total;
}

/** Rows that nobody can be sent, because their id is NULL; a bounded number of them. */
export function namelessRows(db: Connection, tables: Table[]): { tbl: string; r: Uint8Array }[] {
  return tables.flatMap((table) =>
    db.all<{ tbl: string; r: Uint8Array }>(
      `SELECT ${literal(table.name)} AS tbl, CAST(${rowJson(table, 't')} AS BLOB) AS r ` +
        `FROM ${table.target} AS t WHERE t.${quote(table.id)} IS NULL LIMIT 1000`,
    ),
  );
}

/** The sections that are not over at `position`. */
function ahead(
  tables: Table[],
  position: SnapshotPosition,
  anyStamps = false,
): (Section & { params: Value[]; resumed: boolean })[] {
  if (position.section === WALKED) return [];
  const sections = inOrder(tables).flatMap((table) => [rowsOf(table, anyStamps), hiddenOf(table), tombstonesOf(table)]);
  // A comparison goes by another order: as a snapshot its table begins anew.
  const begun = position.section?.replace(COMPARED, 'rows:');
  const known = sections.findIndex(({ name }) => name === begun);
  return sections.slice(Math.max(0, known)).map((section) => {
    const resumed = section.name === position.section && position.after !== null;
    return { ...section, params: resumed ? [position.after] : [], resumed };
  });
}

function rowsOf(table: Table, anyStamps: boolean): Section {
  const id = `t.${quote(table.id)}`;
  // A row that the application does not let us write to has its version in its stamp alone.
  const row = toldJson(table, 't', anyStamps ? { column: table.updatedAt, by: versionOf(table, 't') } : undefined);
  const from = (resumed: boolean): string =>
    `FROM ${table.target} AS t WHERE ${resumed ? `${id} > ${BOUND_ID}` : `${id} IS NOT NULL`} ORDER BY ${id} LIMIT ${BOUND_NUMBER}`;
  return {
    name: `rows:${table.name}`,
    id,
    change: changeSql({ op: "'INSERT'", table: literal(table.wireName), row, oldId: "'null'" }),
    bytes: rowBytes(table),
    from,
    count: (resumed) => `SELECT count(*) AS n FROM (SELECT 1 ${from(resumed)})`,
  };
}

/** Rows that another one's UNIQUE value keeps out of their table are as live as the others. */
function hiddenOf(table: Table): Section {
  const from = (resumed: boolean): string =>
    `FROM main._hidden AS h WHERE h.table_name = ${literal(table.name)} ${resumed ? `AND h.row_id > ${BOUND_ID}` : ''} ` +
    `ORDER BY h.row_id LIMIT ${BOUND_NUMBER}`;
  const fixed = 6 * Buffer.byteLength(table.wireName) + 60;
  return {
    name: `hidden:${table.name}`,
    id: 'h.row_id',
    change: changeSql({ op: "'INSERT'", table: literal(table.wireName), row: 'h.row_data', oldId: "'null'" }),
    bytes: { least: 'octet_length(h.row_data)', most: `octet_length(h.row_data) + ${fixed}` },
    from,
    count: (resumed) => `SELECT count(*) AS n FROM (SELECT 1 ${from(resumed)})`,
  };
}

/** A tombstone below a live row says nothing any more. */
function tombstonesOf(table: Table): Section {
  const id = encode('g.row_id', 'TEXT');
  const among = (resumed: boolean): string =>
    `FROM main._tombstones AS g WHERE g.table_name = ${literal(table.name)} ${resumed ? `AND g.row_id > ${BOUND_ID}` : ''}`;
  const alone = `NOT EXISTS (SELECT 1 FROM ${table.target} AS t WHERE t.${quote(table.id)} = g.row_id)`;
  const row = `json_object(${literal(table.id)}, ${id}, ${literal(table.updatedAt)}, g.version)`;
  const fixed = namesBytes([table.id, table.updatedAt]) + 2 * Buffer.byteLength(table.wireName);
  return {
    name: TOMBSTONES + table.name,
    id: 'g.row_id',
    change: changeSql({ op: "'DELETE'", table: literal(table.wireName), row, oldId: `json_quote(${id})` }),
    // The id is there twice.
    bytes: { least: '2 * octet_length(g.row_id)', most: `12 * octet_length(g.row_id) + ${3 * fixed + 120}` },
    from: (resumed) => `${among(resumed)} AND ${alone} ORDER BY g.row_id LIMIT ${BOUND_NUMBER}`,
    count: (resumed) =>
      `SELECT count(*) AS n FROM (SELECT g.row_id ${among(resumed)} ORDER BY g.row_id LIMIT ${BOUND_NUMBER}) AS g WHERE ${alone}`,
  };
}

/** What a row makes as a change: escaping makes a character six times as long at the most, a number has up to 26. */
function rowBytes(table: Table): ByteBounds {
  const lengths = table.columns.map(({ name }) => `coalesce(octet_length(t.${quote(name)}), 4)`);
  const total = `(${shallow(lengths, ' + ')})`;
  const names = namesBytes(table.columns.map(({ wireName }) => wireName));
  return {
    least: total,
    most: `6 * ${total} + ${32 * table.columns.length + 6 * (names + Buffer.byteLength(table.wireName)) + 60}`,
  };
}

function namesBytes(names: string[]): number {
  return names.reduce((sum, name) => sum + Buffer.byteLength(name) + 4, 0);
}
