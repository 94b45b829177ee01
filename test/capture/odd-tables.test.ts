/** Tables that are out of the ordinary: the application's write never fails because of capture. */
import { describe, expect, test } from 'vitest';
import { expectSameElsewhere, expectSameWithout, life, origin, QUICK } from '../support/elsewhere.ts';
import { captured } from '../support/nodes.ts';

describe('odd tables', () => {
  const TABLES: Record<string, string> = {
    STRICT: 'CREATE TABLE items (id TEXT PRIMARY KEY, name ANY, updated_at INTEGER) STRICT',
    'STRICT with INT': 'CREATE TABLE items (id TEXT PRIMARY KEY NOT NULL, name ANY, updated_at INT) STRICT',
    'WITHOUT ROWID': 'CREATE TABLE items (id TEXT PRIMARY KEY, name, updated_at INTEGER) WITHOUT ROWID',
    'STRICT, WITHOUT ROWID':
      'CREATE TABLE items (id TEXT PRIMARY KEY, name ANY, updated_at INTEGER) STRICT, WITHOUT ROWID',
    'generated columns':
      'CREATE TABLE items (twice AS (name || name) STORED, id TEXT PRIMARY KEY, name, len AS (length(name)), updated_at INTEGER, later AS (updated_at + 1))',
    'a generated column in a WITHOUT ROWID table':
      'CREATE TABLE items (id TEXT PRIMARY KEY, name, len INTEGER GENERATED ALWAYS AS (length(name)) STORED, updated_at INTEGER) WITHOUT ROWID',
    'a column named rowid': 'CREATE TABLE items (id TEXT PRIMARY KEY, rowid, name, updated_at INTEGER)',
    'columns named rowid and oid': 'CREATE TABLE items (id TEXT PRIMARY KEY, RowId, oid, name, updated_at INTEGER)',
    'columns named rowid, oid and _rowid_':
      'CREATE TABLE items (id TEXT PRIMARY KEY, rowid, oid, _rowid_ TEXT, name, updated_at INTEGER)',
    'id last': 'CREATE TABLE items (updated_at INTEGER, name, id VARCHAR(36) NOT NULL, PRIMARY KEY (id DESC))',
    'nothing but id and updated_at besides': 'CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER, name)',
    'collations and defaults':
      "CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT COLLATE NOCASE DEFAULT 'x', note TEXT COLLATE RTRIM DEFAULT (hex(1)), updated_at INTEGER DEFAULT 5)",
    'updated_at with a default and a check':
      'CREATE TABLE items (id TEXT PRIMARY KEY, name, updated_at INTEGER DEFAULT 0 CHECK (updated_at IS NULL OR updated_at > -5))',
    'ON CONFLICT REPLACE on the key':
      'CREATE TABLE items (id TEXT PRIMARY KEY ON CONFLICT REPLACE, name, updated_at INTEGER)',
    'indexes of all kinds':
      'CREATE TABLE items (id TEXT PRIMARY KEY, name, updated_at INTEGER); CREATE INDEX i1 ON items (name DESC, updated_at); CREATE INDEX i2 ON items (length(name)) WHERE name IS NOT NULL',
  };
  const RECURSIVE = Object.entries(TABLES).flatMap(([what, schema]) =>
    ['OFF', 'ON'].map((recursive) => ({ what, schema, recursive })),
  );
  test.each(RECURSIVE)('$what, recursive_triggers $recursive', async ({ schema, recursive }) => {
    const it = await origin({ schema });
    it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
    await expectSameWithout(it, life('items', 'name'));
    expect(it.all('SELECT count(*) AS n FROM items')).toEqual([{ n: 4 }]);
    await expectSameElsewhere(it);
  });

  test('a NOT NULL updated_at that the application forgets fails as it would without capture', async () => {
    const it = await origin({
      schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER NOT NULL)',
    });
    await expectSameWithout(it, [
      "INSERT INTO items (id, name) VALUES ('a', 'x')",
      "INSERT INTO items VALUES ('b', 'x', 1000)",
      "UPDATE items SET name = 'y'",
      'UPDATE items SET updated_at = NULL',
    ]);
    expect(captured(it.db)).toHaveLength(2);
    await expectSameElsewhere(it);
  });

  test('more than 500 columns, which is more arguments than json_object takes in any version', {
    tags: 'long',
  }, async () => {
    const names = Array.from({ length: 518 }, (_, i) => `c${i}`);
    const types = ['TEXT', 'INTEGER', 'REAL', 'NUMERIC', ''];
    const columns = names.map((name, i) => `${name} ${types[i % types.length]}`).join(', ');
    const it = await origin({ schema: `CREATE TABLE items (id TEXT PRIMARY KEY, ${columns}, updated_at INTEGER)` });
    const literals = ["'}'", '9007199254740993', '1e300', "'x}'", "x'7d7d'", 'NULL', "'\"}'"];
    const row = names.map((_, i) => literals[i % literals.length]).join(', ');
    it.db.exec(`INSERT INTO items VALUES ('a', ${row}, 1000), ('b', ${row}, 1000)`);
    it.db.exec("UPDATE items SET c517 = 'last', c0 = '}}', c59 = '}', c60 = '{' WHERE id = 'a'");
    it.db.exec("UPDATE items SET c1 = 5 WHERE id = 'b'");
    it.db.exec("DELETE FROM items WHERE id = 'b'");
    expect(Object.keys(captured(it.db)[0]?.row ?? {})).toEqual(['id', ...names, 'updated_at']);
    await expectSameElsewhere(it, QUICK);
  });

  for (const count of [57, 58, 59, 118, 119]) {
    test(`${count} columns: where one piece of the row's JSON ends and the next begins`, async () => {
      const names = Array.from({ length: count }, (_, i) => `c${i}`);
      const it = await origin({
        schema: `CREATE TABLE items (id TEXT PRIMARY KEY, ${names.join(' TEXT, ')} TEXT, updated_at INTEGER)`,
      });
      it.db.exec(`INSERT INTO items VALUES ('a', ${names.map((_, i) => `'${i}}'`).join(', ')}, 1000)`);
      it.db.exec(`INSERT INTO items VALUES ('b', ${names.map(() => 'NULL').join(', ')}, 1000)`);
      await expectSameElsewhere(it, QUICK);
    });
  }
});
