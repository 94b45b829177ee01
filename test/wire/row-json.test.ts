/** A row as JSON: the three ways in which SQL says it give one text. */
import { describe, expect, test } from 'vitest';
import type { Affinity, Column } from '../../src/sqlite/schema.ts';
import { literal, quote } from '../../src/sqlite/sql.ts';
import { rareRowJson, rowJson } from '../../src/wire/row-json.ts';
import { encode } from '../../src/wire/values.ts';
import type { TestDatabase } from '../support/lane.ts';
import { database, rowsOf } from '../support/nodes.ts';
import { VALUES } from '../support/values.ts';

const DECLARED: Record<Affinity, string> = { TEXT: 'TEXT', INTEGER: 'INT', REAL: 'REAL', NUMERIC: 'NUMERIC', BLOB: '' };

const column = (name: string, affinity: Affinity): Column => ({ name, wireName: name, affinity }) as Column;

/** Each column by itself, in all its forms: what the shorter ones must say. */
function atLength(columns: Column[]): string {
  const values = columns.map(({ name, affinity }) => `json_quote(${encode(`t.${quote(name)}`, affinity)})`);
  const members = columns.map(({ name }, i) => `json_quote(${literal(name)}) || ':' || ${values[i]}`);
  return `'{' || ${members.join(" || ',' || ")} || '}'`;
}

/** As bytes: a text may hold what no binding reads as text. */
function forms(db: TestDatabase, columns: Column[]) {
  const table = { columns };
  const hex = (sql: string, name: string): string => `hex(CAST(${sql} AS BLOB)) AS ${name}`;
  const said = [
    hex(rowJson(table, 't'), 'often'),
    hex(rareRowJson(table, 't'), 'rare'),
    hex(atLength(columns), 'full'),
  ];
  return rowsOf(db, `SELECT ${said.join(', ')} FROM items AS t ORDER BY rowid`);
}

function expectOneText(rows: ReturnType<typeof forms>): void {
  for (const { often, rare, full } of rows) expect([often, rare]).toEqual([full, full]);
}

describe('values', () => {
  test.each(Object.keys(DECLARED) as Affinity[])('of a column of affinity %s', async (affinity) => {
    const db = await database(`CREATE TABLE items (v ${DECLARED[affinity]})`);
    for (const value of VALUES) db.exec(`INSERT INTO items VALUES (${value})`);
    const rows = forms(db, [column('v', affinity)]);
    expect(rows).toHaveLength(VALUES.length);
    expectOneText(rows);
  });

  test('beside values of every other affinity, each with what it may be and the others ordinary', async () => {
    const affinities = Object.keys(DECLARED) as Affinity[];
    const columns = affinities.map((affinity, i) => column(`c${i}`, affinity));
    const db = await database(`CREATE TABLE items (${affinities.map((a, i) => `c${i} ${DECLARED[a]}`).join(', ')})`);
    for (const value of VALUES)
      for (const { name } of columns) db.exec(`INSERT INTO items (${name}) VALUES (${value})`);
    for (const value of VALUES) db.exec(`INSERT INTO items VALUES (${columns.map(() => value).join(', ')})`);
    expectOneText(forms(db, columns));
  });

  test('of which one carries the mark of JSON in the trigger that reads it', async () => {
    const db = await database('CREATE TABLE items (v TEXT); CREATE TABLE seen (often TEXT, rare TEXT)');
    const table = { columns: [column('v', 'TEXT')] };
    db.exec(
      `CREATE TRIGGER see AFTER INSERT ON items BEGIN INSERT INTO seen VALUES (${rowJson(table, 'NEW')}, ` +
        `${rareRowJson(table, 'NEW')}); END`,
    );
    db.exec(`INSERT INTO items VALUES (json('{"a":1}'))`);
    const text = '{"v":"{\\"a\\":1}"}';
    expect(rowsOf(db, 'SELECT * FROM seen')).toEqual([{ often: text, rare: text }]);
  });
});

describe('columns', () => {
  test.each([1, 2, 59, 60, 61, 120, 121, 249, 250, 251, 500, 501, 700])('%i of them', async (count) => {
    const columns = Array.from({ length: count }, (_, i) => column(`c${i}`, i % 3 === 0 ? 'TEXT' : 'INTEGER'));
    const db = await database(
      `CREATE TABLE items (${columns.map((c) => `${c.name} ${DECLARED[c.affinity]}`).join(', ')})`,
    );
    db.exec(`INSERT INTO items VALUES (${columns.map((_, i) => i).join(', ')})`);
    db.exec(`INSERT INTO items VALUES (${columns.map((_, i) => (i === count - 1 ? "x'00'" : i)).join(', ')})`);
    const table = { columns };
    const rows = rowsOf(
      db,
      `SELECT ${rowJson(table, 't')} AS often, ${rareRowJson(table, 't')} AS rare FROM items AS t`,
    );
    const expected = (last: unknown): string =>
      JSON.stringify(
        Object.fromEntries(
          columns.map((c, i) => [c.name, i === count - 1 ? last : c.affinity === 'TEXT' ? `${i}` : i]),
        ),
      );
    const whole = columns.at(-1)?.affinity === 'TEXT' ? `${count - 1}` : count - 1;
    expect(rows.map(({ often }) => often)).toEqual([expected(whole), expected('$blob:00')]);
    expect(rows.map(({ rare }) => rare)).toEqual([expected(whole), expected('$blob:00')]);
  });

  test('with names that the statement has for itself, or that mean something in SQL', async () => {
    const names = ['k', 'v', 'b', 't', 'true', 'column1', 'a"b', "it's", 'select', ' '];
    const columns = names.map((name, i) => column(name, i % 2 === 0 ? 'BLOB' : 'NUMERIC'));
    const db = await database(
      `CREATE TABLE items (${columns.map((c) => `${quote(c.name)} ${DECLARED[c.affinity]}`).join(', ')})`,
    );
    db.exec(`INSERT INTO items VALUES (${names.map((_, i) => i).join(', ')})`);
    db.exec(`INSERT INTO items VALUES (${names.map((_, i) => `'text ${i}'`).join(', ')})`);
    db.exec(`INSERT INTO items VALUES (${names.map((_, i) => `9007199254740993 + ${i}`).join(', ')})`);
    expectOneText(forms(db, columns));
  });

  test('whose collation would take different texts for equal', async () => {
    const db = await database('CREATE TABLE items (v TEXT COLLATE NOCASE, w TEXT COLLATE RTRIM)');
    for (const value of VALUES) db.exec(`INSERT INTO items VALUES (${value}, ${value})`);
    expectOneText(forms(db, [column('v', 'TEXT'), column('w', 'TEXT')]));
  });
});
