/** How cost grows: with the number of rows, of columns, of peers, with the backlog and with the size of a row. */
import { median } from '../lib/statistics.mjs';
import { drainOnce } from './drain.mjs';
import { endToEndOnce } from './end-to-end.mjs';

/** Each measures one point. `rows` is the scale's; a point that moves far more bytes takes fewer. */
const AXES = [
  {
    key: 'rows',
    label: 'rows written',
    points: (rows) => [rows / 4, rows, rows * 5, rows * 10],
    once: (context, point) => endToEndOnce(context, { rows: point }),
    count: (point) => point,
  },
  {
    key: 'columns',
    label: 'columns',
    points: () => [5, 10, 20, 40],
    once: (context, point, rows) => endToEndOnce(context, { rows, columns: point }),
  },
  {
    key: 'peers',
    label: 'peers',
    points: () => [1, 2, 4],
    once: (context, point, rows) => endToEndOnce(context, { rows, peers: point }),
  },
  {
    key: 'backlog',
    label: 'changes in the backlog',
    points: (rows) => [rows / 4, rows, rows * 5, rows * 10],
    once: (context, point) => drainOnce(context, { rows: point }),
    count: (point) => point,
  },
  {
    key: 'bytes',
    label: 'bytes in a row',
    points: () => [100, 1_000, 10_000, 100_000],
    once: (context, point, rows) => endToEndOnce(context, { rows: countFor(point, rows), bytes: point }),
    count: (point, rows) => countFor(point, rows),
  },
];

/** As many bytes as rows of a thousand would be, at most: 20,000 rows of 1,000 bytes, 2,000 of 10,000, 200 of 100,000. */
function countFor(bytes, rows) {
  return Math.max(100, Math.min(rows, Math.round((rows * 1_000) / bytes)));
}

const name = (point) => point.toLocaleString('en');

export const growth = {
  name: 'growth',
  /** Many points, each with processes of its own: a quick look takes each once. */
  long: true,
  title: 'How cost grows',
  about: ({ growth: rows }) =>
    `CPU time of all nodes a row, from the INSERT to the pruned change, ${rows.toLocaleString('en')} rows where the number of rows is not the question. With several peers, every one of them is counted.`,
  metrics: ({ growth: rows }) =>
    AXES.flatMap(({ key, label, points }) =>
      points(rows).map((point) => ({
        key: `${key} ${point}`,
        label: `${name(point)} ${label}: CPU us a row`,
        unit: 'us',
        digits: 1,
      })),
    ),
  async repetition(context) {
    const rows = context.scale.growth;
    const result = {};
    for (const { key, points, once, count = () => rows } of AXES) {
      for (const point of points(rows)) {
        const run = await once(context, point, rows);
        const written = count(point, rows);
        result[`${key} ${point}`] = ((run.cpuA + run.cpuB) * 1e6) / written;
        result[`${key} ${point} A`] = (run.cpuA * 1e6) / written;
        result[`${key} ${point} B`] = (run.cpuB * 1e6) / written;
      }
    }
    return result;
  },
  plots: (samples, { growth: rows }) =>
    AXES.map(({ key, label, points }) => ({
      name: `growth-${key}`,
      title: `CPU time a row by ${label}`,
      kind: 'lines',
      x: { label, values: points(rows), logarithmic: true },
      y: { label: 'us a row' },
      series: [
        { label: 'all nodes', of: '' },
        { label: 'the writer', of: ' A' },
        { label: 'the receivers', of: ' B' },
      ].map(({ label: side, of }) => ({
        label: side,
        values: points(rows).map((point) => median(samples.map((sample) => sample[`${key} ${point}${of}`]))),
      })),
    })),
};
