/** Whatever a node can hold compares rightly: values, ids, tombstones, hidden rows, letters, and other schemas. */
import { expect, test } from 'vitest';
import type { VerifyResult } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { exactRows, ITEMS, rowsOf } from '../support/nodes.ts';
import { type Pair, pair, silently, THERE } from './pairs.ts';

const T = 1_700_000_000_000;
const TYPES =
  'CREATE TABLE items (id TEXT PRIMARY KEY, t TEXT, i INTEGER, r REAL, n NUMERIC, b BLOB, a ANY, updated_at INTEGER)';
const VALUES = [
  'NULL',
  "''",
  "'text'",
  "'a' || char(0) || 'b'",
  "'$blob:AB'",
  "'$text:x'",
  "'é😀'",
  "'line' || char(10) || 'break'",
  '0',
  '-1',
  '9007199254740993',
  '-9223372036854775808',
  '0.0',
  '-0.0',
  '0.1',
  '1.0',
  '1e300',
  '-1e-300',
  '9e999',
  '-9e999',
  "x''",
  "x'00FF'",
  "'12'",
  "'12.5'",
];

async function compare(the: Pair, repair = false): Promise<VerifyResult> {
  const [result] = await the.manager.verify(THERE, { repair });
  expect(result?.error).toBeUndefined();
  return result as VerifyResult;
}

function ids(result: VerifyResult): string[] {
  return result.tables.flatMap(({ list }) => list.map(({ id }) => id)).sort();
}

test('every kind of value in every kind of column is the same where it is, and differs where it is not', {
  tags: 'long',
}, async () => {
  const the = await pair({
    here: TYPES,
    fill: (here, there) => {
      for (const db of [here, there]) {
        VALUES.forEach((value, i) => {
          db.exec(`INSERT INTO items VALUES ('v${i}', ${Array(6).fill(value).join(', ')}, ${T})`);
        });
      }
    },
  });
  expect(await compare(the)).toMatchObject({ equal: true });
  // The same rows by way of the wire: what travels and comes back is what was there.
  const other = await pair({ here: TYPES });
  silently([other.here], () => {
    VALUES.forEach((value, i) => {
      other.here.exec(`INSERT INTO items VALUES ('v${i}', ${Array(6).fill(value).join(', ')}, ${T})`);
    });
  });
  other.link.up = true;
  expect(await compare(other, true)).toMatchObject({
    equal: true,
    differences: VALUES.length,
    repaired: VALUES.length,
  });
  expect(exactRows(other.there, 'items')).toEqual(exactRows(other.here, 'items'));
  expect(await compare(other)).toMatchObject({ equal: true, differences: 0 });
  for (const column of ['t', 'i', 'r', 'n', 'b', 'a']) {
    silently([other.there], () => other.there.exec(`UPDATE items SET ${column} = 'other' WHERE id = 'v2'`));
    expect(ids(await compare(other)), column).toEqual(['v2']);
    silently([other.there], () => other.there.exec(`UPDATE items SET ${column} = 'text' WHERE id = 'v2'`));
  }
});

test('storage classes count: 1, 1.0 and \u20181\u2019 are three values', async () => {
  const the = await pair({
    here: TYPES,
    fill: (here, there) => {
      here.exec(
        `INSERT INTO items (id, a, b, updated_at) VALUES ('a', 1, 1, ${T}), ('b', 1, 1, ${T}), ('c', 1, 1, ${T})`,
      );
      there.exec(
        `INSERT INTO items (id, a, b, updated_at) VALUES ('a', 1, 1.0, ${T}), ('b', 1, '1', ${T}), ('c', 1, 1, ${T})`,
      );
    },
  });
  expect(ids(await compare(the))).toEqual(['a', 'b']);
});

test.each(['', ' WITHOUT ROWID'])('odd ids are told apart and repaired: a table%s', async (kind) => {
  const odd = ["''", "' '", "'a' || char(0)", "'a' || char(0) || 'b'", "'A'", "'a'", "'$blob:AB'", "x'AB'", "x''"];
  const more = ["'$text:x'", "'$'", "'$x'", "'😀'", "'[1]'", "'{}'", "'\"'", "'\\'"];
  const all = [...odd, ...more];
  const the = await pair({
    here: `CREATE TABLE items (id TEXT PRIMARY KEY, v TEXT, updated_at INTEGER)${kind}`,
    fill: (here, there) => {
      all.forEach((id, i) => {
        here.exec(`INSERT INTO items VALUES (${id}, 'x', ${T + (i % 2)})`);
        if (i % 3 > 0) there.exec(`INSERT INTO items VALUES (${id}, 'x', ${T + 1 - (i % 2)})`);
      });
    },
  });
  the.link.up = true;
  expect(await compare(the)).toMatchObject({ equal: false, differences: all.length });
  expect(await compare(the, true)).toMatchObject({ equal: true, repaired: all.length });
  expect(rowsOf(the.there, 'SELECT typeof(id) || hex(id) AS k, updated_at FROM items ORDER BY k')).toEqual(
    rowsOf(the.here, 'SELECT typeof(id) || hex(id) AS k, updated_at FROM items ORDER BY k'),
  );
  expect(await compare(the)).toMatchObject({ equal: true, differences: 0 });
});

test('tombstones are part of the state, and a deletion beats a row of its time', async () => {
  const entomb = (db: TestDatabase, id: string, version: number): void => {
    db.exec(`INSERT INTO _tombstones VALUES ('items', '${id}', ${version})`);
  };
  const the = await pair({
    here: ITEMS,
    fill: (here, there) => {
      entomb(here, 'missing-there', T);
      entomb(there, 'missing-here', T);
      entomb(here, 'older-here', T);
      entomb(there, 'older-here', T + 1);
      for (const db of [here, there]) {
        entomb(db, 'both', T);
        // Below a live row it says nothing.
        db.exec(`INSERT INTO items VALUES ('alive', 'x', 1, 1, ${T + 9})`);
      }
      entomb(here, 'alive', T);
      here.exec(`INSERT INTO items VALUES ('tie', 'x', 1, 1, ${T})`);
      entomb(there, 'tie', T);
    },
  });
  the.link.up = true;
  expect(ids(await compare(the))).toEqual(['missing-here', 'missing-there', 'older-here', 'tie']);
  expect(await compare(the, true)).toMatchObject({ equal: true, repaired: 4 });
  expect(rowsOf(the.here, 'SELECT id FROM items')).toEqual([{ id: 'alive' }]);
});

test('a row that a UNIQUE value hides is as live as any', async () => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, u TEXT UNIQUE, v REAL, updated_at INTEGER)';
  const the = await pair({ here: schema });
  const change = (id: string, v: number, at: number) => ({
    op: 'INSERT' as const,
    table: 'items',
    row: { id, u: 'taken', v, updated_at: at },
    old_id: null,
  });
  the.manager.applyChanges([change('weak', 0.5, T), change('strong', 1, T + 1)]);
  the.other.applyChanges([change('strong', 1, T + 1), change('weak', 0.5, T)]);
  expect(rowsOf(the.there, 'SELECT row_id FROM _hidden')).toEqual([{ row_id: 'weak' }]);
  expect(await compare(the)).toMatchObject({ equal: true });
  // Hidden here, unknown there.
  the.there.exec('DELETE FROM _hidden; DELETE FROM _dead_letter; DELETE FROM _dead_letter_info');
  the.link.up = true;
  expect(ids(await compare(the))).toEqual(['weak']);
  expect(await compare(the, true)).toMatchObject({ equal: true, repaired: 1 });
  expect(rowsOf(the.there, 'SELECT row_id, row_data FROM _hidden')).toEqual(
    rowsOf(the.here, 'SELECT row_id, row_data FROM _hidden'),
  );
  // And hidden there, unknown here.
  the.here.exec('DELETE FROM _hidden; DELETE FROM _dead_letter; DELETE FROM _dead_letter_info');
  expect(await compare(the, true)).toMatchObject({ equal: true, repaired: 1 });
  expect(rowsOf(the.here, 'SELECT row_id FROM _hidden')).toEqual([{ row_id: 'weak' }]);
});

test('only what both sides have is compared: columns, and tables', async () => {
  const the = await pair({
    here: 'CREATE TABLE items (id TEXT PRIMARY KEY, A TEXT, extra TEXT, updated_at INTEGER); CREATE TABLE mine (id TEXT PRIMARY KEY, updated_at INTEGER)',
    there:
      'CREATE TABLE Items (updated_at INTEGER, a TEXT, other INTEGER DEFAULT 7, ID TEXT PRIMARY KEY); CREATE TABLE yours (id TEXT PRIMARY KEY, updated_at INTEGER)',
    tables: ['items', 'mine'],
    thereTables: ['Items', 'yours'],
    fill: (here, there) => {
      here.exec(
        `INSERT INTO items VALUES ('x', 'v', 'only here', ${T}), ('y', 'v', 'z', ${T}); INSERT INTO mine VALUES ('m', ${T})`,
      );
      there.exec(`INSERT INTO Items VALUES (${T}, 'v', 9, 'x'), (${T}, 'w', 9, 'y')`);
    },
  });
  const result = await compare(the);
  expect(result.tables).toMatchObject([
    { table: 'items', differences: 1, list: [{ id: 'y' }] },
    { table: 'mine', only: 'here', rows: 0, differences: 0 },
  ]);
});

test('a table is asked for by the name that it has here, and one that the peer lacks is not called equal', async () => {
  const the = await pair({
    here: 'CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER); CREATE TABLE mine (id TEXT PRIMARY KEY, updated_at INTEGER)',
    there: 'CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)',
    tables: ['items', 'mine'],
    thereTables: ['items'],
    fill: (here) => here.exec(`INSERT INTO items VALUES ('x', ${T})`),
  });
  the.manager.migrate('ALTER TABLE items RENAME TO things', { renameTable: { items: 'things' } });
  for (const name of ['things', 'items']) {
    const [result] = await the.manager.verify(THERE, { tables: [name] });
    expect(result).toMatchObject({ equal: false, differences: 1, tables: [{ rows: 1 }] });
  }
  // There is nothing in it that could differ.
  expect(await the.manager.verify(THERE, { tables: ['mine'] })).toMatchObject([{ equal: true }]);
  the.here.exec(`INSERT INTO mine VALUES ('m', ${T})`);
  const [result] = await the.manager.verify(THERE, { tables: ['mine'] });
  expect(result).toMatchObject({ equal: false, error: expect.stringContaining('the peer has no table "mine"') });
});

test('a column of another affinity is compared as the asker has it', async () => {
  const schema = (type: string): string => `CREATE TABLE items (id TEXT PRIMARY KEY, v ${type}, updated_at INTEGER)`;
  const the = await pair({
    here: schema('INTEGER'),
    there: schema('TEXT'),
    fill: (here, there) => {
      for (const db of [here, there]) db.exec(`INSERT INTO items VALUES ('x', 12, ${T}), ('y', 12, ${T})`);
      there.exec("UPDATE items SET v = 13 WHERE id = 'y'");
    },
  });
  expect(ids(await compare(the))).toEqual(['y']);
});

test('what the other side cannot apply is listed as parked, and not sent again', async () => {
  const the = await pair({
    here: ITEMS,
    there: ITEMS.replace('name TEXT', "name TEXT CHECK (name <> 'bad')"),
  });
  the.link.up = true;
  the.here.exec(`INSERT INTO items VALUES ('a', 'bad', 1, 1, ${T}), ('b', 'good', 1, 1, ${T})`);
  await the.manager.flush();
  expect(the.other.health().dead_letter).toBe(1);
  const before = the.requests.filter(({ path }) => path === '/sync').length;
  const result = await compare(the, true);
  expect(result).toMatchObject({ equal: false, differences: 1, repaired: 0 });
  expect(result.tables[0]?.list).toMatchObject([{ id: 'a', parked: 'there', there: null, repaired: false }]);
  expect(the.requests.filter(({ path }) => path === '/sync').length).toBe(before);
  expect(the.other.health().dead_letter).toBe(1);
});
