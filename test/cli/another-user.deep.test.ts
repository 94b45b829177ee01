/** The commands as another user than the one whom the node and its file belong to: what they may not do is called that. */
import { chmodSync, chownSync, copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { scratchFolder } from '../support/nodes.ts';
import { MAIN, runProgram, startNode } from '../support/programs.ts';

const asNobody = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'];

async function run(...args: string[]): Promise<{ code: number | string; err: string }> {
  const program = runProgram(MAIN, args, { wrapper: asNobody });
  return { code: await program.ended, err: program.stderr() };
}

// Only root can be somebody else.
test.skipIf(process.getuid?.() !== 0)('the socket and the file of another user: the permission is named', async () => {
  const a = await startNode('a');
  const folder = join(a.db, '..');
  chmodSync(folder, 0o755);
  for (const name of ['status', 'top', 'peers', 'verify']) {
    const { code, err } = await run(name, '-db', a.db);
    expect([code, err]).toEqual([
      3,
      expect.stringMatching(/no permission to use .*sock as user 65534: .*the number 0,/),
    ]);
  }
  expect(await run('identity', '-db', a.db)).toEqual({
    code: 1,
    err: expect.stringMatching(/no permission to read .*a\.db: run this as the user/),
  });
});

test.skipIf(process.getuid?.() !== 0)('and a folder that may not be looked into', async () => {
  const a = await startNode('a');
  const folder = join(a.db, '..');
  chmodSync(folder, 0o700);
  expect(await run('status', '-db', a.db)).toEqual({
    code: 3,
    err: expect.stringMatching(/no permission to use .*a\.db as user 65534/),
  });
  const serve = ['serve', '-id', 'a', '-listen', '127.0.0.1:0'];
  for (const [name, ...rest] of [['status', '--offline'], ['identity'], ['forget', 'b'], serve] as [string][]) {
    expect(await run(name, '-db', a.db, ...rest)).toEqual({
      code: 1,
      err: expect.stringMatching(/^rowcast \w+: no permission to look for .*a\.db: run this as the user .*\n$/),
    });
  }
  expect((await run('backup', '-db', a.db, '/tmp/no.db')).err).toMatch(/no backup was made: no permission to look for/);
});

test.skipIf(process.getuid?.() !== 0)('a backup into a folder of somebody else', async () => {
  const [db, theirs] = [join(scratchFolder(), 'a.db'), scratchFolder()];
  chmodSync(theirs, 0o755);
  const { code, err } = await run('backup', '-db', db, join(theirs, 'copy.db'));
  expect([code, err]).toEqual([
    1,
    expect.stringMatching(/nothing can be written in the folder .*: no permission; name/),
  ]);
});

test.skipIf(process.getuid?.() !== 0)('a file of their own beside which somebody else has left a -wal', async () => {
  const a = await startNode('a');
  const folder = scratchFolder();
  const db = join(folder, 'a.db');
  for (const part of ['', '-wal', '-shm']) copyFileSync(a.db + part, db + part);
  for (const path of [folder, db, `${db}-shm`]) chownSync(path, 65534, 65534);
  const serve = ['serve', '-id', 'a', '-listen', '127.0.0.1:0'] as const;
  for (const mode of [0o600, 0o644]) {
    chmodSync(`${db}-wal`, mode);
    for (const [name, ...rest] of [serve, ['identity', '--new'], ['migrate', '-drop', 'items.no']] as const) {
      expect(await run(name, '-db', db, ...rest)).toEqual({
        code: 1,
        err: expect.stringMatching(
          /no permission to (read|write) .*a\.db-wal: run this as the user whom it belongs to/,
        ),
      });
    }
  }
  expect(await run('status', '-db', db, '--offline')).toEqual({ code: 0, err: '' });
  chmodSync(`${db}-wal`, 0o600);
  expect(await run('status', '-db', db, '--offline')).toEqual({
    code: 1,
    err: expect.stringMatching(/no permission to read .*a\.db-wal: run this as the user whom it belongs to/),
  });
});
