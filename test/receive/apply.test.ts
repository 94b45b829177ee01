/** Applying a batch: what counts, what is set aside, and what is as before when it is over. */
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { Registry } from '../../src/capture/registry.ts';
import { DeadLetters } from '../../src/dead-letters.ts';
import { attach, type Manager } from '../../src/index.ts';
import { Applier } from '../../src/receive/apply.ts';
import { TimeLimit } from '../../src/receive/time-limit.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { type Ack, encodeAck } from '../../src/wire/protocol.ts';
import { betterSqlite3, lane, type TestDatabase } from '../support/lane.ts';
import { Random } from '../support/model.ts';
import { captured, cleanUp, database, exactRows, ITEMS, node, rowsOf, scratchFolder } from '../support/nodes.ts';

type Row = Record<string, unknown>;

function put(id: string, updatedAt: unknown, extra: Row = {}, table = 'items'): Row {
  const row = { id, name: 'n', value: 1, created_at: 1, updated_at: updatedAt, ...extra };
  return { op: 'UPDATE', table, row, old_id: null };
}

function remove(id: string, updatedAt: unknown, table = 'items'): Row {
  const row = { id, name: 'n', value: 1, created_at: 1, updated_at: updatedAt };
  return { op: 'DELETE', table, row, old_id: id };
}

/** A deletion as a plain peer may send it. */
function rowless(id: string): Row {
  return { op: 'DELETE', table: 'items', row: null, old_id: id };
}

function batch(...changes: unknown[]): string {
  return JSON.stringify({ batch_id: 7, changes });
}

function accepted(manager: Manager, body: string | Uint8Array, from?: string): Ack {
  const answer = manager.receive(body, { from, said: 'id=somebody' });
  if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.body.error}`);
  return answer.body;
}

const codes = (ack: Ack): unknown[] => (ack.rejected ?? []).map(({ index, code }) => [index, code]);
const pragma = (db: TestDatabase, name: string): unknown => Object.values(rowsOf(db, `PRAGMA ${name}`)[0] ?? {})[0];
const syncing = (db: TestDatabase): unknown => rowsOf(db, "SELECT value FROM _meta WHERE key = 'syncing'")[0]?.value;
const ids = (db: TestDatabase, table = 'items'): unknown[] =>
  rowsOf(db, `SELECT id FROM "${table}" ORDER BY id`).map(({ id }) => id);
const tombstones = (db: TestDatabase): unknown[] =>
  rowsOf(db, 'SELECT table_name, row_id, version FROM _tombstones ORDER BY 1, 2');

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

  test('among ten thousand is found, and 9,999 are applied', async () => {
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
    expect(() => manager.deadLetters.retry(first?.id as number)).toThrow(/no dead letter/);
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

describe('a schema that has not caught up', () => {
  test('an unknown table: its changes are replayed by the attach that includes it', async () => {
    const { db, manager } = await node();
    const changes = [put('n1', 5, {}, 'notes'), put('n2', 5, {}, 'Notes'), remove('n2', 6, 'notes'), put('a', 5)];
    expect(codes(accepted(manager, batch(...changes)))).toEqual([
      [0, 'unknown-table'],
      [1, 'unknown-table'],
      [2, 'unknown-table'],
    ]);
    await manager.stop();
    db.exec(ITEMS.replace('items', 'notes'));
    const later = attach(db, { id: 'node', peers: [] }, ['items', 'notes']);
    cleanUp(() => later.stop());
    expect(ids(db, 'notes')).toEqual(['n1']);
    expect(tombstones(db)).toEqual([{ table_name: 'notes', row_id: 'n2', version: 6 }]);
    expect(later.deadLetters.list()).toEqual([]);
    expect(captured(db)).toEqual([]);
  });

  test('an unknown column: the known part is applied, and ALTER TABLE ADD COLUMN fills in the rest', async () => {
    const { db, manager } = await node();
    const answer = accepted(manager, batch(put('a', 5, { colour: 'red', size: 3 }), put('b', 5)));
    expect(answer.applied).toBe(1);
    expect(codes(answer)).toEqual([[0, 'unknown-column']]);
    expect(answer.rejected?.[0]?.message).toMatch(/"colour", "size"/);
    expect(ids(db)).toEqual(['a', 'b']);
    db.exec('ALTER TABLE items ADD COLUMN Colour TEXT');
    accepted(manager, batch());
    expect(rowsOf(db, 'SELECT id, Colour AS c FROM items ORDER BY id')).toEqual([
      { id: 'a', c: 'red' },
      { id: 'b', c: null },
    ]);
    expect(manager.deadLetters.list()).toHaveLength(1);
    db.exec('ALTER TABLE items ADD COLUMN size INTEGER');
    accepted(manager, batch());
    expect(rowsOf(db, "SELECT Colour AS c, size FROM items WHERE id = 'a'")).toEqual([{ c: 'red', size: 3 }]);
    expect(manager.deadLetters.list()).toEqual([]);
    expect(captured(db)).toEqual([]);
  });

  test('the newest of several parked values of a column is the one that is filled in', async () => {
    const { db, manager } = await node();
    accepted(manager, batch(put('a', 7, { colour: 'amber' })));
    accepted(manager, batch(put('a', 5, { colour: 'red' }), put('a', 6, { colour: 'zinc' })));
    db.exec('ALTER TABLE items ADD COLUMN colour TEXT');
    accepted(manager, batch());
    expect(rowsOf(db, 'SELECT colour, updated_at FROM items')).toEqual([{ colour: 'amber', updated_at: 7 }]);
  });

  /** A column that is not known here must be noticed whatever else is unusual about the batch. */
  const disguised: [string, string][] = [
    [
      'when old_id is left out',
      '{"batch_id":7,"changes":[{"op":"INSERT","table":"items","row":{"id":"a","name":"n","value":1,"created_at":1,"updated_at":5,"colour":"red"}}]}',
    ],
    [
      'when there is a space before the colon',
      '{"batch_id":7,"changes":[{"op":"INSERT","table":"items","row":{"id":"a","name":"n","value":1,"created_at":1,"updated_at":5,"colour" :"red"},"old_id":null}]}',
    ],
    [
      'when a deletion in the batch has a short row',
      '{"batch_id":7,"changes":[{"op":"INSERT","table":"items","row":{"id":"a","name":"n","value":1,"created_at":1,"updated_at":5,"colour":"red"},"old_id":null},' +
        '{"op":"DELETE","table":"items","row":{"id":"b","name":"n","value":1,"updated_at":5},"old_id":"b"}]}',
    ],
  ];
  test.each(disguised)('an unknown column is never dropped silently: %s', async (_name, body) => {
    const { db, manager } = await node();
    expect(codes(accepted(manager, body))).toEqual([[0, 'unknown-column']]);
    expect(ids(db)).toEqual(['a']);
    db.exec('ALTER TABLE items ADD COLUMN colour TEXT');
    accepted(manager, batch());
    expect(rowsOf(db, 'SELECT colour FROM items')).toEqual([{ colour: 'red' }]);
  });
});

describe('rows with missing columns', () => {
  const schema = `CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER NOT NULL, created_at INTEGER DEFAULT 77, updated_at INTEGER)`;
  const partial = (id: string, updatedAt: number): Row => ({
    op: 'UPDATE',
    table: 'items',
    row: { id, name: 'new', updated_at: updatedAt },
    old_id: null,
  });

  test('leave those columns alone, also one that is NOT NULL without a default', async () => {
    const { db, manager } = await node({ schema });
    accepted(manager, batch(put('a', 5, { value: 42, created_at: 3 })));
    expect(accepted(manager, batch(partial('a', 6)))).toEqual({ applied: 1, ack: 7 });
    expect(accepted(manager, batch(partial('a', 6)))).toEqual({ applied: 1, ack: 7 });
    expect(exactRows(db, 'items')).toEqual(["text:'a'|text:'new'|integer:42|integer:3|integer:6"]);
    expect(accepted(manager, batch(partial('a', 5)))).toEqual({ applied: 0, ack: 7 });
  });

  test('become rows with defaults where there was none, or are parked where that is impossible', async () => {
    const { db, manager } = await node({ schema });
    const withValue = { ...partial('a', 5), row: { id: 'a', value: 1, updated_at: 5 } };
    const answer = accepted(manager, batch(withValue, partial('b', 5)));
    expect(codes(answer)).toEqual([[1, 'constraint']]);
    expect(exactRows(db, 'items')).toEqual(["text:'a'|null:NULL|integer:1|integer:77|integer:5"]);
  });

  test('find the row that the same batch has inserted before them', async () => {
    const { db, manager } = await node({ schema });
    accepted(manager, batch(put('a', 5, { value: 1 })));
    const answer = accepted(manager, batch(partial('a', 6), put('b', 5, { value: 2 }), partial('b', 6)));
    expect(answer).toEqual({ applied: 3, ack: 7 });
    expect(rowsOf(db, "SELECT name, value, updated_at FROM items WHERE id = 'b'")).toEqual([
      { name: 'new', value: 2, updated_at: 6 },
    ]);
  });
});

test('names from the wire match without regard to case, as in SQLite', async () => {
  const { db, manager } = await node();
  const row = { ID: 'a', Name: 'n', VALUE: 1, created_AT: 1, Updated_At: 5 };
  expect(accepted(manager, batch({ op: 'INSERT', table: 'ItEmS', row, old_id: null }))).toEqual({ applied: 1, ack: 7 });
  expect(exactRows(db, 'items')).toEqual(["text:'a'|text:'n'|integer:1|integer:1|integer:5"]);
  const gone = { op: 'DELETE', table: 'ITEMS', row: { Id: 'a', UPDATED_AT: 5 }, old_id: 'a' };
  expect(accepted(manager, batch(gone))).toEqual({ applied: 1, ack: 7 });
  expect(ids(db)).toEqual([]);
});

test('a DELETE without its row removes what is there and buries it at its version', async () => {
  const { db, manager } = await node();
  accepted(manager, batch(put('a', 5), put('b', 5)));
  expect(accepted(manager, batch(rowless('a'), rowless('never')))).toEqual({ applied: 2, ack: 7 });
  expect(ids(db)).toEqual(['b']);
  expect(tombstones(db)).toEqual([{ table_name: 'items', row_id: 'a', version: 5 }]);
  expect(accepted(manager, batch(put('a', 5))).applied).toBe(0);
  expect(accepted(manager, batch(put('a', 6), rowless('b'), put('b', 6))).applied).toBe(3);
  expect(ids(db)).toEqual(['a', 'b']);
});

describe('foreign keys', () => {
  const schema = `PRAGMA foreign_keys = ON;
    CREATE TABLE parents (id TEXT PRIMARY KEY, updated_at INTEGER);
    CREATE TABLE children (id TEXT PRIMARY KEY, parent TEXT NOT NULL REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE, updated_at INTEGER)`;
  const parent = (updatedAt: number, op = 'INSERT'): Row => ({
    op,
    table: 'parents',
    row: { id: 'p', updated_at: updatedAt },
    old_id: op === 'DELETE' ? 'p' : null,
  });
  const child = { op: 'INSERT', table: 'children', row: { id: 'c', parent: 'p', updated_at: 5 }, old_id: null };

  test('a child may come before its parent, and nothing cascades while applying', async () => {
    const { db, manager } = await node({ schema, tables: ['parents', 'children'] });
    expect(accepted(manager, batch(child))).toEqual({ applied: 1, ack: 7 });
    expect(accepted(manager, batch(parent(5)))).toEqual({ applied: 1, ack: 7 });
    // A newer parent and its deletion: whether the children go is for their own changes to say.
    accepted(manager, batch(parent(6)));
    accepted(manager, batch(parent(7, 'DELETE')));
    expect(ids(db, 'children')).toEqual(['c']);
    expect(captured(db)).toEqual([]);
  });

  test('are enforced again afterwards, also after a refusal', async () => {
    const { db, manager } = await node({ schema, tables: ['parents', 'children'] });
    for (const body of [batch(child), '{', batch({ ...child, op: 'NO' })]) {
      manager.receive(body);
      expect(pragma(db, 'foreign_keys')).toBe(1);
      expect(() => db.exec("INSERT INTO children VALUES ('x', 'nobody', 1)")).toThrow(/FOREIGN KEY/i);
    }
    accepted(manager, batch(parent(5)));
    db.exec("DELETE FROM parents WHERE id = 'p'");
    expect(ids(db, 'children')).toEqual([]);
    expect(captured(db).map(({ op, row_id }) => [op, row_id])).toEqual(
      expect.arrayContaining([
        ['DELETE', 'p'],
        ['DELETE', 'c'],
      ]),
    );
  });
});

describe('the state of the connection', () => {
  test.each([0, 1, 2, 3])(
    'synchronous = %i and foreign_keys are as before, whatever came of the batch',
    async (level) => {
      for (const keys of [0, 1]) {
        const { db, manager } = await node();
        db.exec(`PRAGMA synchronous = ${level}; PRAGMA foreign_keys = ${keys}`);
        for (const body of [batch(put('a', 5)), batch(put('b', 'soon')), 'nonsense']) {
          manager.receive(body);
          expect([pragma(db, 'synchronous'), pragma(db, 'foreign_keys')]).toEqual([level, keys]);
        }
        db.exec('BEGIN');
        expect(manager.receive(batch(put('c', 5))).status).toBe(503);
        db.exec('COMMIT');
        expect([pragma(db, 'synchronous'), pragma(db, 'foreign_keys')]).toEqual([level, keys]);
      }
    },
  );

  test.each([
    ['while the rows are written', 'INSERT OR ABORT INTO main."items"'],
    ['while a change is set aside', 'INSERT INTO main._dead_letter '],
    ['while the flag is reset', 'UPDATE main._meta SET value = 0'],
    ['at the commit', 'COMMIT'],
  ])('an error %s leaves nothing behind: no row, no flag, no transaction', async (_when, where) => {
    const db = await database();
    let armed = false;
    const strike = (sql: string): void => {
      if (armed && sql.startsWith(where))
        throw Object.assign(new Error('struck by lightning'), { code: 'SQLITE_IOERR' });
    };
    const handle = {
      exec: (sql: string) => {
        strike(sql);
        return db.exec(sql);
      },
      prepare: (sql: string) => {
        const statement = db.prepare(sql);
        return {
          run: (...params: unknown[]) => {
            strike(sql);
            return statement.run(...params);
          },
          get: (...params: unknown[]) => statement.get(...params),
          all: (...params: unknown[]) => statement.all(...params),
        };
      },
      transaction: (fn: () => unknown) => db.transaction(fn),
    };
    db.exec('PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON');
    const manager = attach(handle, { id: 'node', peers: [] }, ['items']);
    cleanUp(() => manager.stop());
    const errors: unknown[] = [];
    manager.on('error', (error) => errors.push(error.code));
    const body = batch(put('a', 5), put('b', 'soon'));
    armed = true;
    const answer = manager.receive(body);
    expect(answer).toEqual({
      status: 503,
      body: { error: expect.stringContaining('struck by lightning') },
      headers: expect.any(Object),
    });
    expect(errors).toEqual(['DATABASE_FAILED']);
    expect(() => manager.applyChanges([put('a', 5), put('b', 'soon')] as never)).toThrow();
    armed = false;
    expect([syncing(db), ids(db), manager.deadLetters.list()]).toEqual([0, [], []]);
    expect([pragma(db, 'synchronous'), pragma(db, 'foreign_keys')]).toEqual([1, 1]);
    db.exec("INSERT INTO items VALUES ('mine', 'n', 1, 1, 1)");
    expect(captured(db)).toHaveLength(1);
    expect(codes(accepted(manager, body))).toEqual([[1, 'bad-timestamp']]);
    expect([syncing(db), ids(db)]).toEqual([0, ['a', 'mine']]);
  });

  test('syncing is 0 after success and after a refusal, and comes back when somebody has deleted it', async () => {
    const { db, manager } = await node();
    for (const body of [batch(put('a', 5)), batch(put('b', 'soon')), '[', batch({})]) {
      manager.receive(body);
      expect(syncing(db)).toBe(0);
    }
    db.exec('DELETE FROM _meta');
    accepted(manager, batch(put('c', 5)));
    expect(captured(db)).toEqual([]);
    expect(syncing(db)).toBe(0);
  });

  test.each(['BEGIN', 'BEGIN IMMEDIATE', 'SAVEPOINT mine'])(
    'inside the caller’s own %s a batch is refused',
    async (begin) => {
      for (const setting of ['PRAGMA synchronous = FULL', 'PRAGMA synchronous = NORMAL']) {
        const { db, manager } = await node();
        db.exec(`${setting}; PRAGMA foreign_keys = ON`);
        db.exec(begin);
        db.exec("INSERT INTO items VALUES ('mine', 'n', 1, 1, 1)");
        expect(manager.receive(batch(put('a', 5)))).toEqual({
          status: 503,
          body: { error: expect.stringContaining('transaction') },
          headers: expect.any(Object),
        });
        expect(() => manager.applyChanges([put('a', 5) as never])).toThrow(/transaction/);
        expect(ids(db)).toEqual(['mine']);
        // The caller's transaction is still the caller's, to keep or to undo.
        db.exec(begin.startsWith('SAVEPOINT') ? 'ROLLBACK TO mine; RELEASE mine' : 'ROLLBACK');
        expect(ids(db)).toEqual([]);
        expect(accepted(manager, batch(put('a', 5))).applied).toBe(1);
        expect(pragma(db, 'foreign_keys')).toBe(1);
      }
    },
  );
});

describe('other connections', () => {
  test('what a second one writes between two batches is captured', async () => {
    const path = join(scratchFolder(), 'shared.db');
    const { db, manager } = await node({ path });
    const second = await database('SELECT 1', path);
    accepted(manager, batch(put('a', 5)));
    second.exec("INSERT INTO items VALUES ('b', 'theirs', 1, 1, 6)");
    accepted(manager, batch(put('c', 5)));
    second.exec("UPDATE items SET name = 'theirs', updated_at = 7 WHERE id = 'a'");
    accepted(manager, batch(put('a', 6)));
    expect(captured(db).map(({ op, row_id }) => [op, row_id])).toEqual([
      ['INSERT', 'b'],
      ['UPDATE', 'a'],
    ]);
    expect(rowsOf(db, "SELECT name FROM items WHERE id = 'a'")).toEqual([{ name: 'theirs' }]);
  });

  test('a write lock of another process is waited for, without a busy timeout of the caller’s own', async () => {
    const path = join(scratchFolder(), 'busy.db');
    const { db, manager } = await node({ path });
    db.exec('PRAGMA busy_timeout = 0');
    await holdWriteLock(path);
    expect(accepted(manager, batch(put('a', 5)))).toEqual({ applied: 1, ack: 7 });
    // The other process committed first: its row is there, and it was captured.
    expect(ids(db)).toEqual(['a', 'theirs']);
    expect(captured(db).map(({ row_id }) => row_id)).toEqual(['theirs']);
    expect(pragma(db, 'busy_timeout')).toBe(0);
  });
});

/** Another process that takes the write lock, says so, and gives it back by itself: this one will be blocked meanwhile. */
async function holdWriteLock(path: string): Promise<void> {
  const require = createRequire(import.meta.url);
  const open = {
    'bun-sqlite': "new (require('bun:sqlite').Database)(path)",
    'node-sqlite': "new (require('node:sqlite').DatabaseSync)(path)",
    'better-sqlite3': `new (require(${JSON.stringify(lane === 'better-sqlite3' ? require.resolve(betterSqlite3()) : '')}))(path)`,
  }[lane];
  const script = `const path = ${JSON.stringify(path)}; const db = ${open};
    db.exec('BEGIN IMMEDIATE');
    db.exec("INSERT INTO items VALUES ('theirs', 'n', 1, 1, 1)");
    process.stdout.write('locked');
    setTimeout(() => { db.exec('COMMIT'); db.close(); }, 400);`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  cleanUp(() => ended);
  await new Promise<void>((resolve, reject) => {
    child.stdout.once('data', () => resolve());
    child.once('exit', () => reject(new Error('the other process ended without taking the lock')));
  });
}

describe('applyChanges', () => {
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

describe('the way through without jsonb', () => {
  test('gives the same answers and the same state as the fast one, on random batches', async () => {
    const schema = `${ITEMS}; CREATE TABLE "odd ""name" (id TEXT PRIMARY KEY, any, num NUMERIC, real REAL, bytes BLOB, text TEXT CHECK (text <> 'never'), updated_at INTEGER)`;
    const tables = ['items', 'odd "name'];
    const fast = await node({ schema, tables });
    const db = await database(schema);
    const connection = new Connection(db);
    const registry = new Registry(connection, {
      tables,
      warn: () => {},
      onRefresh: () => {},
      onUnseen: () => {},
      features: { jsonb: false },
    });
    const clock = { now: () => 1, sleep: async () => {} };
    const timeLimit = new TimeLimit(clock, 0);
    const letters = new DeadLetters(connection, clock, timeLimit);
    const applier = new Applier(connection, registry, letters, 1e8, { tick: () => {} });
    registry.install();
    cleanUp(() => connection.release());
    for (const one of [fast.db, db]) one.exec('PRAGMA foreign_keys = OFF');

    const random = new Random(31);
    let parked = 0;
    for (let round = 0; round < 150; round++) {
      const dirty = random.chance(0.3);
      const changes = Array.from({ length: 1 + random.below(8) }, () =>
        randomChange(random, dirty, 2 + Math.floor(round / 5)),
      );
      const body = `{"batch_id":${round},"changes":[${changes.join(',')}]}`;
      const { ack } = applier.apply(body, { from: undefined, isRowcast: false, wantRows: true, wantLetters: true });
      expect(fast.manager.receive(body), body).toEqual({ status: 200, body: ack, headers: expect.any(Object) });
      parked += ack.rejected?.length ?? 0;
      for (const table of ['items', 'odd ""name']) expect(dump(db, table), body).toEqual(dump(fast.db, table));
      expect(tombstones(db)).toEqual(tombstones(fast.db));
    }
    const reasons = (list: { op: string | null; row: string | null; code: string | null; reason: string | null }[]) =>
      list.map(({ op, row, code, reason }) => ({ op, row, code, reason }));
    expect(reasons(letters.list())).toEqual(reasons(fast.manager.deadLetters.list()));
    expect(parked).toBeGreaterThan(10);
    expect(ids(db).length).toBeGreaterThan(0);
  });
});

/** `table` is already quoted inside. */
function dump(db: TestDatabase, table: string): unknown[] {
  const columns = rowsOf(db, 'SELECT name FROM pragma_table_info(?)', table.replaceAll('""', '"'));
  const parts = columns.map(({ name }) => `typeof("${name}") || quote("${name}")`).join(" || '|' || ");
  return rowsOf(db, `SELECT ${parts} AS line FROM "${table}" ORDER BY id`);
}

function randomChange(random: Random, dirty: boolean, from: number): string {
  const id = random.pick(['"a"', '"b"', '"c"', '"d"']);
  const time =
    dirty && random.chance(0.15) ? random.pick(['"5"', 'null', '1.5', 'true']) : String(from + random.below(5));
  const op = dirty && random.chance(0.1) ? 'UPSERT' : random.pick(['INSERT', 'UPDATE', 'UPDATE', 'DELETE']);
  const value = (): string =>
    random.pick([
      'null',
      '0',
      '-1',
      '"9007199254740993"',
      '1.25',
      '"x"',
      '"$blob:00FF"',
      '"$int:12"',
      '"9e999"',
      '"ü☃"',
    ]);
  const odd = random.chance(0.5);
  const extra = dirty && random.chance(0.2) ? ',"colour":"red"' : '';
  const text = dirty && random.chance(0.2) ? '"never"' : '"t"';
  const row = odd
    ? `{"id":${id},"any":${value()},"num":${value()},"real":${value()},"bytes":${value()},"text":${text},"updated_at":${time}${extra}}`
    : `{"id":${id},"name":${value()},${dirty && random.chance(0.2) ? '' : `"value":${value()},`}"created_at":1,"updated_at":${time}${extra}}`;
  const name = odd ? '"odd \\"name"' : dirty && random.chance(0.1) ? '"nothing"' : '"items"';
  return `{"op":"${op}","table":${name},"row":${row},"old_id":${op === 'DELETE' ? id : 'null'}}`;
}
