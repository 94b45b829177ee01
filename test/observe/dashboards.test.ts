/** The alerts and the dashboard that are shipped ask for figures that there are. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { collectMetrics } from '../../src/observe/index.ts';
import { root } from '../support/build.ts';
import { Cluster } from '../support/cluster.ts';

/** Every name with its labels, of a node to which everything has happened that makes a sample. */
async function names(): Promise<Map<string, Set<string>>> {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b']);
  const b = await cluster.node('b', ['a']);
  const metrics = [collectMetrics(a.manager), collectMetrics(b.manager)];
  a.db.exec("INSERT INTO items (id, updated_at) VALUES ('x', 1)");
  b.manager.receive('{"batch_id":1,"changes":[{"op":"INSERT","table":"no","row":{"id":"1","updated_at":1}}]}');
  await a.manager.flush();
  // An edit that is overwritten unseen.
  const seen = { op: 'UPDATE', table: 'items', row: { id: 'x', updated_at: 3 }, old_id: null, base: 0 };
  b.manager.receive(JSON.stringify({ batch_id: 2, changes: [seen] }), { from: 'c', said: 'id=c' });
  // A comparison that finds a difference which nobody has told of.
  b.db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
  b.db.exec("DELETE FROM items WHERE id = 'x'");
  b.db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
  await a.manager.verify();
  const texts = await Promise.all(metrics.map((one) => one.text()));
  const found = new Map<string, Set<string>>();
  for (const [, name = '', labels = ''] of texts.join('').matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
    const known = found.get(name) ?? new Set(['instance', 'job']);
    for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) known.add(label);
    found.set(name, known);
  }
  return found;
}

test.each(['prometheus-alerts.yaml', 'grafana-dashboard.json'])('%s', async (file) => {
  const text = readFileSync(join(root, 'deploy', file), 'utf8');
  const known = await names();
  const used = new Set(text.match(/rowcast_\w+/g));
  expect(used.size).toBeGreaterThan(5);
  expect([...used].filter((name) => !known.has(name))).toEqual([]);
  // In a rule and in a legend alike.
  const labels = new Set([...known.values()].flatMap((of) => [...of]));
  const asked = [...text.matchAll(/(?:by|on) \(([\w, ]+)\)/g)].flatMap(([, list = '']) => list.split(', '));
  const shown = [...text.matchAll(/\{\{(?: \$labels\.)?\s*(\w+)\s*\}\}/g)].map(([, name = '']) => name);
  expect([...asked, ...shown].filter((label) => !labels.has(label))).toEqual([]);
});

test('docs/metrics.md names every figure and its labels, and no other', async () => {
  const text = readFileSync(join(root, 'docs', 'metrics.md'), 'utf8');
  const listed = new Map<string, string[]>();
  for (const [, first = '', labels = ''] of text.matchAll(/^\| (`rowcast_[^|]+)\|([^|]*)\|/gm)) {
    const named = [...labels.matchAll(/`(\w+)`/g)].map(([, label = '']) => label);
    for (const [, name = ''] of first.matchAll(/`(\w+)`/g)) listed.set(name, named.sort());
  }
  const found = new Map<string, string[]>();
  for (const [name, labels] of await names()) {
    const family = name.replace(/(_duration_seconds)_(bucket|sum|count)$/, '$1');
    const own = [...labels].filter((label) => !['instance', 'job', 'le'].includes(label));
    found.set(family, own.sort());
  }
  expect(Object.fromEntries([...found].sort())).toEqual(Object.fromEntries([...listed].sort()));
});
