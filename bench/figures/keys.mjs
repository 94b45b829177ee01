/** What keys cost: the same backlog drained with and without them, in turns. */
import { randomBytes } from 'node:crypto';
import { drainOnce } from './drain.mjs';

let turn = 0;

export const keys = {
  name: 'keys',
  title: 'Keys',
  about: ({ rows }) =>
    `Two processes, a backlog of ${rows.toLocaleString('en')} rows; every request and every answer signed and verified, or none.`,
  metrics: () => [
    { key: 'cost', label: 'CPU of both nodes, with keys / without', unit: 'x', target: { max: 1.1 } },
    { key: 'with', label: 'CPU s of both nodes with keys', unit: 's' },
    { key: 'without', label: 'CPU s of both nodes without', unit: 's' },
    { key: 'time', label: 'wall time, with keys / without', unit: 'x' },
  ],
  async repetition(context) {
    const { rows } = context.scale;
    const auth = { keys: [{ id: 'k1', secret: randomBytes(32).toString('base64') }] };
    const ways = [{ rows }, { rows, options: { auth }, receiving: { auth } }];
    // Whoever comes first finds a colder machine: each is first in turn.
    const order = turn++ % 2 === 0 ? [0, 1] : [1, 0];
    const runs = [];
    for (const way of order) runs[way] = await drainOnce(context, ways[way]);
    const [plain, signed] = runs;
    const [cpu, without] = [signed, plain].map(({ cpuA, cpuB }) => cpuA + cpuB);
    return { cost: cpu / without, with: cpu, without, time: signed.seconds / plain.seconds };
  },
};
