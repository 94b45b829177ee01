/** Settings of the application's connection that change how SQLite answers: the outcome is the same under each of them. */
import { expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import { attach } from '../../src/index.ts';
import type { Fetch } from '../../src/send/transport.ts';
import { shared } from '../support/draws.ts';
import { PEER, standstill } from '../support/elsewhere.ts';
import { openDatabase, type TestDatabase } from '../support/lane.ts';
import { cleanUp } from '../support/nodes.ts';

const SCHEMA =
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, value REAL, updated_at INTEGER); ' +
  'CREATE TABLE parts (id TEXT PRIMARY KEY, item TEXT REFERENCES items (id) ON DELETE CASCADE, updated_at INTEGER)';
const TABLES = ['items', 'parts'];

async function opened(pragmas: string, schema = SCHEMA): Promise<TestDatabase> {
  const db = await openDatabase();
  cleanUp(() => db.close());
  db.exec(schema);
  db.exec(pragmas);
  return db;
}

/** Every line of a query of one column, whatever that is called. */
function lines(db: TestDatabase, sql: string): unknown[] {
  return db
    .prepare(sql)
    .all()
    .flatMap((row) => Object.values(row as object));
}

/** Everything that a node does, and what is left of it. */
async function outcome(pragmas: string): Promise<unknown> {
  const [from, to] = [await opened(pragmas), await opened(pragmas)];
  const other = attach(to, { maxAheadMs: 0, id: 'to', peers: [], clock: standstill }, TABLES);
  const hub = await createHub(await opened(pragmas, 'SELECT 1'), {
    maxAheadMs: 0,
    id: 'hub',
    edges: [],
    clock: standstill,
  });
  let refuses = false;
  const answers: unknown[] = [];
  const fetch: Fetch = async (_url, { body }) => {
    const answer = refuses
      ? { status: 422, body: { error: 'no' } }
      : other.receive(body, { from: 'from', said: 'id=from' });
    answers.push((await hub.receive(body, { from: 'from', said: 'id=from' })).body);
    return { status: answer.status, text: async () => JSON.stringify(answer.body) };
  };
  from.exec("INSERT INTO items VALUES ('before', 'attach', 0.5, 10), ('old', 'x', 1, 11)");
  const config = { id: 'from', peers: [PEER], clock: standstill, batchMs: 3_600_000, random: () => 1, fetch };
  const manager = attach(from, config, TABLES);
  cleanUp(async () => {
    await Promise.all([manager.stop(), other.stop(), hub.stop()]);
  });
  await manager.flush();
  from.exec(
    "INSERT INTO items VALUES ('a', 'A', 1.5, 1000), ('b', 'B', 2, 1000); INSERT INTO parts VALUES ('p', 'a', 1000); " +
      "UPDATE items SET value = 3, updated_at = 2000 WHERE id = 'a'; INSERT OR REPLACE INTO items VALUES ('c', 'B', 1, 3000); " +
      "DELETE FROM items WHERE id = 'old'; UPDATE items SET id = 'renamed', updated_at = 2500 WHERE id = 'before'",
  );
  await manager.flush();
  const change = (op: string, row: object, oldId: string | null = null): object => ({
    op,
    table: 'items',
    row,
    old_id: oldId,
  });
  const batch = JSON.stringify({
    batch_id: 7,
    changes: [
      change('INSERT', { id: 'rival', name: 'A', value: 9, updated_at: 9000 }),
      change('UPDATE', { id: 'c', name: 'C', value: 9, extra: 'later', updated_at: 9000 }),
      change('DELETE', { id: 'renamed', updated_at: 9000 }, 'renamed'),
      { op: 'DELETE', table: 'items', row: null, old_id: 'b' },
      change('UPDATE', { id: 5, updated_at: 1 }),
      { op: 'INSERT', table: 'nobody', row: { id: 'x', updated_at: 1 }, old_id: null },
    ],
  });
  for (const node of [manager, other]) answers.push(node.receive(batch, { from: 'third' }).body);
  answers.push((await hub.receive(batch, { from: 'third' })).body);
  refuses = true;
  from.exec("INSERT INTO items VALUES ('refused', 'R', 1, 4000)");
  await manager.flush();
  refuses = false;
  const letters = manager.deadLetters.list().map(({ failedAt: _, ...letter }) => letter);
  for (const { id, direction } of letters) if (direction === 'out') manager.deadLetters.retry(id);
  await manager.flush();
  for (const db of [from, to]) db.exec('ALTER TABLE items ADD COLUMN extra');
  for (const node of [manager, other]) node.receive('{"batch_id":8,"changes":[]}');
  const { ok, item_count, pending_changes, dead_letter } = manager.health();
  return {
    answers,
    letters,
    health: { ok, item_count, pending_changes, dead_letter },
    rows: [from, to].map((db) => [
      lines(db, 'SELECT id || quote(name) || quote(value) || quote(extra) || updated_at FROM items ORDER BY id'),
      lines(db, 'SELECT id || quote(item) || updated_at FROM parts ORDER BY id'),
      lines(db, 'SELECT table_name || row_id || version FROM _tombstones ORDER BY 1'),
      lines(db, 'SELECT row_id || row_data FROM _hidden ORDER BY 1'),
      lines(db, 'SELECT code || coalesce(reason, 0) FROM _dead_letter_info ORDER BY 1'),
    ]),
  };
}

/** The same without any of them. */
let without: unknown;

const PRAGMAS = [
  'PRAGMA short_column_names = OFF',
  'PRAGMA short_column_names = OFF; PRAGMA full_column_names = ON',
  'PRAGMA reverse_unordered_selects = ON',
  'PRAGMA case_sensitive_like = ON',
  'PRAGMA recursive_triggers = ON',
  'PRAGMA legacy_alter_table = ON',
  'PRAGMA trusted_schema = OFF',
  'PRAGMA cell_size_check = ON',
  'PRAGMA automatic_index = OFF',
  'PRAGMA count_changes = ON',
  'PRAGMA empty_result_callbacks = ON',
  'PRAGMA temp_store = MEMORY',
];

test.each(shared(PRAGMAS))('%s makes no difference', async (pragma) => {
  without ??= await outcome('SELECT 1');
  expect(await outcome(pragma)).toEqual(without);
});

test('PRAGMA foreign_keys makes none either, but for what the application itself asks of it', async () => {
  // Set either way by the binding; a row without its parent is let in, and a deletion takes the children along.
  const on = (await outcome('PRAGMA foreign_keys = ON')) as { rows: unknown[][] };
  const off = (await outcome('PRAGMA foreign_keys = OFF')) as { rows: unknown[][] };
  expect(on.rows.map(([items]) => items)).toEqual(off.rows.map(([items]) => items));
});
