/**
 * `npm run sim:mutants`: switches on each planted bug in turn, and looks for a schedule that notices.
 * `-- --only <name>` for one of them, `-- --seeds 100` for another limit than 500 schedules, of its theme where it has one.
 *
 * caught-at.json says which seed noticed each of them. That one is run again before anything is searched: most of the
 * time a bug is still noticed there, and the search is hundreds of schedules long. `-- --search` begins at 1 for all.
 *
 * A schedule that fails without the bug as well has noticed something else: it counts for none, and is said. `-- --telling-hold`
 * where somebody else runs those of caught-at.json without the bugs (`npm run sim -- --telling`): then only others are tried.
 */
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { MUTANTS, NOTICED_BY_A_TEST } from './mutants.mjs';
import { compile, placeOf, startWorker } from './workers.mjs';

// A wrong flag or a worker that has ended is a message, not a stack.
process.on('uncaughtException', ({ message }) => {
  console.error(message);
  process.exit(2);
});

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    seeds: { type: 'string' },
    search: { type: 'boolean' },
    'telling-hold': { type: 'boolean' },
  },
});
const caughtFile = new URL('./caught-at.json', import.meta.url);
const caughtAt = JSON.parse(readFileSync(caughtFile, 'utf8'));
const known = { ...caughtAt };
const limit = Number(values.seeds ?? 500);
const only = values.only?.split(',');
const wanted = only ? [...MUTANTS, ...NOTICED_BY_A_TEST].filter(({ name }) => only.includes(name)) : MUTANTS;
if (wanted.length === 0) throw new Error(`--only must name one of ${MUTANTS.map(({ name }) => name).join(', ')}`);

const built = compile('sim-mutants');
const results = new Map();
const queue = [...wanted];
// One per core at a time, on Bun, which takes half as long as Node to start a worker and to run a few schedules.
await Promise.all(
  Array.from({ length: availableParallelism() }, async () => {
    const sound = startWorker('bun', built);
    for (let mutant = queue.shift(); mutant; mutant = queue.shift())
      results.set(mutant.name, await hunt(mutant, sound));
    sound.end();
  }),
);
print();
process.exitCode = [...results.values()].every(({ caught }) => caught !== undefined) ? 0 : 1;

async function hunt({ name, focus, edits }, sound) {
  const folder = join(built, '..', `mutant-${name}`);
  rmSync(folder, { recursive: true, force: true });
  cpSync(built, folder, { recursive: true });
  for (const edit of edits) plant(folder, name, edit);
  const worker = startWorker('bun', folder);
  try {
    const failure = (await again(worker, name)) ?? (await search(worker, name, focus));
    const isKnown = values['telling-hold'] && failure?.seed === known[name];
    const anyway = failure && !isKnown && (await runOne(sound, failure.seed));
    if (anyway) {
      progress(name, `seed ${failure.seed} fails without it as well: ${anyway.violation}`);
      return { caught: undefined, how: `fails without it as well: ${anyway.violation}` };
    }
    progress(name, failure ? `seed ${failure.seed}` : 'not caught');
    return failure ? { caught: failure.seed, how: failure.violation } : { caught: undefined, how: 'NOT CAUGHT' };
  } finally {
    worker.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Where it was noticed the last time. */
async function again(worker, name) {
  const seed = caughtAt[name];
  return values.search || seed === undefined ? undefined : runOne(worker, seed);
}

/** Its failure, where it has one. */
async function runOne(worker, seed) {
  return (await worker.ask({ kind: 'run', from: seed, to: seed + 1, stopAtFirst: true })).failures[0];
}

/** Among the schedules of its theme, where it has one, or else among all. */
async function search(worker, name, focus) {
  const task = { kind: 'run', from: 1, to: Number.MAX_SAFE_INTEGER, most: limit, stopAtFirst: true };
  const failure = (await worker.ask({ ...task, focus })).failures[0];
  if (failure && caughtAt[name] !== failure.seed) {
    caughtAt[name] = failure.seed;
    writeFileSync(caughtFile, `${JSON.stringify(caughtAt, null, 2)}\n`);
  }
  return failure;
}

function plant(folder, name, edit) {
  const { path, content } = placeOf(folder, name, edit);
  const [, text, replacement] = edit;
  writeFileSync(
    path,
    content.replace(text, () => replacement),
  );
}

function progress(name, what) {
  console.log(`${name}: ${what}`);
}

function print() {
  console.log(`\n| planted bug | what it does | caught at schedule | by |\n|---|---|---|---|`);
  for (const { name, what } of wanted) {
    const { caught, how } = results.get(name);
    console.log(
      `| ${name} | ${what} | ${caught ?? '**not within the limit**'} | ${how.replace(/[|\n]/g, ' ').slice(0, 90)} |`,
    );
  }
  const count = [...results.values()].filter(({ caught }) => caught !== undefined).length;
  console.log(`\n${count} of ${wanted.length} planted bugs were caught within ${limit} schedules`);
}
