/** A column that somebody renames while changes wait for a peer: these have its old name, and the peer may have no other. */
import { expect, test } from 'vitest';
import { node, rowsOf, until } from '../support/nodes.ts';

test('it goes on travelling under the name that the changes have which wait', async () => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, "mySize" INTEGER, updated_at INTEGER)';
  const { db, manager } = await node({ schema, tables: ['items'] });
  db.exec("INSERT INTO items VALUES ('a', 7, 100)");
  db.exec('ALTER TABLE items ADD COLUMN note TEXT');
  // Whatever is received brings the triggers up to date first: everything up to here has been looked at.
  manager.applyChanges([]);
  db.exec('ALTER TABLE items RENAME COLUMN "mySize" TO length');
  await until('it is noticed', () => manager.aliases.list().length > 0);
  db.exec("INSERT INTO items VALUES ('b', 8, 100, NULL)");
  const rows = rowsOf(db, 'SELECT row_data FROM _changes ORDER BY change_id').map(({ row_data }) => String(row_data));
  // The first of them lacked the new column, and was recorded again.
  expect(rows.slice(1).map((row) => JSON.parse(row))).toEqual([
    { id: 'a', mySize: 7, updated_at: 101, note: null },
    { id: 'b', mySize: 8, updated_at: 100, note: null },
  ]);
});

test('several at once, and columns that were added since; two that have changed places are not taken for renamed', async () => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, a TEXT, b TEXT, updated_at INTEGER)';
  const { db, manager } = await node({ schema, tables: ['items'] });
  db.exec('ALTER TABLE items RENAME COLUMN a TO x; ALTER TABLE items RENAME COLUMN b TO y');
  db.exec('ALTER TABLE items ADD COLUMN z TEXT');
  manager.applyChanges([]);
  expect(manager.aliases.list()).toEqual([
    { table: 'items', column: 'x', was: 'a', sent: true },
    { table: 'items', column: 'y', was: 'b', sent: true },
  ]);
});
