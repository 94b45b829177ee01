/** A column that somebody renames while changes wait for a peer: these have its old name, and the peer may have no other. */
import { expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import type { Manager } from '../../src/index.ts';
import { node, rowsOf, serve, serveManager, until } from '../support/nodes.ts';

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

test('several at once, and columns that were added since', async () => {
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

/** Each begins with `a` and `b`, and leaves what was in them in other columns. */
test.each([
  ['one gets the name of another', 'RENAME COLUMN a TO x; RENAME COLUMN b TO a', { x: 'the greater', a: 'less' }],
  ['the other way round in the table', 'RENAME COLUMN b TO x; RENAME COLUMN a TO b', { b: 'the greater', x: 'less' }],
  [
    'two change names',
    'RENAME COLUMN a TO x; RENAME COLUMN b TO a; RENAME COLUMN x TO b',
    { b: 'the greater', a: 'less' },
  ],
  [
    'a new one gets the name',
    "RENAME COLUMN a TO x; ADD COLUMN a DEFAULT 'very new'",
    { x: 'the greater', b: 'less', a: 'very new' },
  ],
])('within a tick, on one node after the other, %s: nothing in them is lost', async (_how, steps, end) => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, a TEXT, b TEXT, updated_at INTEGER)';
  const address: { of?: Manager } = {};
  const url = await serve((request, response) => createListener(address.of as Manager)(request, response));
  const other = await node({ id: 'other', schema, tables: ['items'], peers: [url], batchMs: 3_600_000 });
  const peers = [await serveManager(other.manager)];
  const one = await node({ id: 'one', schema, tables: ['items'], peers, batchMs: 3_600_000 });
  address.of = one.manager;
  one.db.exec("INSERT INTO items VALUES ('r', 'the greater', 'less', 100), ('s', 'the greater', 'less', 100)");
  await one.manager.flush();
  for (const { db } of [one, other]) {
    for (const step of steps.split('; ')) db.exec(`ALTER TABLE items ${step}`);
    for (const { manager } of [one, other]) await manager.flush();
  }
  for (const { db, manager } of [one, other]) {
    expect(rowsOf(db, 'SELECT * FROM items')).toMatchObject([
      { id: 'r', ...end },
      { id: 's', ...end },
    ]);
    expect(manager.health()).toMatchObject({ ok: true, dead_letter: 0 });
  }
});

test('columns that have changed places, in a table that was rebuilt with its triggers, are not taken for renamed', async () => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, a TEXT, b TEXT, updated_at INTEGER)';
  const { db, manager } = await node({ schema, tables: ['items'] });
  const triggers = rowsOf(db, "SELECT sql FROM sqlite_schema WHERE type = 'trigger'").map(({ sql }) => String(sql));
  db.exec('DROP TABLE items; CREATE TABLE items (id TEXT PRIMARY KEY, b TEXT, a TEXT, updated_at INTEGER)');
  for (const sql of triggers) db.exec(sql);
  manager.applyChanges([]);
  expect(manager.aliases.list()).toEqual([]);
});

test('what is not known of a column goes with it, when another gets its name', async () => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, a TEXT, b TEXT, updated_at INTEGER)';
  const { db, manager } = await node({ schema, tables: ['items'] });
  db.exec("INSERT INTO items VALUES ('r', NULL, NULL, 100), ('s', NULL, NULL, 100)");
  db.exec("INSERT INTO _unsaid (table_name, column_name, row_id) VALUES ('items', 'a', 'r'), ('items', 'b', 's')");
  db.exec('ALTER TABLE items RENAME COLUMN b TO x; ALTER TABLE items RENAME COLUMN a TO b');
  manager.applyChanges([]);
  expect(rowsOf(db, 'SELECT column_name, row_id FROM _unsaid ORDER BY row_id')).toEqual([
    { column_name: 'b', row_id: 'r' },
    { column_name: 'x', row_id: 's' },
  ]);
});
