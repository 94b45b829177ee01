/** A column that is renamed while changes wait for a peer: they have its old name, and the peer will not know it. */
import { expect, test } from 'vitest';
import { node, rowsOf, until } from '../support/nodes.ts';

test('rows whose changes were read before the rename are recorded once more under the new name', async () => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, size INTEGER, updated_at INTEGER)';
  const { db, manager } = await node({ schema, tables: ['items'] });
  db.exec("INSERT INTO items VALUES ('a', 7, 100)");
  db.exec('ALTER TABLE items ADD COLUMN note TEXT');
  // Whatever is received brings the triggers up to date first: everything up to here has been looked at.
  manager.applyChanges([]);
  expect(rowsOf(db, "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND sql LIKE '%note%'")).not.toEqual([]);
  db.exec('ALTER TABLE items RENAME COLUMN size TO length');
  const latest = 'SELECT row_data FROM _changes ORDER BY change_id DESC LIMIT 1';
  await until('it is recorded again', () => String(rowsOf(db, latest)[0]?.row_data).includes('length'), 5_000);
  expect(JSON.parse(String(rowsOf(db, latest)[0]?.row_data))).toMatchObject({ id: 'a', length: 7 });
});
