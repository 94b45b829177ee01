/** The story of a row in the console: edits that lost, column by column, and where a row stands. */
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, describe, expect, test } from 'vitest';
import { scratchFolder, until } from '../support/nodes.ts';
import { freePorts, MAIN, type NodeProgram, type Parsed, runProgram, started, startNode } from '../support/programs.ts';
import { closeBrowser, enter, executable, openConsole, visit } from './browser.ts';

afterAll(closeBrowser);

const HOSTILE = '<img src=x onerror=alert(1)>';

async function ask(url: string, method: string, body?: unknown): Promise<Parsed> {
  const headers = { 'content-type': 'application/json', 'x-rowcast-admin': '1' };
  const answer = await fetch(url, { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) });
  expect(answer.status, url).toBeLessThan(300);
  return answer.json();
}

const itemAt = (node: NodeProgram, id: string): Promise<Parsed> => ask(`${node.url}/api/items/${id}`, 'GET');

interface Lost {
  a: NodeProgram;
  b: NodeProgram;
  id: string;
  page: Page;
}

/** Two nodes that send to each other; what a did to a row has lost against an edit of b that had not seen it. */
async function lostEdit(isDeletion = false): Promise<Lost> {
  const [first, second] = (await freePorts(2)) as [number, number];
  const url = (port: number): string => `http://127.0.0.1:${port}`;
  const at = (port: number, peer: number): string[] => ['-listen', `127.0.0.1:${port}`, '-peer', url(peer)];
  const a = await startNode('a', [...at(first, second), '-admin-listen', '127.0.0.1:0']);
  const b = await startNode('b', at(second, first));
  const { id } = await ask(`${a.url}/api/items`, 'POST', { name: 'as it was', value: 1 });
  await until('b has it', async () => (await fetch(`${b.url}/api/items/${id}`)).status === 200);
  const peers = (verb: string): Promise<Parsed> =>
    ask(`${a.started.admin}/_rowcast/api/peers/${verb}`, 'POST', { url: b.url });
  await peers('pause');
  const { updated_at: version } = await itemAt(a, id);
  if (isDeletion) await fetch(`${a.url}/api/items/${id}`, { method: 'DELETE' });
  else await ask(`${a.url}/api/items/${id}`, 'PUT', { name: HOSTILE, value: 2 });
  // One edit of b, and a later one: each that came too early would be a conflict of its own.
  const mark = isDeletion ? Math.max(version + 1, Date.now()) : (await itemAt(a, id)).updated_at;
  await until('the clock is past it', () => Date.now() > mark);
  await ask(`${b.url}/api/items/${id}`, 'PUT', { name: 'by b', value: 3 });
  await until('a has it', async () => (await fetch(`${a.url}/api/items/${id}`)).status === 200);
  await until('as b has it', async () => (await itemAt(a, id)).name === 'by b');
  const { page } = await openConsole(a.started.admin);
  return { a, b, id, page };
}

describe.skipIf(!executable)('an edit that lost', () => {
  test('is shown column by column, restored in part, and dismissed', async () => {
    const { a, b, id, page } = await lostEdit();
    await visit(page, 'Conflicts');
    await page.getByRole('button', { name: /^Difference of conflict/ }).click();
    const difference = page.getByRole('region', { name: 'Difference by column' });
    await difference.getByRole('row', { name: HOSTILE }).waitFor();
    await page.getByRole('checkbox', { name: 'Restore value' }).uncheck();
    await page.getByRole('button', { name: 'Restore…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    expect((await itemAt(a, id)).name).toBe('by b');
    await page.getByRole('button', { name: 'Restore…' }).click();
    await page
      .getByRole('dialog')
      .getByText(/The values of name/)
      .waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
    await until('it is back', async () => (await itemAt(a, id)).name === HOSTILE);
    expect(await itemAt(a, id)).toMatchObject({ name: HOSTILE, value: 3 });
    await ask(`${a.started.admin}/_rowcast/api/peers/resume`, 'POST', { url: b.url });
    await until('on b, too', async () => (await itemAt(b, id)).name === HOSTILE);
    await page
      .getByRole('button', { name: /^Dismiss conflict/ })
      .first()
      .click();
    await until('it is gone', async () => (await ask(`${a.started.admin}/_rowcast/api/conflicts`, 'GET')).length === 0);
    await page.getByText('No edit was lost here.').waitFor();
  });

  test('is part of the story of its row, which also says who waits for it', async () => {
    const { a, id, page } = await lostEdit();
    await ask(`${a.url}/api/items/${id}`, 'PUT', { name: 'once more', value: 4 });
    await visit(page, 'Row');
    await enter(page, 'Id', id, 'Look');
    await page.getByText('It is there').waitFor();
    await page.getByText('Written here').waitFor();
    await page.getByRole('heading', { name: 'Waits to be sent' }).waitFor();
    await page.getByRole('heading', { name: 'Conflicts' }).waitFor();
    await page.getByText('once more').waitFor();
    await page.getByLabel('Id').fill(`${HOSTILE}/?&#`);
    await page.getByRole('button', { name: 'Look' }).click();
    await page.getByText('Nothing is known of it').waitFor();
    await page.goBack();
    await page.getByText('It is there').waitFor();
  });

  test('is a deletion, and is made again', async () => {
    const { a, b, id, page } = await lostEdit(true);
    const isThere = async (node: NodeProgram): Promise<boolean> =>
      (await fetch(`${node.url}/api/items/${id}`)).status === 200;
    await visit(page, 'Conflicts');
    await page.getByRole('button', { name: /^Difference of conflict/ }).click();
    await page.getByText('A deletion was lost: the row is back.').waitFor();
    await page.getByRole('button', { name: 'Restore…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    expect(await isThere(a)).toBe(true);
    await page.getByRole('button', { name: 'Restore…' }).click();
    await page.getByRole('dialog').getByText('The row is deleted again').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete the row' }).click();
    await until('it is deleted', async () => !(await isThere(a)));
    expect(await isThere(b)).toBe(true);
    await ask(`${a.started.admin}/_rowcast/api/peers/resume`, 'POST', { url: b.url });
    await until('on b, too', async () => !(await isThere(b)));
    // There is nothing left to delete.
    await page.getByRole('button', { name: 'Restore…', disabled: true }).waitFor();
  });
});

describe.skipIf(!executable)('the story of a row at a hub', () => {
  test('who wrote it, how it stands, and which edges lack it', async () => {
    const [port] = (await freePorts(1)) as [number];
    const url = `http://127.0.0.1:${port}`;
    const [a, b] = [await startNode('a', ['-peer', url]), await startNode('b', ['-peer', url])];
    const flags = ['-listen', `127.0.0.1:${port}`, '-admin-listen', '127.0.0.1:0', '-edge', a.url, '-edge', b.url];
    const hub = runProgram(MAIN, ['hub', '-id', 'h', '-db', join(scratchFolder(), 'hub.db'), ...flags]);
    const { admin } = await started(hub);
    const api = `${admin}/_rowcast/api`;
    const { id } = await ask(`${a.url}/api/items`, 'POST', { name: HOSTILE, value: 1 });
    await until('b has it', async () => (await fetch(`${b.url}/api/items/${id}`)).status === 200);
    const { page } = await openConsole(admin);
    await page.getByRole('heading', { name: 'Hub h' }).waitFor();
    expect(await page.getByRole('link', { name: 'Conflicts' }).count()).toBe(0);
    await visit(page, 'Row');
    // A hub has no tables to choose from: their names are what it was sent.
    await page.getByLabel('Table').fill('items');
    await enter(page, 'Id', id, 'Look');
    await page.getByText('It is there').waitFor();
    await page.getByText('Written by a').waitFor();
    await page.getByText(HOSTILE).first().waitFor();
    await ask(`${api}/peers/pause`, 'POST', { url: b.url });
    await ask(`${a.url}/api/items/${id}`, 'PUT', { name: 'second', value: 2 });
    await page.getByRole('heading', { name: 'Waits to be sent' }).waitFor();
    await page.getByText(new RegExp(`for .*${new URL(b.url).port}`)).waitFor();
    await ask(`${api}/peers/resume`, 'POST', { url: b.url });
    await page.getByText('Nobody waits for it').waitFor();
    // What an edge knows of it.
    const found = (await ask(`${b.url}/api/items/${id}`, 'GET')) as { name: string };
    expect(found.name).toBe('second');
    await fetch(`${a.url}/api/items/${id}`, { method: 'DELETE' });
    await page.getByText('It was deleted').waitFor();
    await page.getByText('Deleted by a').waitFor();
  });
});
