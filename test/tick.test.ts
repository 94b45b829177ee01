/** The tick of 40 ms: what it does where nobody has touched anything, and that nothing escapes it. */
import { describe, expect, test } from 'vitest';
import { TICK_MS } from '../src/attach.ts';
import type { Database } from '../src/index.ts';
import { attached, database, ITEMS, recording, rowsOf, scratchFolder } from './support/nodes.ts';
import { VirtualClock } from './support/virtual-clock.ts';

const PEOPLE = 'CREATE TABLE people (id TEXT PRIMARY KEY, email TEXT UNIQUE, updated_at INTEGER)';

/** Two people with one address: the second is hidden. */
const CLASH =
  '{"batch_id":1,"changes":[{"op":"INSERT","table":"people","row":{"id":"ann","email":"x","updated_at":1000},"old_id":null}]}';

async function quiet(schema = ITEMS, tables = ['items']) {
  const db = await database(schema);
  const { handle, sql } = recording(db);
  const clock = new VirtualClock();
  const manager = attached(handle, { clock, random: () => 0 }, tables);
  await clock.advance(3 * TICK_MS);
  return { db, handle, sql, clock, manager };
}

/** A node that hides the row of ann, because bob has her address and is newer. */
async function hiding() {
  const it = await quiet(PEOPLE, ['people']);
  it.db.exec("INSERT INTO people VALUES ('bob', 'x', 2000)");
  expect(it.manager.receive(CLASH).status).toBe(200);
  await it.clock.advance(3 * TICK_MS);
  expect(names(it.db)).toEqual(['bob']);
  return it;
}

const names = (db: Parameters<typeof rowsOf>[0]): unknown[] =>
  rowsOf(db, 'SELECT id FROM people ORDER BY id').map(({ id }) => id);

const tells = (handle: Database): boolean => (handle as { inTransaction?: unknown }).inTransaction === false;

describe('a tick', () => {
  test('asks three questions where nobody has touched anything, and more where somebody has', async () => {
    const { db, handle, sql, clock } = await quiet();
    // The oldest binding that there is does not say whether a transaction is open: then all is looked at.
    if (!tells(handle)) return;
    sql.length = 0;
    await clock.advance(TICK_MS);
    expect(sql).toEqual(['SELECT total_changes() AS n', 'PRAGMA main.schema_version', 'PRAGMA main.data_version']);
    db.exec("INSERT INTO items VALUES ('a', 'a', 1, 1, 1)");
    sql.length = 0;
    await clock.advance(TICK_MS);
    expect(sql.length).toBeGreaterThan(6);
    await clock.advance(TICK_MS);
    sql.length = 0;
    await clock.advance(TICK_MS);
    expect(sql.length).toBe(3);
  });

  test('notices what another connection has done', async () => {
    const path = `${scratchFolder()}/a.db`;
    const db = await database(ITEMS, path);
    const clock = new VirtualClock();
    attached(db, { clock, random: () => 0 });
    await clock.advance(3 * TICK_MS);
    const other = await database('SELECT 1', path);
    other.exec('ALTER TABLE items ADD COLUMN extra TEXT');
    await clock.advance(TICK_MS);
    const triggers = rowsOf(db, "SELECT sql FROM sqlite_schema WHERE name = '_rowcast_items_insert'");
    expect(String(triggers[0]?.sql)).toContain('extra');
    await clock.advance(3 * TICK_MS);
    other.exec("INSERT INTO items (id, updated_at) VALUES ('a', NULL)");
    await clock.advance(TICK_MS);
    expect(rowsOf(db, 'SELECT updated_at IS NULL AS missing FROM items')).toEqual([{ missing: 0 }]);
  });

  test('notices a change of the schema on its own connection, which counts no rows', async () => {
    const { db, clock } = await quiet();
    db.exec('DROP TRIGGER _rowcast_items_insert');
    await clock.advance(TICK_MS);
    const there = rowsOf(db, "SELECT name FROM sqlite_schema WHERE name = '_rowcast_items_insert'");
    expect(there.length).toBe(1);
  });

  test('that fell into a transaction which is then taken back is no tick', async () => {
    const { db, clock } = await quiet();
    db.exec("INSERT INTO items (id, updated_at) VALUES ('a', NULL)");
    // The row has no version yet, and inside the transaction it looks as if nothing had to be done about that.
    db.exec('BEGIN; DELETE FROM _stamps');
    await clock.advance(3 * TICK_MS);
    db.exec('ROLLBACK');
    await clock.advance(2 * TICK_MS);
    expect(rowsOf(db, 'SELECT updated_at IS NULL AS missing FROM items')).toEqual([{ missing: 0 }]);
  });

  test('does not take a number that is given again for the one that was taken back', async () => {
    const { db, clock } = await hiding();
    db.exec("BEGIN; INSERT INTO people VALUES ('cy', 'y', 3000)");
    await clock.advance(2 * TICK_MS);
    db.exec('ROLLBACK');
    db.exec("DELETE FROM people WHERE id = 'bob'");
    await clock.advance(2 * TICK_MS);
    expect(names(db)).toEqual(['ann']);
  });
});
