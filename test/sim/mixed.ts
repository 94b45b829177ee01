/**
 * What a machine must have, whatever its schema is. Nodes with different schemas compare a row by the columns that they
 * know; of those that they do not know they keep a letter until they do. A row may then be put together from two: its
 * columns from one write, what that one did not speak of from another.
 */
import { versionOf, type WireRow } from '../support/model.ts';
import { floorOn } from './days.ts';
import type { TableName } from './disk.ts';
import type { Machine } from './machine.ts';
import { dropsColumn, NEW_COLUMN, tableOn, unsaidIn } from './migration.ts';
import { canonical, compareWithin, describe, idIn, isAtLeast, type Key, tableIn, type Version } from './oracle.ts';
import { columnsOf, knowsNewColumn, rowsOn, versionOn, versionOnHub } from './rows.ts';

/** The steps by which the version of a row may be above that of the write that it is: see `Retry`. */
const STEPS = 5;

export function versionOnMachine({ kind, disk }: Machine, table: TableName, id: string): Version | undefined {
  return kind === 'hub' ? versionOnHub(disk, table, id) : versionOn(disk, table, id);
}

/** The same; and where it was deleted, and its tombstone was collected, that. */
export function versionEverOn(machine: Machine, table: TableName, id: string): Version | undefined {
  const has = versionOnMachine(machine, table, id);
  if (has) return has;
  const known = machine.versions.get(`${table}/${id}`);
  return known?.isDelete && known.updatedAt <= floorOn(machine, table) ? known : undefined;
}

/** Is `has`, which is what the machine has of a row, that version or a newer one? */
export function covers(machine: Machine, key: Key, known: Version | undefined, version: Version): boolean {
  if (!known) return false;
  const has = asOn(machine, key, known);
  if (has.isDelete || version.isDelete || has.updatedAt !== version.updatedAt) return isAtLeast(has, version);
  // One that was told without the column, and stood without it: when it was decided once more, it had nothing in it.
  const later = NEW_COLUMN in has.row && !(NEW_COLUMN in version.row);
  if (later && compareWithin(has, version, Object.keys(has.row)) >= 0) return true;
  // A hub has no schema: what it was never told of counts as nothing.
  if (machine.kind === 'hub') return compareWithin(has, version, Object.keys(version.row)) >= 0;
  const unknown = NEW_COLUMN in version.row && !(NEW_COLUMN in has.row);
  if (isAtLeast(has, version) && !unknown) return true;
  // It has lost here without the column, or was taken without it; when the column is there, it is decided once more.
  return NEW_COLUMN in version.row && lettersOf(machine, key).some((letter) => isAtLeast(letter, version));
}

/** What a node was told without the column has, once the column is there, nothing but the default in it. */
function asOn({ kind, disk }: Machine, key: Key, version: Version): Version {
  const isWhole = kind === 'hub' || version.isDelete || NEW_COLUMN in version.row || tableIn(key) !== 'items';
  if (isWhole || !columnsOf(disk, 'items').includes(NEW_COLUMN)) return version;
  return { ...version, row: { [NEW_COLUMN]: unsaidIn(disk.migration), ...version.row } };
}

/** What a node keeps of columns that it does not have, or has not had when it was told of them. */
function lettersOf({ disk }: Machine, key: Key): Version[] {
  const sql =
    'SELECT d.row_data AS row FROM _dead_letter AS d JOIN _dead_letter_info AS i USING (dead_id) ' +
    "WHERE i.code = 'unknown-column' AND i.table_name = ? AND d.row_id = ?";
  const found = disk.all(sql, tableOn(disk, tableIn(key)), idIn(key));
  return found.map(({ row }) => versionOf({ op: 'UPDATE', table: '', row: JSON.parse(String(row)), old_id: null }));
}

/** Does a node whose schema has changed know it, and has it nothing left that it kept for it? */
export function hasFilledIn({ disk }: Machine): boolean {
  const kept = "SELECT 1 FROM _dead_letter_info WHERE code = 'unknown-column'";
  return knowsNewColumn(disk) && disk.all(kept).length === 0;
}

/** Does a node keep just that until it has the column? */
export function isLetter(machine: Machine, key: Key, { isDelete, row }: Version): boolean {
  return !isDelete && lettersOf(machine, key).some((letter) => canonical(letter.row) === canonical(row));
}

/** Undefined where a node has everything that it was given, and nothing else. */
export function notAsGiven(machine: Machine): string | undefined {
  const rows = rowsOn(machine.disk);
  for (const [key, given] of machine.versions.histories()) {
    if (machine.unseen.has(tableIn(key))) continue;
    const row = rows.get(key);
    const has = row ? versionIn(row) : versionEverOn(machine, tableIn(key), idIn(key));
    const missed = given.find((version) => !covers(machine, key, has, version));
    if (missed) return `${key}: it was given ${describe(missed)}, and has ${describe(has)}`;
    if (has && !has.isDelete && !isOf(has, given, machine, key)) return `${key}: nobody has given it ${describe(has)}`;
  }
  for (const [key, row] of rows) {
    if (machine.unseen.has(tableIn(key)) || machine.versions.history(key).length > 0) continue;
    return `${key}: nobody has given it ${describe(versionIn(row))}`;
  }
  return undefined;
}

/** A change that no write has made tells the row as it is on this node, and nobody else has told it so. */
export function isPutTogether(machine: Machine, change: { table: TableName; id: string; version: Version }): boolean {
  const { table, id, version } = change;
  const key = `${table}/${id}`;
  const given = machine.versions.history(key);
  if (table !== 'items' || version.isDelete) return false;
  const isNews = !given.some((one) => !one.isDelete && canonical(one.row) === canonical(version.row));
  // What it fills in, others may fill in alike, and tell it so before anybody looks here. And with a column that its
  // sender has dropped, and that is still here, a row is no other in the columns that count.
  const isFine = isNews || machine.fillsIn || dropsColumn(machine.disk.migration);
  return isFine && isOf(version, given, machine, key);
}

/** Its columns are those of one version, the new one among them, or that is of another where the version had none. */
function isOf(has: Version, given: readonly Version[], machine: Machine, key: Key): boolean {
  const { [NEW_COLUMN]: extra, updated_at: _, ...known } = has.row;
  const unsaid = unsaidIn(machine.disk.migration);
  const told = (value: unknown): boolean =>
    value === unsaid || [...given, ...lettersOf(machine, key)].some(({ row }) => row[NEW_COLUMN] === value);
  return given.some(({ isDelete, updatedAt, row: { [NEW_COLUMN]: own, updated_at: __, ...others } }) => {
    if (isDelete || has.updatedAt < updatedAt || has.updatedAt > updatedAt + STEPS) return false;
    if (canonical(known) !== canonical(others)) return false;
    if (extra === undefined) return true;
    if (own === undefined) return told(extra);
    // That is what a migration leaves, until the value is filled in.
    return extra === own || (extra === unsaid && lettersOf(machine, key).length > 0);
  });
}

function versionIn(row: WireRow): Version {
  return versionOf({ op: 'UPDATE', table: '', row, old_id: null });
}
