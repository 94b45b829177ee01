/** A process is killed: how long its edges hear nothing, and whether those of the others notice. */
import { oneRow, watchingEdges } from '../lib/arrivals.mjs';
import { newStore, post, sleep, startHub, stopHub, until } from '../lib/hubs.mjs';
import { end } from '../lib/processes.mjs';
import { spread } from './spread.mjs';

const { ownerOf } = await import('../../dist/src/hub/ownership.js');
const { GROUP_TTL_MS } = await import('../../dist/src/hub/store.js');
const EDGES = 60;
const INSTANCES = ['h1', 'h2', 'h3'];

export async function failOver({ server, quick, repetitions }) {
  const runs = [];
  for (let i = 0; i < (quick ? 2 : repetitions); i++) runs.push(await once(server));
  const [lost, others] = ['lost', 'others'].map((whose) => runs.map((run) => run[whose]));
  return [
    {
      title: `one of ${INSTANCES.length} processes is killed: the longest silence at any edge, in seconds`,
      heads: ['edges of', 'seconds'],
      rows: [
        ['the one that was killed', spread(lost, 2)],
        ['the others', spread(others, 2)],
      ],
      targets: [{ label: 'silence after a kill', of: lost, max: GROUP_TTL_MS / 1_000 + 1.5, unit: ' s' }],
    },
  ];
}

async function once(server) {
  const { edges, urls, close } = await watchingEdges(EDGES);
  const store = await newStore('postgres', server);
  const hubs = [];
  for (const instance of INSTANCES) hubs.push(await startHub(store, { urls, instance }));
  const [killed, poster] = hubs;
  await until(() => edges.every(({ asked }) => asked));
  // Until all have seen each other.
  await sleep(3_000);
  let [going, sent] = [true, 0];
  const posting = (async () => {
    while (going) {
      await post(poster, oneRow(`r${sent++}`));
      await sleep(20);
    }
  })();
  await sleep(1_000);
  const at = performance.now();
  await end(killed.child, 'SIGKILL');
  await sleep(GROUP_TTL_MS + 3_000);
  going = false;
  await posting;
  const last = `r${sent - 1}`;
  await until(() => edges.every(({ at: arrived }) => arrived.has(last)));
  for (const hub of hubs.slice(1)) await stopHub(hub);
  close();
  const longest = (isKilled) => {
    const those = edges.filter(({ url }) => (ownerOf(url, INSTANCES) === 'h1') === isKilled);
    return Math.max(...those.map(({ at: arrived }) => silence([...arrived.values()], at))) / 1_000;
  };
  return { lost: longest(true), others: longest(false) };
}

/** The longest time without anything that ends after `from`. */
function silence(arrivals, from) {
  const times = arrivals.toSorted((a, b) => a - b);
  return Math.max(...times.map((time, i) => (time < from ? 0 : time - (times[i - 1] ?? from))));
}
