/** The temporary table in which hidden rows are merged: made once, and anew where the table has become another. */
import { expect, test } from 'vitest';
import { Mirror } from '../../src/receive/mirror.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { describeTable } from '../../src/sqlite/schema.ts';
import { database, node, rowsOf } from '../support/nodes.ts';

const USERS = 'CREATE TABLE users (id TEXT PRIMARY KEY, email TEXT UNIQUE, updated_at INTEGER)';

test('is kept, empty, where it stands as it would be made; otherwise it is made anew', async () => {
  const db = await database(USERS);
  const made = (): unknown => rowsOf(db, 'PRAGMA temp.schema_version')[0];
  const mirror = () => new Mirror(new Connection(db), describeTable(new Connection(db), 'users'));
  const held = (): unknown => rowsOf(db, 'SELECT count(*) AS n FROM temp._rowcast_mirror_users')[0]?.n;

  mirror().load('{"id":"a","email":"x","updated_at":1}');
  const first = made();
  expect(held()).toBe(1);

  const second = mirror();
  expect(made()).toEqual(first);
  expect(held()).toBe(0);
  expect(second.stands()).toBe(true);

  db.exec('ALTER TABLE users ADD COLUMN nick TEXT');
  expect(mirror().stands()).toBe(true);
  expect(made()).not.toEqual(first);
  expect(second.stands()).toBe(false);
});

test('is made anew where it is gone: with a transaction that was taken back, or by somebody else', async () => {
  const { db, manager } = await node({ schema: USERS, tables: ['users'] });
  const receive = (id: string, at: number): number =>
    manager.applyChanges([{ op: 'INSERT', table: 'users', row: { id, email: 'x', updated_at: at }, old_id: null }]);
  receive('a', 3_000);
  receive('b', 2_000);
  db.exec('DROP TABLE temp._rowcast_mirror_users');
  receive('c', 1_000);
  expect(rowsOf(db, 'SELECT row_id FROM _hidden ORDER BY 1')).toEqual([{ row_id: 'b' }, { row_id: 'c' }]);
  expect(manager.deadLetters.list().map(({ code }) => code)).toEqual(['unique', 'unique']);
});
