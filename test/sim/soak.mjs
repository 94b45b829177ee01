/**
 * `npm run soak`: the simulation for hours, on both runtimes, with new seeds each time, and an eye on what grows.
 *
 *   npm run soak -- --hours 8         default 1; --minutes for less
 *
 * Beside the workers, two real nodes on real files write to each other all the time. Their memory and their files must level
 * off: rows are replaced and deleted as fast as they are written, so whatever keeps growing has not been cleaned up.
 */
import { parseArgs } from 'node:util';
import { Growth } from './growth.mjs';
import { startRealNodes } from './real-nodes.mjs';
import { compile, RUNTIMES, startWorker } from './workers.mjs';

// A wrong flag or a worker that has ended is a message, not a stack.
process.on('uncaughtException', ({ message }) => {
  console.error(`${message}\nusage: npm run soak -- [--hours <n>] [--minutes <n>] [--from <seed>]`);
  process.exit(2);
});

const CHUNK = 50;
const { values } = parseArgs({
  options: { hours: { type: 'string' }, minutes: { type: 'string' }, from: { type: 'string' } },
});
const minutes = values.minutes === undefined ? 60 * Number(values.hours ?? 1) : Number(values.minutes);
if (!(minutes > 0)) throw new Error('--hours and --minutes must be numbers above zero');
const until = Date.now() + minutes * 60_000;
// New ones each time; printed, so that a failure can be run again.
let next =
  values.from === undefined ? 1_000_000 + (Math.floor(Date.now() / 1000) % 1_000_000_000) : Number(values.from);
console.log(`seeds from ${next}, for ${minutes} minutes`);

const built = compile('soak');
const failures = [];
let schedules = 0;
const growth = new Growth();
const real = await startRealNodes();
const reporting = setInterval(report, Math.min(60_000, minutes * 6_000));
await Promise.all([...RUNTIMES.map(simulating), real.run(until, (sample) => growth.add(sample))]);
clearInterval(reporting);
const wrong = await real.end();
report();
for (const { seed, violation } of failures) console.log(`npm run sim -- --seed ${seed}   # ${violation}`);
const grown = growth.verdicts();
for (const { what, text } of grown) console.log(`${what}: ${text}`);
for (const problem of wrong) console.log(problem);
process.exitCode = failures.length + wrong.length + grown.filter(({ ok }) => !ok).length > 0 ? 1 : 0;

async function simulating(runtime) {
  const worker = startWorker(runtime, built);
  while (Date.now() < until && failures.length < 5) {
    const from = next;
    next += CHUNK;
    const result = await worker.ask({ kind: 'run', from, to: from + CHUNK });
    schedules += result.hashes.length;
    failures.push(...result.failures);
    growth.add({ [`${runtime} simulation, heap`]: result.heapUsed });
  }
  worker.end();
}

function report() {
  const { written, delivered } = real.counts;
  console.log(
    `${new Date().toISOString()} ${schedules} schedules, ${failures.length} failed; real nodes: ${written} rows written, ${delivered} delivered; ${growth.summary()}`,
  );
}
