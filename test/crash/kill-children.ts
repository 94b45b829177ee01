/** Child processes on the runtime and binding of the lane, with a library that support/build.ts has compiled. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { root } from '../support/build.ts';
import { betterSqlite3, lane } from '../support/lane.ts';
import { cleanUp } from '../support/nodes.ts';

const require = createRequire(import.meta.url);

export interface Child {
  process: ChildProcess;
  /** Everything said so far, line by line. */
  lines: string[];
  /** Resolves when the `n`th line is there; rejects when the child ends before. */
  line(n: number): Promise<string>;
  /** Kills without warning and resolves when the process is gone and its pipe is read to the end. */
  kill(): Promise<void>;
  /** Lets a receiver end by itself. */
  end(): Promise<number | null>;
  ended: Promise<number | null>;
}

export function startChild(build: string, script: string, args: string[], wrapper: string[] = []): Child {
  const file = join(root, 'test', 'crash', script);
  const [command, ...rest] = [...wrapper, process.execPath, file, ...args] as [string, ...string[]];
  const child = spawn(command, rest, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: {
      ...process.env,
      ROWCAST_BUILD: build,
      ROWCAST_LANE: lane,
      ROWCAST_BETTER_SQLITE3: lane === 'better-sqlite3' ? require.resolve(betterSqlite3()) : '',
    },
  });
  const lines: string[] = [];
  let errors = '';
  const waiting = new Set<() => void>();
  const wake = (): void => {
    for (const check of [...waiting]) check();
  };
  child.stderr.on('data', (data) => {
    errors += data;
  });
  createInterface(child.stdout).on('line', (line) => {
    lines.push(line);
    wake();
  });
  let over = false;
  const ended = new Promise<number | null>((resolve) => {
    child.on('close', (code) => {
      over = true;
      wake();
      resolve(code);
    });
  });
  cleanUp(() => {
    // A tracer that is killed leaves its child running; the end of its input ends that too.
    child.stdin.end();
    child.kill('SIGKILL');
    return ended;
  });
  return {
    process: child,
    lines,
    ended,
    end: () => {
      child.stdin.end();
      return ended;
    },
    line: (n) =>
      new Promise((resolve, reject) => {
        const check = (): void => {
          const line = lines[n - 1];
          if (line === undefined && !over) return;
          waiting.delete(check);
          if (line === undefined) reject(new Error(`${script} ended before line ${n}: ${errors}`));
          else resolve(line);
        };
        waiting.add(check);
        check();
      }),
    kill: async () => {
      child.kill('SIGKILL');
      await ended;
    },
  };
}
