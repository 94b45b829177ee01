/**
 * The same work on what one would pick instead, by turns with Rowcast and with plain inserts: rows in transactions of
 * 1,000 from one side to the other, then one row at a time; CPU time of everything that takes part, and its memory.
 */
import { join } from 'node:path';
import { Context, plainInsert } from '../lib/context.mjs';
import { makeFolder, removeFolder } from '../lib/processes.mjs';
import { clearProgress, progress } from '../lib/progress.mjs';
import { format, table, writeReport } from '../lib/report.mjs';
import { findRuntime } from '../lib/runtimes.mjs';
import { quantile, summary } from '../lib/statistics.mjs';
import { Unavailable } from './install.mjs';
import { libsql } from './libsql/peer.mjs';
import { mariadb } from './mariadb/peer.mjs';
import { postgres } from './postgres/peer.mjs';
import { pouchdb } from './pouchdb/peer.mjs';
import { rowcast } from './rowcast/peer.mjs';
import { sessions } from './sessions/peer.mjs';
import { cpuOf, MemoryWatch, memoryOf } from './tree.mjs';
import { turso } from './turso/peer.mjs';

const PEERS = [rowcast, sessions, mariadb, postgres, libsql, turso, pouchdb];

/** What one would like to see beside it, and what was found when it was tried. */
const ELSEWHERE = [
  { label: 'cr-sqlite', reason: 'its package (@vlcn.io/crsqlite) brings no library, and fetches one from github.com' },
  { label: 'Marmot', reason: 'npm does not have it: it is a program to be fetched from github.com' },
  { label: 'Corrosion', reason: 'npm does not have it: it is built from its source' },
];

/** What `--only` can name; Rowcast itself is always there. */
export const SYSTEMS = PEERS.slice(1).map(({ name }) => name);

/** A quick look is at fewer rows: PouchDB alone takes half a minute for the full number. */
const ROWS = { full: 100_000, quick: 5_000 };

export async function comparePeers({ flags, dist, scale, out, machine, commit }) {
  if (process.platform !== 'linux') throw new Error('--peers reads /proc: it runs on Linux alone');
  const rows = flags.quick ? ROWS.quick : ROWS.full;
  const context = new Context({ dist, runtime: await findRuntime('node'), scale });
  const { here, missing } = await installAll(
    PEERS.filter((peer) => peer === rowcast || (flags.only?.includes(peer.name) ?? true)),
    { commit },
  );
  const samples = new Map(here.map(({ peer }) => [peer, []]));
  const plain = [];
  for (let n = 1; n <= flags.repetitions; n++) {
    progress(`plain inserts, repetition ${n} of ${flags.repetitions}`);
    plain.push(await plainInsert(context, { rows }));
    for (const entry of [...here]) {
      progress(`${entry.peer.label}, repetition ${n} of ${flags.repetitions}`);
      try {
        samples
          .get(entry.peer)
          .push(await once(entry.peer, { rows, trickle: scale.trickle, dist, plain: plain.at(-1) }));
      } catch (error) {
        // Rowcast itself must work; another system that does not is reported, and the rest goes on without it.
        if (entry.peer === rowcast) throw error;
        here.splice(here.indexOf(entry), 1);
        missing.push({ peer: entry.peer, reason: `failed: ${error.message.split('\n')[0]}` });
      }
    }
  }
  context.close();
  clearProgress();
  report({ flags, out, machine, commit, rows, here, missing, samples, plain });
  return 0;
}

async function installAll(peers, setting) {
  const here = [];
  const missing = [];
  for (const peer of peers) {
    progress(`${peer.label}: installing`);
    try {
      here.push({ peer, version: await peer.install(setting) });
    } catch (error) {
      const reason =
        error instanceof Unavailable ? error.message : `installing failed: ${error.message.split('\n')[0]}`;
      missing.push({ peer, reason });
    }
  }
  return { here, missing };
}

async function once(peer, { rows, trickle, dist, plain }) {
  const folder = makeFolder();
  const pair = await peer.start(folder, { dist });
  try {
    const all = Object.values(pair.groups).flat();
    await pair.prepare(rows, 1_000);
    const idle = Object.fromEntries(Object.entries(pair.groups).map(([side, pids]) => [side, memoryOf(pids)]));
    const watch = new MemoryWatch(pair.groups);
    const before = cpuOf(all);
    const seconds = await pair.endToEnd();
    const cpu = cpuOf(all) - before;
    const peaks = watch.stop();
    await pair.verify();
    await pair.prepare(trickle, 1);
    const times = await pair.latency();
    await pair.verify();
    return {
      cpu,
      seconds,
      share: plain.seconds / seconds,
      p50: quantile(times, 0.5),
      p99: quantile(times, 0.99),
      peak: Math.max(peaks.a, peaks.b),
      above: Math.max(peaks.a - idle.a, peaks.b - idle.b),
    };
  } finally {
    await pair.end();
    removeFolder(folder);
  }
}

const COLUMNS = [
  ['cpu', 'CPU s, all'],
  ['seconds', 'seconds'],
  ['share', 'share of plain'],
  ['p50', 'p50 ms'],
  ['p99', 'p99 ms'],
  ['peak', 'peak MiB, the larger side'],
  ['above', 'above idle'],
];

function report({ flags, out, machine, commit, rows, here, missing, samples, plain }) {
  const results = here.map(({ peer, version }) => ({
    name: peer.name,
    label: peer.label,
    version,
    durability: peer.durability,
    doesNot: peer.doesNot,
    ...Object.fromEntries(COLUMNS.map(([key]) => [key, summary(samples.get(peer).map((sample) => sample[key]))])),
  }));
  const heads = ['system', ...COLUMNS.map(([, head]) => head)];
  const lines = results.map((result) => [
    result.label,
    ...COLUMNS.map(
      ([key]) => `${format(result[key].median)} (${format(result[key].min)} to ${format(result[key].max)})`,
    ),
  ]);
  const plainCpu = summary(plain.map(({ cpu }) => cpu));
  const about = `${rows.toLocaleString('en')} rows in transactions of 1,000, end to end; then one row at a time, 100 a second. CPU time of both sides and their clients. Plain inserts into one SQLite database: ${format(plainCpu.median)} CPU s.`;
  const notes = [
    ...results.map(
      (one) => `- ${one.label} (${one.version}). Durability: ${one.durability}. It does not: ${one.doesNot}.`,
    ),
    ...missing.map(({ peer, reason }) => `- ${peer.label}: not measured, ${reason}.`),
    ...ELSEWHERE.map(({ label, reason }) => `- ${label}: not measured: ${reason}.`),
  ];
  const head = [
    `- machine: ${machine.cpu}, ${machine.cores} cores, ${machine.memory}, ${machine.kernel}; a flush to disk ${machine.flushMs} ms; load at the start ${machine.load}`,
    `- Rowcast ${commit}; ${flags.repetitions} repetitions, all systems by turns${flags.quick ? '; quick' : ''}`,
  ];
  const bars = (name, title, key, unit, times = 1) => ({
    figure: 'peers',
    name,
    title,
    kind: 'bars',
    unit,
    logarithmic: true,
    bars: results.map(({ label, [key]: { median, min, max } }) => ({
      label,
      ...{ value: times * median, low: times * min, high: times * max },
    })),
  });
  const folder = join(out, 'peers');
  writeReport(folder, {
    title: 'Beside what one would pick instead',
    head,
    results: [{ name: 'peers', title: 'The same work', about, heads, rows: lines, notes: [notes.join('\n')] }],
    plots: [
      bars('peers-cpu', 'A row from one side to the other: CPU time of both', 'cpu', 'us a row', 1e6 / rows),
      bars('peers-latency', 'Write on A to visible on B, median', 'p50', 'ms'),
      bars('peers-memory', 'Peak memory, the larger side', 'peak', 'MiB'),
    ],
    json: {
      machine,
      rowcast: commit,
      rows,
      repetitions: flags.repetitions,
      plain: plainCpu,
      systems: results,
      missing: missing.map(({ peer, reason }) => ({ name: peer.name, reason })),
    },
  });
  console.log(
    `\n${head.join('\n')}\n\n${about}\n\n${table(heads, lines)}\n\n${notes.join('\n')}\n\nReport: ${folder}/report.md`,
  );
}
