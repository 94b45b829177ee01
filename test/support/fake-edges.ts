/** Any number of edges with sockets of their own, some of which never answer: all in one process, which is asked by lines. */
import { spawn } from 'node:child_process';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import { cleanUp } from './clean-up.ts';

const STUB = fileURLToPath(new URL('../../bench/lib/fake-edges.mjs', import.meta.url));

export function fakeEdges() {
  const child = spawn('node', [STUB], { stdio: ['pipe', 'pipe', 'inherit'] });
  cleanUp(() => void child.kill('SIGKILL'));
  const answers = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return async (command: string, args: object): Promise<never> => {
    child.stdin.write(`${JSON.stringify({ command, args })}\n`);
    const { result, error } = JSON.parse((await answers.next()).value);
    if (error !== undefined) throw new Error(error);
    return result as never;
  };
}
