/** The plots in the README and in docs/speed.md show the figures of docs/figures.json: `npm run plots` draws them anew. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript, as the benchmark is
import { plot } from '../../bench/lib/svg.mjs';

interface Figure {
  /** The commit, how often and where it was measured. */
  of: string;
  plot: { name: string };
}

const root = fileURLToPath(new URL('../../', import.meta.url));
const text = (path: string): string => readFileSync(root + path, 'utf8');
const figures = JSON.parse(text('docs/figures.json')) as Figure[];
const pathOf = ({ plot: { name } }: Figure): string => `pictures/speed-${name}.svg`;

test('every plot is what its figures give, and there is no other', () => {
  const drawn = readdirSync(`${root}docs/pictures`).filter((name) => name.startsWith('speed-'));
  expect(drawn.toSorted()).toEqual(figures.map((figure) => pathOf(figure).slice('pictures/'.length)).toSorted());
  for (const figure of figures) expect(text(`docs/${pathOf(figure)}`), 'run npm run plots').toBe(plot(figure.plot));
});

test('the README shows one of them, the page on speed the others, and it says of each where it is from', () => {
  const inReadme = figures.filter((figure) => text('README.md').includes(`](docs/${pathOf(figure)})`));
  expect(inReadme.map(({ plot: { name } }) => name)).toEqual(['peers-cpu']);
  for (const figure of figures) {
    expect(figure.of).toMatch(/^[0-9a-f]{7,}\b.*\d repetitions/);
    expect(text('docs/speed.md')).toContain(`](${pathOf(figure)})`);
  }
});
