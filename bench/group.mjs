/**
 * A group of hubs on PostgreSQL beside a hub on SQLite: `npm run bench:group`, with `--quick` for a short run,
 * `--only receive,read,edges,latency,failover` for a part, `--edges 1000,10000` for other numbers of edges, `--deaf 0.03`
 * for the share of them that never answers, `--batches 40` to each of them (connections, and code that is not compiled yet, are paid
 * once), `--repetitions 5`.
 *
 * Real processes on loopback, and a PostgreSQL of its own with its usual settings. CPU seconds are the kernel's: those of the
 * hub, and beside them those of the server. The two kinds of hub take turns within each repetition, and a ratio is one of
 * the same repetition. Every figure is a median, with the least and the greatest beside it.
 */
import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { deliver } from './group/deliver.mjs';
import { failOver } from './group/fail-over.mjs';
import { latency } from './group/latency.mjs';
import { newEdge } from './group/new-edge.mjs';
import { receive } from './group/receive.mjs';
import { MAIN } from './lib/hubs.mjs';
import { describeCommit, describeMachine } from './lib/machine.mjs';
import { table } from './lib/report.mjs';
import { median } from './lib/statistics.mjs';

const PARTS = { receive, read: newEdge, edges: deliver, latency, failover: failOver };

if (!existsSync(MAIN)) throw new Error('dist/ is missing: npm run build');
const { Postgres } = await import('../dist/demo/postgres.js');
const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string', default: Object.keys(PARTS).join(',') },
    edges: { type: 'string' },
    deaf: { type: 'string', default: '0.03' },
    idle: { type: 'string' },
    batches: { type: 'string' },
    repetitions: { type: 'string' },
  },
});
const parts = values.only.split(',');
const unknown = parts.find((name) => !(name in PARTS));
if (unknown !== undefined) throw new Error(`--only ${unknown}: there is only ${Object.keys(PARTS).join(', ')}`);
const { quick } = values;
const server = await Postgres.start();
const setting = {
  server,
  quick,
  repetitions: Number(values.repetitions ?? (quick ? 3 : 5)),
  edges: (values.edges ?? (quick ? '1000' : '1000,10000')).split(',').map(Number),
  deaf: Number(values.deaf),
  batches: values.batches === undefined ? undefined : Number(values.batches),
  idleSeconds: Number(values.idle ?? (quick ? 5 : 20)),
};
const machine = describeMachine();
console.log(
  `${machine.cpu}, ${machine.cores} cores, a flush to disk ${machine.flushMs} ms, load ${machine.load}; ` +
    `Node ${process.versions.node}, Rowcast ${describeCommit()}`,
);
let missed = 0;
try {
  for (const name of parts) for (const page of await PARTS[name](setting)) show(page);
} finally {
  await server.stop();
}
if (missed > 0) console.log(`\n${missed} of the targets were missed.`);
process.exit(0);

/** `rows` have a name, the values of each figure, and a target where there is one. */
function show({ title, heads, rows, targets = [] }) {
  console.log(`\n${title}\n`);
  console.log(table(heads, rows));
  for (const { label, of, max, min, unit = '' } of targets) {
    const value = median(of);
    const met = max === undefined ? value >= min : value <= max;
    if (!met) missed += 1;
    const wanted = max === undefined ? `at least ${min}` : `at most ${max}`;
    console.log(`${met ? 'met   ' : 'MISSED'}  ${label}: ${value.toPrecision(3)}${unit} (${wanted}${unit})`);
  }
}
