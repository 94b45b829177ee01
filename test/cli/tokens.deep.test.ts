/** Tokens in running programs: peers still know each other, and strangers learn nothing. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { scratchFolder, until } from '../support/nodes.ts';
import { freePorts, hangUp, MAIN, type Parsed, runProgram, started, startNode } from '../support/programs.ts';

const TOKEN = 'a-token-for-everything';
const env = { ROWCAST_TOKENS: `read+write+health:${TOKEN}` };

async function ask(url: string, token?: string, init: RequestInit = {}): Promise<{ status: number; body: Parsed }> {
  const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const headers = { 'content-type': 'application/json', ...authorization };
  const answer = await fetch(url, { ...init, headers });
  return { status: answer.status, body: await answer.json() };
}

test('a hub and its edges know each other although none tells a stranger who it is', async () => {
  const [portA, portB] = (await freePorts(2)) as [number, number];
  const edges = [portA, portB].map((port) => `http://127.0.0.1:${port}`);
  const db = join(scratchFolder(), 'hub.db');
  const to = edges.flatMap((url) => ['-edge', url]);
  const hub = runProgram(MAIN, ['hub', '-id', 'hub', '-db', db, '-listen', '127.0.0.1:0', ...to], { env });
  const { url } = await started(hub);
  const nodes = await Promise.all(
    [portA, portB].map((port, i) =>
      startNode('ab'[i] as string, ['-peer', url, '-listen', `127.0.0.1:${port}`], undefined, { env }),
    ),
  );
  const [a, b] = nodes as [(typeof nodes)[0], (typeof nodes)[0]];
  const post = { method: 'POST', body: '{"name":"by way of the hub"}' };
  expect((await ask(`${a.url}/api/items`, undefined, post)).status).toBe(401);
  expect((await ask(`${a.url}/api/items`, TOKEN, post)).status).toBe(201);
  await until('b has it', async () => (await ask(`${b.url}/api/items`, TOKEN)).body.length === 1);
  for (const at of [a.url, b.url, url]) expect((await ask(`${at}/health`)).body).toEqual({ ok: true });
  await until('the hub knows who they are', async () => {
    const { peer_states } = (await ask(`${url}/health`, TOKEN)).body;
    return peer_states.map(({ node_id }: Parsed) => node_id).join() === 'a,b';
  });
  expect(hub.output() + a.output() + b.output()).not.toContain(TOKEN);
});

test('SIGHUP takes a token away', async () => {
  const path = join(scratchFolder(), 'tokens');
  const put = (token: string): void =>
    writeFileSync(path, JSON.stringify({ tokens: [{ token, scope: 'read' }] }), { mode: 0o600 });
  put(TOKEN);
  const node = await startNode('a', ['-tokens-file', path]);
  expect((await ask(`${node.url}/api/items`, TOKEN)).status).toBe(200);
  const reloaded = await hangUp(node, 'reloaded', () => put('another-token-entirely'));
  expect(reloaded).toMatchObject({ changed: ['tokens'] });
  expect((await ask(`${node.url}/api/items`, TOKEN)).status).toBe(401);
  expect((await ask(`${node.url}/api/items`, 'another-token-entirely')).status).toBe(200);
  await hangUp(node, 'reload-failed', () => writeFileSync(path, '{'));
  expect((await ask(`${node.url}/api/items`, 'another-token-entirely')).status).toBe(200);
});

test.each(['serve', 'hub'])('SIGHUP takes the token of the operator’s port away: %s', async (kind) => {
  const folder = scratchFolder();
  const [path, tokens] = [join(folder, 'admin-token'), join(folder, 'tokens')];
  const put = (token: string): void => writeFileSync(path, `${token}\n`, { mode: 0o600 });
  put(TOKEN);
  writeFileSync(tokens, JSON.stringify({ tokens: [{ token: TOKEN, scope: 'health' }] }), { mode: 0o600 });
  const at = ['-listen', '127.0.0.1:0', '-admin-listen', '127.0.0.1:0', '-admin-token-file', path];
  const files = ['-id', 'a', '-db', join(folder, 'a.db'), '-tokens-file', tokens];
  const program = runProgram(MAIN, [kind, ...files, ...at]);
  const { admin } = await started(program);
  const status = async (token: string): Promise<number> => (await ask(`${admin}/_rowcast/api/status`, token)).status;
  expect(await status(TOKEN)).toBe(200);
  const reloaded = await hangUp(program, 'reloaded', () => put('another-token-entirely'));
  expect([await status(TOKEN), await status('another-token-entirely')]).toEqual([401, 200]);
  expect(reloaded).toMatchObject({ changed: ['admin token'] });
  // Too short, or gone: nothing is changed, and the door does not open to everybody.
  const failed = await hangUp(program, 'reload-failed', () => put('short'));
  expect(failed.message).toMatch(
    /-admin-token-file: the token in .* has fewer than 16 characters; nothing was changed/,
  );
  expect([await status(TOKEN), await status('short'), await status('another-token-entirely')]).toEqual([401, 401, 200]);
  // It is also noticed without a signal.
  put('a-third-token-altogether');
  await until('it counts', async () => (await status('a-third-token-altogether')) === 200);
  expect(await status('another-token-entirely')).toBe(401);
  expect(program.output()).not.toMatch(/a-token-for|another-token|a-third/);
});
