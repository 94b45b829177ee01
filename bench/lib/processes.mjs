/** The processes that are measured: started, asked, ended by their id, and never left behind. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';

const WORKER = fileURLToPath(new URL('worker.mjs', import.meta.url));

/** No single step of a figure takes longer than this. */
const STEP_MS = 300_000;

const running = new Set();
const folders = new Set();

process.on('exit', cleanUp);
for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
]) {
  process.on(signal, () => process.exit(code));
}

function cleanUp() {
  for (const child of running) child.kill('SIGKILL');
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
}

/** A folder that is gone when the run is over, or earlier with `removeFolder`. */
export function makeFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'rowcast-bench-'));
  folders.add(folder);
  return folder;
}

export function removeFolder(folder) {
  rmSync(folder, { recursive: true, force: true });
  folders.delete(folder);
}

/** Starts a program and forgets it when it has ended. */
export function start(command, args, options = {}) {
  const child = spawn(command, args, options);
  running.add(child);
  child.once('error', () => running.delete(child));
  child.once('exit', () => running.delete(child));
  return child;
}

/** Asks a program to end, and makes it end after ten seconds. */
export async function end(child, signal = 'SIGTERM') {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill(signal);
  const timer = setTimeout(() => child.kill('SIGKILL'), 10_000);
  await ended;
  clearTimeout(timer);
}

/** Runs a program to its end; rejects with what it said when it fails. */
export async function run(command, args, { timeoutMs = STEP_MS, ...options } = {}) {
  const child = start(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) child[name]?.on('data', (text) => (output[name] += text));
  const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs);
  const code = await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (exit, signal) => resolve(exit ?? signal));
  }).finally(() => clearTimeout(timer));
  if (code === 0) return output.stdout;
  const said = `${output.stdout}\n${output.stderr}`.trim().split('\n').slice(-6).join('\n');
  throw new Error(`${command} ${args.slice(0, 3).join(' ')} ended with ${code}: ${said}`);
}

/** A measured process; see worker.mjs for what it can be asked. */
export class Worker {
  #child;
  #answers;
  #stderr = '';

  /** `program` is another script that speaks the same lines. */
  constructor({ command, binding = '' }, dist, program = WORKER) {
    this.#child = start(command, [program, binding, String(dist)], { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#child.stderr.on('data', (text) => {
      this.#stderr = (this.#stderr + text).slice(-4_000);
    });
    this.#child.stdin.on('error', () => {});
    this.#answers = readline.createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  get pid() {
    return this.#child.pid;
  }

  async ask(command, args = {}) {
    this.#child.stdin.write(`${JSON.stringify({ command, args })}\n`);
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STEP_MS);
    const { value, done } = await this.#answers.next().finally(() => clearTimeout(timer));
    if (done) throw new Error(`the measured process ended during ${command}: ${this.#stderr}`);
    const { result, error } = JSON.parse(value);
    if (error !== undefined) throw new Error(`${command}: ${error}`);
    return result;
  }

  /** Closes what it has open; the process ends by itself when its input does. */
  async end() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    await this.ask('close').catch(() => {});
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), 10_000);
    await ended;
    clearTimeout(timer);
  }

  kill() {
    this.#child.kill('SIGKILL');
  }
}

/** A port that stays free: outside the range from which the kernel takes the ports of outgoing connections. */
export async function freePort() {
  for (let attempt = 0; attempt < 100; attempt++) {
    const port = 20_000 + Math.floor(Math.random() * 10_000);
    const server = net.createServer();
    const free = await new Promise((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!free) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
  throw new Error('no free port found between 20000 and 29999');
}
