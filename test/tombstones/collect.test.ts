/** Tombstones are collected, and what they would have stopped is stopped all the same. */
import { describe, expect, test } from 'vitest';
import type { Manager } from '../../src/index.ts';
import { SLICE } from '../../src/tombstones/collect.ts';
import { collect } from '../support/collect.ts';
import type { TestDatabase } from '../support/lane.ts';
import { captured, ITEMS, node, rowsOf, writeStamps } from '../support/nodes.ts';

const T = 1_700_000_000_000;

function change(op: string, id: string, at: number, more: object = {}): object {
  const row = { id, name: `${id} at ${at}`, value: 1, created_at: 1, updated_at: at, ...more };
  return { op, table: 'items', row, old_id: op === 'DELETE' ? id : null };
}

const live = (id: string, at: number, more?: object): object => change('UPDATE', id, at, more);
const gone = (id: string, at: number): object => change('DELETE', id, at);
/** Another spelling, which is left to the careful way. */
const spelt = (one: object): object => ({ ...one, table: 'ITEMS' });

function receive(manager: Manager, ...changes: object[]): { applied: number; codes: string[] } {
  const answer = manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=sender', from: 'sender' });
  if (answer.status !== 200) throw new Error(answer.body.error);
  return { applied: answer.body.applied, codes: (answer.body.rejected ?? []).map(({ code }) => code) };
}

/** The schema has been looked at, and what it made possible was tried. */
async function settled(manager: Manager): Promise<void> {
  writeStamps(manager);
  await manager.flush();
}

const versions = (db: TestDatabase): unknown => rowsOf(db, 'SELECT id, updated_at AS v FROM items ORDER BY id');
const tombstones = (db: TestDatabase): unknown[] =>
  rowsOf(db, 'SELECT row_id FROM _tombstones ORDER BY row_id').map(({ row_id }) => row_id);
const floor = (db: TestDatabase): unknown => rowsOf(db, "SELECT value FROM _meta WHERE key = 'floor:items'")[0]?.value;

describe('collecting', () => {
  test('removes tombstones and raises the floor to the highest of them', async () => {
    const { db, manager } = await node();
    receive(manager, gone('a', T), gone('b', T + 2), gone('c', T + 1));
    collect(db);
    expect(tombstones(db)).toEqual([]);
    expect(floor(db)).toBe(T + 2);
    receive(manager, gone('d', T + 1), gone('e', T + 3));
    collect(db);
    expect(floor(db)).toBe(T + 3);
    await settled(manager);
    expect(manager.health().problems).toEqual([]);
  });

  test('takes no more than a slice of them in one tick', async () => {
    const { db, manager } = await node();
    const many = Array.from({ length: 2 * SLICE + 1_000 }, (_, i) => gone(String(i).padStart(6, '0'), T + i));
    for (let i = 0; i < many.length; i += 1_000) receive(manager, ...many.slice(i, i + 1_000));
    const left: number[] = [];
    const count = (): number => Number(rowsOf(db, 'SELECT count(*) AS n FROM _tombstones')[0]?.n);
    collect(db, { onStep: () => left.push(count()) });
    const removed = [many.length, ...left].map((n, i, all) => n - (all[i + 1] ?? n));
    expect(removed.filter((n) => n > 0)).toEqual([SLICE, SLICE, 1_000]);
  });

  test('never lowers a floor', async () => {
    const { db, manager } = await node();
    receive(manager, live('b', T - 5), gone('a', T));
    collect(db);
    db.exec('DELETE FROM items');
    collect(db);
    expect(tombstones(db)).toEqual([]);
    expect(floor(db)).toBe(T);
    expect(receive(manager, live('a', T - 1)).codes).toEqual(['below-floor']);
  });

  test('takes only what was deleted on a day before the horizon, and is dated before it', async () => {
    const { db, manager } = await node();
    const today = Math.floor(Date.now() / 86_400_000);
    collect(db, { before: 0 });
    receive(manager, gone('recent', T), gone('old', T), gone('old, and dated ahead', Date.now() + 5_000_000_000));
    db.exec(`UPDATE _tombstones SET day = ${today - 100} WHERE row_id LIKE 'old%'`);
    collect(db, { before: Date.now() - 86_400_000 * 90 });
    expect(tombstones(db)).toEqual(['old, and dated ahead', 'recent']);
    expect(floor(db)).toBe(T);
  });

  test('what was deleted before the days were noted counts as deleted on the day when that began', async () => {
    const { db, manager } = await node();
    receive(manager, gone('a', T));
    collect(db, { before: Date.now() });
    expect(tombstones(db)).toEqual(['a']);
    db.exec("UPDATE _meta SET value = value - 1 WHERE key = 'tombstones_since'");
    collect(db, { before: Date.now() });
    expect(tombstones(db)).toEqual([]);
  });

  test('a row that is deleted again gets a new day', async () => {
    const { db, manager } = await node();
    collect(db, { before: 0 });
    const day = (): unknown => rowsOf(db, 'SELECT day FROM _tombstones')[0]?.day;
    const today = Math.floor(Date.now() / 86_400_000);
    receive(manager, gone('a', T));
    for (const again of [
      () => receive(manager, gone('a', T + 1)),
      () => receive(manager, live('a', T + 2), spelt({ op: 'DELETE', table: 'items', row: null, old_id: 'a' })),
      () => db.exec(`INSERT INTO items VALUES ('a', 'n', 1, 1, ${T + 5}); DELETE FROM items`),
    ]) {
      db.exec('UPDATE _tombstones SET day = 5');
      again();
      expect(day()).toBe(today);
    }
  });

  test('goes in slices, and may end anywhere', async () => {
    const { db, manager } = await node();
    const ids = Array.from({ length: 25 }, (_, i) => `id${String(i).padStart(2, '0')}`);
    receive(manager, ...ids.map((id, i) => gone(id, T + i)));
    // Three to measure, one that finds no more, one to raise the floor, one to remove.
    collect(db, { slice: 10 }, 5);
    expect(floor(db)).toBe(T + 24);
    expect(tombstones(db)).toEqual(ids.slice(10));
    expect(receive(manager, live('id03', T + 3), live('id13', T + 13)).codes).toEqual(['below-floor']);
    collect(db, { slice: 10 });
    expect(tombstones(db)).toEqual([]);
  });

  test('leaves tables alone that are not synced any more', async () => {
    const { db, manager } = await node();
    receive(manager, gone('a', T));
    db.exec("INSERT INTO _tombstones (table_name, row_id, version) VALUES ('other', 'x', 5)");
    collect(db);
    expect(tombstones(db)).toEqual(['x']);
  });

  test('waits for a hidden row that the tombstone deletes', async () => {
    const { db } = await node({
      schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, e TEXT UNIQUE, updated_at INTEGER)',
    });
    db.exec(`INSERT INTO _hidden (table_name, row_id, version, row_data) VALUES ('items', 'a', ${T}, '{}')`);
    db.exec(`INSERT INTO _tombstones (table_name, row_id, version) VALUES ('items', 'a', ${T}), ('items', 'b', ${T})`);
    collect(db);
    expect(tombstones(db)).toEqual(['a']);
  });

  test('a file in which nothing is collected has no days, and triggers without a floor', async () => {
    const { db } = await node();
    expect(rowsOf(db, "SELECT 1 FROM pragma_table_info('_tombstones') WHERE name = 'day'")).toEqual([]);
    const triggers = rowsOf(db, "SELECT sql FROM sqlite_schema WHERE type = 'trigger'").map(({ sql }) => String(sql));
    expect(triggers.filter((sql) => /\bday\b/.test(sql))).toEqual([]);
  });
});

describe.each([
  ['the fast way', (one: object) => one],
  ['the careful way', spelt],
])('a write at or below the floor, %s', (_, as) => {
  async function collected(): Promise<{ db: TestDatabase; manager: Manager }> {
    const it = await node();
    receive(it.manager, live('old', T - 5), gone('a', T));
    collect(it.db);
    return it;
  }

  test('of a row that is not here becomes a letter, and those beside it are applied', async () => {
    const { db, manager } = await collected();
    const answer = receive(manager, ...[live('a', T), live('never seen', T - 1), live('new', T + 1)].map(as));
    expect(answer).toEqual({ applied: 1, codes: ['below-floor', 'below-floor'] });
    expect(versions(db)).toEqual([
      { id: 'new', v: T + 1 },
      { id: 'old', v: T - 5 },
    ]);
    expect(manager.deadLetters.list()).toMatchObject([
      { code: 'below-floor', direction: 'in', rowId: 'a' },
      { code: 'below-floor', rowId: 'never seen' },
    ]);
    expect(JSON.parse(manager.deadLetters.list()[0]?.row ?? '')).toMatchObject({ id: 'a', updated_at: T });
    // The same again is the same letter; another attempt ends as the first did.
    receive(manager, as(live('a', T)));
    expect(manager.deadLetters.list()).toHaveLength(2);
    expect(manager.deadLetters.retry(manager.deadLetters.list()[0]?.id as number)).toMatchObject({ outcome: 'kept' });
    expect(versions(db)).toHaveLength(2);
  });

  test('of a row that is live here is judged as ever', async () => {
    const { db, manager } = await collected();
    expect(receive(manager, ...[live('old', T - 6), live('old', T - 4)].map(as))).toEqual({ applied: 2, codes: [] });
    expect(receive(manager, as(live('old', T - 5)))).toEqual({ applied: 0, codes: [] });
    expect(versions(db)).toEqual([{ id: 'old', v: T - 4 }]);
  });

  test('is stale, and no letter, where the tombstone or a newer version of the same batch says so', async () => {
    const { manager } = await collected();
    receive(manager, gone('old', T - 3));
    expect(receive(manager, as(live('old', T - 4))).codes).toEqual([]);
    expect(receive(manager, ...[live('b', T - 4), live('b', T + 4)].map(as)).codes).toEqual([]);
  });

  test('and a deletion there, of what is not here, is known already', async () => {
    const { db, manager } = await collected();
    expect(receive(manager, ...[gone('a', T), gone('x', T - 2)].map(as))).toEqual({ applied: 2, codes: [] });
    expect(tombstones(db)).toEqual([]);
    expect(receive(manager, as(gone('old', T - 2)))).toEqual({ applied: 1, codes: [] });
    expect(tombstones(db)).toEqual(['old']);
  });
});

describe('a row that is inserted here', () => {
  test('begins in the present where it would be below the floor, and is sent as that alone', async () => {
    const { db, manager, all } = await node();
    receive(manager, gone('a', T));
    collect(db);
    const before = Date.now() - 1;
    db.exec(
      `INSERT INTO items VALUES ('a', 'back', 1, 1, ${T - 9}), ('b', 'new', 1, 1, ${T}), ('c', 'c', 1, 1, ${T + 5})`,
    );
    // Another node may have collected more: just above the floor of this one might be below that of the other.
    const sent = captured(db).map(({ row_id, row }) => [row_id, Number(row.updated_at)] as const);
    expect(sent.map(([id]) => id)).toEqual(['a', 'b', 'c']);
    expect(sent.filter(([, at]) => at >= before && at <= Date.now()).map(([id]) => id)).toEqual(['a', 'b']);
    expect(sent[2]).toEqual(['c', T + 5]);
    expect(all('SELECT id, updated_at AS v FROM items ORDER BY id')).toEqual(sent.map(([id, v]) => ({ id, v })));
  });

  test('an id that is not taken over, because it lives, leaves its row as it was', async () => {
    const { db, manager, all } = await node();
    receive(manager, live('lives', T - 5), live('other', T - 3), gone('a', T));
    collect(db);
    expect(floor(db)).toBe(T);
    db.exec("UPDATE OR IGNORE items SET id = 'lives' WHERE id = 'other'");
    expect(all('SELECT id, updated_at FROM items ORDER BY id')).toEqual([
      { id: 'lives', updated_at: T - 5 },
      { id: 'other', updated_at: T - 3 },
    ]);
    expect(all('SELECT * FROM _changes')).toEqual([]);
  });

  test('so does one that takes an id by UPDATE', async () => {
    const { db, manager, all } = await node();
    receive(manager, live('x', T - 9), gone('a', T));
    collect(db);
    const before = Date.now() - 1;
    db.exec(`UPDATE items SET id = 'a', updated_at = ${T - 8}`);
    const [row] = all("SELECT updated_at AS v FROM items WHERE id = 'a'");
    expect(Number(row?.v)).toBeGreaterThanOrEqual(before);
  });

  test('a row that is live and older than the floor is written as ever', async () => {
    const { db, manager, all } = await node();
    receive(manager, live('x', T - 9), gone('a', T));
    collect(db);
    db.exec(`UPDATE items SET name = 'n', updated_at = ${T - 8}`);
    expect(all('SELECT updated_at AS v FROM items')).toEqual([{ v: T - 8 }]);
  });
});

test('a letter about a column that is not here goes with the tombstone that has outlived it', async () => {
  const { db, manager } = await node();
  receive(manager, live('a', T, { colour: 'red' }), live('b', T, { colour: 'blue' }));
  receive(manager, gone('a', T + 1));
  collect(db);
  receive(manager, live('a', T + 9));
  db.exec('ALTER TABLE items ADD COLUMN colour TEXT');
  await settled(manager);
  expect(rowsOf(db, 'SELECT id, colour FROM items ORDER BY id')).toEqual([
    { id: 'a', colour: null },
    { id: 'b', colour: 'blue' },
  ]);
});

test('letters that waited for their table are judged by its floor, and a table that was rebuilt keeps it', async () => {
  const { db, manager } = await node();
  receive(manager, gone('a', T));
  collect(db);
  db.exec(`${ITEMS.replace('items', 'fresh')}; INSERT INTO fresh SELECT * FROM items; DROP TABLE items`);
  await settled(manager);
  expect(receive(manager, live('a', T)).codes).toEqual(['unknown-table']);
  db.exec('ALTER TABLE fresh RENAME TO items');
  await settled(manager);
  expect(versions(db)).toEqual([]);
  expect(manager.deadLetters.list().map(({ code }) => code)).toEqual(['below-floor']);
  db.exec(`INSERT INTO items (id, updated_at) VALUES ('a', ${T - 1})`);
  expect(Number(captured(db).at(-1)?.row.updated_at)).toBeGreaterThan(T + 1);
});
