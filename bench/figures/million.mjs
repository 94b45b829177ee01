/** While a million rows are drained: how long either event loop is held, and how much memory either process takes. */
import { quantile } from '../lib/statistics.mjs';
import { drainOnce } from './drain.mjs';

export const million = {
  name: 'million',
  title: 'Event loop and memory while a backlog is drained',
  about: ({ million: rows }) =>
    `${rows.toLocaleString('en')} rows, default batch size. A timer of one millisecond beats in both processes; the longest gap between two beats during each batch, less the millisecond, is that batch's longest block, and the percentile is over batches. Memory is the highest resident set of the process less that of a node which is attached and idle.`,
  metrics: () => [
    { key: 'blockA', label: 'longest block a batch, sender: p99', unit: 'ms', target: { max: 15 } },
    { key: 'blockB', label: 'longest block a batch, receiver: p99', unit: 'ms', target: { max: 15 } },
    { key: 'medianA', label: 'longest block a batch, sender: p50', unit: 'ms' },
    { key: 'medianB', label: 'longest block a batch, receiver: p50', unit: 'ms' },
    { key: 'worstA', label: 'longest block of all, sender', unit: 'ms' },
    { key: 'worstB', label: 'longest block of all, receiver', unit: 'ms' },
    { key: 'memoryA', label: 'peak memory above idle, sender', unit: 'MiB', digits: 1, target: { max: 64 } },
    { key: 'memoryB', label: 'peak memory above idle, receiver', unit: 'MiB', digits: 1, target: { max: 64 } },
    { key: 'attach', label: 'attach() with the backlog in place', unit: 'ms' },
    { key: 'idle', label: 'memory of an idle node', unit: 'MiB', digits: 1 },
  ],
  async repetition(context) {
    const idle = await idleMemory(context);
    const run = await drainOnce(context, { rows: context.scale.million, beat: true });
    return {
      blockA: quantile(run.blocksA, 0.99),
      blockB: quantile(run.blocksB, 0.99),
      medianA: quantile(run.blocksA, 0.5),
      medianB: quantile(run.blocksB, 0.5),
      worstA: Math.max(...run.blocksA),
      worstB: Math.max(...run.blocksB),
      memoryA: run.memoryA.peak - idle,
      memoryB: run.memoryB.peak - idle,
      attach: run.attachMs,
      idle,
    };
  },
};

/** Attached, listening, with nothing to do. */
async function idleMemory(context) {
  const worker = await context.receiver();
  await new Promise((resolve) => setTimeout(resolve, 200));
  const { now } = await worker.ask('memory');
  await context.discard(worker);
  return now;
}
