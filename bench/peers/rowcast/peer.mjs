import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Pair } from '../pair.mjs';

export const rowcast = {
  name: 'rowcast',
  label: 'Rowcast',
  durability: 'A: WAL, synchronous NORMAL, flushed before anything is sent; B: flushed before it acknowledges',
  doesNot: 'merge columns or text; transactions across machines',
  install: ({ commit }) => `Rowcast ${commit}, better-sqlite3`,
  start: (folder, { dist }) =>
    Pair.start({
      program: fileURLToPath(new URL('client.mjs', import.meta.url)),
      a: { path: join(folder, 'a.db'), dist: String(dist) },
      b: { path: join(folder, 'b.db'), dist: String(dist) },
    }),
};
