/** What `rowcast backup` calls checked can be relied upon, and what it cannot copy it says. */
import { chmodSync, existsSync, readdirSync, readlinkSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
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
  writeFileSync(`${target}.99999999.part-journal`, 'left behind');
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

test('a copy is for those alone who may read the database', async () => {
  const folder = scratchFolder();
  const path = join(folder, 'a.db');
  await node({ path });
  for (const mode of [0o600, 0o640]) {
    chmodSync(path, mode);
    const target = join(folder, `copy-${mode}.db`);
    const seen: number[] = [];
    backupFile(path, target, undefined, (phase) => {
      if (phase !== 'checking the copy') return;
      const half = readdirSync(folder).find((name) => name.endsWith('.part')) as string;
      seen.push(statSync(join(folder, half)).mode & 0o777);
    });
    expect([...seen, statSync(target).mode & 0o777]).toEqual([mode, mode]);
  }
});

test('a link that leads nowhere is not replaced, and no name is taken that SQLite uses beside the database', async () => {
  const folder = scratchFolder();
  const path = join(folder, 'a.db');
  const { db } = await node({ path });
  db.exec('PRAGMA journal_mode = DELETE');
  const link = join(folder, 'link.db');
  symlinkSync(join(folder, 'elsewhere.db'), link);
  expect(() => backupFile(path, link, undefined)).toThrow(/link\.db exists already: a backup never replaces anything/);
  expect(readlinkSync(link)).toBe(join(folder, 'elsewhere.db'));
  for (const suffix of ['-wal', '-shm', '-journal']) {
    expect(() => backupFile(path, path + suffix, undefined)).toThrow(/is a name that SQLite uses beside/);
  }
  expect(readdirSync(folder).sort()).toEqual(['a.db', 'link.db']);
});

test('a disk without room for the copy is named', async () => {
  const folder = scratchFolder();
  const path = join(folder, 'a.db');
  await node({ path });
  const full = Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
  const fails = (): void => {
    throw full;
  };
  expect(() => backupFile(path, join(folder, 'copy.db'), undefined, fails)).toThrow(
    `no backup was made: there is no room for it in ${folder}: make room there (df -h), or name another place`,
  );
});
