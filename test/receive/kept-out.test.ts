/** A trigger of the application that ends a write without an error: what it keeps out is a letter, not lost. */
import { describe, expect, test } from 'vitest';
import { ITEMS, node, rowsOf, type TestNode } from '../support/nodes.ts';
import { accepted, batch, codes, ids, put, type Row, remove, rowless, tombstones } from '../support/received.ts';

const ignoring = (event: string, when = 'true'): string =>
  `CREATE TRIGGER ignores_${event} BEFORE ${event} ON items WHEN ${when} BEGIN SELECT RAISE(/* quietly */ IGNORE); END`;
const ON_INSERT = ignoring('INSERT', "NEW.name = 'bad'");
const ON_UPDATE = ignoring('UPDATE', "NEW.name = 'bad'");
const ON_DELETE = ignoring('DELETE', "OLD.id = 'k'");
const bad = { name: 'bad' };

/** A body that is written in another order takes the careful way, and so does one that lacks a column. */
const WAYS: Record<string, (change: Row) => Row> = {
  fast: (change) => change,
  careful: ({ op, ...change }) => ({ ...change, op }),
  partial: ({ row, ...change }) => {
    const { created_at: _, ...rest } = row as Row;
    return { ...change, row: rest };
  },
};

const names = ({ db }: TestNode): unknown => rowsOf(db, 'SELECT id, name, updated_at FROM items ORDER BY id');
const letters = ({ manager }: TestNode): unknown[] =>
  manager.deadLetters.list().map(({ code, op, rowId }) => [code, op, rowId]);

describe.each(Object.entries(WAYS))('RAISE(IGNORE), on the %s way', (_name, way) => {
  const beside = Array.from({ length: 20 }, (_, i) => put(`beside-${i}`, 1));

  test('an INSERT is kept, and what came with it is applied', async () => {
    const it = await node({ schema: `${ITEMS}; ${ON_INSERT}` });
    const body = batch(...[...beside, put('k', 10, bad)].map(way));
    for (let i = 0; i < 2; i++) {
      const answer = accepted(it.manager, body);
      expect([answer.applied, codes(answer)]).toEqual([20, [[20, 'constraint']]]);
      expect(answer.rejected?.[0]?.message).toMatch(/trigger of yours on "items".*RAISE\(IGNORE\)/);
      expect(ids(it.db)).toHaveLength(20);
      expect(letters(it)).toEqual([['constraint', 'UPDATE', 'k']]);
    }
    expect(it.manager.health().dead_letter).toBe(1);
  });

  test('an UPDATE is kept, and the older row stands', async () => {
    const it = await node({ schema: `${ITEMS}; ${ON_UPDATE}` });
    accepted(it.manager, batch(put('k', 10)));
    const answer = accepted(it.manager, batch(...[put('k', 20, bad), put('other', 1)].map(way)));
    expect([answer.applied, codes(answer)]).toEqual([1, [[0, 'constraint']]]);
    expect(names(it)).toEqual([
      { id: 'k', name: 'n', updated_at: 10 },
      { id: 'other', name: 'n', updated_at: 1 },
    ]);
    expect(letters(it)).toEqual([['constraint', 'UPDATE', 'k']]);
  });

  test('an UPDATE that only its content makes the winner is kept as well', async () => {
    const it = await node({ schema: `${ITEMS}; ${ignoring('UPDATE', "NEW.name = 'z'")}` });
    accepted(it.manager, batch(put('k', 10)));
    expect(codes(accepted(it.manager, batch(way(put('k', 10, { name: 'z' })))))).toEqual([[0, 'constraint']]);
    expect(codes(accepted(it.manager, batch(way(put('k', 10, { name: 'a' })))))).toEqual([]);
  });

  test('a DELETE is kept, and leaves no tombstone of a row that lives', async () => {
    const it = await node({ schema: `${ITEMS}; ${ON_DELETE}` });
    accepted(it.manager, batch(put('k', 10), put('other', 10)));
    const answer = accepted(it.manager, batch(...[remove('k', 20), remove('other', 20)].map(way)));
    expect([answer.applied, codes(answer)]).toEqual([1, [[0, 'constraint']]]);
    expect(ids(it.db)).toEqual(['k']);
    expect(tombstones(it.db)).toEqual([{ table_name: 'items', row_id: 'other', version: 20 }]);
    expect(letters(it)).toEqual([['constraint', 'DELETE', 'k']]);
    // The row as it lives here still takes what is newer than it.
    expect(accepted(it.manager, batch(put('k', 15))).applied).toBe(1);
  });

  test('changes that lose, and those that are in place, are no letters', async () => {
    const it = await node({ schema: `${ITEMS}; ${ON_INSERT}; ${ON_UPDATE}; ${ON_DELETE}` });
    accepted(it.manager, batch(put('k', 10), remove('gone', 10)));
    const late = [
      put('k', 5, bad),
      put('k', 10),
      remove('k', 9),
      put('gone', 10, bad),
      put('k', 11, bad),
      put('k', 12),
    ];
    expect(codes(accepted(it.manager, batch(...late.map(way))))).toEqual([]);
    expect(names(it)).toEqual([{ id: 'k', name: 'n', updated_at: 12 }]);
  });
});

describe('the letter of a change that a trigger has ignored', () => {
  test('stays while the trigger does, and is applied after it', async () => {
    const it = await node({ schema: `${ITEMS}; ${ON_INSERT}` });
    accepted(it.manager, batch(put('k', 10, bad)));
    const [letter] = it.manager.deadLetters.list();
    const id = letter?.id as number;
    expect(it.manager.deadLetters.retry(id)).toMatchObject({ outcome: 'kept', reason: expect.stringMatching(/RAISE/) });
    it.db.exec('DROP TRIGGER ignores_INSERT');
    expect(it.manager.deadLetters.retry(id)).toEqual({ outcome: 'applied' });
    expect(names(it)).toEqual([{ id: 'k', name: 'bad', updated_at: 10 }]);
  });

  test('does not come over a newer change of its row', async () => {
    const it = await node({ schema: `${ITEMS}; ${ON_INSERT}` });
    accepted(it.manager, batch(put('k', 10, bad)));
    expect(accepted(it.manager, batch(put('k', 20))).applied).toBe(1);
    for (const { id } of it.manager.deadLetters.list()) it.manager.deadLetters.retry(id);
    expect(names(it)).toEqual([{ id: 'k', name: 'n', updated_at: 20 }]);
    expect(letters(it)).toEqual([]);
  });

  test('is written where the trigger was made while the node runs', async () => {
    const it = await node();
    accepted(it.manager, batch(put('a', 1)));
    it.db.exec(ON_INSERT);
    expect(codes(accepted(it.manager, batch(put('k', 10, bad))))).toEqual([[0, 'constraint']]);
  });

  test('is written of changes that can only update a row, and only of those that are ignored', async () => {
    const schema = ITEMS.replace('created_at INTEGER', 'created_at INTEGER NOT NULL');
    const it = await node({ schema: `${schema}; ${ON_UPDATE}` });
    accepted(it.manager, batch(put('k', 10), put('other', 10)));
    const part = WAYS.partial as (change: Row) => Row;
    const changes = [put('other', 20), put('k', 20, bad), put('other', 30), put('k', 30, bad), put('k', 15)];
    expect(codes(accepted(it.manager, batch(...changes.map(part))))).toEqual([
      [1, 'constraint'],
      [3, 'constraint'],
    ]);
    expect(names(it)).toEqual([
      { id: 'k', name: 'n', updated_at: 15 },
      { id: 'other', name: 'n', updated_at: 30 },
    ]);
  });

  test('is written of a deletion without its row', async () => {
    const it = await node({ schema: `${ITEMS}; ${ON_DELETE}` });
    accepted(it.manager, batch(put('k', 10), put('other', 10)));
    const answer = accepted(it.manager, batch(rowless('k'), rowless('other')));
    expect(codes(answer)).toEqual([[0, 'constraint']]);
    expect([ids(it.db), tombstones(it.db).length]).toEqual([['k'], 1]);
  });
});

test.each([10, 20])('a column that is filled in later, at %i, and ignored, keeps its letter', async (time) => {
  const it = await node({ schema: `${ITEMS}; ${ignoring('UPDATE')}` });
  accepted(it.manager, batch(put('k', 10, { colour: 'red' })));
  if (time > 10) {
    it.db.exec('DROP TRIGGER ignores_UPDATE');
    accepted(it.manager, batch(put('k', time)));
    it.db.exec(ignoring('UPDATE'));
  }
  it.db.exec('ALTER TABLE items ADD COLUMN colour TEXT');
  // Whatever comes next is what notices it.
  accepted(it.manager, batch());
  await it.manager.flush();
  expect(rowsOf(it.db, 'SELECT colour FROM items')).toEqual([{ colour: null }]);
  expect(letters(it)).toEqual([['unknown-column', 'UPDATE', 'k']]);
  expect(it.manager.deadLetters.list()[0]?.reason).toMatch(/RAISE\(IGNORE\)/);
  const id = it.manager.deadLetters.list()[0]?.id as number;
  expect(it.manager.deadLetters.retry(id)).toMatchObject({ outcome: 'kept' });
  it.db.exec('DROP TRIGGER ignores_UPDATE');
  expect(it.manager.deadLetters.retry(id)).toEqual({ outcome: 'applied' });
  expect(rowsOf(it.db, 'SELECT colour FROM items')).toEqual([{ colour: 'red' }]);
  expect(letters(it)).toEqual([]);
});

describe('RAISE(IGNORE) beside a UNIQUE value', () => {
  const UNIQUE = ITEMS.replace('name TEXT', 'name TEXT UNIQUE');

  test('a row that may come back and is ignored stays hidden', async () => {
    const it = await node({ schema: `${UNIQUE}; ${ignoring('INSERT', "NEW.id = 'weak' AND NEW.updated_at = 10")}` });
    accepted(it.manager, batch(put('strong', 20, { name: 'one' })));
    accepted(it.manager, batch(put('weak', 10, { name: 'one' })));
    accepted(it.manager, batch(put('strong', 30, { name: 'two' })));
    expect(ids(it.db)).toEqual(['strong']);
    expect(letters(it).length).toBe(1);
  });

  test('a row that a stronger one should put out, and that may not go, keeps its place; the other is a letter', async () => {
    const it = await node({ schema: `${UNIQUE}; ${ON_DELETE}` });
    accepted(it.manager, batch(put('k', 10, { name: 'one' })));
    accepted(it.manager, batch(put('strong', 20, { name: 'one' })));
    expect(ids(it.db)).toEqual(['k']);
    expect(letters(it)).toHaveLength(1);
    // It gets the name of a stronger one, and cannot be put aside.
    accepted(it.manager, batch(put('third', 40, { name: 'three' })));
    accepted(it.manager, batch(put('k', 30, { name: 'three' })));
    expect(names(it)).toContainEqual({ id: 'k', name: 'one', updated_at: 10 });
    expect(letters(it)).toHaveLength(2);
  });
});
