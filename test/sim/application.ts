/** The application: what it writes, in plain SQL, and what it can rely on after each of its commits. */
import type { WireRow } from '../support/model.ts';
import type { Checks } from './checks.ts';
import { rebuildSql, type TableName } from './disk.ts';
import { Lineage } from './journal.ts';
import { isDiskTrouble, type Machine, type Surroundings } from './machine.ts';
import {
  DROP,
  dropsColumn,
  hasOldColumn,
  migrationFor,
  NEW_COLUMN,
  OLD_COLUMN,
  ownStatements,
  SAID_TO_BE_DROPPED,
  spelt,
  tableOn,
  unsaidIn,
} from './migration.ts';
import { covers, isLetter } from './mixed.ts';
import { POISON } from './network.ts';
import { canonical, idIn, isAbove, isAtLeast, type Key, keyOf, tableIn, type Version } from './oracle.ts';
import { type Random, stream } from './random.ts';
import {
  columnsOf,
  hiddenOn,
  isCaptured,
  knowsNewColumn,
  rowsOf,
  rowsOn,
  versionOn,
  withoutNewColumn,
} from './rows.ts';

type Param = string | number | bigint | null | Uint8Array;

interface Statement {
  what: string;
  sql: string;
  params: Param[];
}

/** A write that was committed: it counts, unless a power cut has taken it back. */
export interface Write {
  key: Key;
  version: Version;
  lost: boolean;
  /** It was recorded by triggers from before the migration, and went out without the new column: see `captured`. */
  behind?: boolean;
}

/** Through which connection the application writes. */
interface Connection {
  exec(sql: string): void;
  prepare(sql: string): { run(...params: Param[]): unknown };
}

const NAMES: Param[] = [
  null,
  '',
  'a',
  'b',
  "it's",
  'grüße',
  '$blob:00',
  '$text:x',
  'a\0b',
  '"\\\n',
  new Uint8Array([0, 255]),
];
const VALUES: Param[] = [null, 0n, 1n, -5n, 9_007_199_254_740_993n, -9_223_372_036_854_775_808n, 'twelve', 2.5];
const SCORES: Param[] = [null, 0.25, -1.5, 0.001, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
const ANYTHING: Param[] = [
  null,
  7n,
  0.5,
  'text',
  '$real:1',
  9_007_199_254_740_993n,
  Number.POSITIVE_INFINITY,
  new Uint8Array([1, 2]),
];

const ITEM = 'INTO items (id, name, value, score, anything, updated_at) VALUES (?, ?, ?, ?, ?, ?)';
const SHORTER_ITEM = 'INTO items (id, name, value, anything, updated_at) VALUES (?, ?, ?, ?, ?)';
const NOTE = 'INTO notes (id, item_id, body, updated_at) VALUES (?, ?, ?, ?)';
const PERSON = 'INTO people (id, email, nick, gone, updated_at) VALUES (?, ?, ?, ?, ?)';

const EMAILS: Param[] = ['ann@x', 'Ann@X', 'bob@x', 'BOB@x', 'cy@x', null];
const NICKS: Param[] = ['p', 'q', 'r', null];
const GONE: Param[] = [null, null, null, 1];

/** The id of the row that all write at one time. */
export const TIE = 'tie';

export class Application {
  /** Everything that was ever committed, in the order of the commits. */
  readonly writes: Write[] = [];
  /** What each of these had seen. */
  readonly lineage = new Lineage();
  readonly #world: Surroundings;
  readonly #checks: Checks;
  readonly #skip: Set<number>;

  constructor(world: Surroundings, checks: Checks, skip: number[]) {
    this.#world = world;
    this.#checks = checks;
    this.#skip = new Set(skip);
  }

  /** Somebody gives up a value that another row waits for, in a transaction of its own. */
  setFree(machine: Machine, index: number): void {
    if (this.#skip.has(index) || !machine.process || machine.held) return;
    const random = stream(this.#world.plan.seed, 'free', index);
    this.#transaction(machine, index, random, machine.process.handle, 'commit', () => {
      const [statement] = settingFree(machine, random);
      return statement ? [statement] : [];
    });
  }

  /** What others write at the same time to the same row, in the words of this machine. */
  tie(machine: Machine, index: number, time: number): void {
    if (this.#skip.has(index) || !machine.process || machine.held) return;
    const random = stream(this.#world.plan.seed, 'tie', index);
    this.#transaction(machine, index, random, machine.process.handle, 'commit', () => {
      // By the column another one wins than without it.
      const place = random.chance(0.8) ? index % 3 : random.below(3);
      const row = tieOf(machine, place);
      const columns = ['id', 'updated_at', ...Object.keys(row)];
      const sql = `INSERT OR IGNORE INTO items (${columns}) VALUES (${columns.map(() => '?')})`;
      return [{ what: 'all write tie', sql, params: [TIE, BigInt(time), ...Object.values(row)] }];
    });
  }

  /** A row that is wanted is written anew. False where that cannot be done now. */
  renew(machine: Machine, key: Key): boolean {
    if (!machine.process || machine.held || machine.disk.inTransaction) return false;
    const random = stream(this.#world.plan.seed, 'renew', key);
    // One that another one hides is inserted with its id and without the value of which there can be one only.
    const sql = hiddenOn(machine.disk).has(key)
      ? 'INSERT OR IGNORE INTO people (updated_at, id) VALUES (?, ?)'
      : `UPDATE ${tableIn(key)} SET updated_at = ? WHERE id = ?`;
    const statement = (): Statement => ({ what: `renew ${key}`, sql, params: [BigInt(machine.now()), idIn(key)] });
    this.#transaction(machine, 3_000, random, machine.process.handle, 'commit', () => [statement()]);
    return true;
  }

  /** Some row goes, in a transaction of its own. */
  remove(machine: Machine, index: number): void {
    if (this.#skip.has(index) || !machine.process || machine.held) return;
    const random = stream(this.#world.plan.seed, 'remove', index);
    this.#transaction(machine, index, random, machine.process.handle, 'commit', () => {
      const keys = [...rowsOn(machine.disk).keys()];
      if (keys.length === 0) return [];
      const key = random.pick(keys);
      return [{ what: `delete ${key}`, sql: `DELETE FROM ${tableIn(key)} WHERE id = ?`, params: [idIn(key)] }];
    });
  }

  /** Transaction number `index`, on one of the machines. */
  write(machine: Machine, index: number): void {
    if (this.#skip.has(index) || !machine.process || machine.held) return;
    const random = stream(this.#world.plan.seed, 'write', index);
    const { faults } = this.#world.plan;
    if (faults['other-process'] !== undefined && random.chance(0.3)) {
      machine.intruder = () => this.#transaction(machine, index, random, machine.disk, 'commit');
      return;
    }
    const ending = random.chance(0.12)
      ? 'rollback'
      : faults.held !== undefined && random.chance(0.2)
        ? 'held'
        : 'commit';
    this.#transaction(machine, index, random, machine.process.handle, ending);
  }

  #transaction(
    machine: Machine,
    index: number,
    random: Random,
    connection: Connection,
    ending: 'commit' | 'rollback' | 'held',
    statements = () => this.#statements(random, machine),
  ): void {
    const { disk } = machine;
    if (disk.inTransaction) return;
    this.#checks.beforeWrite(machine);
    disk.setClock(machine.now());
    const written: Omit<Write, 'lost'>[] = [];
    let before = rowsOn(disk);
    let rows = before;
    /** Before this transaction's own; unknown until it has begun. */
    let commits: number | undefined;
    const { cuts } = machine;
    const trace = (what: string): void => this.#world.trace(`${machine.name} write ${index}: ${what}`);
    try {
      connection.exec('BEGIN IMMEDIATE');
      // Another process may have come in between.
      before = rowsOn(disk);
      rows = before;
      commits = disk.commits;
      for (let i = 1 + random.below(3); i > 0; i--) {
        for (const statement of statements()) {
          trace(statement.what);
          connection.prepare(spelt(disk, statement.sql)).run(...statement.params);
          const now = rowsOn(disk);
          written.push(...difference(rows, now));
          rows = now;
        }
      }
      if (ending === 'commit' && this.#failsHalfway(machine, index, connection, trace)) {
        written.push(...difference(rows, rowsOn(disk)));
      }
      if (ending === 'held') {
        this.#hold(machine, index, random, connection, written, before);
        return;
      }
      connection.exec(ending === 'commit' ? 'COMMIT' : 'ROLLBACK');
    } catch (error) {
      if (this.#hasFailed(machine, connection, error)) {
        trace('failed');
        if (commits !== undefined) this.#checks.nothingWritten(machine, before);
        return;
      }
      // It has died: in the middle, and nothing of this was ever there, or after the commit.
      if (commits === undefined || disk.commits === commits || machine.cuts > cuts) return;
    }
    if (ending === 'rollback') this.#checks.nothingWritten(machine, before);
    else this.#committed(machine, index, written);
  }

  /**
   * The last statement fails in the middle under OR FAIL: what it has written until then is kept, and the application
   * commits it. Not where triggers are missing, which is a question of its own.
   */
  #failsHalfway(machine: Machine, index: number, connection: Connection, trace: (what: string) => void): boolean {
    const { seed, faults, ids } = this.#world.plan;
    const { disk } = machine;
    const random = stream(seed, 'halfway', index);
    if (faults.halfway === undefined || !random.chance(faults.halfway) || machine.unseen.size > 0) return false;
    const { what, sql, params } = halfway(machine, random, ids);
    try {
      connection.prepare(spelt(disk, sql)).run(...params);
    } catch (error) {
      if (!String((error as { code?: unknown }).code).startsWith('SQLITE_CONSTRAINT')) throw error;
      trace(`${what}, and fails`);
    }
    return true;
  }

  /** The transaction stays open while other things happen, as a careless application's does. */
  #hold(
    machine: Machine,
    index: number,
    random: Random,
    connection: Connection,
    written: Omit<Write, 'lost'>[],
    before: Map<Key, WireRow>,
  ): void {
    const { process, disk, cuts } = machine;
    machine.held = true;
    const commit = random.chance(0.7);
    this.#world.timeline.in(this.#world.plan.scale * (10 + random.below(600)), () => {
      if (process?.dead) return;
      const { commits } = disk;
      try {
        connection.exec(commit ? 'COMMIT' : 'ROLLBACK');
      } catch (error) {
        if (this.#hasFailed(machine, connection, error)) {
          machine.held = false;
          this.#checks.nothingWritten(machine, before);
          return;
        }
      }
      machine.held = false;
      if (disk.commits > commits && machine.cuts === cuts) this.#committed(machine, index, written);
    });
  }

  /** True where the application has been told that it failed and goes on; false where it is no more. */
  #hasFailed(machine: Machine, connection: Connection, error: unknown): boolean {
    if (!machine.process && connection !== machine.disk) return false;
    const code = String((error as { code?: unknown }).code);
    if (!isDiskTrouble(error) && !code.startsWith('SQLITE_CONSTRAINT')) throw error;
    if (machine.disk.inTransaction) machine.disk.exec('ROLLBACK');
    return true;
  }

  #committed(machine: Machine, index: number, all: Omit<Write, 'lost'>[]): void {
    const unseen = all.filter(({ key }) => machine.unseen.has(tableIn(key)));
    for (const { key, version } of unseen) this.#checks.unseen(machine, key, version);
    for (const table of new Set(unseen.map(({ key }) => tableIn(key)))) machine.noteUnseen(table);
    const behind = hasNewColumn(machine) && !knowsNewColumn(machine.disk);
    const written = all.filter((write) => !unseen.includes(write)).map((write) => ({ ...write, behind }));
    for (const write of written) {
      const had = machine.versions.get(write.key);
      if (!isAbove(write.version, had)) this.#checks.notAdvanced(machine, index, write.key, had, write.version);
      this.lineage.note(write.key, write.version, had);
      machine.versions.merge(write.key, write.version);
      // That is what it tells the others.
      if (behind) machine.versions.merge(write.key, withoutNewColumn(write.version));
      this.#count(machine, write);
    }
    this.#checks.captured(machine, index, written);
  }

  #count(machine: Machine, write: Omit<Write, 'lost'>): void {
    const record = { ...write, lost: false };
    this.writes.push(record);
    this.#checks.counted(write.key, write.version);
    machine.notDurable.push(record);
  }

  /** A table is made anew and takes the place of the old one, which had the triggers; then somebody writes to it. */
  rebuild(machine: Machine, random: Random): void {
    const { disk } = machine;
    if (machine.kind === 'hub' || !machine.ready || disk.inTransaction) return;
    const table: TableName = random.pick(['items', 'items', 'notes']);
    try {
      for (const sql of rebuildSql(disk, table)) disk.exec(sql);
    } catch (error) {
      if (!isDiskTrouble(error)) throw error;
      if (disk.inTransaction) disk.exec('ROLLBACK');
      disk.connect();
      return;
    }
    this.#world.trace(`${machine.name}: ${table} is rebuilt`);
    machine.touched = true;
    machine.noteUnseen(table);
    for (let i = random.below(4); i > 0; i--) this.#transaction(machine, 1_000 + i, random, disk, 'commit');
    if (random.chance(0.4))
      this.#transaction(machine, 1_000, random, disk, 'commit', () => deletionOf(machine, table, random));
  }

  /** What nobody has captured has now been seen: from here on it counts like any other write, deletions apart. */
  seenAgain(machine: Machine, table: TableName, before: Map<Key, WireRow>): void {
    const now = rowsOf(machine.disk, table);
    this.#world.trace(`${machine.name}: ${table} is captured again`);
    this.#checks.seenAgain(machine, table, before, now);
    for (const key of machine.versions.rows().keys()) {
      if (tableIn(key) !== table || now.has(key)) continue;
      // Deleted unseen. A tombstone from before is there all the same, and what it covers does not come back.
      const buried = versionOn(machine.disk, table, idIn(key));
      if (buried) machine.versions.set(key, buried);
      else machine.versions.forget(key);
    }
    for (const { key, version } of difference(wholeOn(machine, machine.versions.rows()), now)) {
      if (tableIn(key) !== table || version.isDelete) continue;
      this.#checks.unseen(machine, key, version);
      // What nobody has said may be what making the table anew has left, and be filled in.
      const behind = hasNewColumn(machine) && version.row[NEW_COLUMN] === unsaidIn(machine.disk.migration);
      // What is kept of the column until it is there was given as well.
      const isGiven = (one: Version): boolean => behind || isLetter(machine, key, one);
      const earlier = machine.versions.history(key).filter((one) => isGiven(one) && covers(machine, key, version, one));
      machine.versions.set(key, version);
      for (const one of earlier) machine.versions.merge(key, one);
      if (behind) machine.versions.merge(key, withoutNewColumn(version));
      this.#count(machine, { key, version, behind });
    }
  }

  /**
   * The schema of a node becomes the newer one, by the application's own statements or by `migrate`. False where that could
   * not be done now.
   */
  migrate(machine: Machine): boolean {
    const { disk } = machine;
    const { migration } = this.#world.plan;
    if (disk.inTransaction || machine.held || machine.restarting) return false;
    // A name that no trigger has is no name that a column had before: whoever does this has to tell `migrate` of it.
    if (migration === 'alter-rename' && (!machine.hasCaptured('items') || machine.unseen.has('items'))) return false;
    const given = migrationFor(migration);
    if (given) return this.#migrateBy(machine, () => machine.process?.migrate(given.sql, given.options));
    if (migration === 'rebuild-drop' && this.#dropByItself(machine)) return true;
    try {
      const doing = migration === 'rebuild-drop' ? 'dropping' : 'adding';
      for (const sql of ownStatements(migration, rebuildSql(disk, 'items', doing))) disk.exec(sql);
    } catch (error) {
      if (!isDiskTrouble(error)) throw error;
      if (disk.inTransaction) disk.exec('ROLLBACK');
      disk.connect();
      return false;
    }
    machine.noteSchema();
    machine.touched = true;
    // Where the table is without triggers already, its rows from before they come back are those with the new column.
    const unseen = migration === 'rebuild' || migration === 'rebuild-drop' || machine.unseen.has('items');
    if (unseen && machine.ready) machine.noteUnseen('items');
    return true;
  }

  /** Only where no trigger of ours is on the table: otherwise SQLite says that one names the column. */
  #dropByItself(machine: Machine): boolean {
    const { disk } = machine;
    const isNamed = isCaptured(disk, 'items');
    try {
      disk.exec(DROP);
    } catch (error) {
      const isRefused = isNamed && String(error).includes('error in trigger');
      if (!isRefused && !isDiskTrouble(error)) throw error;
      return false;
    }
    if (isNamed) this.#checks.fail(`${machine.name}: a column that triggers name could be dropped`);
    machine.noteSchema();
    machine.touched = true;
    if (machine.ready) machine.noteUnseen('items');
    return true;
  }

  /** A column that was dropped in such a way is missed, in letters, until somebody says that it will not come. */
  sayDropped(machine: Machine): void {
    const { disk, process } = machine;
    if (disk.inTransaction || machine.held || machine.restarting || machine.unseen.size > 0) return;
    try {
      process?.migrate('', SAID_TO_BE_DROPPED);
    } catch (error) {
      if (!process?.dead && !isDiskTrouble(error)) throw error;
    }
    machine.touched = true;
  }

  /** What it has written counts like any other write, and is as complete. */
  #migrateBy(machine: Machine, act: () => void): boolean {
    const { disk, process } = machine;
    if (!process || process.dead || !machine.ready || machine.unseen.size > 0) return false;
    this.#checks.beforeWrite(machine);
    disk.setClock(machine.now());
    const before = new Map(rowsOn(disk));
    const counted = this.writes.length;
    try {
      act();
    } catch (error) {
      if (!process.dead && !isDiskTrouble(error)) throw error;
      // It may have died after the commit.
      machine.noteSchema();
      if (!machine.migrated) return false;
    }
    machine.noteSchema();
    // Another process may have come in between: what it wrote has been counted, and is what the migration has found.
    for (const { key, version } of this.writes.slice(counted)) {
      if (version.isDelete) before.delete(key);
      else before.set(key, version.row);
    }
    // What was given with the new column, at the version that the row had here without it, is filled in now: the row
    // becomes what it was given, and no other. With the column a tie may be decided for another of the same time.
    const isFilledIn = ({ key, version }: Omit<Write, 'lost'>): boolean => {
      const newest = machine.versions.get(key);
      const isTie = (one: Version): boolean => one.updatedAt === newest?.updatedAt && !newest.isDelete;
      const given = machine.versions.history(key).filter((one) => newest && (isAtLeast(one, newest) || isTie(one)));
      return given.some((one) => one.isDelete === version.isDelete && canonical(one.row) === canonical(version.row));
    };
    const written = difference(wholeOn(machine, before), rowsOn(disk)).filter((write) => !isFilledIn(write));
    this.#committed(machine, -2, written);
    return true;
  }

  /**
   * Another implementation writes: to the table, with its own capture and not ours, and to `_changes` as it knows it,
   * without a number and without the name of a table. Or a person gives a row to the peers once more in that way.
   */
  foreign(machine: Machine, random: Random): void {
    const { disk } = machine;
    if (machine.kind === 'hub' || !machine.ready || machine.unseen.size > 0 || disk.inTransaction) return;
    const id = `i${random.below(this.#world.plan.ids)}`;
    const key = keyOf('items', id);
    const again = random.chance(0.3);
    if (again && !rowsOn(disk).has(key)) return;
    this.#checks.beforeWrite(machine);
    disk.setClock(machine.now());
    const time = Math.max(machine.now(), (machine.versions.get(key)?.updatedAt ?? 0) + 1);
    const values = [random.pick(NAMES), random.pick(VALUES), random.pick(SCORES), random.pick(ANYTHING)];
    let row: WireRow | undefined;
    try {
      disk.exec('BEGIN IMMEDIATE');
      if (!again) {
        disk.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
        disk.prepare(`INSERT OR REPLACE ${ITEM}`).run(id, ...values, time);
        disk.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
      }
      row = rowsOn(disk).get(key) as WireRow;
      const sql = 'INSERT INTO _changes (op, row_id, row_data) VALUES (?, ?, ?)';
      disk.prepare(sql).run(random.pick(['INSERT', 'UPDATE']), id, JSON.stringify(row));
      disk.exec('COMMIT');
    } catch (error) {
      if (!isDiskTrouble(error)) throw error;
      if (disk.inTransaction) disk.exec('ROLLBACK');
      return;
    }
    this.#world.trace(`${machine.name}: another implementation records ${id}`);
    const written = { key, version: { updatedAt: Number(row.updated_at), isDelete: false, row } };
    if (again) this.#checks.captured(machine, -1, [written]);
    else this.#committed(machine, -1, [written]);
  }

  /** One, or those that belong together. */
  #statements(random: Random, machine: Machine): Statement[] {
    const { uniques, ids } = this.#world.plan;
    if (!uniques || random.chance(0.25)) return [this.#statement(random, machine)];
    return this.#ofPeople(random, machine, `p${random.below(ids)}`, `p${random.below(ids)}`);
  }

  /** Where values must be unique. A statement that meets the constraint fails with its transaction, or is made to pass. */
  #ofPeople(random: Random, machine: Machine, id: string, other: string): Statement[] {
    const person = [random.pick(EMAILS), random.pick(NICKS), random.pick(GONE)];
    const time = this.#time(random, machine, keyOf('people', id));
    const one = (what: string, sql: string, ...params: Param[]): Statement[] => [{ what, sql, params }];
    const or = random.pick(['', 'OR IGNORE', 'OR IGNORE', 'OR REPLACE']);
    const freeing = random.chance(0.15) ? settingFree(machine, random) : [];
    if (freeing.length > 0) return freeing;
    switch (random.below(9)) {
      case 0:
      case 1:
      case 2:
        return one(`insert ${or} ${id}`, `INSERT ${or} ${PERSON}`, id, ...person, time);
      case 3: {
        const set =
          'email = excluded.email, nick = excluded.nick, gone = excluded.gone, updated_at = excluded.updated_at';
        return one(
          `upsert ${id}`,
          `INSERT ${PERSON} ON CONFLICT (id) DO UPDATE SET ${set} ON CONFLICT DO NOTHING`,
          ...[id, ...person, time],
        );
      }
      case 4:
        return one(
          `e-mail ${or} ${id}`,
          `UPDATE ${or} people SET email = ?, updated_at = ? WHERE id = ?`,
          person[0] as Param,
          time,
          id,
        );
      case 5:
        return one(
          `nick ${or} ${id}`,
          `UPDATE ${or} people SET nick = ?, gone = ? WHERE id = ?`,
          person[1] as Param,
          person[2] as Param,
          id,
        );
      case 6:
        return one(`delete ${id}`, 'DELETE FROM people WHERE id = ?', id);
      case 7:
        return one(`rename ${id} to ${other}`, 'UPDATE OR IGNORE people SET id = ? WHERE id = ?', other, id);
      default:
        return swapped(rowsOn(machine.disk), id, other, time);
    }
  }

  #statement(random: Random, machine: Machine): Statement {
    const { plan } = this.#world;
    const id = `i${random.below(plan.ids)}`;
    const other = `i${random.below(plan.ids)}`;
    const note = `n${random.below(plan.ids)}`;
    const name = plan.faults.poison !== undefined && random.chance(0.15) ? POISON : random.pick(NAMES);
    const [value, score, anything] = [random.pick(VALUES), random.pick(SCORES), random.pick(ANYTHING)];
    const isShorter = !hasOldColumn(machine.disk);
    const item: Param[] = isShorter ? [name, value, anything] : [name, value, score, anything];
    const into = isShorter ? SHORTER_ITEM : ITEM;
    const time = this.#time(random, machine, keyOf('items', id));
    const statement = (what: string, sql: string, ...params: Param[]): Statement => ({ what, sql, params });
    if (hasNewColumn(machine) && random.chance(0.4)) {
      const extra = random.pick(['x', 'y', 'z', null]) ?? unsaidIn(plan.migration);
      return statement(
        `extra ${id}`,
        `UPDATE items SET ${NEW_COLUMN} = ?, updated_at = ? WHERE id = ?`,
        extra,
        time,
        id,
      );
    }
    // Where deletions are forgotten there must be some.
    if (plan.forgets && random.chance(0.2)) return statement(`delete ${id}`, 'DELETE FROM items WHERE id = ?', id);
    // Where notes refer to items there are more of them, so that one often arrives before what it refers to.
    const kind = random.below(14);
    switch (plan.foreignKeys && random.chance(0.4) ? 12 : kind) {
      case 0:
      case 1:
        return statement(`insert ${id}`, `INSERT ${into}`, id, ...item, time);
      case 2:
        return statement(`insert or ignore ${id}`, `INSERT OR IGNORE ${into}`, id, ...item, time);
      case 3:
        return statement(`replace ${id}`, `INSERT OR REPLACE ${into}`, id, ...item, time);
      case 4:
      case 5: {
        const set = 'ON CONFLICT (id) DO UPDATE SET name = excluded.name, updated_at = excluded.updated_at';
        return statement(`upsert ${id}`, `INSERT ${into} ${set}`, id, ...item, time);
      }
      case 6:
      case 7:
        return statement(`update ${id}`, 'UPDATE items SET name = ?, updated_at = ? WHERE id = ?', name, time, id);
      case 8:
        return statement(`update ${id}, no time`, 'UPDATE items SET value = ? WHERE id = ?', value, id);
      case 9:
        return statement(`delete ${id}`, 'DELETE FROM items WHERE id = ?', id);
      case 10:
        return statement(`rename ${id} to ${other}`, 'UPDATE OR IGNORE items SET id = ? WHERE id = ?', other, id);
      case 11:
        return statement('update several', 'UPDATE items SET value = coalesce(value, 0) + 1 WHERE id >= ?', id);
      case 12:
        return statement(`replace note ${note}`, `INSERT OR REPLACE ${NOTE}`, note, id, String(name ?? ''), time);
      default:
        return random.chance(0.5)
          ? statement(`delete note ${note}`, 'DELETE FROM notes WHERE id = ?', note)
          : statement(
              `update note ${note}`,
              'UPDATE notes SET item_id = ?, updated_at = ? WHERE id = ?',
              other,
              time,
              note,
            );
    }
  }

  /** Mostly the machine's own time; now and then what careless applications write. */
  #time(random: Random, machine: Machine, key: Key): Param {
    const now = machine.now();
    const kind = random.below(18);
    // A row that is new and says that it is older than what was forgotten is set aside elsewhere, and rightly.
    if (this.#world.plan.forgets && (kind === 4 || kind === 5)) return BigInt(now);
    switch (kind) {
      case 5:
        // As if time had been counted from another beginning.
        return BigInt(900 + random.below(200));
      case 0:
        return null;
      case 1:
        return 'soon';
      case 2:
        return BigInt(now - 1 - random.below(5_000));
      case 3:
        return BigInt(now + 60_000);
      case 4:
        return BigInt(machine.versions.get(key)?.updatedAt ?? now);
      default:
        return BigInt(now);
    }
  }
}

/** By the column that not all have, another one of the three wins than without it. */
function tieOf(machine: Machine, place: number): Record<string, Param> {
  if (dropsColumn(machine.disk.migration))
    return { value: BigInt(3 - place), ...(hasOldColumn(machine.disk) && { [OLD_COLUMN]: place + 0.5 }) };
  return { name: 'cba'.charAt(place), ...(hasNewColumn(machine) && { [NEW_COLUMN]: 'xyz'.charAt(place) }) };
}

function hasNewColumn({ disk }: Machine): boolean {
  return columnsOf(disk, 'items').includes(NEW_COLUMN);
}

/** Rows as a migration leaves them that only adds a column. */
function wholeOn(machine: Machine, rows: Map<Key, WireRow>): Map<Key, WireRow> {
  if (!hasNewColumn(machine)) return rows;
  const whole = (key: Key, row: WireRow): WireRow =>
    tableIn(key) === 'items' ? { [NEW_COLUMN]: unsaidIn(machine.disk.migration), ...row } : row;
  return new Map([...rows].map(([key, row]) => [key, whole(key, row)]));
}

/** Takes a row away, rather one that the peers are still to be told of. */
function deletionOf({ disk }: Machine, table: TableName, random: Random): Statement[] {
  const sql = `SELECT DISTINCT row_id AS id FROM _changes WHERE table_name = ? AND row_id IN (SELECT id FROM ${table})`;
  const waiting = disk.all(spelt(disk, sql), tableOn(disk, table));
  const rows = waiting.length > 0 ? waiting : disk.all(spelt(disk, `SELECT id FROM ${table} ORDER BY id`));
  const id = rows[random.below(Math.max(1, rows.length))]?.id;
  return id === undefined
    ? []
    : [{ what: `delete ${id}`, sql: `DELETE FROM ${table} WHERE id = ?`, params: [String(id)] }];
}

/** The row that keeps another one hidden goes, or gives up what the other waits for. */
function settingFree({ disk }: Machine, random: Random): Statement[] {
  const blockers = disk.all('SELECT blocked_by AS id FROM _hidden WHERE blocked_by IS NOT NULL ORDER BY row_id');
  const id = blockers[random.below(Math.max(1, blockers.length))]?.id;
  if (id === undefined) return [];
  const sql = random.chance(0.5)
    ? 'DELETE FROM people WHERE id = ?'
    : 'UPDATE people SET email = NULL, nick = NULL WHERE id = ?';
  return [{ what: `${id} makes room`, sql, params: [String(id)] }];
}

/** The second row of it clashes with the first: one that is new, or two that are there, of which one is to get the other's id. */
function halfway(machine: Machine, random: Random, ids: number): Statement {
  const there = [...rowsOn(machine.disk).keys()].filter((key) => tableIn(key) === 'items').map(idIn);
  const absent = Array.from({ length: ids }, (_, i) => `i${i}`).filter((id) => !there.includes(id));
  const time = BigInt(machine.now());
  const value = random.pick(VALUES);
  if (absent.length > 0 && (there.length < 2 || random.chance(0.6))) {
    const id = random.pick(absent);
    const sql = 'INSERT OR FAIL INTO items (id, value, updated_at) VALUES (?, ?, ?), (?, ?, ?)';
    return { what: `insert ${id} twice`, sql, params: [id, value, time, id, value, time] };
  }
  const [first, second] = [there[0] ?? '', there.at(-1) ?? ''];
  const sql = 'UPDATE OR FAIL items SET value = ?, updated_at = ?, id = iif(id = ?, ?, id) WHERE id IN (?, ?)';
  return { what: `${second} becomes ${first}`, sql, params: [value, time, second, first, first, second] };
}

/** Two people take each other's nicknames, in one transaction and by way of none. */
function swapped(rows: Map<Key, WireRow>, a: string, b: string, time: Param): Statement[] {
  const [nickA, nickB] = [a, b].map((id) => (rows.get(keyOf('people', id))?.nick ?? null) as Param) as [Param, Param];
  const set = (id: string, nick: Param): Statement => ({
    what: `swap: ${id} gets ${nick}`,
    sql: 'UPDATE OR IGNORE people SET nick = ?, updated_at = ? WHERE id = ?',
    params: [nick, time, id],
  });
  return [set(a, null), set(b, nickA), set(a, nickB)];
}

/** What one statement has done, as versions. */
function difference(before: Map<Key, WireRow>, after: Map<Key, WireRow>): Omit<Write, 'lost'>[] {
  const written: Omit<Write, 'lost'>[] = [];
  for (const [key, row] of before) {
    if (!after.has(key)) {
      written.push({ key, version: { updatedAt: Number(row.updated_at), isDelete: true, row } });
    }
  }
  for (const [key, row] of after) {
    const old = before.get(key);
    if (old && canonical(old) === canonical(row)) continue;
    written.push({ key, version: { updatedAt: Number(row.updated_at), isDelete: false, row } });
  }
  return written;
}
