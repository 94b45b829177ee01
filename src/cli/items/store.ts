/** The items table. Every item leaves as JSON text that SQLite has printed: 64-bit integers come out as they went in. */
import type { Clock } from '../../clock.ts';
import { Connection, type Database } from '../../sqlite/connection.ts';
import { readAtOnce } from '../../sqlite/look.ts';
import { OpenFile } from '../../sqlite/open-file.ts';
import { at, type NewItem, Refused } from './input.ts';
import { uuidv7 } from './uuid.ts';

export const ITEMS_TABLE = 'items';
export const LIST_MAX = 100;
/** Rows that peers have sent may be as large as a batch: a hundred of those would be more than a process has. */
export const LIST_BYTES_MAX = 4 * 1024 * 1024;

export const ITEM_COLUMNS = ['id', 'name', 'value', 'created_at', 'updated_at'];
/** A column that other implementations' items have: the node on which an item was created. */
const NODE_COLUMN = 'node_id';
const TABLE =
  'CREATE TABLE IF NOT EXISTS items ' +
  '(id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER)';
/** The list reads its end backwards: its first hundred, however many rows there are. */
const INDEX = 'CREATE INDEX IF NOT EXISTS items_latest ON items (created_at, id)';

/** Another program's rows may hold anything in these columns; json_object refuses BLOBs alone. */
const ITEM = `json_object(${ITEM_COLUMNS.map(
  (name) => `'${name}', iif(typeof(${name}) = 'blob', '$blob:' || hex(${name}), ${name})`,
).join(', ')})`;

/** One at a time: whether the next still has room is known when the one before is read. */
export const LATEST = `SELECT ${ITEM} AS item FROM items ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ?`;

/** Creates the table where there is none of that name. */
export function createItems(db: Database): void {
  db.exec(TABLE);
}

/** True where the table called items has every column that the routes need. */
export function hasItemColumns(db: Database): boolean {
  const names = columnsOf(new Connection(db));
  return ITEM_COLUMNS.every((name) => names.has(name));
}

function columnsOf(db: Connection): Set<string> {
  const found = db.all<{ name: string }>(`SELECT lower(name) AS name FROM pragma_table_info('${ITEMS_TABLE}')`);
  return new Set(found.map(({ name }) => name));
}

export function indexItems(db: Database): void {
  db.exec(INDEX);
}

export class ItemStore {
  /** Shared with whoever reads input: SQLite reads the integers of a body. */
  readonly connection: Connection;
  readonly #file: OpenFile;
  readonly #nodeId: string;
  readonly #clock: Clock;
  readonly #newId: () => string;
  readonly #released = new AbortController();

  constructor(db: Database, nodeId: string, clock: Clock) {
    this.#nodeId = nodeId;
    this.connection = new Connection(db);
    this.#file = new OpenFile(this.connection);
    this.#clock = clock;
    this.#newId = uuidv7(clock);
    this.connection.yieldBy({ clock, stopped: this.#released.signal });
  }

  create(item: NewItem): string {
    this.#file.refuseIfMoved();
    return this.connection.transaction(() => this.#insert(item, this.#clock.now(), this.#newColumns()));
  }

  /** All or none. */
  createAll(items: NewItem[]): string[] {
    this.#file.refuseIfMoved();
    return this.connection.transaction(() => {
      const now = this.#clock.now();
      const columns = this.#newColumns();
      return items.map((item, index) => at(index, () => this.#insert(item, now, columns)));
    });
  }

  /** As many as there is room for, and at least one. */
  latest(): string[] {
    return readAtOnce(this.connection, () => {
      const items: string[] = [];
      for (let bytes = 0; items.length < LIST_MAX; ) {
        const item = this.connection.get<{ item: string }>(LATEST, items.length)?.item;
        if (item === undefined) break;
        bytes += Buffer.byteLength(item);
        if (bytes > LIST_BYTES_MAX && items.length > 0) break;
        items.push(item);
      }
      return items;
    });
  }

  get(id: string): string | undefined {
    const known = this.#find(id);
    return known === undefined ? undefined : this.#read(known);
  }

  update(id: string, fields: Partial<NewItem>): string | undefined {
    const known = this.#find(id);
    if (known === undefined) return undefined;
    this.#file.refuseIfMoved();
    // Above the version that it answers to, whatever the clock says: the row is told to the client as it will be everywhere.
    const assignments = ['updated_at = max(CAST(? AS INTEGER), updated_at + 1)'];
    const params: (string | null)[] = [String(this.#clock.now())];
    if (fields.name !== undefined) {
      assignments.push('name = ?');
      params.push(fields.name);
    }
    if (fields.value !== undefined) {
      assignments.push('value = CAST(? AS INTEGER)');
      params.push(fields.value);
    }
    const sql = `UPDATE items SET ${assignments.join(', ')} WHERE id = ?`;
    this.connection.transaction(() => this.connection.run(sql, ...params, known));
    return this.#read(known);
  }

  /** The id that is gone, or undefined where there was none. */
  delete(id: string): string | undefined {
    this.#file.refuseIfMoved();
    const known = this.#find(id);
    if (known === undefined) return undefined;
    this.connection.transaction(() => this.connection.run('DELETE FROM items WHERE id = ?', known));
    return known;
  }

  /** Lets go of its statements, so that the database can be closed. */
  release(): void {
    this.#released.abort();
    this.connection.release();
  }

  /** The columns of a new item; looked up, because a migration may add one at any time. */
  #newColumns(): string[] {
    return columnsOf(this.connection).has(NODE_COLUMN) ? [...ITEM_COLUMNS, NODE_COLUMN] : ITEM_COLUMNS;
  }

  #insert(item: NewItem, now: number, columns: string[]): string {
    const id = item.id ?? this.#newId();
    if (item.id !== undefined && this.#exists(id)) throw new Refused(`id ${id} exists already`);
    const values = [id, item.name, item.value, String(now), String(this.#above(id, now)), this.#nodeId];
    const places = ['?', '?', 'CAST(? AS INTEGER)', 'CAST(? AS INTEGER)', 'CAST(? AS INTEGER)', '?'];
    this.connection.run(
      `INSERT INTO items (${columns.join(', ')}) VALUES (${places.slice(0, columns.length).join(', ')})`,
      ...values.slice(0, columns.length),
    );
    return this.#read(id);
  }

  /** An id that was deleted before begins again above its deletion. */
  #above(id: string, now: number): number {
    const dead = this.connection.get<{ version: number }>(
      `SELECT version FROM main._tombstones WHERE table_name = '${ITEMS_TABLE}' AND row_id = ?`,
      id,
    );
    return Math.max(now, (dead?.version ?? now - 1) + 1);
  }

  #read(id: string): string {
    return this.connection.get<{ item: string }>(`SELECT ${ITEM} AS item FROM items WHERE id = ?`, id)?.item as string;
  }

  /** Ids are kept in lower case when they come through these routes, and as they are when they come from a peer. */
  #find(id: string): string | undefined {
    return [id, id.toLowerCase()].find((text) => this.#exists(text));
  }

  #exists(id: string): boolean {
    return this.connection.get('SELECT 1 AS there FROM items WHERE id = ?', id) !== undefined;
  }
}
