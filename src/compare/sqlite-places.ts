/** Where the rows of a table are, and how many: what is looked up before any of them is spelt. */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { exactString } from '../wire/exact-text.ts';
import { idForWire } from '../wire/values.ts';
import { compareIds, EVERYTHING, type Id, type Part, partsOf, type Range } from './ids.ts';
import { atMost, fittingSql, type Portion } from './ledger.ts';
import type { SpeltStatements } from './spelt.ts';
import {
  anyBeforeLastPart,
  type Besides,
  type Choice,
  idOfRow,
  lackingOf,
  listed,
  presenceOf,
  sizesOf,
  sourcesOf,
  threeTimes,
} from './sqlite-lines.ts';

/** What there is of a choice at all. */
export interface Presence {
  rows: number;
  besides: Besides;
}

export class Places {
  readonly #db: Connection;
  readonly #spelt: SpeltStatements;

  constructor(db: Connection, spelt: SpeltStatements) {
    this.#db = db;
    this.#spelt = spelt;
  }

  /** The greatest id of a table. */
  last(table: Table): Id | null {
    for (const part of this.parts(table, EVERYTHING).reverse()) {
      const { besides } = this.presence(table, part);
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

  /** The parts of a range. All but the last are nearly always empty, and asked about together. */
  parts(table: Table, range: Range): Part[] {
    const parts = partsOf(range);
    if (parts.length === 1) return parts;
    const sql = this.#spelt.of(table, 'before', () => anyBeforeLastPart(table));
    return this.#db.get(sql) ? parts : parts.slice(-1);
  }

  /** What there is of a choice at all. */
  presence(table: Table, choice: Choice): Presence {
    const sql = this.#spelt.of(table, choice.where('k'), () => presenceOf(table, choice));
    return this.#db.get<Presence>(sql, ...threeTimes(choice)) as Presence;
  }

  /** The id of the row of a part that has so many before it. */
  idOfRow(table: Table, { open }: Part, before: number): Uint8Array | null {
    const sql = this.#spelt.of(table, `id ${open.where('k')}`, () => idOfRow(table, open));
    return this.#db.get<{ id: Uint8Array }>(sql, ...open.params, before)?.id ?? null;
  }

  /** Of rows that have no line, because they are large or have no version: those that have none. */
  lacking(table: Table, choice: Choice, rows: number, versioned: string): Id[] {
    const found = this.#db.all<{ id: Uint8Array }>(lackingOf(table, choice, versioned), ...choice.params, rows);
    return found.map(({ id }) => exactString(id));
  }

  /** How many rows of a part are no more than a portion; at least one. */
  measure(table: Table, part: Part, portion: Portion): number {
    const sizes = `${sizesOf(table, part)} LIMIT CAST(? AS INTEGER)`;
    const params = [...threeTimes(part), portion.rows, atMost(portion)];
    return Math.max(1, Number(this.#db.get(fittingSql(sizes), ...params)?.n));
  }

  /** Of these ids, as far as there is anything of them, in their order. */
  sizes(table: Table, ids: Id[]): { id: Id; bytes: number }[] {
    const choice = listed(ids);
    const sized = this.#db.all<{ id: Uint8Array; bytes: number }>(
      `SELECT ${idForWire('k')} AS id, bytes FROM (${sizesOf(table, choice)})`,
      ...threeTimes(choice),
    );
    return sized.map(({ id, bytes }) => ({ id: exactString(id), bytes }));
  }
}
