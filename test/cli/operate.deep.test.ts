/** The commands of an operator, as they are typed: against running programs, and against files. */
import { spawnSync } from 'node:child_process';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { database, rowsOf, scratchFolder, until } from '../support/nodes.ts';
import { MAIN, runProgram, startNode as start } from '../support/programs.ts';

async function run(...args: string[]): Promise<{ code: number | string; out: string; err: string }> {
  const program = runProgram(MAIN, args);
  const code = await program.ended;
  return { code, out: program.stdout(), err: program.stderr() };
}

async function post(url: string, body: unknown): Promise<void> {
  await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
}

const BAD = { op: 'INSERT', table: 'nowhere', row: { id: 'x', updated_at: 1 }, old_id: null };

describe('against a running node', () => {
  test('by the socket beside its file: status, peers, dead letters, verify', async () => {
    const b = await start('b');
    const a = await start('a', ['-peer', b.url]);
    await post(`${a.url}/api/items`, { name: 'first', value: 1 });
    await until('b has it', async () => (await (await fetch(`${b.url}/api/items`)).json()).length === 1);
    const status = await run('status', '-db', a.db);
    expect([status.code, status.out]).toEqual([0, expect.stringContaining('node a: ok')]);
    expect(JSON.parse((await run('status', '-db', a.db, '--json')).out)).toMatchObject({ ok: true, node_id: 'a' });
    expect((await run('peers', '-db', a.db, 'pause', b.url)).out).toContain('paused');
    expect((await run('peers', '-db', a.db, 'resume', b.url)).out).not.toContain('paused');
    await post(`${a.url}/sync`, { batch_id: 1, changes: [BAD] });
    expect((await run('dead-letters', '-db', a.db)).out).toContain('unknown-table');
    expect((await run('dead-letters', '-db', a.db, 'show', '1')).out).toContain('{"id":"x","updated_at":1}');
    for (const which of [['--all'], ['1']]) {
      const kept = await run('dead-letters', '-db', a.db, 'retry', ...which);
      expect(kept).toMatchObject({ code: 1, out: expect.stringContaining('kept') });
    }
    for (const how of [[], ['--offline']]) {
      const list = (code: string) => run('dead-letters', '-db', a.db, '-code', code, ...how);
      expect((await list('unknown-table')).out).toContain('unknown-table');
      expect((await list('constraint')).out).toBe('no dead letters of code constraint\n');
    }
    expect((await run('dead-letters', '-db', a.db, 'discard', '1')).out).toBe('1: discarded\n');
    expect(await run('dead-letters', '-db', a.db)).toMatchObject({ code: 0, out: 'no dead letters\n' });
    expect(await run('verify', '-db', a.db)).toMatchObject({
      code: 0,
      out: expect.stringContaining(': equal; 1 rows'),
    });
    expect((await run('top', '-db', a.db, '-rounds', '2')).out).toMatch(
      /ok[\s\S]*ok[\s\S]*written: [\s\S]*in: \d+ changes a second; out, to all together: \d+/,
    );
    expect(JSON.parse((await run('top', '-db', a.db, '-rounds', '1', '--json')).out)).toMatchObject({
      node_id: 'a',
      rates: { received: expect.any(Array) },
    });
  });

  test('conflicts and the story of a row, by the socket, and by the file', async () => {
    const a = await start('a');
    const [id, base] = ['r', 1_700_000_000_000];
    const row = (name: string, at: number) => ({ id, name, value: 1, created_at: 1, updated_at: base + at });
    const mine = { op: 'INSERT', table: 'items', row: row('mine', 2), old_id: null };
    await post(`${a.url}/sync`, { batch_id: 1, changes: [mine] });
    const theirs = { op: 'UPDATE', table: 'items', row: row('theirs', 3), old_id: null, base: base + 1 };
    const sent = await fetch(`${a.url}/sync`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-node-id': 'b', 'x-rowcast': 'id=b' },
      body: JSON.stringify({ batch_id: 2, changes: [theirs] }),
    });
    expect(sent.status).toBe(200);
    expect((await run('conflicts', '-db', a.db)).out).toMatch(/^1 {2}items "r" .* overwritten by b\n$/);
    expect((await run('status', '-db', a.db)).out).toContain('edits that were lost: 1');
    for (const how of [[], ['--offline']]) {
      expect((await run('conflicts', '-db', a.db, 'show', '1', ...how)).out).toMatch(/name +"mine" +"theirs"/);
      expect(await run('conflicts', '-db', a.db, 'show', '9', ...how)).toMatchObject({
        code: 1,
        err: expect.stringContaining('no conflict 9'),
      });
      const story = await run('why', '-db', a.db, 'items', 'r', ...how);
      expect([story.code, story.out]).toEqual([0, expect.stringMatching(/live[\s\S]*lost edit: +1, of 1700000000002/)]);
      expect(await run('why', '-db', a.db, 'items', 'never', ...how)).toMatchObject({ code: 1 });
      expect(await run('why', '-db', a.db, 'itmes', 'r', ...how)).toMatchObject({
        code: 1,
        err: expect.stringContaining('did you mean items?'),
      });
      const listed = await run('conflicts', '-db', a.db, '-id', 'r', '-table', 'items', '--json', ...how);
      expect(JSON.parse(listed.out)).toMatchObject([{ conflictId: 1, wonBy: 'b', base: base + 1 }]);
    }
    for (const how of [[], ['--offline']]) {
      const mistyped = await run('conflicts', '-db', a.db, '-table', 'itmes', ...how);
      expect(mistyped.err).toContain('table "itmes" is not synced; did you mean items?');
    }
    expect((await run('conflicts', '-db', a.db, 'restore', '1', '-column', 'nome')).err).toContain('no column "nome"');
    expect((await run('conflicts', '-db', a.db, 'restore', '1', '-column', 'name')).out).toBe('1: restored: name\n');
    expect(await (await fetch(`${a.url}/api/items/r`)).json()).toMatchObject({ name: 'mine' });
    expect((await run('conflicts', '-db', a.db, 'dismiss', '1')).out).toBe('1: dismissed\n');
    expect(await run('conflicts', '-db', a.db)).toMatchObject({ code: 0, out: 'no conflicts\n' });
  });

  test('by a port, which wants the token, and answers to no other name', async () => {
    const folder = scratchFolder();
    const token = join(folder, 'token');
    writeFileSync(token, 'sixteen letters or more\n', { mode: 0o600 });
    const a = await start('a', ['-admin-listen', '127.0.0.1:0', '-admin-token-file', token], folder);
    const url = String(a.started.admin);
    expect(await run('status', '-url', url)).toMatchObject({ code: 1, err: expect.stringContaining('token') });
    expect(await run('status', '-url', url, '-admin-token-file', token)).toMatchObject({ code: 0 });
    expect((await fetch(`${a.url}/_rowcast/api/status`)).status).toBe(404);
  });

  test("the socket is its owner's alone, goes with the program, and a dead one is no obstacle", async () => {
    const folder = scratchFolder();
    const a = await start('a', [], folder);
    const socket = `${a.db}-rowcast.sock`;
    expect(statSync(socket).mode & 0o777).toBe(0o600);
    a.child.kill('SIGKILL');
    await a.ended;
    expect(await run('status', '-db', a.db)).toMatchObject({ code: 3, err: expect.stringContaining('--offline') });
    const again = await start('a', [], folder);
    expect((await run('status', '-db', a.db)).code).toBe(0);
    again.child.kill('SIGTERM');
    await again.ended;
    expect(existsSync(socket)).toBe(false);
    const silent = await start('a', ['-admin', 'off'], folder);
    expect((await run('status', '-db', silent.db)).code).toBe(3);
  });
});

test('against a file alone', async () => {
  const a = await start('a', ['-peer', 'http://127.0.0.1:1']);
  await post(`${a.url}/api/items`, { name: 'first', value: 1 });
  a.child.kill('SIGKILL');
  await a.ended;
  expect(await run('status', '-db', a.db, '--offline')).toMatchObject({
    code: 0,
    out: expect.stringMatching(/as its file says[\s\S]*items: 1 rows[\s\S]*127\.0\.0\.1:1 .*pending 1/),
  });
  expect((await run('dead-letters', '-db', a.db, '--offline')).out).toBe('no dead letters\n');
  const plain = join(scratchFolder(), 'plain.db');
  (await database('CREATE TABLE t (x)', plain)).close();
  expect(await run('status', '-db', plain, '--offline')).toMatchObject({
    code: 1,
    err: expect.stringContaining('nothing was ever'),
  });
});

test('a backup of a database in use is whole, and replaces nothing', async () => {
  const a = await start('a');
  await post(`${a.url}/api/items`, { name: 'first', value: 1 });
  const target = join(scratchFolder(), 'copy.db');
  expect(await run('backup', '-db', a.db, target)).toMatchObject({ code: 0, out: expect.stringContaining('checked') });
  const copy = await database('PRAGMA user_version', target);
  expect(rowsOf(copy, 'SELECT name, value FROM items')).toEqual([{ name: 'first', value: 1 }]);
  const second = join(scratchFolder(), 'second.db');
  const said = JSON.parse((await run('backup', '-db', a.db, second, '--json')).out);
  expect(said).toEqual({ file: second, bytes: statSync(second).size });
  expect(await run('backup', '-db', a.db, target)).toMatchObject({
    code: 2,
    err: expect.stringContaining('exists already'),
  });
});

// Bun does not tell a program that its standard output cannot be written.
test.skipIf(process.versions.bun !== undefined)('an answer that cannot be written is a failure', async () => {
  const command = `"${process.execPath}" "${MAIN}" keygen k1 > /dev/full`;
  const { status, stderr } = spawnSync('sh', ['-c', command], { encoding: 'utf8' });
  expect([status, stderr]).toEqual([
    1,
    expect.stringMatching(/^rowcast keygen: standard output cannot be written: ENOSPC/),
  ]);
});

test.each(['serve', 'hub'])('nor is there a stack where nobody reads the help of %s', (name) => {
  const command = `"${process.execPath}" "${MAIN}" ${name} --help | true`;
  expect(spawnSync('sh', ['-c', command], { encoding: 'utf8' }).stderr).toBe('');
});

test('whoever has read enough may go', async () => {
  const a = await start('a');
  const command = `"${process.execPath}" "${MAIN}" top -db "${a.db}" | head -1`;
  const { stdout, stderr } = spawnSync('sh', ['-c', command], { encoding: 'utf8' });
  expect([stdout, stderr]).toEqual([expect.stringContaining('node a: ok'), '']);
});

test.each([
  [['peers', '-db', 'x.db', 'explode', 'http://b'], 'peers can be'],
  [['peers', '-db', 'x.db', 'pause'], 'needs the URL'],
  [['dead-letters', '-db', 'x.db', 'show'], 'needs the number'],
  [['dead-letters', '-db', 'x.db', 'list', '7'], 'unexpected argument'],
  [['dead-letters', '-db', 'x.db', 'retry', '7', '--all'], '--all is for retry'],
  [['dead-letters', '-db', 'x.db', 'discard', '--all'], '--all is for retry'],
  [['conflicts', '-db', 'x.db', 'explode', '1'], 'conflicts can be'],
  [['conflicts', '-db', 'x.db', 'restore'], 'needs the number'],
  [['conflicts', '-db', 'x.db', 'dismiss', '1', '--offline'], 'needs the running program'],
  [['conflicts', '-db', 'x.db', '-column', 'name'], '-column is for restore'],
  [['why', '-db', 'x.db', 'items'], 'needs a table and the id'],
  [['serve', '-id', 'a', '-db', 'x.db', '-conflicts-age', 'soon'], 'must be a time'],
  [['status'], 'name the node'],
  [['status', '-db', 'x.db', '-url', 'http://b'], 'name the node'],
  [['status', '-db', 'x.db', 'more'], 'unexpected argument'],
  [['backup', '-db', 'x.db'], 'needs the name'],
  [['serve', '-id', 'a', '-db', 'x.db', '-admin-listen', '0.0.0.0:0'], 'needs -admin-token-file'],
])('%j is a wrong command line', async (args, error) => {
  expect(await run(...args)).toMatchObject({ code: 2, err: expect.stringContaining(error) });
});
