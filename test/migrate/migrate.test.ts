/** Migrations on one node: all or nothing, every row that they change is recorded, and what waits is still understood. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import type { MigrateOptions, Migration } from '../../src/index.ts';
import { detached } from '../../src/migrate/detached.ts';
import { migrate, sendNewNames } from '../../src/migrate/migrate.ts';
import { INTERNAL_TABLES } from '../../src/sqlite/schema.ts';
import { expectSameElsewhere, origin } from '../support/elsewhere.ts';
import {
  captured,
  database,
  exactRows,
  node,
  rowsOf,
  scratchFolder,
  type TestNode,
  writeStamps,
} from '../support/nodes.ts';

const T = 1_700_000_000_000;

/** One node with two rows, which everybody has, and then one that is pending. */
async function filled(schema?: string): Promise<TestNode> {
  const it = await node(schema === undefined ? {} : { schema });
  it.db.exec(`INSERT INTO items (id, name, value, updated_at) VALUES ('a', 'one', 1, ${T}), ('b', 'two', 2, ${T})`);
  it.db.exec('DELETE FROM _changes');
  it.db.exec(`INSERT INTO items (id, name, value, updated_at) VALUES ('p', 'pending', 3, ${T})`);
  return it;
}

/** The ids that were recorded, without the one that was pending. */
const recorded = (it: TestNode): string[] =>
  captured(it.db)
    .slice(1)
    .map(({ op, row_id }) => `${op} ${row_id}`);

const snapshotOf = ({ db }: TestNode): unknown => [
  rowsOf(db, 'SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name'),
  rowsOf(db, 'SELECT * FROM _changes'),
  rowsOf(db, 'SELECT * FROM _meta ORDER BY key'),
  rowsOf(db, 'SELECT * FROM _stamps'),
  rowsOf(db, 'SELECT * FROM _tombstones'),
];

const RENAME = 'ALTER TABLE items RENAME COLUMN name TO title';
const RENAMED: MigrateOptions = { rename: { items: { name: 'title' } } };

describe('every change of a schema, with changes pending', () => {
  const REBUILD =
    'CREATE TABLE new_items (id TEXT PRIMARY KEY, name TEXT NOT NULL, value INTEGER, created_at INTEGER, ' +
    'updated_at INTEGER); INSERT INTO new_items SELECT * FROM items; DROP TABLE items; ' +
    'ALTER TABLE new_items RENAME TO items';
  const cases: [string, Migration, MigrateOptions, string[]][] = [
    ['a column is added', 'ALTER TABLE items ADD COLUMN slug TEXT', {}, []],
    ['with a default', "ALTER TABLE items ADD COLUMN slug TEXT NOT NULL DEFAULT 'x'", {}, []],
    ['a column is renamed', RENAME, RENAMED, []],
    ['a column is dropped', 'ALTER TABLE items DROP COLUMN value', {}, []],
    ['the table is renamed', 'ALTER TABLE items RENAME TO things', { renameTable: { items: 'things' } }, []],
    ['the table is rebuilt', REBUILD, {}, []],
    ['an index is made', 'CREATE INDEX by_name ON items (name)', {}, []],
    [
      'a column is filled in',
      "ALTER TABLE items ADD COLUMN slug TEXT; UPDATE items SET slug = 's-' || name WHERE id <> 'b'",
      {},
      ['UPDATE a', 'UPDATE p'],
    ],
    ['a row is changed at its time', "UPDATE items SET name = 'new' WHERE id = 'a'", {}, ['UPDATE a']],
    ['at a later time', `UPDATE items SET updated_at = ${T + 500} WHERE id = 'a'`, {}, ['UPDATE a']],
    ['at an earlier one', `UPDATE items SET updated_at = 5, name = 'new' WHERE id = 'a'`, {}, ['UPDATE a']],
    [
      'rows come and go',
      "DELETE FROM items WHERE id = 'a'; INSERT INTO items (id) VALUES ('z')",
      {},
      ['INSERT z', 'DELETE a'],
    ],
    ['an id is changed', "UPDATE items SET id = 'c' WHERE id = 'a'", {}, ['INSERT c', 'DELETE a']],
    ['a type is changed', REBUILD.replace('value INTEGER', 'value TEXT'), {}, []],
    [
      'and values with it',
      REBUILD.replace('value INTEGER', 'value TEXT').replace('SELECT *', 'SELECT id, name, value || id, 1, updated_at'),
      {},
      ['UPDATE a', 'UPDATE b', 'UPDATE p'],
    ],
    ['nothing is done', '', {}, []],
  ];

  test.each(cases)('%s', async (_, migration, options, expected) => {
    const it = await filled();
    it.manager.migrate(migration, options);
    expect(recorded(it)).toEqual(expected);
    expect(it.manager.health()).toMatchObject({ ok: true, problems: [], dead_letter: 0 });
    // What was pending is there still, and a node with the old schema takes all of it.
    const other = await node();
    const body = rowsOf(it.db, 'SELECT op, table_name, row_id, row_data FROM _changes ORDER BY change_id').map(
      (one) => ({
        op: one.op,
        table: one.table_name,
        row: JSON.parse(one.row_data as string),
        old_id: one.op === 'DELETE' ? one.row_id : null,
      }),
    );
    other.db.exec(
      `INSERT INTO items (id, name, value, updated_at) VALUES ('a', 'one', 1, ${T}), ('b', 'two', 2, ${T})`,
    );
    other.manager.receive(JSON.stringify({ batch_id: 1, changes: body }), { said: 'id=x' });
    const table = options.renameTable ? 'things' : 'items';
    writeStamps(it.manager);
    const versions = (db: TestNode['db'], name: string): unknown =>
      rowsOf(db, `SELECT id, updated_at FROM ${name} ORDER BY id`);
    expect(versions(other.db, 'items')).toEqual(versions(it.db, table));
    // And capture goes on.
    it.db.exec(`UPDATE ${table} SET updated_at = ${T + 9_999_999} WHERE id = 'p'`);
    expect(captured(it.db).at(-1)).toMatchObject({ op: 'UPDATE', row_id: 'p' });
  });

  test.each(cases.toReversed())('%s, and then something fails: nothing has happened', async (_, migration, options) => {
    const it = await filled();
    const before = snapshotOf(it);
    const fails = `${migration as string}; INSERT INTO nowhere VALUES (1)`;
    expect(() => it.manager.migrate(fails, options)).toThrow(/nowhere.*nothing was changed/);
    expect(snapshotOf(it)).toEqual(before);
    it.db.exec(`UPDATE items SET updated_at = ${T + 1} WHERE id = 'a'`);
    expect(recorded(it)).toEqual(['UPDATE a']);
    expect(it.manager.health().ok).toBe(true);
  });
});

describe('the versions of rows that a migration changes', () => {
  test('are above the last one, and what is recorded is what stands', async () => {
    const it = await filled();
    it.manager.migrate("UPDATE items SET name = 'x' WHERE id = 'a'; UPDATE items SET updated_at = 3 WHERE id = 'b'");
    expect(it.all('SELECT id, name, updated_at FROM items WHERE id < ? ORDER BY id', 'p')).toEqual([
      { id: 'a', name: 'x', updated_at: T + 1 },
      { id: 'b', name: 'two', updated_at: T + 1 },
    ]);
    const rows = captured(it.db).slice(1);
    expect(rows.map(({ row }) => [row.id, row.name, row.updated_at])).toEqual([
      ['a', 'x', T + 1],
      ['b', 'two', T + 1],
    ]);
  });

  test('a row that is gone leaves a tombstone, and one that comes back stands above it', async () => {
    const it = await filled();
    it.manager.migrate("DELETE FROM items WHERE id = 'a'");
    expect(rowsOf(it.db, 'SELECT row_id, version FROM _tombstones')).toEqual([{ row_id: 'a', version: T }]);
    it.manager.migrate("INSERT INTO items (id, name, updated_at) VALUES ('a', 'again', 7)");
    expect(it.all("SELECT updated_at FROM items WHERE id = 'a'")).toEqual([{ updated_at: T + 1 }]);
  });
});

describe('a column that was renamed', () => {
  test('travels under the name that it had, and is understood under both', async () => {
    const it = await filled();
    it.manager.migrate(RENAME, RENAMED);
    it.db.exec(`UPDATE items SET title = 'here', updated_at = ${T + 1} WHERE id = 'a'`);
    expect(captured(it.db).at(-1)?.row).toMatchObject({ id: 'a', name: 'here' });
    const send = (row: object): unknown =>
      it.manager.receive(
        JSON.stringify({ batch_id: 1, changes: [{ op: 'UPDATE', table: 'items', row, old_id: null }] }),
      ).body;
    expect(send({ id: 'a', name: 'old', value: 1, created_at: null, updated_at: T + 2 })).toEqual({
      applied: 1,
      ack: 1,
    });
    expect(it.all("SELECT title FROM items WHERE id = 'a'")).toEqual([{ title: 'old' }]);
    expect(send({ id: 'a', title: 'new', updated_at: T + 3 })).toEqual({ applied: 1, ack: 1 });
    expect(it.all("SELECT title FROM items WHERE id = 'a'")).toEqual([{ title: 'new' }]);
    // As a hub puts it together: the latest first.
    expect(send({ id: 'a', title: 'latest', updated_at: T + 4, name: 'stale' })).toEqual({ applied: 1, ack: 1 });
    expect(it.all("SELECT title FROM items WHERE id = 'a'")).toEqual([{ title: 'latest' }]);
    expect(send({ id: 'a', name: 'latest again', updated_at: T + 5, title: 'stale' })).toEqual({ applied: 1, ack: 1 });
    expect(it.all("SELECT title FROM items WHERE id = 'a'")).toEqual([{ title: 'latest again' }]);
    expect(it.manager.health().dead_letter).toBe(0);
  });

  test('again: it keeps the name that others know; and dropping the aliases ends it', async () => {
    const it = await filled();
    it.manager.migrate(RENAME, RENAMED);
    it.manager.migrate('ALTER TABLE items RENAME COLUMN title TO label', { rename: { items: { title: 'label' } } });
    expect(it.manager.aliases.list()).toEqual([
      { table: 'items', column: 'label', was: 'name', sent: true },
      { table: 'items', column: 'label', was: 'title', sent: false },
    ]);
    expect(captured(it.db).map(({ row }) => row.name)).toEqual(['pending']);
    it.manager.aliases.drop();
    expect(it.manager.aliases.list().map(({ sent }) => sent)).toEqual([false, false]);
    expect(captured(it.db)).toEqual([
      { op: 'INSERT', row_id: 'p', row: { id: 'p', label: 'pending', value: 3, created_at: null, updated_at: T } },
    ]);
    const row = { id: 'a', name: 'still understood', updated_at: T + 3 };
    it.manager.applyChanges([{ op: 'UPDATE', table: 'items', row, old_id: null }]);
    expect(it.all("SELECT label FROM items WHERE id = 'a'")).toEqual([{ label: 'still understood' }]);
  });

  test('by a tool of its own and not by migrate: it is followed, and said', async () => {
    const it = await filled();
    const warnings: string[] = [];
    it.manager.on('warning', ({ code, message }) => warnings.push(`${code}: ${message}`));
    it.db.exec(RENAME);
    it.db.exec(`UPDATE items SET title = 'x', updated_at = ${T + 1} WHERE id = 'a'`);
    writeStamps(it.manager);
    await Promise.resolve();
    expect(warnings).toEqual([
      expect.stringMatching(/^column-renamed: column "name" of "items" was renamed to "title"/),
    ]);
    expect(captured(it.db).map(({ row }) => row.name)).toEqual(['pending', 'x']);
    expect(it.manager.health().ok).toBe(true);
  });

  test('by rebuilding the table, and told afterwards: what came under the old name meanwhile is not lost', async () => {
    const it = await filled();
    const warnings: string[] = [];
    it.manager.on('warning', ({ message }) => warnings.push(message));
    it.db.exec(
      'CREATE TABLE made (id TEXT PRIMARY KEY, title TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER); ' +
        'INSERT INTO made SELECT * FROM items; DROP TABLE items; ALTER TABLE made RENAME TO items',
    );
    const row = { id: 'a', name: 'from a node that has it', value: 5, created_at: null, updated_at: T + 5 };
    const change = { op: 'UPDATE' as const, table: 'items', row, old_id: null };
    it.manager.applyChanges([change, { ...change, row: { ...row, id: 'b' } }]);
    await Promise.resolve();
    expect(warnings).toEqual([expect.stringContaining("migrate('', { rename: { items: { name: 'title' } } })")]);
    expect(it.manager.health().dead_letter).toBe(2);
    // This one has moved on: a newer write of the whole row stands.
    it.db.exec(`UPDATE items SET title = 'newer', updated_at = ${T + 9} WHERE id = 'b'`);
    it.manager.migrate('', RENAMED);
    await it.manager.flush();
    expect(it.all('SELECT id, title, value, updated_at FROM items WHERE id < ? ORDER BY id', 'p')).toEqual([
      { id: 'a', title: 'from a node that has it', value: 5, updated_at: T + 6 },
      { id: 'b', title: 'newer', value: 5, updated_at: T + 9 },
    ]);
    expect(it.manager.health().dead_letter).toBe(0);
    expect(captured(it.db).at(-1)?.row).toEqual({ ...row, updated_at: T + 6 });
  });

  test('on a node that is not migrated yet, under the new name: it is kept, and lands with the migration', async () => {
    const it = await filled();
    const row = { id: 'a', title: 'new', value: 5, created_at: null, updated_at: T + 5 };
    it.manager.applyChanges([{ op: 'UPDATE', table: 'items', row, old_id: null }]);
    // As a hub would put it together: what the node itself has written since comes first, and counts.
    const merged = { id: 'b', name: 'its own', updated_at: T + 7, title: 'stale' };
    it.manager.applyChanges([{ op: 'UPDATE', table: 'items', row: merged, old_id: null }]);
    expect(it.manager.health().dead_letter).toBe(2);
    it.manager.migrate(RENAME, RENAMED);
    await it.manager.flush();
    expect(it.all('SELECT id, title, updated_at FROM items WHERE id < ? ORDER BY id', 'p')).toEqual([
      { id: 'a', title: 'new', updated_at: T + 6 },
      { id: 'b', title: 'its own', updated_at: T + 7 },
    ]);
    expect(it.manager.health().dead_letter).toBe(0);
  });

  test('two of them in one letter', async () => {
    const it = await filled();
    const row = { id: 'a', title: 'new', amount: 5, created_at: null, updated_at: T + 5 };
    it.manager.applyChanges([{ op: 'UPDATE', table: 'items', row, old_id: null }]);
    it.manager.migrate(`${RENAME}; ALTER TABLE items RENAME COLUMN value TO amount`, {
      rename: { items: { name: 'title', value: 'amount' } },
    });
    await it.manager.flush();
    expect(it.all("SELECT title, amount FROM items WHERE id = 'a'")).toEqual([{ title: 'new', amount: 5 }]);
    expect(it.manager.health().dead_letter).toBe(0);
  });

  test('hidden rows and their letters go along', async () => {
    const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER)';
    const it = await node({ schema });
    const row = (id: string, at: number) => ({
      op: 'INSERT' as const,
      table: 'items',
      row: { id, name: 'n', updated_at: at },
      old_id: null,
    });
    it.manager.applyChanges([row('weak', T), row('strong', T + 1)]);
    expect(it.all('SELECT id FROM items')).toEqual([{ id: 'strong' }]);
    it.manager.migrate('ALTER TABLE items RENAME TO things; ALTER TABLE things RENAME COLUMN name TO title', {
      rename: { items: { name: 'title' } },
      renameTable: { items: 'things' },
    });
    it.manager.aliases.drop();
    it.db.exec("UPDATE things SET title = 'other' WHERE id = 'strong'");
    it.manager.receive(
      '{"batch_id":1,"changes":[{"op":"INSERT","table":"things","row":{"id":"x","title":"q","updated_at":50},"old_id":null}]}',
    );
    expect(it.all('SELECT id, title FROM things ORDER BY id')).toEqual([
      { id: 'strong', title: 'other' },
      { id: 'weak', title: 'n' },
      { id: 'x', title: 'q' },
    ]);
    expect(it.manager.health().dead_letter).toBe(0);
  });
});

describe('a column that was dropped', () => {
  test('is not missed: what others say of it is passed over, and a letter about it goes', async () => {
    const it = await filled();
    it.manager.migrate('ALTER TABLE items DROP COLUMN value');
    const row = { id: 'a', name: 'n', value: 9, created_at: null, updated_at: T + 1 };
    const { body } = it.manager.receive(
      JSON.stringify({ batch_id: 1, changes: [{ op: 'UPDATE', table: 'items', row, old_id: null }] }),
    );
    expect(body).toEqual({ applied: 1, ack: 1 });
    expect(it.manager.health().dead_letter).toBe(0);
    it.manager.migrate('ALTER TABLE items ADD COLUMN value INTEGER');
    it.manager.applyChanges([{ op: 'UPDATE', table: 'items', row: { ...row, updated_at: T + 2 }, old_id: null }]);
    expect(it.all("SELECT value FROM items WHERE id = 'a'")).toEqual([{ value: 9 }]);
  });
});

describe('a table that was renamed', () => {
  test('goes on under its old name for others, and for the list that attach was given', async () => {
    const it = await filled();
    it.db.exec("DELETE FROM items WHERE id = 'a'");
    it.manager.migrate('ALTER TABLE items RENAME TO things', { renameTable: { items: 'things' } });
    expect(rowsOf(it.db, 'SELECT table_name FROM _tombstones')).toEqual([{ table_name: 'things' }]);
    const stale = {
      op: 'INSERT' as const,
      table: 'items',
      row: { id: 'a', name: 'late', updated_at: T },
      old_id: null,
    };
    expect(it.manager.applyChanges([stale])).toBe(0);
    expect(it.all('SELECT id FROM things ORDER BY id')).toEqual([{ id: 'b' }, { id: 'p' }]);
    it.db.exec(`UPDATE things SET name = 'n', updated_at = ${T + 4} WHERE id = 'b'`);
    expect(rowsOf(it.db, 'SELECT DISTINCT table_name FROM _changes')).toEqual([{ table_name: 'items' }]);
    expect(it.manager.health()).toMatchObject({ ok: true, item_count: 2 });
    it.manager.aliases.drop();
    expect(rowsOf(it.db, 'SELECT DISTINCT table_name FROM _changes')).toEqual([{ table_name: 'things' }]);
    expect(it.manager.applyChanges([{ ...stale, row: { ...stale.row, updated_at: T + 9 } }])).toBe(1);
  });

  test('by somebody else: health says it, and telling what it is called mends it', async () => {
    const it = await filled();
    it.db.exec('ALTER TABLE items RENAME TO things');
    writeStamps(it.manager);
    expect(it.manager.health().problems).toEqual([expect.stringContaining('"items" is gone')]);
    it.db.exec(`UPDATE things SET name = 'unseen', updated_at = ${T + 4} WHERE id = 'b'`);
    it.manager.migrate('', { renameTable: { items: 'things' } });
    expect(it.manager.health()).toMatchObject({ ok: true, item_count: 3 });
    it.db.exec(`UPDATE things SET name = 'seen', updated_at = ${T + 5} WHERE id = 'b'`);
    expect(captured(it.db).at(-1)?.row).toMatchObject({ name: 'seen' });
  });
});

describe('what is refused, with nothing changed', () => {
  const refusals: [string, Migration, MigrateOptions, RegExp][] = [
    ['a new name that was not told', RENAME, {}, /lost "name" and got "title".*say which it is: rename/],
    ['a rename that did not happen', '', RENAMED, /"name" is still there/],
    [
      'a rename in case alone',
      'ALTER TABLE items RENAME COLUMN name TO Name',
      { rename: { items: { name: 'Name' } } },
      /case alone.*leave it out/,
    ],
    [
      'a slip in the old name',
      RENAME,
      { rename: { items: { nam: 'title' } } },
      /"nam" of "items" is "title" now, and there was no column "nam"; did you mean name\?/,
    ],
    ['to a column that is not there', 'ALTER TABLE items DROP COLUMN name', RENAMED, /no column "title"/],
    ['a table that is gone', 'DROP TABLE items', {}, /"items" is gone.*renameTable/],
    ['a table rename that did not happen', '', { renameTable: { items: 'things' } }, /"items" is still there/],
    ['a table that is not synced', '', { rename: { others: { a: 'b' } } }, /no such table is synced/],
    ['the key', '', { rename: { items: { id: 'key' } } }, /"id" of "items" cannot be renamed/],
    ['an option that is none', '', { renames: {} } as MigrateOptions, /no option "renames"/],
    ['what is no migration', 7 as unknown as Migration, {}, /must be SQL, or a function/],
    [
      'what takes everything back',
      "UPDATE items SET name = 'x'; /* no */ ROLLBACK; UPDATE items SET name = 'y'",
      {},
      /statement 2 of 3 is ROLLBACK.*nothing was changed/,
    ],
    ['the same by its name', 'rollback transaction "of all"', {}, /statement 1 of 1 is rollback transaction "of all"/],
    ['a function that awaits', (async () => {}) as unknown as Migration, {}, /asynchronous/],
    ['rows, where none were expected', "UPDATE items SET name = 'x'", { backfill: false }, /backfill is false/],
    [
      'rows that are gone with their table',
      'DROP TABLE items; CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER)',
      { backfill: false },
      /backfill is false/,
    ],
    [
      'a table that cannot be synced any more',
      'ALTER TABLE items RENAME COLUMN updated_at TO at',
      {},
      /no INTEGER column "updated_at"/,
    ],
  ];
  test.each(refusals)('%s', async (_, migration, options, message) => {
    const it = await filled();
    const before = snapshotOf(it);
    expect(() => it.manager.migrate(migration, options)).toThrow(message);
    expect(snapshotOf(it)).toEqual(before);
    expect(it.manager.health().ok).toBe(true);
  });

  test('a new column with the name that another still travels under', async () => {
    const it = await filled();
    it.manager.migrate(RENAME, RENAMED);
    const add = 'ALTER TABLE items ADD COLUMN name TEXT';
    expect(() => it.manager.migrate(add)).toThrow(/under which "title" still travels.*drop the alias first/);
    it.manager.aliases.drop();
    expect(() => it.manager.migrate(add)).toThrow(/the name that "title" had before.*aliases -forget items\.name/);
    it.manager.aliases.forget('items.name');
    it.manager.migrate(add);
    it.db.exec(`UPDATE items SET name = 'n', title = 't', updated_at = ${T + 1} WHERE id = 'a'`);
    expect(captured(it.db).at(-1)?.row).toMatchObject({ name: 'n', title: 't' });
  });

  test.each([
    [
      'the frame of a file, which may have a name',
      'BEGIN TRANSACTION one;',
      'COMMIT TRANSACTION "one"; END TRANSACTION',
    ],
    [
      'a savepoint',
      "SAVEPOINT s; UPDATE items SET name = 'y'; ROLLBACK TRANSACTION TO s; ROLLBACK TO SAVEPOINT s;",
      '',
    ],
  ])('but not %s', async (_, before, after) => {
    const it = await filled();
    it.manager.migrate(`${before} UPDATE items SET value = 77 WHERE id = 'a'; ${after}`);
    expect(it.all("SELECT id FROM items WHERE value = 77 OR name = 'y'")).toEqual([{ id: 'a' }]);
    expect(captured(it.db).at(-1)).toMatchObject({ row_id: 'a' });
  });

  test('a transaction of its own: it is noticed, and the triggers are back at once', async () => {
    const it = await filled();
    expect(() => it.manager.migrate((db) => db.exec('ALTER TABLE items ADD COLUMN x TEXT; COMMIT'))).toThrow(
      /ended the transaction/,
    );
    expect(it.manager.health().ok).toBe(true);
    it.db.exec(`UPDATE items SET x = 'n', updated_at = ${T + 1} WHERE id = 'a'`);
    expect(captured(it.db).at(-1)?.row).toMatchObject({ x: 'n' });
  });

  test('what the statements throw is thrown, and foreign keys that would be broken', async () => {
    const it = await filled();
    const before = snapshotOf(it);
    const own = new Error('mine');
    const failing = (): void => {
      it.db.exec('ALTER TABLE items ADD COLUMN x');
      throw own;
    };
    expect(() => it.manager.migrate(failing)).toThrow(own);
    expect(snapshotOf(it)).toEqual(before);
    it.db.exec(
      'PRAGMA foreign_keys = ON; CREATE TABLE notes (id TEXT, item TEXT REFERENCES items (id) ON DELETE CASCADE)',
    );
    it.db.exec("INSERT INTO notes VALUES ('n', 'a')");
    expect(() => it.manager.migrate("DELETE FROM items WHERE id = 'a'")).toThrow(
      /rows of "notes" would refer to rows of "items"/,
    );
    expect(exactRows(it.db, 'items')).toHaveLength(3);
  });

  test('of foreign keys only those that it would break: rows that refer to nothing may have been there before', async () => {
    const it = await filled();
    it.db.exec('PRAGMA foreign_keys = OFF; CREATE TABLE notes (id TEXT, rowid TEXT, item TEXT REFERENCES items (id))');
    it.db.exec("INSERT INTO notes VALUES ('n', 'x', 'gone')");
    it.db.exec('PRAGMA foreign_keys = ON');
    it.manager.migrate('ALTER TABLE items RENAME TO things; ALTER TABLE notes RENAME TO remarks', {
      renameTable: { items: 'things' },
    });
    const other = "UPDATE remarks SET item = 'another'";
    expect(() => it.manager.migrate(other)).toThrow(/rows of "remarks" would refer to rows of "things".*'another'/);
    it.manager.migrate(
      "INSERT INTO things (id, updated_at) VALUES ('another', 1); UPDATE remarks SET item = 'another'",
    );
    const apart = 'CREATE TABLE apart (id TEXT PRIMARY KEY, item TEXT REFERENCES things (id)) WITHOUT ROWID;';
    expect(() => it.manager.migrate(`${apart} INSERT INTO apart VALUES ('p', 'none')`)).toThrow(/rows of "apart"/);
    it.manager.migrate(`${apart} INSERT INTO apart VALUES ('p', 'a')`);
  });
});

test('by another connection, while a node runs on the file: it goes on with the new names', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const it = await node({ path, batchMs: 3_600_000 });
  const warnings: string[] = [];
  it.manager.on('warning', ({ message }) => warnings.push(message));
  it.db.exec(`INSERT INTO items (id, name, updated_at) VALUES ('a', 'one', ${T})`);
  const elsewhere = detached(await database('SELECT 1', path), systemClock, (message) => warnings.push(message));
  migrate(elsewhere, 'ALTER TABLE items RENAME TO things; ALTER TABLE things RENAME COLUMN name TO title', {
    renameTable: { items: 'things' },
    rename: { things: { name: 'title' } },
  });
  it.db.exec(`UPDATE things SET title = 'two', updated_at = ${T + 1}`);
  const changes = (): unknown[] =>
    rowsOf(
      it.db,
      "SELECT table_name AS t, row_data ->> '$.name' AS name, row_data ->> '$.title' AS title FROM _changes",
    );
  expect(changes()).toEqual([
    { t: 'items', name: 'one', title: null },
    { t: 'items', name: 'two', title: null },
  ]);
  const row = { id: 'a', name: 'three', value: 1, created_at: 1, updated_at: T + 2 };
  expect(it.manager.applyChanges([{ op: 'UPDATE', table: 'items', row, old_id: null }])).toBe(1);
  expect(it.all('SELECT title FROM things')).toEqual([{ title: 'three' }]);
  expect(it.manager.health()).toMatchObject({ ok: true, item_count: 1, dead_letter: 0 });
  sendNewNames(elsewhere);
  it.db.exec(`UPDATE things SET title = 'four', updated_at = ${T + 3}`);
  expect(changes().at(-1)).toEqual({ t: 'things', name: null, title: 'four' });
  await it.manager.flush();
  expect(warnings).toEqual([]);
});

test('a table that a migration creates is synced when it is named', async () => {
  const it = await filled();
  const create =
    "CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT, updated_at INTEGER); INSERT INTO notes VALUES ('n', 'b', 5)";
  expect(() => it.manager.migrate('', { addTables: ['notes'] })).toThrow(/"notes" does not exist/);
  it.manager.migrate(create, { addTables: ['notes'] });
  it.db.exec("UPDATE notes SET body = 'c', updated_at = 6");
  expect(captured(it.db).at(-1)?.row).toMatchObject({ id: 'n', body: 'c' });
  expect(it.manager.health()).toMatchObject({ ok: true, item_count: 4 });
});

test('says what it is doing, for whoever waits', async () => {
  const it = await filled();
  const subject = detached(it.db, systemClock, () => {});
  const phases: string[] = [];
  const sql = 'BEGIN; ALTER TABLE items ADD COLUMN colour TEXT; UPDATE items SET colour = 1; COMMIT';
  migrate({ ...subject, at: (phase) => phases.push(phase) }, sql);
  expect(phases).toEqual([
    'noting how the rows are',
    'statement 1 of 2',
    'statement 2 of 2',
    'finding the rows that have changed',
  ]);
});

test.each([
  ['writes', "INSERT INTO items VALUES (NULL, 'x', 1, 1, 1000), (NULL, 'y', 1, 1, NULL)"],
  ['has left without one', "UPDATE items SET id = NULL WHERE name IN ('x', 'y')"],
])('rows without an id that a migration %s have a letter each until they get one', async (_how, sql) => {
  const it = await origin();
  it.db.exec("INSERT INTO items VALUES ('a', 'x', 1, 1, 1000), ('b', 'y', 1, 1, 1000), ('c', 'z', 1, 1, 1000)");
  await it.manager.flush();
  it.manager.migrate(sql);
  await it.manager.flush();
  const letters = it.manager.deadLetters.list().map(({ code, row }) => [code, JSON.parse(row ?? '').name]);
  expect(letters.sort()).toEqual([
    ['no-id', 'x'],
    ['no-id', 'y'],
  ]);
  expect(it.manager.health()).toMatchObject({ dead_letter: 2, pending_changes: 0 });
  it.manager.migrate("UPDATE items SET id = 'got-' || name WHERE id IS NULL");
  await it.manager.flush();
  expect(it.manager.deadLetters.list()).toEqual([]);
  await expectSameElsewhere(it);
});

test('a NUL, after which SQLite reads no further, is refused with what comes before it', async () => {
  const it = await filled();
  const before = snapshotOf(it);
  const sql = 'ALTER TABLE items ADD COLUMN one TEXT;\0ALTER TABLE items ADD COLUMN two TEXT';
  expect(() => it.manager.migrate(sql)).toThrow(/a NUL as its character 39, .*nothing was changed/);
  expect(snapshotOf(it)).toEqual(before);
});

test.each([
  ...INTERNAL_TABLES.map((name) => [`DROP TABLE ${name}`, name]),
  ['ALTER TABLE _changes ADD COLUMN note TEXT', '_changes'],
  ['ALTER TABLE _tombstones RENAME TO graves', '_tombstones'],
])("what takes away one of replication's own tables is refused in words: %s", async (sql, name) => {
  const it = await filled();
  const before = snapshotOf(it);
  let thrown: unknown;
  try {
    it.manager.migrate(sql);
  } catch (error) {
    thrown = error;
  }
  expect(thrown).toMatchObject({
    code: 'INVALID_MIGRATION',
    message: expect.stringMatching(new RegExp(`${name}.*nothing was changed`)),
  });
  expect(snapshotOf(it)).toEqual(before);
});
