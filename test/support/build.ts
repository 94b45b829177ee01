/** The library compiled from the sources as they are now, for tests that run it in other processes. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of the project. */
export const root = fileURLToPath(new URL('../..', import.meta.url));

/** What the processes of the tests start with. */
const ENTRIES = ['index', 'http/index', 'hub/hub', 'sqlite/node-sqlite', 'cli/main', 'cli/rowcast-hub'];

/** Compiles src/ into a folder of its own, so that no stale dist/ is tested. The caller removes it. */
export async function buildLibrary(): Promise<{ folder: string; remove(): void }> {
  const folder = mkdtempSync(join(tmpdir(), 'rowcast-build-'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  const sources = join(root, 'src');
  const entries = ENTRIES.map((name) => join(sources, `${name}.ts`));
  // @ts-expect-error: plain JavaScript, for the build, which comes before anything is compiled
  const { bundle } = await import('../../scripts/bundle.mjs');
  await bundle(entries, sources, join(folder, 'src'));
  return { folder: join(folder, 'src'), remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/** Types are checked elsewhere; here the sources only have to become JavaScript. */
export function compileInto(folder: string): void {
  const off = ['--declaration', '--declarationMap', '--sourceMap'].flatMap((name) => [name, 'false']);
  const project = join(root, 'tsconfig.build.json');
  execFileSync(join(root, 'node_modules', '.bin', 'tsc'), ['-p', project, '--outDir', folder, '--noCheck', ...off]);
}
