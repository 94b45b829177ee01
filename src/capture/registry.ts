/** The synced tables as they are now: installs the triggers, notices schema changes, takes everything away again. */

import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { type Features, featuresOf, requireSuited } from '../sqlite/features.ts';
import { refuseIfShut } from '../sqlite/look.ts';
import { isCode } from '../sqlite/result-codes.ts';
import { describeTable, hasForeignKeys, type Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { type CaptureState, captureState, noteCaptureOff, replacedColumns } from './capture-record.ts';
import { withFloors } from './floors.ts';
import { refuseFormerNames, TableList } from './former-names.ts';
import {
  dropForeignCapture,
  dropTriggers,
  dropUnwanted,
  gapIn,
  hasLostColumn,
  hasNewColumn,
  installTriggers,
  isOn,
  type OwnTrigger,
  ownTriggers,
  tableExists,
  type Warning,
} from './installed-triggers.ts';
import { installInternalTables } from './internal-tables.ts';
import { heedCeiling, liftAboveTombstones, lookAgain, recapture, stampInvalid } from './mend.ts';
import { Naming, type Time } from './named.ts';
import { Names, noteNames } from './names.ts';
import { isWhole, OtherBuilds } from './other-builds.ts';
import { followRenames } from './renamed-columns.ts';
import { forgetReplaced, settleLeft, settleReplaced } from './replaced.ts';
import { hasStamps, writeStamps } from './stamps.ts';
import { followLosses } from './unsaid.ts';
import { noteVerifiedSchema, verifiedSchema } from './verified-schema.ts';

export interface RegistryOptions {
  tables: string[];
  warn(code: string, message: string): void;
  /** Called after the triggers were brought up to date with a changed schema. */
  onRefresh(): void;
  /**
   * Rows of these tables may have been written or deleted unseen: every peer must be sent all of them, and, where `ask`
   * is true, be asked for its own. Called inside the transaction that installs the triggers.
   */
  onUnseen(tables: Table[], ask: boolean): void;
  /** Peers must be asked for their rows of these tables: a column is back, and they may have what was in it. Likewise. */
  onBack?(tables: Table[]): void;
  /** The tables are these from now on. Called inside the same transaction, and may change the schema itself. */
  onAdopt?(tables: Table[]): void;
  /** Absent for whoever is not attached: nobody else needs to know of its tables. */
  time?: Time;
  features?: Features;
}

/** A change of the schema of our own: what is done before it, while no trigger of ours is there, and after it. */
export interface SchemaChange {
  before(tables: Table[]): void;
  alter(): void;
  /** The tables as they are, captured again. Returns what there is to warn of once all of it is done. */
  after(now: Table[]): Warning[];
  /** Tables that are synced from now on, besides. */
  added: string[];
}

export class Registry {
  readonly features: Features;
  readonly #db: Connection;
  readonly #options: RegistryOptions;
  readonly #naming: Naming | undefined;
  readonly otherBuilds: OtherBuilds;
  readonly #list: TableList;
  #tables = new Map<string, Table>();
  /** Configured tables that were not there at the latest look, or could not be synced: why, which was said. */
  #lost = new Map<string, string>();
  #said = new Set<string>();
  #schemaVersion = -1;
  /** Does any table of the database have a foreign key? */
  hasForeignKeys = true;
  /** Changes up to here were captured by triggers that knew every column. */
  #verifiedUpTo = 0;

  constructor(db: Connection, options: RegistryOptions) {
    requireSuited(db);
    this.#db = db;
    this.#options = options;
    this.#naming = options.time && new Naming(db, options.time);
    this.otherBuilds = new OtherBuilds(db, options.time);
    this.#list = new TableList(db, options.tables);
    this.features = options.features ?? featuresOf(db);
  }

  /** The table of that name, or the one that had it before. */
  get(name: string): Table | undefined {
    const wanted = fold(name);
    return this.#tables.get(wanted) ?? this.list().find(({ was }) => was.some((one) => fold(one) === wanted));
  }

  /** SQLite's counter for the schema that the tables here are described by. */
  get schemaVersion(): number {
    return this.#schemaVersion;
  }

  list(): Table[] {
    return [...this.#tables.values()];
  }

  /** Creates or updates everything in one transaction; running it again changes nothing. */
  install(): void {
    const warnings: Warning[] = [];
    try {
      this.#db.transaction(() => {
        refuseFormerNames(this.#db, this.#options.tables);
        let tables = this.#describe();
        const dropped = tables.filter((table) => dropForeignCapture(this.#db, table, warnings));
        // A description counts the triggers of others; those are no longer there.
        if (dropped.length > 0) tables = this.#describe();
        const unseen = this.#bringUpToDate(tables, warnings);
        // Where nobody has touched the schema there is nothing to find, in perhaps a million changes that wait.
        const untouched = verifiedSchema(this.#db) === this.#currentVersion();
        for (const table of tables) if (!unseen.has(table) && !untouched) recapture(this.#db, table, 0);
        warnings.push(...heedCeiling(this.#db, tables));
        this.#adopt(tables);
      });
    } catch (error) {
      if (isCode(error, 'READONLY'))
        throw new RowcastError('INVALID_DATABASE', 'the database is read-only', {
          hint: 'open it for writing: changes are captured in tables of their own',
          cause: error,
        });
      if (isCode(error, 'NOTADB'))
        throw new RowcastError('INVALID_DATABASE', 'the file is not a SQLite database', { cause: error });
      throw error;
    }
    writeStamps(this.#db, this.list(), (message) => warnings.push(['stamp-refused', message]));
    this.#warnOfAll(warnings);
  }

  /**
   * Notices a schema change made by anyone, by SQLite's own counter, and brings the triggers up to date; then settles what
   * REPLACE has left to be settled, and writes the versions that are pending into their rows. Called on every tick, before changes are read for shipping and before a
   * batch is applied, so no change leaves that lacks a column unnoticed, and no row is compared by a version that is not
   * its own.
   */
  refresh(): void {
    refuseIfShut(this.#db);
    if (this.#currentVersion() !== this.#schemaVersion) this.#refreshTriggers();
    settleLeft(this.#db, this.list(), () => (this.#currentVersion() === this.#schemaVersion ? this.list() : []));
    writeStamps(this.#db, this.list(), (message) => this.#options.warn('stamp-refused', message));
  }

  /** Runs `first`, which changes what the triggers are made of beside the schema, and makes them anew with it. */
  remake(first: () => void): void {
    this.refresh();
    this.#refreshTriggers(first);
  }

  #refreshTriggers(first: () => void = () => {}): void {
    const since = this.#verifiedUpTo;
    const before = this.#tables;
    const number = this.#naming?.number;
    const warnings: Warning[] = [];
    const lost = new Map<string, RowcastError>();
    try {
      // Everything inside the transaction, the version too: another process may change the schema at any moment.
      this.#db.transaction(() => {
        first();
        const tables = this.#describe(lost);
        this.#bringUpToDate(tables, warnings, lost);
        for (const table of tables) {
          // A column that was renamed is missing in every change that waits, not only in those since the last look.
          const renamed = hasLostColumn(before.get(fold(table.name)), table);
          recapture(this.#db, table, renamed ? 0 : since);
        }
        this.#adopt(tables);
      });
    } catch (error) {
      // What was rolled back was not verified.
      this.#naming?.takeBack(number);
      this.#schemaVersion = -1;
      this.#verifiedUpTo = since;
      this.#tables = before;
      throw error;
    }
    this.#lost = new Map([...lost].map(([name, { message }]) => [name, message]));
    this.#warnOfAll(warnings);
    if (this.list().some((table) => hasNewColumn(before.get(fold(table.name)), table))) this.#options.onRefresh();
  }

  /** Changes the schema in one transaction: whatever is thrown on the way takes all of it back, the triggers included. */
  change(work: SchemaChange): void {
    const before = this.#tables;
    const number = this.#naming?.number;
    const warnings: Warning[] = [];
    const { length } = this.#list;
    try {
      // Another process may write between the two. What is added is not there before.
      for (let done = false; !done; ) {
        this.#list.cut(length);
        this.refresh();
        this.#list.add(work.added);
        done = this.#db.transaction(() => this.#tryChange(work, warnings), { durable: true, foreignKeys: 'suspended' });
      }
    } catch (error) {
      this.#naming?.takeBack(number);
      this.#schemaVersion = -1;
      this.#tables = before;
      this.#list.cut(length);
      throw error;
    }
    this.#warnOfAll(warnings);
    writeStamps(this.#db, this.list(), (message) => this.#options.warn('stamp-refused', message));
    this.#options.onRefresh();
  }

  #tryChange(work: SchemaChange, warnings: Warning[]): boolean {
    if (!this.isCurrent()) return false;
    const was = this.list();
    work.before(was);
    const besides = this.#naming?.besides();
    settleReplaced(this.#db, was);
    dropTriggers(this.#db, ownTriggers(this.#db));
    work.alter();
    refuseFormerNames(this.#db, work.added);
    const lost = new Map<string, RowcastError>();
    const now = this.#describe(lost, besides);
    for (const [name, error] of lost) if (!this.#lost.has(name)) throw error;
    const captured = new Set(was.map(({ name }) => fold(name)));
    const isCaptured = (table: Table): boolean => [table.name, ...table.was].some((one) => captured.has(fold(one)));
    this.#bringUpToDate(now, warnings, lost, new Set(now.filter(isCaptured)));
    warnings.push(...work.after(now));
    this.#lost = new Map([...lost].map(([name, { message }]) => [name, message]));
    this.#adopt(now);
    return true;
  }

  /** Is the schema still the one that the triggers were made for, and does every row show its version? */
  isCurrent(): boolean {
    return this.#currentVersion() === this.#schemaVersion && !hasStamps(this.#db);
  }

  /**
   * The configured tables as they are, and those that others on the file name; one that was named twice, in two spellings,
   * is one table. Those that are no longer there, or can no longer be synced, go into `lost`; without it, that is an error,
   * unless only others name it.
   */
  #describe(lost?: Map<string, RowcastError>, besides = this.#naming?.besides() ?? []): Table[] {
    const names = Names.read(this.#db);
    const tables = new Map<string, Table>();
    const own = this.#list.present();
    for (const name of [...own, ...besides]) {
      try {
        if (tables.has(fold(name))) continue;
        const there = !tableExists(this.#db, name) && names.presentName(name);
        const table = names.describe(describeTable(this.#db, there || name));
        tables.set(fold(table.name), table);
      } catch (error) {
        if (!(error instanceof RowcastError) || error.code !== 'INVALID_TABLE') throw error;
        if (!lost && own.includes(name)) throw error;
        lost?.set(fold(name), error);
      }
    }
    return withFloors(this.#db, [...tables.values()]);
  }

  /**
   * Puts the internal tables and the triggers right, and mends what may have happened without them. Returns the tables
   * that were not captured without a break; `intact` are some of which it is known that they were.
   */
  #bringUpToDate(
    tables: Table[],
    warnings: Warning[],
    lost = new Map<string, RowcastError>(),
    intact = new Set<Table>(),
  ): Set<Table> {
    const [dropped, since] = [installInternalTables(this.#db, tables), this.#verifiedUpTo];
    noteNames(this.#db, tables);
    this.#naming?.enter(this.#list.present());
    const there = ownTriggers(this.#db);
    const states = new Map<Table, CaptureState>();
    const back: Table[] = [];
    for (const table of tables) {
      const own = there.filter(isOn(table));
      const had = this.#tables.has(fold(table.name));
      states.set(table, intact.has(table) ? 'intact' : captureState(this.#db, table, own, { had, since, dropped }));
      if (!intact.has(table)) followRenames(this.#db, table, own, warnings);
      const replaced = states.get(table) === 'gap' ? replacedColumns(this.#db, table) : undefined;
      const isTold = replaced || ['unwatched', 'forgotten'].includes(states.get(table) as CaptureState);
      if (isTold) warnings.push(['capture-gap', gapIn(table, replaced, dropped)]);
      if (followLosses(this.#db, table, replaced?.lost ?? [], warnings)) back.push(table);
    }
    // A table that was made anew, or has got another's name, is not the one that was noted.
    const isTheSame = (table: Table): boolean => ['intact', 'unwatched'].includes(states.get(table) as CaptureState);
    settleReplaced(this.#db, tables.filter(isTheSame));
    forgetReplaced(this.#db);
    dropUnwanted(this.#db, { tables, there, lost, told: this.#lost }, warnings);
    installTriggers(this.#db, this.#withoutLeft(tables, there), there);
    lookAgain(this.#db);
    const unseen = [...states].filter(([, state]) => state !== 'intact');
    for (const [table] of unseen) {
      stampInvalid(this.#db, table);
      liftAboveTombstones(this.#db, table);
    }
    const those = (isNew: boolean): Table[] =>
      unseen.filter(([, state]) => (state === 'new') === isNew).map(([table]) => table);
    for (const isNew of [true, false]) if (those(isNew).length > 0) this.#options.onUnseen(those(isNew), !isNew);
    if (back.length > 0) this.#options.onBack?.(back);
    return new Set(unseen.map(([table]) => table));
  }

  /** From here on these are the tables, as they are now. In the transaction that has brought them up to date. */
  #adopt(tables: Table[]): void {
    this.#tables = new Map(tables.map((table) => [fold(table.name), table]));
    this.#list.see();
    this.#options.onAdopt?.(tables);
    this.#markVerified();
  }

  /** Also of what there is to say of the tables as they are now, and was not yet. */
  #warnOfAll(warnings: Warning[]): void {
    const once = new Map([...warnings, ...this.otherBuilds.settle()].map(([code, message]) => [message, code]));
    const texts = new Set(this.list().flatMap((table) => table.warnings));
    for (const text of texts) if (!this.#said.has(text)) once.set(text, 'schema');
    this.#said = texts;
    for (const [message, code] of once) this.#options.warn(code, message);
  }

  /** Remembers how far the triggers are known to have been complete. */
  markRead(changeId: number): void {
    this.#verifiedUpTo = Math.max(this.#verifiedUpTo, changeId);
  }

  /** True while every trigger is there with a text that it may have, and capture is not gated off for good. */
  intact(): boolean {
    const flag = this.#db.get("SELECT value FROM main._meta WHERE key = 'syncing'")?.value;
    // Of what only others name, each of them sees to its own.
    const own = this.#list.seen().map((name) => this.get(name));
    const there = ownTriggers(this.#db);
    return own.every((table) => table && isWhole(this.#db, table, there.filter(isOn(table)))) && flag !== 1;
  }

  /** The configured tables that are not there, or as they are now cannot be synced: then it is said why. */
  missing(): { name: string; why: string | undefined }[] {
    return this.#list.seen().flatMap((name) => {
      const table = this.get(name);
      if (table && tableExists(this.#db, table.name)) return [];
      return { name, why: tableExists(this.#db, name) ? this.#lost.get(fold(name)) : undefined };
    });
  }

  /** Looks after who else names tables, and takes out what was kept for one that is dead. On every tick. */
  watch(isQuiet: boolean): void {
    if (this.#naming?.watch(isQuiet) || this.otherBuilds.isDue()) this.#refreshTriggers();
  }

  /** In a transaction: its tables are its own no more; the triggers stay. */
  leave(): void {
    this.#naming?.leave();
  }

  /** Takes the triggers away, but from tables that others are there for. */
  async uninstall(): Promise<void> {
    const held = (await this.#naming?.heldByOthers()) ?? new Set();
    const take = (): void => {
      const free = ownTriggers(this.#db).filter(({ tbl_name }) => !held.has(fold(tbl_name)));
      dropTriggers(this.#db, free);
      for (const { name } of this.list()) if (!held.has(fold(name))) noteCaptureOff(this.#db, name);
    };
    this.#db.patiently(() => this.#db.transaction(take));
  }

  /** Those on which another build's triggers are not left for now. */
  #withoutLeft(tables: Table[], there: OwnTrigger[]): Table[] {
    this.otherBuilds.begin();
    const before = (table: Table): Table | undefined => this.#tables.get(fold(table.name));
    return tables.filter((table) => !this.otherBuilds.leaves(before(table), table, there.filter(isOn(table))));
  }

  #currentVersion(): number {
    return Number(this.#db.get('PRAGMA main.schema_version')?.schema_version);
  }

  #markVerified(): void {
    this.#schemaVersion = this.#currentVersion();
    noteVerifiedSchema(this.#db, this.#schemaVersion);
    this.hasForeignKeys = hasForeignKeys(this.#db);
    this.#verifiedUpTo = Number(this.#db.get('SELECT coalesce(max(change_id), 0) AS n FROM main._changes')?.n);
  }
}
