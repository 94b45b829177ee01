/**
 * `npm run plots`: draws the pictures of docs/speed.md and of the README from docs/figures.json, which has the figures that
 * they show. With reports of the benchmark (`bench/results/<runtime>/report.json`), it takes theirs first, where they have
 * plots of the same names.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { plot } from '../bench/lib/svg.mjs';

const file = fileURLToPath(new URL('../docs/figures.json', import.meta.url));
const kept = JSON.parse(readFileSync(file, 'utf8'));
const reports = process.argv.slice(2).map((path) => JSON.parse(readFileSync(path, 'utf8')));

const figures = kept.map((figure) => reports.reduce(newer, figure));
writeFileSync(file, `${JSON.stringify(figures, null, 2)}\n`);
// Here and not after this in the script of package.json: what follows the command there would get the reports.
spawnSync('biome', ['format', '--write', file], { stdio: 'inherit' });
for (const { plot: spec } of figures) {
  writeFileSync(new URL(`../docs/pictures/speed-${spec.name}.svg`, import.meta.url), plot(spec));
}

function newer(figure, { machine, versions, rowcast = versions?.rowcast, quick, repetitions, plots }) {
  const found = plots.find(({ name }) => name === figure.plot.name);
  if (!found) return figure;
  const { figure: _, ...spec } = found;
  const counts = quick ? 'quick counts' : 'full counts';
  return {
    of: `${rowcast}, ${repetitions} repetitions, ${counts}, ${machine.cpu}, ${machine.cores} cores`,
    plot: spec,
  };
}
