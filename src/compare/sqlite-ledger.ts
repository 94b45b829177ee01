/** What a node holds: its tables, the rows that a UNIQUE value hides, and its tombstones, read in pieces by id. */
import { RowcastError } from '../errors.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import { isNestedTransaction } from '../sqlite/explained.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { type Body, batchSql, batchText } from '../wire/body.ts';
import { exactString, exactText } from '../wire/exact-text.ts';
import { TIMESTAMP_MIN } from '../wire/protocol.ts';
import { idForWire } from '../wire/values.ts';
import { earlyIn } from './early.ts';
import { Hope } from './hope.ts';
import type { Id, Part, Range } from './ids.ts';
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
import { firstThatFit, fittingAmong, ORDINARY_ROW_BYTES, smaller } from './ledger.ts';
import { SpeltStatements } from './spelt.ts';
import {
  type Besides,
  type Choice,
  changesOf,
  entryOf,
  haveLines,
  idsOf,
  type JoinedRows,
  LISTED,
  type ListedRow,
  linesParams,
  listed,
  OF_LINES,
  type SpeltPart,
  sharedColumns,
  threeTimes,
  type Wanted,
} from './sqlite-lines.ts';
import { namesOf, parkedOf, undeliveredOf } from './sqlite-on-its-way.ts';
import { Places, type Presence } from './sqlite-places.ts';

export interface SqliteLedgerOptions {
  /** The synced tables as they are now, with every version written into its row that can be. */
  tables(): Table[];
  /** The version of a row of `table` under an alias, as SQL. */
  version(table: Table, alias: string): string;
  /** True of one that has one, see `Wanted`: others nobody has captured. */
  versioned(table: Table, alias: string): Wanted['versioned'];
  /** Gives each such row that `ids` selects one. Inside a transaction. */
  record(table: Table, ids: string, ...params: Value[]): void;
  /** Runs transactions in which that may happen. */
  recording<T>(run: () => T): T;
  /**
   * How far the other side is in `_changes`: what is after that is on its way. Undefined where nothing is sent there,
   * -1 where it is being given everything.
   */
  watermark(other: Counterpart | undefined): number | undefined;
  /** As in a sight. */
  nodes(): Nodes;
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
  readonly #places: Places;
  readonly #hope = new Hope();

  constructor(db: Connection, options: SqliteLedgerOptions) {
    this.#db = db;
    this.#o = options;
    this.#places = new Places(db, this.#spelt);
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
          last: this.#places.last(table),
          ...floorOf(table),
        },
      })),
    );
  }

  spell(name: string, columns: Columns, ranges: Range[], each: Portion, portion: Portion, floor?: number): Spelt[] {
    const table = this.#table(name, columns);
    const read =
      (lacking: Id[]): ReadPart<Uint8Array | null> =>
      (part, besides, left) =>
        this.#spellPart(table, part, { columns, besides, floor, lacking }, left);
    const pieces = this.#versioned(table, (lacking) => this.#pieces(table, ranges, each, portion, read(lacking)));
    return pieces.map(({ found, rows, end }) => ({ rows, texts: found.filter((text) => text !== null), end }));
  }

  list(name: string, columns: Columns, ranges: Range[], portion: Portion): Listed[] {
    const table = this.#table(name, columns);
    const read =
      (lacking: Id[]): ReadPart<Entry[]> =>
      (part, besides, left) =>
        this.#listPart(table, part, { columns, besides, lacking }, left);
    const pieces = this.#versioned(table, (lacking) => this.#pieces(table, ranges, portion, portion, read(lacking)));
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
    return this.#versioned(table, (lacking) => {
      const rest = new Set(firstThatFit(this.#places.sizes(table, ids.slice(0, portion.rows)), portion).rest);
      for (const id of ids.slice(portion.rows)) rest.add(id);
      const some = rest.size === 0 ? ids : ids.filter((id) => !rest.has(id));
      const choice = listed(some);
      const all = { columns, most: Infinity, besides: this.#places.presence(table, choice).besides };
      const rows = this.#rows(table, choice, all, some.length);
      if (rows.some(hasNoLine)) this.#noteLacking(table, choice, some.length, lacking);
      const watermark = this.#o.watermark(other);
      const { self, heard, awaited } = this.#o.nodes();
      return {
        entries: rows.map(entryOf),
        undelivered: undeliveredOf(this.#db, table, some, watermark),
        parked: parkedOf(this.#db, table, some),
        early: earlyIn(this.#db, namesOf(table), some),
        rest: [...rest],
        nodes: { self, heard: watermark === undefined ? [self, ...heard] : heard, awaited },
        ...floorOf(table),
      };
    });
  }

  changes(name: string, ids: Id[], batchId: number, portion: Portion): Parcel {
    const table = this.#table(name);
    const { fitting, rest } = this.#reading(() =>
      fittingAmong(ids, portion, (some) => this.#places.sizes(table, some)),
    );
    const choice = listed(fitting);
    // A write makes it a commit that is flushed, and with it every commit before it. Never send what could be lost.
    const read = (): { body: Body | null; n: number } | undefined => {
      this.#noteFlush();
      this.#o.record(table, LISTED, ...choice.params);
      return this.#db.get<{ body: Body | null; n: number }>(
        `SELECT ${batchSql('CAST(? AS INTEGER)')} AS body, count(*) AS n ` +
          `FROM (${changesOf(table, choice, this.#o.version(table, 't'))})`,
        batchId,
        ...threeTimes(choice),
      );
    };
    const found = this.#o.recording(() => this.#db.transaction(read, { durable: true }));
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

  /**
   * Reads, and where it has come upon rows without a version, gives them one and reads again. What nobody has captured since
   * is nothing to wait for: it is below everything until the next time.
   */
  #versioned<T>(table: Table, read: (lacking: Id[]) => T): T {
    const lacking: Id[] = [];
    const found = this.#reading(() => read(lacking));
    if (lacking.length === 0) return found;
    this.#o.recording(() => this.#db.transaction(() => this.#o.record(table, LISTED, JSON.stringify(lacking))));
    // With it the versions are written into the rows.
    this.#o.tables();
    return this.#reading(() => read([]));
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
    return this.#places.parts(table, all).some((part) => this.#places.presence(table, part).besides !== 'nothing');
  }

  /** Reads a range part by part, until there is no room for more. */
  #walk<T>(table: Table, range: Range, portion: Portion, read: ReadPart<T>, hasNothingElse = false): Walked<T> {
    const found: T[] = [];
    let [rows, isLarge] = [0, false];
    const parts = this.#places.parts(table, range);
    for (const part of parts) {
      // Of several parts most are empty, and what would read them is not worth preparing.
      const isKnown = hasNothingElse && parts.length === 1;
      const present: Presence = isKnown ? { rows: 1, besides: 'nothing' } : this.#places.presence(table, part);
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
    this.#noteLacking(table, part, portion.rows, wanted.lacking);
    return { ...read(Infinity, this.#places.measure(table, part, portion)), isFull: true, isLarge: true };
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
    return { found, rows, last: isFull ? this.#places.idOfRow(table, part, rows - 1) : null, isFull };
  }

  #listPart(table: Table, part: Part, wanted: Asked, portion: Portion): Read<Entry[]> {
    const read = (most: number, rows: number): ListedRow[] => this.#rows(table, part, { ...wanted, most }, rows);
    let rows = read(ORDINARY_ROW_BYTES, portion.rows);
    const isOrdinary = !rows.some(hasNoLine);
    if (!isOrdinary) this.#noteLacking(table, part, portion.rows, wanted.lacking);
    if (!isOrdinary) rows = read(Infinity, this.#places.measure(table, part, portion));
    const isFull = !isOrdinary || rows.length >= portion.rows;
    const last = rows.at(-1)?.id ?? null;
    return { found: rows.map(entryOf), rows: rows.length, last, isFull, isLarge: !isOrdinary };
  }

  #noteLacking(table: Table, choice: Choice, rows: number, lacking: Id[]): void {
    lacking.push(...this.#places.lacking(table, choice, rows, this.#o.versioned(table, 't').is));
  }

  #lines(kind: keyof typeof OF_LINES, table: Table, choice: Choice, wanted: Spell): string {
    const [version, versioned] = [this.#o.version(table, 't'), this.#o.versioned(table, 't')];
    const { columns, most, besides, floor } = wanted;
    return this.#spelt.of(
      table,
      JSON.stringify([kind, version, columns, most, besides, floor, choice.where('k')]),
      () => OF_LINES[kind](table, choice, { ...wanted, version, versioned }),
    );
  }

  #rows(table: Table, choice: Choice, wanted: Spell, most: number): ListedRow[] {
    const sql = this.#lines('listed', table, choice, wanted);
    return this.#db.all<ListedRow>(sql, ...linesParams(choice, wanted.besides, most));
  }
}

type Spell = Omit<Wanted, 'version' | 'versioned'>;

/** What is asked for of a part; the ids of rows that have no version are noted in `lacking`. */
type Asked = Pick<Wanted, 'columns' | 'besides' | 'floor'> & { lacking: Id[] };

function hasNoLine({ deleted, line }: ListedRow): boolean {
  return deleted === 0 && line === null;
}

/** Nothing is said of it where nothing was ever collected. */
function floorOf({ floor }: Table): { floor?: number } {
  return floor === undefined || floor === TIMESTAMP_MIN ? {} : { floor };
}
