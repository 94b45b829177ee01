/** Tables and columns with names that SQL, JSON or JavaScript might take for something else. */
import { describe, expect, test } from 'vitest';
import { expectSameElsewhere, expectSameWithout, life, origin, QUICK, q } from '../support/elsewhere.ts';
import { node } from '../support/nodes.ts';

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

  test('all of them at once, as tables of one database', { tags: 'long' }, async () => {
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
