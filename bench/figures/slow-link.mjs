/** A backlog over a slow link, through a throttled proxy on loopback: what compression earns. */
import { freePort } from '../lib/processes.mjs';
import { throttle } from '../lib/throttle.mjs';
import { drainOnce } from './drain.mjs';

/** One way. */
const LATENCY_MS = 10;

const LINKS = [1, 10, 100];

/**
 * With `--vary batchSize=500,4000`, each of the values of that option of attach. Otherwise with a peer that does not say that
 * it reads gzip, so that nothing is compressed, and with one that does, as all do.
 */
function waysOf({ vary }) {
  if (!vary) {
    return [
      { key: 'plain', label: 'never compressed', silent: true },
      { key: 'default', label: 'as it is' },
    ];
  }
  return vary.values.map((value) => ({
    key: JSON.stringify(value),
    label: `${vary.option} ${JSON.stringify(value)}`,
    options: { [vary.option]: value },
  }));
}

export const slowLink = {
  name: 'slow-link',
  /** Many points, each with processes of its own: a quick look takes each once. */
  long: true,
  title: 'Drain over a slow link',
  about: ({ link }) =>
    `${link.toLocaleString('en')} rows through a proxy with the given rate and ${LATENCY_MS} ms each way. The link's own time is the bytes that were sent, divided by its rate.`,
  metrics: (scale) =>
    LINKS.flatMap((mbit) =>
      waysOf(scale).flatMap(({ key, label }, i) => [
        { key: `${key} ${mbit}`, label: `${mbit} Mbit/s, ${label}: wall time`, unit: 's' },
        { key: `${key} ${mbit} bytes`, label: `${mbit} Mbit/s, ${label}: MB sent`, unit: 'MB' },
        { key: `${key} ${mbit} cpu`, label: `${mbit} Mbit/s, ${label}: CPU s of both nodes`, unit: 's' },
        {
          key: `${key} ${mbit} use`,
          label: `${mbit} Mbit/s, ${label}: the link's own time / wall time`,
          unit: '',
          better: 'higher',
        },
        ...(i > 0
          ? [{ key: `${key} ${mbit} ratio`, label: `${mbit} Mbit/s, ${label}: wall time, times the first`, unit: 'x' }]
          : []),
      ]),
    ),
  async repetition(context) {
    const rows = context.scale.link;
    const ways = waysOf(context.scale);
    const result = {};
    for (const mbit of LINKS) {
      for (const [i, { key, options, silent }] of ways.entries()) {
        const run = await drainOnce(context, { rows, options, silent, proxy: (port) => slow(port, mbit) });
        result[`${key} ${mbit}`] = run.seconds;
        if (i > 0) result[`${key} ${mbit} ratio`] = run.seconds / result[`${ways[0].key} ${mbit}`];
        result[`${key} ${mbit} bytes`] = run.sent.up / 1e6;
        result[`${key} ${mbit} cpu`] = run.cpuA + run.cpuB;
        result[`${key} ${mbit} use`] = (run.sent.up * 8) / (mbit * 1e6) / run.seconds;
      }
    }
    return result;
  },
};

/** The sender knows the port of the proxy; the receiver listens behind it. */
async function slow(port, mbit) {
  const behind = await freePort();
  const link = await throttle({ port, target: behind, bitsPerSecond: mbit * 1e6, latencyMs: LATENCY_MS });
  return { behind, ...link };
}
