/** `rowcast forget`, on the database of a node that is stopped or runs. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { cleanUp, database, ITEMS, rowsOf, scratchFolder } from '../support/nodes.ts';
import { MAIN, runProgram } from '../support/programs.ts';

async function forget(...args: string[]): Promise<{ code: number | string; output: string }> {
  const program = runProgram(MAIN, ['forget', ...args]);
  return { code: await program.ended, output: program.output() };
}

test('notes it for a node that is known, and says who is where it is not', async () => {
  const path = join(scratchFolder(), 'a.db');
  const db = await database(ITEMS, path);
  const manager = attach(db, { id: 'a', peers: ['http://127.0.0.1:9'] }, ['items']);
  cleanUp(() => manager.stop());
  manager.receive('{"batch_id":1,"changes":[]}', {
    from: 'c',
    said: 'id=c; inc=0123456789abcdef; boot=1-01234567; t0=0; t=1',
  });
  expect(await forget('-db', path, 'd')).toMatchObject({
    code: 1,
    output: expect.stringMatching(/no node "d" is known here.*"c", "http:\/\/127\.0\.0\.1:9"/s),
  });
  expect(await forget('-db', path, 'c')).toEqual({ code: 0, output: 'forgotten c\n' });
  expect(rowsOf(db, "SELECT key FROM _meta WHERE key LIKE 'forgotten:%'")).toEqual([{ key: 'forgotten:c' }]);
  expect(await forget('-db', path)).toMatchObject({
    code: 2,
    output: expect.stringContaining('name the id of a node'),
  });
});

test('refuses what is no database of a node', async () => {
  const path = join(scratchFolder(), 'other.db');
  await database(ITEMS, path);
  expect(await forget('-db', path, 'c')).toMatchObject({ code: 1, output: expect.stringMatching(/is no node's/) });
});
