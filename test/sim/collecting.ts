/**
 * When everything is over, a node collects its tombstones at moments of its own, and everything that it was ever sent
 * comes again, in another order, while its application deletes rows and gives old ids to new ones. No row that was
 * deleted here may come back by that.
 */

import { collect } from '../support/collect.ts';
import type { WireChange } from '../support/model.ts';
import { tablesOf } from './disk.ts';
import type { Machine } from './machine.ts';
import { spelt, tableNamed, tableOn } from './migration.ts';
import { type Key, keyOf } from './oracle.ts';
import type { Random } from './random.ts';
import { hiddenOn, rowsOn } from './rows.ts';

/** Batches that come again, at most. */
const REPEATED = 16;

/** What is wrong; undefined where nothing is. */
export function collectAndRepeat(
  machine: Machine,
  bodies: Map<string, WireChange[]>,
  random: Random,
): string | undefined {
  const deleted = deletionsOn(machine);
  const note = (key: Key, version: number): void => {
    deleted.set(key, Math.max(version, deleted.get(key) ?? version));
  };
  for (const text of repeated(bodies, random)) {
    if (random.chance(0.3)) deleteOne(machine, random, note);
    if (random.chance(0.2)) collectSome(machine, random);
    if (random.chance(0.15)) collectAroundADeletion(machine, random, note);
    if (random.chance(0.1)) giveOldId(machine, random, deleted);
    const status = machine.process?.receive(text);
    if (status !== 200) return `${machine.name} answers ${status} to what it has accepted before`;
    for (const { op, table, row, old_id } of bodies.get(text) ?? []) {
      if (op === 'DELETE') note(keyOf(table, String(old_id)), Number(row.updated_at));
    }
    const back = [...livingOn(machine)].find(([key, version]) => version <= (deleted.get(key) ?? -Infinity));
    if (back) return `${machine.name}: ${back[0]} was deleted at ${deleted.get(back[0])} and is back at ${back[1]}`;
  }
  return undefined;
}

/** Each of them may come more than once. */
function repeated(bodies: Map<string, WireChange[]>, random: Random): string[] {
  const texts = [...bodies.keys()];
  return [1, 2, 3].flatMap(() => random.shuffle(texts)).slice(0, REPEATED);
}

function deletionsOn({ disk }: Machine): Map<Key, number> {
  const found = disk.all('SELECT table_name, row_id, version FROM _tombstones');
  return new Map(
    found.map((line) => [keyOf(tableNamed(String(line.table_name)), String(line.row_id)), Number(line.version)]),
  );
}

/** Visible or hidden, with their versions. */
function livingOn({ disk }: Machine): Map<Key, number> {
  const rows = [...rowsOn(disk), ...hiddenOn(disk)];
  return new Map(rows.map(([key, row]) => [key, Number(row.updated_at)]));
}

/** The second time there is less to collect than the first time, and all of it is further down. */
function collectAroundADeletion(machine: Machine, random: Random, note: (key: Key, version: number) => void): void {
  collectSome(machine, random, true);
  deleteOne(machine, random, note, true);
  collectSome(machine, random, true);
}

function deleteOne(
  machine: Machine,
  random: Random,
  note: (key: Key, version: number) => void,
  theOldest = random.chance(0.5),
): void {
  const rows = [...rowsOn(machine.disk)];
  if (rows.length === 0) return;
  // The older it is, the further below the floor.
  const oldest = rows.toSorted(([, a], [, b]) => Number(a.updated_at) - Number(b.updated_at))[0] as (typeof rows)[0];
  const [key, row] = theOldest ? oldest : random.pick(rows);
  const [table] = key.split('/');
  attempt(machine, `DELETE FROM ${table} WHERE id = '${String(row.id).replaceAll("'", "''")}'`);
  if (!rowsOn(machine.disk).has(key)) note(key, Number(row.updated_at));
}

function collectSome({ disk }: Machine, random: Random, toTheEnd = random.chance(0.75)): void {
  const tables = tablesOf(disk.kind).map((table) => tableOn(disk, table));
  const walk = { tables, slice: random.pick([1, 7, 1_000]), sharesStatements: true };
  collect(disk, walk, toTheEnd ? undefined : 1 + random.below(12));
}

/** A new row under an id that was deleted, by an application that sets an old time. */
function giveOldId(machine: Machine, random: Random, deleted: Map<Key, number>): void {
  const ids = [...deleted].filter(([key]) => key.startsWith('items/'));
  if (ids.length === 0) return;
  const [key, version] = random.pick(ids);
  const id = key.slice('items/'.length).replaceAll("'", "''");
  attempt(machine, `INSERT INTO items (id, updated_at) VALUES ('${id}', ${version - random.below(3)})`);
}

/** A foreign key, or an id that is taken: then it is not done. */
function attempt({ disk }: Machine, sql: string): void {
  try {
    disk.exec(spelt(disk, sql));
  } catch {
    // As the application would be told.
  }
}
