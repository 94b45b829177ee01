/** What `npm run start:group` runs: PostgreSQL, three hubs and six nodes as processes, and every fault of its list. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { root } from '../support/build.ts';
import { cleanUp } from '../support/nodes.ts';
import { hasPostgres } from '../support/postgres.ts';

test.skipIf(!hasPostgres)('a group loses nothing by any fault, and exits 0', async () => {
  // A number of faults, and not a time: each kind once, and then those that this seed draws.
  const args = ['--faults', '8', '--seed', '7'];
  const child = spawn(process.execPath, [join(root, 'dist/demo/start-group.js'), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk) => {
      output += chunk;
    });
  }
  const ended = new Promise((resolve) => child.on('close', resolve));
  cleanUp(async () => {
    child.kill('SIGTERM');
    await ended;
  });
  expect(await ended, output).toBe(0);
  expect(output).toMatch(/kill -9 \d+: hub h1/);
  expect(output).toMatch(/kill -9 \d+: PostgreSQL/);
  expect(output).toMatch(/cut off from PostgreSQL.+the balancer flaps.+is forgotten and named again/s);
  expect(output).toMatch(/8 faults; all six are equal/);
  const pids = [...output.matchAll(/(?:pid|kill -9) (\d+)/g)].map(([, pid]) => Number(pid));
  expect(pids.length).toBeGreaterThan(10);
  expect(pids.filter(isAlive)).toEqual([]);
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
