import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from '../../lib/processes.mjs';
import { currentNode } from '../../lib/runtimes.mjs';
import { Pair } from '../pair.mjs';

export const sessions = {
  name: 'sessions',
  label: 'node:sqlite sessions over HTTP',
  durability: 'A: WAL, synchronous NORMAL; B: flushed before it answers. What is not sent yet is in memory alone',
  doesNot: 'any conflict rule, a queue that survives a crash, retries, deletions that stay deleted, schema changes',
  async install() {
    const node = await currentNode();
    return `Node ${(await run(node, ['--version'])).trim().slice(1)}`;
  },
  start: async (folder) =>
    Pair.start({
      command: await currentNode(),
      program: fileURLToPath(new URL('client.mjs', import.meta.url)),
      a: { path: join(folder, 'a.db') },
      b: { path: join(folder, 'b.db') },
    }),
};
