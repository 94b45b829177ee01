/** Tables, columns, ids and triggers that are out of the ordinary: the application's write never fails because of capture. */
import { describe, expect, test } from 'vitest';
import type { Fetch } from '../../src/send/transport.ts';
import { expectSameElsewhere, type Origin, origin, PEER, q, standstill, state, wipe } from '../support/elsewhere.ts';
import type { TestDatabase } from '../support/lane.ts';
import { captured, database, ITEMS, node, rowsOf, writeStamps } from '../support/nodes.ts';

/** For the many and the large: both paths, each once. */
const QUICK = { ways: ['reversed', 'carefully'] };

/** The same statements on a database without Rowcast: what the application would have without capture. */
async function expectSameWithout(it: Origin, statements: string[]): Promise<void> {
  const plain = await database(it.schema);
  const outcome = (db: TestDatabase, sql: string): string => {
    try {
      db.exec(sql);
      return 'done';
    } catch (error) {
      return String((error as Error).message);
    }
  };
  for (const sql of statements) {
    expect(`${sql}: ${outcome(it.db, sql)}`).toBe(`${sql}: ${outcome(plain, sql)}`);
  }
  for (const table of it.tables) {
    const columns = rowsOf(plain, 'SELECT name FROM pragma_table_xinfo(?)', table)
      .map(({ name }) => String(name))
      .filter((name) => !['updated_at', 'later'].includes(name.toLowerCase()))
      .map((name) => `quote(${q(name)}) AS ${q(name)}`);
    const select = `SELECT ${columns.join(', ')} FROM ${q(table)} ORDER BY id`;
    expect(rowsOf(it.db, select)).toEqual(rowsOf(plain, select));
  }
}

/** Inserts, rewrites, replaces, forgets updated_at, renames, deletes and brings back, in a table with any names. */
function life(table: string, column: string): string[] {
  const [t, c] = [q(table), q(column)];
  return [
    `INSERT INTO ${t} (id, ${c}, updated_at) VALUES ('a', 'one', 1000), ('b', 'two', 1000), ('c', NULL, 1000), ('d', '$x', 1000)`,
    `UPDATE ${t} SET ${c} = 'changed', updated_at = 2000 WHERE id = 'a'`,
    `UPDATE ${t} SET ${c} = 'forgotten' WHERE id = 'b'`,
    `REPLACE INTO ${t} (id, ${c}, updated_at) VALUES ('a', 'replaced', 500)`,
    `UPDATE ${t} SET id = 'renamed' WHERE id = 'c'`,
    `DELETE FROM ${t} WHERE id = 'd'`,
    `INSERT INTO ${t} (id, ${c}, updated_at) VALUES ('d', 'again', 1), ('e', x'00ff', NULL)`,
    `DELETE FROM ${t} WHERE id = 'b'`,
  ];
}

/** Tried one by one: what JSON or SQL escapes, JavaScript's own names, and names that our statements use. */
const ODD_NAMES = [
  ...[
    'with space',
    'double"quote',
    "single'quote",
    '[brackets]',
    'semi;colon',
    'dot.dot',
    '$dollar',
    'back\\slash',
    'a":b',
  ],
  ...[
    'new\nline',
    'select',
    '__proto__',
    'constructor',
    'NEW',
    'OLD',
    'excluded',
    'MixedCase',
    'Ünïcode',
    '🙂',
    't',
    's',
    'd',
  ],
];
/** And together with the others. */
const MORE_NAMES = [
  ...[
    'back`tick',
    '-- x',
    'trailing\\',
    '"',
    '""',
    'tab\there',
    'percent%',
    '?',
    ':name',
    '@at',
    '*',
    '#',
    '1',
    'İ',
    'ſ',
  ],
  ...['table', 'group', 'order', 'key', 'value', 'row', 'op', 'idx', 'ua', 'r', 'g', 'q', 'toString', 'hasOwnProperty'],
  ...[
    'naïve',
    '列',
    'row_data',
    'row_id',
    'table_name',
    'version',
    'v0',
    'd0',
    'json',
    'typeof',
    'null',
    'true',
    'x y',
  ],
];

describe('odd names', () => {
  for (const name of ODD_NAMES) {
    test(`a table and a column named ${JSON.stringify(name)}`, async () => {
      const schema = `CREATE TABLE ${q(name)} (id TEXT PRIMARY KEY, ${q(name)}, updated_at INTEGER)`;
      const it = await origin({ schema, tables: [name] });
      await expectSameWithout(it, life(name, name));
      await expectSameElsewhere(it, QUICK);
    });
  }

  test('all of them at once, as columns of one table', async () => {
    const names = [...ODD_NAMES, ...MORE_NAMES];
    const it = await origin({
      schema: `CREATE TABLE items (id TEXT PRIMARY KEY, ${names.map(q).join(', ')}, updated_at INTEGER)`,
    });
    const values = names.map((_, i) => `'value ${i}'`).join(', ');
    it.db.exec(`INSERT INTO items VALUES ('a', ${values}, 1000), ('b', ${values}, 1000)`);
    it.db.exec(`UPDATE items SET ${names.map((name, i) => `${q(name)} = ${i}`).join(', ')} WHERE id = 'b'`);
    await expectSameElsewhere(it, QUICK);
  });

  test('all of them at once, as tables of one database', async () => {
    const names = [...ODD_NAMES, ...MORE_NAMES];
    const schema = names.map((name) => `CREATE TABLE ${q(name)} (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)`);
    const it = await origin({ schema: schema.join('; '), tables: names });
    for (const name of names) for (const sql of life(name, 'name').slice(0, 3)) it.db.exec(sql);
    await expectSameElsewhere(it, QUICK);
  });

  for (const name of ['d', 't', 's', 'q', 'excluded']) {
    test(`a row that lacks a required column updates a table named ${name}`, async () => {
      const schema = `CREATE TABLE ${name} (id TEXT PRIMARY KEY, name TEXT, required TEXT NOT NULL, updated_at INTEGER)`;
      const it = await node({ schema, tables: [name] });
      it.db.exec(`INSERT INTO ${name} VALUES ('a', 'old', 'kept', 1000)`);
      const row = { id: 'a', name: 'new', updated_at: 2000 };
      expect(it.manager.applyChanges([{ op: 'UPDATE', table: name, row, old_id: null }])).toBe(1);
      expect(it.all(`SELECT * FROM ${name}`)).toEqual([{ ...row, required: 'kept' }]);
    });
  }

  test('id and updated_at in other letters, and a table asked for in other letters', async () => {
    const schema = 'CREATE TABLE Items (ID TEXT PRIMARY KEY, Name TEXT, Updated_At INTEGER)';
    const it = await origin({ schema, tables: ['iTEMS'] });
    await expectSameWithout(it, life('items', 'name'));
    expect(it.all('SELECT DISTINCT table_name FROM _changes')).toEqual([{ table_name: 'Items' }]);
    await expectSameElsewhere(it);
  });
});

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
  for (const [what, schema] of Object.entries(TABLES)) {
    for (const recursive of ['OFF', 'ON']) {
      test(`${what}, recursive_triggers ${recursive}`, async () => {
        const it = await origin({ schema });
        it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
        await expectSameWithout(it, life('items', 'name'));
        expect(it.all('SELECT count(*) AS n FROM items')).toEqual([{ n: 4 }]);
        await expectSameElsewhere(it);
      });
    }
  }

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

  test('more than 500 columns, which is more arguments than json_object takes in any version', async () => {
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

describe('odd values in a write', () => {
  test('BLOBs in every column that takes them', async () => {
    const it = await origin();
    const statements = [
      "INSERT INTO items VALUES ('a', x'', x'00', zeroblob(3), 1000)",
      "INSERT INTO items VALUES ('b', x'ff00fe', randomblob(0), x'7b7d', 1000)",
      "UPDATE items SET name = x'24' WHERE id = 'a'",
      "DELETE FROM items WHERE id = 'b'",
    ];
    await expectSameWithout(it, statements);
    await expectSameElsewhere(it);
  });

  test('a JSON value arrives as the text that it is, not as a nested object', async () => {
    const it = await origin({
      schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, a TEXT, b, c ANY, updated_at INTEGER)',
    });
    it.db.exec(
      `INSERT INTO items VALUES ('a', json('{"x":[1,2]}'), json_array(1, '2', NULL), json_object('k', json('[]')), 1000)`,
    );
    it.db.exec(`INSERT INTO items VALUES ('b', json('"text"'), json('1.50'), json('null'), 1000)`);
    it.db.exec(
      `UPDATE items SET a = json_set(a, '$.y', json('true')), b = jsonb('[1]'), updated_at = 2000 WHERE id = 'a'`,
    );
    it.db.exec(
      "UPDATE items SET c = json_group FROM (SELECT json_group_array(id) AS json_group FROM items) WHERE id = 'b'",
    );
    expect(captured(it.db)[0]?.row).toMatchObject({ a: '{"x":[1,2]}', b: '[1,"2",null]', c: '{"k":[]}' });
    expect(captured(it.db)[2]?.row).toMatchObject({ a: '{"x":[1,2],"y":true}' });
    await expectSameElsewhere(it);
  });

  const IDS = [
    "''",
    "'$'",
    "'$blob:00'",
    "'$text:x'",
    "'$int:1'",
    "'['",
    "'[]'",
    "'{}'",
    '\'{"a":1}\'',
    "'\"'",
    "'back\\slash'",
  ];
  const MORE = [
    "' '",
    "'null'",
    "'0'",
    "'1e5'",
    "'é'",
    "'🙂'",
    "'a' || char(0) || 'b'",
    "x'00ff'",
    "x''",
    'char(10)',
    '12',
    '1.5',
  ];
  for (const id of [...IDS, ...MORE, "'' || json('[1]')", "'$blob:' || char(0) || 'x'"]) {
    test(`the id ${id}`, async () => {
      const it = await origin();
      await expectSameWithout(it, [
        `INSERT INTO items VALUES (${id}, 'n', 1, 1, 5000)`,
        "INSERT INTO items VALUES ('other', 'n', 1, 1, 1000)",
        `UPDATE items SET name = 'x' WHERE id = ${id}`,
        `REPLACE INTO items VALUES (${id}, 'replaced', 1, 1, 1)`,
        `DELETE FROM items WHERE id = ${id}`,
        `INSERT INTO items VALUES (${id}, 'again', 1, 1, 1)`,
        `UPDATE items SET id = 'moved' WHERE id = ${id}`,
        `UPDATE items SET id = ${id} WHERE id = 'other'`,
      ]);
      await expectSameElsewhere(it);
    });
  }
});

describe('NULL ids', () => {
  const statements = [
    "INSERT INTO items VALUES (NULL, 'first', 1, 1, 1000), (NULL, 'second', 2, 2, NULL)",
    "INSERT INTO items VALUES ('a', 'named', 1, 1, 1000)",
    "UPDATE items SET value = 5 WHERE name = 'first'",
    "UPDATE items SET value = 6, updated_at = 1 WHERE name = 'first'",
    "INSERT INTO items VALUES (NULL, 'third', 3, 3, 1000)",
    "DELETE FROM items WHERE name = 'third'",
    "INSERT OR REPLACE INTO items VALUES (NULL, 'fourth', 3, 3, 1000)",
  ];

  test('the writes stand, and each row that has none is a dead letter with a reason instead of going missing', async () => {
    const it = await origin();
    await expectSameWithout(it, statements);
    const nameless = captured(it.db).filter(({ row_id }) => row_id === null);
    expect(new Set(nameless.map(({ row }) => row.name))).toEqual(new Set(['first', 'second', 'third', 'fourth']));
    await expectSameElsewhere(it);
    const letters = it.manager.deadLetters.list();
    expect(letters).toHaveLength(3);
    expect(
      letters.every(({ reason, table, rowId }) => /no id/.test(reason ?? '') && table === 'items' && rowId === null),
    ).toBe(true);
    expect(new Set(letters.map(({ row }) => JSON.parse(row ?? '{}').name))).toEqual(
      new Set(['first', 'second', 'fourth']),
    );
    expect(it.manager.health().dead_letter).toBe(3);
  });

  test('a row that gets its id later is replicated from then on', async () => {
    const it = await origin();
    it.db.exec("INSERT INTO items VALUES (NULL, 'late', 1, 1, 1000)");
    it.db.exec("UPDATE items SET id = 'late'");
    it.db.exec("INSERT INTO items VALUES ('lost', 'x', 1, 1, 1000)");
    it.db.exec("UPDATE items SET id = NULL WHERE id = 'lost'");
    await expectSameElsewhere(it);
    expect(it.manager.deadLetters.list().length).toBeGreaterThan(0);
  });

  test('a peer that is enrolled after the write gets a letter for it too, not silence', async () => {
    const first = await node();
    first.db.exec("INSERT INTO items VALUES (NULL, 'nameless', 1, 1, 1000), ('a', 'named', 1, 1, 1000)");
    await first.manager.stop();
    const { attach } = await import('../../src/index.ts');
    const bodies: string[] = [];
    const fetch: Fetch = async (_url, { body }) => {
      bodies.push(new TextDecoder().decode(body));
      return { status: 200, text: async () => JSON.stringify({ ack: JSON.parse(bodies.at(-1) ?? '').batch_id }) };
    };
    const manager = attach(first.db, { id: 'n', peers: [PEER], clock: standstill, batchMs: 3_600_000, fetch }, [
      'items',
    ]);
    await manager.flush();
    expect(bodies.join()).toContain('named');
    expect(manager.deadLetters.list().map(({ row }) => JSON.parse(row ?? '{}').name)).toEqual(['nameless']);
    await manager.stop();
  });
});

describe('foreign keys', () => {
  const PARENTS = 'CREATE TABLE parents (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';
  const child = (action: string): string =>
    `${PARENTS}; CREATE TABLE children (id TEXT PRIMARY KEY, parent TEXT DEFAULT 'p2' REFERENCES parents (id) ${action}, updated_at INTEGER)`;
  const fill = [
    "INSERT INTO parents VALUES ('p1', 'x', 1000), ('p2', 'y', 1000)",
    "INSERT INTO children VALUES ('c1', 'p1', 1000), ('c2', 'p1', 5000), ('c3', 'p2', 1000)",
  ];
  const ACTIONS: [string, string][] = [
    ['ON DELETE CASCADE', "DELETE FROM parents WHERE id = 'p1'"],
    ['ON DELETE SET NULL', "DELETE FROM parents WHERE id = 'p1'"],
    ['ON DELETE SET DEFAULT', "DELETE FROM parents WHERE id = 'p1'"],
    ['ON UPDATE CASCADE', "UPDATE parents SET id = 'p9', updated_at = 2000 WHERE id = 'p1'"],
    ['ON UPDATE CASCADE ON DELETE CASCADE', "UPDATE parents SET id = 'p9' WHERE id = 'p1'"],
    ['ON DELETE CASCADE', "REPLACE INTO parents VALUES ('p1', 'replaced', 2000)"],
    ['ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED', "REPLACE INTO parents VALUES ('p1', 'replaced', 1)"],
    ['ON DELETE RESTRICT', "DELETE FROM parents WHERE id = 'p1'"],
  ];
  for (const [action, sql] of ACTIONS) {
    for (const recursive of ['OFF', 'ON']) {
      test(`${action}: ${sql.split(' ')[0]}, recursive_triggers ${recursive}`, async () => {
        const it = await origin({
          schema: `PRAGMA foreign_keys = ON; ${child(action)}`,
          tables: ['parents', 'children'],
        });
        it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
        await expectSameWithout(it, [...fill, sql]);
        await expectSameElsewhere(it);
      });
    }
  }

  test('a cascade is captured as the deletion of every child', async () => {
    const it = await origin({
      schema: `PRAGMA foreign_keys = ON; ${child('ON DELETE CASCADE')}`,
      tables: ['parents', 'children'],
    });
    for (const sql of [...fill, "DELETE FROM parents WHERE id = 'p1'"]) it.db.exec(sql);
    const deleted = captured(it.db).filter(({ op }) => op === 'DELETE');
    expect(deleted.map(({ row_id }) => row_id).sort()).toEqual(['c1', 'c2', 'p1']);
    await expectSameElsewhere(it);
  });

  test('a table that refers to itself', async () => {
    const schema =
      'PRAGMA foreign_keys = ON; CREATE TABLE items (id TEXT PRIMARY KEY, up TEXT REFERENCES items (id) ON DELETE CASCADE ON UPDATE CASCADE, updated_at INTEGER)';
    const it = await origin({ schema });
    await expectSameWithout(it, [
      "INSERT INTO items VALUES ('a', NULL, 1000), ('b', 'a', 1000), ('c', 'b', 1000), ('x', 'x', 1000)",
      "UPDATE items SET id = 'b2' WHERE id = 'b'",
      "DELETE FROM items WHERE id = 'b2'",
    ]);
    await expectSameElsewhere(it);
  });
});

describe('a second UNIQUE constraint', () => {
  const EMAILS = 'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT UNIQUE, name TEXT, updated_at INTEGER)';
  for (const recursive of ['OFF', 'ON']) {
    describe(`recursive_triggers ${recursive}`, () => {
      const start = async (schema = EMAILS): Promise<Origin> => {
        const it = await origin({ schema });
        it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
        return it;
      };

      test('a row that INSERT OR REPLACE removes is captured as a DELETE and leaves a tombstone', async () => {
        const it = await start();
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x@y', 'victim', 7000)",
          "INSERT OR REPLACE INTO items VALUES ('b', 'x@y', 'winner', 1000)",
        ]);
        expect(captured(it.db)).toContainEqual({
          op: 'DELETE',
          row_id: 'a',
          row: { id: 'a', email: 'x@y', name: 'victim', updated_at: 7000 },
        });
        expect(it.all('SELECT row_id, version FROM _tombstones')).toEqual([{ row_id: 'a', version: 7000 }]);
        it.db.exec("INSERT INTO items VALUES ('a', 'other', 'back', 1)");
        expect(it.all("SELECT updated_at FROM items WHERE id = 'a'")).toEqual([{ updated_at: 7001 }]);
        expect(it.all('SELECT * FROM _replaced')).toEqual([]);
        await expectDeletedFirst(it);
      });

      test('UPDATE OR REPLACE of the unique value does the same', async () => {
        const it = await start();
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x', 'victim', 7000), ('b', 'y', 'winner', 1000), ('c', 'z', 'bystander', 1000)",
          "UPDATE OR REPLACE items SET email = 'x' WHERE id = 'b'",
          "UPDATE OR REPLACE items SET email = 'w', updated_at = 3000 WHERE id = 'c'",
        ]);
        expect(
          captured(it.db)
            .filter(({ op }) => op === 'DELETE')
            .map(({ row_id }) => row_id),
        ).toContain('a');
        await expectDeletedFirst(it);
      });

      test('REPLACE that hits one row by id and another by the unique value', async () => {
        const it = await start();
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x', 'by id', 7000), ('b', 'y', 'by value', 8000)",
          "REPLACE INTO items VALUES ('a', 'y', 'both', 1000)",
        ]);
        expect(it.all('SELECT id, updated_at FROM items')).toEqual([{ id: 'a', updated_at: 7001 }]);
        await expectDeletedFirst(it);
      });

      test('SET id and the unique value at once, over two living rows', async () => {
        const it = await start();
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x', 'mover', 1000), ('b', 'y', 'by id', 8000), ('c', 'z', 'by value', 9000)",
          "UPDATE OR REPLACE items SET id = 'b', email = 'z' WHERE id = 'a'",
        ]);
        expect(it.all('SELECT id, email, name FROM items')).toEqual([{ id: 'b', email: 'z', name: 'mover' }]);
        await expectDeletedFirst(it);
      });

      const MANY =
        'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT COLLATE NOCASE UNIQUE, a INTEGER, b TEXT, name TEXT, updated_at INTEGER, UNIQUE (a, b))';
      test('several constraints, a collation, a pair of columns, and NULLs that never clash', async () => {
        const it = await start(MANY);
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('1', 'A@B', 1, 'x', 'v1', 1000), ('2', 'c@d', 1, 'y', 'v2', 2000), ('3', NULL, NULL, 'y', 'v3', 1000), ('4', 'e', 2, 'x', 'v4', 1000)",
          "REPLACE INTO items VALUES ('5', 'a@b', 1, 'y', 'two at a blow', 10)",
          "REPLACE INTO items VALUES ('6', NULL, NULL, 'y', 'none', 10)",
          "UPDATE OR REPLACE items SET email = 'E' WHERE id = '5'",
        ]);
        expect(it.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: '3' }, { id: '5' }, { id: '6' }]);
        await expectDeletedFirst(it);
      });

      test('a unique index over a generated column', async () => {
        const it = await start(
          'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT, low TEXT AS (lower(email)), updated_at INTEGER); CREATE UNIQUE INDEX u ON items (low)',
        );
        await expectSameWithout(it, [
          "INSERT INTO items (id, email, updated_at) VALUES ('a', 'X', 7000)",
          "REPLACE INTO items (id, email, updated_at) VALUES ('b', 'x', 1000)",
          "INSERT INTO items (id, email, updated_at) VALUES ('c', 'y', 9000)",
          "UPDATE OR REPLACE items SET email = 'Y' WHERE id = 'b'",
        ]);
        expect(it.all('SELECT id FROM items')).toEqual([{ id: 'b' }]);
        await expectDeletedFirst(it);
      });

      const AB = 'id TEXT PRIMARY KEY, a TEXT, b TEXT, updated_at INTEGER';
      const PAIRS: Record<string, string> = {
        'a UNIQUE virtual column of two': `CREATE TABLE items (${AB}, g TEXT AS (a || '-' || b) UNIQUE)`,
        'a UNIQUE stored column of two': `CREATE TABLE items (${AB}, g TEXT AS (a || '-' || b) STORED UNIQUE)`,
        'a unique index over a generated column and another': `CREATE TABLE items (${AB}, g TEXT AS (lower(a)));
          CREATE UNIQUE INDEX u ON items (g, b)`,
        'an expression over a generated column': `CREATE TABLE items (${AB}, g TEXT AS (a || '-' || b));
          CREATE UNIQUE INDEX u ON items (lower(g))`,
        'a partial index whose condition is generated': `CREATE TABLE items (${AB}, g TEXT AS (a || '-' || b));
          CREATE UNIQUE INDEX u ON items (a, b) WHERE g IS NOT NULL`,
        'a partial index over an expression': `CREATE TABLE items (${AB});
          CREATE UNIQUE INDEX u ON items (a || '-' || b) WHERE b > 'a'`,
        'a generated column in a table WITHOUT ROWID': `CREATE TABLE items (${AB}, g TEXT AS (a || '-' || b) UNIQUE)
          WITHOUT ROWID`,
        'a generated column with a collation': `CREATE TABLE items (${AB},
          g TEXT COLLATE NOCASE AS (upper(a) || '-' || b) UNIQUE)`,
        'a generated column of a generated column': `CREATE TABLE items (${AB}, f TEXT AS (a || '-'),
          g TEXT AS (f || b)); CREATE UNIQUE INDEX u ON items (g)`,
        'UNIQUE ON CONFLICT REPLACE, generated': `CREATE TABLE items (${AB},
          g TEXT AS (a || '-' || b) UNIQUE ON CONFLICT REPLACE)`,
        'PRIMARY KEY ON CONFLICT REPLACE, generated': `CREATE TABLE items (
          ${AB.replace('KEY', 'KEY ON CONFLICT REPLACE')}, g TEXT AS (a || '-' || b) UNIQUE)`,
      };
      for (const [what, schema] of Object.entries(PAIRS)) {
        test(`what REPLACE removes by ${what} is recorded`, async () => {
          const it = await start(schema);
          const columns = '(id, a, b, updated_at)';
          await expectSameWithout(it, [
            `INSERT INTO items ${columns} VALUES ('1', 'x', 'y', 7000), ('2', 'z', 'y', 1000), ('3', 'x', 'w', 9000)`,
            "UPDATE OR REPLACE items SET a = 'x' WHERE id = '2'",
            "UPDATE OR REPLACE items SET b = 'y', updated_at = 9500 WHERE id = '3'",
            `REPLACE INTO items ${columns} VALUES ('4', 'x', 'y', 500), ('5', 'q', 'q', NULL)`,
            "UPDATE OR REPLACE items SET a = 'x', b = 'y', updated_at = NULL WHERE id = '5'",
          ]);
          expect(it.all('SELECT id FROM items')).toEqual([{ id: '5' }]);
          const deleted = captured(it.db).filter(({ op }) => op === 'DELETE');
          expect(new Set(deleted.map(({ row_id }) => row_id))).toEqual(new Set(['1', '2', '3', '4']));
          expect(it.all('SELECT * FROM _replaced')).toEqual([]);
          await expectDeletedFirst(it);
        });
      }

      test('a column that is UNIQUE ON CONFLICT REPLACE by its declaration', async () => {
        const it = await start(EMAILS.replace('UNIQUE', 'UNIQUE ON CONFLICT REPLACE'));
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x', 'victim', 7000)",
          "INSERT INTO items VALUES ('b', 'x', 'winner', 1000)",
          "INSERT INTO items VALUES ('c', 'y', 'n', 1000)",
          "UPDATE items SET email = 'x' WHERE id = 'c'",
        ]);
        expect(it.all('SELECT id FROM items')).toEqual([{ id: 'c' }]);
        await expectDeletedFirst(it);
      });

      test('IGNORE, UPSERT and a failed insert remove nobody and record no deletion', async () => {
        const it = await start();
        await expectSameWithout(it, [
          "INSERT INTO items VALUES ('a', 'x', 'stays', 7000)",
          "INSERT OR IGNORE INTO items VALUES ('b', 'x', 'ignored', 9000)",
          "INSERT INTO items VALUES ('b', 'x', 'fails', 9000)",
          "INSERT INTO items VALUES ('b', 'x', 'upsert', 9000) ON CONFLICT (email) DO UPDATE SET name = excluded.name",
          "UPDATE OR IGNORE items SET email = 'x' WHERE id = 'none'",
          "INSERT INTO items VALUES ('c', 'z', 'unrelated', 1000)",
        ]);
        expect(captured(it.db).filter(({ op }) => op === 'DELETE')).toEqual([]);
        await expectDeletedFirst(it);
      });

      test('a note left by an ignored insert does not turn a later write into a deletion', async () => {
        const it = await start();
        it.db.exec("INSERT INTO items VALUES ('a', 'x', 'stays', 7000)");
        it.db.exec("INSERT OR IGNORE INTO items VALUES ('b', 'x', 'ignored', 9000)");
        it.db.exec("DELETE FROM items WHERE id = 'a'");
        it.db.exec("INSERT INTO items VALUES ('a', 'y', 'back', 8000)");
        it.db.exec("INSERT INTO items VALUES ('c', 'z', 'n', 1000)");
        expect(it.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 'a' }, { id: 'c' }]);
        await expectDeletedFirst(it);
      });
    });
  }

  /**
   * Two rows with one value cannot both live, so on the way a change may have to wait aside; with the deletions first
   * nothing has to. (The order of the other ways would park the loser, which is what the warning at attach says.)
   */
  async function expectDeletedFirst(it: Origin): Promise<void> {
    writeStamps(it.manager);
    const expected = state(it.db, it.tables);
    await it.manager.flush();
    const changes = it.bodies.flatMap((body) =>
      rowsOf(it.db, "SELECT value FROM json_each(?, '$.changes') ORDER BY key", body).map(({ value }) => String(value)),
    );
    const isDelete = (change: string): boolean => change.startsWith('{"op":"DELETE"');
    const sorted = [...changes.filter(isDelete), ...changes.filter((change) => !isDelete(change))];
    const other = await node({ schema: it.schema, tables: it.tables });
    for (const batch of [changes, sorted, changes.toReversed()]) {
      wipe(other.db, it.tables);
      for (let i = 0; i < 3; i++)
        other.manager.receive(`{"batch_id":7,"changes":[${batch.join(',')}]}`, { said: 'id=origin' });
      for (const { id } of other.manager.deadLetters.list()) other.manager.deadLetters.retry(id);
      for (const { id } of other.manager.deadLetters.list()) other.manager.deadLetters.discard(id);
      expect(state(other.db, it.tables)).toEqual(expected);
      expect(other.all('SELECT * FROM _changes')).toEqual([]);
    }
  }
});

describe("the application's own triggers that touch updated_at", () => {
  const NOW = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";
  const GUARD = "(SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1";
  const touch = (when: string, by = 'id = NEW.id'): string =>
    `CREATE TRIGGER touch AFTER UPDATE ON items FOR EACH ROW ${when} BEGIN UPDATE items SET updated_at = ${NOW} WHERE ${by}; END`;
  const TOUCHES: Record<string, string> = {
    'with a WHEN guard': touch('WHEN NEW.updated_at = OLD.updated_at'),
    'with a WHEN guard that minds NULL': touch('WHEN NEW.updated_at IS OLD.updated_at'),
    'without any guard': touch(''),
    'that stands back while changes are applied': touch(`WHEN ${GUARD}`),
    'by rowid': touch('', 'rowid = NEW.rowid'),
    'in seconds, by mistake': touch('').replace(NOW, "CAST(strftime('%s', 'now') AS INTEGER)"),
    'as text, by mistake': touch('').replace(NOW, "datetime('now')"),
    'of certain columns only': touch('').replace('AFTER UPDATE ON', 'AFTER UPDATE OF name, value ON'),
    'on INSERT and UPDATE': `${touch('WHEN NEW.updated_at IS OLD.updated_at')}; CREATE TRIGGER born AFTER INSERT ON items BEGIN UPDATE items SET created_at = ${NOW}, updated_at = ${NOW} WHERE id = NEW.id; END`,
    'on INSERT only where it is missing': `CREATE TRIGGER born AFTER INSERT ON items WHEN NEW.updated_at IS NULL BEGIN UPDATE items SET updated_at = ${NOW} WHERE id = NEW.id; END`,
  };
  const statements = [
    "INSERT INTO items VALUES ('a', 'n', 1, 1, 1000), ('b', 'n', 1, 1, NULL), ('future', 'n', 1, 1, 4102444800000)",
    "UPDATE items SET name = 'forgot' WHERE id = 'a'",
    "UPDATE items SET name = 'forgot'",
    "UPDATE items SET name = 'honest', updated_at = updated_at + 60000",
    "UPDATE items SET name = 'backwards', updated_at = 5",
    "UPDATE items SET name = 'nothing', updated_at = NULL",
    "REPLACE INTO items VALUES ('a', 'replaced', 1, 1, 10), ('future', 'replaced', 1, 1, 10)",
    "UPDATE items SET id = 'renamed' WHERE id = 'b'",
    "DELETE FROM items WHERE id = 'a'",
    "INSERT INTO items VALUES ('a', 'again', 1, 1, 10)",
    "UPDATE items SET value = 9 WHERE id = 'a'",
  ];
  for (const [what, trigger] of Object.entries(TOUCHES)) {
    // A trigger made after attach is noticed before changes are next shipped or applied; here, by an empty batch.
    for (const when of ['before attach', 'after attach', 'after attach and noticed late']) {
      test(`${what}, created ${when}: every write is captured and each version is above the last`, async () => {
        const it = await origin(when === 'before attach' ? { schema: `${ITEMS}; ${trigger}` } : {});
        const notice = () => it.manager.receive('{"batch_id":0,"changes":[]}');
        if (when !== 'before attach') it.db.exec(trigger);
        for (const sql of statements) {
          const before = new Map(it.all('SELECT id, updated_at AS at FROM items').map(({ id, at }) => [id, at]));
          it.db.exec(sql);
          if (when === 'after attach and noticed late') continue;
          if (when === 'after attach') notice();
          for (const { id, at, type } of it.all('SELECT id, updated_at AS at, typeof(updated_at) AS type FROM items')) {
            const versions = captured(it.db)
              .filter(({ row_id, op }) => row_id === id && op !== 'DELETE')
              .map(({ row }) => Number(row.updated_at));
            expect(type, `${sql}: ${id}`).toBe('integer');
            expect(Math.max(...versions), `${sql}: the newest captured version of ${id}`).toBe(at);
            if (!before.has(id) || !/^UPDATE(?!.*WHERE id)/.test(sql)) continue;
            expect(Number(at), `${sql}: ${id}`).toBeGreaterThan(Number(before.get(id)));
          }
        }
        notice();
        await expectSameElsewhere(it, { schema: ITEMS });
      });
    }
  }
});

test('the letter of a row without an id goes when the row gets one, is written again, or is gone', async () => {
  const from = await origin();
  const rows = (): unknown[] => from.manager.deadLetters.list().map(({ row }) => JSON.parse(row ?? '').name);
  from.db.exec("INSERT INTO items VALUES (NULL, 'a', 1, 1, 1000), (NULL, 'b', 1, 1, 1000), (NULL, 'c', 1, 1, NULL)");
  await from.manager.flush();
  expect(rows().sort()).toEqual(['a', 'b', 'c']);
  expect(from.manager.deadLetters.list().every(({ code }) => code === 'no-id')).toBe(true);
  from.db.exec("UPDATE items SET id = 'now' WHERE name = 'a'");
  await from.manager.flush();
  expect(rows().sort()).toEqual(['b', 'c']);
  from.db.exec("UPDATE items SET name = 'B' WHERE name = 'b'; DELETE FROM items WHERE name = 'c'");
  await from.manager.flush();
  expect(rows()).toEqual(['B']);
  from.db.exec("UPDATE items SET id = 'then' WHERE id IS NULL");
  await from.manager.flush();
  expect(from.manager.health()).toMatchObject({ dead_letter: 0, pending_changes: 0 });
  expect(rowsOf(from.db, 'SELECT count(*) AS n FROM _dead_letter_info')).toEqual([{ n: 0 }]);
  await expectSameElsewhere(from);
});
