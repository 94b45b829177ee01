/** Compiling the simulation, and processes that run it on one runtime or the other. */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { LATE_COMPILER, lateCompilerFlags } from '../support/late-compiler.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const bin = (name) => join(root, 'node_modules', '.bin', name);

export const RUNTIMES = ['node', 'bun'];

/**
 * Source and simulation as plain JavaScript, which both runtimes run as it is. Returns the folder, which is another one for
 * each user, so that none takes it away from another that is running.
 */
export function compile(user = 'sim') {
  const folder = join(root, 'node_modules', '.cache', 'rowcast', user);
  rmSync(folder, { recursive: true, force: true });
  // Its types are checked with all others, by `npm test`.
  const args = ['-p', join(root, 'test', 'sim', 'tsconfig.json'), '--outDir', folder, '--noCheck'];
  const result = spawnSync(bin('tsc'), args, { stdio: 'inherit' });
  if (result.status !== 0) throw new Error('the simulation does not compile');
  return folder;
}

/** The compiled file in which a planted bug has its place, and what is in it; it must have that place once. */
export function placeOf(folder, name, [file, text]) {
  const path = join(folder, 'src', file);
  const content = readFileSync(path, 'utf8');
  const places = content.split(text).length - 1;
  if (places !== 1) throw new Error(`mutant ${name}: ${JSON.stringify(text)} is ${places} times in ${file}, not once`);
  return { path, content };
}

/** A worker that answers one task after the other. */
export function startWorker(runtime, folder) {
  if (!RUNTIMES.includes(runtime)) throw new Error(`--runtime must be ${RUNTIMES.join(' or ')}, not ${runtime}`);
  const isBun = runtime === 'bun';
  const command = isBun ? bin('bun') : process.execPath;
  if (!existsSync(command)) throw new Error(`${runtime} is not installed`);
  const script = join(folder, 'test', 'sim', 'worker.js');
  const args = isBun ? [script] : [...lateCompilerFlags(command), script];
  const child = spawn(command, args, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...process.env, ...LATE_COMPILER },
  });
  let complaint = '';
  child.stderr.on('data', (chunk) => {
    complaint = (complaint + chunk).slice(-4_000);
  });
  let waiting;
  createInterface({ input: child.stdout }).on('line', (line) => {
    const answer = JSON.parse(line);
    if (answer.line !== undefined) return waiting?.onLine?.(answer);
    const { resolve } = waiting;
    waiting = undefined;
    resolve(answer);
  });
  const ended = new Promise((resolve) => child.on('exit', resolve));
  void ended.then((code) => waiting?.reject(new Error(`the worker on ${runtime} ended with ${code}\n${complaint}`)));
  return {
    ask: (task, onLine) =>
      new Promise((resolve, reject) => {
        waiting = { resolve, reject, onLine };
        child.stdin.write(`${JSON.stringify(task)}\n`);
      }),
    /** Also one that is in the middle of something. */
    end: () => child.kill('SIGKILL'),
    pid: child.pid,
  };
}
