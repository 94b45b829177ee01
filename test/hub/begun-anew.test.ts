/** A hub keeps a row under every name that its table ever travelled under. Begun anew with an empty file, it has the present one alone. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { door, edge, hub, quiet } from '../support/hubs.ts';
import { attached, rowsOf, scratchFolder, type TestNode, until } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const ORDERS = 'CREATE TABLE orders (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';
const ARCHIVE = 'ALTER TABLE orders RENAME TO orders_2025; ALTER TABLE orders_2025 RENAME COLUMN name TO title';
const ARCHIVED = { renameTable: { orders: 'orders_2025' }, rename: { orders_2025: { name: 'title' } } };

const inHub = (db: TestNode['db']): string[] =>
  rowsOf(db, 'SELECT table_name, row_id, op, row_data FROM _hub_rows ORDER BY table_name, row_id').map(
    ({ table_name, row_id, op, row_data }) =>
      `${table_name} ${row_id} ${op === 'DELETE' ? 'gone' : Object.keys(JSON.parse(String(row_data)))}`,
  );

test('when all nodes send the new names: it is filled under these, nothing is left of an erased row, and an old name can be used again', {
  tags: 'long',
}, async () => {
  const folder = scratchFolder();
  const center = await door();
  const [atA, atB, atC] = [await door(), await door(), await door()];
  const edges = [atA.url, atB.url];
  const options = { schema: ORDERS, tables: ['orders'] };
  const a = await edge('a', [center.url], atA, options);
  const b = await edge('b', [center.url], atB, options);
  const first = await hub({ edges }, join(folder, 'first.db'));
  center.open(createListener(first.hub));
  a.db.exec(`INSERT INTO orders VALUES ('kept', 'last year', ${T}), ('erased', 'of a PERSON', ${T})`);
  await quiet([first.hub], [a, b]);

  for (const { manager } of [a, b]) manager.migrate(ARCHIVE, ARCHIVED);
  await quiet([first.hub], [a, b]);
  for (const { manager } of [a, b]) manager.aliases.drop();
  a.db.exec("DELETE FROM orders_2025 WHERE id = 'erased'");
  await until('the deletion is there', () => rowsOf(b.db, 'SELECT 1 FROM orders_2025').length === 1);
  await quiet([first.hub], [a, b]);
  // Nobody told the hub that the two tables are one.
  expect(inHub(first.db)).toEqual(
    expect.arrayContaining(['orders erased id,name,updated_at', 'orders_2025 erased gone']),
  );

  center.close();
  await first.hub.stop();
  const path = join(folder, 'second.db');
  const second = await hub({ edges }, path);
  center.open(createListener(second.hub));
  const anew = ['orders_2025 erased gone', 'orders_2025 kept id,title,updated_at'];
  await until('the nodes have filled it', () => inHub(second.db).length >= anew.length);
  await quiet([second.hub], [a, b]);
  expect(inHub(second.db)).toEqual(anew);
  second.db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  for (const file of [path, `${path}-wal`]) expect(readFileSync(file).includes('PERSON')).toBe(false);

  const schema = 'CREATE TABLE orders_2025 (id TEXT PRIMARY KEY, title TEXT, updated_at INTEGER)';
  const c = await edge('c', [center.url], atC, { schema, tables: ['orders_2025'] });
  await second.hub.edges.add(atC.url);
  const kept = [{ id: 'kept', title: 'last year', updated_at: T }];
  const archive = 'SELECT id, title, updated_at FROM orders_2025';
  await until('a new node has all', () => rowsOf(c.db, archive).length === 1);
  await quiet([second.hub], [a, b, c]);
  for (const one of [a, b, c]) {
    expect(one.all(archive)).toEqual(kept);
    expect(one.manager.health()).toMatchObject({ ok: true, dead_letter: 0 });
  }

  // The old names are taken where somebody had them, until it is said that nobody has anything under them.
  const again = `${ORDERS}; ALTER TABLE orders_2025 ADD COLUMN name TEXT`;
  const adding = { addTables: ['orders'] };
  for (const { manager } of [a, b]) {
    expect(() => manager.migrate(ORDERS, adding)).toThrow(/"orders" has the name that "orders_2025" had before/);
    expect(() => manager.migrate(again)).toThrow(/column "name", the name that "title" had before/);
    manager.aliases.forget('orders');
    manager.aliases.forget('orders_2025.name');
  }
  for (const { manager } of [a, c]) manager.migrate(again, adding);
  // Or by the list of another start.
  b.manager.migrate(again);
  await b.manager.stop();
  b.manager = attached(b.db, { id: 'b', peers: [center.url], batchMs: 5 }, ['orders_2025', 'orders']);
  atB.open(createListener(b.manager));
  a.db.exec(`INSERT INTO orders VALUES ('kept', 'of this year', ${T + 9})`);
  b.db.exec(`INSERT INTO orders VALUES ('second', 'of this year', ${T + 9})`);
  await until('it is everywhere', () => [a, b, c].every(({ db }) => rowsOf(db, 'SELECT 1 FROM orders').length === 2));
  await quiet([second.hub], [a, b, c]);
  for (const one of [a, b, c]) await one.manager.verify(undefined, { repair: true });
  await quiet([second.hub], [a, b, c]);
  for (const one of [a, b, c]) {
    const [result] = await one.manager.verify();
    expect(result).toMatchObject({ equal: true });
    expect(one.all('SELECT id, name FROM orders ORDER BY id')).toEqual([
      { id: 'kept', name: 'of this year' },
      { id: 'second', name: 'of this year' },
    ]);
    expect(one.all('SELECT * FROM orders_2025')).toEqual([{ ...kept[0], name: null }]);
    expect(one.manager.health()).toMatchObject({ ok: true, dead_letter: 0 });
  }
});

test('a hub with old names: a new node gets the rest as letters, and telling it the old names settles them', async () => {
  const center = await door();
  const [atA, atC] = [await door(), await door()];
  const a = await edge('a', [center.url], atA, { schema: ORDERS, tables: ['orders'] });
  const { hub: relay } = await hub({ edges: [atA.url] });
  center.open(createListener(relay));
  a.db.exec(`INSERT INTO orders VALUES ('kept', 'last year', ${T}), ('gone', 'deleted', ${T})`);
  await quiet([relay], [a]);
  a.manager.migrate(ARCHIVE, ARCHIVED);
  a.manager.aliases.drop();
  a.db.exec(`DELETE FROM orders_2025 WHERE id = 'gone'; INSERT INTO orders_2025 VALUES ('new', 'since', ${T + 1})`);
  await quiet([relay], [a]);
  const schema = 'CREATE TABLE orders_2025 (id TEXT PRIMARY KEY, title TEXT, updated_at INTEGER)';
  const c = await edge('c', [center.url], atC, { schema, tables: ['orders_2025'] });
  await relay.edges.add(atC.url);
  await until('it has what came under the new name', () => rowsOf(c.db, 'SELECT 1 FROM orders_2025').length === 1);
  await quiet([relay], [a, c]);
  expect(c.manager.deadLetters.list().map(({ code, rowId }) => `${code} ${rowId}`)).toEqual([
    'unknown-table kept',
    'unknown-table gone',
  ]);
  c.manager.migrate('', ARCHIVED);
  c.manager.aliases.drop();
  await quiet([relay], [a, c]);
  expect(c.manager.deadLetters.list()).toEqual([]);
  const rows = 'SELECT * FROM orders_2025 ORDER BY id';
  expect(c.all(rows)).toEqual(a.all(rows));
  expect(a.all(rows)).toHaveLength(2);
});
