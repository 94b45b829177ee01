/**
 * What a hub costs: `npm run build && node bench/hub.mjs`, with `--quick` for a short run.
 *
 * Real processes on loopback. CPU seconds are the kernel's for each process, peak memory is its high-water mark. Figures of
 * a machine that does other things as well are only good as ratios within one run; repetitions are interleaved, so that
 * whatever else goes on meets all variants alike. Every figure is a median, with the least and the greatest beside it.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';

const MAIN = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url));
const quick = process.argv.includes('--quick');
const REPETITIONS = quick ? 3 : 5;
const FAN_CHANGES = quick ? 10_000 : 20_000;
const STAR_ITEMS = quick ? 200 : 1_000;
const NEW_EDGE_ROWS = quick ? 20_000 : 100_000;
const NODES = 8;

/** Linux counts a process's time in hundredths of a second. */
const TICKS_PER_SECOND = 100;

if (!existsSync(MAIN)) throw new Error('dist/ is missing: npm run build');
const folder = mkdtempSync(join(tmpdir(), 'rowcast-bench-'));
const running = new Set();
let serial = 0;
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

await fanOut();
await starAndMesh();
await newEdge();
process.exit(0);

/** Cost per delivered change with 1, 2, 8 and 32 edges. The edges only acknowledge; what is measured is the hub. */
async function fanOut() {
  const sizes = [1, 2, 8, 32];
  const runs = new Map(sizes.map((edges) => [edges, []]));
  for (let i = 0; i < REPETITIONS; i++) for (const edges of sizes) runs.get(edges).push(await fanOutOnce(edges));
  const base = median(runs.get(1).map((run) => run.perDelivery));
  table(
    `fan-out: ${FAN_CHANGES} changes in batches of 500, every edge gets all of them`,
    ['edges', 'hub CPU s', 'CPU us per delivered change', 'of that with 1 edge', 'peak MiB', 'seconds'],
    sizes.map((edges) => {
      const all = runs.get(edges);
      const each = all.map((run) => run.perDelivery);
      return [
        edges,
        spread(all.map((run) => run.cpu)),
        spread(each),
        `${(median(each) / base).toFixed(2)} x`,
        spread(all.map((run) => run.peak)),
        spread(all.map((run) => run.seconds)),
      ];
    }),
  );
}

async function fanOutOnce(edges) {
  const sinks = await Promise.all(Array.from({ length: edges }, sink));
  const hub = await start(
    'hub',
    'hub',
    await freePort(),
    sinks.flatMap(({ url }) => ['-edge', url]),
  );
  const before = cpuOf(hub);
  const began = performance.now();
  for (let from = 0; from < FAN_CHANGES; from += 500) await post(hub, batch(from, 500));
  await until(() => sinks.every(({ changes }) => changes() >= FAN_CHANGES));
  const seconds = (performance.now() - began) / 1_000;
  const cpu = cpuOf(hub) - before;
  const peak = peakOf(hub);
  await stop(hub);
  for (const { close } of sinks) close();
  return { cpu, peak, seconds, perDelivery: (cpu * 1e6) / (FAN_CHANGES * edges) };
}

/** The same work on eight nodes around a hub, and on eight nodes that know each other. */
async function starAndMesh() {
  const shapes = { star: [], mesh: [] };
  for (let i = 0; i < REPETITIONS; i++)
    for (const shape of Object.keys(shapes)) shapes[shape].push(await shapeOnce(shape));
  const total = NODES * STAR_ITEMS;
  table(
    `${NODES} nodes, ${STAR_ITEMS} items written on each, until all have ${total}`,
    ['shape', 'CPU s of all', 'CPU s of the nodes', 'CPU s of the hub', 'hub peak MiB', 'seconds'],
    Object.entries(shapes).map(([shape, all]) => [
      shape,
      spread(all.map((run) => run.nodes + run.hub)),
      spread(all.map((run) => run.nodes)),
      spread(all.map((run) => run.hub)),
      spread(all.map((run) => run.peak)),
      spread(all.map((run) => run.seconds)),
    ]),
  );
  const ratio = (of) => spread(shapes.star.map((run, i) => of(run) / of(shapes.mesh[i])));
  console.log(`star / mesh: CPU ${ratio((run) => run.nodes + run.hub)}, seconds ${ratio((run) => run.seconds)}\n`);
}

async function shapeOnce(shape) {
  const ports = await freePorts(NODES + 1);
  const url = (port) => `http://127.0.0.1:${port}`;
  const [hubPort, ...nodePorts] = ports;
  const hub =
    shape === 'star' &&
    (await start(
      'hub',
      'hub',
      hubPort,
      nodePorts.flatMap((port) => ['-edge', url(port)]),
    ));
  const nodes = await Promise.all(
    nodePorts.map((port, i) => {
      const peers = shape === 'star' ? [hubPort] : nodePorts.filter((other) => other !== port);
      return start(
        'serve',
        `n${i}`,
        port,
        peers.flatMap((peer) => ['-peer', url(peer)]),
      );
    }),
  );
  const all = hub ? [hub, ...nodes] : nodes;
  const before = all.map(cpuOf);
  const began = performance.now();
  await Promise.all(
    nodes.map(async (node, n) => {
      for (let i = 0; i < STAR_ITEMS; i += 100) {
        const items = Array.from({ length: 100 }, (_, j) => ({ name: `item ${i + j} of ${n}`, value: i + j }));
        await ask(node, '/api/items/batch', JSON.stringify(items));
      }
    }),
  );
  await until(async () => {
    for (const node of nodes) {
      const { item_count, pending_changes } = JSON.parse(await ask(node, '/health'));
      if (item_count < NODES * STAR_ITEMS || pending_changes > 0) return false;
    }
    return true;
  }, 100);
  const seconds = (performance.now() - began) / 1_000;
  const cpu = all.map((one, i) => cpuOf(one) - before[i]);
  const peak = hub ? peakOf(hub) : 0;
  await Promise.all(all.map(stop));
  const hubCpu = hub ? cpu[0] : 0;
  return { seconds, peak, hub: hubCpu, nodes: cpu.reduce((sum, n) => sum + n, 0) - hubCpu };
}

/** How long until a node that is new has everything: from a hub, and from a node that holds the same. */
async function newEdge() {
  const senders = { hub: [], node: [] };
  const files = {};
  for (const kind of Object.keys(senders)) {
    files[kind] = join(folder, `full-${kind}.db`);
    const full = await start(kind === 'hub' ? 'hub' : 'serve', 'full', await freePort(), [], files[kind]);
    for (let from = 0; from < NEW_EDGE_ROWS; from += 5_000) await post(full, batch(from, 5_000));
    await stop(full);
  }
  for (let i = 0; i < REPETITIONS; i++) {
    for (const kind of Object.keys(senders)) senders[kind].push(await newEdgeOnce(kind, files[kind]));
  }
  table(
    `a new node gets ${NEW_EDGE_ROWS} rows`,
    ['from', 'seconds', 'CPU s of the sender', 'CPU s of the new node', 'sender peak MiB'],
    Object.entries(senders).map(([kind, all]) => [
      kind === 'hub' ? 'a hub' : 'a direct peer',
      spread(all.map((run) => run.seconds)),
      spread(all.map((run) => run.cpu)),
      spread(all.map((run) => run.receiver)),
      spread(all.map((run) => run.peak)),
    ]),
  );
  const ratio = (of) => spread(senders.hub.map((run, i) => of(run) / of(senders.node[i])));
  console.log(`hub / direct peer: seconds ${ratio((run) => run.seconds)}, CPU ${ratio((run) => run.cpu)}\n`);
}

async function newEdgeOnce(kind, file) {
  const path = join(folder, `${++serial}.db`);
  const fresh = await start('serve', 'fresh', await freePort(), [], path);
  // Read here: whoever is asked for its health again and again would be charged with the answers.
  const rows = new Database(path, { readonly: true });
  const arrived = rows.prepare('SELECT count(*) FROM items').pluck();
  const before = cpuOf(fresh);
  const flags = [kind === 'hub' ? '-edge' : '-peer', fresh.url];
  const sender = await start(kind === 'hub' ? 'hub' : 'serve', 'full', await freePort(), flags, file);
  const began = performance.now();
  await until(() => arrived.get() === NEW_EDGE_ROWS, 10);
  const seconds = (performance.now() - began) / 1_000;
  const result = { seconds, cpu: cpuOf(sender), receiver: cpuOf(fresh) - before, peak: peakOf(sender) };
  rows.close();
  await until(async () => {
    const [state] = JSON.parse(await ask(sender, '/health')).peer_states;
    return state.pending === 0 && !state.snapshot && state.last_acked_at !== null;
  }, 100);
  await stop(sender);
  await stop(fresh);
  return result;
}

/** An edge that acknowledges everything and counts it without reading it. */
function sink() {
  return new Promise((resolve) => {
    let changes = 0;
    const server = http.createServer((request, response) => {
      if (request.url !== '/sync') return response.writeHead(404).end();
      const chunks = [];
      request.on('data', (chunk) => chunks.push(chunk));
      request.on('end', () => {
        const body = Buffer.concat(chunks).toString('latin1');
        for (let at = body.indexOf('"old_id"'); at >= 0; at = body.indexOf('"old_id"', at + 8)) changes += 1;
        response.end(`{"applied":0,"ack":${/\d+/.exec(body.slice(0, 40))[0]}}`);
      });
    });
    server.listen(0, '127.0.0.1', () => {
      const close = () => {
        server.closeAllConnections();
        server.close();
      };
      resolve({ url: `http://127.0.0.1:${server.address().port}`, changes: () => changes, close });
    });
  });
}

function batch(from, count) {
  const changes = Array.from({ length: count }, (_, i) => ({
    op: 'INSERT',
    table: 'items',
    row: {
      id: `01890a5d-ac96-774b-bcce-${String(from + i).padStart(12, '0')}`,
      name: `item number ${from + i}`,
      value: i,
      created_at: 1_700_000_000_000,
      updated_at: 1_700_000_000_000 + i,
    },
    old_id: null,
  }));
  return JSON.stringify({ batch_id: from + count, changes });
}

async function start(command, id, port, more, db = join(folder, `${++serial}.db`)) {
  const args = [MAIN, command, '-id', id, '-db', db, '-listen', `127.0.0.1:${port}`, ...more];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  running.add(child);
  const ended = new Promise((resolve) => child.on('close', resolve)).then(() => running.delete(child));
  await new Promise((resolve, reject) => {
    child.stdout.on('data', (text) => String(text).includes('"started"') && resolve());
    void ended.then(() => reject(new Error(`${command} did not start`)));
  });
  return { child, ended, url: `http://127.0.0.1:${port}` };
}

async function stop({ child, ended }) {
  child.kill('SIGTERM');
  await ended;
}

async function ask({ url }, path, body) {
  const response = await fetch(url + path, {
    ...(body !== undefined && {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json', 'x-node-id': 'source' },
    }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: HTTP ${response.status} ${text}`);
  return text;
}

function post(to, body) {
  return ask(to, '/sync', body);
}

async function freePorts(n) {
  const servers = Array.from({ length: n }, () => net.createServer());
  for (const server of servers) await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const ports = servers.map((server) => server.address().port);
  for (const server of servers) await new Promise((resolve) => server.close(resolve));
  return ports;
}

async function freePort() {
  return (await freePorts(1))[0];
}

async function until(condition, pauseMs = 2) {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, pauseMs));
}

function cpuOf({ child }) {
  const fields = readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

function peakOf({ child }) {
  return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))[1]) / 1_024;
}

function median(values) {
  return values.toSorted((a, b) => a - b)[values.length >> 1];
}

function spread(values) {
  const digits = Math.max(...values) >= 20 ? 0 : 2;
  const [low, middle, high] = [Math.min(...values), median(values), Math.max(...values)].map((n) => n.toFixed(digits));
  return `${middle} (${low} to ${high})`;
}

function table(title, heads, rows) {
  const lines = [heads, ...rows.map((row) => row.map(String))];
  const widths = heads.map((_, i) => Math.max(...lines.map((line) => line[i].length)));
  console.log(`\n${title}`);
  for (const line of lines) console.log(`  ${line.map((cell, i) => cell.padEnd(widths[i])).join('   ')}`);
  console.log();
}
