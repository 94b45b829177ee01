/** What keys cost, and rights: the same backlog drained without, with keys, and with keys that have rights, in turns. */
import { randomBytes } from 'node:crypto';
import { drainOnce } from './drain.mjs';

let turn = 0;

export const keys = {
  name: 'keys',
  title: 'Keys',
  about: ({ rows }) =>
    `Two processes, a backlog of ${rows.toLocaleString('en')} rows; every request and every answer signed and verified, or none; and by a key that may write this table alone.`,
  metrics: () => [
    { key: 'cost', label: 'CPU of both nodes, with keys / without', unit: 'x', target: { max: 1.1 } },
    { key: 'rights', label: 'CPU of both nodes, with rights / with keys alone', unit: 'x' },
    { key: 'with', label: 'CPU s of both nodes with keys', unit: 's' },
    { key: 'without', label: 'CPU s of both nodes without', unit: 's' },
    { key: 'time', label: 'wall time, with keys / without', unit: 'x' },
  ],
  async repetition(context) {
    const { rows } = context.scale;
    const key = { id: 'k1', secret: randomBytes(32).toString('base64') };
    const auth = { keys: [key] };
    const limited = { keys: [{ ...key, write: ['items'] }] };
    const ways = [
      { rows },
      { rows, options: { auth }, receiving: { auth } },
      { rows, options: { auth }, receiving: { auth: limited } },
    ];
    // Whoever comes first finds a colder machine: each is first in turn.
    const first = turn++ % ways.length;
    const runs = [];
    for (let i = 0; i < ways.length; i++) {
      const way = (first + i) % ways.length;
      runs[way] = await drainOnce(context, ways[way]);
    }
    const [plain, signed] = runs;
    const [without, cpu, withRights] = runs.map(({ cpuA, cpuB }) => cpuA + cpuB);
    return { cost: cpu / without, rights: withRights / cpu, with: cpu, without, time: signed.seconds / plain.seconds };
  },
};
