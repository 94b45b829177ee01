/** What two builds say to each other of one and the same state stays the same: lines, and hashes of ranges, byte for byte. */
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { hashNext, hashRanges } from '../../src/compare/hashing.ts';
import { EVERYTHING } from '../../src/compare/ids.ts';
import type { Ledger, Spelt } from '../../src/compare/ledger.ts';
import { rowLine } from '../../src/compare/lines.ts';
import { Pace } from '../../src/compare/pace.ts';
import type { Affinity } from '../../src/sqlite/schema.ts';
import { database, node, rowsOf } from '../support/nodes.ts';

const COLUMNS: [string, Affinity][] = [
  ['id', 'TEXT'],
  ['name', 'TEXT'],
  ['n', 'INTEGER'],
  ['d', 'NUMERIC'],
  ['r', 'REAL'],
  ['b', 'BLOB'],
];

test('the line of a row', async () => {
  const db = await database('CREATE TABLE t (id TEXT PRIMARY KEY, name TEXT, n INTEGER, d NUMERIC, r REAL, b)');
  const rows = [
    `'a', 'plain', 1, 2, NULL, 3`,
    `'b', 'quo"te\\' || char(10), -9223372036854775808, NULL, NULL, 'text'`,
    `'c', NULL, 'text', 'more', NULL, NULL`,
    `'d', x'00ff', 1, 2, NULL, x''`,
    `'e', 'x', 0.5, 12.5, 0.75, 1.5`,
    `'f', 'x', 1, 2, 3, 9e999`,
  ];
  for (const row of rows) db.exec(`INSERT INTO t VALUES (${row})`);
  const columns = COLUMNS.map(([name, affinity]) => ({
    name,
    wireName: name,
    affinity,
    required: false,
    fallback: 'NULL',
  }));
  const sql = rowLine(columns, ({ name }) => name, 1_024);
  expect(rowsOf(db, `SELECT ${sql} AS line FROM t ORDER BY id`).map(({ line }) => line)).toEqual([
    '[3,2,"a",1,"plain",null]',
    '["text",null,"b",-9223372036854775808,"quo\\"te\\\\\\n",null]',
    '[null,"more","c","text",null,null]',
    '[x,2,"d",1,x00FF,null]',
    '[1729382256910270464p-6,14073748835532800p-5,"e",576460752303423488p-6,"x",864691128455135232p-6]',
    '[9e999,2,"f",1,"x",3458764513820540928p-6]',
  ]);
});

test('the hash of a range, in however many pieces it is read', async () => {
  const texts = ['', 'one line', 'and another', 'the third'].map((text) => new TextEncoder().encode(text));
  const pace = (): Pace => new Pace(systemClock, 1, new AbortController().signal);
  const sha1 = (text: string): string => createHash('sha1').update(text).digest('hex').slice(0, 16);
  const whole = `3:${sha1('one lineand anotherthe third')}`;
  const spelling = (pieces: Spelt[]): Ledger =>
    ({ spell: () => pieces.splice(0, 1) as Spelt[] }) as Partial<Ledger> as Ledger;
  const inOne = (): Ledger => spelling([{ rows: 3, texts, end: null }]);
  const inThree = (): Ledger =>
    spelling(texts.slice(1).map((text, i) => ({ rows: 1, texts: [text], end: i < 2 ? 'x' : null })));
  for (const ledger of [inOne, inThree]) {
    expect(await hashRanges(ledger(), pace(), 't', null, [EVERYTHING])).toEqual([whole]);
    expect(await hashNext(ledger(), pace(), 't', null, EVERYTHING, { rows: 9, bytes: 999 })).toMatchObject({
      hash: whole,
    });
  }
  const nothing = spelling([{ rows: 0, texts: [], end: null }]);
  expect(await hashRanges(nothing, pace(), 't', null, [EVERYTHING])).toEqual(['0:da39a3ee5e6b4b0d']);
});

test('what a node answers', async () => {
  const { db, manager } = await node();
  db.exec(
    'WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 2500) INSERT INTO items ' +
      "SELECT printf('%05d', n), 'name ' || n, iif(n % 100, n, n + 0.5), 1, 1000 + n FROM s",
  );
  db.exec("DELETE FROM items WHERE id = '00007'; UPDATE items SET updated_at = 9000 WHERE id = '00008'");
  manager.receive('{"batch_id":0,"changes":[]}');
  db.exec('UPDATE _tombstones SET version = 8000');
  const ranges = [
    [null, '00010'],
    ['00010', '01500'],
    ['01500', null],
  ];
  const asked = { want: 'hash', table: 'items', columns: null, ranges };
  const { status, body } = await manager.answer('/sync/compare', JSON.stringify(asked));
  expect([status, JSON.parse(body)]).toEqual([200, { hashes: HASHES }]);
});

const HASHES = ['10:fd862b0ec05e1f4f', '1490:027267d0dfd73c93', '1000:a9713a69aa1c71f4'];
