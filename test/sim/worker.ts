/**
 * Runs schedules in this runtime, as it is told on its standard input, one JSON line a task, and answers with one line each.
 * `test/sim/run.mjs` is what starts it.
 */
import { createInterface } from 'node:readline';
import { DiskPool } from './disk.ts';
import { isAbout, planFor, type Reduction } from './plan.ts';
import { shrink } from './shrink.ts';
import { type Outcome, simulate } from './world.ts';

export type Task =
  /** Seeds from `from` to before `to`, those of one focus or all, until one fails or so many have run, where that is asked for. */
  | { kind: 'run'; from: number; to: number; stopAtFirst?: boolean; focus?: string; most?: number }
  /** One schedule, with every line of its trace. */
  | { kind: 'replay'; seed: number; taken: Reduction }
  | { kind: 'shrink'; seed: number };

// Nobody reads the stack of an error that a schedule wants to happen, and collecting them takes a tenth of the time.
Error.stackTraceLimit = 0;

const pool = new DiskPool();

for await (const line of createInterface({ input: process.stdin })) {
  const task = JSON.parse(line) as Task;
  if (task.kind === 'run') await runSeeds(task);
  else if (task.kind === 'replay') await replay(task);
  else answer({ seed: task.seed, ...(await shrink(task.seed, pool)) });
}

async function runSeeds({ from, to, stopAtFirst, focus, most }: Extract<Task, { kind: 'run' }>): Promise<void> {
  const hashes: string[] = [];
  const failures: Outcome[] = [];
  let events = 0;
  let virtualMs = 0;
  let left = most ?? Number.POSITIVE_INFINITY;
  for (let seed = from; seed < to && left > 0; seed++) {
    if (focus !== undefined && !isAbout(seed, focus)) {
      hashes.push('');
      continue;
    }
    left -= 1;
    const outcome = await simulate(seed, pool);
    hashes.push(outcome.hash);
    events += outcome.events;
    virtualMs += outcome.virtualMs;
    if (!outcome.violation) continue;
    failures.push(outcome);
    if (stopAtFirst) break;
  }
  const { heapUsed, rss } = process.memoryUsage();
  answer({ from, hashes, failures, events, virtualMs, heapUsed, rss });
}

async function replay({ seed, taken }: { seed: number; taken: Reduction }): Promise<void> {
  const outcome = await simulate(seed, pool, taken, (line) => answer({ line }));
  answer({ plan: planFor(seed, taken), outcome });
}

function answer(what: object): void {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}
