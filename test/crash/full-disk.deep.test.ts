/** A disk that is really full, where nobody has tried to write to it yet: health finds out, and finds out when it is over. */
import { spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { scratchFolder } from '../support/nodes.ts';
import { startNode } from '../support/programs.ts';

// A small disk of its own needs the right to mount one.
const mayMount = spawnSync('unshare', ['-m', 'true']).status === 0;

test.skipIf(!mayMount)('a full disk is a problem before the first write has failed, until there is room', async () => {
  const folder = scratchFolder();
  const wrapper = ['unshare', '-m', 'sh', '-c', 'mount -t tmpfs -o size=4m none "$0" && exec "$@"', folder];
  const { url, child } = await startNode('a', [], folder, { wrapper });
  const fill = `/proc/${child.pid}/root${folder}/fill`;
  const health = async (): Promise<unknown> => (await fetch(`${url}/health`)).json();
  expect(await health()).toMatchObject({ ok: true, problems: [] });
  expect(() => writeFileSync(fill, Buffer.alloc(8 * 1024 * 1024))).toThrow(/ENOSPC/);
  const problems = ['the database cannot be written: database or disk is full'];
  expect(await health()).toMatchObject({ ok: false, problems });
  expect((await fetch(`${url}/readyz`)).status).toBe(503);
  rmSync(fill);
  expect(await health()).toMatchObject({ ok: true, problems: [] });
});
