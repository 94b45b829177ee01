/** The programs as a user starts them: a process on the runtime and binding of the lane, what it says, how it ends. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePorts } from '../../demo/ports.ts';
import { lane } from './lane.ts';
import { cleanUp, scratchFolder, until } from './nodes.ts';

export { freePorts };

/** `rowcast`, as it is built. */
export const MAIN = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));

/** Where the lane's own binding is found; paths given to the programs are absolute. */
const LANES = fileURLToPath(new URL('../lanes', import.meta.url));

// biome-ignore lint/suspicious/noExplicitAny: log lines and answers are looked at field by field
export type Parsed = any;

export interface Program {
  child: ChildProcess;
  stdout(): string;
  stderr(): string;
  /** Both of them. */
  output(): string;
  /** The log lines of one event so far. */
  lines(event: string): Parsed[];
  /** The exit code; the signal's name where there is none. */
  ended: Promise<number | string>;
}

export interface RunOptions {
  env?: Record<string, string>;
  /** A command that runs the program in its turn. */
  wrapper?: string[];
  cwd?: string;
  /** For the runtime. */
  flags?: string[];
  /** Another runtime than the lane's, with a binding that it has. */
  runtime?: { command: string; binding: string };
}

/** Starts a program, which ends with the test at the latest. */
export function runProgram(file: string, args: string[], options: RunOptions = {}): Program {
  if (!existsSync(file)) throw new Error(`${file} is missing: npm run build`);
  const {
    env,
    wrapper = [],
    flags = [],
    cwd = LANES,
    runtime = { command: process.execPath, binding: lane },
  } = options;
  const [command, ...rest] = [...wrapper, runtime.command, ...flags, file, ...args] as [string, ...string[]];
  const child = spawn(command, rest, {
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ROWCAST_BINDING: runtime.binding, ...env },
  });
  let stdout = '';
  let stderr = '';
  child.stdout?.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stderr?.on('data', (chunk) => {
    stderr += chunk;
  });
  const ended = new Promise<number | string>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve(code ?? signal ?? 'lost'));
  });
  cleanUp(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  const lines = (event: string): Parsed[] =>
    stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line))
      .filter((line) => line.event === event);
  return { child, stdout: () => stdout, stderr: () => stderr, output: () => stdout + stderr, lines, ended };
}

/** Resolves with the log line in which a program says that it has started; rejects with what it said if it ends instead. */
export async function started(program: Program): Promise<Parsed> {
  let code: number | string | undefined;
  void program.ended.then((value) => {
    code = value;
  });
  await until('it has started', () => {
    if (code !== undefined) throw new Error(`it ended with ${code}: ${program.output()}`);
    return program.lines('started').length === 1;
  });
  return program.lines('started')[0];
}

export interface NodeProgram extends Program {
  url: string;
  port: number;
  db: string;
  started: Parsed;
}

/** `rowcast serve`, running, on a free port where no other is named. */
export async function startNode(
  id: string,
  args: string[] = [],
  folder = scratchFolder(),
  options: RunOptions = {},
): Promise<NodeProgram> {
  const db = join(folder, `${id}.db`);
  const listen = args.includes('-listen') ? [] : ['-listen', '127.0.0.1:0'];
  const program = runProgram(MAIN, ['serve', '-id', id, '-db', db, ...listen, ...args], options);
  const line = await started(program);
  return { ...program, url: line.url, port: line.port, db, started: line };
}

/**
 * Changes files, sends SIGHUP, and returns the first line of this event after that. The program stands still meanwhile: it
 * looks at its files by itself every few seconds, and would otherwise now and then have read half of a change before.
 */
export async function hangUp(program: Program, event: string, change: () => void): Promise<Parsed> {
  const before = program.lines(event).length;
  program.child.kill('SIGSTOP');
  change();
  program.child.kill('SIGHUP');
  program.child.kill('SIGCONT');
  await until(`it has said ${event}`, () => program.lines(event).length > before);
  return program.lines(event)[before];
}

/** What a program has used of the machine: processor time, and the most memory at any moment. */
export interface Usage {
  cpuSeconds: number;
  peakMiB: number;
}

/** For a program of which `usageOf` is asked. On Node its heap is limited as well; Bun has no such limit. */
export function measured(heapMiB: number): RunOptions {
  const preload = fileURLToPath(new URL('usage.mjs', import.meta.url));
  if (process.versions.bun !== undefined) return { flags: ['--preload', preload] };
  return { flags: [`--max-old-space-size=${heapMiB}`, '--import', preload] };
}

/** Waits for whatever the program is at. */
export async function usageOf(program: Program): Promise<Usage> {
  const lines = (): string[] => program.stderr().match(/^usage .*$/gm) ?? [];
  const before = lines().length;
  program.child.kill('SIGUSR2');
  await until('it has said what it has used', () => lines().length > before);
  return JSON.parse((lines().at(-1) as string).slice('usage '.length));
}

export async function freePort(): Promise<number> {
  const [port] = (await freePorts(1)) as [number];
  return port;
}
