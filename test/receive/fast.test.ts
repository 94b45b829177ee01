/**
 * The careful way gives the same outcome as the fast one, so a fast statement that is broken would go unnoticed, and only
 * cost time. Here it is looked at which way a batch goes.
 */
import { expect, test } from 'vitest';
import { attach, type Manager } from '../../src/index.ts';
import { cleanUp, database, rowsOf } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const SCHEMA =
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, score REAL, anything, updated_at INTEGER);' +
  'CREATE TABLE notes ("a ""quoted"" name" TEXT, id TEXT PRIMARY KEY, updated_at INTEGER)';

interface Change {
  op: string;
  table: string;
  row: Record<string, unknown>;
  old_id: string | null;
}

function item(id: string, at: number, name: unknown = 'n', op = 'UPDATE'): Change {
  const row = { id, name, value: 1, score: 0.5, anything: null, updated_at: T + at };
  return { op, table: 'items', row, old_id: op === 'DELETE' ? id : null };
}

function note(id: string, at: number, text = 'n'): Change {
  return { op: 'INSERT', table: 'notes', row: { 'a "quoted" name': text, id, updated_at: T + at }, old_id: null };
}

interface Rig {
  manager: Manager;
  rows(): Record<string, unknown>[];
  /** Did the last batch go the careful way? */
  carefully(changes: Change[]): { applied: number; carefully: boolean };
}

async function rig(): Promise<Rig> {
  const db = await database(SCHEMA);
  let careful = false;
  const noticing = (sql: string): string => {
    careful ||= sql.includes('_rowcast_stage');
    return sql;
  };
  const handle = {
    exec: (sql: string) => db.exec(noticing(sql)),
    prepare: (sql: string) => db.prepare(noticing(sql)),
    transaction: (fn: () => unknown) => db.transaction(fn),
  };
  const manager = attach(handle, { id: 'node', peers: [] }, ['items', 'notes']);
  cleanUp(() => manager.stop());
  return {
    manager,
    rows: () => rowsOf(db, 'SELECT id, name, updated_at FROM items ORDER BY id'),
    carefully: (changes) => {
      careful = false;
      const answer = manager.receive(JSON.stringify({ batch_id: 1, changes }));
      if (answer.status !== 200) throw new Error(answer.body.error);
      return { applied: answer.body.applied, carefully: careful };
    },
  };
}

const ENCODED = '$text:$blob:00';

test.each<[string, Change[], Change[], number]>([
  ['new rows', [], [item('a', 1), item('b', 1)], 2],
  ['the same rows again', [item('a', 1), item('b', 1)], [item('a', 1), item('b', 1)], 2],
  ['older rows', [item('a', 5), item('b', 5)], [item('a', 1), item('b', 1)], 0],
  ['newer rows', [item('a', 1)], [item('a', 2), item('b', 2)], 2],
  ['a tie, which the greater content wins', [item('a', 1, 'x')], [item('a', 1, 'y'), item('b', 1)], 2],
  ['a tie, which the greater content has won', [item('a', 1, 'y')], [item('a', 1, 'x'), item('b', 1)], 1],
  ['deletions', [item('a', 1), item('b', 1)], [item('a', 1, 'n', 'DELETE'), item('b', 3, 'n', 'DELETE')], 2],
  ['deletions again', [item('a', 1, 'n', 'DELETE')], [item('a', 1, 'n', 'DELETE'), item('c', 1, 'n', 'DELETE')], 2],
  ['deletions that come too late', [item('a', 5)], [item('a', 1, 'n', 'DELETE'), item('b', 1, 'n', 'DELETE')], 1],
  ['rows below a tombstone', [item('a', 5, 'n', 'DELETE')], [item('a', 4), item('b', 1)], 1],
  ['writes and deletions', [item('a', 1)], [item('a', 2, 'n', 'DELETE'), item('b', 1), item('c', 1)], 3],
  ['several versions of one row', [], [item('a', 1), item('a', 3), item('a', 2)], 3],
  ['two tables', [], [item('a', 1), note('x', 1), item('b', 1), note('y', 1)], 4],
  ['encoded values', [], [item('a', 1, ENCODED), item('b', 1)], 2],
  ['encoded values again', [item('a', 1, ENCODED)], [item('a', 1, ENCODED), item('b', 1)], 2],
  ['older encoded values', [item('a', 5, 'n')], [item('a', 1, ENCODED), item('b', 1)], 1],
  ['encoded values and deletions', [item('b', 1)], [item('a', 1, ENCODED), item('b', 1, ENCODED, 'DELETE')], 2],
  ['NULL in encoded rows', [], [item('a', 1, null), item('b', 1, ENCODED)], 2],
  ['two tables by turns, with encoded values', [], [item('a', 1, ENCODED), note('x', 1), item('b', 1)], 3],
  ['two tables with encoded values', [], [item('a', 1, ENCODED), note('x', 1, '$text:$int:1')], 2],
])('%s', async (_, before, changes, applied) => {
  const { carefully } = await rig();
  if (before.length > 0) carefully(before);
  expect(carefully(changes)).toEqual({ applied, carefully: false });
});

test('what listeners are told comes from the fast way too', async () => {
  const { manager, carefully } = await rig();
  const told: string[][] = [];
  manager.on('applied', ({ rows }) => told.push(rows.map(({ op, table, id }) => `${op} ${table} ${id}`)));
  expect(carefully([item('a', 1), item('b', 1, ENCODED), note('x', 1)])).toEqual({ applied: 3, carefully: false });
  expect(carefully([item('a', 1), item('b', 0), item('c', 1, 'n', 'DELETE')])).toEqual({
    applied: 2,
    carefully: false,
  });
  expect(told).toEqual([
    ['UPDATE items a', 'UPDATE items b', 'INSERT notes x'],
    ['UPDATE items a', 'DELETE items c'],
  ]);
});

test('a row that lacks a column, or has one too many, goes the careful way', async () => {
  const { carefully, rows } = await rig();
  const short = item('a', 1, ENCODED);
  delete short.row.value;
  expect(carefully([short, item('b', 1)])).toEqual({ applied: 2, carefully: true });
  const long = item('c', 1);
  long.row.more = 1;
  expect(carefully([long]).carefully).toBe(true);
  expect(rows().map(({ id, name }) => `${id} ${name}`)).toEqual(['a $blob:00', 'b n', 'c n']);
});
