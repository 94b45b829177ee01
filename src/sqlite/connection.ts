/**
 * The database handle as Rowcast needs it, and the differences between the bindings, in one place.
 *
 * The types are structural: better-sqlite3 and bun:sqlite handles fit as they are, `rowcast/node-sqlite` makes node:sqlite
 * fit. Nothing here imports a binding.
 */
import type { Clock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import { busy, explained, inTransaction, isNestedTransaction, NESTED } from './explained.ts';
import { damageOf, forgetDamage, forgetWriteFailure, noteFailure, writeFailureOf } from './failures.ts';
import { isCode, isMachineFault } from './result-codes.ts';
import { isQualified, named, plainRows } from './row-shape.ts';
import { refuseUnfinished } from './unfinished.ts';

export interface Statement {
  // biome-ignore lint/suspicious/noExplicitAny: three bindings type their parameters in three incompatible ways
  run(...params: any[]): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: see above
  get(...params: any[]): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: see above
  all(...params: any[]): unknown[];
}

export interface Database {
  exec(sql: string): unknown;
  prepare(sql: string): Statement;
  // biome-ignore lint/suspicious/noExplicitAny: the bindings' own generic signatures differ
  transaction(fn: (...args: any[]) => any): unknown;
}

/** How others have their turn. */
interface Yielding {
  clock: Clock;
  stopped: AbortSignal;
}

export type Value = null | number | bigint | string | Uint8Array;
export type Row = Record<string, Value>;

/** How long to wait for another connection's lock where the application has not said: two bindings begin with zero. */
const BUSY_WAIT_MS = 5_000;

/**
 * What Rowcast does by itself waits no longer for a lock while everything else stands still: the one who has it may be another
 * connection of this very process, and then it cannot go on before we do. In that time SQLite tries five times, so that
 * among several processes that write we have our turn, too.
 */
const BRIEF_MS = 20;
/** Without a WAL, who wants to commit keeps new readers out until those who read are done; who gives up lets them in again. */
const BRIEF_COMMIT_MS = 100;

/** Statements kept prepared at once; beyond it the oldest is let go (shapes of rows are the only unbounded source). */
const STATEMENTS_MAX = 200;

export class Connection {
  readonly #db: Database;
  readonly #statements = new Map<string, Statement>();
  #wasOpen = false;
  /** True while one of our own transactions is open: they never nest and never span an await. */
  #open = false;
  /** Called at the end of every transaction of ours, in it; what it returns is called once that is committed. */
  ending: (() => () => void) | undefined;
  /** How others have their turn while somebody else has the lock; undefined where they have not. */
  #yields: Yielding | undefined;
  /** Who writes may keep others even from reading. */
  #isShutByWriters = true;
  /** Somebody waits for what is done just now, and nobody else can have a turn: see `patiently`. */
  #isAwaited = false;
  /** Somebody else had the write lock when we last wanted it: to wait for it again would hold up everybody else again. */
  #isHeld = false;
  #toleratedMs = BUSY_WAIT_MS;

  constructor(db: Database) {
    for (const method of ['exec', 'prepare', 'transaction'] as const) {
      if (typeof db?.[method] === 'function') continue;
      throw new RowcastError('INVALID_DATABASE', `the database handle has no ${method}()`, {
        hint: 'pass a better-sqlite3 or bun:sqlite database, or wrap node:sqlite with fromNodeSqlite()',
      });
    }
    this.#db = db;
  }

  exec(sql: string): void {
    try {
      this.#db.exec(sql);
    } catch (error) {
      throw this.#explained(error);
    }
  }

  run(sql: string, ...params: Value[]): void {
    try {
      const statement = this.#statement(sql);
      // With PRAGMA count_changes every write returns a row, and one binding does not run what returns rows.
      if ((statement as { reader?: boolean }).reader) statement.all(...params);
      else statement.run(...params);
    } catch (error) {
      throw this.#explained(error);
    }
  }

  get<T = Row>(sql: string, ...params: Value[]): T | undefined {
    try {
      // bun:sqlite says null where the others say undefined.
      const row = this.#statement(sql).get(...params) as T | null | undefined;
      return row == null ? undefined : (named(row as object, isQualified(row as object)) as T);
    } catch (error) {
      throw this.#explained(error);
    }
  }

  all<T = Row>(sql: string, ...params: Value[]): T[] {
    try {
      const rows = this.#statement(sql).all(...params) as object[];
      const qualified = rows.length > 0 && isQualified(rows[0] as object);
      return (qualified ? rows.map((row) => named(row, true)) : rows) as T[];
    } catch (error) {
      throw this.#explained(error);
    }
  }

  /** Rows changed by the latest INSERT, UPDATE or DELETE, without those of triggers. */
  changes(): number {
    return Number(this.get('SELECT changes() AS n')?.n ?? 0);
  }

  /** Ours or the application's; undefined where the handle does not say. */
  get isInTransaction(): boolean | undefined {
    try {
      return (this.#db as { inTransaction?: boolean }).inTransaction;
    } catch (error) {
      // bun:sqlite says so where the database is closed.
      throw this.#explained(error);
    }
  }

  /**
   * Another text whenever anybody may have changed anything: this connection counts its rows and its schemas, SQLite the
   * commits of the others. Undefined where that cannot be told: a transaction that is open may be rolled back, which no
   * number says, and a handle may not say whether one is.
   */
  fingerprint(): string | undefined {
    if (this.isInTransaction !== false) return undefined;
    const own = this.get('SELECT total_changes() AS n')?.n;
    const { schema_version: schema } = this.get('PRAGMA main.schema_version') ?? {};
    const { data_version: others } = this.get('PRAGMA main.data_version') ?? {};
    return `${own} ${schema} ${others}`;
  }

  get writeFailure(): string | undefined {
    return writeFailureOf(this.#db);
  }

  forgetWriteFailure(): void {
    forgetWriteFailure(this.#db);
  }

  get damage(): string | undefined {
    return damageOf(this.#db);
  }

  forgetDamage(): void {
    forgetDamage(this.#db);
  }

  /** Prepares without running, to tell "this statement cannot exist" from "this row cannot be written". */
  prepare(sql: string): void {
    this.#statement(sql);
  }

  /**
   * Runs `fn` in one write transaction. `durable` makes its commit reach the disk, whatever `synchronous` the caller set:
   * everything committed before it, by any connection, is then on disk as well.
   */
  transaction<T>(fn: () => T, options: { durable?: boolean; foreignKeys?: 'suspended' } = {}): T {
    if (this.#open) throw new Error('a Rowcast transaction was opened inside another one');
    const restore: string[] = [];
    try {
      if (this.isBrief) this.#waitBriefly(restore);
      // Neither pragma has an effect inside a transaction, so both frame it.
      // EXTRA: without a WAL the removal of the journal is synced too; with FULL a power cut could bring it back, and undo us.
      if (options.durable) this.#setPragma('synchronous', 3, (level) => level < 3, restore);
      if (options.foreignKeys) this.#setPragma('foreign_keys', 0, (on) => on === 1, restore);
      this.#waiting('BEGIN IMMEDIATE');
      this.#open = true;
      try {
        const result = fn();
        const committed = this.ending?.();
        this.#waiting('COMMIT');
        committed?.();
        return result;
      } catch (error) {
        this.#rollback();
        throw error;
      } finally {
        this.#open = false;
      }
    } finally {
      for (const pragma of restore) this.exec(pragma);
    }
  }

  /** From here on, what is done by itself does not keep others waiting while it waits for a lock. */
  yieldBy(yields: Yielding): void {
    this.#yields = yields;
    const mode = this.get<{ mode: string }>('SELECT journal_mode AS mode FROM pragma_journal_mode')?.mode;
    const file = this.get("SELECT file FROM pragma_database_list WHERE name = 'main'")?.file;
    this.#isShutByWriters = mode !== 'wal' && Boolean(file);
  }

  get yields(): Yielding | undefined {
    return this.#yields;
  }

  /** Without a WAL, who writes may keep even readers out. */
  get isShutByWriters(): boolean {
    return this.#isShutByWriters;
  }

  /** What the application has asked for in a call that must be done when it returns: there the wait is as long as it allows. */
  patiently<T>(fn: () => T): T {
    const before = this.#isAwaited;
    this.#isAwaited = true;
    try {
      return fn();
    } finally {
      this.#isAwaited = before;
    }
  }

  /** Does it wait for locks briefly at the moment, because it will be called again? */
  get isBrief(): boolean {
    return this.#yields !== undefined && !this.#isAwaited;
  }

  /** Did somebody else have the lock when it was last asked for? */
  get wasHeld(): boolean {
    return this.#isHeld;
  }

  /** How long a lock of somebody else's is no fault of anybody's: as long as the application lets SQLite wait for it. */
  get toleratedMs(): number {
    return this.#toleratedMs;
  }

  /** Runs `fn` so that its writes can be undone alone; only inside `transaction`. */
  savepoint<T>(fn: () => T): T {
    this.exec('SAVEPOINT rowcast');
    try {
      const result = fn();
      this.exec('RELEASE rowcast');
      return result;
    } catch (error) {
      try {
        this.exec('ROLLBACK TO rowcast');
        this.exec('RELEASE rowcast');
      } catch {
        // A full disk or an I/O error has ended the transaction: no change is to blame, and none must be set aside for it.
        if (isMachineFault(error)) throw error;
        // RAISE(ROLLBACK) in a trigger of the application has.
        throw new TransactionLost(error);
      }
      throw error;
    }
  }

  /** Lets go of every prepared statement, so that the caller can close the database. */
  release(): void {
    for (const statement of this.#statements.values()) finalize(statement);
    this.#statements.clear();
  }

  #statement(sql: string): Statement {
    const known = this.#statements.get(sql);
    if (known) return known;
    const statement = this.#prepared(sql);
    plainRows(statement);
    this.#statements.set(sql, statement);
    if (this.#statements.size > STATEMENTS_MAX) {
      const [oldest, stale] = this.#statements.entries().next().value as [string, Statement];
      this.#statements.delete(oldest);
      finalize(stale);
    }
    return statement;
  }

  #prepared(sql: string): Statement {
    try {
      const statement = this.#db.prepare(sql);
      this.#wasOpen = true;
      return statement;
    } catch (error) {
      throw this.#explained(error);
    }
  }

  #setPragma(name: string, value: number, needed: (now: number) => boolean, restore: string[]): void {
    const before = Number(Object.values(this.get(`PRAGMA ${name}`) ?? {})[0]);
    if (!needed(before)) return;
    try {
      this.exec(`PRAGMA ${name} = ${value}`);
    } catch (error) {
      throw isNestedTransaction(error) ? inTransaction(error) : error;
    }
    restore.push(`PRAGMA ${name} = ${before}`);
  }

  /** The application's own limit is put back after the transaction. */
  #waitBriefly(restore: string[]): void {
    const before = this.#busyTimeout();
    this.#toleratedMs = before || BUSY_WAIT_MS;
    const ms = this.#isHeld ? 0 : BRIEF_MS;
    if (before <= ms) return;
    this.exec(`PRAGMA busy_timeout = ${ms}`);
    restore.push(`PRAGMA busy_timeout = ${before}`);
  }

  #busyTimeout(): number {
    return Number(Object.values(this.get('PRAGMA busy_timeout') ?? {})[0] ?? 0);
  }

  /**
   * SQLite takes the write lock first, and finds only then that there is a transaction: one of the application's that has read
   * something would keep everybody else from writing until its end.
   */
  beginWriting(): void {
    if (this.isInTransaction === true) throw new Error(NESTED);
    refuseUnfinished(this);
    if (this.isInTransaction === undefined) for (const sql of ['BEGIN', 'ROLLBACK']) this.exec(sql);
    this.exec('BEGIN IMMEDIATE');
  }

  /** BEGIN or COMMIT, waiting for somebody else's lock even where the binding's own busy timeout is zero. */
  #waiting(sql: 'BEGIN IMMEDIATE' | 'COMMIT'): void {
    const run = (): void => (sql === 'COMMIT' ? this.exec(sql) : this.beginWriting());
    try {
      run();
    } catch (error) {
      if (isNestedTransaction(error)) throw inTransaction(error);
      if (!isCode(error, 'BUSY', 'LOCKED')) throw error;
      const before = this.#busyTimeout();
      const more = this.#moreFor(sql, before);
      if (more <= before) throw this.#held(error);
      this.exec(`PRAGMA busy_timeout = ${more}`);
      try {
        run();
      } catch (again) {
        throw isCode(again, 'BUSY', 'LOCKED') ? this.#held(again) : again;
      } finally {
        this.exec(`PRAGMA busy_timeout = ${before}`);
      }
    }
    this.#isHeld = false;
  }

  /** How long to wait once more, after a wait of `before`. */
  #moreFor(sql: 'BEGIN IMMEDIATE' | 'COMMIT', before: number): number {
    if (!this.isBrief) return before > 0 ? 0 : BUSY_WAIT_MS; // Whoever has set it has said how long to wait.
    if (sql === 'COMMIT') return BRIEF_COMMIT_MS;
    return this.#isHeld ? 0 : BRIEF_MS;
  }

  #held(cause: unknown): RowcastError {
    this.#isHeld = true;
    return busy(cause);
  }

  #explained(error: unknown): unknown {
    noteFailure(this.#db, error);
    return explained(error, this.#wasOpen);
  }

  #rollback(): void {
    try {
      this.exec('ROLLBACK');
    } catch {
      // SQLite has already rolled back by itself (a full disk, an I/O error): the original error is the one to report.
    }
  }
}

/** The transaction was rolled back under us by the statement that failed; nothing of it is left. */
export class TransactionLost extends Error {
  constructor(cause: unknown) {
    super(messageOf(cause), { cause });
  }
}

/** The row is at fault, not the machine: see isMachineFault. */
export function isRowFault(error: unknown): boolean {
  return !isMachineFault(error);
}

function finalize(statement: Statement): void {
  (statement as { finalize?: () => void }).finalize?.();
}
