/** From the POST at one process to the arrival at an edge that another one serves; and at the poster's own edges. */
import { oneRow, watchingEdges } from '../lib/arrivals.mjs';
import { newStore, post, sleep, startHub, stopHub, until } from '../lib/hubs.mjs';
import { quantile } from '../lib/statistics.mjs';
import { spread } from './spread.mjs';

const { ownerOf } = await import('../../dist/src/hub/ownership.js');
// Few: they, the hubs and the server share the cores, and the last of many waits for the others.
const EDGES = 12;
const INSTANCES = ['h1', 'h2'];

export async function latency({ server, quick, repetitions }) {
  const runs = [];
  for (let i = 0; i < repetitions; i++) runs.push(await once(server, quick ? 50 : 200));
  const of = (whose, p) => runs.map((run) => quantile(run[whose], p));
  const line = (name, whose) => [name, spread(of(whose, 0.5)), spread(of(whose, 0.95)), spread(of(whose, 1))];
  return [
    {
      title: `a change to each of ${EDGES} edges of two processes, ms after its POST`,
      heads: ['edges of', 'median', '95 %', 'last'],
      rows: [line('the same process', 'own'), line('the other process', 'others')],
      targets: [{ label: "95 % of changes to another process's edges", of: of('others', 0.95), max: 50, unit: ' ms' }],
    },
  ];
}

async function once(server, rows) {
  const { edges, urls, close } = await watchingEdges(EDGES);
  const store = await newStore('postgres', server);
  const hubs = [];
  for (const instance of INSTANCES) hubs.push(await startHub(store, { urls, instance }));
  await until(() => edges.every(({ asked }) => asked));
  await post(hubs[0], oneRow('first'));
  await until(() => edges.every(({ at }) => at.has('first')));
  // Until both have seen each other.
  await sleep(2_000);
  const sent = [];
  for (let i = 0; i < rows; i++) {
    const id = `r${i}`;
    sent.push([id, performance.now()]);
    await post(hubs[0], oneRow(id));
    // Rarely enough that the edges, the hubs and the server together leave the processor time: what is wanted is not how
    // long a change waits for others.
    await sleep(100 + ((i * 7) % 23));
  }
  await until(() => edges.every(({ at }) => at.size === rows + 1));
  for (const hub of hubs) await stopHub(hub);
  close();
  const times = (instance) =>
    edges
      .filter(({ url }) => ownerOf(url, INSTANCES) === instance)
      .flatMap(({ at }) => sent.map(([id, when]) => at.get(id) - when));
  return { own: times('h1'), others: times('h2') };
}
