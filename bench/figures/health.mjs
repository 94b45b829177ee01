/** health() is asked every few seconds by whoever watches a node: it must not hold the event loop, whatever the size. */
import { quantile } from '../lib/statistics.mjs';

export const health = {
  name: 'health',
  title: 'health() with a full table and a full backlog',
  about: ({ million: rows }) =>
    `${rows.toLocaleString('en')} rows, as many pending changes, 40 calls with 25 ms between them. What it counts in the background is in the second figure, by the same heartbeat as above.`,
  metrics: () => [
    { key: 'call', label: 'the longest call', unit: 'ms', target: { max: 5 } },
    { key: 'median', label: 'the median call', unit: 'ms' },
    { key: 'block', label: 'longest block, calls and counting in the background', unit: 'ms' },
  ],
  async repetition(context) {
    const rows = context.scale.million;
    const { path, port } = await context.backlog(rows);
    const worker = await context.process({ path });
    await worker.ask('attach', { id: 'a', peers: [`http://127.0.0.1:${port}`], asleep: true });
    const { durations, blocks, last } = await worker.ask('health', { calls: 40, pauseMs: 25 });
    if (!last.ok || last.pending_changes !== rows) throw new Error(`wrong result: ${JSON.stringify(last)}`);
    await context.discard(worker);
    return { call: Math.max(...durations), median: quantile(durations, 0.5), block: Math.max(...blocks) };
  },
};
