/**
 * One mesh of every runtime that is installed: Node with better-sqlite3 and with node:sqlite, Bun, Deno. Each is a process
 * with a file of its own and the library as it is built; each names all others as peers. All write at once, some to the
 * same rows; one is killed in the middle and started again. In the end all must hold the same. Then the example for
 * node:sqlite, on Deno. `npm run mesh`. What cannot run here is left out with a message, and fails where CI is set.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { freePorts } from '../../dist/demo/ports.js';
import { bindingEnv, deno, installLanes, lanes, missing, root } from './lanes.mjs';

const ROWS = 200;
/** It ends what hangs, and times nothing. */
const LIMIT_MS = 300_000;
const NODE = join(root, 'test', 'lanes', 'mesh-node.mjs');

if (!installLanes()) console.error('test/lanes could not be installed');
const runtimes = [
  ...lanes,
  { name: 'deno', command: deno, flags: ['run', '--allow-all', '--quiet'], binding: 'node-sqlite' },
].filter(({ name, command }) => {
  const problem = missing(command);
  if (problem) console.log(`without ${name}: ${problem}`);
  if (problem && process.env.CI) process.exitCode = 1;
  return !problem;
});

const folder = mkdtempSync(join(tmpdir(), 'rowcast-mesh-'));
const children = new Set();
try {
  await mesh();
  if (!missing(deno)) await exampleOnDeno();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
}

async function mesh() {
  const ports = await freePorts(runtimes.length);
  const urls = ports.map((port) => `http://127.0.0.1:${port}`);
  const nodes = await Promise.all(runtimes.map((_, i) => startNode(i)));
  for (const { name, versions } of nodes) console.log(`${name}: ${versions}`);

  const writing = nodes.map((node) => node.ask('write', ROWS));
  const victim = nodes[nodes.length - 1];
  victim.kill();
  await victim.ended;
  nodes[nodes.length - 1] = await startNode(nodes.length - 1);
  await Promise.all(writing.slice(0, -1));
  await nodes[nodes.length - 1].ask('write', ROWS);

  const states = await settled(nodes);
  // Every node has written rows of its own, and all of them the shared ones.
  const least = nodes.length * (ROWS / 2);
  if (states[0].rows < least) throw new Error(`only ${states[0].rows} rows have arrived, not ${least}`);
  console.log(`${nodes.length} nodes, ${states[0].rows} rows, all equal: ${states[0].hash.slice(0, 12)}`);
  for (const node of nodes) {
    await node.ask('stop');
    const code = await within(node.ended, `${node.name} has ended`);
    if (code !== 0) throw new Error(`${node.name} ended with ${code}`);
  }

  async function startNode(i) {
    const runtime = runtimes[i];
    const { name, command, flags = [], binding } = runtime;
    const others = urls.filter((_, other) => other !== i);
    const args = [...flags, NODE, name, binding, String(ports[i]), join(folder, `${name}.db`), ...others];
    const node = startChild(name, command, args, bindingEnv(runtime));
    node.versions = (await node.ask('hello')).versions;
    return node;
  }
}

/** Asks all nodes again and again until nothing is pending anywhere and all say the same. */
async function settled(nodes) {
  const end = Date.now() + LIMIT_MS;
  for (;;) {
    const states = await Promise.all(nodes.map((node) => node.ask('state')));
    const bad = states.find(({ ok, deadLetters }) => deadLetters > 0 || ok === undefined);
    if (bad) throw new Error(`${bad.name}: ${JSON.stringify(bad)}`);
    const isQuiet = states.every(({ pending }) => pending === 0);
    if (isQuiet && new Set(states.map(({ hash }) => hash)).size === 1) return states;
    if (Date.now() > end) throw new Error(`they do not become equal: ${JSON.stringify(states, null, 1)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** As its first lines say, with another word for node. */
async function exampleOnDeno() {
  const [a, b] = await freePorts(2);
  const example = join(root, 'examples', 'node-sqlite.mjs');
  const run = (id, port, peer) =>
    startChild(`example ${id}`, deno, [
      ...['run', '--allow-all', '--quiet', example, id],
      ...[String(port), join(folder, `example-${id}.db`), `http://127.0.0.1:${peer}`],
    ]);
  const programs = [run('a', a, b), run('b', b, a)];
  const notes = (port, init) =>
    fetch(`http://127.0.0.1:${port}/notes`, init).then(
      (answer) => answer.json(),
      () => undefined,
    );
  await until('both answer', async () => (await notes(a)) !== undefined && (await notes(b)) !== undefined);
  await notes(a, { method: 'POST', body: 'from a' });
  await notes(b, { method: 'POST', body: 'from b' });
  const texts = async (port) => (await notes(port)).map(({ text }) => text).sort();
  for (const port of [a, b])
    await until('both notes are there', async () => `${await texts(port)}` === 'from a,from b');
  for (const { terminate, ended, name } of programs) {
    terminate();
    const code = await within(ended, `${name} has ended`);
    if (code !== 0) throw new Error(`${name} on Deno ended with ${code}`);
  }
  console.log('the example for node:sqlite replicates on Deno');
}

function startChild(name, command, args, env = {}) {
  const options = { cwd: root, stdio: ['pipe', 'pipe', 'pipe'], env: { ...process.env, ...env } };
  const child = spawn(command, args, options);
  children.add(child);
  let complaint = '';
  const waiting = [];
  const ended = new Promise((resolve) => {
    child.on('close', (code, signal) => {
      children.delete(child);
      for (const { reject } of waiting.splice(0))
        reject(new Error(`${name} ended with ${code ?? signal}\n${complaint}`));
      resolve(code ?? signal);
    });
  });
  child.stderr.on('data', (chunk) => (complaint += chunk));
  // A process that is killed does not read its last question.
  child.stdin.on('error', () => {});
  createInterface({ input: child.stdout }).on('line', (line) => waiting.shift()?.resolve(JSON.parse(line)));
  const ask = (what, count = 0) => {
    const answer = new Promise((resolve, reject) => waiting.push({ resolve, reject }));
    child.stdin.write(`${JSON.stringify({ what, count })}\n`);
    answer.catch(() => {});
    return answer;
  };
  return { name, ask, ended, kill: () => child.kill('SIGKILL'), terminate: () => child.kill('SIGTERM') };
}

/** What a process does by itself, or else the run has failed. */
async function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`gave up waiting until ${what}`)), LIMIT_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function until(what, condition) {
  const end = Date.now() + LIMIT_MS;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`gave up waiting until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
