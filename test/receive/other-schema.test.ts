/** Rows of a sender whose tables are not quite ours. */
import { describe, expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { captured, cleanUp, exactRows, ITEMS, node, rowsOf } from '../support/nodes.ts';
import { accepted, batch, codes, ids, put, type Row, remove, rowless, tombstones } from '../support/received.ts';

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

  test.each([
    ['name', 'name'],
    ['"open"', 'open'],
    ['"a ""b"" c"', 'a "b" c'],
    ["[it's]", "it's"],
    ['`name`', 'name'],
    ['"true"', 'true'],
    ['true', '1'],
    ['NULL', null],
    ["'open'", 'open'],
    ["('o' || 'pen' -- as SQLite keeps it\n)", 'open'],
  ])('get the default that SQLite makes of DEFAULT %s, and are told to nobody for that', async (spelt, value) => {
    const { db, manager } = await node({
      schema: `CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, state TEXT DEFAULT ${spelt}, updated_at INTEGER)`,
    });
    expect(accepted(manager, batch(partial('a', 5)))).toEqual({ applied: 1, ack: 7 });
    expect(rowsOf(db, 'SELECT state FROM items')).toEqual([{ state: value }]);
    expect(captured(db)).toEqual([]);
    db.exec("UPDATE items SET state = 'new', updated_at = 6; DELETE FROM _changes");
    accepted(manager, batch(partial('a', 7)));
    expect(captured(db)).toMatchObject([{ row: { state: 'new', updated_at: 7 } }]);
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
