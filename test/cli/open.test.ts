/** Opening a file that another process holds: the programs wait as long as they were told to. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { linkSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { openDatabase as openForProgram } from '../../src/cli/open.ts';
import { betterSqlite3, lane, openDatabase } from '../support/lane.ts';
import { cleanUp, scratchFolder } from '../support/nodes.ts';

const OPENERS = {
  'bun-sqlite': "const d = new (require('bun:sqlite').Database)(path);",
  'node-sqlite': "const d = new (require('node:sqlite').DatabaseSync)(path);",
  'better-sqlite3': `const d = new (require(${JSON.stringify(
    lane === 'better-sqlite3'
      ? betterSqlite3().replace(/^better-sqlite3$/, `${process.cwd()}/node_modules/better-sqlite3`)
      : '',
  )}))(path);`,
};

/** Another process that holds the file in its own way, for a moment. */
async function heldBy(path: string, sql: string): Promise<void> {
  const program = `const path = ${JSON.stringify(path)}; ${OPENERS[lane]} d.exec(${JSON.stringify(sql)});
    console.log('held'); setTimeout(() => { d.exec('ROLLBACK'); }, 300);`;
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  cleanUp(() => child.kill());
  await once(child.stdout, 'data');
}

test.each([
  ['a writer', 'BEGIN IMMEDIATE; INSERT INTO t VALUES (1)'],
  ['a reader', 'BEGIN; SELECT * FROM t'],
  ['somebody who has it for himself', 'BEGIN EXCLUSIVE'],
])('a file with a rollback journal, held by %s for a moment, is waited for', async (_who, sql) => {
  const path = join(scratchFolder(), 'held.db');
  const made = await openDatabase(path);
  made.exec('CREATE TABLE t (a); INSERT INTO t VALUES (0)');
  made.close();
  await heldBy(path, sql);
  const { db, close } = openForProgram(path, { busyMs: 20_000 });
  expect(Object.values(db.prepare('PRAGMA journal_mode').get() as object)).toEqual(['wal']);
  close();
});

/** Locks are a process's: two SQLite libraries in one do not see each other's. */
const isOneLibrary = ((): boolean => {
  const { binding, close } = openForProgram(join(scratchFolder(), 'any.db'));
  close();
  return binding === lane;
})();

test.skipIf(!isOneLibrary)('and no longer than that', async () => {
  const path = join(scratchFolder(), 'held.db');
  const holder = await openDatabase(path);
  cleanUp(() => holder.close());
  holder.exec('CREATE TABLE t (a); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)');
  expect(() => openForProgram(path, { busyMs: 10 })).toThrow(/is locked/);
});

test('what is given back has the journal that it had, and what was in it', async () => {
  const path = join(scratchFolder(), 'yours.db');
  const made = await openDatabase(path);
  made.exec('CREATE TABLE t (a); INSERT INTO t VALUES (7)');
  made.close();
  openForProgram(path).giveBack();
  const yours = await openDatabase(path);
  cleanUp(() => yours.close());
  expect(Object.values(yours.prepare('PRAGMA journal_mode').get() as object)).toEqual(['delete']);
  expect(Object.values(yours.prepare('SELECT a FROM t').get() as object).map(Number)).toEqual([7]);
});

test('a file with a second name is opened, and what may come of that is said', () => {
  const folder = scratchFolder();
  const path = join(folder, 'a.db');
  openForProgram(path).close();
  const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  cleanUp(() => said.mockRestore());
  openForProgram(path).close();
  expect(said).not.toHaveBeenCalled();
  linkSync(path, join(folder, 'b.db'));
  openForProgram(path).close();
  expect(said.mock.calls).toEqual([[expect.stringMatching(/a\.db has 2 names .*Use one name/)]]);
});
