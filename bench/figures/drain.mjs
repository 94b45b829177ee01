/** A peer comes back after a while: how fast it gets what it has missed, and whether the end is as fast as the beginning. */
import { plainInsert } from '../lib/context.mjs';
import { median } from '../lib/statistics.mjs';

export const drain = {
  name: 'drain',
  title: 'Drain of a backlog',
  about: () =>
    'Two processes. The backlog is in place and the sender attached; the time runs from its first look until the last change is pruned.',
  metrics: ({ backlogs }) =>
    backlogs.flatMap((rows, i) => {
      const of = rows.toLocaleString('en');
      return [
        {
          key: `share${i}`,
          label: `${of} rows: share of the plain insert rate`,
          unit: '',
          target: { min: [0.5, 0.6][i] },
          better: 'higher',
        },
        { key: `rate${i}`, label: `${of} rows: rows/s`, unit: '/s', digits: 0, better: 'higher' },
        { key: `seconds${i}`, label: `${of} rows: wall time`, unit: 's' },
        { key: `cpu${i}`, label: `${of} rows: CPU s of both nodes`, unit: 's', guard: i === 0 },
        { key: `tail${i}`, label: `${of} rows: time a row, last tenth / first tenth`, unit: 'x', target: { max: 1.1 } },
      ];
    }),
  async repetition(context) {
    const result = {};
    for (const [i, rows] of context.scale.backlogs.entries()) {
      const plain = await plainInsert(context, { rows });
      const run = await drainOnce(context, { rows });
      const tenths = timesByTenth(run.batches, rows);
      Object.assign(result, {
        [`share${i}`]: plain.seconds / run.seconds,
        [`rate${i}`]: rows / run.seconds,
        [`seconds${i}`]: run.seconds,
        [`cpu${i}`]: run.cpuA + run.cpuB,
        [`tail${i}`]: tenths.at(-1) / tenths[0],
        [`tenths${i}`]: tenths,
      });
    }
    return result;
  },
  plots: (samples, { backlogs }) => [
    {
      name: 'drain-tenths',
      title: 'Time a row through the drain (median of the batches of each tenth)',
      kind: 'lines',
      x: { label: 'tenth of the backlog', values: Array.from({ length: 10 }, (_, i) => i + 1) },
      y: { label: 'us a row' },
      series: backlogs.map((rows, i) => ({
        label: `${rows.toLocaleString('en')} rows`,
        values: Array.from({ length: 10 }, (_, t) => median(samples.map((sample) => sample[`tenths${i}`][t]))),
      })),
    },
  ],
};

export async function drainOnce(
  context,
  { rows, beat = false, silent = false, shape = {}, options, receiving, proxy },
) {
  const { path, port, written } = await context.backlog(rows, shape);
  const through = await proxy?.(port);
  const at = through?.behind ?? port;
  const receiver = await context.receiver({
    port: at,
    timed: beat,
    silent,
    columns: shape.columns,
    options: receiving,
  });
  const idleB = await receiver.ask('memory');
  if (beat) await receiver.ask('beat');
  const sender = await context.process({ path, columns: shape.columns });
  const before = await receiver.ask('cpu');
  const run = await sender.ask('drain', { id: 'a', peers: [`http://127.0.0.1:${port}`], rows, beat, options });
  const after = await receiver.ask('cpu');
  const blocksB = beat ? await receiver.ask('blocks') : [];
  const [memoryA, memoryB] = [await sender.ask('memory'), await receiver.ask('memory')];
  await context.verify(rows, sender, receiver);
  await context.discard(sender, receiver);
  await through?.close();
  return {
    seconds: run.seconds,
    cpuA: run.cpu,
    cpuB: after - before,
    batches: run.batches,
    attachMs: run.attachMs,
    blocksA: run.blocks ?? [],
    blocksB,
    memoryA,
    memoryB,
    idleB,
    sent: through?.bytes(),
    written,
  };
}

/** Microseconds a row in each tenth of the rows: the median of its batches, so that one checkpoint does not decide. */
export function timesByTenth(batches, rows) {
  const tenths = Array.from({ length: 10 }, () => []);
  let done = 0;
  let last = 0;
  for (const [changes, at] of batches) {
    const tenth = Math.min(9, Math.floor(((done + changes / 2) / rows) * 10));
    // The first batch has a connection to open.
    if (done > 0) tenths[tenth].push(((at - last) * 1_000) / changes);
    done += changes;
    last = at;
  }
  return tenths.map((times) => (times.length > 0 ? median(times) : Number.NaN));
}
