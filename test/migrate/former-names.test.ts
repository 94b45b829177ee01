/**
 * A name that a table or a column had before is taken: others may still have something under it, which would come into
 * whatever is new under that name. It is free when somebody says that nobody has.
 */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { attach, type Change, type MigrateOptions, type Migration } from '../../src/index.ts';
import { detached } from '../../src/migrate/detached.ts';
import { forgetNames, migrate, sendNewNames } from '../../src/migrate/migrate.ts';
import {
  attached,
  captured,
  database,
  node,
  rowsOf,
  scratchFolder,
  type TestNode,
  writeStamps,
} from '../support/nodes.ts';

const T = 1_700_000_000_000;
const ORDERS = 'CREATE TABLE orders (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';
const ARCHIVED = { renameTable: { orders: 'archive' }, rename: { archive: { name: 'title' } } };
const TAKEN = /table "orders" has the name that "archive" had before.*would come into the new table.*-forget orders/;

/** A node whose table and one of whose columns are called otherwise now. */
async function renamed(path?: string): Promise<TestNode> {
  const it = await node({ schema: ORDERS, tables: ['orders'], ...(path !== undefined && { path }) });
  it.db.exec(`INSERT INTO orders VALUES ('a', 'old', ${T})`);
  it.manager.migrate('ALTER TABLE orders RENAME TO archive; ALTER TABLE archive RENAME COLUMN name TO title', ARCHIVED);
  return it;
}

/** And nothing travels under the old names any more. */
async function dropped(path?: string): Promise<TestNode> {
  const it = await renamed(path);
  it.manager.aliases.drop();
  return it;
}

const said = (id: string, table: string, row: object): Change => ({
  op: 'INSERT',
  table,
  row: { id, ...row, updated_at: T + 5 },
  old_id: null,
});

const snapshotOf = ({ db }: TestNode): unknown => [
  rowsOf(db, 'SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name'),
  rowsOf(db, 'SELECT * FROM _changes'),
  rowsOf(db, 'SELECT * FROM _meta ORDER BY key'),
  rowsOf(db, 'SELECT * FROM _dead_letter'),
];

describe('a table with the name that another had', () => {
  test.each([
    ['beside it', ['orders', 'archive']],
    ['in its place', ['orders']],
  ])('is not attached %s, and nothing is changed by that', async (_, tables) => {
    const it = await dropped();
    await it.manager.stop();
    it.db.exec(ORDERS);
    const before = snapshotOf(it);
    expect(() => attach(it.db, { id: 'node', peers: [] }, tables)).toThrow(TAKEN);
    expect(snapshotOf(it)).toEqual(before);

    it.manager = attached(it.db, {}, ['archive']);
    it.manager.aliases.forget('orders');
    await it.manager.stop();
    it.manager = attached(it.db, {}, ['orders', 'archive']);
    it.manager.applyChanges([said('n', 'orders', { name: 'new' })]);
    expect(it.all('SELECT id, name FROM orders')).toEqual([{ id: 'n', name: 'new' }]);
    expect(it.all('SELECT id, title FROM archive')).toEqual([{ id: 'a', title: 'old' }]);
    expect(it.manager.health()).toMatchObject({ ok: true, dead_letter: 0 });
  });

  test.each<[string, Migration, MigrateOptions, RegExp]>([
    ['is added', ORDERS, { addTables: ['orders'] }, TAKEN],
    [
      'is made of another',
      'ALTER TABLE other RENAME TO orders',
      { renameTable: { other: 'orders' } },
      /"archive" had that/,
    ],
  ])('is refused where it %s by a migration', async (_, migration, options, message) => {
    const it = await dropped();
    it.manager.migrate(ORDERS.replace('orders', 'other'), { addTables: ['other'] });
    const before = snapshotOf(it);
    expect(() => it.manager.migrate(migration, options)).toThrow(message);
    expect(snapshotOf(it)).toEqual(before);
    expect(it.manager.health().ok).toBe(true);
    it.manager.aliases.forget('orders');
    it.manager.migrate(migration, options);
    it.db.exec(`INSERT INTO orders VALUES ('n', 'new', ${T})`);
    expect(captured(it.db).at(-1)).toMatchObject({ row_id: 'n' });
  });

  test('is not taken for the one that a running node was told of by that name', async () => {
    const path = join(scratchFolder(), 'shared.db');
    const it = await node({ schema: ORDERS, tables: ['orders'], path });
    const elsewhere = detached(await database('SELECT 1', path), systemClock, () => {});
    migrate(elsewhere, 'ALTER TABLE orders RENAME TO archive', { renameTable: { orders: 'archive' } });
    // It may have had no time to look since.
    it.db.exec(ORDERS);
    const isArchive = (): void => {
      writeStamps(it.manager);
      it.db.exec(`INSERT INTO archive VALUES ('n' || (SELECT count(*) FROM archive), 'n', ${T})`);
      it.db.exec(`INSERT INTO orders VALUES ('o' || (SELECT count(*) FROM orders), 'o', ${T})`);
      const ids = captured(it.db).map(({ row_id }) => String(row_id));
      expect(ids).toEqual(rowsOf(it.db, 'SELECT id FROM archive').map(({ id }) => id));
      expect(it.manager.health()).toMatchObject({ ok: true, item_count: ids.length });
    };
    isArchive();
    sendNewNames(elsewhere);
    forgetNames(elsewhere, ['orders']);
    isArchive();
    it.manager.migrate('ALTER TABLE archive ADD COLUMN more TEXT; ALTER TABLE archive DROP COLUMN more');
    isArchive();
    it.manager.migrate('', { addTables: ['orders'] });
    it.db.exec(`INSERT INTO orders VALUES ('p', 'o', ${T})`);
    expect(captured(it.db).at(-1)).toMatchObject({ row_id: 'p' });
    it.manager.migrate('ALTER TABLE archive RENAME TO attic', { renameTable: { archive: 'attic' } });
    expect(it.manager.health()).toMatchObject({ ok: true, problems: [] });
  });

  test('may be given back to the one that had it', async () => {
    const it = await dropped();
    it.manager.migrate('ALTER TABLE archive RENAME TO orders; ALTER TABLE orders RENAME COLUMN title TO name', {
      renameTable: { archive: 'orders' },
      rename: { orders: { title: 'name' } },
    });
    expect(it.all('SELECT name FROM orders')).toEqual([{ name: 'old' }]);
    expect(it.manager.health().ok).toBe(true);
  });
});

describe('a column with the name that another had', () => {
  test.each<[string, Migration, MigrateOptions]>([
    ['is added', 'ALTER TABLE archive ADD COLUMN name TEXT', {}],
    [
      'is another one renamed',
      'ALTER TABLE archive RENAME COLUMN note TO name',
      { rename: { archive: { note: 'name' } } },
    ],
    [
      'comes when the one that had it goes',
      'ALTER TABLE archive DROP COLUMN title; ALTER TABLE archive ADD COLUMN name TEXT',
      { drop: { archive: ['title'] } },
    ],
  ])('is refused where it %s by a migration', async (_, migration, options) => {
    const it = await dropped();
    it.manager.migrate('ALTER TABLE archive ADD COLUMN note TEXT');
    const before = snapshotOf(it);
    expect(() => it.manager.migrate(migration, options)).toThrow(
      /column "name", the name that "title" had before.*come into the new column.*-forget archive\.name/,
    );
    expect(snapshotOf(it)).toEqual(before);
    it.manager.aliases.forget('archive.name');
    it.manager.migrate(migration, options);
    it.db.exec(`UPDATE archive SET name = 'new', updated_at = ${T + 1}`);
    it.manager.aliases.drop();
    expect(captured(it.db).at(-1)?.row).toMatchObject({ name: 'new' });
  });

  test('is there already: one warning says so, and other migrations are not refused for it', async () => {
    const it = await dropped();
    const warnings: string[] = [];
    it.manager.on('warning', ({ message }) => warnings.push(message));
    it.db.exec('ALTER TABLE archive ADD COLUMN name TEXT');
    writeStamps(it.manager);
    it.manager.migrate('ALTER TABLE archive ADD COLUMN more TEXT');
    it.manager.applyChanges([said('b', 'archive', { name: 'its own', title: 't' })]);
    await it.manager.flush();
    expect(it.all("SELECT name, title FROM archive WHERE id = 'b'")).toEqual([{ name: 'its own', title: 't' }]);
    expect(warnings).toEqual([
      expect.stringMatching(
        /^column "name" of "archive" has the name that "title" had before: .* -forget archive\.name$/,
      ),
    ]);
    it.manager.aliases.forget('archive.name');
    await it.manager.stop();
    it.manager = attached(it.db, {}, ['archive']);
    it.manager.on('warning', ({ message }) => warnings.push(message));
    await it.manager.flush();
    expect(warnings).toHaveLength(1);
  });
});

describe('a column with the name of one that is gone', () => {
  const DROP = 'ALTER TABLE archive DROP COLUMN note';
  const REBUILT =
    'CREATE TABLE anew (id TEXT PRIMARY KEY, title TEXT, updated_at INTEGER); INSERT INTO anew SELECT id, title, updated_at ' +
    'FROM archive; DROP TABLE archive; ALTER TABLE anew RENAME TO archive';
  const RENAMING: [Migration, MigrateOptions] = [
    'ALTER TABLE archive RENAME COLUMN title TO note',
    { rename: { archive: { title: 'note' } } },
  ];

  test.each(['by a migration', 'by another tool'])('dropped %s: another is not renamed to it', async (how) => {
    const it = await dropped();
    it.manager.migrate('ALTER TABLE archive ADD COLUMN note TEXT');
    if (how === 'by another tool') {
      it.db.exec(REBUILT);
      writeStamps(it.manager);
    } else it.manager.migrate(DROP);
    const before = snapshotOf(it);
    expect(() => it.manager.migrate(...RENAMING)).toThrow(
      /"title" of "archive" has got the name "note", which a column had that is gone.*-forget archive\.note/,
    );
    expect(snapshotOf(it)).toEqual(before);
    expect(it.manager.health().ok).toBe(true);
    it.manager.aliases.forget('archive.note');
    it.manager.migrate(...RENAMING);
    expect(it.all('SELECT note FROM archive')).toEqual([{ note: 'old' }]);
  });

  test('the same column may come back', async () => {
    const it = await dropped();
    it.manager.migrate('ALTER TABLE archive ADD COLUMN note TEXT');
    it.manager.migrate(DROP);
    it.manager.migrate('ALTER TABLE archive ADD COLUMN note TEXT');
    it.manager.migrate(DROP);
    expect(it.manager.health().ok).toBe(true);
  });

  test('is not freed while a letter has something for it', async () => {
    const it = await dropped();
    it.db.exec('ALTER TABLE archive ADD COLUMN note TEXT');
    writeStamps(it.manager);
    it.db.exec(REBUILT);
    writeStamps(it.manager);
    it.manager.applyChanges([said('b', 'archive', { note: 'kept' })]);
    expect(() => it.manager.aliases.forget('archive.note')).toThrow(/1 dead letter speaks of "note"/);
  });

  test('what comes under names that it had before is left out, as under its last one', async () => {
    const it = await renamed();
    it.manager.migrate('ALTER TABLE archive DROP COLUMN title');
    it.manager.applyChanges([said('b', 'orders', { name: 'n' }), said('c', 'archive', { title: 't' })]);
    expect(it.all('SELECT id FROM archive ORDER BY id')).toEqual([{ id: 'a' }, { id: 'b' }, { id: 'c' }]);
    expect(it.manager.deadLetters.list()).toEqual([]);
    // It is still taken, and travels no more.
    expect(it.manager.aliases.list()).toEqual([
      { table: 'archive', was: 'orders', sent: true },
      { table: 'archive', column: 'title', was: 'name', sent: false },
    ]);
    expect(() => it.manager.migrate('ALTER TABLE archive ADD COLUMN name TEXT')).toThrow(/"title" had before/);
  });
});

describe('forgetting a name', () => {
  test('it is not understood any more', async () => {
    const it = await dropped();
    it.manager.aliases.forget('ORDERS');
    it.manager.aliases.forget('archive.Name');
    expect(it.manager.aliases.list()).toEqual([]);
    it.manager.applyChanges([said('b', 'orders', { title: 't' }), said('c', 'archive', { name: 'n' })]);
    const codes = it.manager.deadLetters.list().map(({ code }) => code);
    expect(codes.sort()).toEqual(['unknown-column', 'unknown-table']);
    expect(it.manager.health().ok).toBe(true);
  });

  test.each([
    ['orders', /"archive" still travels as "orders".*aliases -drop/],
    ['archive.name', /"title" of "archive" still travels as "name".*aliases -drop/],
    ['name', /no table or column here had the name "name" before.*orders, archive\.name/],
    ['archive', /no table or column here had the name "archive"/],
    [undefined as unknown as string, /no table or column here had the name undefined/],
  ])('%s is refused, and nothing is changed', async (name, message) => {
    const it = await renamed();
    const before = snapshotOf(it);
    expect(() => it.manager.aliases.forget(name)).toThrow(message);
    expect(snapshotOf(it)).toEqual(before);
    expect(it.manager.health().ok).toBe(true);
  });

  test('all that are named, or none', async () => {
    const it = await dropped();
    const before = snapshotOf(it);
    const subject = detached(it.db, systemClock, () => {});
    expect(() => forgetNames(subject, ['orders', 'absent'])).toThrow(/"absent"/);
    expect(snapshotOf(it)).toEqual(before);
  });

  test('is refused while letters are kept under it, which the new table or column would be given', async () => {
    const it = await dropped();
    it.db.exec("CREATE TRIGGER no BEFORE INSERT ON archive WHEN NEW.title = 'no' BEGIN SELECT RAISE(ABORT, 'no'); END");
    it.manager.applyChanges([said('b', 'orders', { title: 'no' }), said('c', 'archive', { name: 'no' })]);
    const before = snapshotOf(it);
    expect(() => it.manager.aliases.forget('orders')).toThrow(/1 dead letter speaks of "archive" as "orders".*discard/);
    expect(() => it.manager.aliases.forget('archive.name')).toThrow(
      /1 dead letter speaks of "title" of "archive" as "name"/,
    );
    expect(snapshotOf(it)).toEqual(before);
    for (const { id } of it.manager.deadLetters.list()) it.manager.deadLetters.discard(id);
    it.manager.aliases.forget('orders');
    it.manager.aliases.forget('archive.name');
    expect(it.manager.aliases.list()).toEqual([]);
  });

  test('an edit that was lost under it is still that of its column', async () => {
    const it = await node({ schema: ORDERS, tables: ['orders'] });
    it.db.exec(
      `INSERT INTO orders VALUES ('a', 'first', ${T}); UPDATE orders SET name = 'mine', updated_at = ${T + 1}`,
    );
    const change = { ...said('a', 'orders', { name: 'theirs' }), op: 'UPDATE', base: T };
    it.manager.receive(JSON.stringify({ batch_id: 1, changes: [change] }), { from: 'b', said: 'id=b' });
    const [lost] = it.manager.conflicts.list();
    if (!lost) throw new Error('no conflict');
    it.manager.migrate('ALTER TABLE orders RENAME COLUMN name TO title', { rename: { orders: { name: 'title' } } });
    it.manager.aliases.drop();
    it.manager.aliases.forget('orders.name');
    it.manager.migrate('ALTER TABLE orders ADD COLUMN name TEXT');
    it.manager.conflicts.restore(lost.conflictId);
    expect(it.all('SELECT name, title FROM orders')).toEqual([{ name: null, title: 'mine' }]);
  });
});
