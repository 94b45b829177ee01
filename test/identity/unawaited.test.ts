/** Who is not waited for is noted one by one, up to a bound: a stranger can name any number of nodes. */
import { expect, test } from 'vitest';
import { isNobodyAwaited, isUnawaitedOne, noted, noteUnawaited } from '../../src/identity/last-heard.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { database } from '../support/nodes.ts';

test('more than a thousand are one mark for all, and those that were noted go on as they are', async () => {
  const db = new Connection(await database('CREATE TABLE _meta (key TEXT PRIMARY KEY, value)'));
  for (let i = 0; i < 1_000; i++) noteUnawaited(db, `node ${i}`, 'former', i);
  expect(isNobodyAwaited(db)).toBe(false);
  for (let i = 1_000; i < 1_100; i++) noteUnawaited(db, `node ${i}`, 'former', i);
  expect([isNobodyAwaited(db), noted(db, 'unawaited', 'node 1050')]).toEqual([true, undefined]);
  expect(db.get('SELECT count(*) AS n FROM _meta')).toEqual({ n: 2_001 });
  noteUnawaited(db, 'node 5', 'former', 9_000);
  expect([noted(db, 'unawaited', 'node 5'), isUnawaitedOne(db, 'node 5', 'another')]).toEqual([9_000, false]);
});
