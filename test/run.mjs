/**
 * Every check, on every runtime lane: what `npm test` and CI run. `npm test -- <vitest arguments>` runs the lanes alone,
 * e.g. `npm test -- capture/capture`; `ROWCAST_LANES=bun` restricts them.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const bin = (name) => join(root, 'node_modules', '.bin', name);
const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
const lanesFolder = join(root, 'test', 'lanes');
const currentNode = join(lanesFolder, 'node_modules', `node-${process.platform}-${process.arch}`, 'bin', 'node');

const checks = [
  ['lint', bin('biome'), ['ci', '--error-on-warnings', '.']],
  ['types', bin('tsc'), ['-p', 'tsconfig.json']],
  ['build', 'npm', ['run', '--silent', 'build']],
  ['package', bin('publint'), ['--strict']],
  ['package types', bin('attw'), ['--pack', '.', '--profile', 'esm-only']],
];

const lanes = [
  {
    name: 'node',
    what: `Node ${process.versions.node} with better-sqlite3`,
    command: process.execPath,
    args: [vitest],
  },
  {
    name: 'node-sqlite',
    what: 'a current Node with node:sqlite',
    command: currentNode,
    args: [vitest],
    lane: 'node-sqlite',
    without: ['house/architecture', 'house/bench'],
  },
  {
    name: 'node-current',
    what: 'a current Node with better-sqlite3',
    command: currentNode,
    args: [vitest],
    // What is about programs, crashes and chance has run on this Node and on this binding already, each with the other.
    without: [
      'fuzz/fuzz',
      'cli/serve',
      'cli/listen',
      'demo/demo',
      'examples',
      'hub/processes',
      'crash/kill',
      'crash/power-cut',
      'crash/proxy',
      'house/architecture',
      'house/docs',
      'house/bench',
    ],
  },
  {
    name: 'bun',
    what: 'Bun with bun:sqlite',
    command: bin('bun'),
    args: ['--bun', vitest],
    lane: 'bun-sqlite',
    without: ['house/architecture', 'house/bench'],
  },
];

const extra = process.argv.slice(2);
const wanted = process.env.ROWCAST_LANES?.split(',');
const results = mkdtempSync(join(tmpdir(), 'rowcast-results-'));
let passed = 0;
let failed = 0;
const problems = [];

if (extra.length === 0) {
  for (const [name, command, args] of checks) {
    const code = await run(command, args, {});
    if (code === 0) passed += 1;
    else fail(name);
  }
}
await installLanes();
// Whole clusters from one seed: 20,000 schedules, because a tenth of the seeds runs on both runtimes. They take what the
// lanes leave of the processor, which often wait for a disk or a timer.
const simulation =
  extra.length === 0 && !wanted ? runQuietly([inSim('run.mjs'), '--seeds', '18200', '--low-priority']) : undefined;
for (const { name, what, command, args, lane, without = [] } of lanes) {
  if (wanted && !wanted.includes(name)) continue;
  console.log(`\n== ${name}: ${what}`);
  if (!existsSync(command)) {
    const missing = `${name}: ${command.slice(root.length)} is not installed for ${process.platform}-${process.arch}`;
    if (process.env.CI) fail(missing);
    else console.log(`skipped: ${missing}`);
    continue;
  }
  const output = join(results, `${name}.json`);
  const reporters = ['--reporter=dot', '--reporter=json', `--outputFile.json=${output}`];
  const left = extra.length === 0 ? without.flatMap((name) => ['--exclude', `test/${name}.test.ts`]) : [];
  const code = await run(command, [...args, 'run', ...reporters, ...left, ...extra], {
    ROWCAST_LANE: lane ?? 'better-sqlite3',
    ROWCAST_EXPECT_LANE: lane ?? 'better-sqlite3',
  });
  const report = existsSync(output) ? JSON.parse(readFileSync(output, 'utf8')) : undefined;
  passed += report?.numPassedTests ?? 0;
  failed += report?.numFailedTests ?? 0;
  if (code !== 0) problems.push(`${name}: ${report?.numFailedTests ?? 'the runner'} failed`);
  if (code !== 0 && !report?.numFailedTests) failed += 1;
}
if (simulation) {
  console.log('\n== simulation');
  const { code, output } = await simulation;
  console.log(output);
  if (code === 0) passed += 1;
  else fail('simulation');
  console.log('== planted bugs');
  if ((await run(process.execPath, [inSim('run-mutants.mjs')], {})) === 0) passed += 1;
  else fail('planted bugs');
}
rmSync(results, { recursive: true, force: true });
for (const problem of problems) console.log(`FAILED ${problem}`);
console.log(`\n${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);

/** A second Node and its binding, in a folder of their own: in the project's node_modules they would shadow the first. */
async function installLanes() {
  const installed = join(lanesFolder, 'node_modules', '.package-lock.json');
  const lock = join(lanesFolder, 'package-lock.json');
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return;
  const code = await run('npm', ['ci', '--no-audit', '--no-fund', '--ignore-scripts', '--prefix', lanesFolder], {});
  if (code !== 0) fail('test/lanes could not be installed');
}

function inSim(script) {
  return join(root, 'test', 'sim', script);
}

/** In the background; what it says is for later. */
function runQuietly(args) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    child.on('exit', (code) => resolve({ code: code ?? 1, output }));
  });
}

function fail(what) {
  failed += 1;
  problems.push(what);
}

function run(command, args, env) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: 'inherit', env: { ...process.env, ...env } });
    child.on('error', (error) => {
      console.log(String(error));
      resolve(1);
    });
    child.on('exit', (code) => resolve(code ?? 1));
  });
}
