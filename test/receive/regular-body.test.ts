/** A body that a node wrote is told by its text, and merged to the same end as by every other way. */
import { describe, expect, test } from 'vitest';
import { RegularBodies } from '../../src/receive/regular-body.ts';
import type { Table } from '../../src/sqlite/schema.ts';
import { firstOf } from '../support/draws.ts';
import { Random } from '../support/model.ts';
import { exactRows, node, rowsOf, type TestNode } from '../support/nodes.ts';

const T = 1_700_000_000_000;

function tableNamed(name: string, columns: string[]): Table {
  return {
    name,
    wireName: name,
    was: [],
    aliases: new Map(),
    dropped: new Set(),
    target: `main."${name}"`,
    columns: columns.map((column) => ({
      name: column,
      wireName: column,
      affinity: 'TEXT',
      required: false,
      fallback: 'NULL',
    })),
    id: 'id',
    updatedAt: 'updated_at',
    rowKey: 'rowid',
    rowids: ['rowid'],
    uniques: [],
    writers: 0,
    generated: [],
    ignores: false,
    fires: false,
    conflicts: false,
    warnings: [],
  };
}

const TABLES = [
  tableNamed('items', ['id', 'name', 'updated_at']),
  tableNamed('été (x)', ['größe', 'id', 'updated_at', 'a"\\b']),
  tableNamed('wide', ['id', ...Array.from({ length: 300 }, (_, i) => `c${i}`), 'updated_at']),
];

function counts(body: string, before = 7_000_000_000_000): unknown {
  const plain = new RegularBodies((name) => TABLES.find((table) => table.name === name));
  const found = plain.recognise(Buffer.from(body).toString('latin1'), before);
  return found?.map(({ table, writes, deletions, spelling }) =>
    spelling.fits ? [table.name, writes, deletions] : [table.name, writes, deletions, ...spelling.keys],
  );
}

const batch = (...changes: unknown[]): string => JSON.stringify({ batch_id: 7, changes });
const write = (row: object = {}, more: object = {}): object => ({
  op: 'INSERT',
  table: 'items',
  row: { id: 'a', name: 'n', updated_at: T, ...row },
  old_id: null,
  ...more,
});
/** With nothing but the two columns that every table has. */
const bare = (id: string, more: object = {}): object => write({}, { row: { id, updated_at: T }, ...more });
const spelt = (op: string, id: string): object => write({}, { op, row: { ID: id, updated_at: T }, old_id: id });
const deletion = (row: object = {}, oldId: unknown = 'a'): object => write(row, { op: 'DELETE', old_id: oldId });

describe('a plain body', () => {
  test.each<[string, string, unknown]>([
    ['one write', batch(write()), [['items', 1, 0]]],
    ['an update', batch(write({}, { op: 'UPDATE' })), [['items', 1, 0]]],
    ['one deletion', batch(deletion()), [['items', 0, 1]]],
    [
      'a tombstone of a snapshot',
      batch({ op: 'DELETE', table: 'items', row: { id: 'a', updated_at: T }, old_id: 'a' }),
      [['items', 0, 1]],
    ],
    ['both', batch(write(), deletion(), write({ id: 'b' })), [['items', 2, 1]]],
    [
      'null, numbers, true',
      batch(write({ name: null }), write({ name: -1.5e-7 }), write({ name: true })),
      [['items', 3, 0]],
    ],
    ['quotes, backslashes and braces in text', batch(write({ name: '"},"old_id":null},{\\' })), [['items', 1, 0]]],
    ['text that only holds a dollar', batch(write({ name: 'a$blob:' })), [['items', 1, 0]]],
    ['encoded text', batch(write({ name: '$text:$' })), [['items', 1, 0]]],
    [
      'encoded text behind an escape',
      batch(write({ name: 'HERE' })).replace('HERE', '\\u0024blob:00'),
      [['items', 1, 0]],
    ],
    ['text beyond ASCII', batch(write({ id: 'ü', name: '日本\u2028' })), [['items', 1, 0]]],
    [
      'two tables in turn, with names beyond ASCII',
      batch(
        write(),
        { op: 'INSERT', table: 'été (x)', row: { größe: 1, id: 'b', updated_at: T, 'a"\\b': 'x' }, old_id: null },
        write({ id: 'c' }),
      ),
      [
        ['items', 2, 0],
        ['été (x)', 1, 0],
      ],
    ],
    ['a column too many', batch(write({ more: 1 })), [['items', 1, 0, 'id', 'name', 'updated_at', 'more']]],
    ['a column too few', batch(bare('a'), bare('b')), [['items', 2, 0, 'id', 'updated_at']]],
    [
      'another order of the columns',
      batch(write({}, { row: { name: 'n', id: 'a', updated_at: T } })),
      [['items', 1, 0, 'name', 'id', 'updated_at']],
    ],
    [
      'an id and a time in another spelling',
      batch(write({}, { row: { Id: 'a', UPDATED_AT: T } })),
      [['items', 1, 0, 'Id', 'UPDATED_AT']],
    ],
    [
      'columns that are not known, with names beyond ASCII, and what means something in a pattern',
      batch(write({ 'größe.*': 1 }), write({ 'größe.*': 2 })),
      [['items', 2, 0, 'id', 'name', 'updated_at', 'größe.*']],
    ],
    [
      'a tombstone, and then rows with a column too many',
      batch(deletion(), bare('b', { op: 'DELETE', old_id: 'b' }), write({ more: 1 }), deletion({ more: 1 })),
      [['items', 1, 3, 'id', 'name', 'updated_at', 'more']],
    ],
    [
      'tables in turn, one of them with a column too many',
      batch(write({ more: 1 }), { ...write(), table: 'été (x)', row: { id: 'b', updated_at: T } }, write({ more: 2 })),
      [
        ['items', 2, 0, 'id', 'name', 'updated_at', 'more'],
        ['été (x)', 1, 0, 'id', 'updated_at'],
      ],
    ],
  ])('is %s', (_, body, expected) => {
    expect(counts(body)).toEqual(expected);
  });

  test.each<[string, string]>([
    ['an empty one', batch()],
    ['white space', JSON.stringify(JSON.parse(batch(write())), null, 1)],
    ['something after it', `${batch(write())} `],
    ['more fields beside changes', JSON.stringify({ batch_id: 7, changes: [write()], more: 1 })],
    ['another order of the fields', JSON.stringify({ changes: [write()], batch_id: 7 })],
    ['a table that is not known', batch(write({}, { table: 'others' }))],
    ['a table in another spelling', batch(write({}, { table: 'ITEMS' }))],
    ['an op that is not known', batch(write({}, { op: 'UPSERT' }))],
    ['an op in another spelling', batch(write({}, { op: 'insert' }))],
    ['rows of one table with different columns', batch(write({ more: 1 }), write({ other: 1 }))],
    [
      'rows of one table in different orders',
      batch(write(), write({}, { row: { name: 'n', id: 'b', updated_at: T } })),
    ],
    ['deletions that change their columns twice', batch(deletion(), deletion({ a: 1 }), deletion({ b: 1 }))],
    ['a deletion that spells its id in another way', batch(deletion({ a: 1 }), spelt('DELETE', 'a'))],
    ['two spellings of the id', batch(write({ ID: 'a' }))],
    ['two spellings of the time', batch(write({ Updated_At: T }))],
    ['no id', batch(write({}, { row: { name: 'n', updated_at: T } }))],
    ['no time', batch(write({}, { row: { id: 'a', name: 'n' } }))],
    ['a key with an escape', batch(write({ 'a"b': 1 }))],
    ['a key that is empty', batch(write({ '': 1 }))],
    ['a row of too many keys', batch(write(Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`k${i}`, i]))))],
    ['a nested value in a column that is not known', batch(write({ more: [1] }))],
    ['a bad time beside a column too many', batch(write({ more: 1, updated_at: -T }))],
    ['an encoded id beside a column too many', batch(write({ more: 1, id: '$text:$' }))],
    ['a field too many', batch(write({}, { more: 1 }))],
    ['a write with an old id', batch(write({}, { old_id: 'a' }))],
    ['a deletion of another id', batch(deletion({}, 'b'))],
    ['a deletion without an old id', batch(deletion({}, null))],
    ['a deletion without a row', batch({ op: 'DELETE', table: 'items', row: null, old_id: 'a' })],
    ['a row that is no object', batch(write({}, { row: ['a', 'n', T] }))],
    ['a nested value', batch(write({ name: { a: 1 } }))],
    ['a list as a value', batch(write({ name: [1] }))],
    ['an encoded id', batch(write({ id: '$text:$' }))],
    ['an id with an escape', batch(write({ id: 'a"b' }))],
    ['an id like nested JSON', batch(write({ id: '{}' }), write({ id: '[]' }))],
    ['an empty id', batch(write({ id: '' }))],
    ['an id that is a number', batch(write({ id: 1 }))],
    ['a time that is text', batch(write({ updated_at: `${T}` }))],
    ['a time with a fraction', batch(write({ updated_at: T + 0.5 }))],
    ['a time of one digit', batch(write({ updated_at: 1 }))],
    ['a time out of range', batch(write({ updated_at: 7_258_118_400_001 }))],
    ['a negative time', batch(write({ updated_at: -T }))],
    ['a time that is true', batch(write({ updated_at: true }))],
    ['one bad change among good ones', batch(write(), write({ more: 1 }), write())],
    [
      'a table too wide for a pattern',
      batch({
        op: 'INSERT',
        table: 'wide',
        row: Object.fromEntries(TABLES[2]?.columns.map(({ name }) => [name, name === 'updated_at' ? T : 'x']) ?? []),
        old_id: null,
      }),
    ],
  ])('is not: %s', (_, body) => {
    expect(counts(body)).toBeUndefined();
  });
});

const SCHEMA =
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT COLLATE NOCASE, value INTEGER, any_ , num NUMERIC, real REAL, updated_at INTEGER); ' +
  'CREATE TABLE notes (id TEXT PRIMARY KEY, updated_at INTEGER, text TEXT NOT NULL)';

/** Values among which ties are dense, and 1, 1.0 and '1' are all there. */
const VALUES = [
  null,
  '',
  'a',
  'A',
  'b',
  '1',
  '1.0',
  '$',
  '$text:a',
  '$blob:00',
  '$real:1.0',
  '$int:1',
  1,
  2,
  -1,
  0.5,
  '-0.0',
  'é',
  'x"y\\',
];

function randomBatch(random: Random): object[] {
  return Array.from({ length: 1 + random.below(6) }, () => {
    const id = `r${random.below(4)}`;
    const updated_at = T + random.below(3);
    const value = (): unknown =>
      random.below(3) === 0 ? VALUES[random.below(VALUES.length)] : (VALUES[random.below(3)] ?? null);
    const row =
      random.below(4) === 0
        ? { table: 'notes', row: { id, updated_at, text: random.below(6) === 0 ? null : `t${random.below(2)}` } }
        : {
            table: 'items',
            row: { id, name: value(), value: value(), any_: value(), num: value(), real: value(), updated_at },
          };
    const op = random.below(4) === 0 ? 'DELETE' : random.below(2) === 0 ? 'INSERT' : 'UPDATE';
    return { op, ...row, old_id: op === 'DELETE' ? id : null };
  });
}

function stateOf({ db }: TestNode): unknown {
  return {
    items: exactRows(db, 'items'),
    notes: exactRows(db, 'notes'),
    tombstones: rowsOf(db, 'SELECT * FROM _tombstones ORDER BY table_name, row_id'),
    letters: rowsOf(db, 'SELECT op, row_id, row_data FROM _dead_letter ORDER BY dead_id'),
    changes: rowsOf(db, 'SELECT op, row_id, row_data FROM _changes ORDER BY change_id'),
  };
}

const SEEDS = firstOf([
  [1, 2],
  [3, 4],
  [5, 6],
]).flat();

test.each(SEEDS)('ends as a body that is checked change by change does (seed %i)', async (seed) => {
  const random = new Random(seed);
  const options = { schema: SCHEMA, tables: ['items', 'notes'] };
  const [plain, checked, careful] = [await node(options), await node(options), await node(options)];
  for (const one of [plain, careful]) one.manager.on('applied', () => {});
  for (let i = 0; i < 60; i++) {
    const changes = randomBatch(random);
    const text = JSON.stringify({ batch_id: i + 1, changes });
    const answer = plain.manager.receive(text);
    // White space is more than a plain body has; a table in capitals is more than the fast way takes.
    expect(checked.manager.receive(JSON.stringify({ batch_id: i + 1, changes }, null, 1))).toEqual({
      ...answer,
      headers: expect.any(Object),
    });
    const shouted = changes.map((change) => ({
      ...change,
      table: (change as { table: string }).table.toUpperCase(),
    }));
    const { body } = careful.manager.receive(JSON.stringify({ batch_id: i + 1, changes: shouted }));
    expect((body as { applied: number }).applied).toEqual((answer.body as { applied: number }).applied);
    expect(plain.manager.receive(text)).toEqual({ ...answer, headers: expect.any(Object) });
  }
  const { letters, ...state } = stateOf(plain) as { letters: unknown[] };
  expect(stateOf(checked)).toEqual({ ...state, letters });
  const { letters: shouted, ...other } = stateOf(careful) as { letters: unknown[] };
  expect(other).toEqual(state);
  expect(shouted.length).toBe(letters.length);
});

/** Nodes whose schema is another: each sends its own columns, some of which are not here. */
const SENT = [
  ['id', 'name', 'updated_at'],
  ['id', 'updated_at', 'value'],
  ['id', 'name', 'value', 'any_', 'num', 'real', 'updated_at', 'more'],
  ['more', 'id', 'name', 'other', 'updated_at'],
  ['id', 'name', 'value', 'any_', 'num', 'real', 'updated_at'],
];

/** Rows of one such node: writes and deletions, some of which cannot be applied, and what they say they have seen. */
function batchOfOther(random: Random): object[] {
  const columns = SENT[random.below(SENT.length)] as string[];
  return Array.from({ length: 1 + random.below(8) }, () => {
    const id = `r${random.below(5)}`;
    const time = T + random.below(3);
    const value = (): unknown => VALUES[random.below(random.below(3) === 0 ? VALUES.length : 4)];
    const of = (column: string): unknown => (column === 'id' ? id : column === 'updated_at' ? time : value());
    const row = Object.fromEntries(columns.map((column) => [column, of(column)]));
    if (random.below(5) === 0) return { op: 'DELETE', table: 'items', row, old_id: id };
    if (random.below(5) === 0) {
      const text = random.below(3) === 0 ? null : 't';
      return { op: 'INSERT', table: 'notes', row: { id, updated_at: time, text, more: value() }, old_id: null };
    }
    const base = random.below(2) === 0 ? { base: T - 1 + random.below(3) } : {};
    return { op: 'UPDATE', table: 'items', row, old_id: null, ...base };
  });
}

test.each(SEEDS)(
  'from a node of another schema ends as one that is checked change by change does (seed %i)',
  async (seed) => {
    const random = new Random(seed);
    // The name is UNIQUE, so that rows are hidden, and one value is refused.
    const schema = SCHEMA.replace('name TEXT COLLATE NOCASE', 'name TEXT UNIQUE').replace(
      'value INTEGER',
      "value INTEGER CHECK (value <> '2')",
    );
    const options = { schema, tables: ['items', 'notes'] };
    const [plain, checked] = [await node(options), await node(options)];
    const heard: unknown[][] = [[], []];
    for (const [i, { manager }] of [plain, checked].entries()) {
      // Of every other pair nobody wants the rows.
      if (seed % 2 === 0) manager.on('applied', (event) => heard[i]?.push(event));
      manager.on('dead-letter', (event) => heard[i]?.push(event));
    }
    for (let i = 0; i < 60; i++) {
      const body = { batch_id: i + 1, changes: batchOfOther(random) };
      const said = { from: 'other', ...(random.below(3) > 0 && { said: 'id=other' }) };
      const answer = plain.manager.receive(JSON.stringify(body), said);
      expect(answer.status).toBe(200);
      expect(checked.manager.receive(JSON.stringify(body, null, 1), said).body).toEqual(answer.body);
      expect(inAnyOrder(heard[0])).toEqual(inAnyOrder(heard[1]));
    }
    expect(allOf(plain)).toEqual(allOf(checked));
    expect(rowsOf(plain.db, 'SELECT DISTINCT code FROM _dead_letter_info').length).toBeGreaterThan(1);
  },
);

/** Which table of a batch comes first is nobody's business. */
function allOf({ db }: TestNode): unknown {
  const letters =
    'SELECT op, row_id, row_data, direction, table_name, peer, code, reason, change, unknown_columns, fingerprint, version ' +
    'FROM _dead_letter JOIN _dead_letter_info USING (dead_id)';
  const conflicts = 'SELECT won_by, row_id, lost_version, lost_row, won_version, base FROM _conflicts';
  const changes = 'SELECT op, table_name, row_id, row_data FROM _changes';
  const hidden = 'SELECT table_name, row_id, version, row_data FROM _hidden';
  const tombstones = 'SELECT table_name, row_id, version FROM _tombstones';
  const kept = [letters, conflicts, changes, hidden, tombstones].map((sql) => inAnyOrder(rowsOf(db, sql)));
  return [exactRows(db, 'items'), exactRows(db, 'notes'), ...kept];
}

function inAnyOrder(things: unknown[] | undefined): string[] {
  return (things ?? []).map((thing) => JSON.stringify(thing)).sort();
}

test.each([
  ['1', '1.0'],
  ['0.0', '-0.0'],
])('where a column takes numbers as they come, %s and %s end alike in either order', async (first, second) => {
  const body = (value: string): string =>
    `{"batch_id":1,"changes":[{"op":"INSERT","table":"items","row":{"id":"a","any_":${value},"updated_at":${T}},"old_id":null}]}`;
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, any_ , updated_at INTEGER)';
  const [here, there] = [await node({ schema }), await node({ schema })];
  for (const value of [first, second]) here.manager.receive(body(value));
  for (const value of [second, first]) there.manager.receive(body(value));
  expect(exactRows(here.db, 'items')).toEqual(exactRows(there.db, 'items'));
});
