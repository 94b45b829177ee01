/**
 * This tree beside another commit, in one run: both do the same work by turns, the ratio is taken within every
 * repetition, and a slowdown that is more than noise ends the run with an error.
 *
 * CPU time is what is judged, not wall time: on a machine that does other things as well it repeats to a few per cent.
 * Where a processor's counter or valgrind is at hand, instructions are counted as well, which repeat to a fraction of one.
 */
import { existsSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Context, SCALES } from './context.mjs';
import { countInstructions, findCounter, INSTRUCTION_METRICS } from './instructions.mjs';
import { makeFolder, run } from './processes.mjs';
import { clearProgress, progress } from './progress.mjs';
import { format, table, writeReport } from './report.mjs';
import { findRuntime, ROOT } from './runtimes.mjs';
import { median, medianInterval } from './statistics.mjs';

/** Less than this is not worth an alarm even when it is certain. */
const TOLERATED = { cpu: 1.03, instructions: 1.01 };

/** Instructions vary by a thousandth; more repetitions would only take time. */
const COUNTED_REPETITIONS = 2;

export async function compareWith({ flags, dist, out, figures, machine, commit }) {
  const other = await build(flags.against);
  const scale = flags.quick ? SCALES.quick : SCALES.compare;
  const judged = figures.filter((figure) => flags.only || figure.metrics(scale).some(({ guard }) => guard));
  const results = [];
  for (const name of flags.runtimes) {
    const runtime = await findRuntime(name);
    const both = {
      before: new Context({ dist: other.dist, runtime, scale }),
      after: new Context({ dist, runtime, scale }),
    };
    try {
      for (const figure of judged) results.push(await judgeFigure(figure, both, flags.repetitions, name));
      // Minutes under valgrind: not for a quick look.
      if (name === 'node' && !flags.only && !flags.quick) results.push(await compareInstructions(both));
    } finally {
      for (const context of Object.values(both)) context.close();
    }
  }
  clearProgress();
  const head = [
    `- ${commit} beside ${flags.against} (${other.commit}), ${flags.repetitions} repetitions, by turns`,
    `- machine: ${machine.cpu}, ${machine.cores} cores; load at the start ${machine.load}`,
    '- ratios are new / old: above 1 is slower. A slowdown is one whose interval lies above 1 and whose median is above what is tolerated, twice in a row',
  ];
  const shown = results.map((result) => ({ ...result, heads: HEADS, rows: result.metrics.map(rowOf) }));
  const folder = join(out, 'against');
  writeReport(folder, {
    title: `Beside ${flags.against}`,
    head,
    results: shown,
    plots: [],
    json: { machine, after: commit, before: other.commit, scale },
  });
  console.log(`\n${head.join('\n')}`);
  for (const result of shown)
    console.log(`\n${[result.title, ...result.notes].join('\n')}\n\n${table(HEADS, result.rows)}`);
  const slower = results.flatMap(({ metrics }) => metrics).filter(({ verdict }) => verdict === 'SLOWER');
  console.log(
    `\n${slower.length === 0 ? 'No slowdown beyond noise.' : `${slower.length} figures are slower beyond noise.`}`,
  );
  return slower.length === 0 ? 0 : 1;
}

/**
 * With some twenty figures, one of them looks slower by chance in every second run. Whatever looks slower is therefore
 * measured anew, and counts only when it does so again.
 */
async function judgeFigure(figure, both, repetitions, runtimeName) {
  const first = await compareFigure(figure, both, repetitions, runtimeName);
  if (!first.metrics.some(({ verdict }) => verdict === 'SLOWER')) return first;
  const second = await compareFigure(figure, both, repetitions, `${runtimeName}, to confirm`);
  const metrics = first.metrics.map((metric) => {
    const again = second.metrics.find(({ key }) => key === metric.key);
    if (metric.verdict !== 'SLOWER') return metric;
    return again.verdict === 'SLOWER' ? again : { ...again, verdict: 'same (not confirmed)' };
  });
  return { ...first, metrics };
}

async function compareFigure(figure, both, repetitions, runtimeName) {
  const samples = { before: [], after: [] };
  for (let n = 0; n < repetitions; n++) {
    // Whoever goes first meets a colder machine: they take turns.
    for (const side of n % 2 === 0 ? ['before', 'after'] : ['after', 'before']) {
      progress(`${runtimeName}: ${figure.name}, ${side}, repetition ${n + 1} of ${repetitions}`);
      samples[side].push(await figure.repetition(both[side]));
    }
  }
  const metrics = figure
    .metrics(both.after.scale)
    .map((metric) => judge(metric, samples, TOLERATED.cpu))
    .filter(({ ratio }) => Number.isFinite(ratio));
  return {
    name: figure.name,
    title: `${figure.title} (${runtimeName})`,
    about: figure.about(both.after.scale),
    metrics,
    notes: [],
  };
}

async function compareInstructions(both) {
  const title = 'Instructions';
  const counter = await findCounter();
  if (counter.unavailable) {
    return { name: 'instructions', title, about: counter.unavailable, metrics: [], notes: [counter.unavailable] };
  }
  const samples = { before: [], after: [] };
  for (let n = 0; n < COUNTED_REPETITIONS; n++) {
    progress(`instructions by ${counter.name}, repetition ${n + 1} of ${COUNTED_REPETITIONS}`);
    // Side by side: a count does not mind who else is running.
    const [before, after] = await Promise.all([both.before, both.after].map((one) => countInstructions(counter, one)));
    samples.before.push(before);
    samples.after.push(after);
  }
  const metrics = INSTRUCTION_METRICS.map((metric) => judge(metric, samples, TOLERATED.instructions));
  return { name: 'instructions', title, about: counter.about, metrics, notes: [counter.about] };
}

function judge(metric, { before, after }, tolerated) {
  const up = metric.better === 'higher';
  const ratios = after.map((sample, i) => {
    const [now, then] = [sample[metric.key], before[i][metric.key]];
    return up ? then / now : now / then;
  });
  const ratio = median(ratios);
  const { low, high } = medianInterval(ratios);
  const verdict = metric.guard ? verdictOf(ratio, low, high, tolerated) : '';
  const of = (samples) => median(samples.map((sample) => sample[metric.key]));
  return { ...metric, before: of(before), after: of(after), ratio, low, high, ratios, verdict };
}

function verdictOf(ratio, low, high, tolerated) {
  if (low > 1 && ratio > tolerated) return 'SLOWER';
  if (high < 1 && ratio < 1 / tolerated) return 'faster';
  return 'same';
}

const HEADS = ['figure', 'old', 'new', 'cost, new / old', 'interval', ''];

function rowOf(metric) {
  return [
    metric.label,
    format(metric.before, metric),
    `${format(metric.after, metric)}${metric.unit && ` ${metric.unit}`}`,
    metric.ratio.toFixed(3),
    `${metric.low.toFixed(3)} to ${metric.high.toFixed(3)}`,
    metric.verdict,
  ];
}

/** The commit's own sources, built outside the tree: nothing of this checkout changes. */
async function build(ref) {
  const commit = (await git('rev-parse', '--verify', '--short=12', `${ref}^{commit}`)).trim();
  progress(`building ${ref} (${commit})`);
  const folder = makeFolder();
  const archive = join(folder, 'tree.tar');
  const tree = join(folder, 'tree');
  mkdirSync(tree);
  await git('archive', '--format=tar', `--output=${archive}`, commit);
  await run('tar', ['-xf', archive, '-C', tree]);
  symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
  await run(join(ROOT, 'node_modules', '.bin', 'tsc'), ['-p', 'tsconfig.build.json'], { cwd: tree });
  // Up to the first house the library was built into dist/ itself.
  const dist = ['dist/src/', 'dist/']
    .map((folder) => pathToFileURL(join(tree, folder)))
    .find((folder) => existsSync(new URL('index.js', folder)));
  if (!dist) throw new Error(`${ref} was built, but has no index.js in dist/`);
  return { dist, commit };
}

function git(...args) {
  return run('git', args, { cwd: ROOT });
}
