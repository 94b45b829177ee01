/**
 * What a group holds, for comparisons: `rows` by table and id. What is hashed has to be spelt as every node spells it, and
 * that is SQL of SQLite: the rows of a piece are put into the scratch database, and the hub's own ledger is asked there.
 */
import { type Id, keyOf, type Range } from '../../compare/ids.ts';
import {
  atMost,
  type Columns,
  type Early,
  type Entry,
  fittingAmong,
  type Listed,
  ORDINARY_ROW_BYTES,
  type Outline,
  type Parcel,
  type Portion,
  type Spelt,
} from '../../compare/ledger.ts';
import { fold } from '../../sqlite/sql.ts';
import { exactString, PREFIXES } from '../../wire/exact-text.ts';
import { SqliteHubLedger } from '../sqlite-ledger.ts';
import type { HubLedger, Seq } from '../store.ts';
import { fillScratch, type HubRow } from './close-look.ts';
import { fromText, type Param, textArray, toText } from './driver.ts';
import type { PostgresLetters } from './letters.ts';
import type { Base } from './parts.ts';
import { WRITER } from './read.ts';

/** As much as there is: it was measured already. */
const WHATEVER: Portion = { rows: Number.MAX_SAFE_INTEGER, bytes: Number.MAX_SAFE_INTEGER };

export class PostgresLedger implements HubLedger {
  readonly #base: Base;
  readonly #letters: PostgresLetters;
  readonly #tables: () => Promise<string[]>;
  /** Asked between two awaits: its answers are there when its promises are made. */
  readonly #spelling: SqliteHubLedger;

  constructor(base: Base, letters: PostgresLetters, tables: () => Promise<string[]>) {
    this.#base = base;
    this.#letters = letters;
    this.#tables = tables;
    this.#spelling = new SqliteHubLedger(base.scratch, tables);
  }

  async outline(): Promise<Outline[]> {
    const outlines: Outline[] = [];
    for (const name of await this.#tables()) outlines.push({ name, columns: null, last: await this.#last(name) });
    return outlines;
  }

  async spell(table: string, columns: Columns, range: Range, portion: Portion, floor?: number): Promise<Spelt> {
    const rows = await this.#within(table, range, portion, floor);
    return this.#among(rows, (ledger) => ledger.spell(table, columns, range, portion, floor));
  }

  async list(table: string, columns: Columns, range: Range, portion: Portion): Promise<Listed> {
    const rows = await this.#within(table, range, portion);
    return this.#among(rows, (ledger) => ledger.list(table, columns, range, portion));
  }

  async entries(
    table: string,
    columns: Columns,
    ids: Id[],
    portion: Portion,
  ): Promise<{ entries: Entry[]; rest: Id[] }> {
    const { fitting, rest } = await this.#fitting(table, ids.slice(0, portion.rows), portion);
    const rows = await this.#rowsOf(table, fitting);
    const found = await this.#among(rows, (ledger) => ledger.entries(table, columns, fitting, WHATEVER));
    const left = new Set([...rest, ...ids.slice(portion.rows)]);
    return { entries: found.entries, rest: [...left] };
  }

  async after(table: string, ids: Id[], position: Seq): Promise<Id[]> {
    const sql = `SELECT r.row_id AS id FROM rowcast.rows AS r WHERE ${AMONG} AND r.seq > $3 ORDER BY r.row_id`;
    const rows = await this.#base.sessions.query<{ id: string }>(sql, ...keysOf(table, ids), position);
    return rows.map(({ id }) => fromText(id));
  }

  early(table: string, ids: Id[]): Promise<Early[]> {
    return this.#letters.early(table, ids);
  }

  async changes(table: string, ids: Id[], batchId: number, portion: Portion): Promise<Parcel> {
    const { fitting, rest } = await this.#fitting(table, ids, portion);
    const rows = await this.#rowsOf(table, fitting);
    const { body, count } = await this.#among(rows, (ledger) => ledger.changes(table, fitting, batchId, WHATEVER));
    return { body, count, rest };
  }

  async #last(table: string): Promise<Id | null> {
    const tkey = toText(fold(table));
    const [plain] = await this.#base.sessions.query<{ id: string | null }>(
      `SELECT max(r.row_id) AS id FROM rowcast.rows AS r WHERE r.tkey = $1 AND NOT ${IS_BYTES}`,
      tkey,
    );
    const [bytes] = await this.#base.sessions.query<{ key: Buffer | null }>(
      `SELECT ${KEY_OF_BYTES} AS key FROM rowcast.rows AS r WHERE r.tkey = $1 AND ${IS_BYTES} ORDER BY 1 DESC LIMIT 1`,
      tkey,
    );
    const keys = [plain?.id == null ? null : Buffer.from(fromText(plain.id)), bytes?.key ?? null];
    const last = keys
      .filter((key) => key !== null)
      .sort(Buffer.compare)
      .at(-1);
    return last ? exactString(last) : null;
  }

  /**
   * The first rows of a range: as many as a portion has, or as many bytes. Where bytes are the limit one of them is larger
   * than an ordinary row, and then the ledger measures them: it does not miss those that were not read.
   */
  async #within(table: string, range: Range, portion: Portion, floor?: number): Promise<HubRow[]> {
    const bytes = Math.max(atMost(portion), portion.rows * ORDINARY_ROW_BYTES);
    const read = (isBytes: boolean): Promise<StoredRow[]> => {
      const { sql, params } = withinSql(isBytes, toText(fold(table)), range, floor);
      return this.#base.sessions.query<StoredRow>(firstSql(sql, params.length), ...params, portion.rows, bytes);
    };
    return [...(await read(false)), ...(await read(true))].map(hubRowOf);
  }

  async #rowsOf(table: string, ids: Id[]): Promise<HubRow[]> {
    const sql = `SELECT ${COLUMNS} FROM rowcast.rows AS r WHERE ${AMONG}`;
    const rows = await this.#base.sessions.query<StoredRow>(sql, ...keysOf(table, ids));
    return rows.map(hubRowOf);
  }

  /** Of these ids the first that are no more than a portion, as far as there is anything of them. */
  async #fitting(table: string, ids: Id[], portion: Portion): Promise<{ fitting: Id[]; rest: Id[] }> {
    const sized = await this.#base.sessions.query<{ id: string; bytes: number }>(
      'SELECT r.row_id AS id, octet_length(r.row_data) + 100 AS bytes FROM rowcast.rows AS r ' +
        `WHERE ${AMONG} ORDER BY r.row_id`,
      ...keysOf(table, ids),
    );
    const sizes = sized.map(({ id, bytes }) => ({ id: fromText(id), bytes }));
    // One question is cheaper here than several, and chooses what one hub would.
    return fittingAmong(ids, portion, (some) => {
      const among = new Set(some);
      return sizes.filter(({ id }) => among.has(id));
    });
  }

  /** What the hub's own ledger says where there are these rows and no others. */
  #among<T>(rows: HubRow[], ask: (ledger: SqliteHubLedger) => Promise<T>): Promise<T> {
    try {
      fillScratch(this.#base.scratch, rows);
      return ask(this.#spelling);
    } finally {
      this.#base.scratch.run('DELETE FROM _hub_rows');
    }
  }
}

/** With text as it is stored. */
type StoredRow = HubRow;

/** Who has made it is known here, and would not be there. */
const COLUMNS =
  'r.table_name AS "table", r.row_id AS id, r.op, r.updated_at AS version, r.origin, ' +
  `${WRITER} AS writer, r.base, r.row_data AS row`;

function hubRowOf(row: StoredRow): HubRow {
  return { ...row, table: fromText(row.table), id: fromText(row.id) };
}

const AMONG = 'r.tkey = $1 AND r.row_id = ANY ($2::text[])';

function keysOf(table: string, ids: Id[]): Param[] {
  return [toText(fold(table)), textArray(ids.map(toText))];
}

/** Ids that are not UTF-8 are rare, and stand elsewhere in this table than in the order of the wire. */
const IS_BYTES = "(r.row_id >= '$bytes:' AND r.row_id < '$bytes;')";
const MEANT = "decode(substr(r.row_id, length('$bytes:') + 1), 'hex')";
/** Where such an id has its place: see compare/ids.ts. */
const IS_ESCAPED = PREFIXES.map((prefix) => `substr(${MEANT}, 1, ${prefix.length}) = '${prefix}'::bytea`).join(' OR ');
const KEY_OF_BYTES = `(CASE WHEN ${IS_ESCAPED} THEN '$text:'::bytea || ${MEANT} ELSE ${MEANT} END)`;

/** The rows of a range, whose ids are UTF-8 or are not, with `k`, by which they are in order. */
function withinSql(
  isBytes: boolean,
  tkey: string,
  { after, upTo }: Range,
  floor: number | undefined,
): { sql: string; params: Param[] } {
  const params: Param[] = [tkey];
  const bind = (value: Param): string => `$${params.push(value)}`;
  const where = ['r.tkey = $1', isBytes ? IS_BYTES : `NOT ${IS_BYTES}`];
  for (const [id, sign] of [
    [after, '>'],
    [upTo, '<='],
  ] as const) {
    if (id === null) continue;
    const key = Buffer.from(keyOf(id), 'latin1');
    if (isBytes) where.push(`${KEY_OF_BYTES} ${sign} ${bind(key)}::bytea`);
    else if (!id.startsWith('$bytes:')) where.push(`r.row_id ${sign} ${bind(toText(id))}`);
    // A bound that is no text: by its bytes, as they would be stored.
    else where.push(`convert_to(r.row_id, 'UTF8') ${sign} ${bind(Buffer.from(toText(keyOf(id)), 'latin1'))}::bytea`);
  }
  // Tombstones up to there are left out.
  if (floor !== undefined) where.push(`(r.op <> 'DELETE' OR r.updated_at > ${bind(floor)})`);
  const k = isBytes ? KEY_OF_BYTES : 'r.row_id';
  return { sql: `SELECT ${k} AS k, r.* FROM rowcast.rows AS r WHERE ${where.join(' AND ')} ORDER BY k`, params };
}

/** Of these the first, by number and by bytes, which are bound behind the `bound` that they bind; at least one. */
function firstSql(rows: string, bound: number): string {
  return (
    `SELECT ${COLUMNS} FROM (SELECT n.*, sum(octet_length(n.row_data)) OVER (ORDER BY n.k) AS total ` +
    `FROM (${rows} LIMIT $${bound + 1}) AS n) AS r WHERE r.total - octet_length(r.row_data) <= $${bound + 2} ORDER BY r.k`
  );
}
