/** What a node holds: its tables, the rows that a UNIQUE value hides, and its tombstones, read in pieces by id. */
import { RowcastError } from '../errors.ts';
import { type Connection, isNestedTransaction } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { type Body, batchSql, batchText } from '../wire/body.ts';
import { exactString, exactText } from '../wire/exact-text.ts';
import { TIMESTAMP_MIN } from '../wire/protocol.ts';
import { idForWire } from '../wire/values.ts';
import { earlyIn } from './early.ts';
import { compareIds, EVERYTHING, type Id, type Part, partsOf, type Range } from './ids.ts';
import type { Columns, Entry, Ledger, Listed, Outline, Parcel, Piece, Portion, Sight, Spelt } from './ledger.ts';
import { atMost, firstThatFit, fittingSql, ORDINARY_ROW_BYTES } from './ledger.ts';
import { hashOf } from './lines.ts';
import {
  type Choice,
  changesOf,
  idsOf,
  LISTED,
  linesOf,
  linesParams,
  listed,
  presenceOf,
  sharedColumns,
  sizesOf,
  sourcesOf,
  threeTimes,
  type Wanted,
} from './sqlite-lines.ts';

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

/** What was read of a part of the order: up to which id, and whether there was no room for more. */
interface Read<T> {
  found: T;
  rows: number;
  last: Uint8Array | null;
  isFull: boolean;
}

/** More changes than these that are on their way, and it is not looked which: any of the rows may be among them. */
const LOOKED_THROUGH = 10_000;

/** Statements that are kept spelt for a table: a few for each peer that has other columns. */
const SPELT_MAX = 200;

export class SqliteLedger implements Ledger {
  readonly #db: Connection;
  readonly #o: SqliteLedgerOptions;
  /** To spell a statement takes longer than to run it for a few rows. */
  readonly #statements = new WeakMap<Table, Map<string, string>>();

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

  spell(name: string, columns: Columns, range: Range, portion: Portion, floor?: number): Spelt {
    const table = this.#table(name, columns);
    const { found, rows, end } = this.#walk(table, range, portion, (part, besides, left) =>
      this.#spellPart(table, part, { columns, besides, floor }, left),
    );
    return { rows, texts: found.filter((text) => text !== null), end };
  }

  list(name: string, columns: Columns, range: Range, portion: Portion): Listed {
    const table = this.#table(name, columns);
    const { found, end } = this.#walk(table, range, portion, (part, besides, left) =>
      this.#listPart(table, part, { columns, besides }, left),
    );
    return { entries: found.flat(), end };
  }

  /** The ids alone. */
  ids(name: string, range: Range, portion: Portion): Piece & { ids: Id[] } {
    const table = this.#table(name);
    const { found, end } = this.#walk(table, range, portion, (part, _, left) => {
      const sql = `SELECT ${idForWire('k')} AS id FROM (${idsOf(table, part)} LIMIT CAST(? AS INTEGER))`;
      const rows = this.#db.all<{ id: Uint8Array }>(sql, ...threeTimes(part), left.rows);
      return { found: rows, rows: rows.length, last: rows.at(-1)?.id ?? null, isFull: rows.length >= left.rows };
    });
    return { ids: found.flat().map(({ id }) => exactString(id)), end };
  }

  look(name: string, columns: Columns, ids: Id[], other: string | undefined, portion: Portion): Sight {
    const table = this.#table(name);
    return this.#reading(() => {
      const rest = new Set(this.#fitting(table, ids.slice(0, portion.rows), portion).rest);
      for (const id of ids.slice(portion.rows)) rest.add(id);
      const some = rest.size === 0 ? ids : ids.filter((id) => !rest.has(id));
      const all = { columns, most: Infinity, besides: true };
      return {
        entries: this.#rows(table, listed(some), all, some.length).map(entryOf),
        undelivered: this.#undelivered(table, some, this.#o.watermark(other)),
        parked: this.#parked(table, some),
        early: earlyIn(this.#db, [table.name, table.wireName, ...table.was], some),
        rest: [...rest],
        ...floorOf(table),
      };
    });
  }

  changes(name: string, ids: Id[], batchId: number, portion: Portion): Parcel {
    const table = this.#table(name);
    const { fitting, rest } = this.#reading(() => this.#fitting(table, ids, portion));
    const choice = listed(fitting);
    // A write makes it a commit that is flushed, and with it every commit before it. Never send what could be lost.
    const found = this.#db.transaction(
      () => {
        this.#noteFlush();
        return this.#db.get<{ body: Body | null; n: number }>(
          `SELECT ${batchSql('CAST(? AS INTEGER)')} AS body, count(*) AS n ` +
            `FROM (${changesOf(table, choice, this.#o.version(table, 't'))})`,
          batchId,
          ...threeTimes(choice),
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

  /** Where there is nothing to read it is still an error to ask for what cannot be there. */
  #table(name: string, columns: Columns = null): Table {
    const table = this.#o.tables().find((one) => fold(one.wireName) === fold(name));
    if (!table) throw new RowcastError('INVALID_TABLE', `table ${JSON.stringify(name)} is not synced here`);
    sharedColumns(table, columns);
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
      const sources = Object.values(sourcesOf(table, part));
      const found = sources.map(({ from, k }) =>
        this.#db.get<{ id: Uint8Array }>(
          `SELECT ${idForWire(k)} AS id ${from} ORDER BY ${k} DESC LIMIT 1`,
          ...part.params,
        ),
      );
      const last = found.flatMap((row) => (row ? [exactString(row.id)] : [])).sort(compareIds);
      if (last.length > 0) return last.at(-1) as Id;
    }
    return null;
  }

  /** Reads a range part by part, until there is no room for more. */
  #walk<T>(
    table: Table,
    range: Range,
    portion: Portion,
    read: (part: Part, besides: boolean, left: Portion) => Read<T>,
  ): { found: T[]; rows: number; end: Id | null } {
    return this.#reading(() => {
      const found: T[] = [];
      let rows = 0;
      for (const part of partsOf(range)) {
        const sql = this.#spelt(table, part.where('k'), () => presenceOf(table, part));
        const present = this.#db.get<{ rows: number; besides: number }>(sql, ...threeTimes(part));
        if (!present?.rows && !present?.besides) continue;
        const one = read(part, present.besides === 1, { ...portion, rows: portion.rows - rows });
        found.push(one.found);
        rows += one.rows;
        if (one.isFull && one.last) return { found, rows, end: exactString(one.last) };
      }
      return { found, rows, end: null };
    });
  }

  /** The ordinary way is tried first; where there is a large row, so many are read as are not too much. */
  #spellPart(table: Table, part: Part, wanted: Asked, portion: Portion): Read<Uint8Array | null> {
    const read = (most: number, rows: number): SpeltPart =>
      this.#db.get<SpeltPart>(
        this.#lines('joined', table, part, { ...wanted, most }),
        ...linesParams(part, wanted.besides, rows),
      ) as SpeltPart;
    const ordinary = read(ORDINARY_ROW_BYTES, portion.rows);
    if (ordinary.lines === ordinary.rows) return { ...ordinary, isFull: ordinary.rows >= portion.rows };
    return { ...read(Infinity, this.#measure(table, part, portion)), isFull: true };
  }

  #listPart(table: Table, part: Part, wanted: Asked, portion: Portion): Read<Entry[]> {
    const read = (most: number, rows: number): ListedRow[] => this.#rows(table, part, { ...wanted, most }, rows);
    let rows = read(ORDINARY_ROW_BYTES, portion.rows);
    const isOrdinary = rows.every(({ line }) => line !== null);
    if (!isOrdinary) rows = read(Infinity, this.#measure(table, part, portion));
    const isFull = !isOrdinary || rows.length >= portion.rows;
    return { found: rows.map(entryOf), rows: rows.length, last: rows.at(-1)?.id ?? null, isFull };
  }

  /** How many rows of a part are no more than a portion; at least one. */
  #measure(table: Table, part: Part, portion: Portion): number {
    const sizes = `${sizesOf(table, part)} LIMIT CAST(? AS INTEGER)`;
    const params = [...threeTimes(part), portion.rows, atMost(portion)];
    return Math.max(1, Number(this.#db.get(fittingSql(sizes), ...params)?.n));
  }

  /** Of these ids the first that are no more than a portion, as far as there is anything of them. */
  #fitting(table: Table, ids: Id[], portion: Portion): { fitting: Id[]; rest: Id[] } {
    const choice = listed(ids);
    const sized = this.#db.all<{ id: Uint8Array; bytes: number }>(
      `SELECT ${idForWire('k')} AS id, bytes FROM (${sizesOf(table, choice)})`,
      ...threeTimes(choice),
    );
    return firstThatFit(
      sized.map(({ id, bytes }) => ({ id: exactString(id), bytes })),
      portion,
    );
  }

  /** A statement of `linesOf`. */
  #lines(kind: keyof typeof OF_LINES, table: Table, choice: Choice, wanted: Omit<Wanted, 'version'>): string {
    const version = this.#o.version(table, 't');
    const { columns, most, besides, floor } = wanted;
    return this.#spelt(table, JSON.stringify([kind, version, columns, most, besides, floor, choice.where('k')]), () =>
      OF_LINES[kind](linesOf(table, choice, { ...wanted, version })),
    );
  }

  #spelt(table: Table, key: string, spell: () => string): string {
    let known = this.#statements.get(table);
    if (!known || known.size > SPELT_MAX) {
      known = new Map();
      this.#statements.set(table, known);
    }
    let sql = known.get(key);
    if (sql === undefined) {
      sql = spell();
      known.set(key, sql);
    }
    return sql;
  }

  #rows(table: Table, choice: Choice, wanted: Omit<Wanted, 'version'>, most: number): ListedRow[] {
    const sql = this.#lines('listed', table, choice, wanted);
    return this.#db.all<ListedRow>(sql, ...linesParams(choice, wanted.besides, most));
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
    const rows = this.#db.all<{ id: Uint8Array }>(
      `SELECT ${idForWire('row_id')} AS id FROM (SELECT DISTINCT row_id FROM (${pending}) ` +
        `WHERE table_name = ? COLLATE NOCASE AND row_id IN (${LISTED}))`,
      after,
      table.name,
      JSON.stringify(ids),
    );
    return rows.map(({ id }) => exactString(id));
  }

  #parked(table: Table, ids: Id[]): Id[] {
    const rows = this.#db.all<{ id: string }>(
      'SELECT DISTINCT d.row_id AS id FROM main._dead_letter_info AS i JOIN main._dead_letter AS d USING (dead_id) ' +
        "WHERE i.direction = 'in' AND i.code NOT IN ('unique', 'unknown-column', 'future-stamp') AND i.table_name = ? COLLATE NOCASE " +
        'AND d.row_id IN (SELECT value FROM json_each(?))',
      table.name,
      JSON.stringify(ids),
    );
    return rows.map(({ id }) => id);
  }
}

/** What is read of lines: all of them as one text, or each by itself. */
const OF_LINES = {
  joined: (lines: string) =>
    `SELECT count(*) AS rows, count(line) AS lines, ${idForWire('max(k)')} AS last, ` +
    `CAST(group_concat(line, '') AS BLOB) AS found FROM (${lines})`,
  listed: (lines: string) =>
    `SELECT ${idForWire('k')} AS id, version, deleted, CAST(line AS BLOB) AS line FROM (${lines})`,
};

/** What is asked for of a part. */
type Asked = Pick<Wanted, 'columns' | 'besides' | 'floor'>;

interface SpeltPart {
  rows: number;
  lines: number;
  last: Uint8Array | null;
  found: Uint8Array | null;
}

interface ListedRow {
  id: Uint8Array;
  version: number;
  deleted: number;
  line: Uint8Array | null;
}

function entryOf({ id, version, deleted, line }: ListedRow): Entry {
  const isDeleted = deleted === 1;
  return {
    id: exactString(id),
    version: Number(version),
    deleted: isDeleted,
    hash: isDeleted || line === null ? '' : hashOf(line),
  };
}

/** Nothing is said of it where nothing was ever collected. */
function floorOf({ floor }: Table): { floor?: number } {
  return floor === undefined || floor === TIMESTAMP_MIN ? {} : { floor };
}
