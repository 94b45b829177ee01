import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
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
  expect(compile(join(root, 'test', 'types.ts'))).toEqual({ status: 0, output: '' });
});

test('the compiler is really asked: a wrong expectation fails', () => {
  const file = join(scratchFolder(), 'wrong.ts');
  writeFileSync(
    file,
    `import { attach } from ${JSON.stringify(join(root, 'src', 'index.ts'))};\n` +
      "// @ts-expect-error nothing is wrong with this\nattach({} as never, { id: 'a', peers: [] }, ['items']);\n",
  );
  const { status, output } = compile(file);
  expect(status).not.toBe(0);
  expect(output).toContain('TS2578');
});
