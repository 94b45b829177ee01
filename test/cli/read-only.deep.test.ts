/** What only reads a file works where nothing can be written to it: on a disk that was mounted read-only, on a snapshot. */
import { chmodSync, copyFileSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { cleanUp, scratchFolder } from '../support/nodes.ts';
import { MAIN, runProgram, startNode } from '../support/programs.ts';

const asNobody = process.getuid?.() === 0 ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] : [];

async function run(...args: string[]): Promise<{ code: number | string; out: string; err: string }> {
  const program = runProgram(MAIN, args, { wrapper: asNobody });
  const code = await program.ended;
  return { code, out: program.stdout(), err: program.stderr() };
}

describe.each([
  ['with what SQLite keeps beside it', ['', '-wal', '-shm'], 'running'],
  ['with its -wal alone', ['', '-wal'], 'running'],
  ['of a node that was stopped', [''], 'stopped'],
])('a file that cannot be written, %s', (_what, parts, when) => {
  let [db, open] = ['', ''];
  let made: string[] = [];

  beforeEach(async () => {
    const a = await startNode('a');
    const item = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"name":"x","value":1}' };
    expect((await fetch(`${a.url}/api/items`, item)).ok).toBe(true);
    if (when === 'stopped') {
      a.child.kill('SIGTERM');
      await a.ended;
    }
    const folder = scratchFolder();
    chmodSync(folder, 0o755);
    const closed = join(folder, 'closed');
    open = join(folder, 'open');
    mkdirSync(closed);
    mkdirSync(open);
    chmodSync(open, 0o777);
    db = join(closed, 'a.db');
    for (const part of parts) {
      copyFileSync(a.db + part, db + part);
      chmodSync(db + part, 0o444);
    }
    chmodSync(closed, 0o555);
    cleanUp(() => chmodSync(closed, 0o755));
    made = readdirSync(closed);
  });

  test('is read whole, and nothing is made beside it', async () => {
    const status = await run('status', '-db', db, '--offline');
    expect(status).toEqual({ code: 0, out: expect.stringContaining('items: 1 rows'), err: '' });
    expect(await run('identity', '-db', db)).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^node a, database /),
    });
    expect(await run('dead-letters', '-db', db, '--offline')).toMatchObject({ code: 0, out: 'no dead letters\n' });
    expect(await run('why', '-db', db, '--offline', 'items', 'no')).toMatchObject({ code: 1, err: '' });
    const copy = join(open, 'copy.db');
    expect(await run('backup', '-db', db, copy)).toMatchObject({ code: 0, err: '' });
    expect((await run('status', '-db', copy, '--offline')).out).toContain('items: 1 rows');
    expect(readdirSync(join(db, '..'))).toEqual(made);
    expect(readdirSync(open).filter((name) => name.startsWith('rowcast-'))).toEqual([]);
  });

  test('and so it is by a link that is elsewhere', async () => {
    const link = join(open, 'link.db');
    symlinkSync(db, link);
    const status = await run('status', '-db', link, '--offline');
    expect(status).toEqual({ code: 0, out: expect.stringContaining('items: 1 rows'), err: '' });
    const copy = join(open, 'by-link.db');
    expect(await run('backup', '-db', link, copy)).toMatchObject({ code: 0, err: '' });
    expect((await run('status', '-db', copy, '--offline')).out).toContain('items: 1 rows');
    expect(readdirSync(join(db, '..'))).toEqual(made);
  });

  test('what has to write says why it cannot, and what to do', async () => {
    for (const args of [
      ['identity', '--new'],
      ['forget', 'b'],
      ['serve', '-id', 'a', '-listen', '127.0.0.1:0'],
    ]) {
      const [name, ...rest] = args as [string, ...string[]];
      const refused = await run(name, '-db', db, ...rest);
      expect(refused).toMatchObject({
        code: 1,
        err: expect.stringMatching(/no permission to write .*a\.db: run this as/),
      });
    }
  });
});

test('a file that may not be read either is called that', async () => {
  const a = await startNode('a');
  chmodSync(join(a.db, '..'), 0o755);
  const db = join(scratchFolder(), 'a.db');
  chmodSync(join(db, '..'), 0o755);
  copyFileSync(a.db, db);
  chmodSync(db, 0o200);
  expect(await run('status', '-db', db, '--offline')).toMatchObject({
    code: 1,
    err: expect.stringMatching(/no permission to read .*a\.db: run this as the user/),
  });
});
