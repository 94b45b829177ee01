/** What a node holds: its tables, the rows that a UNIQUE value hides, and its tombstones, read in pieces by id. */
import { RowcastError } from '../errors.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import { isNestedTransaction } from '../sqlite/connection.ts';
import type { Column, Table } from '../sqlite/schema.ts';
import { fold, literal, quote, shallow } from '../sqlite/sql.ts';
import { type Body, batchSql, batchText, changeSql } from '../wire/body.ts';
import { exactText } from '../wire/exact-text.ts';
import { TIMESTAMP_MIN } from '../wire/protocol.ts';
import { affine, content, decode, encode, rowJson } from '../wire/values.ts';
import { EVERYTHING, type Id, type OwnId, type Part, partsOf, type Range, toWire } from './ids.ts';
import type { Columns, Entry, Ledger, Outline, Parcel, Portion, Sight, Spelt } from './ledger.ts';
import { firstThatFit } from './ledger.ts';
import { columnsOf, hashOf, jsonLines, rowLine, tombstoneLines } from './lines.ts';

export interface SqliteLedgerOptions {
  /** The synced tables as they are now, with every version written into its row that can be. */
  tables(): Table[];
  /** The version of a row of `table` under an alias, as SQL. */
  version(table: Table, alias: string): string;
  /**
   * How far the other side is in `_changes`: what is after that is on its way. Undefined where nothing is sent there,
   * -1 where it is being given everything.
   */
  watermark(other: string | undefined): number | undefined;
}

/** Where the ids of a statement come from: a part of the order, or a list that is bound. */
interface Choice {
  where(column: string): string;
  params: Value[];
}

/** More changes than these that are on their way, and it is not looked which: any of the rows may be among them. */
const LOOKED_THROUGH = 10_000;

export class SqliteLedger implements Ledger {
  readonly #db: Connection;
  readonly #o: SqliteLedgerOptions;

  constructor(db: Connection, options: SqliteLedgerOptions) {
    this.#db = db;
    this.#o = options;
  }

  outline(): Outline[] {
    return this.tables().map(({ outline }) => outline);
  }

  /** The tables by the names that they have here, and as the other side is told of them. */
  tables(): { name: string; outline: Outline }[] {
    // Before the transaction, because it may have to write.
    const tables = this.#o.tables();
    return this.#reading(() =>
      tables.map((table) => ({
        name: table.name,
        outline: {
          name: table.wireName,
          columns: Object.fromEntries(table.columns.map(({ wireName, affinity }) => [wireName, affinity])),
          last: this.#last(table),
          ...floorOf(table),
        },
      })),
    );
  }

  cut(name: string, range: Range, portion: Portion): Id | null {
    const table = this.#table(name);
    return this.#reading(() => {
      let left = portion;
      for (const part of partsOf(range)) {
        const { end, rows, bytes } = this.#measure(table, part, left);
        if (end !== null) return exactly(table, end);
        left = { rows: left.rows - rows, bytes: left.bytes - bytes };
        if (rows > 0 && (left.rows <= 0 || left.bytes <= 0)) return this.#lastOf(table, part);
      }
      return null;
    });
  }

  spell(name: string, columns: Columns, range: Range, floor?: number): Spelt {
    const table = this.#table(name);
    return this.#reading(() => {
      const spelt: Spelt = { rows: 0, texts: [] };
      for (const part of partsOf(range)) {
        const found = this.#db.get<{ n: number; text: Uint8Array | null }>(
          `SELECT count(*) AS n, CAST(group_concat(line, '') AS BLOB) AS text FROM (${this.#lines(table, columns, part, floor)})`,
          ...this.#params(part),
        );
        if (!found || found.text === null) continue;
        spelt.rows += found.n;
        spelt.texts.push(found.text);
      }
      return spelt;
    });
  }

  list(name: string, columns: Columns, range: Range): Entry[] {
    const table = this.#table(name);
    return this.#reading(() => partsOf(range).flatMap((part) => this.#entries(table, columns, part)));
  }

  /** The ids alone, at a fraction of the cost. */
  ids(name: string, range: Range): Id[] {
    const table = this.#table(name);
    return this.#reading(() =>
      partsOf(range).flatMap((part) => {
        const sources = this.#sources(table, part).map(({ k, from }) => `SELECT ${k} AS k ${from}`);
        return this.#db
          .all<{ k: OwnId }>(`${sources.join(' UNION ALL ')} ORDER BY k`, ...this.#params(part))
          .map(({ k }) => exactly(table, k));
      }),
    );
  }

  look(name: string, columns: Columns, ids: Id[], other: string | undefined): Sight {
    const table = this.#table(name);
    return this.#reading(() => ({
      entries: this.#entries(table, columns, listed(ids)),
      undelivered: this.#undelivered(table, ids, this.#o.watermark(other)),
      parked: this.#parked(table, ids),
      ...floorOf(table),
    }));
  }

  changes(name: string, ids: Id[], batchId: number, portion: Portion): Parcel {
    const table = this.#table(name);
    const sized = this.#reading(() => {
      const choice = listed(ids);
      const sql = `${this.#sizes(table, choice)} ORDER BY k`;
      return this.#db.all<{ k: OwnId; bytes: number }>(sql, ...this.#params(choice));
    });
    const measured = sized.map(({ k, bytes }) => ({ id: toWire(k), bytes }));
    const { fitting, rest } = firstThatFit(measured, portion);
    const choice = listed(fitting);
    // A write makes it a commit that is flushed, and with it every commit before it. Never send what could be lost.
    const found = this.#db.transaction(
      () => {
        this.#noteFlush();
        return this.#db.get<{ body: Body | null; n: number }>(
          `SELECT ${batchSql('CAST(? AS INTEGER)')} AS body, count(*) AS n ` +
            `FROM (SELECT change FROM (${this.#changeTexts(table, choice)}) ORDER BY k)`,
          batchId,
          ...this.#params(choice),
        );
      },
      { durable: true },
    );
    if (!found?.body) return { body: new TextEncoder().encode(batchText(batchId, '')), count: 0, rest };
    return { body: exactText(found.body), count: found.n, rest };
  }

  flushed(): void {
    this.#db.transaction(() => this.#noteFlush(), { durable: true });
  }

  #noteFlush(): void {
    this.#db.run(
      "INSERT INTO main._meta (key, value) VALUES ('told', 1) ON CONFLICT DO UPDATE SET value = CAST(value AS INTEGER) + 1",
    );
  }

  #table(name: string): Table {
    const table = this.#o.tables().find((one) => fold(one.wireName) === fold(name));
    if (!table) throw new RowcastError('INVALID_TABLE', `table ${JSON.stringify(name)} is not synced here`);
    return table;
  }

  /** Never inside a transaction of the application: what it takes back was never there. */
  #reading<T>(read: () => T): T {
    try {
      this.#db.exec('BEGIN');
    } catch (error) {
      if (!isNestedTransaction(error)) throw error;
      throw new RowcastError('IN_TRANSACTION', 'the application has a transaction open on this connection', {
        cause: error,
      });
    }
    try {
      return read();
    } finally {
      this.#db.exec('ROLLBACK');
    }
  }

  #last(table: Table): Id | null {
    for (const part of partsOf(EVERYTHING).reverse()) {
      const last = this.#lastOf(table, part);
      if (last !== null) return last;
    }
    return null;
  }

  #lastOf(table: Table, part: Part): Id | null {
    const found = this.#sources(table, part).map(({ from, k }) =>
      this.#db.get<{ k: OwnId }>(`SELECT ${k} AS k ${from} ORDER BY ${k} DESC LIMIT 1`, ...part.params),
    );
    const ids = found.filter((row) => row !== undefined).map(({ k }) => k);
    if (ids.length === 0) return null;
    const last = ids.reduce((a, b) => (isGreater(a, b) ? a : b));
    // One that is no UTF-8 says no more than that there is something.
    return isExact(last) ? toWire(last) : GREATEST;
  }

  /** `end` is where a portion is full, null where the part is smaller than that. */
  #measure(table: Table, part: Part, portion: Portion): Measured {
    const sql =
      'SELECT max(k) AS "end", count(*) AS rows, coalesce(sum(bytes), 0) AS bytes ' +
      `FROM (${this.#sizes(table, part)} ORDER BY k LIMIT CAST(? AS INTEGER))`;
    for (let rows = portion.rows; ; ) {
      const found = this.#db.get<Measured>(sql, ...this.#params(part), rows) as Measured;
      if (found.bytes > portion.bytes && found.rows > 1) {
        rows = Math.max(1, Math.min(found.rows >> 1, Math.floor((found.rows * portion.bytes) / found.bytes)));
        continue;
      }
      return found.rows === rows ? found : { ...found, end: null };
    }
  }

  #entries(table: Table, columns: Columns, choice: Choice): Entry[] {
    const rows = this.#db.all<{ k: OwnId; version: number; deleted: number; line: string }>(
      this.#lines(table, columns, choice),
      ...this.#params(choice),
    );
    return rows.map(({ k, version, deleted, line }) => ({
      id: exactly(table, k),
      version: Number(version),
      deleted: deleted === 1,
      hash: deleted === 1 ? '' : hashOf(line),
    }));
  }

  #undelivered(table: Table, ids: Id[], after: number | undefined): Id[] {
    if (after === undefined || ids.length === 0) return [];
    if (after < 0) return ids;
    const pending = 'SELECT table_name, row_id FROM main._changes WHERE change_id > ?';
    const many = this.#db.get<{ n: number }>(
      `SELECT count(*) AS n FROM (${pending} LIMIT ${LOOKED_THROUGH + 1})`,
      after,
    );
    if ((many?.n ?? 0) > LOOKED_THROUGH) return ids;
    const rows = this.#db.all<{ k: OwnId }>(
      `SELECT DISTINCT row_id AS k FROM (${pending}) WHERE table_name = ? COLLATE NOCASE AND row_id IN (${LISTED})`,
      after,
      table.name,
      JSON.stringify(ids),
    );
    return rows.map(({ k }) => toWire(k));
  }

  #parked(table: Table, ids: Id[]): Id[] {
    const rows = this.#db.all<{ id: string }>(
      'SELECT DISTINCT d.row_id AS id FROM main._dead_letter_info AS i JOIN main._dead_letter AS d USING (dead_id) ' +
        "WHERE i.direction = 'in' AND i.code NOT IN ('unique', 'unknown-column') AND i.table_name = ? COLLATE NOCASE " +
        'AND d.row_id IN (SELECT value FROM json_each(?))',
      table.name,
      JSON.stringify(ids),
    );
    return rows.map(({ id }) => id);
  }

  /** A choice is made three times: among the rows, the hidden ones and the tombstones. */
  #params(choice: Choice): Value[] {
    return [...choice.params, ...choice.params, ...choice.params];
  }

  /** Rows, hidden rows and tombstones, each with the id of its own, and no id twice. */
  #sources(table: Table, choice: Choice, floor?: number): Source[] {
    const name = literal(table.name);
    const row = `t.${quote(table.id)} COLLATE BINARY`;
    const live = (id: string): string => `EXISTS (SELECT 1 FROM ${table.target} AS t WHERE ${row} = ${id})`;
    const hidden = (id: string): string =>
      `EXISTS (SELECT 1 FROM main._hidden AS o WHERE o.table_name = ${name} AND o.row_id = ${id})`;
    const above = floor === undefined ? '' : ` AND g.version > ${floor}`;
    return [
      { kind: 'row', k: row, from: `FROM ${table.target} AS t WHERE ${choice.where(row)}` },
      {
        kind: 'hidden',
        k: 'h.row_id',
        from:
          `FROM main._hidden AS h WHERE h.table_name = ${name} AND ${choice.where('h.row_id')} ` +
          `AND NOT ${live('h.row_id')}`,
      },
      {
        kind: 'tombstone',
        k: 'g.row_id',
        from:
          `FROM main._tombstones AS g WHERE g.table_name = ${name} AND ${choice.where('g.row_id')} ` +
          `AND NOT ${live('g.row_id')} AND NOT ${hidden('g.row_id')}${above}`,
      },
    ];
  }

  /** `k`, `version`, `deleted`, `line` of each, in the order of `k`. */
  #lines(table: Table, columns: Columns, choice: Choice, floor?: number): string {
    const wanted = this.#shared(table, columns);
    const [rows, hidden, tombstones] = this.#sources(table, choice, floor) as [Source, Source, Source];
    const version = this.#o.version(table, 't');
    const text = content(
      wanted.map(({ asked }) => asked),
      (asked) => this.#stored(table, wanted.find((one) => one.asked === asked)?.own as Column, asked, version),
    );
    const json = Object.fromEntries(wanted.map(({ asked }) => [asked.name, asked.affinity]));
    return [
      `SELECT ${rows.k} AS k, ${version} AS version, 0 AS deleted, ${rowLine(text)} AS line ${rows.from}`,
      jsonLines(json, `SELECT ${hidden.k} AS k, h.version AS version, h.row_data AS r ${hidden.from}`),
      `${tombstoneLines(`SELECT ${tombstones.k} AS k, g.version AS version ${tombstones.from}`)} ORDER BY k`,
    ].join(' UNION ALL ');
  }

  /** The columns that are asked for, as the asker and as this table has them. */
  #shared(table: Table, columns: Columns): { asked: Column; own: Column }[] {
    if (columns === null) return table.columns.map((own) => ({ asked: own, own }));
    return columnsOf(columns).map((asked) => {
      const own = table.columns.find(({ wireName }) => fold(wireName) === fold(asked.name));
      if (own) return { asked, own };
      throw new RowcastError('INVALID_TABLE', `table "${table.name}" has no column ${JSON.stringify(asked.name)} here`);
    });
  }

  #stored(table: Table, own: Column, asked: Column, version: string): string {
    if (own.name === table.updatedAt) return version;
    const value = `t.${quote(own.name)}`;
    return own.affinity === asked.affinity ? value : affine(value, asked.affinity);
  }

  /** `k` and about how many bytes it makes. */
  #sizes(table: Table, choice: Choice): string {
    const [rows, hidden, tombstones] = this.#sources(table, choice) as [Source, Source, Source];
    const lengths = table.columns.map(({ name }) => `coalesce(octet_length(t.${quote(name)}), 4)`);
    const names = table.columns.reduce((sum, { name }) => sum + Buffer.byteLength(name) + 6, 60);
    return [
      `SELECT ${rows.k} AS k, ${shallow(lengths, ' + ')} + ${names} AS bytes ${rows.from}`,
      `SELECT ${hidden.k} AS k, octet_length(h.row_data) + 60 AS bytes ${hidden.from}`,
      `SELECT ${tombstones.k} AS k, 2 * octet_length(g.row_id) + 120 AS bytes ${tombstones.from}`,
    ].join(' UNION ALL ');
  }

  /** `k` and the change that brings the other side to what is here. */
  #changeTexts(table: Table, choice: Choice): string {
    const [rows, hidden, tombstones] = this.#sources(table, choice) as [Source, Source, Source];
    const name = literal(table.wireName);
    const row = rowJson(table, 't', { column: table.updatedAt, by: this.#o.version(table, 't') });
    const id = encode('g.row_id', 'TEXT');
    const tombstone = `json_object(${literal(table.id)}, ${id}, ${literal(table.updatedAt)}, g.version)`;
    const insert = (json: string): string => changeSql({ op: "'INSERT'", table: name, row: json, oldId: "'null'" });
    const remove = changeSql({ op: "'DELETE'", table: name, row: tombstone, oldId: `json_quote(${id})` });
    return [
      `SELECT ${rows.k} AS k, ${insert(row)} AS change ${rows.from}`,
      `SELECT ${hidden.k} AS k, ${insert('h.row_data')} AS change ${hidden.from}`,
      `SELECT ${tombstones.k} AS k, ${remove} AS change ${tombstones.from}`,
    ].join(' UNION ALL ');
  }
}

interface Measured {
  end: OwnId | null;
  rows: number;
  bytes: number;
}

interface Source {
  kind: 'row' | 'hidden' | 'tombstone';
  k: string;
  from: string;
}

/** The ids of a JSON array that is bound, as they stand in a table. */
const LISTED = `SELECT ${decode('value')} FROM json_each(?)`;

/** Nothing is said of it where nothing was ever collected. */
function floorOf({ floor }: Table): { floor?: number } {
  return floor === undefined || floor === TIMESTAMP_MIN ? {} : { floor };
}

function listed(ids: Id[]): Choice {
  return { where: (column) => `${column} IN (${LISTED})`, params: [JSON.stringify(ids)] };
}

const GREATEST = '\u{10FFFF}';

function isExact(k: OwnId): boolean {
  return typeof k !== 'string' || !k.includes('\uFFFD');
}

/** An id that is no UTF-8 is another one in JavaScript: it can be compared with all others of its range, and not alone. */
function exactly(table: Table, k: OwnId): Id {
  if (isExact(k)) return toWire(k);
  throw new RowcastError(
    'INVALID_TABLE',
    `table "${table.name}" differs where ids are not UTF-8: those are not compared`,
  );
}

/** Within one part of the order all ids are of one kind. */
function isGreater(a: OwnId, b: OwnId): boolean {
  return Buffer.compare(Buffer.from(a as string), Buffer.from(b as string)) > 0;
}
