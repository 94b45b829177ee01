import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { expect, test } from 'vitest';
import { root } from './support/build.ts';
import { scratchFolder } from './support/nodes.ts';

function compile(...files: string[]): { status: number | null; output: string } {
  const project = join(scratchFolder(), 'tsconfig.json');
  writeFileSync(
    project,
    JSON.stringify({
      extends: join(root, 'tsconfig.json'),
      compilerOptions: { typeRoots: [join(root, 'node_modules', '@types')] },
      include: [],
      files,
    }),
  );
  const { status, stdout } = spawnSync(join(root, 'node_modules', '.bin', 'tsc'), ['-p', project], {
    encoding: 'utf8',
  });
  return { status, output: stdout };
}

test('the types are as test/types.ts says: every binding fits, results and events are typed, mistakes are errors', () => {
  const folder = scratchFolder();
  const wrong = join(folder, 'wrong.mts');
  writeFileSync(
    wrong,
    `import { attach } from ${JSON.stringify(relative(folder, join(root, 'src', 'index.ts')))};\n` +
      "// @ts-expect-error nothing is wrong with this\nattach({} as never, { id: 'a', peers: [] }, ['items']);\n",
  );
  const { status, output } = compile(join(root, 'test', 'types.ts'), wrong);
  // The compiler is really asked: of both files the wrong expectation is the one mistake.
  expect(status).not.toBe(0);
  expect(output.trimEnd().split('\n')).toEqual([expect.stringMatching(/wrong\.mts.*TS2578/)]);
});
