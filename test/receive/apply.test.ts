/** Applying a batch: what counts, what is set aside, and what is told of it. */
import { describe, expect, test } from 'vitest';
import { encodeAck } from '../../src/wire/protocol.ts';
import { lane } from '../support/lane.ts';
import { captured, exactRows, ITEMS, node, rowsOf } from '../support/nodes.ts';
import { accepted, batch, codes, ids, pragma, put, remove, rowless, syncing, tombstones } from '../support/received.ts';

describe('applied', () => {
  test('counts what won and what was already in place, not what is stale', async () => {
    const { manager } = await node();
    expect(accepted(manager, batch(put('a', 10), put('b', 10)))).toEqual({ applied: 2, ack: 7 });
    expect(accepted(manager, batch(put('a', 10), put('b', 9), put('c', 1)))).toEqual({ applied: 2, ack: 7 });
    expect(accepted(manager, batch(remove('a', 9), remove('b', 10), remove('x', 1)))).toEqual({ applied: 2, ack: 7 });
    expect(accepted(manager, batch())).toEqual({ applied: 0, ack: 7 });
  });

  const repeated: [string, unknown[], number][] = [
    ['one row several times, rising', [put('a', 1), put('a', 2), put('a', 3)], 3],
    ['one row several times, falling', [put('a', 3), put('a', 2), put('a', 1)], 3],
    ['a row, its deletion and its return', [put('a', 1), remove('a', 1), put('a', 2)], 3],
    ['a row and its deletion', [put('a', 1), remove('a', 2)], 2],
    ['ties of one row', [put('a', 1, { name: 'x' }), put('a', 1, { name: 'y' }), put('a', 1, { name: 'w' })], 3],
    ['one that is parked', [put('a', 1), put('b', 'soon'), put('c', 1, {}, 'nothing')], 1],
    ['an unknown column', [put('a', 1, { colour: 'red' }), put('b', 1)], 1],
    [
      'the deletion of a row without its row',
      [put('a', 1), { op: 'DELETE', table: 'items', row: null, old_id: 'a' }],
      1,
    ],
    ['the deletion of a row without its row, and its return', [rowless('a'), put('a', 5), rowless('b')], 3],
  ];
  test.each(repeated)(
    'the same batch again gives the same state and the same answer: %s',
    async (_name, changes, n) => {
      const { db, manager } = await node();
      const first = accepted(manager, batch(...changes));
      const state = [exactRows(db, 'items'), tombstones(db), manager.deadLetters.list()];
      expect(first.applied).toBe(n);
      for (let i = 0; i < 3; i++) {
        expect(accepted(manager, batch(...changes))).toEqual(first);
        expect([exactRows(db, 'items'), tombstones(db), manager.deadLetters.list()]).toEqual(state);
      }
    },
  );

  test('nothing that was received is captured', async () => {
    const { db, manager } = await node();
    accepted(manager, batch(put('a', 1), remove('b', 1), put('c', 'soon')));
    expect(captured(db)).toEqual([]);
    db.exec("INSERT INTO items VALUES ('mine', 'n', 1, 1, 1)");
    expect(captured(db)).toHaveLength(1);
  });
});

describe('the acknowledgement', () => {
  const batchIds: [string, number | string][] = [
    ['0', 0],
    ['-1', -1],
    ['9007199254740991', 9007199254740991],
    ['9007199254740992', '9007199254740992'],
    ['9007199254740993', '9007199254740993'],
    ['9223372036854775807', '9223372036854775807'],
    ['-9223372036854775808', '-9223372036854775808'],
  ];
  test.each(batchIds)('echoes batch_id %s exactly', async (text, ack) => {
    const { manager } = await node();
    const answer = accepted(manager, `{"batch_id":${text},"changes":[]}`);
    expect(answer).toEqual({ applied: 0, ack });
    expect(encodeAck(answer)).toBe(`{"applied":0,"ack":${text}}`);
  });

  test('carries the reasons of what was set aside, as JSON', async () => {
    const { manager } = await node();
    const answer = accepted(manager, batch(put('a', 1), put('b', 'soon'), put('c', 1, {}, 'nothing')));
    expect(codes(answer)).toEqual([
      [1, 'bad-timestamp'],
      [2, 'unknown-table'],
    ]);
    expect(answer.rejected?.[1]?.message).toContain('nothing');
    expect(JSON.parse(encodeAck(answer))).toEqual(answer);
  });

  test('is the same for text and for bytes, also bytes in the middle of a buffer', async () => {
    const { db, manager } = await node();
    const body = batch(put('a', 1, { name: 'größer ☃ 🦆' }));
    const padded = Buffer.from(`xxx${body}yyy`);
    const answer = accepted(manager, padded.subarray(3, padded.length - 3));
    expect(answer).toEqual({ applied: 1, ack: 7 });
    expect(accepted(manager, body)).toEqual(answer);
    expect(accepted(manager, new TextEncoder().encode(body))).toEqual(answer);
    expect(rowsOf(db, 'SELECT name FROM items')).toEqual([{ name: 'größer ☃ 🦆' }]);
  });
});

const STRICTER = `
  CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER CHECK (value < 100), created_at INTEGER,
    updated_at INTEGER, code TEXT UNIQUE ON CONFLICT REPLACE, kind TEXT NOT NULL DEFAULT 'plain');
  CREATE TRIGGER no_abort BEFORE INSERT ON items WHEN NEW.name = 'abort' BEGIN SELECT RAISE(ABORT, 'not this name'); END;
  CREATE TRIGGER no_fail AFTER INSERT ON items WHEN NEW.name = 'fail' BEGIN SELECT RAISE(FAIL, 'not that name'); END;
  CREATE TRIGGER no_delete BEFORE DELETE ON items WHEN OLD.name = 'kept' BEGIN SELECT RAISE(ABORT, 'this one stays'); END;
`;

describe('a change that cannot be applied', () => {
  const good = { code: null, kind: 'plain' };
  const unusable: [string, unknown, string, RegExp][] = [
    ['a CHECK constraint', put('p', 5, { ...good, value: 100 }), 'constraint', /CHECK/i],
    ['NOT NULL', put('p', 5, { ...good, kind: null }), 'constraint', /NOT NULL/i],
    ['RAISE(ABORT) in a trigger', put('p', 5, { ...good, name: 'abort' }), 'constraint', /not this name/],
    ['RAISE(FAIL) in a trigger', put('p', 5, { ...good, name: 'fail' }), 'constraint', /not that name/],
    ['a trigger that keeps a row from deletion', remove('kept', 5), 'constraint', /this one stays/],
    [
      'a trigger that keeps a row from a deletion without its row',
      { op: 'DELETE', table: 'items', row: null, old_id: 'kept' },
      'constraint',
      /this one stays/,
    ],
    ['an unknown table', put('p', 5, good, 'other'), 'unknown-table', /other/],
    ['a missing time', put('p', undefined, good), 'bad-timestamp', /updated_at/],
    ['a time as text', put('p', '5', good), 'bad-timestamp', /updated_at/],
    ['a time out of range', put('p', 7_258_118_400_001, good), 'bad-timestamp', /updated_at/],
    ['a deletion with a bad time', remove('p', null), 'bad-timestamp', /updated_at/],
    ['a missing id', put(undefined as never, 5, good), 'bad-id', /id/],
    ['an id that is a number', put(5 as never, 5, good), 'bad-id', /id/],
    ['a deletion with two ids', { ...remove('p', 5), old_id: 'q' }, 'bad-id', /differ/],
    ['a deletion with no id at all', { op: 'DELETE', table: 'items', row: null, old_id: null }, 'bad-id', /old_id/],
    ['an unknown op', { ...put('p', 5, good), op: 'UPSERT' }, 'bad-op', /UPSERT/],
    ['no row', { op: 'INSERT', table: 'items', row: null, old_id: null }, 'bad-row', /row/],
    ['not even an object', 42, 'bad-change', /object/],
  ];
  for (const [name, change, code, reason] of unusable) {
    test(`is parked with its reason, and the others are applied: ${name}`, async () => {
      const { db, manager } = await node({ schema: STRICTER });
      accepted(manager, batch(put('t', 1, { ...good, code: 'taken' }), put('kept', 1, { ...good, name: 'kept' })));
      const others = [put('a', 5, good), remove('b', 5), put('c', 5, good)];
      const answer = accepted(manager, batch(others[0], change, others[1], others[2]), 'sender');
      expect(codes(answer)).toEqual([[1, code]]);
      expect(answer.rejected?.[0]?.message).toMatch(reason);
      expect(answer.applied).toBe(3);
      expect(ids(db)).toEqual(['a', 'c', 'kept', 't']);
      expect(tombstones(db)).toEqual([{ table_name: 'items', row_id: 'b', version: 5 }]);
      expect(captured(db)).toEqual([]);
      expect(syncing(db)).toBe(0);

      const letters = manager.deadLetters.list();
      expect(letters).toHaveLength(1);
      expect(letters[0]).toMatchObject({ direction: 'in', code, peer: 'sender', retryCount: 0 });
      expect(letters[0]?.reason).toMatch(reason);
      expect(manager.health().dead_letter).toBe(1);

      // The same one again is the same letter, however it is written down.
      expect(accepted(manager, batch(others[0], change, others[1], others[2]))).toEqual(answer);
      accepted(manager, JSON.stringify({ batch_id: 8, changes: [change] }, null, 2));
      expect(manager.deadLetters.list()).toEqual(letters);
    });
  }

  const beside: [string, unknown[], [number, string][]][] = [
    ['ordinary changes', [put('c', 5)], []],
    ['a change that is parked', [put('c', 5), put('d', 'soon')], [[3, 'bad-timestamp']]],
    ['a change that is a mere string', [put('c', 5), 'hello'], [[3, 'bad-change']]],
    ['an unknown column', [put('c', 5, { colour: 'red' })], [[2, 'unknown-column']]],
  ];
  test.each(beside)('RAISE(ROLLBACK) in a trigger undoes neither the flag nor %s', async (_name, more, parked) => {
    const schema = `${ITEMS}; CREATE TRIGGER no BEFORE INSERT ON items WHEN NEW.name = 'no' BEGIN SELECT RAISE(ROLLBACK, 'all of it'); END`;
    const { db, manager } = await node({ schema });
    const body = batch(put('a', 5), put('p', 5, { name: 'no' }), ...more);
    for (let i = 0; i < 2; i++) {
      const answer = accepted(manager, body);
      expect(codes(answer)).toEqual([[1, 'constraint'], ...parked]);
      expect(answer.rejected?.[0]?.message).toMatch(/all of it/);
      expect(ids(db)).toEqual(['a', 'c']);
      expect(captured(db)).toEqual([]);
      expect(syncing(db)).toBe(0);
      expect(pragma(db, 'foreign_keys')).toBe(lane === 'bun-sqlite' ? 0 : 1);
      expect(manager.deadLetters.list()).toHaveLength(1 + parked.length);
    }
    expect(accepted(manager, batch(put('d', 5))).applied).toBe(1);
  });

  test('among ten thousand is found, and 9,999 are applied', { tags: 'long' }, async () => {
    const { db, manager } = await node({ schema: STRICTER });
    const changes = Array.from({ length: 10_000 }, (_, i) =>
      put(`r${i}`, 5, { value: i === 6_789 ? 100 : 1, code: null, kind: 'plain' }),
    );
    const answer = accepted(manager, batch(...changes));
    expect(answer.applied).toBe(9_999);
    expect(codes(answer)).toEqual([[6_789, 'constraint']]);
    expect(rowsOf(db, 'SELECT count(*) AS n FROM items')).toEqual([{ n: 9_999 }]);
    expect(manager.deadLetters.list()).toHaveLength(1);
  });

  test('is told in an event, with its table and id', async () => {
    const { manager } = await node({ schema: STRICTER });
    const parked: unknown[] = [];
    const applied: unknown[] = [];
    manager.on('dead-letter', (event) => parked.push(event));
    manager.on('applied', (event) => applied.push(event));
    accepted(manager, batch(put('p', 5, { ...good, value: 100 }), put('a', 5, good), remove('b', 5)), 'sender');
    expect(parked).toEqual([
      {
        direction: 'in',
        peer: 'sender',
        code: 'constraint',
        reason: expect.stringMatching(/CHECK/i),
        rows: [{ op: 'UPDATE', table: 'items', id: 'p' }],
      },
    ]);
    expect(applied).toEqual([
      {
        from: 'sender',
        applied: 2,
        rows: [
          { op: 'UPDATE', table: 'items', id: 'a' },
          { op: 'DELETE', table: 'items', id: 'b' },
        ],
      },
    ]);
  });
});

test('an ordinary batch tells in an event which rows it decided, and a stale change is not among them', async () => {
  const { manager } = await node();
  const applied: { rows: unknown[] }[] = [];
  manager.on('applied', (event) => applied.push(event));
  accepted(manager, batch(put('a', 5), { ...put('b', 5), op: 'INSERT' }, remove('c', 5)), 'sender');
  accepted(manager, batch(put('a', 4), put('d', 4)));
  expect(applied).toEqual([
    {
      from: 'sender',
      applied: 3,
      rows: [
        { op: 'UPDATE', table: 'items', id: 'a' },
        { op: 'INSERT', table: 'items', id: 'b' },
        { op: 'DELETE', table: 'items', id: 'c' },
      ],
    },
    { from: undefined, applied: 1, rows: [{ op: 'UPDATE', table: 'items', id: 'd' }] },
  ]);
});

describe('dead letters', () => {
  test('can be retried once the obstacle is gone, and say so while it is not', async () => {
    const { db, manager } = await node({ schema: STRICTER });
    db.exec(
      "CREATE TRIGGER closed BEFORE INSERT ON items WHEN NEW.code = 'taken' BEGIN SELECT RAISE(ABORT, 'closed'); END",
    );
    accepted(manager, batch(put('t', 1, { code: 'other', kind: 'plain' })));
    accepted(manager, batch(put('p', 5, { code: 'taken', kind: 'plain' })));
    const [letter] = manager.deadLetters.list();
    const id = letter?.id as number;
    expect(letter).toMatchObject({ op: 'UPDATE', table: 'items', rowId: 'p' });
    expect(JSON.parse(letter?.row as string)).toMatchObject({ id: 'p', code: 'taken' });
    expect(manager.deadLetters.retry(id)).toEqual({ outcome: 'kept', reason: expect.stringMatching(/closed/i) });
    expect(manager.deadLetters.list()).toEqual([{ ...letter, retryCount: 1 }]);
    db.exec('DROP TRIGGER closed');
    const before = captured(db).length;
    expect(manager.deadLetters.retry(id)).toEqual({ outcome: 'applied' });
    expect(ids(db)).toEqual(['p', 't']);
    expect(manager.deadLetters.list()).toEqual([]);
    expect(captured(db)).toHaveLength(before);
    expect(syncing(db)).toBe(0);
  });

  test('can be discarded, and one that is not there is an error that says so', async () => {
    const { manager } = await node();
    accepted(manager, batch(put('a', 'soon'), put('b', 'soon')));
    const [first, second] = manager.deadLetters.list();
    manager.deadLetters.discard(first?.id as number);
    expect(manager.deadLetters.list()).toEqual([second]);
    expect(() => manager.deadLetters.discard(first?.id as number)).toThrow(/no dead letter/);
    expect(manager.deadLetters.retry(first?.id as number)).toEqual({ outcome: 'gone' });
    expect(() => manager.deadLetters.retry(99)).toThrow(/no dead letter/);
    expect(manager.deadLetters.list({ after: second?.id as number })).toEqual([]);
    expect(manager.deadLetters.list({ limit: 1 })).toEqual([second]);
  });

  test('a retried change that has been overtaken does not bring back the past', async () => {
    const { db, manager } = await node({ schema: STRICTER });
    accepted(manager, batch(put('p', 5, { value: 100, kind: 'plain' })));
    accepted(manager, batch(remove('p', 6)));
    const [letter] = manager.deadLetters.list();
    manager.deadLetters.retry(letter?.id as number);
    expect(ids(db)).toEqual([]);
    expect(manager.deadLetters.list()).toEqual([]);
  });
});

describe('applyChanges', () => {
  test.each([
    ['bytes', Buffer.from('x'), /"name" is bytes.*\$blob:/],
    ['an ArrayBuffer', new ArrayBuffer(2), /"name" is bytes/],
    ['NaN', Number.NaN, /"name" is NaN.*nothing was changed/],
    ['infinity', Number.NEGATIVE_INFINITY, /"name" is -Infinity.*"-9e999"/],
  ])('refuses %s, of which JSON would make something else', async (_, name, message) => {
    const it = await node();
    const row = { id: 'a', name, updated_at: 1000 };
    const change = { op: 'INSERT', table: 'items', row, old_id: null };
    expect(() => it.manager.applyChanges([change as never])).toThrow(message);
    expect(it.all('SELECT * FROM items')).toEqual([]);
  });

  test('returns the count and takes bigints, exactly', async () => {
    const { db, manager } = await node({ schema: ITEMS.replace('value INTEGER', 'value INTEGER, anything') });
    const changes = [
      put('a', 5, { value: 2n ** 62n + 1n, anything: null }),
      put('b', 5n, { value: 7n, anything: 7n }),
      put('c', 5, { value: -(2n ** 63n), anything: 2n ** 62n + 1n }),
      put('d', 5, { value: 1, anything: 'x' }),
    ];
    expect(manager.applyChanges(changes as never)).toBe(4);
    expect(manager.deadLetters.list()).toEqual([]);
    expect(exactRows(db, 'items')).toEqual([
      "text:'a'|text:'n'|integer:4611686018427387905|null:NULL|integer:1|integer:5",
      "text:'b'|text:'n'|integer:7|integer:7|integer:1|integer:5",
      "text:'c'|text:'n'|integer:-9223372036854775808|integer:4611686018427387905|integer:1|integer:5",
      "text:'d'|text:'n'|integer:1|text:'x'|integer:1|integer:5",
    ]);
    expect(manager.applyChanges(changes as never)).toBe(4);
  });

  test('does not count what is stale or parked, and says no to what is not a list of changes', async () => {
    const { manager } = await node();
    expect(manager.applyChanges([put('a', 5), put('b', 'soon')] as never)).toBe(1);
    expect(manager.applyChanges([put('a', 4)] as never)).toBe(0);
    for (const wrong of [undefined, null, {}, 'x', 5])
      expect(() => manager.applyChanges(wrong as never)).toThrow(/array/);
    const many = Array.from({ length: 10_001 }, (_, i) => put(`r${i}`, 5));
    expect(() => manager.applyChanges(many as never)).toThrow(/10001 changes/);
  });
});

describe('a stopped manager', () => {
  test('refuses a batch for now, so that the sender keeps it', async () => {
    const { db, manager } = await node();
    await manager.stop();
    expect(manager.receive(batch(put('a', 5)))).toEqual({
      status: 503,
      body: { error: expect.any(String) },
      headers: expect.any(Object),
    });
    expect(ids(db)).toEqual([]);
  });
});
