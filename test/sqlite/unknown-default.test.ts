/** A default that this connection cannot evaluate is told of before anybody needs it. */
import { expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { cleanUp, database } from '../support/nodes.ts';

const table = (declared: string): string =>
  `CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT DEFAULT ${declared}, updated_at INTEGER)`;

async function warningsOf(schema: string) {
  const manager = attach(await database(schema), { id: 'a', peers: [] }, ['items']);
  cleanUp(() => manager.stop());
  const warnings: unknown[] = [];
  manager.on('warning', (warning) => warnings.push(warning));
  await manager.flush();
  return { manager, warnings };
}

test('one that calls a function of another connection: which column, and what to do', async () => {
  const { manager, warnings } = await warningsOf(table('(made_elsewhere())'));
  const message = expect.stringMatching(
    /the DEFAULT of "items"."name" means nothing to this connection \(.*no such function: made_elsewhere.*\).* give the connection/,
  );
  expect(warnings).toEqual([{ code: 'schema', message }]);
  // What it is warned of.
  const give = (row: object): number =>
    manager.receive(JSON.stringify({ batch_id: 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] }), {
      said: 'id=x',
    }).status;
  expect(give({ id: '1', name: 'n', updated_at: 1 })).toBe(200);
  expect(give({ id: '2', updated_at: 1 })).toBe(503);
});

test.each([
  "'a (b'",
  '(5)',
  '(abs(-5))',
  '(-- (\n 5)',
  'CURRENT_TIMESTAMP',
  '"a(b"',
  "(lower('A') || '(')",
  "(strftime('%s'))",
])('not one that SQLite itself knows: %s', async (declared) => {
  expect((await warningsOf(table(declared))).warnings).toEqual([]);
});
