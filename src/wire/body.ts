/**
 * The only place that spells a change and a batch: as text, and as the SQL expressions by which SQLite makes a whole
 * body out of rows that never become JavaScript objects. Whoever changes a byte here changes the protocol.
 */
import type { Connection, Value } from '../sqlite/connection.ts';

export type Body = Uint8Array<ArrayBuffer>;

/** How much one batch may hold. */
export interface BatchLimit {
  changes: number;
  bytes: number;
  /** Something among these was refused: each is looked at before it is sent. */
  suspect?: true;
}

/** What a batch has around its changes, with the longest id. */
export const ENVELOPE_BYTES = 50;

/** What a body ends with, after its last change. */
export const BATCH_END = ']}';

/** What a body begins with, before its first change. */
export function batchHead(batchId: number | string): string {
  return `{"batch_id":${batchId},"changes":[`;
}

/** A batch of changes that are JSON text already, joined by commas. */
export function batchText(batchId: number | string, changes: string): string {
  return batchHead(batchId) + changes + BATCH_END;
}

/** One write, of a row that is JSON text already. */
export function writeText(op: string, table: string, row: string): string {
  const { before, behind } = around(op, table);
  return before + row + behind;
}

/** The parts of a change, each an SQL expression; all but `table` give JSON text. */
export interface ChangeParts {
  op: string;
  /** The table's name as it is, not yet as JSON. */
  table: string;
  row: string;
  oldId: string;
}

/** One change as JSON text. */
export function changeSql({ op, table, row, oldId }: ChangeParts): string {
  return [
    `'{"op":"' || ${op}`,
    `'","table":' || json_quote(${table})`,
    `',"row":' || ${row}`,
    `',"old_id":' || ${oldId}`,
    "'}'",
  ].join(' || ');
}

/**
 * The body of the rows of a query, each of which has a `change`: an aggregate, and bytes. `batchId` is an SQL
 * expression.
 */
export function batchSql(batchId: string, change = 'change'): string {
  return `CAST('{"batch_id":' || ${batchId} || ',"changes":[' || group_concat(${change}) || '${BATCH_END}' AS BLOB)`;
}

/**
 * The body of writes of one kind to one table, at half the cost: what stands between two rows is the same everywhere,
 * so the body is the rows joined by it. The expression binds what `alikeParams` gives, and reads `row_data`.
 */
export const ALIKE_SQL = 'CAST(? || group_concat(row_data, ?) || ? AS BLOB)';

export function alikeParams(batchId: number, op: string, table: string): [string, string, string] {
  const { before, behind } = around(op, table);
  return [batchHead(batchId) + before, `${behind},${before}`, behind + BATCH_END];
}

/** What each of these has beside its row, the comma behind it included. */
export function alikeBytes(op: string, table: string): number {
  const { before, behind } = around(op, table);
  return Buffer.byteLength(before) + behind.length + 1;
}

function around(op: string, table: string): { before: string; behind: string } {
  return { before: `{"op":"${op}","table":${JSON.stringify(table)},"row":`, behind: ',"old_id":null}' };
}

/**
 * Bounds of a change's bytes, and of the comma behind it, from the lengths of what it is made of, which SQLite knows
 * without reading them. For tables with the columns table_name, row_id and row_data. Escaping makes a character six
 * times as long at the most, and what stands around the three are some fifty bytes.
 */
const ROW_BYTES = 'coalesce(octet_length(row_data), 4)';
export const STORED_BYTES: ByteBounds = {
  least: `${ROW_BYTES} + octet_length(table_name) + 40`,
  most: `${ROW_BYTES} + 6 * (octet_length(table_name) + coalesce(octet_length(row_id), 0)) + 60`,
};

export interface ByteBounds {
  least: string;
  most: string;
}

/** Changes in their order, of which a batch takes the first that fit. */
export interface Line {
  /** `FROM ... WHERE ... ORDER BY <place> LIMIT ?`; the limit is bound last. */
  from: string;
  params: Value[];
  /** The column by which they are ordered. */
  place: string;
  /** A change as JSON text. */
  change: string;
  bytes: ByteBounds;
}

/**
 * How many of the next changes fit into the limit of bytes: at least one, however large it is. Decided by lengths alone
 * where those leave no doubt; where they do, only as many changes are spelt out as can fit at all.
 */
export function fitting(db: Connection, { from, params, place, change, bytes }: Line, limit: BatchLimit): number {
  const room = limit.bytes - ENVELOPE_BYTES;
  const all = db.get<{ most: number | null }>(
    `SELECT sum(most) AS most FROM (SELECT ${bytes.most} AS most ${from})`,
    ...params,
    limit.changes,
  );
  if ((all?.most ?? 0) <= room) return limit.changes;
  const { certain, possible } = db.get<{ certain: number; possible: number }>(
    'SELECT coalesce(sum(most <= ?), 0) AS certain, coalesce(sum(least <= ?), 0) AS possible ' +
      'FROM (SELECT sum(most) OVER line AS most, sum(least) OVER line AS least ' +
      `FROM (SELECT ${place} AS place, ${bytes.most} AS most, ${bytes.least} AS least ${from}) ` +
      'WINDOW line AS (ORDER BY place))',
    room,
    room,
    ...params,
    limit.changes,
  ) as { certain: number; possible: number };
  if (certain === possible || possible <= 1) return Math.max(1, certain);
  const fits = db.get<{ n: number }>(
    'SELECT count(*) AS n FROM (SELECT sum(octet_length(change) + 1) OVER (ORDER BY place) AS running ' +
      `FROM (SELECT ${place} AS place, ${change} AS change ${from})) WHERE running <= ?`,
    ...params,
    possible,
    room,
  );
  return Math.max(1, fits?.n ?? 1);
}

/** The changes of a body as the texts they are; `key` is the index. */
export const CHANGES_OF_BODY = "json_each(CAST(? AS TEXT), '$.changes')";

/** The change number `index` of a body, as a body of its own. */
export function singleBody(db: Connection, body: Body, batchId: number, index: number): Body {
  const found = db.get<{ value: string }>(`SELECT value FROM ${CHANGES_OF_BODY} WHERE key = ?`, body, index);
  return new TextEncoder().encode(batchText(batchId, String(found?.value)));
}
