/** Ten million rows: does anything cost more a row than it does with fewer? It takes a quarter of an hour and 10 GB of disk. */
import { writeByTenths } from '../lib/context.mjs';
import { quantile } from '../lib/statistics.mjs';
import { measured, pairOf } from './compare.mjs';
import { drainOnce, timesByTenth } from './drain.mjs';

const us = ({ cpu }, rows) => (cpu * 1e6) / (rows / 10);

export const large = {
  name: 'large',
  title: 'Ten million rows',
  /** Only where it is named: nobody wants to wait for it by chance. */
  isAskedFor: true,
  long: true,
  about: ({ large: rows }) =>
    `${rows.toLocaleString('en')} rows of five columns, ids that grow with time. They are written without Rowcast, then captured for a peer that is away, and drained when it is back; two nodes that have them are compared. The first tenth and the last, CPU time a row.`,
  metrics: () => [
    { key: 'plain first', label: 'plain inserts, first tenth: CPU us a row', unit: 'us' },
    { key: 'plain last', label: 'plain inserts, last tenth: CPU us a row', unit: 'us' },
    { key: 'captured first', label: 'captured inserts, first tenth: CPU us a row', unit: 'us' },
    { key: 'captured last', label: 'captured inserts, last tenth: CPU us a row', unit: 'us' },
    { key: 'bytes', label: 'the file with all of them pending: bytes a row', unit: 'B', digits: 0 },
    { key: 'attach', label: 'attach() with all of them pending', unit: 'ms' },
    { key: 'drained', label: 'drain: CPU us a row, both nodes', unit: 'us' },
    { key: 'rate', label: 'drain: rows/s', unit: '/s', digits: 0, better: 'higher' },
    { key: 'tail', label: 'drain: time a row, last tenth / first tenth', unit: 'x' },
    { key: 'memoryA', label: 'drain: peak memory, sender', unit: 'MiB', digits: 0 },
    { key: 'memoryB', label: 'drain: peak memory, receiver', unit: 'MiB', digits: 0 },
    { key: 'blockA', label: 'drain: longest block a batch, sender: p99', unit: 'ms' },
    { key: 'blockB', label: 'drain: longest block a batch, receiver: p99', unit: 'ms' },
    { key: 'compared', label: 'comparison, none differs: CPU us a row, who asks', unit: 'us' },
    { key: 'compared bytes', label: 'comparison, none differs: bytes both ways', unit: 'B', digits: 0 },
    { key: 'health', label: 'health() of a fresh process, longest call', unit: 'ms' },
  ],
  async repetition(context) {
    const rows = context.scale.large;
    const plain = await plainTenths(context, rows);
    const run = await drainOnce(context, { rows, beat: true });
    const captured = run.written.tenths;
    const tenths = timesByTenth(run.batches, rows);
    return {
      'plain first': us(plain[0], rows),
      'plain last': us(plain.at(-1), rows),
      'captured first': us(captured[0], rows),
      'captured last': us(captured.at(-1), rows),
      bytes: run.written.bytes / rows,
      attach: run.attachMs,
      drained: ((run.cpuA + run.cpuB) * 1e6) / rows,
      rate: rows / run.seconds,
      tail: tenths.at(-1) / tenths[0],
      memoryA: run.memoryA.peak,
      memoryB: run.memoryB.peak,
      blockA: quantile(run.blocksA, 0.99),
      blockB: quantile(run.blocksB, 0.99),
      ...(await comparedOnce(context, rows)),
    };
  },
};

async function plainTenths(context, rows) {
  const worker = await context.process();
  const tenths = await writeByTenths(worker, rows);
  await context.discard(worker);
  return tenths;
}

async function comparedOnce(context, rows) {
  const both = await pairOf(context, rows, 'v7');
  const { durations } = await both.there.ask('health', { calls: 20, pauseMs: 50 });
  const { here } = await measured(both, 'compare', rows);
  if (here.error || here.differences !== 0) throw new Error(`wrong result: ${JSON.stringify(here)}`);
  await context.discard(both.here, both.there);
  return { compared: here.us, 'compared bytes': here.bytes, health: Math.max(...durations) };
}
