/** The feed as it is read: from a position on, in pages. */

import type { Registry } from '../capture/registry.ts';
import { endOfMany } from '../clock.ts';
import { named, RowcastError, suggest } from '../errors.ts';
import type { RowRef } from '../events.ts';
import type { Connection } from '../sqlite/connection.ts';
import { readAtOnce } from '../sqlite/look.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold, quote } from '../sqlite/sql.ts';
import { exactJson } from '../wire/exact-text.ts';
import { rowJson } from '../wire/row-json.ts';
import { BOUND_ID } from '../wire/values.ts';
import type { FeedTable, StoredLine } from './feed-table.ts';
import type { Feed, FeedEntry, FeedPage, FeedReadOptions, FeedRow } from './page.ts';

/** A page ends with the line that makes it reach so many rows. */
const ROWS_MAX = 1_000;
const LINES_MAX = 200;

export class FeedReader implements Feed {
  readonly #db: Connection;
  readonly #table: FeedTable;
  readonly #registry: Registry;
  readonly #waiting = new Set<() => void>();
  readonly #stopping = endOfMany();

  constructor(db: Connection, table: FeedTable, registry: Registry) {
    this.#db = db;
    this.#table = table;
    this.#registry = registry;
  }

  get stopped(): AbortSignal {
    return this.#stopping.signal;
  }

  read(since: string | undefined, options: FeedReadOptions = {}): FeedPage {
    this.#refuseIfOpen();
    if (since !== undefined && typeof since !== 'string') {
      throw new RowcastError('INVALID_OPTION', `a position is a text, not ${named(since)}`, {
        hint: 'read() and position() give it; without one, read() says where to begin',
      });
    }
    const tables = this.#tables(options.tables);
    return readAtOnce(this.#db, () => this.#page(since, tables, options.row === true));
  }

  position(): string {
    this.#refuseIfOpen();
    return readAtOnce(this.#db, () => this.#now());
  }

  async changed(position: string, signal: AbortSignal): Promise<void> {
    const isOver = (): boolean => signal.aborted || this.stopped.aborted;
    while (!isOver() && this.#isLatest(position)) await this.#woken(signal);
  }

  /** There is something new, or there may be. */
  wake(): void {
    for (const wake of [...this.#waiting]) wake();
  }

  stop(): void {
    this.#stopping.abort();
    this.wake();
  }

  #woken(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiting.delete(done);
        signal.removeEventListener('abort', done);
        resolve();
      };
      this.#waiting.add(done);
      signal.addEventListener('abort', done, { once: true });
    });
  }

  #isLatest(position: string): boolean {
    const line = this.#table.at(this.#table.last());
    return line === undefined || this.#positionOf(line) === position;
  }

  #page(since: string | undefined, tables: Set<string> | undefined, withRows: boolean): FeedPage {
    const line = since === undefined ? undefined : this.#lineAt(since);
    if (!line) return { reset: true, entries: [], position: this.#now(), more: false };
    const lines: StoredLine[] = [];
    let rows = 0;
    for (const next of this.#table.after(line.seq, LINES_MAX)) {
      if (rows >= ROWS_MAX) break;
      rows += next.seq - (lines.at(-1)?.seq ?? line.seq);
      lines.push(next);
    }
    const last = lines.at(-1) ?? line;
    return {
      reset: false,
      entries: lines.flatMap((one) => this.#entry(one, tables, withRows)),
      position: this.#positionOf(last),
      more: last.seq < this.#table.last(),
    };
  }

  /** The line that a position names, if it is still that: a beginning is no place to read on from across. */
  #lineAt(position: string): StoredLine | undefined {
    const [inc, seq, mark] = position.split(':');
    if (inc !== this.#inc() || !/^\d{1,15}$/.test(seq ?? '')) return undefined;
    const line = this.#table.at(Number(seq));
    return line?.mark === mark ? line : undefined;
  }

  #entry(line: StoredLine, tables: Set<string> | undefined, withRows: boolean): FeedEntry[] {
    const list = JSON.parse(line.rows) as [RowRef['op'], string, string][];
    const rows: FeedRow[] = [];
    for (const [op, name, id] of list) {
      const table = this.#registry.get(name);
      if (tables && !tables.has(table?.name ?? name)) continue;
      const row = { op, table: table?.name ?? name, id };
      rows.push(withRows ? { ...row, row: table ? this.#row(table, id) : null } : row);
    }
    if (rows.length === 0) return [];
    const from = line.sender === null ? {} : { from: line.sender };
    return [{ position: this.#positionOf(line), local: line.local === 1, ...from, rows }];
  }

  #row(table: Table, id: string): Record<string, unknown> | null {
    // By the names that the columns have here, whatever they travel as.
    const columns = table.columns.map((column) => ({ ...column, wireName: column.name }));
    const found = this.#db.get<{ bytes: Uint8Array }>(
      `SELECT CAST(${rowJson({ ...table, columns }, 't')} AS BLOB) AS bytes FROM ${table.target} AS t ` +
        `WHERE t.${quote(table.id)} = ${BOUND_ID}`,
      id,
    );
    return found ? JSON.parse(exactJson(found.bytes)) : null;
  }

  #tables(names: string[] | undefined): Set<string> | undefined {
    if (names === undefined) return undefined;
    const known = this.#registry.list().map(({ name }) => name);
    return new Set(
      names.map((given) => {
        const found = known.find((name) => fold(name) === fold(given));
        if (found !== undefined) return found;
        const hint = `the tables are ${known.join(', ')}`;
        throw new RowcastError('INVALID_OPTION', `${JSON.stringify(given)} is not synced${suggest(given, known)}`, {
          hint,
        });
      }),
    );
  }

  #now(): string {
    const line = this.#table.at(this.#table.last());
    if (!line) throw new RowcastError('DATABASE_FAILED', 'the feed is gone');
    return this.#positionOf(line);
  }

  #positionOf({ seq, mark }: StoredLine): string {
    return `${this.#inc()}:${seq}:${mark}`;
  }

  /** The identity of the database: it has another one once it is known to be a copy, or an earlier state of itself. */
  #inc(): string {
    return String(this.#db.get('SELECT inc FROM main._nodes WHERE self = 1')?.inc ?? '');
  }

  /** Inside a transaction of the application's, rows would be shown that may never be committed. */
  #refuseIfOpen(): void {
    if (this.#stopping.signal.aborted) throw new RowcastError('STOPPED', 'this manager was stopped');
    if (this.#db.isInTransaction !== true) return;
    throw new RowcastError('IN_TRANSACTION', 'the application has a transaction open on this connection');
  }
}
