/** An edge that is new gets everything: how fast, and at what cost. It acknowledges and does no more. */
import {
  batch,
  cpuOf,
  cpuOfServer,
  fakeEdges,
  lastPlace,
  newStore,
  post,
  setEdges,
  startHub,
  stopHub,
  until,
} from '../lib/hubs.mjs';
import { ratios, spread } from './spread.mjs';

const KINDS = ['sqlite', 'postgres'];

export async function newEdge({ server, quick, repetitions }) {
  const rows = quick ? 50_000 : 200_000;
  const runs = { sqlite: [], postgres: [] };
  const hubs = {};
  for (const kind of KINDS) {
    hubs[kind] = await startHub(await newStore(kind, server));
    for (let from = 0; from < rows; from += 5_000) await post(hubs[kind], batch(from, 5_000));
  }
  // The first time is not measured.
  for (let i = -1; i < repetitions; i++) {
    for (const kind of KINDS) {
      const run = await once(hubs[kind], server, rows);
      if (i >= 0) runs[kind].push(run);
    }
  }
  for (const kind of KINDS) await stopHub(hubs[kind]);
  const of = (kind, what) => runs[kind].map((run) => run[what]);
  return [
    {
      title: `a new edge gets ${rows} rows`,
      heads: ['hub', 'rows/s', 'hub CPU us a row', 'server CPU us a row'],
      rows: KINDS.map((kind) => [
        kind,
        spread(of(kind, 'rate'), 0),
        spread(of(kind, 'hub'), 2),
        spread(of(kind, 'server'), 2),
      ]),
      targets: [
        { label: 'rows/s to a new edge of a group', of: of('postgres', 'rate'), min: 100_000 },
        { label: 'hub CPU a row, of that with SQLite', of: ratios(of('postgres', 'hub'), of('sqlite', 'hub')), max: 2 },
      ],
    },
  ];
}

async function once(hub, server, rows) {
  const edges = await fakeEdges(1);
  const last = await lastPlace(hub.store);
  const before = [cpuOf(hub), cpuOfServer(server)];
  setEdges(hub, edges.urls);
  // From the first question to it: how soon a hub reads its list again is another matter.
  await until(async () => (await edges.state(1)).asked === 1, 1);
  const began = performance.now();
  await until(async () => (await edges.state(last)).done === 1, 2);
  const seconds = (performance.now() - began) / 1_000;
  const each = (cpu) => (cpu * 1e6) / rows;
  const result = {
    rate: rows / seconds,
    hub: each(cpuOf(hub) - before[0]),
    server: each(cpuOfServer(server) - before[1]),
  };
  setEdges(hub, []);
  await edges.end();
  return result;
}
