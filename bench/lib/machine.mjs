/** What the figures were measured on, and of what. */
import { execFileSync } from 'node:child_process';
import { closeSync, fdatasyncSync, openSync, writeSync } from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { makeFolder, removeFolder } from './processes.mjs';
import { ROOT } from './runtimes.mjs';
import { median } from './statistics.mjs';

export function describeMachine() {
  const cpus = os.cpus();
  return {
    cpu: cpuModel(cpus),
    cores: cpus.length,
    memory: `${Math.round(os.totalmem() / 2 ** 30)} GiB`,
    kernel: `${os.type()} ${os.release()} ${os.arch()}`,
    load: os.loadavg()[0].toFixed(2),
    flushMs: flushTime(),
  };
}

/** On ARM, Node reports no name; lscpu has a table of them. */
function cpuModel(cpus) {
  const known = cpus[0]?.model;
  if (known && known !== 'unknown') return known;
  try {
    const text = execFileSync('lscpu', { encoding: 'utf8', env: { ...process.env, LC_ALL: 'C' } });
    return /Model name:\s*(.+)/.exec(text)?.[1] ?? 'unknown';
  } catch {
    return 'unknown';
  }
}

/** How long the disk takes to have a page: every acknowledged batch waits for it, on both sides. */
function flushTime() {
  const folder = makeFolder();
  const file = openSync(join(folder, 'flush'), 'w');
  const page = Buffer.alloc(4_096, 1);
  const times = Array.from({ length: 50 }, () => {
    writeSync(file, page);
    const began = performance.now();
    fdatasyncSync(file);
    return performance.now() - began;
  });
  closeSync(file);
  removeFolder(folder);
  return Number(median(times).toFixed(2));
}

/** The commit, and whether the tree differs from it. */
export function describeCommit() {
  try {
    const commit = git('rev-parse', '--short=12', 'HEAD');
    return git('--no-optional-locks', 'status', '--porcelain', '--', 'src') === '' ? commit : `${commit} with changes`;
  } catch {
    return 'unknown';
  }
}

function git(...args) {
  return execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
}
