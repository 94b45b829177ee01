/** The figures of a node and of a hub, as a scrape gets them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createHandler } from '../../src/http/index.ts';
import { exposition, Histogram } from '../../src/observe/exposition.ts';
import { collectMetrics } from '../../src/observe/index.ts';
import { VERSION } from '../../src/observe/version.ts';
import { root } from '../support/build.ts';
import { Cluster } from '../support/cluster.ts';
import { until } from '../support/nodes.ts';

/** A line of the text format that is no comment: a name, labels, a number. */
const LINE =
  /^([a-zA-Z_:][\w:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*\})? (NaN|[+-]Inf|-?[\d.]+(?:e[+-]?\d+)?)$/;

/** The samples by their name and labels. Fails on a line that is not of the format. */
function read(text: string): Map<string, number> {
  expect(text.endsWith('\n')).toBe(true);
  const samples = new Map<string, number>();
  let family = '';
  for (const line of text.slice(0, -1).split('\n')) {
    const comment = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line);
    if (comment) {
      const [, kind, name = '', what] = comment;
      if (kind === 'HELP') family = name;
      else expect(['counter', 'gauge', 'histogram']).toContain(what);
      expect(name).toBe(family);
      continue;
    }
    const [, name = '', labels = '', value] = LINE.exec(line) ?? [];
    expect(name.replace(/_(bucket|sum|count)$/, ''), line).toBe(family.replace(/_(sum|count)$/, ''));
    expect(samples.has(name + labels), `twice: ${line}`).toBe(false);
    samples.set(name + labels, Number(value?.replace('Inf', 'Infinity')));
  }
  return samples;
}

test('the version is that of the package', () => {
  expect(VERSION).toBe(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version);
});

describe('the text format', () => {
  test('labels are quoted, whatever is in them', () => {
    const odd = 'a"b\\c\nd{}=,';
    const text = exposition([
      { name: 'x', type: 'gauge', help: 'two\nlines', samples: [{ labels: { odd }, value: 1 }] },
    ]);
    expect(text).toBe('# HELP x two\\nlines\n# TYPE x gauge\nx{odd="a\\"b\\\\c\\nd{}=,"} 1\n');
  });

  test('a histogram counts each value in every bucket that is wide enough', () => {
    const histogram = new Histogram([0.1, 1]);
    for (const seconds of [0.1, 0.5, 7]) histogram.observe({}, seconds);
    const text = exposition([{ name: 'h', type: 'histogram', help: 'h', samples: histogram.samples }]);
    expect([...read(text)]).toEqual([
      ['h_bucket{le="0.1"}', 1],
      ['h_bucket{le="1"}', 2],
      ['h_bucket{le="+Inf"}', 3],
      ['h_sum', 7.6],
      ['h_count', 3],
    ]);
  });
});

test('a node shows what it has captured, sent and received', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b']);
  const b = await cluster.node('b', ['a']);
  const [ofA, ofB] = [collectMetrics(a.manager), collectMetrics(b.manager)];
  a.db.exec("INSERT INTO items (id, name, updated_at) VALUES ('secret-1', 'hidden', 1), ('secret-2', 'hidden', 2)");
  a.db.exec("DELETE FROM items WHERE id = 'secret-2'");
  await a.manager.flush();
  const sent = await ofA.text();
  const samples = read(sent);
  const peer = cluster.url('b');
  expect(samples.get('rowcast_ok')).toBe(1);
  expect(samples.get('rowcast_changes_captured_total')).toBe(3);
  expect(samples.get('rowcast_rows{table="items"}')).toBe(1);
  expect(samples.get('rowcast_tombstones{table="items"}')).toBe(1);
  expect(samples.get(`rowcast_peer_up{peer="${peer}"}`)).toBe(1);
  expect(samples.get(`rowcast_peer_pending_changes{peer="${peer}"}`)).toBe(0);
  expect(samples.get(`rowcast_peer_changes_acked_total{peer="${peer}"}`)).toBe(3);
  expect(samples.get(`rowcast_peer_request_duration_seconds_count{peer="${peer}"}`)).toBeGreaterThan(0);
  expect(samples.get('rowcast_database_size_bytes')).toBeGreaterThan(4_096);
  expect(samples.get('rowcast_identity_renewed_total')).toBe(0);
  const received = read(await ofB.text());
  expect(received.get('rowcast_received_changes_total{outcome="applied"}')).toBe(3);
  expect(received.get('rowcast_received_batches_total{result="acked"}')).toBeGreaterThan(0);
  // Neither an id nor a value of a row is ever in a label.
  expect(sent + (await ofB.text())).not.toMatch(/secret|hidden/);
  await a.manager.peers.remove(peer);
  expect(await ofA.text()).not.toContain(peer);
});

test('dead letters are counted by direction and code, those of now and those that came', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', []);
  const metrics = collectMetrics(a.manager);
  const bad = { op: 'INSERT', table: 'nowhere', row: { id: 'x', updated_at: 1 }, old_id: null } as const;
  a.manager.receive(JSON.stringify({ batch_id: 1, changes: [bad] }), { from: 'b' });
  const label = '{direction="in",code="unknown-table"}';
  const samples = read(await metrics.text());
  expect(samples.get(`rowcast_dead_letters${label}`)).toBe(1);
  expect(samples.get(`rowcast_dead_letters_created_total${label}`)).toBe(1);
  a.manager.deadLetters.discard(a.manager.deadLetters.list()[0]?.id as number);
  const after = read(await metrics.text());
  expect(after.get(`rowcast_dead_letters${label}`)).toBeUndefined();
  expect(after.get(`rowcast_dead_letters_created_total${label}`)).toBe(1);
});

test('a hub has the same names', async () => {
  const cluster = new Cluster();
  const hub = await cluster.hub('h', ['a']);
  const metrics = collectMetrics(hub.hub);
  const a = await cluster.node('a', ['h']);
  a.db.exec("INSERT INTO items (id, updated_at) VALUES ('x', 1)");
  await a.manager.flush();
  await until('the hub has it', async () => (await hub.hub.health()).item_count === 1);
  const samples = read(await metrics.text());
  expect([...samples.keys()].some((key) => /^rowcast_node_info\{node_id="h",inc="\w+",role="hub"\}$/.test(key))).toBe(
    true,
  );
  expect(samples.get('rowcast_rows')).toBe(1);
  expect(samples.get('rowcast_received_changes_total{outcome="applied"}')).toBe(1);
});

test('a database that cannot be read is said not to be well, and what was counted is said as ever', async () => {
  const { manager } = await new Cluster().node('a', []);
  const status = (): never => {
    throw new Error('database disk image is malformed');
  };
  const samples = read(await collectMetrics({ status, on: manager.on.bind(manager) }).text());
  expect(samples.get('rowcast_ok')).toBe(0);
  expect(samples.get('rowcast_capture_gaps_total')).toBe(0);
  expect(samples.get('rowcast_pending_changes')).toBeUndefined();
});

describe('the routes', () => {
  const get = (path: string): Request => new Request(`http://a.test${path}`);

  test('/metrics is there where it is asked for', async () => {
    const { manager } = await new Cluster().node('a', []);
    const metrics = collectMetrics(manager);
    const answer = await createHandler(manager, { metrics })(get('/metrics'));
    expect([answer.status, answer.headers.get('content-type')]).toEqual([
      200,
      'text/plain; version=0.0.4; charset=utf-8',
    ]);
    read(await answer.text());
    expect((await createHandler(manager)(get('/metrics'))).status).toBe(404);
  });

  test('/livez answers whatever the state; /readyz says what is missing', async () => {
    const cluster = new Cluster();
    const { manager, stop } = await cluster.node('a', ['b']);
    const handler = createHandler(manager, { metrics: collectMetrics(manager) });
    expect((await handler(get('/livez'))).status).toBe(200);
    expect((await handler(get('/readyz'))).status).toBe(200);
    const wanting = await handler(get('/readyz?peers=1'));
    expect(wanting.status).toBe(503);
    expect(await wanting.json()).toEqual({ ready: false, problems: [expect.stringContaining('http://b.test is ')] });
    const post = new Request('http://a.test/readyz', { method: 'POST' });
    expect((await handler(post)).status).toBe(405);
    await stop();
    expect((await handler(get('/livez'))).status).toBe(200);
    expect((await handler(get('/readyz'))).status).toBe(503);
    expect((await handler(get('/metrics'))).status).toBe(503);
  });

  test('a node is not ready while it gives a peer everything', async () => {
    const cluster = new Cluster();
    const { db, manager } = await cluster.node('a', []);
    db.exec("INSERT INTO items (id, updated_at) VALUES ('x', 1)");
    const handler = createHandler({
      ...manager,
      receive: (body) => manager.receive(body),
      maxBodyBytes: 1,
      health: () => ({
        ok: true,
        problems: [],
        peer_states: [{ url: 'http://b.test', state: 'up', paused: false, snapshot: true }],
      }),
    });
    const answer = await handler(get('/readyz'));
    expect([answer.status, await answer.json()]).toEqual([
      503,
      { ready: false, problems: ['the first exchange with http://b.test is under way'] },
    ]);
  });
});
