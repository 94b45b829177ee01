/**
 * `_feed`: what has changed, a line for what was committed together. `seq` counts rows, not lines. `mark` is drawn by chance
 * for each line: a position names both, so that a line which a power cut or a backup has taken back, and which another one
 * has taken the place of, is not mistaken for that.
 *
 * It is a property of the file: whoever is attached writes to it where it is there, so nothing is missing in it because
 * another process has received a batch.
 */
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';

/** What was committed together: the rows as a JSON array of [op, table, id]. */
export interface Line {
  local: boolean;
  sender: string | undefined;
  rows: string;
  count: number;
}

export interface StoredLine {
  seq: number;
  mark: string;
  local: number | null;
  sender: string | null;
  rows: string;
}

const COLUMNS = '(seq INTEGER PRIMARY KEY, mark TEXT, local INTEGER, sender TEXT, rows TEXT)';

export class FeedTable {
  readonly #db: Connection;
  readonly #random: () => number;

  constructor(db: Connection, random: () => number) {
    this.#db = db;
    this.#random = random;
  }

  /** Throws where the application has something else by that name. */
  exists(): boolean {
    const found = this.#db.all<{ type: string; sql: string }>(
      "SELECT type, sql FROM main.sqlite_schema WHERE name = '_feed' COLLATE NOCASE",
    );
    return found.some(
      ({ type, sql }) => type === 'table' && normalised(sql) === normalised(`CREATE TABLE _feed ${COLUMNS}`),
    );
  }

  /** Begins with the changes after `upTo`. In a transaction. */
  create(upTo: number, keep: number): void {
    if (this.#db.get("SELECT 1 AS n FROM main.sqlite_schema WHERE name = '_feed' COLLATE NOCASE")) {
      throw new RowcastError(
        'INVALID_DATABASE',
        'the database has something else named "_feed", which the feed needs',
        {
          hint: 'rename it, or attach without the option "feed"; nothing was changed',
        },
      );
    }
    this.#db.exec(`CREATE TABLE main._feed ${COLUMNS}`);
    this.keep(keep);
    this.seen(upTo);
    this.begin();
  }

  drop(): void {
    this.#db.exec('DROP TABLE main._feed');
    this.forget();
  }

  /** There is none: what it has not seen is kept for nobody. */
  forget(): void {
    this.#db.run("DELETE FROM main._meta WHERE key IN ('feed_keep', 'feed_upto', 'feed_shape')");
  }

  /** Nobody can read on from before here: rows may have changed that are not in it. In a transaction. */
  begin(): void {
    const last = this.last();
    this.#db.run('DELETE FROM main._feed');
    this.#insert(last + 1, { local: true, sender: undefined, rows: '[]', count: 0 }, true);
  }

  append(line: Line): void {
    const last = this.last() + line.count;
    this.#insert(last, line, false);
    const keep = Number(this.#meta('feed_keep') ?? 1);
    this.#db.run('DELETE FROM main._feed WHERE seq < CAST(? AS INTEGER)', last - keep);
  }

  last(): number {
    return Number(this.#db.get('SELECT max(seq) AS n FROM main._feed')?.n ?? 0);
  }

  at(seq: number): StoredLine | undefined {
    return this.#db.get<StoredLine>(`${LINES} WHERE seq = CAST(? AS INTEGER)`, seq);
  }

  after(seq: number, lines: number): StoredLine[] {
    return this.#db.all<StoredLine>(`${LINES} WHERE seq > CAST(? AS INTEGER) ORDER BY seq LIMIT ${lines}`, seq);
  }

  keep(keep: number): void {
    this.#note('feed_keep', keep);
  }

  /** The changes of `_changes` up to this one are in the feed. */
  seen(upTo: number): void {
    this.#note('feed_upto', upTo);
  }

  get upTo(): number {
    return Number(this.#meta('feed_upto') ?? 0);
  }

  /** The tables and columns that it is about. True where they are others than before: rows are not as they were read. */
  isReshaped(shape: string): boolean {
    if (this.#meta('feed_shape') === shape) return false;
    this.#note('feed_shape', shape);
    return true;
  }

  #insert(seq: number, { local, sender, rows }: Line, isBeginning: boolean): void {
    const mark = Math.floor(this.#random() * 2 ** 32)
      .toString(16)
      .padStart(8, '0');
    this.#db.run(
      'INSERT INTO main._feed (seq, mark, local, sender, rows) VALUES (CAST(? AS INTEGER), ?, CAST(? AS INTEGER), ?, ?)',
      seq,
      mark,
      isBeginning ? null : Number(local),
      sender ?? null,
      rows,
    );
  }

  #meta(key: string): unknown {
    return this.#db.get('SELECT value FROM main._meta WHERE key = ?', key)?.value;
  }

  #note(key: string, value: number | string): void {
    this.#db.run(
      `INSERT INTO main._meta (key, value) VALUES (?, ${typeof value === 'number' ? 'CAST(? AS INTEGER)' : '?'}) ` +
        'ON CONFLICT DO UPDATE SET value = excluded.value',
      key,
      value,
    );
  }
}

const LINES = 'SELECT seq, mark, local, sender, rows FROM main._feed';

function normalised(sql: string): string {
  return sql.replace(/\s+|"/g, '');
}
