/** What a node holds: its tables, the rows that a UNIQUE value hides, and its tombstones, read in pieces by id. */
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { isNestedTransaction } from '../sqlite/explained.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { beginReading } from '../sqlite/unfinished.ts';
import { type Body, batchSql, batchText } from '../wire/body.ts';
import { exactString, exactText } from '../wire/exact-text.ts';
import { TIMESTAMP_MIN } from '../wire/protocol.ts';
import { idForWire } from '../wire/values.ts';
import { earlyIn } from './early.ts';
import { Hope } from './hope.ts';
import { compareIds, EVERYTHING, type Id, type Part, partsOf, type Range } from './ids.ts';
import type {
  Columns,
  Counterpart,
  Entry,
  Ledger,
  Listed,
  Nodes,
  Outline,
  Parcel,
  Piece,
  Portion,
  Sight,
  Spelt,
} from './ledger.ts';
import { atMost, firstThatFit, fittingAmong, fittingSql, ORDINARY_ROW_BYTES, smaller } from './ledger.ts';
import { SpeltStatements } from './spelt.ts';
import {
  anyBeforeLastPart,
  type Besides,
  type Choice,
  changesOf,
  entryOf,
  haveLines,
  idOfRow,
  idsOf,
  type JoinedRows,
  type ListedRow,
  linesParams,
  listed,
  OF_LINES,
  presenceOf,
  type SpeltPart,
  sharedColumns,
  sizesOf,
  sourcesOf,
  threeTimes,
  type Wanted,
} from './sqlite-lines.ts';
import { namesOf, parkedOf, undeliveredOf } from './sqlite-on-its-way.ts';

export interface SqliteLedgerOptions {
  /** The synced tables as they are now, with every version written into its row that can be. */
  tables(): Table[];
  /** The version of a row of `table` under an alias, as SQL. */
  version(table: Table, alias: string): string;
  /**
   * How far the other side is in `_changes`: what is after that is on its way. Undefined where nothing is sent there,
   * -1 where it is being given everything.
   */
  watermark(other: Counterpart | undefined): number | undefined;
  /** As in a sight. */
  nodes(): Nodes;
  /** These have been looked at. Outside of any transaction. */
  onLook?(table: Table, ids: Id[]): void;
}

/** What was read of a part of the order: up to which id, and whether there was no room for more. */
interface Read<T> {
  found: T;
  rows: number;
  last: Uint8Array | null;
  isFull: boolean;
  /** There was a large row: it is enough for one turn. */
  isLarge?: boolean;
}

type ReadPart<T> = (part: Part, besides: Besides, left: Portion) => Read<T>;

/** What there is of a choice at all. */
interface Presence {
  rows: number;
  besides: Besides;
}

/** A piece of a range: what was read of it, part by part; `end` as in a piece. */
interface Walked<T> extends Piece {
  found: T[];
  rows: number;
  isLarge: boolean;
}

/** What a piece costs besides its rows: as much as so many of them. */
const PIECE_ROWS = 16;

export class SqliteLedger implements Ledger {
  readonly #db: Connection;
  readonly #o: SqliteLedgerOptions;
  readonly #spelt = new SpeltStatements();
  readonly #hope = new Hope();

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

  spell(name: string, columns: Columns, ranges: Range[], each: Portion, portion: Portion, floor?: number): Spelt[] {
    const table = this.#table(name, columns);
    const read: ReadPart<Uint8Array | null> = (part, besides, left) =>
      this.#spellPart(table, part, { columns, besides, floor }, left);
    const pieces = this.#reading(() => this.#pieces(table, ranges, each, portion, read));
    return pieces.map(({ found, rows, end }) => ({ rows, texts: found.filter((text) => text !== null), end }));
  }

  list(name: string, columns: Columns, ranges: Range[], portion: Portion): Listed[] {
    const table = this.#table(name, columns);
    const read: ReadPart<Entry[]> = (part, besides, left) => this.#listPart(table, part, { columns, besides }, left);
    const pieces = this.#reading(() => this.#pieces(table, ranges, portion, portion, read));
    return pieces.map(({ found, end }) => ({ entries: found.flat(), end }));
  }

  /** The ids alone. */
  ids(name: string, range: Range, portion: Portion): Piece & { ids: Id[] } {
    const table = this.#table(name);
    const read: ReadPart<{ id: Uint8Array }[]> = (part, _, left) => {
      const sql = `SELECT ${idForWire('k')} AS id FROM (${idsOf(table, part)} LIMIT CAST(? AS INTEGER))`;
      const rows = this.#db.all<{ id: Uint8Array }>(sql, ...threeTimes(part), left.rows);
      return { found: rows, rows: rows.length, last: rows.at(-1)?.id ?? null, isFull: rows.length >= left.rows };
    };
    const { found, end } = this.#reading(() => this.#walk(table, range, portion, read));
    return { ids: found.flat().map(({ id }) => exactString(id)), end };
  }

  look(name: string, columns: Columns, ids: Id[], other: Counterpart | undefined, portion: Portion): Sight {
    const table = this.#table(name);
    const sight = this.#reading((): Sight => {
      const rest = new Set(firstThatFit(this.#sizes(table, ids.slice(0, portion.rows)), portion).rest);
      for (const id of ids.slice(portion.rows)) rest.add(id);
      const some = rest.size === 0 ? ids : ids.filter((id) => !rest.has(id));
      const choice = listed(some);
      const all = { columns, most: Infinity, besides: this.#presence(table, choice).besides };
      const watermark = this.#o.watermark(other);
      const { self, heard, awaited } = this.#o.nodes();
      return {
        entries: this.#rows(table, choice, all, some.length).map(entryOf),
        undelivered: undeliveredOf(this.#db, table, some, watermark),
        parked: parkedOf(this.#db, table, some),
        early: earlyIn(this.#db, namesOf(table), some),
        rest: [...rest],
        nodes: { self, heard: watermark === undefined ? [self, ...heard] : heard, awaited },
        ...floorOf(table),
      };
    });
    this.#o.onLook?.(table, ids);
    return sight;
  }

  changes(name: string, ids: Id[], batchId: number, portion: Portion): Parcel {
    const table = this.#table(name);
    const { fitting, rest } = this.#reading(() => fittingAmong(ids, portion, (some) => this.#sizes(table, some)));
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
      beginReading(this.#db);
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
    for (const part of this.#parts(table, EVERYTHING).reverse()) {
      const { besides } = this.#presence(table, part);
      const { rows, hidden, tombstones } = sourcesOf(table, part);
      const sources = besides === 'nothing' ? [rows] : [rows, hidden, tombstones];
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

  /** Reads ranges piece by piece, as many as are a portion. */
  #pieces<T>(table: Table, ranges: Range[], each: Portion, portion: Portion, read: ReadPart<T>): Walked<T>[] {
    const pieces: Walked<T>[] = [];
    const hasNothingElse = ranges.length > 1 && !this.#hasBesides(table, ranges);
    let left = portion.rows;
    for (const { after: begin, upTo } of ranges) {
      for (let after = begin; ; ) {
        // Less than that is not worth a piece of its own.
        if (pieces.length > 0 && left <= PIECE_ROWS) return pieces;
        const size = smaller(each, { ...portion, rows: Math.max(1, left) });
        const piece = this.#walk(table, { after, upTo }, size, read, hasNothingElse);
        pieces.push(piece);
        left = piece.isLarge ? 0 : left - piece.rows - PIECE_ROWS;
        if (piece.end === null) break;
        after = piece.end;
      }
    }
    return pieces;
  }

  /** Is there anything but rows from the first of these ranges to the last? */
  #hasBesides(table: Table, ranges: Range[]): boolean {
    const all = { after: ranges[0]?.after ?? null, upTo: ranges.at(-1)?.upTo ?? null };
    return this.#parts(table, all).some((part) => this.#presence(table, part).besides !== 'nothing');
  }

  /** The parts of a range. All but the last are nearly always empty, and asked about together. */
  #parts(table: Table, range: Range): Part[] {
    const parts = partsOf(range);
    if (parts.length === 1) return parts;
    const sql = this.#spelt.of(table, 'before', () => anyBeforeLastPart(table));
    return this.#db.get(sql) ? parts : parts.slice(-1);
  }

  #presence(table: Table, choice: Choice): Presence {
    const sql = this.#spelt.of(table, choice.where('k'), () => presenceOf(table, choice));
    return this.#db.get<Presence>(sql, ...threeTimes(choice)) as Presence;
  }

  /** Reads a range part by part, until there is no room for more. */
  #walk<T>(table: Table, range: Range, portion: Portion, read: ReadPart<T>, hasNothingElse = false): Walked<T> {
    const found: T[] = [];
    let [rows, isLarge] = [0, false];
    const parts = this.#parts(table, range);
    for (const part of parts) {
      // Of several parts most are empty, and what would read them is not worth preparing.
      const isKnown = hasNothingElse && parts.length === 1;
      const present: Presence = isKnown ? { rows: 1, besides: 'nothing' } : this.#presence(table, part);
      if (!present.rows && present.besides === 'nothing') continue;
      const one = read(part, present.besides, { ...portion, rows: portion.rows - rows });
      found.push(one.found);
      rows += one.rows;
      isLarge ||= one.isLarge === true;
      const end = one.isFull && one.last ? exactString(one.last) : null;
      if (end !== null) return { found, rows, isLarge, end: end === range.upTo ? null : end };
    }
    return { found, rows, isLarge, end: null };
  }

  /** The ordinary way is tried first; where there is a large row, so many are read as are not too much. */
  #spellPart(table: Table, part: Part, wanted: Asked, portion: Portion): Read<Uint8Array | null> {
    if (wanted.besides === 'nothing') {
      const ordinary = this.#spellRows(table, part, wanted, portion);
      if (ordinary) return ordinary;
    }
    const read = (most: number, rows: number): SpeltPart =>
      this.#db.get<SpeltPart>(
        this.#lines('joined', table, part, { ...wanted, most }),
        ...linesParams(part, wanted.besides, rows),
      ) as SpeltPart;
    const ordinary = read(ORDINARY_ROW_BYTES, portion.rows);
    if (ordinary.lines === ordinary.rows) return { ...ordinary, isFull: ordinary.rows >= portion.rows };
    return { ...read(Infinity, this.#measure(table, part, portion)), isFull: true, isLarge: true };
  }

  /** The same where there is nothing but rows, at two thirds of the cost; undefined where one of them is large. */
  #spellRows(table: Table, part: Part, wanted: Asked, portion: Portion): Read<Uint8Array | null> | undefined {
    const read = (kind: 'plain' | 'rows'): JoinedRows => {
      const sql = this.#lines(kind, table, part, { ...wanted, most: ORDINARY_ROW_BYTES });
      return this.#db.get<JoinedRows>(sql, ...part.params, portion.rows) as JoinedRows;
    };
    const { rows, found } = this.#hope.of(table, wanted.columns, () => read('plain')) ?? read('rows');
    if (!haveLines(found)) return undefined;
    const isFull = rows >= portion.rows;
    return { found, rows, last: isFull ? this.#idOfRow(table, part, rows - 1) : null, isFull };
  }

  /** The id of the row of a part that has so many before it. */
  #idOfRow(table: Table, { open }: Part, before: number): Uint8Array | null {
    const sql = this.#spelt.of(table, `id ${open.where('k')}`, () => idOfRow(table, open));
    return this.#db.get<{ id: Uint8Array }>(sql, ...open.params, before)?.id ?? null;
  }

  #listPart(table: Table, part: Part, wanted: Asked, portion: Portion): Read<Entry[]> {
    const read = (most: number, rows: number): ListedRow[] => this.#rows(table, part, { ...wanted, most }, rows);
    let rows = read(ORDINARY_ROW_BYTES, portion.rows);
    const isOrdinary = rows.every(({ line }) => line !== null);
    if (!isOrdinary) rows = read(Infinity, this.#measure(table, part, portion));
    const isFull = !isOrdinary || rows.length >= portion.rows;
    const last = rows.at(-1)?.id ?? null;
    return { found: rows.map(entryOf), rows: rows.length, last, isFull, isLarge: !isOrdinary };
  }

  /** How many rows of a part are no more than a portion; at least one. */
  #measure(table: Table, part: Part, portion: Portion): number {
    const sizes = `${sizesOf(table, part)} LIMIT CAST(? AS INTEGER)`;
    const params = [...threeTimes(part), portion.rows, atMost(portion)];
    return Math.max(1, Number(this.#db.get(fittingSql(sizes), ...params)?.n));
  }

  /** Of these ids, as far as there is anything of them, in their order. */
  #sizes(table: Table, ids: Id[]): { id: Id; bytes: number }[] {
    const choice = listed(ids);
    const sized = this.#db.all<{ id: Uint8Array; bytes: number }>(
      `SELECT ${idForWire('k')} AS id, bytes FROM (${sizesOf(table, choice)})`,
      ...threeTimes(choice),
    );
    return sized.map(({ id, bytes }) => ({ id: exactString(id), bytes }));
  }

  #lines(kind: keyof typeof OF_LINES, table: Table, choice: Choice, wanted: Omit<Wanted, 'version'>): string {
    const version = this.#o.version(table, 't');
    const { columns, most, besides, floor } = wanted;
    return this.#spelt.of(
      table,
      JSON.stringify([kind, version, columns, most, besides, floor, choice.where('k')]),
      () => OF_LINES[kind](table, choice, { ...wanted, version }),
    );
  }

  #rows(table: Table, choice: Choice, wanted: Omit<Wanted, 'version'>, most: number): ListedRow[] {
    const sql = this.#lines('listed', table, choice, wanted);
    return this.#db.all<ListedRow>(sql, ...linesParams(choice, wanted.besides, most));
  }
}

/** What is asked for of a part. */
type Asked = Pick<Wanted, 'columns' | 'besides' | 'floor'>;

/** Nothing is said of it where nothing was ever collected. */
function floorOf({ floor }: Table): { floor?: number } {
  return floor === undefined || floor === TIMESTAMP_MIN ? {} : { floor };
}
