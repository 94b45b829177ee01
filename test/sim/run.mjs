/**
 * `npm run sim`: compiles the simulation, starts a worker per core on Bun, and some on Node, and hands out seeds to them.
 *
 *   npm run sim                              2,000 schedules
 *   npm run sim -- --seeds 100000 --from 5   as many as you like, from there
 *   npm run sim -- --brief 840               so many of the brief ones (see brief.ts), besides `--seeds` where that is given; `--brief-from 841`
 *   npm run sim -- --seed 17                 one schedule with everything that happens in it
 *   npm run sim -- --seed 17 --without drop,crash --skip 3,4    the same without some of the trouble and some of the writes
 *   npm run sim -- --focus lives             of these seeds, those of one theme only (focus.ts has them; see isAbout in plan.ts)
 *   npm run sim -- --runtime bun             on one runtime only
 *   npm run sim -- --telling                 the seeds that have noticed a planted bug (caught-at.json) before all others, and
 *                                            those that have failed once (failing-seeds.json) on both runtimes
 *   npm run sim -- --minutes 30              hand out none of the brief ones after that time
 *   npm run sim -- --low-priority            leave the processor to others
 *
 * A part of the seeds runs on both runtimes, and the hashes of their traces are compared. The rest is run by Bun alone, where
 * it is one of them: it takes little more than half the time for them.
 */
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism, constants, setPriority } from 'node:os';
import { parseArgs } from 'node:util';
import { MUTANTS } from './mutants.mjs';
import { compile, placeOf, RUNTIMES, startWorker } from './workers.mjs';

// A wrong flag or a worker that has ended is a message, not a stack.
process.on('uncaughtException', ({ message }) => {
  console.error(message);
  process.exit(2);
});

const SEEDS = 2_000;
/** Every n-th chunk runs on both runtimes; of the brief ones, of which there are more, every n-th. */
const COMPARED = 10;
const COMPARED_BRIEF = 25;
/** So many workers on Node for each that is on Bun: a tenth of the seeds takes it a sixth of the time. */
const ON_NODE = 1 / 6;
/** Few, so that in the end no worker waits long for another. */
const CHUNK = 10;
/** The seeds of the brief ones are those above; brief.ts says so, too. */
const BRIEF_FROM = 2_000_000_000;
const failingFile = new URL('./failing-seeds.json', import.meta.url);
const caughtFile = new URL('./caught-at.json', import.meta.url);

const { values } = parseArgs({
  options: {
    seeds: { type: 'string' },
    from: { type: 'string' },
    brief: { type: 'string' },
    'brief-from': { type: 'string' },
    seed: { type: 'string' },
    without: { type: 'string' },
    skip: { type: 'string' },
    focus: { type: 'string' },
    runtime: { type: 'string' },
    telling: { type: 'boolean' },
    minutes: { type: 'string' },
    'low-priority': { type: 'boolean' },
  },
});
if (values['low-priority']) setPriority(constants.priority.PRIORITY_LOW);
const built = compile();
process.exitCode = values.seed === undefined ? await many() : await one(count('seed'));

async function one(seed) {
  const worker = startWorker(values.runtime ?? 'node', built);
  const taken = { without: list('without'), skip: list('skip').map(Number) };
  const { outcome } = await worker.ask({ kind: 'replay', seed, taken }, ({ line }) => console.log(line));
  worker.end();
  console.log(`\nseed ${seed}, trace ${outcome.hash}: ${outcome.violation ?? 'everything holds'}`);
  return outcome.violation ? 1 : 0;
}

async function many() {
  // They are hunted by `npm run test:deep` alone; that the source has moved away from one of them is said here.
  for (const { name, edits } of MUTANTS) for (const edit of edits) placeOf(built, name, edit);
  const runtimes = values.runtime === undefined ? RUNTIMES : [values.runtime];
  const usual = runtimes.at(-1);
  const brief = values.brief === undefined ? 0 : count('brief');
  const total = values.seeds === undefined ? (brief > 0 ? 0 : SEEDS) : count('seeds');
  const first = values.from === undefined ? 1 : count('from');
  const minutes = values.minutes === undefined ? Number.POSITIVE_INFINITY : count('minutes');
  // Where only brief ones are asked for, only those of them that are brief: another takes four times as long.
  const kept = read(failingFile).filter((seed) => total > 0 || seed > BRIEF_FROM);
  const telling = values.telling
    ? [...new Set(Object.values(read(caughtFile)))].filter((seed) => !kept.includes(seed))
    : [];
  const early = [...kept, ...telling].sort((a, b) => a - b);
  const started = Date.now();
  const state = { schedules: 0, left: 0, events: 0, virtualMs: 0, compared: 0, failures: [], differing: [] };
  const hashes = new Map();
  // Failing seeds of the past first, then the telling ones, and the others.
  const queues = new Map(runtimes.map((runtime) => [runtime, []]));
  for (const runtime of values.telling ? runtimes : [usual]) queues.get(runtime).push(...kept.map(alone));
  queues.get(usual).push(...telling.map(alone));
  deal(first, total, COMPARED);
  deal(BRIEF_FROM + (values['brief-from'] === undefined ? 1 : count('brief-from')), brief, COMPARED_BRIEF);
  const cores = availableParallelism();
  const workers = runtimes.flatMap((runtime) =>
    Array.from({ length: runtime === usual ? cores : Math.ceil(ON_NODE * cores) }, () => runtime),
  );
  await Promise.all(
    workers.map(async (runtime) => {
      const worker = startWorker(runtime, built);
      for (let chunk = next(runtime); chunk; chunk = next(runtime)) {
        const [from, to] = chunk;
        take(runtime, from, await worker.ask({ kind: 'run', from, to, focus: values.focus }));
        if (state.failures.length >= 5) break;
      }
      worker.end();
    }),
  );
  return report();

  /** So many seeds, in chunks: all to one runtime, and every n-th one to the others as well. */
  function deal(first, seeds, nth) {
    for (let from = first, i = 0; from < first + seeds; from += CHUNK, i++) {
      const chunk = without(early, from, Math.min(from + CHUNK, first + seeds));
      for (const [runtime, queue] of queues) if (runtime === usual || i % nth === 0) queue.push(...chunk);
    }
  }

  function next(runtime) {
    const chunk = queues.get(runtime).shift();
    const isTooLate = chunk?.[0] > BRIEF_FROM && Date.now() - started > 60_000 * minutes;
    if (!isTooLate) return chunk;
    for (const [from, to] of [chunk, ...queues.get(runtime).splice(0)]) if (runtime === usual) state.left += to - from;
    return undefined;
  }

  function take(runtime, from, result) {
    state.schedules += result.hashes.filter((hash) => hash !== '').length;
    state.events += result.events;
    state.virtualMs += result.virtualMs;
    for (const failure of result.failures) state.failures.push({ runtime, ...failure });
    result.hashes.forEach((hash, i) => {
      const other = hashes.get(from + i);
      hashes.set(from + i, hash);
      if (other === undefined || hash === '') return;
      state.compared += 1;
      if (other !== hash) state.differing.push(from + i);
    });
    const seconds = (Date.now() - started) / 1000;
    const line = `${state.schedules} schedules, ${state.failures.length} failed, ${Math.round(state.schedules / seconds)} a second`;
    if (process.stdout.isTTY) process.stdout.write(`\r${line}`);
    else if (state.schedules % 2_000 < result.hashes.length && values.focus === undefined) console.log(line);
  }

  async function report() {
    const seconds = ((Date.now() - started) / 1000).toFixed(0);
    const hours = (state.virtualMs / 3_600_000).toFixed(1);
    console.log(
      `\n${state.schedules} schedules on ${runtimes.join(' and ')} in ${seconds} s: ${state.events} events, ${hours} hours of virtual time, ` +
        `${state.failures.length} failed`,
    );
    if (state.left > 0) console.log(`${state.left} brief ones were left out after ${minutes} minutes`);
    if (runtimes.length > 1) {
      console.log(
        `${state.compared} schedules ran on both, ${state.differing.length} traces differ ${state.differing.slice(0, 10)}`,
      );
    }
    for (const failure of state.failures.slice(0, 3)) await explain(failure);
    if (state.failures.length > 0) keep(state.failures.map(({ seed }) => seed));
    return state.failures.length + state.differing.length > 0 || state.schedules === 0 ? 1 : 0;
  }
}

async function explain({ runtime, seed, violation }) {
  console.log(`\nseed ${seed} (${runtime}): ${violation}`);
  const worker = startWorker(runtime, built);
  const shrunk = await worker.ask({ kind: 'shrink', seed });
  worker.end();
  const { without, skip } = shrunk.taken;
  const flags = `${without.length > 0 ? ` --without ${without}` : ''}${skip.length > 0 ? ` --skip ${skip}` : ''}`;
  console.log(`replay:  npm run sim -- --seed ${seed}`);
  console.log(`smaller: npm run sim -- --seed ${seed}${flags}   (${shrunk.tries} tries)`);
  console.log(`         ${shrunk.violation}`);
  console.log(
    shrunk.tail
      .slice(-25)
      .map((line) => `         | ${line.slice(0, 180)}`)
      .join('\n'),
  );
}

/** One seed, as what a worker is asked for. */
function alone(seed) {
  return [seed, seed + 1];
}

/** The seeds from `from` to before `to`, as such pairs, but for those that have run first. */
function without(early, from, to) {
  const cuts = [from - 1, ...early.filter((seed) => seed >= from && seed < to), to];
  return cuts.slice(1).flatMap((end, i) => (cuts[i] + 1 < end ? [[cuts[i] + 1, end]] : []));
}

/** So that they are run first from now on. */
function keep(seeds) {
  const known = read(failingFile);
  const all = [...new Set([...known, ...seeds])].sort((a, b) => a - b);
  writeFileSync(failingFile, `[${all.join(', ')}]\n`);
  if (process.env.GITHUB_STEP_SUMMARY) appendFileSync(process.env.GITHUB_STEP_SUMMARY, `failing seeds: ${seeds}\n`);
}

function count(name) {
  const value = Number(values[name]);
  if (Number.isSafeInteger(value) && value >= 0) return value;
  console.error(`--${name} must be a whole number, not ${values[name]}`);
  process.exit(2);
}

function read(file) {
  return JSON.parse(readFileSync(file, 'utf8'));
}

function list(name) {
  return values[name] === undefined ? [] : values[name].split(',');
}
