/**
 * `npm test`: what to run before each commit. The linter, the types, the package, every test file that is not named
 * `*.deep.test.ts` on this Node and on Bun, and simulated schedules: 1,000 brief ones, and with four cores or more those that
 * have failed once and the first of all seeds.
 *
 * `npm run test:deep`: the rest. Those files too (they start programs, kill them, cut their power, or draw many inputs), the
 * other runtimes, a mesh of all of them, more schedules (of 20,000, or 25,000 with eight cores, as many as half an hour
 * is enough for), and the planted bugs.
 *
 * With arguments for vitest, the lanes alone: `npm test -- receive/merge`, or `npm run test:deep -- receive/merge` for all of
 * them; `ROWCAST_LANES=bun,node-26` names lanes. What cannot run here is skipped with a message, and fails where CI is set.
 */
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { bin, bindingEnv, deno, installLanes, lanes, missing, root } from './lanes/lanes.mjs';
import { LATE_COMPILER, lateCompilerFlags } from './support/late-compiler.mjs';
import { cores, printTable, runParts } from './support/parts.mjs';

const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
const inTest = (...path) => join(root, 'test', ...path);

const isDeep = process.argv[2] === '--deep';
const extra = process.argv.slice(isDeep ? 3 : 2);
const wanted = process.env.ROWCAST_LANES?.split(',');
const kind = isDeep ? 'deep' : 'test';
const problems = [];
/**
 * Seeds from 1 on, and those after them. A schedule takes a quarter of a second of a core on Bun: of the three minutes that
 * `npm test` may take, two cores have half a minute left for all of them; with eight, 20,000 fit in beside the lanes.
 */
const [QUICK_SCHEDULES, DEEP_SCHEDULES] = cores < 4 ? [0, 840] : cores < 8 ? [430, 1_430] : [860, 20_000];
/** Brief ones take a quarter of that: 1,000 runs with those that both runtimes have. Those of `npm run test:deep` are 20,000 with the others. */
const [QUICK_BRIEF, DEEP_BRIEF] = [960, cores < 8 ? 20_000 - DEEP_SCHEDULES : 5_000];
/**
 * What is left of the brief ones after so many minutes is left out, and said: `.ci/run` has to end within forty, and tells
 * when (in seconds of Unix time), because what comes before takes three minutes more at a bad hour. Beside the lanes two
 * cores get through all of them at a good one.
 */
const DEEP_MINUTES = process.env.ROWCAST_ENDS_AT
  ? Math.max(1, Math.floor((Number(process.env.ROWCAST_ENDS_AT) - Date.now() / 1_000) / 60))
  : 31;
/**
 * Of the tests that are said to be long (`tags: 'long'`), which are three in a hundred, `npm test` on few cores leaves
 * all to `npm run test:deep`, where they then run on both of its runtimes.
 */
const leavesLong = cores < 4;
/** The package as it would be published, for both that look at it. */
const PACKED = join(root, 'node_modules', '.cache', 'rowcast', 'packed');

const unknown = wanted?.filter((name) => !lanes.some((lane) => lane.name === name)) ?? [];
if (unknown.length > 0) {
  console.error(
    `ROWCAST_LANES: there is no lane ${unknown}; the lanes are ${lanes.map(({ name }) => name).join(', ')}`,
  );
  process.exit(2);
}
const chosen = lanes.filter((lane) => (wanted ? wanted.includes(lane.name) : lane[kind] !== undefined));
if (chosen.some(({ command }) => missing(command)) || (isDeep && !wanted)) {
  if (!installLanes()) problems.push('test/lanes could not be installed');
}
const here = chosen.filter((lane) => isHere(lane.name, lane.command));
const outcomes = extra.length > 0 ? await oneByOne() : await runParts(root, isDeep ? deepParts() : quickParts());

printTable(outcomes);
for (const problem of problems) console.log(`FAILED ${problem}`);
const passed = outcomes.reduce((sum, outcome) => sum + outcome.passed, 0);
const failed = outcomes.reduce((sum, outcome) => sum + outcome.failed, problems.length);
console.log(`\n${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);

function quickParts() {
  if (wanted) return here.map((lane) => lanePart(lane, lane.test ?? lane.deep));
  const laneParts = here.map((lane, i) => lanePart(lane, lane.test, `${i + 1}/${here.length}`));
  return [
    { name: 'build', command: 'npm', args: ['run', '--silent', 'build'] },
    { name: 'lint', command: bin('biome'), args: ['ci', '--error-on-warnings', '.'] },
    { name: 'types', command: bin('tsc'), args: ['-p', 'tsconfig.json'] },
    simulation([QUICK_SCHEDULES, QUICK_BRIEF], [1, 1]),
    // What is packed was built a moment ago.
    {
      name: 'pack',
      command: 'npm',
      args: ['pack', '--ignore-scripts', '--pack-destination', PACKED],
      after: ['build'],
    },
    { name: 'package', command: bin('publint'), args: [packed(), '--strict'], after: ['pack'] },
    { name: 'package types', command: bin('attw'), args: [packed(), '--profile', 'esm-only'], after: ['pack'] },
    ...laneParts,
  ];
}

function deepParts() {
  const laneParts = here.map((lane) => ({ ...lanePart(lane, lane.deep), after: ['build'] }));
  const build = { name: 'build', command: 'npm', args: ['run', '--silent', 'build'] };
  if (wanted) return [build, ...laneParts];
  const mesh = { name: 'mesh of all runtimes', command: process.execPath, args: [inTest('lanes', 'mesh.mjs')] };
  return [
    build,
    // Those before have run in `npm test`.
    simulation(
      [DEEP_SCHEDULES, DEEP_BRIEF],
      [QUICK_SCHEDULES + 1, QUICK_BRIEF + 1],
      ...['--telling', '--minutes', String(DEEP_MINUTES)],
    ),
    ...laneParts,
    ...(isHere('mesh of all runtimes', deno) ? [{ ...mesh, after: ['build'] }] : []),
    {
      name: 'planted bugs',
      command: process.execPath,
      // That the seeds which notice them hold without them is shown by the schedules.
      args: [inTest('sim', 'run-mutants.mjs'), '--telling-hold'],
      weight: cores,
      after: laneParts.map(({ name }) => name),
    },
  ];
}

/** Two lanes side by side where each has two cores at least. `share`: which cases it takes; see test/support/draws.ts. */
function lanePart(lane, { files, only, also, without, hand, draws }, share) {
  const isOfBoth = lane.test !== undefined && extra.length === 0 && leavesLong;
  const weight = cores < 4 ? cores : Math.floor(cores / 2);
  // Nodes and programs wait for each other, for disks and for time: with half as many files again, no core waits with them.
  const workers = Math.ceil(1.5 * weight);
  const flags = lane.flags ?? lateCompilerFlags(lane.command);
  // What failed is said at the end of either; only one who watches wants to see each test.
  const reporters = [
    `--reporter=${extra.length > 0 ? 'default' : 'dot'}`,
    `--reporter=${inTest('support', 'vitest-progress.mjs')}`,
  ];
  return {
    name: lane.name,
    what: lane.what,
    command: lane.command,
    args: [
      ...[...flags, vitest, 'run', `--maxWorkers=${workers}`],
      ...(lane.flags ? [] : flags.map((flag) => `--execArgv=${flag}`)),
      ...(isOfBoth && !isDeep ? ['--tagsFilter=!long'] : []),
      ...[...reporters, ...selected()],
    ],
    env: {
      ...bindingEnv(lane),
      ...LATE_COMPILER,
      ...(draws && { ROWCAST_DRAWS: draws }),
      ...(share && { ROWCAST_SHARE: share }),
      ...(hand && extra.length === 0 && { ROWCAST_HAND: hand }),
      ...(isOfBoth && isDeep && { ROWCAST_LONG: 'all' }),
    },
    weight,
    tests: true,
  };

  function selected() {
    if (extra.length > 0) return extra;
    const left = (without ?? []).map((name) => `test/${name}.*`);
    if (files === 'quick') left.push('**/*.deep.test.ts');
    const named = [...(only ?? []), ...(also ?? [])].map((name) => `test/${name}`);
    const taken = files === 'deep' ? ['.deep.test.ts', ...named] : named;
    return [...left.flatMap((pattern) => ['--exclude', pattern]), ...taken];
  }
}

/** Whole clusters, each from one seed, on what the lanes leave of the cores. Some of the seeds run on both runtimes. */
function simulation([seeds, brief], [from, briefFrom], ...more) {
  const drawn = ['--seeds', seeds, '--from', from, '--brief', brief, '--brief-from', briefFrom].map(String);
  const args = [inTest('sim', 'run.mjs'), ...drawn, '--low-priority', ...more];
  return { name: 'simulation', command: process.execPath, args, weight: 0, shows: true };
}

/** What was asked for by name is watched as it runs. */
async function oneByOne() {
  const results = [];
  for (const lane of here) {
    const { name, what, command, args, env } = lanePart(lane, isDeep ? { draws: 'all' } : {});
    console.log(`\n== ${name}: ${what}`);
    results.push(...(await runParts(root, [{ name, command, args, env, tests: true, live: true }])));
  }
  return results;
}

/** Where the package is once it is packed. */
function packed() {
  mkdirSync(PACKED, { recursive: true });
  const { name, version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  return join(PACKED, `${name}-${version}.tgz`);
}

function isHere(name, command) {
  const problem = missing(command);
  if (!problem) return true;
  if (process.env.CI) problems.push(`${name}: ${problem}`);
  else console.log(`skipped: ${name}: ${problem}`);
  return false;
}
