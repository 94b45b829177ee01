/** Whatever docs/three-in-the-morning.md says that somebody may see can be seen, and whatever it says to type can be typed. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { root } from '../support/build.ts';

const page = readFileSync(join(root, 'docs/three-in-the-morning.md'), 'utf8');
const files = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' }).filter((name) =>
  name.endsWith('.ts'),
);
// A comment says nothing to anybody who is woken.
const textOf = (names: string[]): string =>
  names
    .map((name) => readFileSync(join(root, 'src', name), 'utf8'))
    .map((text) => text.replace(/^\s*\/\*\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, ''))
    .join('\n');
const sources = textOf(files);
/** Health is the library's; what a command says besides is no problem. */
const library = textOf(files.filter((name) => !name.startsWith('cli')));

/** The lines of the table below a heading, each as its cells. */
function table(heading: string): string[][] {
  const [, section = ''] = page.split(`## ${heading}\n`);
  const lines = (section.split('\n## ')[0] ?? '').split('\n').filter((line) => line.startsWith('|'));
  const rows = lines.slice(2).map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
  expect(rows.length, heading).toBeGreaterThan(4);
  return rows;
}

const quoted = (cell = ''): string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, text = '']) => text);

test('every problem is a text that the sources can say', () => {
  const said = table('What `problems` says').flatMap(([cell]) => quoted(cell));
  expect(said.filter((text) => !library.includes(text))).toEqual([]);
});

test('the alerts are those that are shipped, all of them', () => {
  const shipped = readFileSync(join(root, 'deploy/prometheus-alerts.yaml'), 'utf8');
  const names = [...shipped.matchAll(/alert: (\w+)/g)].map(([, name]) => name);
  expect(table('What the alerts say').flatMap(([cell]) => quoted(cell))).toEqual(names);
});

test('every event and every code of the log exists', () => {
  const said = table('What the log says').flatMap(([cell]) => quoted(cell));
  expect(said.filter((word) => !new RegExp(`['"\`]${word}['"\`]`).test(sources))).toEqual([]);
});

test('every code of a dead letter exists', () => {
  const protocol = readFileSync(join(root, 'src/wire/protocol.ts'), 'utf8');
  const codes = table("What a dead letter's code says").flatMap(([cell]) => quoted(cell));
  expect(codes.filter((code) => !protocol.includes(`'${code}'`))).toEqual([]);
});

test('every command, verb and flag that it says to type is one', () => {
  const main = readFileSync(join(root, 'src/cli/main.ts'), 'utf8');
  const commands = [...(main.split('COMMANDS:')[1] ?? '').matchAll(/^ {2}'?([\w-]+)'?: \{\s+summary:/gm)].map(
    ([, name]) => name,
  );
  const typed = [...page.matchAll(/`(rowcast [^`]+)`|^(rowcast .*?)(?: +#.*)?$/gm)].map(
    ([, a, b]) => (a ?? b) as string,
  );
  expect(typed.length).toBeGreaterThan(15);
  const operate = readFileSync(join(root, 'src/cli/operate.ts'), 'utf8');
  for (const line of typed) {
    const [, command, ...words] = line.split(' ');
    expect(commands, line).toContain(command);
    const verb = words.find((word, i) => /^[a-z]+$/.test(word) && !words[i - 1]?.startsWith('-'));
    if (verb !== undefined && command !== 'forget') expect(operate, line).toContain(`'${verb}'`);
    for (const flag of words.filter((word) => word.startsWith('-'))) {
      const key = flag.replace(/^-+/, '').replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
      expect(new RegExp(`\\b${key}\\b[:,(]`).test(sources), `${flag} of ${line}`).toBe(true);
    }
  }
});
