/** Prometheus's own tool reads what a node and a hub say, and the alerts that are shipped. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { collectMetrics } from '../../src/observe/index.ts';
import { root } from '../support/build.ts';
import { Cluster } from '../support/cluster.ts';

const promtool = findPromtool();

test('promtool is here, or this is not CI', () => {
  expect(promtool !== undefined || !process.env.CI, 'apt-get install prometheus').toBe(true);
});

test.skipIf(promtool === undefined)('the text format, of a node and of a hub', async () => {
  const cluster = new Cluster();
  const hub = await cluster.hub('h', ['a']);
  const a = await cluster.node('a', ['h']);
  const metrics = [collectMetrics(a.manager), collectMetrics(hub.hub)];
  a.db.exec("INSERT INTO items (id, updated_at) VALUES ('x', 1)");
  a.manager.receive('{"batch_id":1,"changes":[{"op":"INSERT","table":"no","row":{"id":"1","updated_at":1}}]}');
  await a.manager.flush();
  await a.manager.verify();
  for (const one of metrics) {
    const { status, stdout, stderr } = spawnSync(promtool as string, ['check', 'metrics'], { input: await one.text() });
    expect([status, String(stdout), String(stderr)]).toEqual([0, '', '']);
  }
});

test.skipIf(promtool === undefined)('the alerts', () => {
  const rules = join(root, 'deploy', 'prometheus-alerts.yaml');
  expect(execFileSync(promtool as string, ['check', 'rules', rules], { encoding: 'utf8' })).toContain('8 rules found');
});

/** On the path, or taken out of Debian's package, which would start a server if it were installed. */
function findPromtool(): string | undefined {
  const installed = (process.env.PATH ?? '').split(':').map((folder) => join(folder, 'promtool'));
  const folder = join(root, 'node_modules', '.cache', 'rowcast', 'prometheus');
  const unpacked = join(folder, 'usr', 'bin', 'promtool');
  const there = (): string | undefined => [...installed, unpacked].find((path) => existsSync(path));
  if (there() || !process.env.CI) return there();
  try {
    mkdirSync(folder, { recursive: true });
    execFileSync('apt-get', ['download', 'prometheus'], { cwd: folder, stdio: 'ignore' });
    const file = readdirSync(folder).find((name) => name.endsWith('.deb'));
    execFileSync('dpkg-deb', ['-x', file as string, '.'], { cwd: folder, stdio: 'ignore' });
  } catch {
    // The first test says so.
  }
  return there();
}
