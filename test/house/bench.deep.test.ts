/** The benchmark itself: that it measures what it says, and that it refuses to report a wrong result. */
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import net, { type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { compileInto, root } from '../support/build.ts';
import { scratchFolder } from '../support/nodes.ts';

// biome-ignore lint/suspicious/noExplicitAny: the benchmark is plain JavaScript
const load = (name: string): Promise<any> => import(join(root, 'bench', 'lib', `${name}.mjs`));

/** With the Node of the PATH: the benchmark starts the other runtimes by itself. */
function bench(folder: string, ...args: string[]): Promise<{ code: number; text: string }> {
  return new Promise((resolve) => {
    execFile('node', [join(folder, 'bench', 'run.mjs'), ...args], { timeout: 600_000 }, (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code ?? 1) : 0, text: stdout + stderr });
    });
  });
}

/** The benchmark and a build of its own, which a test may spoil. */
function copyWithBuild(): string {
  const folder = scratchFolder();
  cpSync(join(root, 'bench'), join(folder, 'bench'), {
    recursive: true,
    filter: (path) => !/node_modules|results|unpacked/.test(path.slice(root.length)),
  });
  mkdirSync(join(folder, 'test'));
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  compileInto(join(folder, 'dist'));
  return folder;
}

test('quantiles and the interval of a median are those of the textbook', async () => {
  const { quantile, median, medianInterval } = await load('statistics');
  expect(median([3, 1, 2])).toBe(2);
  expect(median([4, 1, 2, 3])).toBe(2.5);
  expect(quantile([10, 20, 30, 40, 50], 0.25)).toBe(20);
  expect(medianInterval([5, 1, 4, 2, 3])).toEqual({ low: 1, high: 5, confidence: 0.9375 });
  expect(medianInterval([9, 8, 7, 6, 5, 4, 3, 2, 1])).toMatchObject({ low: 2, high: 8 });
});

test('the rows are the same for the same number, and their ids are UUIDs that never repeat', async () => {
  const { makeRow, rowId } = await load('rows');
  expect(makeRow(7, { now: 1 })).toEqual(makeRow(7, { now: 1 }));
  const ordered = Array.from({ length: 50_000 }, (_, i) => rowId(i) as string);
  const random = Array.from({ length: 50_000 }, (_, i) => rowId(i, 'v4') as string);
  for (const [ids, version] of [
    [ordered, 7],
    [random, 4],
  ] as const) {
    expect(new Set(ids).size).toBe(50_000);
    const form = new RegExp(`^[0-9a-f]{8}-[0-9a-f]{4}-${version}[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$`);
    expect(ids.filter((id) => !form.test(id))).toEqual([]);
  }
  expect(ordered).toEqual(ordered.toSorted());
});

test('the slow link passes on every byte in order, and counts them', async () => {
  const { throttle } = await load('throttle');
  const { freePort } = await load('processes');
  const echo = net.createServer((socket) => socket.pipe(socket));
  await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve));
  const port = await freePort();
  const link = await throttle({ port, target: (echo.address() as AddressInfo).port, bitsPerSecond: 1e8, latencyMs: 1 });
  const sent = Buffer.from(Array.from({ length: 200_000 }, (_, i) => i % 251));
  const socket = net.connect(port, '127.0.0.1');
  const chunks: Buffer[] = [];
  await new Promise<void>((resolve, reject) => {
    let size = 0;
    socket.on('error', reject);
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      size += chunk.length;
      if (size >= sent.length) resolve();
    });
    socket.write(sent);
  });
  socket.destroy();
  expect(Buffer.concat(chunks).equals(sent)).toBe(true);
  expect(link.bytes()).toEqual({ up: sent.length, down: sent.length });
  await link.close();
  await new Promise((resolve) => echo.close(resolve));
});

test.each([
  '--nothing',
  '--only nothing',
  '--runtime deno',
  '--repetitions 0',
  '--vary compression',
  '--peers --against HEAD',
  '--against HEAD --repetitions 3',
])('%s is refused before anything runs', async (flags) => {
  const { code, text } = await bench(root, ...flags.split(' '));
  expect(code).toBe(2);
  expect(text).toContain('usage: npm run bench');
});

test('a run measures, checks and reports; a build that alters a value on the way is no figure', {
  timeout: 1_300_000,
}, async () => {
  const folder = copyWithBuild();
  const out = join(folder, 'results');
  const args = ['--quick', '--repetitions', '1', '--only', 'end-to-end', '--out', out];
  const good = await bench(folder, ...args);
  expect(good).toMatchObject({ code: 0 });
  const report = JSON.parse(readFileSync(join(out, 'node', 'report.json'), 'utf8'));
  const metrics = report.figures.flatMap((figure: { metrics: object[] }) => figure.metrics);
  expect(metrics.map(({ key }: { key: string }) => key)).toEqual(expect.arrayContaining(['cpu', 'share', 'seconds']));
  for (const metric of metrics) expect(metric.median).toBeGreaterThan(0);
  expect(readFileSync(join(out, 'node', 'report.md'), 'utf8')).toContain('## Targets');

  const target = join(folder, 'dist', 'src', 'receive', 'apply.js');
  const spoilt = readFileSync(target, 'utf8').replace(
    /(\n\s+#read\(body, .*\) \{\n)/,
    "$1 body = Buffer.from(String(Buffer.from(body)).replace('item number 77\"', 'item number 78\"'));\n",
  );
  expect(spoilt).not.toBe(readFileSync(target, 'utf8'));
  writeFileSync(target, spoilt);
  const bad = await bench(folder, ...args);
  expect(bad.code).toBe(1);
  expect(bad.text).toContain('wrong result: the nodes hold different rows');
});
