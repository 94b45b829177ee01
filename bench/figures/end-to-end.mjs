/** From the application's INSERT on one node to the last pruned change: CPU of both nodes, and how long it takes. */
import { plainInsert } from '../lib/context.mjs';

export const endToEnd = {
  name: 'end-to-end',
  title: 'Written on A, applied on B, pruned on A',
  about: ({ rows }) =>
    `${rows.toLocaleString('en')} rows in transactions of 1,000, two processes, the writer never waiting for the other.`,
  metrics: ({ rows }) => [
    {
      key: 'cpu',
      label: `CPU s of both nodes, ${rows.toLocaleString('en')} rows`,
      unit: 's',
      target: { max: (1.5 * rows) / 100_000 },
      guard: true,
    },
    { key: 'cpuA', label: 'of that the writer', unit: 's' },
    { key: 'cpuB', label: 'of that the receiver', unit: 's' },
    { key: 'cpuPlain', label: 'CPU s of plain inserts, one database', unit: 's' },
    { key: 'cpuRatio', label: 'CPU, times plain', unit: 'x' },
    { key: 'rate', label: 'end-to-end rows/s while writing', unit: '/s', digits: 0, better: 'higher' },
    { key: 'seconds', label: 'wall time', unit: 's' },
    { key: 'share', label: 'share of the plain insert rate', unit: '', target: { min: 0.3 }, better: 'higher' },
  ],
  async repetition(context) {
    const { rows } = context.scale;
    const plain = await plainInsert(context, { rows });
    const run = await endToEndOnce(context, { rows });
    return {
      cpu: run.cpuA + run.cpuB,
      cpuA: run.cpuA,
      cpuB: run.cpuB,
      cpuPlain: plain.cpu,
      cpuRatio: (run.cpuA + run.cpuB) / plain.cpu,
      rate: rows / run.seconds,
      seconds: run.seconds,
      share: plain.seconds / run.seconds,
    };
  },
};

/** One writer and `peers` receivers; also the measure of how cost grows. */
export async function endToEndOnce(context, { rows, peers = 1, columns, options, ...shape }) {
  const receivers = [];
  for (let i = 0; i < peers; i++) receivers.push(await context.receiver({ columns }));
  const sender = await context.sender({ peers: receivers.map(({ url }) => url), columns, options });
  const before = await Promise.all(receivers.map((receiver) => receiver.ask('cpu')));
  const run = await sender.ask('writeAndShip', { rows, perTransaction: 1_000, peers, ...shape });
  const after = await Promise.all(receivers.map((receiver) => receiver.ask('cpu')));
  await context.verify(rows, sender, ...receivers);
  await context.discard(sender, ...receivers);
  return {
    seconds: run.seconds,
    writing: run.writing,
    cpuA: run.cpu,
    cpuB: after.reduce((sum, cpu, i) => sum + cpu - before[i], 0),
  };
}
