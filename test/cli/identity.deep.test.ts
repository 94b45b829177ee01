/** `rowcast identity` and `rowcast forget`, by the socket of whoever runs and in the file of whoever does not. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { scratchFolder, until } from '../support/nodes.ts';
import { MAIN, runProgram, started, startNode } from '../support/programs.ts';

async function run(...args: string[]): Promise<{ code: number | string; out: string; err: string }> {
  const program = runProgram(MAIN, args);
  const code = await program.ended;
  return { code, out: program.stdout(), err: program.stderr() };
}

const idOf = (out: string): string => /database ([0-9a-f]{16})\n/.exec(out)?.[1] as string;

async function health(url: string): Promise<{ ok: boolean; item_count: number }> {
  return (await (await fetch(`${url}/health`)).json()) as { ok: boolean; item_count: number };
}

test('a copy takes an identity of its own, and is given what it lacks', async () => {
  const a = await startNode('a');
  const before = await run('identity', '-db', a.db);
  expect(before).toMatchObject({ code: 0, out: expect.stringMatching(/^node a, database [0-9a-f]{16}\n$/) });
  const copy = join(scratchFolder(), 'copy.db');
  expect((await run('backup', '-db', a.db, copy)).code).toBe(0);
  expect(idOf((await run('identity', '-db', copy)).out)).toBe(idOf(before.out));
  const renewed = await run('identity', '-db', copy, '--new');
  expect(idOf(renewed.out)).not.toBe(idOf(before.out));
  expect(idOf((await run('identity', '-db', copy, '--offline')).out)).toBe(idOf(renewed.out));
  expect(idOf((await run('identity', '-db', a.db)).out)).toBe(idOf(before.out));
  const json = JSON.parse((await run('identity', '-db', a.db, '--json')).out);
  expect(json).toEqual({ role: 'node', id: 'a', inc: idOf(before.out) });
});

test('so does one that runs, and its peer gives it everything', async () => {
  const b = await startNode('b');
  const a = await startNode('a', ['-peer', b.url]);
  const headers = { 'content-type': 'application/json' };
  await fetch(`${a.url}/api/items`, { method: 'POST', headers, body: '{"name":"x"}' });
  await until('b has it', async () => (await health(b.url)).item_count === 1);
  const before = idOf((await run('identity', '-db', b.db)).out);
  expect(idOf((await run('identity', '-db', b.db, '--new')).out)).not.toBe(before);
  await fetch(`${a.url}/api/items`, { method: 'POST', headers, body: '{"name":"y"}' });
  await until('b has the next', async () => (await health(b.url)).item_count === 2);
  await until('a has noticed', () => a.lines('peer-replaced').length > 0);
  expect((await health(a.url)).ok).toBe(true);
});

test('a hub has one, too; who is not there is asked in vain', async () => {
  const db = join(scratchFolder(), 'hub.db');
  const hub = runProgram(MAIN, ['hub', '-id', 'h', '-db', db, '-listen', '127.0.0.1:0']);
  await started(hub);
  const { out } = await run('identity', '-db', db);
  expect(out).toMatch(/^hub h, database/);
  expect(idOf((await run('identity', '-db', db, '--new')).out)).not.toBe(idOf(out));
  expect(await run('forget', '-db', db, 'x')).toMatchObject({ code: 1, err: expect.stringContaining('a hub forgets') });
  expect(await run('identity', '-url', 'http://127.0.0.1:1')).toMatchObject({ code: 3 });
  expect(await run('identity', '-url', 'http://127.0.0.1:1', '--new')).toMatchObject({ code: 2 });
  expect(await run('identity', '-db', '/nowhere/a.db', '--new')).toMatchObject({ code: 2 });
});

test('a node that runs forgets another by its socket', async () => {
  const a = await startNode('a', ['-peer', 'http://127.0.0.1:1']);
  expect(await run('forget', '-db', a.db, 'x')).toMatchObject({ code: 1, err: expect.stringContaining('no node "x"') });
  expect(await run('forget', '-db', a.db, 'http://127.0.0.1:1')).toMatchObject({ code: 0 });
  a.child.kill('SIGKILL');
  await a.ended;
  expect(await run('forget', '-db', a.db, 'http://127.0.0.1:1')).toMatchObject({ code: 0 });
  expect(await run('forget', '-url', 'http://127.0.0.1:1', 'x')).toMatchObject({ code: 3 });
});
