/** What it costs to receive: new rows, and then another version of each, from several who send at once. */
import { batch, cpuOf, cpuOfServer, newStore, post, startHub, stopHub } from '../lib/hubs.mjs';
import { ratios, spread } from './spread.mjs';

const KINDS = ['sqlite', 'postgres'];
const STEPS = ['new rows', 'updates'];
const BATCH = 500;
const SENDERS = 4;

export async function receive({ server, quick, repetitions }) {
  const rows = quick ? 20_000 : 60_000;
  const runs = { sqlite: [], postgres: [] };
  for (let i = 0; i < repetitions; i++) {
    for (const kind of KINDS) runs[kind].push(await once(kind, server, rows));
  }
  const lines = STEPS.flatMap((step) => KINDS.map((kind) => [step, kind, runs[kind].map((run) => run[step])]));
  const rate = (kind, step) => runs[kind].map((run) => run[step].rate);
  return [
    {
      title: `receiving ${rows} rows in batches of ${BATCH}, ${SENDERS} at a time`,
      heads: ['', 'hub', 'rows/s', 'hub CPU us a row', 'server CPU us a row'],
      rows: lines.map(([step, kind, all]) => [
        step,
        kind,
        spread(
          all.map((one) => one.rate),
          0,
        ),
        spread(all.map((one) => one.hub)),
        spread(all.map((one) => one.server)),
      ]),
      targets: STEPS.map((step) => ({
        label: `${step}, rows/s of those with SQLite`,
        of: ratios(rate('postgres', step), rate('sqlite', step)),
        min: 0.5,
      })),
    },
  ];
}

async function once(kind, server, rows) {
  const hub = await startHub(await newStore(kind, server));
  const result = {};
  // What is compiled while it first runs is not part of it.
  await sendAll(hub, 10 * BATCH, 0, rows);
  for (const [version, step] of STEPS.entries()) {
    const [before, ofServer, began] = [cpuOf(hub), cpuOfServer(server), performance.now()];
    await sendAll(hub, rows, version, 0);
    const seconds = (performance.now() - began) / 1_000;
    const each = (cpu) => (cpu * 1e6) / rows;
    const cpu = cpuOf(hub) - before;
    result[step] = { rate: rows / seconds, hub: each(cpu), server: each(cpuOfServer(server) - ofServer) };
  }
  await stopHub(hub);
  return result;
}

async function sendAll(hub, rows, version, first) {
  // Made before: what is measured shares the cores with whoever sends.
  const bodies = [];
  for (let from = first; from < first + rows; from += BATCH) bodies.push(batch(from, BATCH, version));
  const send = async () => {
    for (let body = bodies.shift(); body !== undefined; body = bodies.shift()) await post(hub, body);
  };
  await Promise.all(Array.from({ length: SENDERS }, send));
}
