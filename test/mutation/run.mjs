/**
 * Mutation testing: `npm run mutation` installs Stryker into this folder, lets it break the code in one place after the
 * other, and prints for each file how many of the mutants the tests have noticed, and which they have not.
 * `npm run mutation -- src/receive/merge.ts` mutates that file alone; ROWCAST_MUTATION_CONCURRENCY runs several at once.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import { constants, setPriority } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = fileURLToPath(new URL('.', import.meta.url));
const root = join(folder, '..', '..');
const report = join(root, '.scratch-mutation.json');

/** What is mutated: what decides. By the tests that are about it, so that a mutant costs seconds and not minutes. */
const GROUPS = [
  { tests: 'send/verdict,send/batch-size', files: ['src/send/verdict.ts'] },
  {
    tests:
      'receive/apply,receive/other-schema,receive/connection,receive/without-jsonb,receive/bad-input,receive/regular-body,fuzz/found,receive/fast',
    files: ['src/receive/plan.ts', 'src/receive/apply.ts', 'src/receive/fast.ts', 'src/receive/careful.ts'],
  },
  {
    tests:
      'receive/merge,receive/apply,receive/other-schema,receive/connection,receive/regular-body,fuzz/found,receive/fast',
    files: ['src/receive/merge.ts'],
  },
  {
    tests:
      'send/shipper,send/flush-and-stop,send/batch-limits,send/loop-events,send/at-least-once,send/isolate,send/peers,send/snapshot,send/pipeline',
    files: ['src/send/outbox.ts', 'src/send/peers.ts', 'src/send/isolate.ts'],
  },
];

const only = process.argv.slice(2);
const known = GROUPS.flatMap(({ files }) => files);
const unknown = only.filter((file) => !known.includes(file));
if (unknown.length > 0) {
  console.error(`usage: npm run mutation -- [files], not "${unknown[0]}"; the files are ${known.join(', ')}`);
  process.exit(2);
}
const mutated = {};
let failed = false;
setPriority(constants.priority.PRIORITY_BELOW_NORMAL);
install();
for (const { tests, files } of GROUPS) {
  const wanted = files.filter((file) => only.length === 0 || only.includes(file));
  if (wanted.length === 0) continue;
  rmSync(report, { force: true });
  const stryker = join(folder, 'node_modules', '@stryker-mutator', 'core', 'bin', 'stryker.js');
  const args = [stryker, 'run', join(folder, 'stryker.config.mjs'), '--mutate', wanted.join(',')];
  const env = { ...process.env, ROWCAST_MUTATION_TESTS: tests };
  const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit', env });
  failed ||= status !== 0 || !existsSync(report);
  if (existsSync(report)) Object.assign(mutated, JSON.parse(readFileSync(report, 'utf8')).files);
}
print();
process.exit(failed || Object.keys(mutated).length === 0 ? 1 : 0);

/** The project's own vitest is used: peer dependencies are not installed a second time. */
function install() {
  const installed = join(folder, 'node_modules', '.package-lock.json');
  const lock = join(folder, 'package-lock.json');
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return;
  const options = ['--no-audit', '--no-fund', '--ignore-scripts', '--legacy-peer-deps', '--prefix', folder];
  if (spawnSync('npm', ['ci', ...options], { stdio: 'inherit' }).status !== 0) {
    console.log('Stryker could not be installed');
    process.exit(1);
  }
}

function print() {
  const caught = ['Killed', 'Timeout'];
  const missed = ['Survived', 'NoCoverage'];
  let killed = 0;
  let lived = 0;
  for (const [file, { mutants, source }] of Object.entries(mutated)) {
    const dead = mutants.filter((mutant) => caught.includes(mutant.status)).length;
    const alive = mutants.filter((mutant) => missed.includes(mutant.status));
    killed += dead;
    lived += alive.length;
    console.log(`\n${file}: ${score(dead, alive.length)}`);
    const lines = source.split('\n');
    for (const { status: what, mutatorName, replacement, location } of alive) {
      const line = lines[location.start.line - 1].trim().slice(0, 100);
      const instead = (replacement ?? '').replace(/\s+/g, ' ').slice(0, 60);
      console.log(
        `  ${what} ${file}:${location.start.line}:${location.start.column} ${mutatorName}: ${line}  ->  ${instead}`,
      );
    }
  }
  console.log(`\nall: ${score(killed, lived)}`);
}

function score(dead, alive) {
  return `${((100 * dead) / Math.max(1, dead + alive)).toFixed(1)} % (${dead} of ${dead + alive} mutants caught)`;
}
