/** The results as a table on the terminal, as JSON, and as a page with plots. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { summary } from './statistics.mjs';
import { plot } from './svg.mjs';

/** Samples of a figure, one object a repetition, to one result a metric. */
export function summarise(figure, scale, samples) {
  const metrics = figure.metrics(scale).map((metric) => {
    const values = samples.map((sample) => sample[metric.key]).filter(Number.isFinite);
    const result = summary(values);
    return { ...metric, ...result, ...(metric.target && { met: isMet(metric.target, result.median) }) };
  });
  return { name: figure.name, title: figure.title, about: figure.about(scale), metrics };
}

function isMet(target, value) {
  return target.max !== undefined ? value <= target.max : value >= target.min;
}

export function table(heads, rows) {
  const lines = [heads, ...rows];
  const widths = heads.map((_, i) => Math.max(...lines.map((line) => line[i].length)));
  const show = (line) =>
    line
      .map((cell, i) => cell.padEnd(widths[i]))
      .join('   ')
      .trimEnd();
  return [show(heads), widths.map((width) => '-'.repeat(width)).join('   '), ...rows.map(show)].join('\n');
}

export function markdownTable(heads, rows) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  return [line(heads), line(heads.map(() => '---')), ...rows.map(line)].join('\n');
}

export const HEADS = ['figure', 'median', 'least to most', 'target', ''];

/** Only what has a target, of all figures: what one wants to see first. */
export function targetsOf(results) {
  const metrics = results.flatMap(({ name, metrics: all }) =>
    all.filter(({ target }) => target).map((metric) => ({ ...metric, label: `${name}: ${metric.label}` })),
  );
  const met = metrics.filter((metric) => metric.met).length;
  const about = `${met} of ${metrics.length} are met.`;
  return metrics.length > 0 ? [{ name: 'targets', title: 'Targets', about, metrics }] : [];
}

export function rowsOf({ metrics }) {
  return metrics.map((metric) => [
    metric.label,
    `${format(metric.median, metric)}${metric.unit && ` ${metric.unit}`}`,
    `${format(metric.min, metric)} to ${format(metric.max, metric)}`,
    targetText(metric),
    metric.met === undefined ? '' : metric.met ? 'met' : 'missed',
  ]);
}

export function format(value, { digits } = {}) {
  const places = digits ?? (Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3);
  return value.toLocaleString('en', { minimumFractionDigits: places, maximumFractionDigits: places });
}

function targetText({ target, unit }) {
  if (!target) return '';
  const [word, value] = target.max !== undefined ? ['at most', target.max] : ['at least', target.min];
  return `${word} ${value}${unit && ` ${unit}`}`;
}

/** Writes report.json, report.md and the plots into `folder`; `head` are the lines that say what was measured, and where. */
export function writeReport(folder, { title, head, results, plots, json }) {
  // Plots of an earlier run that measured more would pass for this one's.
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'report.json'), `${JSON.stringify({ ...json, figures: results, plots }, null, 2)}\n`);
  for (const spec of plots) writeFileSync(join(folder, `${spec.name}.svg`), plot(spec));
  const sections = results.map((result) => {
    const own = plots.filter(({ figure }) => figure === result.name);
    return [
      `## ${result.title}`,
      result.about,
      markdownTable(result.heads ?? HEADS, result.rows ?? rowsOf(result)),
      ...(result.notes ?? []),
      ...own.map((spec) => `![${spec.title}](${spec.name}.svg)`),
    ].join('\n\n');
  });
  writeFileSync(join(folder, 'report.md'), `${[`# ${title}`, head.join('\n'), ...sections].join('\n\n')}\n`);
}
