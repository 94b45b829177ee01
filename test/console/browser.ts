/** A real Chromium, Debian's, and a page in it that tells when it does what it may not. */
import { spawnSync } from 'node:child_process';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { expect } from 'vitest';
import { cleanUp, until } from '../support/nodes.ts';

/** How long something is waited for on a page: it ends what hangs, and times nothing. */
export const PATIENCE_MS = 240_000;

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
const MISSING = 'there is no Chromium: on Debian, apt-get install chromium';

/** Where it is installed; where it is not and may be, it is. Undefined where the tests have to do without. */
export const executable = find() ?? install();

/** In CI nothing is skipped for want of a program. */
if (!executable && process.env.CI) throw new Error(MISSING);
if (!executable) console.warn(`the console is not tested: ${MISSING}`);

function find(): string | undefined {
  const found = NAMES.map((name) => spawnSync('which', [name], { encoding: 'utf8' }).stdout.trim());
  return found.find((path) => path !== '');
}

function install(): string | undefined {
  if (!process.env.CI || process.getuid?.() !== 0 || process.platform !== 'linux') return undefined;
  spawnSync('apt-get', ['update'], { stdio: 'ignore' });
  spawnSync('apt-get', ['install', '-y', 'chromium'], { stdio: 'ignore' });
  return find();
}

let browser: Promise<Browser> | undefined;

function launched(): Promise<Browser> {
  browser ??= launch();
  return browser;
}

/** Another one, which the caller closes. */
export function launch(): Promise<Browser> {
  // Its sandbox does not work for root, and nothing foreign is ever loaded.
  const args = ['--no-sandbox'];
  return chromium.launch({ executablePath: executable as string, args, timeout: PATIENCE_MS });
}

export async function closeBrowser(): Promise<void> {
  await (await browser)?.close();
  browser = undefined;
}

export interface Watched {
  page: Page;
  /** Every request so far. */
  requests: string[];
  /** Resolves when every request has its answer, and the page has asked for nothing more because of it. */
  quiet(): Promise<void>;
}

/**
 * The console, open. When the test ends it must not have asked anybody else, have been stopped by the policy, or have
 * thrown; and nothing that it was shown may have run.
 */
export async function openConsole(url: string, options: BrowserContextOptions = {}): Promise<Watched> {
  const context = await (await launched()).newContext({ viewport: { width: 1200, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const requests: string[] = [];
  const faults: string[] = [];
  let underWay = 0;
  page.on('request', (request) => {
    requests.push(request.url());
    underWay += 1;
  });
  const isOver = (): void => {
    underWay -= 1;
  };
  page.on('requestfinished', isOver);
  page.on('requestfailed', isOver);
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('dialog', (dialog) => {
    faults.push(`it has opened ${dialog.type()} ${dialog.message()}`);
    void dialog.dismiss();
  });
  await page.exposeFunction('violated', (what: string) => faults.push(what));
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI, sample }) => {
      const report = (window as unknown as { violated(what: string): void }).violated;
      report(`${violatedDirective} ${blockedURI} ${sample}`);
    });
  });
  cleanUp(async () => {
    await context.close();
    expect(faults).toEqual([]);
    const { origin } = new URL(url);
    expect(requests.filter((one) => !one.startsWith(`${origin}/_rowcast/`) && !one.startsWith('data:'))).toEqual([]);
  });
  await page.goto(`${url}/_rowcast/`);
  const quiet = (): Promise<void> =>
    until('the page has its answers', async () => {
      if (underWay > 0) return false;
      await page.evaluate(() => document.title);
      return underWay === 0;
    });
  return { page, requests, quiet };
}

/** Goes to a section by its link. */
export async function visit(page: Page, section: string): Promise<void> {
  await page.getByRole('navigation').getByRole('link', { name: section }).click();
}

/** Types, and presses Enter once the form can be sent: the page draws that later than it is typed. */
export async function enter(page: Page, label: string, text: string, button: string): Promise<void> {
  const field = page.getByLabel(label, { exact: true });
  await field.fill(text);
  await page.locator('button:enabled', { hasText: button }).waitFor();
  await field.press('Enter');
}
