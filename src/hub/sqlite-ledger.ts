/** What a hub holds, for comparisons with it and by it: `_hub_rows` by table and id, which is the order of the wire already. */
import { earlyIn } from '../compare/early.ts';
import { type Id, keyOf, type Range } from '../compare/ids.ts';
import {
  atMost,
  type Columns,
  type Early,
  type Entry,
  firstThatFit,
  fittingAmong,
  fittingSql,
  type Listed,
  ORDINARY_ROW_BYTES,
  type Outline,
  type Parcel,
  type Portion,
  type Spelt,
} from '../compare/ledger.ts';
import { hashOf, jsonLines, tombstoneLines, wholeLine } from '../compare/lines.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import { type Body, batchSql, batchText } from '../wire/body.ts';
import { WIRE_LINE } from '../wire/content.ts';
import { exactString, exactText } from '../wire/exact-text.ts';
import { encode } from '../wire/values.ts';
import { CHANGE } from './sqlite-read.ts';
import type { HubLedger, Seq } from './store.ts';

/** A SELECT of `k`, by which they are in order, `op`, `version` and `r`, with what it binds. */
interface Choice {
  sql: string;
  params: Value[];
}

export class SqliteHubLedger implements HubLedger {
  readonly #db: Connection;
  readonly #tables: () => Promise<string[]>;

  constructor(db: Connection, tables: () => Promise<string[]>) {
    this.#db = db;
    this.#tables = tables;
  }

  async outline(): Promise<Outline[]> {
    const names = await this.#tables();
    return names.map((name) => ({ name, columns: null, last: this.#last(name) }));
  }

  async spell(table: string, columns: Columns, range: Range, portion: Portion, floor?: number): Promise<Spelt> {
    const read = (most: number, rows: number): SpeltRows => {
      const { sql, params } = lines(columns, this.#within(table, range, rows, floor), most);
      return this.#db.get<SpeltRows>(
        'SELECT count(*) AS rows, count(line) AS lines, CAST(max(k) AS BLOB) AS last, ' +
          `CAST(group_concat(line, '') AS BLOB) AS text FROM (${sql})`,
        ...params,
      ) as SpeltRows;
    };
    let found = read(ORDINARY_ROW_BYTES, portion.rows);
    const isOrdinary = found.lines === found.rows;
    if (!isOrdinary) found = read(Infinity, this.#measure(table, range, portion, floor));
    const isFull = !isOrdinary || found.rows >= portion.rows;
    const end = isFull && found.last ? exactString(found.last) : null;
    return { rows: found.rows, texts: found.text ? [found.text] : [], end };
  }

  async list(table: string, columns: Columns, range: Range, portion: Portion): Promise<Listed> {
    const read = (most: number, rows: number): ListedRow[] =>
      this.#rows(lines(columns, this.#within(table, range, rows), most));
    let rows = read(ORDINARY_ROW_BYTES, portion.rows);
    const isOrdinary = rows.every(({ line }) => line !== null);
    if (!isOrdinary) rows = read(Infinity, this.#measure(table, range, portion));
    const isFull = !isOrdinary || rows.length >= portion.rows;
    const entries = rows.map(entryOf);
    return { entries, end: isFull ? (entries.at(-1)?.id ?? null) : null };
  }

  async entries(
    table: string,
    columns: Columns,
    ids: Id[],
    portion: Portion,
  ): Promise<{ entries: Entry[]; rest: Id[] }> {
    const { rest } = firstThatFit(this.#sizes(table, ids.slice(0, portion.rows)), portion);
    const left = new Set([...rest, ...ids.slice(portion.rows)]);
    const some = ids.filter((id) => !left.has(id));
    return { entries: this.#rows(lines(columns, among(table, some), Infinity)).map(entryOf), rest: [...left] };
  }

  async after(table: string, ids: Id[], position: Seq): Promise<Id[]> {
    const rows = this.#db.all<{ id: Id }>(
      `SELECT row_id AS id FROM _hub_rows ${AMONG} AND seq > ?`,
      table,
      JSON.stringify(ids),
      position,
    );
    return rows.map(({ id }) => id);
  }

  async early(table: string, ids: Id[]): Promise<Early[]> {
    return earlyIn(this.#db, [table], ids);
  }

  async changes(table: string, ids: Id[], batchId: number, portion: Portion): Promise<Parcel> {
    const { fitting, rest } = fittingAmong(ids, portion, (some) => this.#sizes(table, some));
    const found = this.#db.get<{ body: Body | null; n: number }>(
      `SELECT ${batchSql('CAST(? AS INTEGER)')} AS body, count(*) AS n ` +
        `FROM (SELECT ${CHANGE} AS change FROM _hub_rows ${AMONG} ORDER BY row_id)`,
      batchId,
      table,
      JSON.stringify(fitting),
    );
    if (!found?.body) return { body: new TextEncoder().encode(batchText(batchId, '')), count: 0, rest };
    return { body: exactText(found.body), count: found.n, rest };
  }

  #last(table: string): Id | null {
    const plain = 'SELECT max(row_id) AS k FROM _hub_rows WHERE table_name = ?';
    const sql = this.#hasBytes(table)
      ? `SELECT max(k) AS k FROM (${plain} AND NOT ${IS_BYTES} UNION ALL ` +
        `SELECT max(${KEY_OF_BYTES}) FROM _hub_rows WHERE table_name = ? AND ${IS_BYTES})`
      : plain;
    const params = this.#hasBytes(table) ? [table, table] : [table];
    const found = this.#db.get<{ k: Uint8Array | null }>(`SELECT CAST(k AS BLOB) AS k FROM (${sql})`, ...params);
    return found?.k ? exactString(found.k) : null;
  }

  /** The first rows of a range, so many of them. */
  #within(table: string, range: Range, rows: number, floor?: number): Choice {
    const bounds = [range.after, range.upTo].map((id) => (id === null ? null : Buffer.from(keyOf(id), 'latin1')));
    const params: Value[] = [table, ...bounds.filter((bound) => bound !== null), rows];
    const select = (k: string, also: string): string =>
      `SELECT k, op, version, r FROM (SELECT ${k} AS k, op, updated_at AS version, row_data AS r FROM _hub_rows ` +
      `WHERE ${[
        'table_name = ?',
        ...(range.after === null ? [] : [`${k} > CAST(? AS TEXT)`]),
        ...(range.upTo === null ? [] : [`${k} <= CAST(? AS TEXT)`]),
        also,
        // Tombstones up to there are left out.
        ...(floor === undefined ? [] : [`(op <> 'DELETE' OR updated_at > ${floor})`]),
      ].join(' AND ')} ORDER BY ${k} LIMIT CAST(? AS INTEGER))`;
    if (!this.#hasBytes(table)) return { sql: select('row_id', 'true'), params };
    return {
      sql:
        `${select('row_id', `NOT ${IS_BYTES}`)} UNION ALL ${select(KEY_OF_BYTES, IS_BYTES)} ` +
        'ORDER BY k LIMIT CAST(? AS INTEGER)',
      params: [...params, ...params, rows],
    };
  }

  /** Ids that are not UTF-8 are rare, and stand elsewhere in this table than in the order of the wire. */
  #hasBytes(table: string): boolean {
    return (
      this.#db.get(`SELECT 1 AS n FROM _hub_rows WHERE table_name = ? AND ${IS_BYTES} LIMIT 1`, table) !== undefined
    );
  }

  /** How many rows of a range are no more than a portion; at least one. */
  #measure(table: string, range: Range, portion: Portion, floor?: number): number {
    const { sql, params } = this.#within(table, range, portion.rows, floor);
    const sizes = `SELECT k, octet_length(r) AS bytes FROM (${sql})`;
    return Math.max(1, Number(this.#db.get(fittingSql(sizes), ...params, atMost(portion))?.n));
  }

  /** Of these ids, as far as there is anything of them, in their order. */
  #sizes(table: string, ids: Id[]): { id: Id; bytes: number }[] {
    return this.#db.all<{ id: Id; bytes: number }>(
      `SELECT row_id AS id, octet_length(row_data) + 100 AS bytes FROM _hub_rows ${AMONG} ORDER BY row_id`,
      table,
      JSON.stringify(ids),
    );
  }

  #rows({ sql, params }: Choice): ListedRow[] {
    return this.#db.all<ListedRow>(
      `SELECT CAST(k AS BLOB) AS k, version, deleted, CAST(line AS BLOB) AS line FROM (${sql})`,
      ...params,
    );
  }
}

interface SpeltRows {
  rows: number;
  lines: number;
  last: Uint8Array | null;
  text: Uint8Array | null;
}

interface ListedRow {
  k: Uint8Array;
  version: number;
  deleted: number;
  line: Uint8Array | null;
}

function entryOf({ k, version, deleted, line }: ListedRow): Entry {
  const isDeleted = deleted === 1;
  const hash = isDeleted || line === null ? '' : hashOf(line);
  return { id: exactString(k), version: Number(version), deleted: isDeleted, hash };
}

const AMONG = 'WHERE table_name = ? AND row_id IN (SELECT value FROM json_each(?))';

const IS_BYTES = "(row_id >= '$bytes:' AND row_id < '$bytes;')";

/** Where such an id has its place: see compare/ids.ts. */
const KEY_OF_BYTES = `(${encode("CAST(unhex(substr(row_id, length('$bytes:') + 1)) AS TEXT)", 'TEXT')})`;

function among(table: string, ids: Id[]): Choice {
  const k = `iif(${IS_BYTES}, ${KEY_OF_BYTES}, row_id)`;
  return {
    sql: `SELECT ${k} AS k, op, updated_at AS version, row_data AS r FROM _hub_rows ${AMONG}`,
    params: [table, JSON.stringify(ids)],
  };
}

/** `k`, `version`, `deleted` and `line` of the live rows and of the tombstones, in the order of the ids. */
function lines(columns: Columns, { sql, params }: Choice, most: number): Choice {
  const of = (which: string): string => `SELECT k, version, r FROM chosen WHERE op ${which} 'DELETE'`;
  const rows =
    columns === null
      ? `SELECT k, version, 0 AS deleted, ${wholeLine(WHOLE, most)} AS line FROM (${of('<>')})`
      : jsonLines(columns, of('<>'), most);
  return {
    sql:
      `WITH chosen AS MATERIALIZED (${sql}) ` +
      `SELECT k, version, deleted, line FROM (${rows} UNION ALL ${tombstoneLines(of('='), 'k')}) ORDER BY k`,
    params,
  };
}

/** Between two that know no schema: all that a row has, by name. */
const WHOLE =
  "(SELECT group_concat(line, '') FROM (SELECT json_quote(lower(e.key)) || ':' || " +
  `${WIRE_LINE} AS line FROM json_each(r) AS e WHERE e.type <> 'null' ORDER BY lower(e.key), e.id))`;
