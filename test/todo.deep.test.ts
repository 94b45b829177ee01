/** examples/todo as two processes: a write on one is told by the events of the other, and its page asks for nothing else. */
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { executable, launch, PATIENCE_MS } from './console/browser.ts';
import { root } from './support/build.ts';
import { Reader } from './support/event-reader.ts';
import { lane } from './support/lane.ts';
import { cleanUp, scratchFolder, until } from './support/nodes.ts';
import { freePorts } from './support/programs.ts';

const server = join(root, 'examples/todo/server.mjs');
const here = test.runIf(lane === 'better-sqlite3');

function start(
  id: string,
  port: number,
  file: string,
  peer: number,
): { end(): Promise<number | null>; kill(): Promise<void> } {
  const child = spawn(process.execPath, [server, id, String(port), file, `http://127.0.0.1:${peer}`], {
    stdio: 'ignore',
  });
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
  cleanUp(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return {
    end: () => {
      child.kill('SIGTERM');
      return ended;
    },
    kill: async () => {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

const answers = (port: number): Promise<boolean> =>
  titles(port).then(
    () => true,
    () => false,
  );

const headers = { 'content-type': 'application/json' };

async function titles(port: number): Promise<string[]> {
  const answer = await fetch(`http://127.0.0.1:${port}/todos`);
  return ((await answer.json()) as { todos: { title: string; done: number }[] }).todos.map(
    ({ title, done }) => `${title}${done ? ' done' : ''}`,
  );
}

here('what is written, ticked and deleted on one is told on the other, also after a kill', async () => {
  const folder = scratchFolder();
  const [a = 0, b = 0] = await freePorts(2);
  const first = start('a', a, join(folder, 'a.db'), b);
  const second = start('b', b, join(folder, 'b.db'), a);
  const up = (port: number): Promise<void> =>
    until(`port ${port} answers`, () =>
      titles(port).then(
        () => true,
        () => false,
      ),
    );
  await Promise.all([up(a), up(b)]);
  const reader = new Reader(`http://127.0.0.1:${b}/_rowcast/changes?tables=todos`);
  await until('it is told to read', () => reader.events.some(({ event }) => event === 'reset'));
  const post = (body: object): Promise<Response> =>
    fetch(`http://127.0.0.1:${a}/todos`, { method: 'POST', headers, body: JSON.stringify(body) });
  const { todos } = (await (await post({ title: 'milk' })).json()) as { todos: { id: string }[] };
  const id = todos[0]?.id as string;
  await until('the other is told', () => reader.ids.includes(id));
  expect(await titles(b)).toEqual(['milk']);
  const put = { method: 'PUT', headers, body: '{"title":"milk","done":true}' };
  await fetch(`http://127.0.0.1:${b}/todos/${id}`, put);
  await until('it is ticked on the first', async () => (await titles(a)).join() === 'milk done');
  await second.kill();
  await post({ title: 'bread' });
  await fetch(`http://127.0.0.1:${a}/todos/${id}`, { method: 'DELETE', headers });
  const again = start('b', b, join(folder, 'b.db'), a);
  await up(b);
  const next = new Reader(`http://127.0.0.1:${b}/_rowcast/changes?tables=todos`, {
    'last-event-id': reader.position,
  });
  // The tick may be told again, if the first reader was cut off before it heard of its own node's write.
  const deleted = () => next.rows.some((row) => row.op === 'DELETE' && row.id === id);
  await until('both are told', () => deleted() && new Set(next.ids).size >= 2);
  expect(await titles(b)).toEqual(['bread']);
  expect(await Promise.all([first.end(), again.end()])).toEqual([0, 0]);
});

const inBrowser = test.runIf(lane === 'better-sqlite3' && executable !== undefined);

inBrowser('open in two browsers, each shows what is done in the other', async () => {
  const folder = scratchFolder();
  const [a = 0, b = 0] = await freePorts(2);
  start('a', a, join(folder, 'a.db'), b);
  const second = start('b', b, join(folder, 'b.db'), a);
  const up = (port: number): Promise<void> => until(`port ${port} answers`, () => answers(port));
  await Promise.all([up(a), up(b)]);
  const browser = await launch();
  cleanUp(() => browser.close());
  const [left, right] = await Promise.all(
    [a, b].map(async (port) => {
      const page = await (await browser.newContext()).newPage();
      page.setDefaultTimeout(PATIENCE_MS);
      await page.goto(`http://127.0.0.1:${port}/`);
      return page;
    }),
  );
  if (!left || !right) throw new Error('there are no pages');
  await left.getByLabel('What is to be done').fill('<b>milk</b>');
  await left.getByRole('button', { name: 'Add' }).click();
  await right.getByText('<b>milk</b>').waitFor();
  await right.getByRole('checkbox').check();
  await left.locator('li.done').waitFor();
  await second.kill();
  await right.getByText('does not answer').waitFor();
  await left.getByLabel('What is to be done').fill('bread');
  await left.getByRole('button', { name: 'Add' }).click();
  await left.getByText('bread').waitFor();
  start('b', b, join(folder, 'b.db'), a);
  await right.getByText('bread').waitFor();
  await right.getByRole('button', { name: 'Delete' }).first().click();
  await until('one is left on both', async () => {
    const counts = await Promise.all([left, right].map((page) => page.locator('li').count()));
    return counts.every((n) => n === 1);
  });
  expect(await right.locator('li').allTextContents()).toEqual(await left.locator('li').allTextContents());
});

here('a page of another site cannot write, and without arguments it says how', async () => {
  const [a = 0] = await freePorts(1);
  start('a', a, join(scratchFolder(), 'a.db'), 9);
  await until('it answers', () =>
    titles(a).then(
      () => true,
      () => false,
    ),
  );
  const plain = { method: 'POST', headers: { 'content-type': 'text/plain' }, body: '{"title":"x"}' };
  expect((await fetch(`http://127.0.0.1:${a}/todos`, plain)).status).toBe(415);
  expect(await (await fetch(`http://127.0.0.1:${a}/`)).text()).toContain('EventSource');
  const { status, stderr } = spawnSync(process.execPath, [server], { encoding: 'utf8' });
  expect([status, stderr]).toEqual([2, expect.stringContaining('usage: node examples/todo/server.mjs')]);
});

test('its page asks nobody else, and writes no markup that it was sent', () => {
  const page = readFileSync(join(root, 'examples/todo/index.html'), 'utf8');
  expect(page).not.toMatch(/https?:\/\//);
  expect(page).not.toMatch(/innerHTML|insertAdjacentHTML|document\.write/);
});
