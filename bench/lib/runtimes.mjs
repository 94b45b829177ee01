/** The runtimes that can be measured, and how each is started. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from './processes.mjs';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LANES = join(ROOT, 'test', 'lanes');

export const RUNTIMES = ['node', 'bun', 'node-sqlite'];

export async function findRuntime(name) {
  if (name === 'node') return { name, command: process.execPath, binding: 'better-sqlite3' };
  if (name === 'bun') {
    const command = join(ROOT, 'node_modules', '.bin', 'bun');
    if (!existsSync(command)) throw new Error('Bun is not installed: npm ci');
    return { name, command, binding: 'bun-sqlite' };
  }
  return { name, command: await currentNode(), binding: 'node-sqlite' };
}

/** The Node that the tests install for themselves, because the oldest supported one has no node:sqlite. */
export async function currentNode() {
  const command = join(LANES, 'node_modules', `node-26-${process.platform}-${process.arch}`, 'bin', 'node');
  if (!existsSync(command)) {
    await run('npm', ['ci', '--no-audit', '--no-fund', '--ignore-scripts', '--prefix', LANES]);
  }
  if (!existsSync(command)) throw new Error(`no Node for ${process.platform}-${process.arch} in test/lanes`);
  return command;
}
