/**
 * Kills nodes for as long as you like: `npm run kill-loop -- 2000` runs two thousand cycles of test/crash/kill.deep.test.ts, in
 * rounds, each of which says its seed and what it has counted. ROWCAST_KILL_SEED=n begins with that seed.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const cycles = process.argv[2] ?? '1000';
if (!/^[1-9]\d{0,6}$/.test(cycles)) {
  console.log(`usage: npm run kill-loop -- <number of cycles>, not ${JSON.stringify(cycles)}`);
  process.exit(2);
}
const root = fileURLToPath(new URL('../..', import.meta.url));
const { status } = spawnSync(
  process.execPath,
  ['node_modules/vitest/vitest.mjs', 'run', 'test/crash/kill', '--disable-console-intercept'],
  {
    cwd: root,
    stdio: 'inherit',
    env: {
      ...{ ROWCAST_KILL_SEED: String(Math.floor(Math.random() * 2 ** 31)), ...process.env },
      ROWCAST_KILL_CYCLES: cycles,
    },
  },
);
process.exit(status ?? 1);
