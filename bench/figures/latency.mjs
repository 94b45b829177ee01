/** From just before the INSERT on A to the commit on B, one row at a time. */
import { quantile } from '../lib/statistics.mjs';

const WAYS = [
  { key: 'b50', label: 'batchMs 50', options: { batchMs: 50 }, p50: 28 },
  { key: 'b5', label: 'batchMs 5', options: { batchMs: 5 }, p50: 5.5 },
  { key: 'nudge', label: 'nudge()', options: { batchMs: 50 }, nudge: true, p50: 2, p99: 8 },
];

export const latency = {
  name: 'latency',
  title: 'Write on A to visible on B',
  about: ({ trickle }) =>
    `${trickle} rows a repetition, one at a time, 100 a second on average with pauses of 5 to 15 ms; from just before the INSERT to the 'applied' event, which follows the commit.`,
  metrics: () =>
    WAYS.flatMap(({ key, label, p50, p99 }) => [
      { key: `${key} p50`, label: `${label}: p50`, unit: 'ms', target: { max: p50 } },
      { key: `${key} p99`, label: `${label}: p99`, unit: 'ms', ...(p99 && { target: { max: p99 } }) },
      { key: `${key} cpu`, label: `${label}: CPU ms a row, both nodes`, unit: 'ms', guard: key === 'nudge' },
    ]),
  async repetition(context) {
    const result = {};
    for (const { key, options, nudge } of WAYS) {
      const { times, cpu } = await latencyOnce(context, { options, nudge });
      result[`${key} p50`] = quantile(times, 0.5);
      result[`${key} p99`] = quantile(times, 0.99);
      result[`${key} cpu`] = (cpu * 1_000) / times.length;
      result[`${key} deciles`] = Array.from({ length: 11 }, (_, i) => quantile(times, i / 10));
    }
    return result;
  },
  plots: (samples) => [
    {
      name: 'latency',
      title: 'Write on A to visible on B',
      kind: 'lines',
      x: { label: '% of the rows are at least as fast', values: Array.from({ length: 11 }, (_, i) => i * 10) },
      y: { label: 'ms' },
      series: WAYS.map(({ key, label }) => ({
        label,
        values: Array.from({ length: 11 }, (_, i) =>
          quantile(
            samples.map((sample) => sample[`${key} deciles`][i]),
            0.5,
          ),
        ),
      })),
    },
  ],
};

export async function latencyOnce(context, { options, nudge = false }) {
  const rows = context.scale.trickle;
  const receiver = await context.receiver();
  await receiver.ask('watchArrivals');
  const sender = await context.sender({ peers: [receiver.url], options });
  const before = (await sender.ask('cpu')) + (await receiver.ask('cpu'));
  const written = await sender.ask('trickle', { rows, nudge });
  const cpu = (await sender.ask('cpu')) + (await receiver.ask('cpu')) - before;
  const arrived = new Map(await receiver.ask('arrivals'));
  await context.verify(rows, sender, receiver);
  await context.discard(sender, receiver);
  if (arrived.size !== rows) throw new Error(`wrong result: ${arrived.size} arrivals instead of ${rows}`);
  return { times: written.map(([id, at]) => arrived.get(id) - at), cpu };
}
