/**
 * Collecting tombstones: the floor is raised first, then what is at or below it goes, a slice at a time.
 *
 * A tombstone goes if it was written on a day before that of the horizon, and its version lies before that day, too. The
 * second keeps a deletion that is dated in the future from raising the floor above everything that is yet to be written.
 */
import { daysSince, raiseFloor } from '../capture/floors.ts';
import type { Registry } from '../capture/registry.ts';
import { settleReplaced } from '../capture/replaced.ts';
import type { DeadLetters } from '../letters/dead-letters.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { exactString } from '../wire/exact-text.ts';
import { BOUND_ID, idForWire, storedId } from '../wire/values.ts';

export const DAY_MS = 86_400_000;

/** Tombstones that one step looks at: a few milliseconds. */
export const SLICE = 5_000;

export interface Parts {
  db: Connection;
  registry: Registry;
  letters: DeadLetters;
}

/** One walk over the tombstones of all tables, for one day. Everything it remembers may be forgotten: it can begin again. */
export class Collection {
  readonly #parts: Parts;
  readonly #day: number;
  readonly #slice: number;
  readonly #measured = new Map<string, number>();
  /** How many it has removed. */
  removed = 0;
  #phase: 'measure' | 'remove' | 'done' = 'measure';
  /** The tables that are still to be walked in this phase, by name. */
  #ahead: string[];
  /** The last id of it that was looked at, as it travels. */
  #after: string | null = null;

  /** Of tombstones from before the day that `before` is in. */
  constructor(parts: Parts, before: number, slice = SLICE) {
    this.#parts = parts;
    this.#day = Math.floor(before / DAY_MS);
    this.#slice = slice;
    this.#ahead = this.#tables();
  }

  get isDone(): boolean {
    return this.#phase === 'done';
  }

  /** One slice. Where it throws, the same is due again. */
  step(): void {
    const { registry } = this.#parts;
    const table = this.#ahead[0] === undefined ? undefined : registry.get(this.#ahead[0]);
    if (this.#ahead.length === 0) this.#nextPhase();
    // It is not synced any more: what it has stays.
    else if (!table) this.#nextTable();
    else if (this.#phase === 'measure') this.#measure(table);
    else this.#remove(table);
  }

  #nextPhase(): void {
    if (this.#phase === 'measure' && this.#measured.size > 0) {
      this.#raise();
      this.#phase = 'remove';
      this.#ahead = [...this.#measured.keys()];
    } else this.#phase = 'done';
  }

  /** How high the floor must be: nothing that is yet to be deleted can be older than today. */
  #measure(table: Table): void {
    const { db } = this.#parts;
    const found = db.get<{ n: number; last: Uint8Array | null; highest: number | null }>(
      `SELECT count(*) AS n, ${idForWire('max(row_id)')} AS last, ` +
        `max(iif(${COLLECTABLE}, version, NULL)) AS highest FROM (${this.#nextIds('row_id, version, day')})`,
      ...this.#due(),
      ...this.#place(table),
    );
    const highest = found?.highest ?? null;
    const known = this.#measured.get(fold(table.name));
    if (highest !== null) this.#measured.set(fold(table.name), Math.max(highest, known ?? highest));
    this.#goOn(found);
  }

  /** One transaction for all tables: the triggers, which have the floor in their text, are made anew once. */
  #raise(): void {
    const { db, registry } = this.#parts;
    const higher = [...this.#measured].filter(([name, floor]) => floor > (registry.get(name)?.floor ?? floor));
    if (higher.length === 0) return;
    registry.remake(() => {
      for (const [name, floor] of higher) raiseFloor(db, name, floor);
    });
  }

  #remove(table: Table): void {
    const { db, registry } = this.#parts;
    registry.refresh();
    const found = db.transaction(() => {
      // Somebody has changed the schema in between: the table may not be what it was, and the same slice is due again.
      const floor = registry.isCurrent() ? registry.get(table.name)?.floor : undefined;
      if (floor === undefined) return undefined;
      settleReplaced(db, registry.list());
      if (this.#after === null) this.#settleLetters(table, floor);
      const slice = db.get<Slice>(
        `SELECT count(*) AS n, ${idForWire('max(row_id)')} AS last FROM (${this.#nextIds('row_id')})`,
        ...this.#place(table),
      );
      const among = `SELECT row_id FROM (${this.#nextIds('row_id, version, day')})`;
      db.run(
        `DELETE FROM main._tombstones WHERE table_name = ? AND row_id IN (${among} ` +
          `WHERE ${COLLECTABLE} AND version <= ?) ` +
          // A hidden row that it deletes has to go first.
          'AND NOT EXISTS (SELECT 1 FROM main._hidden AS h ' +
          'WHERE h.table_name = _tombstones.table_name AND h.row_id = _tombstones.row_id)',
        table.name,
        ...this.#place(table),
        ...this.#due(),
        floor,
      );
      return { slice, removed: db.changes() };
    });
    if (!found) return;
    this.removed += found.removed;
    this.#goOn(found.slice);
  }

  /**
   * A value of a column that is not here yet waits as a letter, and is never filled in when its row was deleted since.
   * Only the tombstone says so: such letters go with it.
   */
  #settleLetters(table: Table, floor: number): void {
    const { db, letters } = this.#parts;
    const time = "(SELECT e.atom FROM json_each(d.row_data) AS e WHERE lower(e.key) = 'updated_at')";
    const outlived = db.all<{ id: number }>(
      'SELECT i.dead_id AS id FROM main._dead_letter_info AS i JOIN main._dead_letter AS d USING (dead_id) ' +
        `JOIN main._tombstones AS g ON g.table_name = ? AND g.row_id = ${storedId('d.row_id')} ` +
        "WHERE i.code = 'unknown-column' AND i.direction = 'in' AND i.table_name = ? COLLATE NOCASE " +
        `AND g.version <= ? AND g.version >= ${time}`,
      table.name,
      table.name,
      floor,
    );
    for (const { id } of outlived) letters.remove(id);
  }

  #goOn(found: Slice | undefined): void {
    if (!found || found.last === null || found.n < this.#slice) this.#nextTable();
    else this.#after = exactString(found.last);
  }

  #nextTable(): void {
    this.#ahead.shift();
    this.#after = null;
  }

  /** The next slice of a table, in the order of its ids. */
  #nextIds(columns: string): string {
    const after = this.#after === null ? '' : `AND row_id > ${BOUND_ID} `;
    return `SELECT ${columns} FROM main._tombstones WHERE table_name = ? ${after}ORDER BY row_id LIMIT ${this.#slice}`;
  }

  #place(table: Table): Value[] {
    return this.#after === null ? [table.name] : [table.name, this.#after];
  }

  /** What COLLECTABLE binds. One without a day is as old as the days themselves. */
  #due(): Value[] {
    return [daysSince(this.#parts.db) ?? Number.MAX_SAFE_INTEGER, this.#day, this.#day * DAY_MS];
  }

  #tables(): string[] {
    const tables = this.#parts.registry.list().filter(({ floor }) => floor !== undefined);
    return tables.map(({ name }) => fold(name));
  }
}

interface Slice {
  n: number;
  last: Uint8Array | null;
}

const COLLECTABLE = '(coalesce(day, ?) < ? AND version < ?)';
