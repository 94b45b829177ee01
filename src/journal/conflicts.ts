/** What a person does with the journal: look at what was lost, bring it back, or let it go. */
import type { Clock } from '../clock.ts';
import { checkOptions, messageOf, named, RowcastError, suggest } from '../errors.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import { isMachineFault } from '../sqlite/result-codes.ts';
import { type Column, orAbort, type Table } from '../sqlite/schema.ts';
import { fold, quote } from '../sqlite/sql.ts';
import { exactJson, exactString } from '../wire/exact-text.ts';
import { BOUND_ID, decode, idForWire } from '../wire/values.ts';
import { type Row, rowAt } from './rows.ts';

/** A version that was replaced by one which had not seen it. */
export interface Conflict {
  conflictId: number;
  /** When it was replaced here, in milliseconds. */
  at: number;
  table: string;
  /** Of the row, as it travels. */
  id: string;
  lostVersion: number;
  /** `self` where the version that lost was written here; null where that is not known. */
  lostBy: 'self' | null;
  wonVersion: number;
  /** The node that made the change which won, where known. */
  wonBy: string | null;
  /** The version that it had seen. */
  base: number;
}

export interface ConflictDetail extends Conflict {
  /** The row that lost, with values as they travel; null: a deletion did. */
  lost: Row | null;
  /** The row as it stands now; null where there is none. */
  current: Row | null;
  /** The columns in which they differ, without the id and the time. */
  columns: string[];
}

export interface ConflictPage {
  table?: string | undefined;
  id?: string | undefined;
  /** Those with a greater number. */
  after?: number | undefined;
  /** Default 100. */
  limit?: number | undefined;
}

export interface Conflicts {
  /** The oldest first. */
  list(page?: ConflictPage): Conflict[];
  get(conflictId: number): ConflictDetail;
  /**
   * Writes the values that lost, or some of them, as an ordinary write: it gets a new version, and goes to all peers. Where
   * a deletion lost, the row is deleted. Returns the columns that were written. The conflict stays listed.
   */
  restore(conflictId: number, options?: { columns?: string[] }): { columns: string[] };
  dismiss(conflictId: number): void;
}

export type TableOf = (name: string) => Table | undefined;

export class JournalConflicts implements Conflicts {
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #tableOf: TableOf;
  readonly #tables: () => string[];
  readonly #onWrite: () => void;

  constructor(db: Connection, around: { clock: Clock; tableOf: TableOf; tables: () => string[]; onWrite: () => void }) {
    this.#db = db;
    this.#clock = around.clock;
    this.#tableOf = around.tableOf;
    this.#tables = around.tables;
    this.#onWrite = around.onWrite;
  }

  list(page: ConflictPage = {}): Conflict[] {
    return conflictsAsked(this.#db, this.#tables, page);
  }

  get(conflictId: number): ConflictDetail {
    return conflictDetail(this.#db, this.#tableOf, conflictId);
  }

  restore(conflictId: number, options: { columns?: string[] } = {}): { columns: string[] } {
    checkOptions('conflicts.restore()', options, ['columns']);
    const { detail, json } = storedConflict(this.#db, this.#tableOf, conflictId);
    const { table, id, lost, current, columns: differing } = detail;
    const wanted = options.columns;
    const target = this.#tableOf(table);
    if (!target) throw wrong(`table "${table}" is not synced any more: conflict ${conflictId} cannot be restored`);
    const columns = wanted === undefined ? differing : this.#checked(target, wanted, lost);
    if (lost === null) {
      if (wanted !== undefined)
        throw wrong(`conflict ${conflictId} is of a deletion: it has no columns to choose from`);
      if (current !== null) this.#refuseHidden(target, id);
      this.#write(conflictId, target, `DELETE FROM ${target.target} WHERE ${quote(target.id)} = ${BOUND_ID}`, id);
      return { columns: [] };
    }
    if (current === null && wanted !== undefined) {
      throw wrong(`the row of conflict ${conflictId} is not there any more: restore all of it, without "columns"`);
    }
    if (columns.length === 0) return { columns };
    const keys = keysOf(target, lost);
    const parts = columns.map((name) => ({ name, value: valueSql(keys.get(fold(name)) as string) }));
    if (current === null) {
      const names = [target.id, target.updatedAt, ...columns].map(quote).join(', ');
      const values = [BOUND_ID, 'CAST(? AS INTEGER)', ...parts.map(({ value }) => value)].join(', ');
      const sql = `INSERT${orAbort(target)} INTO ${target.target} (${names}) VALUES (${values})`;
      this.#write(conflictId, target, sql, id, this.#clock.now(), ...parts.map(() => json));
    } else {
      this.#refuseHidden(target, id);
      const set = parts.map(({ name, value }) => `${quote(name)} = ${value}`).join(', ');
      const sql = `UPDATE${orAbort(target)} ${target.target} SET ${set} WHERE ${quote(target.id)} = ${BOUND_ID}`;
      this.#write(conflictId, target, sql, ...parts.map(() => json), id);
    }
    return { columns };
  }

  dismiss(conflictId: number): void {
    const dismiss = (): number => {
      this.#db.run('DELETE FROM main._conflicts WHERE conflict_id = ?', checkedNumber(conflictId));
      return this.#db.changes();
    };
    const gone = this.#db.patiently(() => this.#db.transaction(dismiss));
    if (gone === 0) throw noSuch(conflictId);
  }

  #write(conflictId: number, { ignores }: Table, sql: string, ...params: Value[]): void {
    try {
      const write = (): void => {
        this.#db.run(sql, ...params);
        if (ignores && this.#db.changes() === 0) throw new Error(NOTHING_WRITTEN);
      };
      this.#db.patiently(() => this.#db.transaction(write));
    } catch (error) {
      if (error instanceof RowcastError || isMachineFault(error)) throw error;
      const message = `conflict ${conflictId} cannot be restored, the table refuses it: ${messageOf(error)}`;
      throw new RowcastError('INVALID_OPTION', message, { cause: error });
    }
    this.#onWrite();
  }

  #checked(table: Table, wanted: unknown, lost: Row | null): string[] {
    if (!Array.isArray(wanted) || wanted.length === 0 || !wanted.every((name) => typeof name === 'string')) {
      throw wrong('"columns" must be an array of names of columns, and not an empty one');
    }
    const keys = keysOf(table, lost ?? {});
    for (const name of wanted) {
      const isKey = fold(name) === fold(table.id) || fold(name) === fold(table.updatedAt);
      if (isKey) throw wrong(`column "${name}" cannot be restored: it says which row and which version it is`);
      if (!keys.has(fold(name))) throw wrong(`the row that lost has no column "${name}" of table "${table.name}"`);
    }
    return [...new Set(wanted as string[])];
  }

  #refuseHidden(table: Table, id: string): void {
    const live = this.#db.get(`SELECT 1 AS n FROM ${table.target} WHERE ${quote(table.id)} = ${BOUND_ID}`, id);
    if (live) return;
    throw new RowcastError('ROW_HIDDEN', 'another row with the same UNIQUE value hides this one', {
      hint: 'change or delete one of the two rows first',
    });
  }
}

const NOTHING_WRITTEN = 'the row is not there, or a trigger of yours ends the write without an error, by RAISE(IGNORE)';

/** A table that is not synced any more may have some; one that never was is a mistake. */
export function conflictsAsked(db: Connection, tables: () => string[], page: ConflictPage): Conflict[] {
  const found = listConflicts(db, page);
  const { table } = page;
  if (found.length > 0 || table === undefined) return found;
  const known = tables();
  const isKnown = known.some((name) => fold(name) === fold(table)) || listConflicts(db, { table, limit: 1 }).length > 0;
  if (!isKnown) throw notSynced(table, known);
  return found;
}

export function notSynced(table: string, known: string[]): RowcastError {
  const message = `table ${JSON.stringify(table)} is not synced${suggest(table, known)}`;
  return new RowcastError('INVALID_TABLE', message, { hint: `the tables are ${known.join(', ')}` });
}

export function listConflicts(db: Connection, page: ConflictPage): Conflict[] {
  checkOptions('conflicts.list()', page, ['table', 'id', 'after', 'limit']);
  const { table, id, after = 0, limit = 100 } = page;
  for (const [name, value] of Object.entries({ table, id })) {
    if (value !== undefined && typeof value !== 'string') throw wrong(`"${name}" must be text, not ${named(value)}`);
  }
  if (!Number.isSafeInteger(limit) || limit < 0) throw wrong('"limit" must be a whole number');
  const where = ['conflict_id > ?'];
  const params: Value[] = [checkedNumber(after, '"after"')];
  if (table !== undefined) where.push('table_name = ? COLLATE NOCASE');
  if (table !== undefined) params.push(table);
  if (id !== undefined) where.push(`row_id = ${BOUND_ID}`);
  if (id !== undefined) params.push(id);
  const sql = `SELECT ${LISTED} FROM main._conflicts WHERE ${where.join(' AND ')} ORDER BY conflict_id LIMIT ?`;
  return db.all<Stored>(sql, ...params, limit).map(listed);
}

export function conflictDetail(db: Connection, tableOf: TableOf, conflictId: number): ConflictDetail {
  return storedConflict(db, tableOf, conflictId).detail;
}

/** `json` is the row that lost, as it is written: in JavaScript 1.0 would become 1, and another type. */
function storedConflict(
  db: Connection,
  tableOf: TableOf,
  conflictId: number,
): { detail: ConflictDetail; json: string | null } {
  const found = db.get<Stored & { lost: Uint8Array | null }>(
    `SELECT ${LISTED}, CAST(lost_row AS BLOB) AS lost FROM main._conflicts WHERE conflict_id = ?`,
    checkedNumber(conflictId),
  );
  if (!found) throw noSuch(conflictId);
  const { lost: bytes, ...stored } = found;
  const conflict = listed(stored);
  const table = tableOf(conflict.table);
  const json = bytes === null ? null : exactJson(bytes);
  const lost = json === null ? null : (JSON.parse(json) as Row);
  const current = table ? rowAt(db, table, conflict.id) : null;
  const columns = lost && table ? differing(table, lost, current) : [];
  return { detail: { ...conflict, lost, current, columns }, json };
}

/** The columns of the table in which the two rows differ. A column that has come since says nothing of the row that lost. */
function differing(table: Table, lost: Row, current: Row | null): string[] {
  const keys = keysOf(table, lost);
  const isOther = ({ name, wireName }: Column): boolean => {
    const key = keys.get(fold(name));
    if (key === undefined || name === table.id || name === table.updatedAt) return false;
    return current === null || JSON.stringify(lost[key]) !== JSON.stringify(current[wireName]);
  };
  return table.columns.filter(isOther).map(({ name }) => name);
}

/** Under which key the row has each column: by its present name, or by one that it had before. */
function keysOf(table: Table, row: Row): Map<string, string> {
  const keys = new Map<string, string>();
  for (const key of Object.keys(row)) {
    const name = fold(key);
    const column =
      table.columns.find((one) => one.wireName === key || fold(one.name) === name) ?? table.aliases.get(name);
    if (column && !keys.has(fold(column.name))) keys.set(fold(column.name), key);
  }
  return keys;
}

/** One value of a row that is bound as JSON. */
function valueSql(key: string): string {
  const atom = `(SELECT e.atom AS v FROM json_each(?) AS e WHERE e.key = ${quoteText(key)} LIMIT -1)`;
  return `(SELECT ${decode('v')} FROM ${atom})`;
}

function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

type Stored = Omit<Conflict, 'id'> & { id: Uint8Array };

const LISTED =
  `conflict_id AS conflictId, at, table_name AS "table", ${idForWire('row_id')} AS id, lost_version AS lostVersion, ` +
  'lost_by AS lostBy, won_version AS wonVersion, won_by AS wonBy, base';

function listed({ conflictId, at, table, id, ...rest }: Stored): Conflict {
  return { conflictId, at, table, id: exactString(id), ...rest };
}

function checkedNumber(value: unknown, what = 'the number of a conflict'): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw wrong(`${what} must be a whole number, not ${named(value)}`);
}

function noSuch(conflictId: number): RowcastError {
  return new RowcastError('NO_SUCH_CONFLICT', `there is no conflict ${conflictId} in the journal`, {
    hint: 'it was dismissed, or made room for later ones',
  });
}

function wrong(message: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message);
}
