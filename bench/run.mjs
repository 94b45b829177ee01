/**
 * What Rowcast costs: `npm run bench`, with `--help` for the flags.
 *
 * Real processes on loopback. Figures of a machine that does other things as well are only good as ratios within one run:
 * plain SQLite and Rowcast alternate within every repetition, the ratio is taken there, and what is reported is the median
 * of the ratios with the least and the greatest beside it. Every measured run is checked: the same rows on both sides,
 * nothing pending, nothing set aside; a wrong result ends the run with an error.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { FIGURES } from './figures/index.mjs';
import { compareWith } from './lib/against.mjs';
import { Context, SCALES } from './lib/context.mjs';
import { readFlags, USAGE, UsageError } from './lib/flags.mjs';
import { describeCommit, describeMachine } from './lib/machine.mjs';
import { clearProgress, progress } from './lib/progress.mjs';
import { HEADS, rowsOf, summarise, table, targetsOf, writeReport } from './lib/report.mjs';
import { findRuntime, ROOT } from './lib/runtimes.mjs';
import { comparePeers, SYSTEMS } from './peers/run.mjs';

const names = FIGURES.map(({ name }) => name);
const usage = `${USAGE}${names.join(', ')}\nsystems: ${SYSTEMS.join(', ')}`;

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  clearProgress();
  console.error(error instanceof UsageError ? `${error.message}\n\n${usage}` : error);
  process.exitCode = error instanceof UsageError ? 2 : 1;
}
// A figure that failed has left processes behind; they end with this one.
process.exit();

async function main(argv) {
  const flags = readFlags(argv, names, SYSTEMS);
  if (flags.help) {
    console.log(usage);
    return 0;
  }
  const dist = new URL('../dist/src/', import.meta.url);
  if (!existsSync(new URL('index.js', dist))) throw new UsageError('dist/ is missing: npm run build');
  const setting = {
    flags,
    dist,
    scale: { ...(flags.quick ? SCALES.quick : SCALES.full), vary: flags.vary },
    out: flags.out ?? join(ROOT, 'bench', 'results'),
    figures: FIGURES.filter(({ name, isAskedFor }) => flags.only?.includes(name) ?? !isAskedFor),
    machine: describeMachine(),
    commit: describeCommit(),
  };
  if (flags.against !== undefined) return compareWith(setting);
  if (flags.peers) return comparePeers(setting);
  for (const name of flags.runtimes) await measure(setting, name);
  return 0;
}

async function measure({ flags, dist, scale, out, figures, machine, commit }, runtimeName) {
  const context = new Context({ dist, runtime: await findRuntime(runtimeName), scale });
  const results = [];
  const plots = [];
  try {
    for (const [i, figure] of figures.entries()) {
      const samples = [];
      const repetitions = flags.quick && figure.long ? 1 : flags.repetitions;
      for (let n = 1; n <= repetitions; n++) {
        progress(`${runtimeName}, ${i + 1} of ${figures.length}: ${figure.name}, repetition ${n} of ${repetitions}`);
        samples.push(await figure.repetition(context));
      }
      results.push(summarise(figure, scale, samples));
      for (const spec of figure.plots?.(samples, scale) ?? []) plots.push({ ...spec, figure: figure.name });
    }
  } finally {
    context.close();
  }
  clearProgress();
  const { sqlite, binding, runtime } = context.versions;
  const head = [
    `- machine: ${machine.cpu}, ${machine.cores} cores, ${machine.memory}, ${machine.kernel}; a flush to disk ${machine.flushMs} ms; load at the start ${machine.load}`,
    `- versions: ${runtime}, ${binding}, SQLite ${sqlite}, Rowcast ${commit}`,
    `- repetitions: ${flags.repetitions}, plain and Rowcast alternating${flags.quick ? '; quick: the targets are for the full counts' : ''}`,
  ];
  const folder = join(out, runtimeName);
  const json = {
    machine,
    versions: { runtime, binding, sqlite, rowcast: commit },
    quick: flags.quick,
    repetitions: flags.repetitions,
  };
  const pages = [...targetsOf(results), ...results];
  writeReport(folder, { title: `Speed on ${runtime}`, head, results: pages, plots, json });
  console.log(`\n${head.join('\n')}`);
  // On a terminal the end is what one sees.
  for (const page of pages.toReversed()) console.log(`\n${page.title}\n${page.about}\n\n${table(HEADS, rowsOf(page))}`);
  console.log(`\nReport: ${join(folder, 'report.md')}`);
}
