/** One process with thousands of edges: while nothing happens, and while everything goes to all of them. */
import {
  batch,
  cpuOf,
  cpuOfServer,
  fakeEdges,
  lastPlace,
  memoryOf,
  newStore,
  post,
  sleep,
  startHub,
  stopHub,
  until,
} from '../lib/hubs.mjs';
import { spread } from './spread.mjs';

const KINDS = ['sqlite', 'postgres'];
const BATCH = 1_000;

export async function deliver({ server, edges: sizes, deaf, ...how }) {
  const runs = [];
  for (const size of sizes) {
    for (const kind of KINDS) runs.push(await once(kind, server, { size, deaf: Math.round(size * deaf), ...how }));
  }
  const ofGroup = runs.filter(({ kind }) => kind === 'postgres');
  const most = ofGroup.at(-1);
  return [
    {
      title: `edges of one process, ${100 * deaf} % of which never answer`,
      heads: [
        'edges',
        'hub',
        'idle, % of a core: hub',
        'server',
        'hub CPU us per delivered change',
        'server',
        'requests/s',
        'POST ms, median',
        'MiB',
        'KiB an edge',
      ],
      rows: runs.map((one) => [
        String(one.size),
        one.kind,
        one.idle.toFixed(1),
        one.idleServer.toFixed(1),
        one.hub.toFixed(2),
        one.server.toFixed(2),
        one.rate.toFixed(0),
        spread(one.posts, 0),
        one.memory.toFixed(0),
        one.perEdge.toFixed(1),
      ]),
      targets: [
        ...ofGroup.map(({ size, hub }) => ({ label: `us per delivered change, ${size} edges`, of: [hub], max: 0.5 })),
        { label: `idle with ${most.size} edges`, of: [most.idle], max: 5, unit: ' %' },
        ...ofGroup.map(({ size, memory }) => ({
          label: `memory with ${size} edges`,
          of: [memory],
          max: Math.round(150 + (40 * size) / 1_024),
          unit: ' MiB',
        })),
      ],
    },
  ];
}

async function once(kind, server, { size, deaf, idleSeconds, quick, batches: wanted }) {
  const edges = await fakeEdges(size, deaf);
  const store = await newStore(kind, server);
  const bare = await startHub(store);
  const empty = memoryOf(bare);
  await stopHub(bare);
  const hub = await startHub(store, { urls: edges.urls });
  const used = () => [cpuOf(hub), cpuOfServer(server)];
  // The first contact, and the first comparison, are no idleness; nor are they part of a delivery.
  await post(hub, batch(0, BATCH));
  const first = await lastPlace(store);
  await until(async () => (await edges.state(first)).done === size - deaf, 200);
  await calm(hub);
  const [idleBefore, idleFrom] = [used(), performance.now()];
  await sleep(1_000 * idleSeconds);
  const share = (i) => (100_000 * (used()[i] - idleBefore[i])) / (performance.now() - idleFrom);
  const [idle, idleServer] = [share(0), share(1)];
  await calm(hub);

  const batches = wanted ?? Math.max(quick ? 4 : 10, Math.min(40, Math.ceil(10_000 / size)));
  const [before, began, requests] = [used(), performance.now(), (await edges.state(0)).requests];
  const posts = [];
  for (let i = 1; i <= batches; i++) posts.push(await post(hub, batch(i * BATCH, BATCH)));
  const last = await lastPlace(store);
  await until(async () => (await edges.state(last)).done === size - deaf, 100);
  const seconds = (performance.now() - began) / 1_000;
  const each = (i) => ((used()[i] - before[i]) * 1e6) / (batches * BATCH * (size - deaf));
  const memory = memoryOf(hub);
  const result = { kind, size, idle, idleServer, hub: each(0), server: each(1), posts, memory };
  const rate = ((await edges.state(0)).requests - requests) / seconds;
  await stopHub(hub);
  await edges.end();
  console.log(`${size} edges, ${kind}: ${seconds.toFixed(1)} s for ${batches} batches`);
  return { ...result, rate, perEdge: (1_024 * (memory - empty)) / size };
}

/** Until it does next to nothing for two seconds; a minute at most. */
async function calm(hub) {
  for (let i = 0; i < 30; i++) {
    const before = cpuOf(hub);
    await sleep(2_000);
    if (cpuOf(hub) - before < 0.1) return;
  }
}
