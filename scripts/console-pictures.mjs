/**
 * `npm run console-pictures`: takes the pictures of docs/console.md in a real Chromium (apt-get install chromium), of three
 * nodes that run for two minutes: rows are written, one peer is killed, an edit loses against another, and one row can be
 * applied nowhere.
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('..', import.meta.url));
const program = join(root, 'dist', 'src', 'cli', 'main.js');
const folder = mkdtempSync(join(tmpdir(), 'rowcast-'));
const WRITING_MS = 120_000;
const BYTES_MAX = 150_000;

const children = [];
try {
  await takePictures();
} finally {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
}

async function takePictures() {
  const nodes = await startNodes();
  await write(nodes);
  const edited = await makeConflict(nodes);
  await makeLetter(nodes.a);
  await nodes.c.kill();
  await save(nodes.a, 40);
  await pause(9_000);
  const executablePath = spawnSync('which', ['chromium'], { encoding: 'utf8' }).stdout.trim();
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
  const shoot = async (name, section, { width = 1_040, height, scheme = 'light', before } = {}) => {
    const context = await browser.newContext({
      viewport: { width, height },
      colorScheme: scheme,
      deviceScaleFactor: 1.25,
    });
    const page = await context.newPage();
    await page.goto(`${nodes.a.console}#/${section}`);
    await page.getByRole('heading', { level: 1, name: 'Node a' }).waitFor();
    await pause(1_500);
    await before?.(page);
    const path = join(root, 'docs', 'pictures', `console-${name}.png`);
    await page.screenshot({ path });
    await context.close();
    const { size } = statSync(path);
    if (size > BYTES_MAX) throw new Error(`${path} has ${size} bytes, more than ${BYTES_MAX}`);
    console.log(`docs/pictures/console-${name}.png: ${Math.round(size / 1_000)} kB`);
  };
  await shoot('overview', 'overview', { height: 730 });
  await shoot('dark', 'overview', { height: 730, scheme: 'dark' });
  await shoot('phone', 'overview', { width: 360, height: 760 });
  await shoot('letters', 'letters', {
    height: 420,
    before: (page) =>
      page
        .getByRole('button', { name: /^Row of/ })
        .first()
        .click(),
  });
  await shoot('conflict', 'conflicts', {
    height: 500,
    before: async (page) => {
      await page
        .getByRole('button', { name: /^Difference of/ })
        .first()
        .click();
      await page.getByRole('region', { name: 'Difference by column' }).waitFor();
    },
  });
  await shoot('row', `row?table=items&id=${edited}`, { height: 620 });
  await shoot('verify', 'verify', {
    height: 460,
    before: async (page) => {
      await page.getByRole('button', { name: 'Compare', exact: true }).click();
      await page
        .getByRole('button', { name: /^Rows of/ })
        .first()
        .click({ timeout: 120_000 });
    },
  });
  await browser.close();
}

/** a, b and c, every one linked to every other. */
async function startNodes() {
  const ids = ['a', 'b', 'c'];
  const port = (id) => 9_001 + ids.indexOf(id);
  const started = await Promise.all(
    ids.map(async (id) => {
      const peers = ids
        .filter((other) => other !== id)
        .flatMap((other) => ['-peer', `http://127.0.0.1:${port(other)}`]);
      const at = ['-listen', `127.0.0.1:${port(id)}`, '-admin-listen', `127.0.0.1:${port(id) + 100}`];
      const args = [program, 'serve', '-id', id, '-db', join(folder, `${id}.db`), ...at, ...peers];
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
      children.push(child);
      await new Promise((resolve) => child.stdout.on('data', (text) => /"started"/.test(text) && resolve()));
      const ended = new Promise((resolve) => child.on('exit', resolve));
      const kill = () => child.kill('SIGKILL') && ended;
      return [
        id,
        { url: `http://127.0.0.1:${port(id)}`, console: `http://127.0.0.1:${port(id) + 100}/_rowcast/`, kill },
      ];
    }),
  );
  return Object.fromEntries(started);
}

/** More and less of it, as people write. */
async function write({ a, b, c }) {
  for (const began = Date.now(); Date.now() - began < WRITING_MS; await pause(500)) {
    const at = (Date.now() - began) / 1_000;
    await save(a, Math.round(30 + 22 * Math.sin(at / 9)));
    await save(b, Math.round(14 + 10 * Math.sin(at / 5 + 1)));
    await save(c, 4);
  }
}

async function save({ url }, count) {
  const rows = Array.from({ length: count }, (_, i) => ({ name: `order ${Date.now() % 100_000}-${i}`, value: i }));
  return (await ask(`${url}/api/items/batch`, 'POST', rows)).items;
}

/** While a does not send, b edits the same row, and later: a's edit is lost. */
async function makeConflict({ a, b }) {
  const [{ id }] = await save(a, 1);
  await pause(2_000);
  const peers = (verb) => ask(`${a.console}api/peers/${verb}`, 'POST', { url: b.url }, { 'x-rowcast-admin': '1' });
  await peers('pause');
  await ask(`${a.url}/api/items/${id}`, 'PUT', { name: 'order 4711, to be paid by Friday', value: 120 });
  await pause(50);
  await ask(`${b.url}/api/items/${id}`, 'PUT', { name: 'order 4711', value: 80 });
  await pause(2_000);
  await peers('resume');
  return id;
}

async function makeLetter({ url }) {
  const row = { id: 'i-31', updated_at: Date.now(), number: '2026-0031', total: 118.4, paid: 0 };
  const change = { op: 'INSERT', table: 'invoices', row, old_id: null };
  const own = {
    op: 'INSERT',
    table: 'items',
    row: { id: 'only-a', updated_at: 5, name: 'a alone has it' },
    old_id: null,
  };
  await ask(`${url}/sync`, 'POST', { batch_id: 1, changes: [change, own] });
}

async function ask(url, method, body, headers = {}) {
  const answer = await fetch(url, {
    method,
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${method} ${url}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
