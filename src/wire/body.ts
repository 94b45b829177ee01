/**
 * The only place that spells a change and a batch: as text, and as the SQL expressions by which SQLite makes a whole
 * body out of rows that never become JavaScript objects. Whoever changes a byte here changes the protocol, and tabular.ts,
 * which makes the other form of what is spelt here.
 */
import { RowcastError } from '../errors.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import { type Change, TIMESTAMP_MAX, TIMESTAMP_MIN } from './protocol.ts';
import { exactValue } from './values.ts';

export type Body = Uint8Array<ArrayBuffer>;

/** How much one batch may hold. */
export interface BatchLimit {
  changes: number;
  bytes: number;
  /** Where they are not all alike: what has no tabular form is applied in one go, whoever receives it. */
  mixed?: number;
  /** Something among these was refused: each is looked at before it is sent. */
  suspect?: true;
}

/** What a batch has around its changes, with the longest id. */
export const ENVELOPE_BYTES = 50;

/** What a body ends with, after its last change. */
export const BATCH_END = ']}';

/** What follows the row of a write. */
const OLD_ID_OF_WRITES = ',"old_id":null';

/** `,"base":` and a time. */
const BASE_BYTES_MAX = 25;

/** What a body begins with, before its first change. */
export function batchHead(batchId: number | string): string {
  return `{"batch_id":${batchId},"changes":[`;
}

/** A batch of changes that are JSON text already, joined by commas. */
export function batchText(batchId: number | string, changes: string): string {
  return batchHead(batchId) + changes + BATCH_END;
}

/** A batch of changes that somebody has made himself. */
export function bodyOf(changes: Change[]): string {
  if (!Array.isArray(changes)) throw new RowcastError('INVALID_BATCH', 'changes must be an array');
  return batchText(0, JSON.stringify(changes, exactValue).slice(1, -1));
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
  /** What stands behind that, such as `baseSql` gives; already with its comma, and empty where there is nothing. */
  more?: string;
}

/** One change as JSON text. `quote` gives the expression of text as JSON, which is spelt in one way by each database. */
export function changeSql({ op, table, row, oldId, more }: ChangeParts, quote = quoteSql): string {
  return [
    `'{"op":"' || ${op}`,
    `'","table":' || ${quote(table)}`,
    `',"row":' || ${row}`,
    `',"old_id":' || ${oldId}`,
    ...(more === undefined ? [] : [more]),
    "'}'",
  ].join(' || ');
}

function quoteSql(text: string): string {
  return `json_quote(${text})`;
}

/**
 * The version that an update has seen, behind the rest of its change: for the conflict journal of a peer that keeps one.
 * A column that was not written by us may hold anything.
 */
export function baseSql(base: string): string {
  return `iif(${isVersion(base)}, ',"base":' || ${base}, '')`;
}

/** Behind that, where a hub passes it on: who made the change. NULL: nobody knows. */
export function originSql(id: string): string {
  return `coalesce(',"origin":' || json_quote(${id}), '')`;
}

/** Is that a time which a row could have? */
export function isVersion(x: string): string {
  return `(typeof(${x}) = 'integer' AND ${x} BETWEEN ${TIMESTAMP_MIN} AND ${TIMESTAMP_MAX})`;
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

/** The same of updates that say what they have seen, read from `base`. */
export const ALIKE_BASED_SQL = `CAST(? || group_concat(row_data || '${OLD_ID_OF_WRITES}' || ${baseSql('base')}, ?) || ? AS BLOB)`;

export function alikeParams(batchId: number, op: string, table: string, based = false): [string, string, string] {
  const { before, behind } = around(op, table);
  const end = based ? '}' : behind;
  return [batchHead(batchId) + before, `${end},${before}`, end + BATCH_END];
}

/** What each of these has beside its row, the comma behind it included. */
export function alikeBytes(op: string, table: string, based = false): number {
  const { before, behind } = around(op, table);
  return Buffer.byteLength(before) + behind.length + 1 + (based ? BASE_BYTES_MAX : 0);
}

function around(op: string, table: string): { before: string; behind: string } {
  return { before: `{"op":"${op}","table":${JSON.stringify(table)},"row":`, behind: `${OLD_ID_OF_WRITES}}` };
}

/**
 * Bounds of a change's bytes, and of the comma behind it, from the lengths of what it is made of, which SQLite knows
 * without reading them. For tables with the columns table_name, row_id and row_data. Escaping makes a character six
 * times as long at the most, and what stands around the three are some fifty bytes, and what an update has seen.
 */
const ROW_BYTES = 'coalesce(octet_length(row_data), 4)';
export const STORED_BYTES: ByteBounds = {
  least: `${ROW_BYTES} + octet_length(table_name) + 40`,
  most: `${ROW_BYTES} + 6 * (octet_length(table_name) + coalesce(octet_length(row_id), 0)) + ${60 + BASE_BYTES_MAX}`,
};

/** Of changes that a hub passes on, which may also name a node; its id has no more than 200 bytes of ASCII. */
export const RELAYED_BYTES: ByteBounds = { ...STORED_BYTES, most: `${STORED_BYTES.most} + 420` };

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

/** Somebody else may have recorded a change that is none. */
export function isJsonBody(db: Connection, body: Body): boolean {
  return db.get<{ ok: number }>('SELECT json_valid(CAST(? AS TEXT)) AS ok', body)?.ok === 1;
}

/** The change number `index` of a body, as a body of its own. */
export function singleBody(db: Connection, body: Body, batchId: number, index: number): Body {
  const found = db.get<{ value: string }>(`SELECT value FROM ${CHANGES_OF_BODY} WHERE key = ?`, body, index);
  return new TextEncoder().encode(batchText(batchId, String(found?.value)));
}

/** Of a change `c.value`: its row with no more than the id and the version, under the names that they have in it. */
const BARE_ROW =
  "'{' || (SELECT group_concat(json_quote(e.key) || ':' || (c.value -> e.fullkey)) FROM json_each(c.value, '$.row') AS e " +
  "WHERE e.key COLLATE NOCASE IN ('id', 'updated_at')) || '}'";

/**
 * The body of a single deletion with no more of its row than a deletion needs, which is what a snapshot and a hub send of one.
 * Undefined where it is no deletion, or has no more than that.
 */
export function bareDeletion(db: Connection, body: Body, batchId: number): Body | undefined {
  // A large write is not read through for nothing, each time that it is refused.
  const head = Buffer.from(`${batchHead(batchId)}{"op":"DELETE",`);
  if (!head.equals(body.subarray(0, head.length)) || !isJsonBody(db, body)) return undefined;
  const change = changeSql({
    op: "(c.value ->> '$.op')",
    table: "(c.value ->> '$.table')",
    row: BARE_ROW,
    oldId: "(c.value -> '$.old_id')",
  });
  const found = db.get<{ change: string | null }>(`SELECT ${change} AS change FROM ${CHANGES_OF_BODY} AS c`, body);
  if (found?.change == null) return undefined;
  const bare = new TextEncoder().encode(batchText(batchId, found.change));
  return bare.byteLength < body.byteLength ? bare : undefined;
}

/**
 * Rowcast's own keys of a change, which a plain peer does not know. Only the end of a row can be before them: names and texts
 * within a row have their quotes escaped.
 */
const OWN_KEYS = /(\},"old_id":null),"base":-?\d+(?:,"origin":(?:null|"(?:[^"\\]|\\.)*"))?(?=\})/g;

/** One body goes to many, and is spelt anew once. */
const known = new WeakMap<Body, Body>();

/** A body with the four keys of the contract in each change, and no others. Byte by byte the same otherwise, whatever a row has for text. */
export function plainBody(body: Body): Body {
  const before = known.get(body);
  if (before) return before;
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const plain = bytes.includes(',"base":')
    ? Buffer.from(bytes.toString('latin1').replace(OWN_KEYS, '$1'), 'latin1')
    : body;
  known.set(body, plain);
  return plain;
}
