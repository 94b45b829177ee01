/** What `rowcast backup` calls checked can be relied upon, and what it cannot copy it says. */
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { backupFile } from '../../src/cli/backup.ts';
import { database, node, scratchFolder } from '../support/nodes.ts';

test('a file without the tables of a node or a hub is no backup of one', async () => {
  const folder = scratchFolder();
  const [path, target] = [join(folder, 'a.db'), join(folder, 'copy.db')];
  await database('CREATE TABLE items (id TEXT PRIMARY KEY)', path);
  expect(() => backupFile(path, target, undefined)).toThrow(/no backup was made: .*holds nothing of a node or a hub/);
  expect(readdirSync(folder).filter((name) => name.startsWith('copy'))).toEqual([]);
});

test('of two to one name at once the first wins, and the other says why it did not', async () => {
  const folder = scratchFolder();
  const [path, target] = [join(folder, 'a.db'), join(folder, 'copy.db')];
  await node({ path });
  // One of a process that runs, and one of a process that cannot: there are no such ids.
  writeFileSync(`${target}.${process.ppid}.part`, 'theirs');
  writeFileSync(`${target}.99999999.part`, 'left behind');
  const other = (phase: string): void => {
    if (phase === 'checking the copy') writeFileSync(target, 'theirs');
  };
  expect(() => backupFile(path, target, undefined, other)).toThrow(/another backup to this name was under way/);
  const left = readdirSync(folder).filter((name) => name.startsWith('copy'));
  expect(left.sort()).toEqual(['copy.db', `copy.db.${process.ppid}.part`]);
  const second = join(folder, 'second.db');
  expect(backupFile(path, second, undefined).bytes).toBeGreaterThan(4_096);
  expect(existsSync(second)).toBe(true);
});

test('a folder that does not exist, or is none, is called that', async () => {
  const folder = scratchFolder();
  const path = join(folder, 'a.db');
  await node({ path });
  const into = (...names: string[]) => backupFile(path, join(folder, ...names), undefined);
  expect(() => into('no', 'copy.db')).toThrow(/no backup was made: the folder .*no does not exist: create it first/);
  expect(() => into('a.db', 'copy.db')).toThrow(/no backup was made: .*a\.db is not a folder/);
});
