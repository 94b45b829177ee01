/**
 * A machine's disk: one real SQLite database in memory, which outlives the processes that open it.
 *
 * Databases are used again from one schedule to the next, emptied, with their statements still prepared: parsing the
 * triggers would otherwise take most of the time. A schedule can ask for a fresh one.
 */
import { createRequire } from 'node:module';
import { attach } from '../../src/index.ts';
import type { Database } from '../../src/sqlite/connection.ts';
import { addsColumn, columnOn, hasOldColumn, type Migration, newColumnSql, OLD_COLUMN, tableOn } from './migration.ts';
import { isSameSchema, takeOver } from './take-over.ts';

export interface RawStatement {
  run(...params: unknown[]): unknown;
  get(...params: unknown[]): unknown;
  all(...params: unknown[]): unknown[];
}

/** What better-sqlite3 and bun:sqlite have in common. */
export interface Raw {
  exec(sql: string): unknown;
  prepare(sql: string): RawStatement;
  transaction: Database['transaction'];
  serialize(): Uint8Array;
  close(): void;
  readonly inTransaction: boolean;
}

export type DiskKind = 'node' | 'node-foreign-keys' | 'node-uniques' | 'hub';

export type TableName = 'items' | 'notes' | 'people';

const COLUMNS: Record<TableName, string> = {
  items: 'id TEXT PRIMARY KEY, name TEXT, value INTEGER, score REAL, anything, updated_at INTEGER',
  notes: 'id TEXT PRIMARY KEY, item_id TEXT, body TEXT, updated_at INTEGER',
  people: 'id TEXT PRIMARY KEY, email TEXT COLLATE NOCASE UNIQUE, nick TEXT, gone INTEGER, updated_at INTEGER',
};

const REFERENCE = 'REFERENCES items (id) ON DELETE CASCADE';

/** What has to be made anew when the table is. */
const INDEXES: Partial<Record<TableName, string>> = {
  people: 'CREATE UNIQUE INDEX people_nick ON people (nick) WHERE gone IS NULL',
};

/** Those that are synced. */
export function tablesOf(kind: DiskKind): TableName[] {
  return kind === 'node-uniques' ? ['items', 'notes', 'people'] : ['items', 'notes'];
}

function columnsOf(kind: DiskKind, table: TableName): string {
  return kind === 'node-foreign-keys' ? COLUMNS[table].replace('item_id TEXT', `$& ${REFERENCE}`) : COLUMNS[table];
}

function schemaOf(kind: DiskKind): string {
  if (kind === 'hub') return '';
  const tables = tablesOf(kind).map(
    (name) => `CREATE TABLE ${name} (${columnsOf(kind, name)}); ${INDEXES[name] ?? ''}`,
  );
  return `${tables.join(';')}; CREATE TABLE ${CLOCK} (days REAL); INSERT INTO ${CLOCK} VALUES (0)`;
}

/**
 * As migrations do it where ALTER TABLE does not suffice. The triggers go with the table. That the copy takes the place of
 * the table by ALTER TABLE ... RENAME comes to the same, after SQLite has read every trigger of the schema several times.
 */
export function rebuildSql(
  disk: Disk,
  table: TableName,
  doing: 'the same' | 'adding' | 'dropping' = 'the same',
): string[] {
  const { kind } = disk;
  const name = tableOn(disk, table);
  const adding = doing === 'adding';
  const without = table === 'items' && (doing === 'dropping' || !hasOldColumn(disk));
  const extra = table === 'items' && (adding || (disk.migrated && addsColumn(disk.migration)));
  const before = columnsOf(kind, table);
  const given = `${without ? before.replace(`${OLD_COLUMN} REAL, `, '') : before}${extra ? `, ${newColumnSql(disk.migration)}` : ''}`;
  const columns = given.replace(/\bname\b/, columnOn(disk, table, 'name'));
  const rebuilt = [
    'BEGIN IMMEDIATE',
    `CREATE TABLE old_${name} (${columns})`,
    `INSERT INTO old_${name} SELECT ${doing === 'dropping' ? named(columns) : '*'}${adding ? ', NULL' : ''} FROM ${name}`,
    `DROP TABLE ${name}`,
    `CREATE TABLE ${name} (${columns})`,
    ...(INDEXES[table] === undefined ? [] : [INDEXES[table]]),
    `INSERT INTO ${name} SELECT * FROM old_${name}`,
    `DROP TABLE old_${name}`,
    'COMMIT',
  ];
  // Otherwise dropping a table would take along what refers to it.
  return kind === 'node-foreign-keys' ? ['PRAGMA foreign_keys = 0', ...rebuilt, 'PRAGMA foreign_keys = 1'] : rebuilt;
}

/** The names of columns, as they are declared. */
function named(columns: string): string {
  return columns
    .split(', ')
    .map((column) => column.split(' ')[0])
    .join(', ');
}

/**
 * Triggers ask SQLite for the time, which no seam of Rowcast's reaches. Here the question is put to a table instead, and
 * whoever reads a trigger's text back finds the original.
 */
const CLOCK = 'simulated_clock';
const ASKING_SQLITE = "julianday('now')";
const ASKING_THE_TABLE = `(SELECT days FROM ${CLOCK})`;

/** Statements that are worth preparing although they are not asked for by `prepare`. */
const OFTEN = new Set(['BEGIN', 'BEGIN IMMEDIATE', 'COMMIT', 'ROLLBACK', 'SAVEPOINT rowcast', 'RELEASE rowcast']);

/** What is told of the schema alone: every source of these statements is one of SQLite's own, and none is temporary. */
const SOURCES = /\b(?:FROM|JOIN)\s+\(*(?:main\.)?(\w+)/g;
const OF_SCHEMA = /^(sqlite_schema|pragma_(table|index|foreign)_\w+|SELECT)$/;
const OF_TEMP = /\btemp\b|sqlite_temp/;

function tellsOfSchema(sql: string): boolean {
  const sources = sql.startsWith('SELECT') && !OF_TEMP.test(sql) ? [...sql.matchAll(SOURCES)] : [];
  return sources.length > 0 && sources.every(([, name]) => OF_SCHEMA.test(name as string));
}

/** How far commits reach is up to the disk: see `synchronous`. */
const ASKING_SYNCHRONOUS = 'PRAGMA synchronous';
const SYNCHRONOUS_IS = 'PRAGMA synchronous = ';
/** Nobody else has this connection, and nobody waits: what was asked for is noted and told, which needs no parser. */
const ASKING_TIMEOUT = 'PRAGMA busy_timeout';
const TIMEOUT_IS = 'PRAGMA busy_timeout = ';

const require = createRequire(import.meta.url);

/** `exact`: integers are read as bigints, so that none is mistaken for a real number or loses digits. */
function openRaw(image?: Uint8Array, exact = false): Raw {
  if (process.versions.bun !== undefined) {
    const { Database: Bun } = require('bun:sqlite');
    return image ? Bun.deserialize(image, { safeIntegers: exact }) : new Bun(':memory:');
  }
  const Better = require('better-sqlite3');
  const raw = new Better(image ? Buffer.from(image) : ':memory:');
  raw.defaultSafeIntegers(exact);
  return raw;
}

export class Disk {
  readonly kind: DiskKind;
  /** Commits of any connection so far, failed ones not counted. */
  commits = 0;
  readOnly = false;
  /** The migration that the schedule has for its nodes. */
  migration: Migration | undefined;
  /** Is its schema the newer one? */
  migrated = false;
  /** The level that the present connection has asked for. */
  synchronous = 1;
  /** How long the present connection would wait for others. */
  #timeoutMs = 0;
  /** Its schema is, or will be, another than that of a new one: no good to any other schedule. */
  isSpent = false;
  /** What processes make inside of transactions is found, empty, by the next one: to make it anew costs every statement. */
  #keepsMirrors = true;
  #raw: Raw;
  #statements = new Map<string, RawStatement>();
  #image: Uint8Array | undefined;
  /** What had been written when the image was made. */
  #imaged = '';
  #keepsImages = false;
  #changesAtBegin = 0;
  /** The version of the schema before the transaction that is open; undefined where that was not seen to begin. */
  #schemaAtBegin: number | undefined;
  /** How often something was rolled back. */
  #undone = 0;
  readonly #there = new Set<string>();
  readonly #pristine: Record<string, unknown>[];

  /** `made`: as another one is. */
  constructor(kind: DiskKind, installed: boolean, made?: Uint8Array) {
    this.kind = kind;
    this.#raw = openRaw(made);
    if (!made) this.#raw.exec(`PRAGMA page_size = 1024; ${schemaOf(kind)}`);
    this.connect();
    if (installed && kind !== 'hub' && !made) this.#installOnce();
    this.#pristine = this.#tables().includes('_meta')
      ? this.all("SELECT key, value FROM _meta WHERE key NOT LIKE 'attached:%'")
      : [];
  }

  /** Rowcast's tables and triggers, as the first attach makes them. */
  #installOnce(): void {
    const handle: Database = {
      exec: (sql) => this.exec(sql),
      prepare: (sql) => this.prepare(sql),
      transaction: (fn) => this.#raw.transaction(fn),
    };
    const clock = { now: () => 0, sleep: () => new Promise<void>(() => {}) };
    attach(handle, { id: 'first', peers: [], clock, random: () => 0 }, tablesOf(this.kind));
  }

  /** As it was when it was made, whatever a schedule has left behind. */
  wipe(): void {
    this.disconnect();
    this.#set('query_only', 0);
    this.#raw.exec('PRAGMA max_page_count = 1073741823');
    if (this.#pristine.length > 0) this.#raw.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
    this.#raw.exec('BEGIN');
    for (const name of this.#tables()) this.prepare(`DELETE FROM "${name}"`).run();
    for (const { key, value } of this.#pristine) {
      this.prepare('INSERT INTO _meta (key, value) VALUES (?, CAST(? AS INTEGER))').run(key, value);
    }
    // Whose time it was: a schedule must not depend on the one that had the disk before.
    if (this.kind !== 'hub') this.prepare(`UPDATE ${CLOCK} SET days = 0`).run();
    this.#raw.exec('COMMIT');
    this.#image = undefined;
    this.#keepsImages = false;
    this.readOnly = false;
    this.#keepsMirrors = true;
    this.connect();
  }

  #tables(): string[] {
    return this.all("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> ?", CLOCK).map(
      ({ name }) => name as string,
    );
  }

  /** Asked after every write: a table that was there is not looked for again, until the disk may be another one. */
  has(table: string): boolean {
    if (this.#there.has(table)) return true;
    const found = this.all('SELECT 1 FROM sqlite_schema WHERE name = ?', table).length > 0;
    if (found && !this.inTransaction) this.#there.add(table);
    return found;
  }

  /** A new connection, as far as anybody can tell. */
  connect(): void {
    this.synchronous = 1;
    this.#timeoutMs = 5_000;
    this.#set('foreign_keys', this.kind === 'node-foreign-keys' ? 1 : 0);
    this.#set('query_only', this.readOnly ? 1 : 0);
  }

  /** Only where it is something else: setting most pragmas makes SQLite prepare every statement anew. */
  #set(pragma: string, value: number): void {
    const now = Object.values(this.all(`PRAGMA ${pragma}`)[0] ?? {})[0];
    if (Number(now) !== value) this.#raw.exec(`PRAGMA ${pragma} = ${value}`);
  }

  /** The file system is read-only, for whoever opens the database. */
  setReadOnly(on: boolean): void {
    this.readOnly = on;
    this.#set('query_only', on ? 1 : 0);
  }

  /** There is no room for another page. */
  setFull(on: boolean): void {
    const pages = Object.values(this.all('PRAGMA page_count')[0] ?? {})[0];
    this.#raw.exec(`PRAGMA max_page_count = ${on ? pages : 1_073_741_823}`);
  }

  /** The connection is gone: what was open is rolled back, what was temporary has never been. */
  disconnect(): void {
    if (this.#raw.inTransaction) this.#raw.exec('ROLLBACK');
    // A process that dies may have asked that its next commit be flushed; whoever writes meanwhile has asked for nothing.
    this.synchronous = 1;
    this.#schemaAtBegin = undefined;
    this.#undone += 1;
    this.emptyTemporary();
    if (!this.#keepsMirrors) this.#dropMirrors();
  }

  /** As good as gone: dropping a temporary table would make SQLite prepare every statement anew. */
  emptyTemporary(): void {
    for (const { name } of this.all("SELECT name FROM sqlite_temp_schema WHERE type = 'table'")) {
      this.#set('query_only', 0);
      this.prepare(`DELETE FROM temp."${name}"`).run();
    }
  }

  /** A new connection has none: where commits fail, it matters who made one, and when. */
  #dropMirrors(): void {
    const mirrors = "SELECT name FROM sqlite_temp_schema WHERE type = 'table' AND name LIKE '%_mirror_%'";
    for (const { name } of this.all(mirrors)) this.#raw.exec(`DROP TABLE temp."${name}"`);
  }

  /** From now on each connection makes them for itself. */
  forgetMirrors(): void {
    this.#keepsMirrors = false;
    this.#dropMirrors();
  }

  /** From now on it is known what a power cut would leave. */
  keepImages(): void {
    this.#keepsImages = true;
    this.#keepImage();
  }

  #keepImage(): void {
    this.#image = this.#raw.serialize();
    this.#imaged = this.#written();
  }

  /** Another text whenever anything was written, taken back or not. */
  #written(): string {
    return `${this.#totalChanges()} ${this.#schemaVersion()}`;
  }

  /** Everything that was not flushed is lost. */
  cutPower(): void {
    this.#undone += 1;
    this.#there.clear();
    if (this.#image && this.#imaged === this.#written()) {
      this.#raw.exec('PRAGMA max_page_count = 1073741823');
      return;
    }
    // A new connection would have to prepare every statement again, for longer than the rest of the schedule takes.
    if (this.#image && this.#takeOver(this.#image)) return;
    this.#raw.close();
    this.#statements = new Map();
    this.#raw = openRaw(this.#image);
  }

  /** False where the image is one of another schema. */
  #takeOver(image: Uint8Array): boolean {
    const from = openRaw(image, true);
    try {
      if (!isSameSchema(this.#raw, from)) return false;
      this.#set('query_only', 0);
      this.#set('foreign_keys', 0);
      this.#raw.exec('PRAGMA max_page_count = 1073741823');
      takeOver(from, { exec: (sql) => this.#raw.exec(sql), prepare: (sql) => this.prepare(sql) });
      return true;
    } finally {
      from.close();
    }
  }

  /** All that is on it. */
  image(): Uint8Array {
    return this.#raw.serialize();
  }

  putBack(image: Uint8Array): void {
    this.#image = image;
    this.#imaged = '';
    this.cutPower();
    this.connect();
  }

  exec(sql: string): void {
    if (OFTEN.has(sql)) this.prepare(sql).run();
    // There is nothing below that could be synced; within a transaction SQLite refuses.
    else if (sql.startsWith(SYNCHRONOUS_IS) && !this.inTransaction) this.synchronous = Number(sql.at(-1));
    else if (sql.startsWith(TIMEOUT_IS)) this.#timeoutMs = Number(sql.slice(TIMEOUT_IS.length));
    else this.#raw.exec(rewritten(sql));
    if (sql.startsWith('ROLLBACK')) this.#undone += 1;
    if (sql.startsWith('BEGIN')) this.#schemaAtBegin = this.#schemaVersion();
    if (sql === 'BEGIN IMMEDIATE' && this.#keepsImages) this.#changesAtBegin = this.#totalChanges();
    if (sql === 'COMMIT') this.#committed();
  }

  /** A commit reaches the disk only where it was asked to, and where there was anything to write. */
  #committed(): void {
    this.commits += 1;
    this.onCommit();
    if (!this.#keepsImages || this.synchronous < 2 || this.#totalChanges() === this.#changesAtBegin) return;
    this.#keepImage();
    this.onDurable();
  }

  onCommit: () => void = () => {};

  /** Called when everything committed so far is safe from a power cut. */
  onDurable: () => void = () => {};

  prepare(sql: string): RawStatement {
    const known = this.#statements.get(sql);
    if (known) return known;
    const statement = this.#prepared(sql);
    this.#statements.set(sql, statement);
    return statement;
  }

  #prepared(sql: string): RawStatement {
    if (sql === ASKING_SYNCHRONOUS) return telling(() => ({ synchronous: this.synchronous }));
    if (sql === ASKING_TIMEOUT) return telling(() => ({ timeout: this.#timeoutMs }));
    const statement = this.#raw.prepare(rewritten(sql));
    const original = sql.includes('sqlite_schema') ? withOriginalTexts(statement) : statement;
    return tellsOfSchema(sql) ? this.#knownBySchema(original) : original;
  }

  /**
   * What is told of the schema is the same until SQLite counts up its version. What a transaction has made of it may yet be
   * taken back, and is not kept.
   */
  #knownBySchema(statement: RawStatement): RawStatement {
    let version = -1;
    const known = new Map<string, unknown[]>();
    const all = (...params: unknown[]): unknown[] => {
      const now = this.#schemaVersion();
      const key = params.join(' ');
      const kept = version === now ? known.get(key) : undefined;
      // Whoever is given the same rows once more cannot have changed them.
      const rows = kept ?? statement.all(...params).map(Object.freeze);
      if (!kept && (!this.inTransaction || now === this.#schemaAtBegin)) {
        if (version !== now) known.clear();
        version = now;
        known.set(key, rows);
      }
      return [...rows];
    };
    return { run: statement.run, get: (...params) => all(...params)[0], all };
  }

  all(sql: string, ...params: unknown[]): Record<string, unknown>[] {
    return this.prepare(sql).all(...params) as Record<string, unknown>[];
  }

  get inTransaction(): boolean {
    return this.#raw.inTransaction;
  }

  get transaction(): Database['transaction'] {
    return (fn) => this.#raw.transaction(fn);
  }

  /** What SQLite will say when a trigger asks for the time. */
  setClock(ms: number): void {
    try {
      this.prepare(`UPDATE ${CLOCK} SET days = ?`).run(ms / 86_400_000 + 2_440_587.5);
    } catch {
      // Full or read-only: then nothing can be written either.
    }
  }

  close(): void {
    this.#raw.close();
  }

  /** Something else whenever the contents may be something else. */
  get state(): string {
    return `${this.#totalChanges()} ${this.#undone}`;
  }

  #schemaVersion(): number {
    return Number(this.all('PRAGMA main.schema_version')[0]?.schema_version);
  }

  #totalChanges(): number {
    return Number(this.all('SELECT total_changes() AS n')[0]?.n);
  }
}

/** A statement that SQLite is not asked for. */
function telling(row: () => object): RawStatement {
  return { run: () => undefined, get: row, all: () => [row()] };
}

function rewritten(sql: string): string {
  return sql.includes(ASKING_SQLITE) ? sql.replaceAll(ASKING_SQLITE, ASKING_THE_TABLE) : sql;
}

/** Floors are part of the text, so there is no end of them. */
const ORIGINALS_MAX = 1_000;
const ORIGINALS = new Map<string, string>();

/** Every start of a process reads the texts of all triggers, and they are mostly the same. */
function originalOf(text: string): string {
  const known = ORIGINALS.get(text);
  if (known !== undefined) return known;
  const original = text.replaceAll(ASKING_THE_TABLE, ASKING_SQLITE);
  if (ORIGINALS.size < ORIGINALS_MAX) ORIGINALS.set(text, original);
  return original;
}

function withOriginalTexts(statement: RawStatement): RawStatement {
  const original = (row: unknown): unknown => {
    const text = (row as { sql?: unknown } | null | undefined)?.sql;
    if (typeof text !== 'string') return row;
    return { ...(row as object), sql: originalOf(text) };
  };
  return {
    run: (...params) => statement.run(...params),
    get: (...params) => original(statement.get(...params)),
    all: (...params) => statement.all(...params).map(original),
  };
}

/** Disks that a schedule has given back. */
export class DiskPool {
  readonly #free = new Map<DiskKind, Disk[]>();
  /** A disk on which Rowcast was installed, by kind: to copy it takes a third of the time of installing. */
  readonly #made = new Map<DiskKind, Uint8Array>();

  /**
   * `empty`: Rowcast has never been there. `altered`: the schedule is going to change its schema, and others would have to
   * prepare every statement anew.
   */
  take(kind: DiskKind, what: 'any' | 'altered' | 'empty'): Disk {
    const disk = what === 'any' ? (this.#free.get(kind)?.pop() ?? this.#installed(kind)) : this.#new(kind, what);
    if (what !== 'empty') disk.wipe();
    return disk;
  }

  #new(kind: DiskKind, what: 'altered' | 'empty'): Disk {
    const disk = what === 'empty' ? new Disk(kind, false) : this.#installed(kind);
    disk.isSpent = true;
    return disk;
  }

  #installed(kind: DiskKind): Disk {
    const made = this.#made.get(kind);
    if (made) return new Disk(kind, true, made);
    const disk = new Disk(kind, true);
    this.#made.set(kind, disk.image());
    return disk;
  }

  give(disk: Disk): void {
    if (disk.isSpent) {
      disk.close();
      return;
    }
    const free = this.#free.get(disk.kind) ?? [];
    this.#free.set(disk.kind, free);
    free.push(disk);
  }
}
