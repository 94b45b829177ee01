/** Hubs as the programs they are, on SQLite and on PostgreSQL: what they are sent, and what the kernel says they cost. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import pg from 'pg';
import { end, freePort, makeFolder, start, Worker } from './processes.mjs';

export const MAIN = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
const STUB = fileURLToPath(new URL('fake-edges.mjs', import.meta.url));
/** A listener and a connection for each, below the usual limit of open files. */
const EDGES_PER_PROCESS = 5_000;
/** Linux counts a process's time in hundredths of a second. */
const TICKS_PER_SECOND = 100;

/** An empty store of that kind. `server` is a PostgreSQL, as demo/postgres.ts starts it. */
export async function newStore(kind, server) {
  const folder = makeFolder();
  if (kind === 'sqlite') return { kind, folder, file: join(folder, 'hub.db'), edges: join(folder, 'edges') };
  const name = `b${++made}`;
  const client = await connected(server.url());
  await client.query(`CREATE DATABASE ${name}`);
  await client.end();
  return { kind, folder, url: server.url(name), server, edges: join(folder, 'edges') };
}

let made = 0;

/** The place of the last row: a batch of that id is the last one that an edge is sent. */
export async function lastPlace(store) {
  if (store.kind === 'sqlite') {
    const db = new Database(store.file, { readonly: true });
    const { last } = db.prepare('SELECT max(seq) AS last FROM _hub_rows').get();
    db.close();
    return last;
  }
  const client = await connected(store.url);
  const { rows } = await client.query('SELECT max(seq)::text AS last FROM rowcast.rows');
  await client.end();
  return Number(rows[0].last);
}

async function connected(connectionString) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  return client;
}

/** `urls` are its edges; they can be changed by `setEdges`. */
export async function startHub(store, { urls = [], instance = 'h1', main = MAIN, node = [], more = [] } = {}) {
  writeEdges(store, urls);
  const port = await freePort();
  const own = store.kind === 'sqlite' ? ['-db', store.file] : ['-instance', instance];
  const flags = ['-id', 'hub', ...own, '-listen', `127.0.0.1:${port}`, '-edges-file', store.edges, ...more];
  const child = start(process.execPath, [...node, main, 'hub', ...flags], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...(store.kind === 'postgres' && { ROWCAST_STORE: store.url }) },
  });
  await new Promise((resolve, reject) => {
    child.stdout.on('data', (text) => String(text).includes('"started"') && resolve());
    child.once('exit', () => reject(new Error('the hub did not start')));
  });
  return { child, store, instance, url: `http://127.0.0.1:${port}` };
}

export function setEdges({ store, child }, urls) {
  writeEdges(store, urls);
  child.kill('SIGHUP');
}

function writeEdges({ edges }, urls) {
  writeFileSync(edges, `# ${urls.length || 'none'}\n${urls.join('\n')}`);
}

export function stopHub({ child }) {
  return end(child);
}

/** Stub processes, and the URLs of their edges; the last `deaf` of the first process never answer. */
export async function fakeEdges(edges, deaf = 0) {
  const stubs = [];
  const urls = [];
  for (let first = 0; first < edges; first += EDGES_PER_PROCESS) {
    const stub = new Worker({ command: process.execPath }, '', STUB);
    const count = Math.min(EDGES_PER_PROCESS, edges - first);
    urls.push(...(await stub.ask('open', { first, count, deaf: first === 0 ? deaf : 0 })));
    stubs.push(stub);
  }
  const state = async (batch) => {
    const states = await Promise.all(stubs.map((stub) => stub.ask('state', { batch })));
    const sum = (of) => states.reduce((total, one) => total + of(one), 0);
    return { asked: sum(({ asked }) => asked), done: sum(({ done }) => done), requests: sum((one) => one.requests) };
  };
  return { urls, state, end: () => Promise.all(stubs.map((stub) => stub.end())) };
}

/** Milliseconds until it was answered. */
export async function post({ url }, body) {
  const began = performance.now();
  const response = await fetch(`${url}/sync`, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json', 'x-node-id': 'source' },
  });
  const said = await response.text();
  if (!response.ok) throw new Error(`HTTP ${response.status}: ${said}`);
  return performance.now() - began;
}

export function batch(from, count, version = 0) {
  const changes = Array.from({ length: count }, (_, i) => ({
    op: version === 0 ? 'INSERT' : 'UPDATE',
    table: 'items',
    row: {
      id: `01890a5d-ac96-774b-bcce-${String(from + i).padStart(12, '0')}`,
      name: `item number ${from + i}`,
      value: i + version,
      created_at: 1_700_000_000_000,
      updated_at: 1_700_000_000_000 + version,
    },
    old_id: null,
  }));
  return JSON.stringify({ batch_id: from + count, changes });
}

/** Seconds of CPU, of the process alone. */
export function cpuOf({ child }) {
  const [own] = timesOf(child.pid);
  return own;
}

/** Seconds of CPU of a PostgreSQL: its first process, those that have ended, and those that there are. */
export function cpuOfServer({ pid }) {
  const [own, ended] = timesOf(pid);
  let sum = own + ended;
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const times = timesOf(name);
    if (times?.[2] === pid) sum += times[0];
  }
  return sum;
}

/** Its own, its ended children's, and whose child it is; undefined where it has ended. */
function timesOf(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
    const seconds = (at) => (Number(fields[at]) + Number(fields[at + 1])) / TICKS_PER_SECOND;
    return [seconds(11), seconds(13), Number(fields[1])];
  } catch {
    return undefined;
  }
}

/** Its high-water mark, in MiB. */
export function memoryOf({ child }) {
  return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))[1]) / 1_024;
}

export async function until(condition, ms = 50) {
  while (!(await condition())) await sleep(ms);
}

export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
