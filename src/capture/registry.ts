/** The synced tables as they are now: installs the triggers, notices schema changes, takes everything away again. */

import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { type Features, featuresOf, requireUtf8, requireVersion } from '../sqlite/features.ts';
import { isCode } from '../sqlite/result-codes.ts';
import { describeTable, OTHERS_TRIGGER, type Table, TRIGGER_PREFIX } from '../sqlite/schema.ts';
import { conjunction, fold, literal, quote } from '../sqlite/sql.ts';
import { TIMESTAMP_MAX } from '../wire/protocol.ts';
import { installInternalTables } from './internal-tables.ts';
import { type Trigger, triggersFor } from './triggers.ts';

export interface RegistryOptions {
  tables: string[];
  warn(code: string, message: string): void;
  /** Called after the triggers were brought up to date with a changed schema. */
  onRefresh(): void;
  features?: Features;
}

export class Registry {
  readonly features: Features;
  readonly #db: Connection;
  readonly #options: RegistryOptions;
  #tables = new Map<string, Table>();
  #schemaVersion = -1;
  /** Does any table of the database have a foreign key? */
  hasForeignKeys = true;
  /** Changes up to here were captured by triggers that knew every column. */
  #verifiedUpTo = 0;

  constructor(db: Connection, options: RegistryOptions) {
    requireVersion(db);
    requireUtf8(db);
    this.#db = db;
    this.#options = options;
    this.features = options.features ?? featuresOf(db);
  }

  get(name: string): Table | undefined {
    return this.#tables.get(fold(name));
  }

  list(): Table[] {
    return [...this.#tables.values()];
  }

  /**
   * No order of batches can make a row impossible. With a second UNIQUE constraint one can: a row that takes over a value
   * would come before the deletion that sets it free.
   */
  get takesAnyOrder(): boolean {
    return this.list().every(({ uniques }) => uniques.length === 0);
  }

  /**
   * Creates or updates everything in one transaction; running it again changes nothing. Returns the names of the tables
   * that were not captured before.
   */
  install(): string[] {
    const warned = new Set<string>();
    const warnings: [string, string][] = [];
    let fresh: Table[] = [];
    try {
      this.#db.transaction(() => {
        let tables = this.#describe();
        const dropped = tables.filter((table) => dropForeignCapture(this.#db, table, warnings));
        // A description counts the triggers of others; those are no longer there.
        if (dropped.length > 0) tables = this.#describe();
        installInternalTables(
          this.#db,
          tables.map((table) => table.name),
        );
        fresh = this.#installTriggers(tables);
        // Where nobody has touched the schema since it was last looked at, there is nothing to find, and a backlog of a
        // million changes to look through.
        const untouched = this.#verifiedSchema() === this.#currentVersion();
        for (const table of tables) {
          if (fresh.includes(table)) stampInvalid(this.#db, table);
          else if (!untouched) recapture(this.#db, table, 0);
        }
        this.#tables = new Map(tables.map((table) => [fold(table.name), table]));
        this.#markVerified();
      });
    } catch (error) {
      if (isCode(error, 'READONLY')) {
        throw new RowcastError('INVALID_DATABASE', 'the database is read-only', {
          hint: 'open it for writing: changes are captured in tables of their own',
          cause: error,
        });
      }
      if (isCode(error, 'NOTADB')) {
        throw new RowcastError('INVALID_DATABASE', 'the file is not a SQLite database', { cause: error });
      }
      throw error;
    }
    for (const table of this.list()) for (const text of table.warnings) warnings.push(['schema', text]);
    for (const [code, message] of warnings) {
      if (!warned.has(message)) this.#options.warn(code, message);
      warned.add(message);
    }
    return fresh.map((table) => table.name);
  }

  /**
   * Notices a schema change made by anyone, by SQLite's own counter, and brings the triggers up to date. Called before
   * changes are read for shipping and before a batch is applied, so no change leaves that lacks a column unnoticed.
   */
  refresh(): void {
    if (this.isCurrent()) return;
    const since = this.#verifiedUpTo;
    const before = this.#tables;
    // Everything inside the transaction, the version too: another process may change the schema at any moment.
    this.#db.transaction(() => {
      const tables = this.#describe((error) =>
        this.#options.warn('table-lost', `${error.message}; its changes are dead letters until it is back`),
      );
      this.#installTriggers(tables);
      for (const table of tables) recapture(this.#db, table, since);
      this.#tables = new Map(tables.map((table) => [fold(table.name), table]));
      this.#markVerified();
    });
    const changed = this.list().some((table) => hasNewColumn(before.get(fold(table.name)), table));
    if (changed) this.#options.onRefresh();
  }

  /** Is the schema still the one that the triggers were made for? */
  isCurrent(): boolean {
    return this.#currentVersion() === this.#schemaVersion;
  }

  /** The configured tables as they are; one that was named twice, in two spellings, is one table. */
  #describe(onLost?: (error: RowcastError) => void): Table[] {
    const tables = new Map<string, Table>();
    for (const name of this.#options.tables) {
      try {
        const table = describeTable(this.#db, name);
        tables.set(fold(table.name), table);
      } catch (error) {
        if (!onLost || !(error instanceof RowcastError)) throw error;
        onLost(error);
      }
    }
    return [...tables.values()];
  }

  /** Remembers how far the triggers are known to have been complete. */
  markRead(changeId: number): void {
    this.#verifiedUpTo = Math.max(this.#verifiedUpTo, changeId);
  }

  /** True while every trigger is there with the text it should have, and capture is not gated off for good. */
  intact(): boolean {
    const flag = this.#db.get("SELECT value FROM _meta WHERE key = 'syncing'")?.value;
    return (
      this.#options.tables.every((name) => this.get(name)) &&
      sameTriggers(this.list().flatMap(triggersFor), this.#ownTriggers()) &&
      flag !== 1
    );
  }

  uninstall(): void {
    this.#db.transaction(() => {
      for (const { name } of this.#ownTriggers()) this.#db.exec(`DROP TRIGGER ${quote(name)}`);
    });
  }

  /** Returns the tables that had no triggers of ours before. */
  #installTriggers(tables: Table[]): Table[] {
    const there = this.#ownTriggers();
    const isOn = (table: Table) => (trigger: { tbl_name: string }) => fold(trigger.tbl_name) === fold(table.name);
    for (const trigger of there) {
      if (tables.some((table) => isOn(table)(trigger))) continue;
      this.#db.exec(`DROP TRIGGER ${quote(trigger.name)}`);
      this.#options.warn(
        'table-dropped',
        `table "${trigger.tbl_name}" is not in the list any more and no longer captured`,
      );
    }
    for (const table of tables) {
      const wanted = triggersFor(table);
      const installed = there.filter(isOn(table));
      // All or none: they fire in the order of their creation.
      if (sameTriggers(wanted, installed)) continue;
      for (const { name } of installed) this.#db.exec(`DROP TRIGGER ${quote(name)}`);
      for (const { sql } of wanted) this.#db.exec(sql);
    }
    const fresh = tables.filter((table) => !there.some(isOn(table)));
    return fresh;
  }

  #ownTriggers(): { name: string; sql: string; tbl_name: string }[] {
    return this.#db.all(
      `SELECT name, sql, tbl_name FROM sqlite_schema WHERE type = 'trigger' AND substr(name, 1, ${TRIGGER_PREFIX.length}) = ${literal(TRIGGER_PREFIX)}`,
    );
  }

  #currentVersion(): number {
    return Number(this.#db.get('PRAGMA main.schema_version')?.schema_version);
  }

  /** The schema that this or an earlier process has last made triggers for; kept, because the backlog is as well. */
  #verifiedSchema(): number | undefined {
    const value = this.#db.get("SELECT value FROM _meta WHERE key = 'verified_schema'")?.value;
    return value == null ? undefined : Number(value);
  }

  #markVerified(): void {
    this.#schemaVersion = this.#currentVersion();
    if (this.#verifiedSchema() !== this.#schemaVersion) {
      this.#db.exec(
        `INSERT INTO _meta (key, value) VALUES ('verified_schema', ${this.#schemaVersion}) ON CONFLICT DO UPDATE SET value = excluded.value`,
      );
    }
    this.hasForeignKeys =
      this.#db.get(
        "SELECT 1 AS n FROM sqlite_schema AS m, pragma_foreign_key_list(m.name) WHERE m.type = 'table' LIMIT 1",
      ) !== undefined;
    this.#verifiedUpTo = Number(this.#db.get('SELECT coalesce(max(change_id), 0) AS n FROM _changes')?.n);
  }
}

/**
 * Rows written between a schema change and the moment it was noticed were captured by triggers that did not know of it.
 * Two things can be amiss with them: the change lacks a column, or a trigger that the application has added moved the row
 * below the version that was recorded. Such rows are written once more, above what was recorded, by the present triggers.
 */
function recapture(db: Connection, table: Table, since: number): void {
  const t = quote(table.updatedAt);
  const complete = table.columns
    .filter((column) => !/["\\]/.test(column.name))
    .map((column) => `json_type(row_data, ${literal(`$."${column.name}"`)}) IS NOT NULL`);
  // `complete` is that of the newest change of a row: beside max(), SQLite takes bare columns from the row that has it.
  db.run(
    `UPDATE ${quote(table.name)} SET ${t} = c.version + 1 FROM (SELECT row_id, max(row_data ->> ${literal(`$."${table.updatedAt}"`)}) AS version, ` +
      `${conjunction(complete)} AS complete FROM _changes WHERE change_id > ? AND table_name = ${literal(table.name)} ` +
      "AND op <> 'DELETE' AND json_valid(row_data) GROUP BY row_id) AS c " +
      `WHERE ${quote(table.name)}.${quote(table.id)} = c.row_id AND c.version < ${TIMESTAMP_MAX} ` +
      `AND (NOT c.complete OR (${quote(table.name)}.${t} >= c.version) IS NOT 1)`,
    since,
  );
}

/** Rows from before the first attach may have no usable time; without one they have no version. */
function stampInvalid(db: Connection, table: Table): void {
  const t = quote(table.updatedAt);
  db.exec(
    `UPDATE ${quote(table.name)} SET ${t} = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) ` +
      `WHERE typeof(${t}) <> 'integer' OR ${t} NOT BETWEEN -${TIMESTAMP_MAX} AND ${TIMESTAMP_MAX}`,
  );
}

/**
 * Another implementation's capture triggers would record every write twice, or fail on a `_changes` that is now ours. True
 * where there were any.
 */
function dropForeignCapture(db: Connection, table: Table, warnings: [string, string][]): boolean {
  const triggers = db.all<{ name: string; sql: string }>(
    `SELECT name, sql FROM sqlite_schema WHERE ${OTHERS_TRIGGER} AND tbl_name = ? COLLATE NOCASE`,
    table.name,
  );
  const foreign = triggers.filter(({ sql }) => /\binto\s+["`[]?_changes\b/i.test(sql));
  for (const { name } of foreign) {
    db.exec(`DROP TRIGGER ${quote(name)}`);
    warnings.push(['foreign-trigger', `trigger "${name}" also wrote to _changes and was replaced by Rowcast's own`]);
  }
  return foreign.length > 0;
}

function sameTriggers(wanted: Trigger[], there: Trigger[]): boolean {
  const texts = new Map(there.map(({ name, sql }) => [name, sql]));
  return wanted.length === there.length && wanted.every(({ name, sql }) => texts.get(name) === sql);
}

function hasNewColumn(before: Table | undefined, now: Table): boolean {
  if (!before) return true;
  const known = new Set(before.columns.map((column) => fold(column.name)));
  return now.columns.some((column) => !known.has(fold(column.name)));
}
