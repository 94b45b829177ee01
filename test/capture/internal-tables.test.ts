/** The names that Rowcast needs in a database: what it takes over, what it refuses, and what a temporary table hides. */
import { describe, expect, test } from 'vitest';
import { attach, type Manager, RowcastError } from '../../src/index.ts';
import { INTERNAL_TABLES } from '../../src/sqlite/schema.ts';
import type { TestDatabase } from '../support/lane.ts';
import { captured, cleanUp, database, ITEMS, rowsOf } from '../support/nodes.ts';

function attached(db: TestDatabase, peers: string[] = []): Manager {
  const manager = attach(db, { id: 'node', peers }, ['items']);
  cleanUp(() => manager.stop());
  return manager;
}

describe("an application's own object by such a name is refused, and nothing is changed", () => {
  const cases = INTERNAL_TABLES.flatMap((name) => [
    [`a table ${name}`, name, `CREATE TABLE ${name} (a, b); INSERT INTO ${name} VALUES (1, 2)`],
    [`a view ${name}`, name, `CREATE VIEW ${name} AS SELECT 1 AS key, 2 AS value`],
    [`a virtual table ${name}`, name, `CREATE VIRTUAL TABLE ${name} USING fts5(key, value)`],
    [`an index ${name}`, name, `CREATE INDEX ${name} ON items (name)`],
    [`a trigger ${name}`, name, `CREATE TRIGGER ${name} AFTER INSERT ON items BEGIN SELECT 1; END`],
  ]);
  test.each(cases)('%s', async (_what, name, sql) => {
    const db = await database(`${ITEMS};${sql}`);
    const schema = (): unknown => rowsOf(db, 'SELECT * FROM sqlite_schema ORDER BY name');
    const before = schema();
    let refusal: unknown;
    try {
      attached(db);
    } catch (error) {
      refusal = error;
    }
    expect(refusal).toBeInstanceOf(RowcastError);
    expect(refusal).toMatchObject({ code: 'INVALID_DATABASE', hint: expect.stringContaining('rename it') });
    expect((refusal as Error).message).toContain(`"${name}"`);
    expect(schema()).toEqual(before);
  });

  test.each([
    ['a key-value table with a third column', 'CREATE TABLE _meta (key TEXT, value TEXT, secret TEXT)'],
    ['tombstones with their own columns', 'CREATE TABLE _tombstones (table_name, row_id, version, grave TEXT)'],
    ['in another spelling', 'CREATE TABLE _META (id INTEGER PRIMARY KEY, author TEXT)'],
  ])('%s', async (_what, sql) => {
    const db = await database(`${ITEMS};${sql}`);
    expect(() => attached(db)).toThrow(/another shape/);
  });

  test.each([
    [
      'of the first build',
      'CREATE TABLE _tombstones (table_name TEXT, row_id TEXT, is_delete INTEGER, version INTEGER)',
    ],
    ['as many would write it', 'CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT)'],
    ['in another order and spelling', 'CREATE TABLE _Meta ("Value", KEY PRIMARY KEY)'],
    ['of another implementation', 'CREATE TABLE _peer_state (peer TEXT PRIMARY KEY, watermark INTEGER, since TEXT)'],
  ])('a known shape is taken over: %s', async (_what, sql) => {
    const db = await database(`${ITEMS};${sql}`);
    attached(db);
    db.exec("INSERT INTO items VALUES ('a', 'n', 1, 1, 1000)");
    expect(captured(db)).toHaveLength(1);
  });
});

test('the peers of the build before there were keys keep how far they are, and no node is held to them yet', async () => {
  const before =
    'CREATE TABLE _peer_state (peer_url TEXT PRIMARY KEY, last_acked INTEGER DEFAULT 0, shipped INTEGER DEFAULT 0, ' +
    'tail_from INTEGER, snapshot_table TEXT, snapshot_after TEXT, snapshot_of TEXT, snapshot_run INTEGER DEFAULT 0, ' +
    'asks TEXT, paused INTEGER DEFAULT 0, stale INTEGER DEFAULT 0, inc TEXT, removed INTEGER)';
  const row =
    'INSERT INTO _peer_state (peer_url, last_acked, paused, inc) ' + "VALUES ('http://b', 7, 1, '5f0c1e9a77b2d310')";
  const db = await database(`${ITEMS};${before};${row}`);
  attached(db, ['http://b']);
  expect(rowsOf(db, 'SELECT * FROM _peer_state')).toMatchObject([
    { peer_url: 'http://b', last_acked: 7, paused: 1, inc: '5f0c1e9a77b2d310', pinned: null },
  ]);
});

describe('a temporary table by the name of', () => {
  const shadow = (name: string): string => `CREATE TEMP TABLE ${name} AS SELECT * FROM main.${name} WHERE 0`;

  test('a synced one, before the attach: the table itself is captured', async () => {
    const db = await database(`${ITEMS};${ITEMS.replace('TABLE', 'TEMP TABLE')}`);
    attached(db);
    expect(rowsOf(db, "SELECT * FROM sqlite_temp_schema WHERE type = 'trigger'")).toEqual([]);
    db.exec("INSERT INTO main.items VALUES ('a', 'n', 1, 1, 1000); UPDATE main.items SET name = 'm'");
    db.exec('DELETE FROM main.items');
    const ops = rowsOf(db, 'SELECT DISTINCT op FROM main._changes ORDER BY change_id').map(({ op }) => op);
    expect(ops).toEqual(['INSERT', 'UPDATE', 'DELETE']);
  });

  test.each(['items', ...INTERNAL_TABLES])(
    '%s: the bodies of the triggers look in their own database',
    async (name) => {
      const db = await database();
      attached(db);
      db.exec(shadow(name));
      // Without a time, so that the trigger that advances the row runs as well.
      db.exec("INSERT INTO main.items VALUES ('a', 'n', 1, 1, NULL); UPDATE main.items SET name = 'm'");
      db.exec('DELETE FROM main.items');
      expect(rowsOf(db, 'SELECT op FROM main._changes').at(-1)).toEqual({ op: 'DELETE' });
      expect(rowsOf(db, 'SELECT row_id FROM main._tombstones')).toEqual([{ row_id: 'a' }]);
      expect(rowsOf(db, `SELECT * FROM temp.${name}`)).toEqual([]);
    },
  );

  test.each(INTERNAL_TABLES)(
    '%s: a second attach brings everything up to date in the database itself',
    async (name) => {
      const db = await database();
      await attached(db).stop();
      db.exec(`${shadow(name)}; ALTER TABLE main.items ADD COLUMN colour TEXT`);
      attached(db);
      db.exec("INSERT INTO main.items VALUES ('a', 'n', 1, 1, 1000, 'red')");
      const [change] = rowsOf(db, 'SELECT row_data FROM main._changes');
      expect(JSON.parse(change?.row_data as string)).toMatchObject({ colour: 'red' });
      expect(rowsOf(db, `SELECT * FROM temp.${name}`)).toEqual([]);
    },
  );
});
