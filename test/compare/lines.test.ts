/** What is hashed of a row tells contents apart exactly as the version order does, whichever way it was spelt. */
import { expect, test } from 'vitest';
import { canBePlain, jsonLines, plainLine, rowLine } from '../../src/compare/lines.ts';
import { arePlain } from '../../src/compare/sqlite-lines.ts';
import type { Affinity, Column } from '../../src/sqlite/schema.ts';
import { content } from '../../src/wire/content.ts';
import { encode } from '../../src/wire/values.ts';
import { database, rowsOf } from '../support/nodes.ts';

const AFFINITIES: Affinity[] = ['TEXT', 'INTEGER', 'REAL', 'NUMERIC', 'BLOB'];
const VALUES = [
  ...[
    'NULL',
    "''",
    "'text'",
    "'TEXT'",
    "'12'",
    "'12.5'",
    "'1e3'",
    "'null'",
    "'[1]'",
    "'$blob:AB'",
    "'$text:x'",
    "'x41'",
  ],
  ...[
    "'a' || char(0) || 'b'",
    "'a' || char(0)",
    "'a'",
    "'é😀'",
    "'line' || char(10)",
    "'\"'",
    "'\\'",
    "'0.0'",
    "'9e999'",
  ],
  ...['0', '1', '-1', '12', '9007199254740991', '9007199254740993', '-9223372036854775808', '9223372036854775807'],
  ...['0.0', '-0.0', '1.0', '1.5', '-1.5', '12.0', '0.1', '0.30000000000000004', '0.3', '3.9999999999999996', '4.0'],
  ...['4095.9999999999995', '4096.5', '4194303.9999999995', '4194304.5', '0.00390625', '0.0039062499999999996', '1e-9'],
  ...['1e300', '-1e-300', '5e-324', '1e15', '1.5e15', '9e999', '-9e999', '4611686018427387904.0', '9.3e18'],
  ...["x''", "x'00FF'", "x'31'", "x'6E756C6C'", "CAST(x'FF' AS TEXT)", "CAST(x'FE' AS TEXT)", "CAST(x'61FF' AS TEXT)"],
];

const column = (name: string, affinity: Affinity): Column => ({
  name,
  wireName: name,
  affinity,
  required: false,
  fallback: 'NULL',
});

test.each(AFFINITIES)('a column of affinity %s', async (affinity) => {
  const db = await database(`CREATE TABLE t (n INTEGER PRIMARY KEY, v ${affinity}, f REAL)`);
  VALUES.forEach((value, i) => {
    db.exec(`INSERT INTO t VALUES (${i}, ${value}, 0.75)`);
  });
  const v = column('v', affinity);
  const hex = (sql: string, from = 't'): string[] =>
    rowsOf(db, `SELECT hex(CAST(${sql} AS BLOB)) AS h FROM ${from} ORDER BY n`).map(({ h }) => String(h));
  const own = ({ name }: Column): string => name;
  const lines = hex(rowLine([v], own));
  const contents = hex(content([v], own));
  // Two are the same in the one exactly if they are in the other.
  expect(lines.map((line) => lines.indexOf(line))).toEqual(contents.map((one) => contents.indexOf(one)));
  // Beside a fraction every value of a row is spelt alone, and looks the same.
  const inner = (text: string): string => text.slice(2, -2);
  const beside = hex(rowLine([column('f', 'REAL'), v], own)).map(inner);
  const [fraction = ''] = beside.map((line, i) => line.slice(0, line.length - inner(lines[i] as string).length));
  expect(beside).toEqual(lines.map((line) => fraction + inner(line)));
  // A row that is JSON, as on a hub and where it is hidden.
  const json = `json_object('V', ${encode('v', affinity)})`;
  const source = jsonLines({ v: affinity }, `SELECT n AS k, 0 AS version, ${json} AS r FROM t`);
  expect(hex('line', `(SELECT k AS n, line FROM (${source}))`)).toEqual(lines);
});

test.each(AFFINITIES)(
  'what is spelt without a look, of affinity %s, is right or is seen not to be',
  async (affinity) => {
    const v = column('v', affinity);
    if (!canBePlain([v])) return expect(['REAL', 'BLOB']).toContain(affinity);
    const db = await database(`CREATE TABLE t (n INTEGER PRIMARY KEY, v ${affinity})`);
    VALUES.forEach((value, i) => {
      db.exec(`INSERT INTO t VALUES (${i}, ${value})`);
    });
    const own = ({ name }: Column): string => name;
    const read = (sql: string, i: number): Uint8Array =>
      rowsOf(db, `SELECT CAST(${sql} AS BLOB) AS line FROM t WHERE n = ${i}`)[0]?.line as Uint8Array;
    const plain = VALUES.map((_, i) => {
      const right = Buffer.from(read(rowLine([v], own), i)).toString('hex');
      try {
        const found = read(plainLine([v], own, 100, 'char(0)'), i);
        if (arePlain(found)) expect([VALUES[i], Buffer.from(found).toString('hex')]).toEqual([VALUES[i], right]);
        return arePlain(found);
      } catch (error) {
        expect(String(error)).toMatch(/JSON cannot hold BLOB/);
        return false;
      }
    });
    // Of fractions and blobs none, and of the others nearly all.
    const kinds = rowsOf(db, 'SELECT typeof(v) AS kind FROM t ORDER BY n').map(({ kind }) => kind);
    expect(kinds.filter((kind, i) => plain[i] && (kind === 'real' || kind === 'blob'))).toEqual([]);
    expect(plain.filter(Boolean).length).toBeGreaterThan(15);
  },
);

test('a row that is larger than is read without measuring has no line; names are in one order', async () => {
  const db = await database('CREATE TABLE t (n INTEGER PRIMARY KEY, b TEXT, A INTEGER, c BLOB)');
  db.exec(
    "INSERT INTO t VALUES (1, 'xx', 7, x'AABB'), (2, 'xxxx', 7, x'AABBCC'), (3, 'xxxx', 7, 1), (4, 'xxxx', 'yyyy', 1)",
  );
  const columns = [column('b', 'TEXT'), column('A', 'INTEGER'), column('c', 'BLOB')];
  const line = (most?: number): unknown[] =>
    rowsOf(db, `SELECT ${rowLine(columns, ({ name }) => name, most)} AS line FROM t`).map((row) => row.line);
  expect(line()).toEqual(['[7,"xx",xAABB]', '[7,"xxxx",xAABBCC]', '[7,"xxxx",1]', '["yyyy","xxxx",1]']);
  expect(line(6)).toEqual(['[7,"xx",xAABB]', null, '[7,"xxxx",1]', null]);
  expect(line(3)).toEqual([null, null, null, null]);
});

test('a row of more columns than an array has room for is several arrays', async () => {
  const names = Array.from({ length: 250 }, (_, i) => `c${String(i).padStart(3, '0')}`);
  const db = await database(`CREATE TABLE t (${names.map((name) => `${name} NUMERIC`).join(', ')})`);
  db.exec(`INSERT INTO t VALUES (${names.map((_, i) => i).join(', ')})`);
  db.exec(`INSERT INTO t VALUES (${names.map((_, i) => (i === 249 ? 0.5 : i)).join(', ')})`);
  const sql = rowLine(
    names.map((name) => column(name, 'NUMERIC')),
    ({ name }) => name,
  );
  const [plain, spelt] = rowsOf(db, `SELECT ${sql} AS line FROM t`).map(({ line }) => String(line));
  expect(plain?.match(/\[/g)?.length).toBe(3);
  expect(spelt?.replace(/,[^,]*\]$/, '')).toBe(plain?.replace(/,[^,]*\]$/, ''));
});
