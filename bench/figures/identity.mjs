/** What it costs a receiver that another database introduces itself with every batch. */
import { quantile } from '../lib/statistics.mjs';

export const identity = {
  name: 'identity',
  title: 'The cost of an introduction',
  about: ({ introduced }) =>
    `${introduced.toLocaleString('en')} batches of one row with X-Rowcast, by turns with as many without, CPU time of receive(); the difference of the medians is what an introduction costs, whatever the size of the batch.`,
  metrics: () => [
    { key: 'share', label: 'of a batch of 1,000 new rows', unit: '%', target: { max: 2 } },
    { key: 'cost', label: 'a batch', unit: 'us', guard: true },
    { key: 'batch', label: 'a batch of 1,000 new rows without it', unit: 'us' },
  ],
  async repetition(context) {
    const worker = await context.receiver();
    const { introduced, received } = context.scale;
    const times = await worker.ask('identity', { batches: introduced, rows: Math.min(received, 50_000) });
    await context.verify(2 * introduced + Math.min(received, 50_000), worker);
    await context.discard(worker);
    const median = (list) => quantile(list, 0.5);
    const cost = median(times.with) - median(times.without);
    return { cost, batch: median(times.large), share: (100 * cost) / median(times.large) };
  },
};
