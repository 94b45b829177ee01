/** Instructions instead of time: the processor's own counter where it is to be had, otherwise valgrind's. */
import { rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { run } from './processes.mjs';

const PROGRAM = fileURLToPath(new URL('counted.mjs', import.meta.url));

/** Rows of each kind of work; under valgrind everything takes fifty times as long. */
const ROWS = 2_000;

/** What chance decides in V8, fixed: hash seeds, background compilation and collection. */
const REPEATABLE = ['--single-threaded', '--predictable', '--hash-seed=1', '--random-seed=1'];

export const INSTRUCTION_METRICS = [
  { key: 'capture', label: 'capture: insert, update, delete', unit: 'thousand a row', guard: true },
  { key: 'receive', label: 'receive: insert, update, delete', unit: 'thousand a row', guard: true },
];

export async function findCounter() {
  try {
    // Counted by the kernel; many virtual machines have no counter, and perf then says so instead of a number.
    const text = await run('perf', ['stat', '-x', ',', '-e', 'instructions:u', '-o', '/dev/stdout', 'true']);
    if (/^\d+,,instructions/m.test(text)) {
      return {
        name: 'perf',
        about: 'Counted by the processor (perf stat, user space, the start of the process taken off).',
      };
    }
  } catch {
    // Not installed, or not allowed.
  }
  try {
    await run('valgrind', ['--version']);
    return {
      name: 'valgrind',
      about:
        'Counted by valgrind (callgrind), because this machine has no counter of its own that can be read; the start of the process is taken off.',
    };
  } catch {
    return {
      unavailable:
        'Instructions were not counted: neither perf with a readable counter nor valgrind is here. The judgement rests on CPU time.',
    };
  }
}

/** Thousands of instructions a row. */
export async function countInstructions({ name }, context) {
  const start = await count(name, context, 'nothing');
  const result = {};
  for (const { key } of INSTRUCTION_METRICS) {
    result[key] = ((await count(name, context, key)) - start) / (ROWS * 3) / 1_000;
  }
  return result;
}

async function count(name, context, work) {
  const path = context.path('counted.db');
  for (const end of ['', '-wal', '-shm']) rmSync(path + end, { force: true });
  const program = [context.runtime.command, ...REPEATABLE, PROGRAM, String(context.dist), path, work, String(ROWS)];
  if (name === 'perf') {
    const text = await run('perf', ['stat', '-x', ',', '-e', 'instructions:u', '-o', '/dev/stdout', ...program]);
    return Number(/^(\d+),,instructions/m.exec(text)[1]);
  }
  const log = ['--tool=callgrind', '--callgrind-out-file=/dev/null', '--log-fd=1'];
  const text = await run('valgrind', [...log, ...program]);
  return Number(/Collected : (\d+)/.exec(text)[1]);
}
