/** What each further peer costs a sender. */
import { median } from '../lib/statistics.mjs';

const PEERS = [1, 4, 8, 16];
const TARGETS = [3, 3.5, 4.5, 7];

export const fanOut = {
  name: 'fan-out',
  title: 'Many peers',
  about: ({ rows }) =>
    `A backlog of ${rows.toLocaleString('en')} rows, sent to 1, 4, 8 and 16 peers at once. One process stands for all of these, introduces itself as each of them, and acknowledges whatever comes: counted is the CPU time of the sender alone, by rows, not by rows times peers. The sender is a fresh process: a good part of what it takes at first is the compiler of its engine.`,
  metrics: () =>
    PEERS.flatMap((peers, i) => [
      {
        key: `cost${peers}`,
        label: `${peers} peer${peers === 1 ? '' : 's'}: CPU of the sender a row`,
        unit: 'us',
        target: { max: TARGETS[i] },
        guard: peers !== 4,
      },
    ]),
  plots: (samples) => [
    {
      name: 'fan-out',
      title: 'What a sender takes for a row, by its peers',
      kind: 'lines',
      x: { label: 'peers', values: PEERS },
      y: { label: 'CPU us a row' },
      series: [
        { label: 'Rowcast', values: PEERS.map((peers) => median(samples.map((sample) => sample[`cost${peers}`]))) },
        { label: 'target', values: TARGETS },
      ],
    },
  ],
  async repetition(context) {
    const { rows } = context.scale;
    const result = {};
    for (const peers of PEERS) result[`cost${peers}`] = (1e6 * (await drainTo(context, rows, peers))) / rows;
    return result;
  },
};

/** CPU seconds of the sender. */
async function drainTo(context, rows, count) {
  const receivers = await context.process();
  const { port } = await receivers.ask('acknowledge');
  const peers = Array.from({ length: count }, (_, i) => `http://127.0.0.1:${port}/${i}`);
  const sender = await context.process();
  // The peers are known before the rows are: changes are drained, and no snapshot is taken.
  await sender.ask('attach', { id: 'a', peers, asleep: true });
  await sender.ask('write', { rows, perTransaction: 1_000 });
  await sender.ask('detachLoops');
  const { cpu } = await sender.ask('drain', { id: 'a', peers, rows });
  await context.verify(rows, sender);
  await context.discard(sender, receivers);
  return cpu;
}
