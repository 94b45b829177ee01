/** What the fuzzer has found, each as small as it gets. */
import { describe, expect, test } from 'vitest';
import { node, rowsOf, type TestNode } from '../support/nodes.ts';

const SCHEMA = `
  CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER);
  CREATE TABLE measured (id TEXT PRIMARY KEY, must TEXT NOT NULL, amount REAL, count INTEGER, updated_at INTEGER)
`;

const made = (): Promise<TestNode> => node({ schema: SCHEMA, tables: ['items', 'measured'] });

function item(id: string, time: number, op = 'INSERT'): string {
  return `{"op":"${op}","table":"items","row":{"id":${JSON.stringify(id)},"name":"n","value":1,"created_at":1,"updated_at":${time}},"old_id":${op === 'DELETE' ? JSON.stringify(id) : null}}`;
}

function send({ manager }: TestNode, ...changes: string[]): unknown {
  return manager.receive(`{"batch_id":1,"changes":[${changes.join(',')}]}`).body;
}

test.each(['9007199254740993', '"9007199254740993"', '1152921504606847000'])(
  'a large integer %s in a REAL column is in place when it comes again',
  async (amount) => {
    const here = await made();
    const change = `{"op":"INSERT","table":"measured","row":{"id":"a","must":"m","amount":${amount},"count":1,"updated_at":5},"old_id":null}`;
    expect(send(here, change)).toEqual({ applied: 1, ack: 1 });
    expect(send(here, change)).toEqual({ applied: 1, ack: 1 });
    expect(send(here, change, '{"op":"DELETE","table":"items","row":null,"old_id":"nobody"}')).toEqual({
      applied: 2,
      ack: 1,
    });
  },
);

describe('half a surrogate pair, as an escape', () => {
  test('is U+FFFD in a value, and pairs and escaped backslashes are left alone', async () => {
    const here = await made();
    const text = '"\\ud83d|\\ude00|\\ud83d\\ude00|\\\\ud83d|\\\\\\ud83d|\\uD83D\\u0041"';
    send(here, item('a', 5).replace('"n"', text));
    expect(rowsOf(here.db, 'SELECT name FROM items')).toEqual([{ name: '\ufffd|\ufffd|😀|\\ud83d|\\\ufffd|\ufffdA' }]);
  });

  test('is U+FFFD in an id, whichever way the batch takes', async () => {
    const here = await made();
    const stranger = '{"op":"DELETE","table":"items","row":null,"old_id":"nobody"}';
    send(here, item('x', 5).replace('"x"', '"\\ud800"'));
    expect(rowsOf(here.db, 'SELECT hex(id) AS id FROM items')).toEqual([{ id: 'EFBFBD' }]);
    // A row-less deletion makes it the careful way.
    send(here, stranger, item('x', 6, 'DELETE').replaceAll('"x"', '"\\ud800"'));
    expect(rowsOf(here.db, 'SELECT id FROM items')).toEqual([]);
    send(here, stranger, item('x', 5).replace('"x"', '"\\ud800"'));
    expect(rowsOf(here.db, 'SELECT id FROM items')).toEqual([]);
  });

  test('is U+FFFD in bytes as well', async () => {
    const here = await made();
    here.manager.receive(Buffer.from(`{"batch_id":1,"changes":[${item('ü', 5).replace('"n"', '"é\\udfff"')}]}`));
    expect(rowsOf(here.db, 'SELECT id, name FROM items')).toEqual([{ id: 'ü', name: 'é\ufffd' }]);
  });
});

describe('two spellings of one id are one row', () => {
  const nobody = '{"op":"DELETE","table":"items","row":null,"old_id":"nobody"}';

  test.each([
    ['$text:a', 'a'],
    ['$int:5', '5'],
    ['$blob:ab', '$blob:AB'],
  ])('%s and %s', async (odd, plain) => {
    const here = await made();
    expect(send(here, item(odd, 5), item(plain, 6))).toEqual({ applied: 2, ack: 1 });
    expect(send(here, item(odd, 7, 'DELETE'), nobody)).toEqual({ applied: 2, ack: 1 });
    // Below the tombstone, whichever way it is spelt.
    expect(send(here, item(odd, 6), nobody)).toEqual({ applied: 1, ack: 1 });
    expect(rowsOf(here.db, 'SELECT id FROM items')).toEqual([]);
  });

  test('a deletion without a row, and the row after it, are sent again without harm', async () => {
    const here = await made();
    const changes = ['{"op":"DELETE","table":"items","row":null,"old_id":"$text:a"}', item('a', 5)];
    const first = send(here, ...changes);
    expect(send(here, ...changes)).toEqual(first);
    expect(rowsOf(here.db, 'SELECT id FROM items')).toEqual([{ id: 'a' }]);
  });
});

test("of two spellings of one column both ways read the one that is the column's own", async () => {
  const row = '{"UPDATED_AT":9,"id":"a","updated_at":5}';
  const change = `{"op":"DELETE","table":"items","row":${row},"old_id":"a"}`;
  for (const others of [[], ['{"op":"DELETE","table":"items","row":null,"old_id":"nobody"}']]) {
    const here = await made();
    send(here, change, ...others);
    expect(rowsOf(here.db, 'SELECT version FROM _tombstones')).toEqual([{ version: 5 }]);
  }
});

test.each([
  ['"amount":5,"count":1', '"amount":5,"count":2'],
  ['"amount":1.5,"count":"5"', '"amount":1.5,"count":12'],
])('rows that lack a column and tie are ordered as they are stored: %s and %s', async (one, other) => {
  const partial = (values: string): string =>
    `{"op":"UPDATE","table":"measured","row":{"id":"a",${values},"updated_at":6},"old_id":null}`;
  const whole =
    '{"op":"INSERT","table":"measured","row":{"id":"a","must":"m","amount":0,"count":0,"updated_at":5},"old_id":null}';
  const ends: unknown[] = [];
  for (const order of [
    [one, other],
    [other, one],
  ]) {
    const here = await made();
    send(here, whole);
    for (const values of order) send(here, partial(values));
    ends.push(rowsOf(here.db, 'SELECT amount, count FROM measured'));
  }
  expect(ends[0]).toEqual(ends[1]);
});
