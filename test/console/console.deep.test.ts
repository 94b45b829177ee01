/** The console in a real browser, against running programs: what it shows, what it does, and what it survives. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page, Route } from 'playwright-core';
import { afterAll, describe, expect, test } from 'vitest';
import { database, scratchFolder, until } from '../support/nodes.ts';
import { freePorts, MAIN, type NodeProgram, type Parsed, runProgram, started, startNode } from '../support/programs.ts';
import { closeBrowser, enter, executable, openConsole, visit, type Watched } from './browser.ts';

afterAll(closeBrowser);

const ADMIN = ['-admin-listen', '127.0.0.1:0'];
const HOSTILE = '<img src=x onerror=alert(1)><script>alert(2)</script>';

async function post(url: string, body: unknown): Promise<void> {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  expect(answer.status).toBeLessThan(300);
}

const writeItem = (node: NodeProgram, name: string): Promise<void> => post(`${node.url}/api/items`, { name, value: 1 });

/** Received, and not passed on: only this node has it. */
const receive = (node: NodeProgram, ...changes: Parsed[]): Promise<void> =>
  post(`${node.url}/sync`, { batch_id: 1, changes });

const letterOf = (table: string, id = 'x', more = {}): Parsed => ({
  op: 'INSERT',
  table,
  row: { id, updated_at: 1, ...more },
  old_id: null,
});

const statusOf = async (node: NodeProgram): Promise<Parsed> =>
  (await fetch(`${node.started.admin}/_rowcast/api/status`)).json();

const lineOf = (page: Page, url: string) => page.getByRole('row', { name: url });
const shows = async (page: Page, text: string | RegExp): Promise<void> =>
  page.getByText(text).first().waitFor({ state: 'visible' });

/** Two nodes: a sends to b, and is looked at. */
async function pair(): Promise<{ a: NodeProgram; b: NodeProgram } & Watched> {
  const b = await startNode('b');
  const a = await startNode('a', ['-peer', b.url, '-request-timeout-ms', '600000', ...ADMIN]);
  return { a, b, ...(await openConsole(a.started.admin)) };
}

describe.skipIf(!executable)('the console of a node', () => {
  test('shows its peers, and pauses, resumes and reseeds them', async () => {
    const { a, b, page } = await pair();
    await writeItem(a, 'first');
    await page.getByRole('heading', { name: 'Node a' }).waitFor();
    await lineOf(page, b.url).getByText('up').waitFor();
    await page.getByRole('img', { name: /a sends to 1 peer: .* up, lag 0 s/ }).waitFor();
    await page.getByRole('button', { name: /^Pause/ }).click();
    await lineOf(page, b.url).getByText('paused').waitFor();
    await writeItem(a, 'second');
    await until('it waits', async () => (await statusOf(a)).peer_states[0].pending === 1);
    await page.getByRole('img', { name: /paused, lag/ }).waitFor();
    await page.getByRole('button', { name: /^Resume/ }).click();
    await lineOf(page, b.url).getByText('up').waitFor();
    await until('b has both', async () => (await (await fetch(`${b.url}/api/items`)).json()).length === 2);

    // A row that b has lost, and nobody has deleted.
    const other = await database('PRAGMA user_version', b.db);
    const captured = (on: number): string => `UPDATE _meta SET value = ${on} WHERE key = 'syncing'`;
    other.exec(`BEGIN IMMEDIATE; ${captured(1)}; DELETE FROM items WHERE name = 'first'; ${captured(0)}; COMMIT`);
    const itemsOfB = async (): Promise<number> => (await (await fetch(`${b.url}/api/items`)).json()).length;
    expect(await itemsOfB()).toBe(1);
    await page.getByRole('button', { name: /^Reseed/ }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('button', { name: /^Reseed/ }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Reseed' }).click();
    await shows(page, /^Reseed .*: done/);
    await until('b has it again', async () => (await itemsOfB()) === 2);
    other.close();
  });

  test('throughput is there from the first look on, for whoever comes later', async () => {
    const { a } = await pair();
    await writeItem(a, 'first');
    const rates = async (): Promise<Parsed> => (await fetch(`${a.started.admin}/_rowcast/api/rates`)).json();
    await until('it is counted, and its step is over', async () => {
      const { acked } = await rates();
      return acked.slice(0, -1).some((n: number) => n > 0);
    });
    const { page } = await openConsole(a.started.admin);
    await page.getByRole('img', { name: /^Out: .* at most 0\.2 within five minutes/ }).waitFor();
    await page.getByRole('img', { name: /rows a second acknowledged, at most 0\.2/ }).waitFor();
  });

  test('dead letters are read, retried and discarded, and nothing in them runs', async () => {
    const { a, page } = await pair();
    await receive(a, letterOf(HOSTILE, HOSTILE, { [HOSTILE]: HOSTILE, long: 'y'.repeat(9_000) }), letterOf('nowhere'));
    await visit(page, 'Dead letters');
    await shows(page, HOSTILE);
    await page.getByRole('button', { name: 'Row of dead letter 1' }).click();
    await shows(page, /The row has 9,\d\d\d characters/);
    await page.getByRole('button', { name: 'Row of dead letter 2' }).click();
    await page.getByRole('definition').filter({ hasText: 'x' }).first().waitFor();
    await page.getByRole('button', { name: 'Retry dead letter 2' }).click();
    await shows(page, /^Letter 2: kept/);
    await page.getByRole('button', { name: 'Retry all' }).click();
    await shows(page, '2 kept');
    const discard = page.getByRole('button', { name: 'Discard dead letter 2' });
    await discard.click();
    await page.keyboard.press('Escape');
    await until('the focus is back', () => discard.evaluate((button) => button === document.activeElement));
    expect((await statusOf(a)).dead_letter).toBe(2);
    await discard.click();
    await page.getByRole('dialog').getByRole('button', { name: 'Discard' }).click();
    await discard.waitFor({ state: 'detached' });
    expect((await statusOf(a)).dead_letter).toBe(1);
    const focused = (): Promise<string> => page.evaluate(() => document.activeElement?.textContent ?? '');
    await until('the focus is on what is left', async () => (await focused()).startsWith('Dead letters'));
  });

  test('a letter that may not be discarded says why', async () => {
    const { a, page } = await pair();
    await receive(a, letterOf('nowhere'));
    await visit(page, 'Dead letters');
    const discard = page.getByRole('button', { name: 'Discard dead letter 1' });
    await discard.click();
    await post(`${a.started.admin}/_rowcast/api/dead-letters/1/discard`, {}).catch(() => {});
    await fetch(`${a.started.admin}/_rowcast/api/dead-letters/1/discard`, {
      method: 'POST',
      headers: { 'x-rowcast-admin': '1' },
    });
    await page.getByRole('dialog').getByRole('button', { name: 'Discard' }).click();
    await shows(page, /there is no dead letter 1/);
  });

  test('compares, shows what differs, and repairs it', async () => {
    const { a, b, page } = await pair();
    await writeItem(a, 'both have it');
    await receive(a, letterOf('items', 'only here', { name: HOSTILE }));
    await visit(page, 'Verify');
    // It lasts until it was seen.
    b.child.kill('SIGSTOP');
    await page.getByRole('button', { name: 'Compare', exact: true }).click();
    await page.getByRole('progressbar').waitFor();
    b.child.kill('SIGCONT');
    await shows(page, '1 of 1 differ');
    await page.getByRole('button', { name: /^Rows of/ }).click();
    await page.getByRole('cell', { name: 'only here' }).waitFor();
    await page.getByRole('button', { name: 'Compare and repair' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Compare and repair' }).click();
    await shows(page, 'Equal with all 1');
    await until('b has it', async () => (await (await fetch(`${b.url}/api/items`)).json()).length === 2);
  });

  test('the log goes on while one looks, and filters', async () => {
    const { a, b, page } = await pair();
    await visit(page, 'Log');
    await shows(page, 'started');
    await receive(a, letterOf(HOSTILE));
    await shows(page, HOSTILE);
    b.child.kill('SIGKILL');
    await b.ended;
    await writeItem(a, 'first');
    await shows(page, 'peer-down');
    await page.getByRole('button', { name: 'warnings and errors' }).click();
    await until('the others are gone', async () => (await page.getByText('started').count()) === 0);
    expect(await page.getByText('peer-down').count()).toBe(1);
  });

  test('a log that is slow to come is shown once, however often it was asked for meanwhile', async () => {
    const { page } = await pair();
    const held: Route[] = [];
    let isHeld = true;
    await page.route('**/_rowcast/api/log?*', (route) => (isHeld ? void held.push(route) : route.continue()));
    await visit(page, 'Log');
    await until('it has asked', () => held.length > 0);
    // A poll, which ends with asking for what the section shows.
    await page.waitForResponse(/\/rates\?/);
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
    isHeld = false;
    for (const route of held) await route.continue();
    await shows(page, 'started');
    await page.waitForResponse(/\/rates\?/);
    expect(await page.getByText('started').count()).toBe(1);
  });

  test('a peer that is killed and comes back is seen to', async () => {
    const [port] = (await freePorts(1)) as [number];
    const folder = scratchFolder();
    const where = ['-listen', `127.0.0.1:${port}`];
    const b = await startNode('b', where, folder);
    const a = await startNode('a', ['-peer', b.url, ...ADMIN]);
    const { page } = await openConsole(a.started.admin);
    await writeItem(a, 'first');
    await lineOf(page, b.url).getByText('up').waitFor();
    b.child.kill('SIGKILL');
    await b.ended;
    await writeItem(a, 'second');
    await lineOf(page, b.url).getByText('down').waitFor();
    await shows(page, /^1 peer down/);
    await startNode('b', where, folder);
    await lineOf(page, b.url).getByText('up').waitFor();
    await shows(page, 'nothing waits');
  });

  test('a node that is killed and comes back: the page says so, keeps what it had, and recovers by itself', async () => {
    const [port, adminPort] = (await freePorts(2)) as [number, number];
    const folder = scratchFolder();
    const where = ['-listen', `127.0.0.1:${port}`, '-admin-listen', `127.0.0.1:${adminPort}`];
    const a = await startNode('a', where, folder);
    const { page } = await openConsole(a.started.admin);
    await visit(page, 'Log');
    await shows(page, 'started');
    a.child.kill('SIGKILL');
    await a.ended;
    const banner = page.locator('.banner');
    await banner.getByText('a does not answer').waitFor();
    await shows(page, 'started');
    await startNode('a', where, folder);
    await banner.waitFor({ state: 'detached' });
    await until('both lives are in the log', async () => (await page.getByText('started').count()) === 2);
  });

  test('nobody is asked while nobody looks', async () => {
    const { page, quiet } = await pair();
    await page.getByRole('heading', { name: 'Node a' }).waitFor();
    // Counted in the page itself: what the browser tells of its requests comes later than they are made.
    await page.evaluate(() => {
      const { fetch } = window;
      const asked: string[] = [];
      const counted = (input: string, init?: RequestInit): Promise<Response> => {
        asked.push(input);
        return fetch(input, init);
      };
      Object.assign(window, { asked, fetch: counted });
    });
    const count = (part: string): Promise<number> =>
      page.evaluate(
        (text) => (window as unknown as { asked: string[] }).asked.filter((one) => one.includes(text)).length,
        part,
      );
    // A poll begins with the one and goes on with the other.
    const polls = (): Promise<number> => count('/status');
    const rates = (): Promise<number> => count('/rates?');
    /** What the page takes itself for, one after the other, and whether it is told: all before anything else happens. */
    const hide = (...steps: { hidden: boolean; told: boolean }[]): Promise<void> =>
      page.evaluate((all) => {
        for (const { hidden, told } of all) {
          Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
          if (told) document.dispatchEvent(new Event('visibilitychange'));
        }
      }, steps);
    await page.clock.install();
    const silent = async (): Promise<void> => {
      await until('what was asked for is there', async () => (await rates()) >= (await polls()));
      await quiet();
      await page.clock.runFor(1_000);
      const before = await polls();
      await page.clock.runFor(60_000);
      expect(await polls()).toBe(before);
    };
    await hide({ hidden: true, told: true });
    await silent();
    // While it asks: what is under way ends, and nothing follows.
    const asked = await polls();
    await until('it asks', async () => {
      await hide({ hidden: false, told: true }, { hidden: true, told: false });
      return (await polls()) > asked;
    });
    await silent();
    const before = await polls();
    await hide({ hidden: false, told: true });
    await until('it asks again', async () => (await polls()) > before);
  });

  test('asks for the token, and keeps it in the tab alone', async () => {
    const folder = scratchFolder();
    const file = join(folder, 'token');
    writeFileSync(file, 'sixteen letters or more\n', { mode: 0o600 });
    const a = await startNode('a', [...ADMIN, '-admin-token-file', file], folder);
    const { page } = await openConsole(a.started.admin);
    const field = page.getByLabel('Token', { exact: true });
    await field.fill('not the token');
    await page.getByRole('button', { name: 'Open' }).click();
    await shows(page, 'That is not the token.');
    await enter(page, 'Token', 'sixteen letters or more', 'Open');
    await page.getByRole('heading', { name: 'Node a' }).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: 'Node a' }).waitFor();
    expect(
      await page.evaluate(() => [localStorage.length, document.cookie, location.href.includes('sixteen')]),
    ).toEqual([0, '', false]);
  });

  test('is walked through by the keyboard, and a refresh takes the focus from nobody', async () => {
    const { b, page, requests } = await pair();
    await lineOf(page, b.url).waitFor();
    const focused = (): Promise<string> =>
      page.evaluate(
        () => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent ?? '',
      );
    const walked: string[] = [];
    for (let i = 0; i < 20; i++) {
      await page.keyboard.press('Tab');
      walked.push(await focused());
    }
    expect(walked[0]).toBe('Skip to the content');
    for (const name of ['Overview', 'Dead letters', 'Verify', 'Log', 'all']) expect(walked).toContain(name);
    const host = new URL(b.url).host;
    await page.getByRole('button', { name: `Reseed ${host}` }).focus();
    const polls = (): number => requests.filter((one) => one.endsWith('/status')).length;
    const before = polls();
    await until('it was refreshed twice', () => polls() >= before + 2);
    expect(await focused()).toBe(`Reseed ${host}`);
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await until('it has the focus', async () => (await focused()) === 'Cancel');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await until('the focus is back', async () => (await focused()) === `Reseed ${host}`);
    await page.getByRole('link', { name: 'Log' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Log' }).waitFor();
    await until('its heading has the focus', async () => (await focused()) === 'Log');
  });
});

test.skipIf(!executable)('the console of a hub has its edges, and no section that a hub has not', async () => {
  const b = await startNode('b');
  const db = join(scratchFolder(), 'hub.db');
  const hub = runProgram(MAIN, ['hub', '-id', 'h', '-db', db, '-listen', '127.0.0.1:0', '-edge', b.url, ...ADMIN]);
  const { admin, url } = await started(hub);
  const { page } = await openConsole(admin);
  await page.getByRole('heading', { name: 'Hub h' }).waitFor();
  await page.getByRole('heading', { name: /^Edges/ }).waitFor();
  await post(`${url}/sync`, { batch_id: 1, changes: [letterOf('items', 'by way of the hub')] });
  await until('b has it', async () => (await (await fetch(`${b.url}/api/items`)).json()).length === 1);
  await lineOf(page, b.url).getByText('up').waitFor();
  await page.getByRole('button', { name: /^Pause/ }).click();
  await lineOf(page, b.url).getByText('paused').waitFor();
  const sections = await page.getByRole('navigation').getByRole('link').allTextContents();
  expect(sections).toEqual(expect.arrayContaining(['Overview', 'Dead letters', 'Verify', 'Log']));
  expect(sections).not.toContain('Conflicts');
  await visit(page, 'Verify');
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await shows(page, /Equal with all 1|1 of 1 differ/);
});
