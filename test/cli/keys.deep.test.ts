/** Two nodes and a hub with keys, as an operator sets them up, exchanges the keys, and makes mistakes. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { scratchFolder, until } from '../support/nodes.ts';
import { freePorts, hangUp, MAIN, type Parsed, runProgram, started, startNode } from '../support/programs.ts';

const write = (url: string, name: string): Promise<unknown> =>
  fetch(`${url}/api/items`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name }),
  });
const names = async (url: string): Promise<string> =>
  ((await (await fetch(`${url}/api/items`)).json()) as Parsed[])
    .map(({ name }) => name)
    .sort()
    .join(' ');

async function key(id: string): Promise<Parsed> {
  const program = runProgram(MAIN, ['keygen', id]);
  expect(await program.ended).toBe(0);
  return JSON.parse(program.stdout()).keys[0];
}

test('two nodes and a hub: set-up, a stranger, a rotation, a wrong file', async () => {
  const folder = scratchFolder();
  const [old, next] = [await key('old'), await key('new')];
  // Each has a file of its own: what is put there for one is not to be found by the others.
  const path = (id: string): string => join(folder, `${id}-keys.json`);
  const put = (id: string, keys: Parsed[]): void => writeFileSync(path(id), JSON.stringify({ keys }), { mode: 0o600 });
  for (const id of ['a', 'b', 'hub']) put(id, [old]);
  const ports = await freePorts(2);
  const [urlA, urlB] = ports.map((port) => `http://127.0.0.1:${port}`) as [string, string];
  const edges = [urlA, urlB].flatMap((url) => ['-edge', url]);
  const base = ['hub', '-id', 'hub', '-db', join(folder, 'hub.db'), '-listen', '127.0.0.1:0'];
  const hub = runProgram(MAIN, [...base, '-keys-file', path('hub'), ...edges]);
  const { url: hubUrl, keys } = await started(hub);
  expect(keys).toBe('require');
  const withKeys = (id: string, port: number | undefined, ...more: string[]): string[] => [
    ...['-listen', `127.0.0.1:${port}`, '-peer', hubUrl, '-keys-file', path(id), '-batch-ms', '20', ...more],
  ];
  const a = await startNode('a', withKeys('a', ports[0], '-peer-id', `${hubUrl}=hub`), folder);
  const b = await startNode('b', withKeys('b', ports[1]), folder);
  await write(a.url, 'first');
  await write(b.url, 'second');
  await until(
    'both have both',
    async () => (await names(a.url)) === 'first second' && (await names(b.url)) === 'first second',
  );

  // A node without the key takes part in nothing.
  const stranger = await startNode('x', ['-peer', urlA, '-peer', hubUrl, '-batch-ms', '20'], folder);
  await write(stranger.url, 'intruder');
  await until('it is let in nowhere', () => stranger.lines('peer-down').length >= 2);
  expect(await (await fetch(`${a.url}/health`)).json()).toEqual({ ok: true });
  await until('its address is told of', () => a.lines('warning').some(({ code }) => code === 'not-authenticated'));

  // A rotation: add everywhere, make it the first everywhere, take the old one out.
  let n = 0;
  for (const set of [[old, next], [next, old], [next]]) {
    for (const [id, program] of Object.entries({ a, b, hub })) {
      const reloaded = await hangUp(program, 'reloaded', () => put(id, set));
      expect(reloaded).toMatchObject({ changed: ['keys'] });
      await write(a.url, `during-${n++}`);
    }
    await until('b has it', async () => (await names(b.url)).split(' ').length === 2 + n);
  }
  // A wrong file changes nothing.
  const short = { ...next, secret: next.secret.slice(0, 12) };
  const failed = await hangUp(a, 'reload-failed', () => put('a', [short]));
  expect(failed.message).toMatch(/secret of key "new".*nothing was changed/);
  await write(a.url, 'last');
  await until('b has it', async () => (await names(b.url)).includes('last'));
  for (const program of [a, b, hub]) {
    expect(program.lines('dead-letter')).toEqual([]);
    for (const { secret } of [old, next]) expect(program.output()).not.toContain(secret.slice(0, 12));
    expect(program.output()).not.toMatch(/rowcast=:/);
  }
});

test('a file of keys that others can read is told of, and one that is wrong keeps the program from starting', async () => {
  const folder = scratchFolder();
  const path = join(folder, 'keys.json');
  writeFileSync(path, JSON.stringify({ keys: [await key('k1')] }), { mode: 0o644 });
  const a = await startNode('a', ['-keys-file', path], folder);
  expect(a.lines('warning')).toMatchObject([{ code: 'secret-readable' }]);
  writeFileSync(path, '{}');
  const wrong = runProgram(MAIN, ['serve', '-id', 'b', '-db', join(folder, 'b.db'), '-keys-file', path]);
  expect(await wrong.ended).toBe(2);
  expect(wrong.stderr()).toContain('keys.json: "auth.keys" must be an array with at least one key');
});
