/** The public workflows run what there is to run: every lane, and only scripts that exist. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript, for a runner that starts before anything is built
import { lanes } from '../lanes/lanes.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = join(root, '.github', 'workflows');
const workflows = readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), 'utf8')] as const);
const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { scripts: Record<string, string> };

const ci = workflows.find(([name]) => name === 'ci.yml')?.[1] ?? '';

test.each(['npm test', 'npm run mesh', 'npm run sim --', 'npm run sim:mutants'])('ci.yml runs %s', (command) => {
  expect(ci).toContain(`run: ${command}`);
});

test('ci.yml has a job for each lane', () => {
  const inMatrix = /^ +lane: \[(.*)\]$/m.exec(ci)?.[1]?.split(', ') ?? [];
  expect(inMatrix.sort()).toEqual(lanes.map(({ name }: { name: string }) => name).sort());
});

test('every script and test folder that a workflow names exists', () => {
  for (const [workflow, text] of workflows) {
    const named = [...text.matchAll(/npm run ([\w:-]+)/g)].map(([, script]) => script as string);
    for (const script of named) expect(scripts, workflow).toHaveProperty([script]);
    for (const [path] of text.matchAll(/\b(?:test|deploy)\/[\w./-]+/g))
      expect(readdirSync(join(root, path, '..')), workflow).toContain(path.split('/').at(-1));
  }
});

test('a workflow may read, and only the publishing job may ask for an identity; no secret is used', () => {
  for (const [workflow, text] of workflows) {
    expect(text, workflow).toMatch(/^permissions:\n {2}contents: read$/m);
    expect(text, workflow).not.toContain('secrets.');
    const grants = [...text.matchAll(/: write$/gm)].length;
    expect(grants, workflow).toBe(workflow === 'release.yml' ? 1 : 0);
  }
});
