/**
 * Runs the parts of a test run, as many side by side as there are cores, and says what is going on: a line when a part
 * starts and ends, one with the elapsed time while nothing does, everything that a failed part has said, and a table.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';

const PROGRESS_MS = 20_000;
export const cores = availableParallelism();
/**
 * Node 20 reads all of a machine's further certificates each time that it starts, for three times as long as it takes to
 * start. Nothing here speaks to anybody whom they would vouch for, and what passes must not depend on them.
 */
const NO_CERTIFICATES = { NODE_EXTRA_CA_CERTS: undefined };

/**
 * A part is `{ name, command, args, env, weight, after }`: how many cores it takes, at most all of them (0: it takes what
 * others leave), and the parts that must have ended before. `tests`: it is a run of vitest; `live`: its output is passed on
 * as it comes; `shows`: when it has ended; `figure`: what of it the table says. Returns an outcome for each: `{ name, seconds, passed, failed, note }`.
 */
export async function runParts(root, parts) {
  const folder = mkdtempSync(join(tmpdir(), 'rowcast-parts-'));
  const begun = Date.now();
  const waiting = [...parts];
  const running = new Map();
  const outcomes = [];
  const ticking = setInterval(tick, PROGRESS_MS);
  while (waiting.length + running.size > 0) {
    for (const part of [...waiting]) if (isDue(part)) start(part);
    await Promise.race([...running.values()].map(({ ended }) => ended));
  }
  clearInterval(ticking);
  rmSync(folder, { recursive: true, force: true });
  return parts.map(({ name }) => outcomes.find((outcome) => outcome.name === name));

  function isDue({ weight = 1, after = [] }) {
    const taken = [...running.values()].reduce((sum, { part }) => sum + (part.weight ?? 1), 0);
    const isFirst = after.every((name) => outcomes.some((outcome) => outcome.name === name));
    return isFirst && (taken + weight <= cores || taken === 0);
  }

  function start(part) {
    waiting.splice(waiting.indexOf(part), 1);
    say(`${part.name}: begins${part.what ? ` (${part.what})` : ''}`);
    const progress = join(folder, `${part.name.replaceAll(' ', '-')}.json`);
    const job = { part, progress, output: '', since: Date.now(), said: 0 };
    running.set(part.name, job);
    job.ended = execute(root, job).then((code) => end(job, code));
  }

  function end(job, code) {
    const { part, output } = job;
    const seconds = (Date.now() - job.since) / 1000;
    const { passed, failed, note } = part.tests ? counted(job, code) : single(code);
    const figure = part.figure?.(output);
    outcomes.push({ name: part.name, seconds, passed, failed, note, figure });
    sayFailures(job);
    running.delete(part.name);
    if (failed > 0 && !part.live)
      console.log(`\n---- ${part.name} ----\n${output.trimEnd()}\n---- end of ${part.name} ----\n`);
    else if (part.shows) console.log(output.trimEnd());
    say(`${part.name}: ${failed > 0 ? 'FAILED' : 'ok'} after ${seconds.toFixed(0)} s${note ? `, ${note}` : ''}`);
  }

  function tick() {
    for (const job of running.values()) sayFailures(job);
    const lines = [...running.values()].map((job) => `${job.part.name} ${stateOf(job)}`);
    if (!parts.some(({ live }) => live)) say(lines.join(' | '));
  }

  /** By name as soon as they are known; why they failed is said when the part has ended. */
  function sayFailures(job) {
    const failures = stateIn(job)?.failures ?? [];
    for (const failure of failures.slice(job.said)) say(`${job.part.name}: FAILED ${failure}`);
    job.said = failures.length;
  }

  function say(text) {
    const seconds = Math.floor((Date.now() - begun) / 1000);
    console.log(`${String(Math.floor(seconds / 60)).padStart(3)}:${String(seconds % 60).padStart(2, '0')}  ${text}`);
  }
}

export function printTable(outcomes) {
  const width = Math.max(...outcomes.map(({ name }) => name.length));
  console.log(`\n${'part'.padEnd(width)}  seconds  passed  failed`);
  for (const { name, seconds, passed, failed, figure } of outcomes) {
    const cells = [seconds.toFixed(0).padStart(7), String(passed).padStart(6), String(failed).padStart(6)];
    console.log(
      `${name.padEnd(width)}  ${cells.join('  ')}${failed > 0 ? '  <-- failed' : ''}${figure ? `  ${figure}` : ''}`,
    );
  }
}

function execute(root, job) {
  const { command, args, env } = job.part;
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...NO_CERTIFICATES, ROWCAST_PROGRESS: job.progress, ...env },
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk) => {
        job.output += chunk;
        if (job.part.live) process.stdout.write(chunk);
      });
    }
    child.on('error', (error) => {
      job.output += `${error}\n`;
      resolve(1);
    });
    child.on('close', (code) => resolve(code ?? 1));
  });
}

/** The tests of a run of vitest; a run that failed without a failed test counts as one. */
function counted(job, code) {
  const state = stateIn(job);
  const passed = state?.passed ?? 0;
  const failed = code === 0 ? 0 : Math.max(1, state?.failed ?? 0);
  const slowest = (state?.slowest ?? []).slice(0, 3).map(([file, ms]) => `${file} ${Math.round(ms / 1000)} s`);
  const dealt = state?.dealt > 0 ? `, ${state.dealt} left to another runtime` : '';
  const long = state?.long > 0 ? `, ${state.long} long ones to npm run test:deep` : '';
  const note = `${passed} tests in ${state?.files ?? 0} files${dealt}${long}; slowest: ${slowest.join(', ')}`;
  // A filter that matches nothing is a mistake, not a success.
  return passed + failed === 0 ? { passed, failed: 1, note: 'no test has run' } : { passed, failed, note };
}

function single(code) {
  return code === 0 ? { passed: 1, failed: 0, note: '' } : { passed: 0, failed: 1, note: `exit code ${code}` };
}

function stateOf(job) {
  const seconds = `${Math.round((Date.now() - job.since) / 1000)} s`;
  if (!job.part.tests) return [seconds, job.output.trim().split('\n').at(-1).slice(0, 80)].filter(Boolean).join(', ');
  const state = stateIn(job);
  if (!state) return seconds;
  const failed = state.failed > 0 ? `, ${state.failed} FAILED` : '';
  return `${seconds}, ${state.files} of ${state.of} files, ${state.passed} tests${failed}, in ${state.running.join(' and ')}`;
}

function stateIn({ progress }) {
  return existsSync(progress) ? JSON.parse(readFileSync(progress, 'utf8')) : undefined;
}
