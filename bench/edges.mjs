/**
 * A hub with thousands of edges: `npm run build && node bench/edges.mjs`, with `--edges 100,1000,10000` for other
 * numbers, `--deaf 300` for edges among them that never answer, `--idle 20` for seconds of idleness that are measured.
 *
 * The edges are fake ones in processes of their own, each with an address on loopback and a socket of its own. The hub
 * is the real program. CPU is the kernel's, of the hub alone.
 */
import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import {
  batch,
  cpuOf,
  fakeEdges,
  MAIN,
  memoryOf,
  newStore,
  post,
  sleep,
  startHub,
  stopHub,
  until,
} from './lib/hubs.mjs';
import { table } from './lib/report.mjs';
import { median } from './lib/statistics.mjs';

const CHANGES_PER_BATCH = 1_000;
if (!existsSync(MAIN)) throw new Error('dist/ is missing: npm run build');
const { values } = parseArgs({
  options: {
    edges: { type: 'string', default: '100,1000,10000' },
    deaf: { type: 'string', default: '0' },
    idle: { type: 'string', default: '20' },
    dist: { type: 'string', default: MAIN },
    batches: { type: 'string' },
    profile: { type: 'boolean', default: false },
  },
});
const results = [];
for (const edges of values.edges.split(',').map(Number)) results.push(await measure(edges, Number(values.deaf)));
console.log(
  table(
    [
      'edges',
      'idle, % of a core',
      'CPU us per delivered change',
      'requests/s',
      'POST ms median / max',
      'MiB',
      'KiB an edge',
    ],
    results.map((one) => [
      `${one.edges}`,
      one.idle.toFixed(1),
      one.perDelivery.toFixed(2),
      one.rate.toFixed(0),
      `${median(one.posts).toFixed(0)} / ${Math.max(...one.posts).toFixed(0)}`,
      one.memory.toFixed(0),
      ((1_024 * (one.memory - one.empty)) / one.edges).toFixed(1),
    ]),
  ),
);
process.exit(0);

async function measure(edges, deaf) {
  const store = await newStore('sqlite');
  const { urls, state, end } = await fakeEdges(edges, deaf);
  const options = { main: values.dist, node: values.profile ? ['--cpu-prof', '--cpu-prof-dir=/tmp'] : [] };
  const empty = await startHub(store, options);
  const bare = memoryOf(empty);
  await stopHub(empty);
  const hub = await startHub(store, { ...options, urls });
  await until(async () => (await state(0)).asked === edges - deaf);
  // The first contact is no idleness.
  await sleep(2_000);
  const idle = await share(hub, Number(values.idle));
  const batches = values.batches ? Number(values.batches) : Math.max(4, Math.min(40, Math.ceil(10_000 / edges)));
  const [cpu, began, before] = [cpuOf(hub), performance.now(), await state(0)];
  const posts = [];
  for (let i = 0; i < batches; i++) posts.push(await post(hub, batch(i * CHANGES_PER_BATCH, CHANGES_PER_BATCH)));
  await until(async () => (await state(batches * CHANGES_PER_BATCH)).done === edges - deaf);
  const used = cpuOf(hub) - cpu;
  const seconds = (performance.now() - began) / 1_000;
  const rate = ((await state(0)).requests - before.requests) / seconds;
  const memory = memoryOf(hub);
  await stopHub(hub);
  await end();
  const perDelivery = (used * 1e6) / (batches * CHANGES_PER_BATCH * edges);
  console.log(`${edges} edges: idle ${idle.toFixed(1)} %, ${perDelivery.toFixed(2)} us, ${seconds.toFixed(1)} s`);
  return { edges, idle, perDelivery, rate, posts, memory, empty: bare };
}

/** Percent of a core. */
async function share(hub, seconds) {
  const [cpu, began] = [cpuOf(hub), performance.now()];
  await sleep(1_000 * seconds);
  return (100_000 * (cpuOf(hub) - cpu)) / (performance.now() - began);
}
