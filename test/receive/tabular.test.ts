/** A batch in the tabular form has the outcome that it has in the plain one, whichever way it goes. */
import { describe, expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import { captured, cleanUp, database, exactRows, node, rowsOf } from '../support/nodes.ts';
import { receivedInParts } from '../support/received.ts';
import { asTabular, type PlainChange } from '../support/tabular.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const T = 1_700_000_000_000;
const SAID = 'id=a; inc=5f0c1e9a77b2d310; boot=7-21d0b7e4; t0=812; t=840';
const SCHEMA =
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, score REAL, "any" ANY, updated_at INTEGER)';

function item(id: string, at = 1, more: Record<string, unknown> = {}): PlainChange {
  const row = { id, name: `name of ${id}`, value: 1, score: 0.5, any: null, updated_at: T + at, ...more };
  return { op: 'INSERT', table: 'items', row, old_id: null };
}

const update = (id: string, at: number, base: number, name = 'again'): PlainChange => ({
  ...item(id, at, { name }),
  op: 'UPDATE',
  base: T + base,
});

/** In the plain form; in the tabular one; or in that one, and applied in parts of so many changes. */
type Way = 'plain' | 'tabular' | number;

/** What the batches leave behind, sent in one way. */
async function outcome(batches: PlainChange[][], way: Way, schema = SCHEMA) {
  // One clock that stands still: what is compared holds times.
  const { db, manager } = await node({ schema, clock: new VirtualClock() });
  const applied: unknown[] = [];
  const conflicts: unknown[] = [];
  manager.on('applied', ({ from, rows }) => applied.push(...rows.map((row) => [from, row])));
  manager.on('conflict', ({ id, lostVersion, wonVersion, from }) =>
    conflicts.push([id, lostVersion, wonVersion, from]),
  );
  const answers = batches.map((changes, i) => {
    const batch = { batch_id: i + 1, changes };
    const body = Buffer.from(way === 'plain' ? JSON.stringify(batch) : asTabular(batch));
    const options = { from: 'a', said: SAID, ...(typeof way === 'number' && { atOnce: way }) };
    const { received, steps } = receivedInParts(manager, body, options);
    return { status: received.status, body: received.body, steps };
  });
  const letters = manager.deadLetters.list();
  const why = batches.flat().map(({ row }) => manager.why('items', String(row.id)));
  return {
    answers: answers.map(({ status, body }) => ({ status, body })),
    steps: answers.map(({ steps }) => steps),
    seen: { applied, conflicts },
    letters,
    why,
    rows: exactRows(db, 'items'),
    left: captured(db),
  };
}

test.each<[string, PlainChange[][], string?]>([
  ['new rows', [[item('a'), item('b')]]],
  [
    'the same again',
    [
      [item('a'), item('b')],
      [item('a'), item('b')],
    ],
  ],
  [
    'older rows',
    [
      [item('a', 5), item('b', 5)],
      [item('a'), item('b')],
    ],
  ],
  [
    'newer rows',
    [
      [item('a'), item('b')],
      [item('a', 2), item('b', 3, { name: null })],
    ],
  ],
  [
    'a tie',
    [
      [item('a', 1, { name: 'x' }), item('b')],
      [item('a', 1, { name: 'y' }), item('b', 1, { name: 'a' })],
    ],
  ],
  ['one row twice', [[item('a', 1), item('a', 2, { name: 'later' })]]],
  [
    'what was overwritten unseen',
    [
      [item('a', 5), item('b', 1)],
      [update('a', 9, 1), update('b', 9, 1)],
    ],
  ],
  [
    'exact values',
    [
      [
        item('a', 1, {
          name: '$text:$blob:1',
          value: '9007199254740993',
          score: '9e999',
          any: '$int:9007199254740993',
        }),
        item('b', 1, { name: '$bytes:FFFE', value: -9007199254740991, score: '-9e999', any: '$blob:00FF' }),
        item('$blob:AB', 1, { name: 'a"b\\c\n\u0000\u2028', value: null, score: 1e-310, any: 1.5 }),
        item('$bytes:FF', 1),
      ],
    ],
  ],
  ['an id with escapes', [[item('a"\\'), item('b')]]],
  ['a time that is far ahead', [[item('a', 4_000_000_000_000), item('b')]]],
  ['a time that is none', [[item('a', 1, { updated_at: 'soon' }), item('b')]]],
  ['no id', [[item('a', 1, { id: null }), item('b')]]],
  ['a column that is not here', [[item('a', 1, { colour: 'red' }), item('b', 1, { colour: null })]]],
  [
    'a table that is not here',
    [
      [
        { ...item('a'), table: 'other' },
        { ...item('b'), table: 'other' },
      ],
    ],
  ],
  [
    'rows that cannot be written',
    [[item('a'), item('no'), item('b')]],
    SCHEMA.replace('name TEXT', "name TEXT CHECK (name <> 'name of no')"),
  ],
  [
    'values that are taken',
    [
      [item('a', 1, { name: 'x' }), item('b', 2, { name: 'x' })],
      [item('c', 3), item('d', 3)],
    ],
    SCHEMA.replace('name TEXT', 'name TEXT UNIQUE'),
  ],
  [
    'fewer columns',
    [[item('a', 1), item('b', 1)].map((one) => ({ ...one, row: { id: one.row.id, updated_at: one.row.updated_at } }))],
  ],
  [
    'columns in another order',
    [
      [item('a', 1), item('b', 1)].map((one) => ({
        ...one,
        row: Object.fromEntries(Object.entries(one.row).reverse()),
      })),
    ],
  ],
])('%s', async (_, batches, schema) => {
  const tabular = await outcome(batches, 'tabular', schema);
  expect(tabular).toEqual(await outcome(batches, 'plain', schema));
  expect(tabular.answers.map(({ status }) => status)).toEqual(batches.map(() => 200));
  // A row that is there twice is told of twice, once with each of its parts.
  const { steps: once, seen: whole, ...inOneGo } = tabular;
  expect(once).toEqual(batches.map(() => 1));
  const { steps, seen, ...inParts } = await outcome(batches, 1, schema);
  expect(inParts).toEqual(inOneGo);
  expect(seen.conflicts).toEqual(whole.conflicts);
  expect(new Set(seen.applied.map((one) => JSON.stringify(one)))).toEqual(
    new Set(whole.applied.map((one) => JSON.stringify(one))),
  );
  for (const [i, changes] of batches.entries()) expect([1, changes.length + 1]).toContain(steps[i]);
});

describe('a tabular batch', () => {
  test('of new rows goes the fast way', async () => {
    const { db, manager } = await node({ schema: SCHEMA });
    db.exec('DROP TABLE temp._rowcast_stage');
    expect(manager.receive(asTabular({ batch_id: 1, changes: [item('a'), item('b')] }), { said: SAID }).status).toBe(
      200,
    );
    expect(rowsOf(db, 'SELECT name FROM sqlite_temp_schema')).toEqual([]);
    expect(rowsOf(db, 'SELECT id FROM items ORDER BY id')).toEqual([{ id: 'a' }, { id: 'b' }]);
  });

  test.each([
    ['a row that is too short', '[["a",1],["b"]]', 400],
    ['a value that is nested', '[["a",1],["b",{}]]', 400],
    ['rows that are none', '7', 400],
    ['no JSON', '[["a",1]', 400],
    ['too many rows', `[${Array(10_001).fill('["a",1]').join()}]`, 413],
  ])('with %s changes nothing', async (_, rows, status) => {
    const { db, manager } = await node({ schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)' });
    const body = `{"batch_id":7,"op":"INSERT","table":"items","columns":["id","updated_at"],"rows":${rows}}`;
    expect(manager.receive(body, { from: 'a', said: SAID }).status).toBe(status);
    expect([exactRows(db, 'items'), manager.deadLetters.list()]).toEqual([[], []]);
  });

  test('is bounded by what it is in the plain form', async () => {
    const { manager } = await node({ schema: SCHEMA, maxBodyBytes: 100_000 });
    const changes = Array.from({ length: 500 }, (_, i) => item(String(i), 1, { ['n'.repeat(1_000)]: 1 }));
    const body = asTabular({ batch_id: 1, changes });
    expect(body.length).toBeLessThan(100_000);
    expect(manager.receive(body, { said: SAID }).status).toBe(413);
  });

  test('is read by a hub', async () => {
    const db = await database('SELECT 1');
    const hub = await createHub(db, { id: 'hub', edges: ['http://a', 'http://b'] });
    cleanUp(() => hub.stop());
    const { status, body } = await hub.receive(asTabular({ batch_id: 1, changes: [item('a'), item('b')] }), {
      from: 'a',
      said: SAID,
    });
    expect([status, body]).toEqual([200, { applied: 2, ack: 1 }]);
  });
});
