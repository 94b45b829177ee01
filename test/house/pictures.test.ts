/** The picture in the README shows the demo of today: `npm run picture` takes it anew. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { frame, toTry } from '../../demo/view.ts';
// @ts-expect-error: plain JavaScript, for a script that runs without a build
import { Terminal } from '../../scripts/terminal.mjs';

const picture = readFileSync(fileURLToPath(new URL('../../docs/pictures/demo.svg', import.meta.url)), 'utf8');
const SIZE = { columns: 96, rows: 30 };

/** What the demo shows whatever happens: its title, the head of its table, its keys, the lines to copy. */
function lasting(): string[] {
  const nodes = ['a', 'b', 'c'].map(
    (id) => ({ id, port: 0, console: '', state: 'running', pid: 1, health: undefined }) as const,
  );
  const view = { folder: '', nodes, links: [], writing: false, log: [], peerName: () => '' };
  const lines = frame(view, SIZE, false);
  const table = lines.findIndex((line) => line.includes(' node '));
  const links = lines.findIndex((line) => line.includes(' links '));
  const lookup = toTry(nodes).length;
  return [lines[0], lines[table], ...lines.slice(links + 2, lines.length - lookup - 1)]
    .map((line) => line?.trim() ?? '')
    .filter((line) => line !== '');
}

test('the picture in the README is of the demo as it is', () => {
  const shown = texts(picture);
  expect(lasting().length).toBeGreaterThanOrEqual(4);
  for (const line of lasting()) expect(shown, 'run npm run picture').toContain(line);
});

test('it ends with three equal files, and holds nothing that could run', () => {
  expect(picture).toContain('all three files are equal');
  expect(picture).not.toMatch(/<script|javascript:|\son\w+=|href="(?!#)/i);
});

test('the terminal of the picture knows the sequences of the demo, in pieces too, and refuses others', () => {
  const terminal = new Terminal({ columns: 10, rows: 3 });
  for (const piece of ['\x1b[2J\x1b[1;1Hab\x1b[', '31mred\x1b[0m', '\x1b[2;3Hx\x1b[1;5H\x1b[K']) terminal.write(piece);
  expect(terminal.text()).toBe('abre\n  x');
  expect(terminal.lines()[0]).toEqual([
    { style: '', text: 'ab' },
    { style: 'red', text: 're' },
  ]);
  expect(() => terminal.write('\x1b[5A')).toThrow('no terminal sequence');
});

/** The lines of the picture as text, trimmed. */
function texts(svg: string): string[] {
  return [...svg.matchAll(/<g id="l\d+">(.*?)<\/g>/g)].map(([, line]) =>
    [...(line as string).matchAll(/<text[^>]*>([^<]*)<\/text>/g)]
      .map(([, text]) => (text as string).replaceAll('&gt;', '>').replaceAll('&lt;', '<').replaceAll('&amp;', '&'))
      .join('')
      .trim(),
  );
}
