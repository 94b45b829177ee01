/** The console with a thousand peers, on a telephone, in the dark, and to somebody who does not see it. */
import { readFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, describe, expect, test } from 'vitest';
import { type Administered, createAdminListener } from '../../src/admin/index.ts';
import { root } from '../support/build.ts';
import { cleanUp, until } from '../support/nodes.ts';
import type { Parsed } from '../support/programs.ts';
import { closeBrowser, enter, executable, openConsole, visit } from './browser.ts';

afterAll(closeBrowser);

const HOSTILE = '<img src=x onerror=alert(1)>';
const LONG = 'x'.repeat(3_000);
const SECTIONS = ['Overview', 'Dead letters', 'Verify', 'Log', 'Conflicts', 'Row'];

/** A node that is nowhere but in its status: as large and as ill as a test wants it. */
async function pretend(peers: number): Promise<{ url: string; status: Parsed }> {
  const states = Array.from({ length: peers }, (_, i) => ({
    url: `http://${i === 3 ? HOSTILE : `10.0.${Math.floor(i / 250)}.${i % 250}`}:9001`,
    state: i % 100 === 7 ? 'down' : 'up',
    pending: i % 50 === 7 ? 1_200 : 0,
    last_acked: 5,
    snapshot: false,
    paused: i % 100 === 11,
    stale: false,
    lag_ms: i % 50 === 7 ? 90_000 : 0,
    last_acked_at: 1,
    last_error: i % 100 === 7 ? LONG : null,
    verified: null,
  }));
  const status = {
    ok: false,
    node_id: `a${HOSTILE}`,
    inc: '5cd006792aa8db36',
    item_count: 1_234_567,
    pending_changes: 1_200,
    dead_letter: 2,
    lag_ms: 90_000,
    problems: [`the disk is full ${LONG}`],
    peers: states.map(({ url }) => url),
    peer_states: states,
    build: { version: '0.1.0', runtime: 'node 20', sqlite: '3.50.0' },
    letters: [{ direction: 'in', code: 'constraint', count: 2 }],
    file: { bytes: 123_456_789, wal_bytes: 4_000_000 },
    captured: 7_654_321,
    conflicts: 1,
    tables: [{ name: LONG, rows: 5, tombstones: 1 }],
  };
  const letter = {
    id: 1,
    direction: 'in',
    op: 'INSERT',
    table: LONG,
    rowId: LONG,
    row: JSON.stringify({ turned: '\u202etxt.exe', [LONG.slice(0, 900)]: LONG.slice(0, 900) }),
    peer: LONG,
    code: 'constraint',
    reason: LONG,
    failedAt: 1,
    retryCount: 3,
    dueAt: null,
  };
  const conflict = {
    conflictId: 1,
    at: 1,
    table: LONG,
    id: LONG,
    lostVersion: 1_794_802_491_536,
    lostBy: 'self',
    wonVersion: 1_794_802_491_605,
    wonBy: LONG,
    base: 5,
  };
  const rows = { lost: { id: 'x', [LONG]: LONG }, current: { id: 'x', [LONG]: HOSTILE }, columns: [LONG] };
  const why = {
    table: LONG,
    id: LONG,
    state: 'live',
    version: 1_794_802_491_605,
    row: { id: LONG, [LONG]: HOSTILE },
    tombstone: 5,
    hiddenBy: { id: LONG, version: 5 },
    lastFrom: { node: LONG, via: LONG, at: 1 },
    pending: [{ changeId: 1, op: 'UPDATE', version: 5, peersMissing: states.map(({ url }) => url) }],
    letters: [letter],
    conflicts: [conflict],
  };
  const never = (): never => {
    throw new Error('this node is nowhere');
  };
  const members = { add: never, remove: never, pause: never, resume: never, reseed: never, list: () => states };
  const subject = {
    status: () => status,
    verify: async () => [],
    deadLetters: { list: () => [letter, { ...letter, id: 2 }], retry: never, discard: never },
    conflicts: { list: () => [conflict], get: () => ({ ...conflict, ...rows }), restore: never, dismiss: never },
    why: () => why,
    peers: members,
    on: () => () => {},
  } as unknown as Administered;
  const line = { n: 1, time: '2026-01-01T00:00:00.000Z', level: 'error', event: LONG, fields: { [LONG]: LONG } };
  const server = http.createServer(createAdminListener(subject, { log: () => ({ began: 1, last: 1, lines: [line] }) }));
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  cleanUp(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, status };
}

async function openAll(page: Page, section: string): Promise<void> {
  await visit(page, section);
  await page.getByRole('heading', { name: section }).waitFor({ state: 'attached' });
  if (section === 'Row') {
    await enter(page, 'Id', LONG, 'Look');
    await page.getByText('It is there').waitFor();
  }
  const closed = page.getByRole('button', { expanded: false });
  if (section === 'Dead letters' || section === 'Conflicts') await closed.first().waitFor();
  while ((await closed.count()) > 0) await closed.first().click();
  if (section === 'Conflicts') await page.getByRole('region', { name: 'Difference by column' }).waitFor();
}

describe.skipIf(!executable)('with a thousand peers', () => {
  test('those that need somebody come first, fifty at a time, and the picture is of groups', async () => {
    const { url, status } = await pretend(1_000);
    const { page, requests } = await openConsole(url);
    const lines = page.getByRole('table').getByRole('row');
    await page.getByRole('heading', { name: 'Peers 1,000' }).waitFor();
    expect(await lines.count()).toBe(51);
    expect(await lines.nth(1).textContent()).toContain('down');
    await page.getByRole('img', { name: /10 peers down, lag 90 s.*970 peers up, lag 0 s/ }).waitFor();
    await page.getByRole('button', { name: 'Next' }).click();
    await page.getByText('51 to 100 of 1,000').waitFor();
    await page.getByRole('button', { name: /^paused/ }).click();
    await until('they alone are shown', async () => (await lines.count()) === 11);
    await page.getByRole('button', { name: 'all' }).click();
    await page.getByRole('searchbox').fill('10.0.3.249');
    await until('one is found', async () => (await lines.count()) === 2);
    await page.getByRole('searchbox').fill('');
    await until('all are shown again', async () => (await lines.count()) === 51);
    expect(await page.evaluate(() => document.querySelectorAll('*').length)).toBeLessThan(2_500);

    // A refresh leaves alone what has not changed.
    await page.evaluate(() => {
      const seen = window as unknown as { changed: number };
      seen.changed = 0;
      new MutationObserver((records) => {
        seen.changed += records.length;
      }).observe(document.querySelector('table') as Element, { subtree: true, childList: true, attributes: true });
    });
    const before = requests.length;
    status.item_count = 7;
    await page.locator('.figures').getByText(/^7 /).waitFor();
    // What the browser tells of its requests comes later than they are made.
    await until('it has asked', () => requests.length > before);
    expect(await page.evaluate(() => (window as unknown as { changed: number }).changed)).toBe(0);
  });
});

describe.skipIf(!executable)('on a telephone', () => {
  test.each(SECTIONS)('%s fits into 360 points, whatever it has to show', async (section) => {
    const { url } = await pretend(30);
    const { page } = await openConsole(url, { viewport: { width: 360, height: 740 }, hasTouch: true });
    await page.getByRole('heading', { level: 1 }).waitFor();
    await openAll(page, section);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
    expect(await page.evaluate(() => document.querySelectorAll('img, main script').length)).toBe(0);
    const isInView = () => {
      // The sections come with the first status, later than the heading.
      const place = document.querySelector('nav [aria-current]')?.getBoundingClientRect();
      return place !== undefined && place.left >= 0 && place.right <= 360;
    };
    await until('the section is named in sight', () => page.evaluate(isInView));
    // Also for whoever comes by a link to it.
    await page.reload();
    await page.getByRole('heading', { level: 1 }).waitFor();
    await until('it is after a reload', () => page.evaluate(isInView));
  });

  test('what would turn a line around or be invisible is spelt out', async () => {
    const { url } = await pretend(2);
    const { page } = await openConsole(url);
    await openAll(page, 'Dead letters');
    await page.getByText('\\u202etxt.exe').first().waitFor();
  });
});

test.skipIf(!executable)('what is typed before a slow page has done all that it does at first stays', async () => {
  const { url } = await pretend(2);
  const { page } = await openConsole(url);
  await page.getByRole('navigation').getByRole('link', { name: 'Row' }).waitFor();
  await page.clock.install();
  await page.clock.pauseAt(Date.now() + 60_000);
  await visit(page, 'Row');
  const field = page.getByLabel('Id', { exact: true });
  await field.fill('typed at once');
  await page.clock.runFor(1_000);
  await page.locator('button:enabled', { hasText: 'Look' }).waitFor();
  expect(await field.inputValue()).toBe('typed at once');
});

describe.skipIf(!executable)('to whoever does not see it', () => {
  const axe = readFileSync(join(root, 'node_modules', 'axe-core', 'axe.min.js'), 'utf8');

  test.each(['light', 'dark'] as const)('axe finds nothing in any section, %s', async (colorScheme) => {
    const { url } = await pretend(12);
    const { page } = await openConsole(url, { colorScheme, bypassCSP: true });
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.evaluate(axe);
    for (const section of SECTIONS) {
      await openAll(page, section);
      const found = await page.evaluate(async () => {
        const { violations } = await (window as unknown as { axe: { run(): Promise<Parsed> } }).axe.run();
        return violations.map(
          (one: Parsed) => `${one.id}: ${one.nodes[0].html.slice(0, 200)} ${one.nodes[0].failureSummary}`,
        );
      });
      expect(found.join('\n'), section).toBe('');
    }
    await visit(page, 'Overview');
    await page
      .getByRole('button', { name: /^Reseed/ })
      .first()
      .click();
    await page.getByRole('dialog').waitFor();
    const inDialog = await page.evaluate(
      async () => (await (window as unknown as { axe: { run(): Promise<Parsed> } }).axe.run()).violations.length,
    );
    expect(inDialog).toBe(0);
  });

  test('what changes is said, politely, and only that', async () => {
    const { url, status } = await pretend(2);
    const { page } = await openConsole(url);
    const region = page.getByRole('status');
    await page.getByRole('heading', { level: 1 }).waitFor();
    expect(await region.textContent()).toBe('');
    status.peer_states = status.peer_states.map((one: Parsed) => ({ ...one, state: 'down' }));
    await until('it is said', async () => /10\.0\.0\.0:9001 is down/.test((await region.textContent()) ?? ''));
    expect(await region.getAttribute('aria-live')).toBe('polite');
  });
});
