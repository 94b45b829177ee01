/**
 * UNIQUE constraints beside the primary key, in a cluster where everybody writes: two nodes may give one value to two rows.
 *
 * The rule: of two rows that share a UNIQUE value, the one with the greater (updated_at, id) is the stronger. A row is
 * visible exactly if no visible row that is stronger shares a value with it; otherwise it is hidden. Strength is a total
 * order, so for any set of rows there is one such choice and only one, whatever arrived first and on whichever node.
 *
 * A hidden row is kept whole in `_hidden`, with its version, and takes part in everything as if it were in its table: a
 * newer version replaces it, a deletion makes a tombstone of it, an older version is stale, a new peer is sent it. The
 * application never meets it. It is listed among the dead letters with the code `unique` until it comes back or goes.
 *
 * To change a row that clashes, it is taken out of its table, its new version is put among the hidden, and the table is
 * settled: from the strongest on, each hidden row that beats all its rivals comes in and they go out. Every step makes
 * the visible rows stronger, so it ends. Nothing of this is captured: every node comes to the same by itself. Only while a
 * peer is given everything is a row that comes back told to all: see announce.ts.
 */
import { dayOf } from '../capture/floors.ts';
import type { RowcastEvents } from '../events.ts';
import type { DeadLetters } from '../letters/dead-letters.ts';
import { type Connection, TransactionLost, type Value } from '../sqlite/connection.ts';
import { isMachineFault } from '../sqlite/result-codes.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import { exactJson, exactString } from '../wire/exact-text.ts';
import { toldJson } from '../wire/told-json.ts';
import { BOUND_ID, idForWire } from '../wire/values.ts';
import { announceVisible } from './announce.ts';
import { deleteRow } from './kept-out.ts';
import { Mirror } from './mirror.ts';
import { columnFor } from './plan.ts';
import { type Hidden, StrongestFirst } from './strongest-first.ts';

/** What has become of a change to a row that is hidden, or has to be. */
export interface Outcome {
  /** The row, wherever it is now, is as the change says. */
  placed: boolean;
  /** It was so before. */
  was?: boolean;
}

export class UniqueRows {
  readonly #db: Connection;
  readonly #letters: DeadLetters;
  readonly #mirrors = new WeakMap<Table, Mirror>();
  #cameBack: RowcastEvents['visible']['rows'] = [];

  constructor(db: Connection, letters: DeadLetters) {
    this.#db = db;
    this.#letters = letters;
  }

  /**
   * Makes the mirrors, before any transaction: where one is made in the same, SQLite reads the whole schema anew after every
   * savepoint that is rolled back, which is 9 ms for each row that another keeps out, and a thousand of them may come at once.
   */
  prepare(tables: Table[]): void {
    for (const table of tables) {
      if (table.uniques.length === 0 || this.#mirrors.has(table)) continue;
      try {
        this.#mirror(table);
      } catch {
        // It is made when it is needed, and what is wrong is said then, to whoever needs it.
      }
    }
  }

  /** Is any row of the table hidden? Without one, nothing here has to be asked. */
  hasHidden(table: Table): boolean {
    return this.#db.get('SELECT 1 AS n FROM main._hidden WHERE table_name = ? LIMIT 1', table.name) !== undefined;
  }

  /**
   * Merges one change into a row that is hidden, or that its table refuses. `write` applies the change to the given table
   * by the ordinary statement and says whether the change is what stands there then. Undefined where no other row is in
   * the way: then the table has another reason to refuse it. Inside the apply transaction; `settle` must follow.
   */
  merge(table: Table, id: string, updatedAt: Value, write: (target: Table) => boolean): Outcome | undefined {
    const mirror = this.#mirror(table);
    const before = this.#hidden(table, id);
    if (this.#isEntombed(table, id, updatedAt)) return { placed: false };
    if (!before) mirror.loadVisible(id);
    // As the table is now it would not take the hidden row. A newer one is merged with nothing, then.
    else if (!this.#load(mirror, before) && before.version >= Number(updatedAt)) return { placed: false };
    const present = mirror.row()?.row;
    const placed = write(mirror.table);
    const now = mirror.row();
    if (now === undefined || now.row === present) return { placed, was: placed };
    if (!before && mirror.rivals().length === 0) return undefined;
    deleteRow(this.#db, table, id);
    this.#hide(table, now);
    return { placed };
  }

  /** A deletion without a version takes a hidden row as it is. `wire` is its id as it travels. */
  entomb(table: Table, wire: string): void {
    const day = dayOf(table);
    this.#db.run(
      `INSERT INTO main._tombstones (table_name, row_id, version${day.column}) ` +
        `SELECT table_name, row_id, version${day.value} FROM main._hidden ` +
        `WHERE table_name = ? AND row_id = ${BOUND_ID} ` +
        `ON CONFLICT DO UPDATE SET version = max(version, excluded.version)${day.update}`,
      table.name,
      wire,
    );
  }

  /** The rows that have come back since this was last asked. What is kept of their columns can be filled in now. */
  takeCameBack(): RowcastEvents['visible']['rows'] {
    const rows = this.#cameBack;
    this.#cameBack = [];
    return rows;
  }

  /** Would settling change anything? Without a transaction, so that an idle tick writes nothing. */
  isUnsettled(table: Table): boolean {
    return (
      this.hasHidden(table) && (this.#outdated(table).length > 0 || this.#unsettled(table, 'SELECT NULL').length > 0)
    );
  }

  /**
   * Brings the visible rows of a table in line with the rule, after a batch or a local write has touched it, and returns
   * the letters of the rows that are hidden from now on. `touched` selects the ids that a batch has changed: one of them may
   * have lost a value without a new time, where the content has decided between two of one time.
   */
  settle(table: Table, touched = 'SELECT NULL'): RowcastEvents['dead-letter'][] {
    if (!this.hasHidden(table)) return [];
    this.#dropOutdated(table);
    const mirror = this.#mirror(table);
    // Strongest first. What is added on the way is weaker than the row that it was added for.
    const queue = new StrongestFirst(this.#unsettled(table, touched));
    for (let next = queue.take(); next; next = queue.take()) {
      const rivals = this.#load(mirror, next) ? mirror.rivals() : undefined;
      const stronger = rivals?.find(({ weaker }) => weaker !== 1);
      if (!rivals) this.#noteBlocker(table, next.id, undefined);
      else if (stronger) this.#noteBlocker(table, next.id, stronger);
      else queue.add(this.#letIn(table, mirror, next, rivals));
    }
    return this.#writeLetters(table);
  }

  /** The row comes in, its rivals go out. Returns what has to be looked at again: they, and the rows that they had hidden. */
  #letIn(table: Table, mirror: Mirror, row: Hidden, rivals: { id: string }[]): Hidden[] {
    try {
      return this.#db.savepoint(() => {
        const again = rivals.flatMap(({ id }) => [...this.#takeOut(table, id), ...this.#hiddenBy(table, id)]);
        mirror.insert();
        this.#keepUnknown(table, row.id);
        // One that has no letter was put aside for this batch alone, to see which of two stands.
        if (this.#forget(table, row.id)) this.#comesBack(table, row.id);
        return again.filter(({ id }) => id !== row.id);
      });
    } catch (error) {
      if (error instanceof TransactionLost || isMachineFault(error)) throw error;
      // Another constraint keeps it out, one that the table has got since. It stays where it is.
      this.#noteBlocker(table, row.id, undefined);
      return [];
    }
  }

  #comesBack(table: Table, id: string): void {
    this.#cameBack.push({ table: table.name, id });
    announceVisible(this.#db, table, id);
  }

  /**
   * False where the table has got a constraint since that the row does not meet: it stays hidden, and listed, until it is
   * written anew, deleted, or the table is changed again.
   */
  #load(mirror: Mirror, { row }: Hidden): boolean {
    try {
      this.#db.savepoint(() => mirror.load(row));
      return true;
    } catch (error) {
      if (error instanceof TransactionLost || isMachineFault(error)) throw error;
      mirror.clear();
      return false;
    }
  }

  /** A column that was renamed or dropped while the row was hidden: its value is kept as that of any unknown column is. */
  #keepUnknown(table: Table, id: string): void {
    const where = `FROM main._hidden AS h WHERE h.table_name = ? AND h.row_id = ${BOUND_ID}`;
    const keys = this.#db.all<{ key: string }>(
      `SELECT e.key AS key FROM (SELECT h.row_data AS r ${where}) AS h, json_each(h.r) AS e WHERE e.atom IS NOT NULL`,
      table.name,
      id,
    );
    const isMissed = (key: string): boolean => !columnFor(table, key) && !table.dropped.has(fold(key));
    const columns = keys.map(({ key }) => key).filter(isMissed);
    if (columns.length === 0) return;
    const names = columns.map((key) => JSON.stringify(key)).join(', ');
    const source = `SELECT 0 AS idx, 'UPDATE' AS op, ? AS row_id, h.row_data AS "row" ${where}`;
    this.#letters.unknownColumns.keep(source, [id, table.name, id], {
      table: table.name,
      columns,
      reason: `table "${table.name}" has no column ${names} any more; the row was hidden when it went`,
      from: undefined,
    });
  }

  #takeOut(table: Table, id: string): Hidden[] {
    const where = `WHERE t.${quote(table.id)} = ${BOUND_ID}`;
    const found = this.#db.get<{ version: number; bytes: Uint8Array }>(
      `SELECT t.${quote(table.updatedAt)} AS version, CAST(${toldJson(table, 't')} AS BLOB) AS bytes ` +
        `FROM ${table.target} AS t ${where}`,
      id,
    );
    if (!found) return [];
    const row = { id, version: found.version, row: exactJson(found.bytes) };
    deleteRow(this.#db, table, id);
    this.#hide(table, row);
    return [row];
  }

  #hide(table: Table, { id, version, row }: Hidden): void {
    this.#db.run(
      `INSERT INTO main._hidden (table_name, row_id, version, row_data) VALUES (?, ${BOUND_ID}, CAST(? AS INTEGER), ?) ` +
        'ON CONFLICT DO UPDATE SET version = excluded.version, row_data = excluded.row_data, blocked_by = NULL',
      table.name,
      id,
      version,
      row,
    );
    this.#relist(table, id, { row });
  }

  /** True where a letter listed it. */
  #forget(table: Table, id: string): boolean {
    const letter = this.#letterOf(table, id);
    if (letter !== undefined) this.#letters.remove(letter);
    this.#db.run(`DELETE FROM main._hidden WHERE table_name = ? AND row_id = ${BOUND_ID}`, table.name, id);
    return letter !== undefined;
  }

  /** One that is listed already is listed as it is from now on. */
  #relist(table: Table, id: string, now: { row?: string; reason?: string }): void {
    const letter = this.#letterOf(table, id);
    if (letter !== undefined) this.#letters.relistHidden(letter, now);
  }

  #letterOf(table: Table, id: string): number | undefined {
    const sql = `SELECT dead_id FROM main._hidden WHERE table_name = ? AND row_id = ${BOUND_ID}`;
    return this.#db.get<{ dead_id: number | null }>(sql, table.name, id)?.dead_id ?? undefined;
  }

  /** A row that the application has written again since it was hidden is newer in its table; one that was deleted is gone. */
  #dropOutdated(table: Table): void {
    for (const { id } of this.#outdated(table)) this.#forget(table, id);
  }

  #outdated(table: Table): { id: string }[] {
    const found = this.#db.all<{ id: Uint8Array }>(
      `SELECT ${idForWire('h.row_id')} AS id FROM main._hidden AS h WHERE h.table_name = ${literal(table.name)} AND (` +
        `EXISTS (SELECT 1 FROM ${table.target} AS t WHERE t.${quote(table.id)} = h.row_id) OR ` +
        `EXISTS (SELECT 1 FROM main._tombstones AS g WHERE g.table_name = h.table_name AND g.row_id = h.row_id ` +
        'AND g.version >= h.version))',
    );
    return found.map(({ id }) => ({ id: exactString(id) }));
  }

  /** Those that may come in: the row that was seen to hide them is not there any more as it was. */
  #unsettled(table: Table, touched: string): Hidden[] {
    return this.#hiddenRows(
      `h.table_name = ${literal(table.name)} AND (h.blocked_by IN (${touched}) OR NOT EXISTS ` +
        `(SELECT 1 FROM ${table.target} AS t ` +
        `WHERE t.${quote(table.id)} = h.blocked_by AND t.${quote(table.updatedAt)} = h.blocked_version))`,
    );
  }

  #hiddenBy(table: Table, id: string): Hidden[] {
    return this.#hiddenRows(`h.table_name = ? AND h.blocked_by = ${BOUND_ID}`, table.name, id);
  }

  #noteBlocker(table: Table, id: string, blocker: { id: string; version: number } | undefined): void {
    this.#db.run(
      `UPDATE main._hidden SET blocked_by = ${BOUND_ID}, blocked_version = CAST(? AS INTEGER) ` +
        `WHERE table_name = ? AND row_id = ${BOUND_ID}`,
      blocker?.id ?? null,
      blocker?.version ?? null,
      table.name,
      id,
    );
    this.#relist(table, id, { reason: hiddenReason(table, blocker?.id ?? null) });
  }

  #hidden(table: Table, id: string): Hidden | undefined {
    return this.#hiddenRows(`h.table_name = ? AND h.row_id = ${BOUND_ID}`, table.name, id)[0];
  }

  #hiddenRows(where: string, ...params: Value[]): Hidden[] {
    const found = this.#db.all<{ id: Uint8Array; version: number; row: string }>(
      `SELECT ${idForWire('h.row_id')} AS id, h.version AS version, h.row_data AS "row" ` +
        `FROM main._hidden AS h WHERE ${where}`,
      ...params,
    );
    return found.map((row) => ({ ...row, id: exactString(row.id) }));
  }

  #isEntombed(table: Table, id: string, updatedAt: Value): boolean {
    const found = this.#db.get(
      `SELECT 1 AS n FROM main._tombstones WHERE table_name = ? AND row_id = ${BOUND_ID} AND version >= ?`,
      table.name,
      id,
      updatedAt,
    );
    return found !== undefined;
  }

  /** A row that is hidden and has no letter yet was visible until now, or has just come. */
  #writeLetters(table: Table): RowcastEvents['dead-letter'][] {
    const fresh = this.#db.all<{ bytes: Uint8Array; row: string; blocker: Uint8Array | null }>(
      `SELECT ${idForWire('row_id')} AS bytes, row_data AS "row", ${idForWire('blocked_by')} AS blocker ` +
        'FROM main._hidden WHERE table_name = ? AND dead_id IS NULL',
      table.name,
    );
    return fresh.map(({ bytes, row, blocker }) => {
      const id = exactString(bytes);
      const reason = hiddenReason(table, blocker && exactString(blocker));
      const letter = this.#letters.keepHidden({ table: table.name, rowId: id, row }, reason);
      this.#db.run(
        `UPDATE main._hidden SET dead_id = CAST(? AS INTEGER) WHERE table_name = ? AND row_id = ${BOUND_ID}`,
        letter,
        table.name,
        id,
      );
      const rows = [{ op: 'UPDATE' as const, table: table.name, id }];
      return { direction: 'in' as const, peer: undefined, code: 'unique' as const, reason, rows };
    });
  }

  #mirror(table: Table): Mirror {
    const known = this.#mirrors.get(table);
    if (known?.stands()) return known;
    const made = new Mirror(this.#db, table);
    this.#mirrors.set(table, made);
    return made;
  }
}

function hiddenReason(table: Table, blocker: string | null): string {
  const columns = table.uniques
    .map(({ columns: parts }) => parts.map(({ name, expression }) => expression?.trim() ?? name).join(', '))
    .join(' or ');
  const rival = blocker === null ? 'another row' : `the row ${JSON.stringify(blocker)}`;
  return `hidden: ${rival} has the same ${columns} and is the stronger; change one of the two`;
}
