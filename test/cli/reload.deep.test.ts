/** SIGHUP, and a change of a file, as a running program takes them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { scratchFolder, until } from '../support/nodes.ts';
import { hangUp, MAIN, type Parsed, runProgram, started, startNode } from '../support/programs.ts';

async function ask(url: string): Promise<Parsed> {
  return (await fetch(url)).json();
}

const write = (url: string, name: string): Promise<unknown> =>
  fetch(`${url}/api/items`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name }),
  });
const names = async (url: string): Promise<string[]> =>
  (await ask(`${url}/api/items`)).map(({ name }: Parsed) => name).sort();

test('serve: SIGHUP adds and removes peers and changes settings; a bad file changes nothing', async () => {
  const folder = scratchFolder();
  const [b, c] = [await startNode('b'), await startNode('c')];
  const peers = join(folder, 'peers');
  const config = join(folder, 'a.json');
  writeFileSync(peers, `${b.url}\n`);
  writeFileSync(config, JSON.stringify({ 'peers-file': peers, 'batch-ms': 60_000 }));
  const a = await startNode('a', ['-config', config]);
  expect(a.started.peers).toEqual([b.url]);
  await write(a.url, 'first');
  await until('b has it', async () => (await names(b.url)).length === 1);

  const more = await hangUp(a, 'reloaded', () => {
    writeFileSync(peers, `${b.url}\n${c.url}\n`);
    writeFileSync(config, JSON.stringify({ 'peers-file': peers, 'batch-ms': 20, 'stop-ms': 1 }));
  });
  expect(more).toMatchObject({ added: [c.url], removed: [], changed: ['batch-ms'] });
  expect(a.lines('reload-ignored')).toMatchObject([{ keys: ['stop-ms'] }]);
  await until('c has what was there', async () => (await names(c.url)).length === 1);

  const failed = await hangUp(a, 'reload-failed', () => writeFileSync(config, '{"peers-file": '));
  expect(failed.message).toMatch(/-config .*a\.json: not JSON.*nothing was changed/);
  expect((await ask(`${a.url}/health`)).peers).toEqual([b.url, c.url]);

  const fewer = await hangUp(a, 'reloaded', () => {
    writeFileSync(config, JSON.stringify({ 'peers-file': peers, 'batch-ms': 20 }));
    writeFileSync(peers, `${c.url}\n`);
  });
  expect(fewer).toMatchObject({ added: [], removed: [b.url], changed: [] });
  await write(a.url, 'second');
  await until('c has both', async () => (await names(c.url)).length === 2);
  expect(await names(b.url)).toEqual(['first']);
  // What b alone may have had goes round once more.
  await until('nothing is pending', async () => (await ask(`${a.url}/health`)).pending_changes === 0);
  a.child.kill('SIGTERM');
  expect(await a.ended).toBe(0);
});

test('serve: a change of the file is noticed without a signal', async () => {
  const folder = scratchFolder();
  const b = await startNode('b');
  const peers = join(folder, 'peers');
  writeFileSync(peers, '# none\n');
  const a = await startNode('a', ['-peers-file', peers]);
  await write(a.url, 'first');
  writeFileSync(peers, `${b.url}\n`);
  await until('it has read it', () => a.lines('reloaded').length === 1);
  await until('b has it', async () => (await names(b.url)).length === 1);
});

test('hub: SIGHUP adds and removes edges', async () => {
  const folder = scratchFolder();
  const edges = join(folder, 'edges');
  writeFileSync(edges, '# none\n');
  const args = ['-id', 'hub', '-db', join(folder, 'hub.db'), '-listen', '127.0.0.1:0', '-edges-file', edges];
  const hub = runProgram(MAIN, ['hub', ...args]);
  const { url } = await started(hub);
  const [a, b] = [await startNode('a', ['-peer', url]), await startNode('b', ['-peer', url])];
  await write(a.url, 'first');
  const both = await hangUp(hub, 'reloaded', () => writeFileSync(edges, `${a.url}\n${b.url}\n`));
  expect(both).toMatchObject({ added: [a.url, b.url], removed: [] });
  await until('b has it', async () => (await names(b.url)).length === 1);
  const one = await hangUp(hub, 'reloaded', () => writeFileSync(edges, `${a.url}\n`));
  expect(one).toMatchObject({ added: [], removed: [b.url] });
  expect((await ask(`${url}/health`)).peers).toEqual([a.url]);
});
