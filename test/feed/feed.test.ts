/** The feed: from any position on it shows every row that has changed since, or says that it cannot. */
import { copyFileSync, existsSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Database, FeedPage, Manager } from '../../src/index.ts';
import { draws } from '../support/draws.ts';
import { openDatabase, type TestDatabase } from '../support/lane.ts';
import { attached, cleanUp, database, exactRows, node, rowsOf, scratchFolder, until } from '../support/nodes.ts';

const ITEMS = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER)';
const FEED = { feed: { keep: 1_000 } };

function receive(manager: Manager, ...changes: unknown[]): void {
  const { status, body } = manager.receive(JSON.stringify({ batch_id: 1, changes }), { from: 'b' });
  expect(status, JSON.stringify(body)).toBe(200);
}

const insert = (id: string, name: string, at: number): unknown => ({
  op: 'INSERT',
  table: 'items',
  row: { id, name, updated_at: at },
});

function feedOf(manager: Manager): NonNullable<Manager['feed']> {
  if (!manager.feed) throw new Error('there is no feed');
  return manager.feed;
}

/** All pages after a position; undefined where it is too old. */
function since(manager: Manager, position: string): FeedPage['entries'] | undefined {
  const entries: FeedPage['entries'] = [];
  let from = position;
  for (;;) {
    const page = feedOf(manager).read(from);
    if (page.reset) return undefined;
    entries.push(...page.entries);
    from = page.position;
    if (!page.more) return entries;
  }
}

const names = (entries: FeedPage['entries'] | undefined): string[] | undefined =>
  entries?.flatMap(({ rows }) => rows.map(({ op, id }) => `${op} ${id}`));

/** The application's writes are read on the next tick. */
async function settled(manager: Manager, db: TestDatabase): Promise<void> {
  await until('the feed has seen all', () => {
    const [{ seen, given } = {}] = rowsOf(
      db,
      "SELECT (SELECT value FROM _meta WHERE key = 'feed_upto') AS seen, " +
        "coalesce((SELECT seq FROM sqlite_sequence WHERE name = '_changes'), 0) AS given",
    );
    return seen === given;
  });
  feedOf(manager).position();
}

describe('positions', () => {
  test('a page has what was committed since, in its order, with the rows where they are asked for', async () => {
    const { db, manager } = await node({ schema: ITEMS, ...FEED });
    const start = feedOf(manager).position();
    db.exec("INSERT INTO items VALUES ('here', 'h', 1000)");
    receive(manager, insert('there', 't', 2000));
    await settled(manager, db);
    db.exec("DELETE FROM items WHERE id = 'here'");
    await settled(manager, db);
    const { entries, reset, more } = feedOf(manager).read(start, { row: true });
    expect({ reset, more }).toEqual({ reset: false, more: false });
    expect(entries.map(({ position: _, ...entry }) => entry)).toEqual([
      { local: true, rows: [{ op: 'INSERT', table: 'items', id: 'here', row: null }] },
      {
        local: false,
        from: 'b',
        rows: [{ op: 'INSERT', table: 'items', id: 'there', row: { id: 'there', name: 't', updated_at: 2000 } }],
      },
      { local: true, rows: [{ op: 'DELETE', table: 'items', id: 'here', row: null }] },
    ]);
    expect(names(since(manager, entries[0]?.position as string))).toEqual(['INSERT there', 'DELETE here']);
    expect(names(since(manager, entries[2]?.position as string))).toEqual([]);
  });

  test('no position, one of another database, one that is made up, and one that is too old are answered by a reset', async () => {
    const { manager } = await node({ schema: ITEMS, feed: { keep: 10 } });
    const start = feedOf(manager).position();
    const other = feedOf((await node({ schema: ITEMS, ...FEED })).manager).position();
    const [inc, seq] = start.split(':');
    for (const wrong of [undefined, other, `${inc}:${seq}:00000000`, `${inc}:999:00000000`, 'x', '', `${inc}:-1:a`]) {
      expect(feedOf(manager).read(wrong), wrong).toEqual({ reset: true, entries: [], position: start, more: false });
    }
    for (let i = 0; i < 10; i++) receive(manager, insert(`x${i}`, `x${i}`, 1000));
    expect(since(manager, start)).toHaveLength(10);
    receive(manager, insert('one too many', 'z', 1000));
    expect(since(manager, start)).toBeUndefined();
    expect(feedOf(manager).read(start).position).toBe(feedOf(manager).position());
  });

  test('only the rows of some tables, and another name is refused', async () => {
    const schema = `${ITEMS}; CREATE TABLE notes (id TEXT PRIMARY KEY, updated_at INTEGER)`;
    const { manager } = await node({ schema, tables: ['items', 'notes'], ...FEED });
    const start = feedOf(manager).position();
    receive(manager, insert('i', 'i', 1000), { op: 'INSERT', table: 'notes', row: { id: 'n', updated_at: 1000 } });
    const page = feedOf(manager).read(start, { tables: ['NOTES'] });
    expect(page.entries.flatMap(({ rows }) => rows)).toEqual([{ op: 'INSERT', table: 'notes', id: 'n' }]);
    expect(() => feedOf(manager).read(start, { tables: ['note'] })).toThrow(/"note" is not synced; did you mean notes/);
  });

  test('a position that is none is refused', async () => {
    const { manager } = await node({ schema: ITEMS, ...FEED });
    expect(() => feedOf(manager).read(0 as unknown as string)).toThrow(/a position is a text, not 0/);
  });

  test('inside a transaction of the application nothing is read', async () => {
    const { db, manager } = await node({ schema: ITEMS, ...FEED });
    db.exec("BEGIN; INSERT INTO items VALUES ('x', 'x', 1000)");
    expect(() => feedOf(manager).read(undefined)).toThrow(/transaction open/);
    db.exec('ROLLBACK');
    expect(feedOf(manager).read(undefined).reset).toBe(true);
  });

  test('a long backlog comes in pages', async () => {
    const { db, manager } = await node({ schema: ITEMS, feed: { keep: 100_000 } });
    const start = feedOf(manager).position();
    db.exec(
      "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 12000) INSERT INTO items SELECT 'x' || i, i, 1000 FROM n",
    );
    await settled(manager, db);
    expect(feedOf(manager).read(start).more).toBe(true);
    expect(new Set(names(since(manager, start))).size).toBe(12_000);
  });
});

describe('what cannot be known', () => {
  test.each([
    ['a column is added', 'ALTER TABLE items ADD COLUMN extra TEXT'],
    ['the triggers were taken away', 'DROP TRIGGER _rowcast_items_insert'],
    ['changes were deleted unseen', "INSERT INTO items VALUES ('x', 'x', 1000); DELETE FROM _changes"],
  ])('%s: everything is to be read anew', async (_, sql) => {
    const { db, manager } = await node({ schema: ITEMS, ...FEED });
    const start = feedOf(manager).position();
    expect(since(manager, start)).toEqual([]);
    db.exec(sql);
    await until('it is noticed', () => since(manager, start) === undefined);
  });

  test('it goes on over a restart, and over writes while nobody was attached', async () => {
    const path = join(scratchFolder(), 'a.db');
    const first = await node({ schema: ITEMS, path, ...FEED });
    const start = feedOf(first.manager).position();
    await first.manager.stop();
    first.db.exec("INSERT INTO items VALUES ('x', 'x', 1000)");
    const again = attached(first.db, FEED);
    await settled(again, first.db);
    expect(names(since(again, start))).toEqual(['INSERT x']);
  });

  test('a process that was not told of the feed writes to it all the same; one that says false ends it', async () => {
    const path = join(scratchFolder(), 'a.db');
    const { manager, db } = await node({ schema: ITEMS, path, ...FEED });
    const start = feedOf(manager).position();
    const second = await openDatabase(path);
    cleanUp(() => second.close());
    const beside = attached(second);
    receive(beside, insert('by the other', 'o', 1000));
    expect(names(since(manager, start))).toEqual(['INSERT by the other']);
    await beside.stop();
    const ending = attached(second, { feed: false });
    expect(ending.feed).toBeUndefined();
    receive(manager, insert('y', 'y', 1000));
    expect(manager.feed).toBeUndefined();
    expect(rowsOf(db, "SELECT key FROM _meta WHERE key LIKE 'feed%'")).toEqual([]);
    expect(rowsOf(db, 'SELECT id FROM items')).toHaveLength(2);
  });

  test('where somebody has dropped it, nothing is kept for it any more', async () => {
    const { db, manager } = await node({ schema: ITEMS, ...FEED });
    db.exec('DROP TABLE _feed');
    await until('it is noticed', () => manager.feed === undefined);
    expect(rowsOf(db, "SELECT key FROM _meta WHERE key LIKE 'feed%'")).toEqual([]);
    receive(manager, insert('x', 'x', 1000));
    expect(manager.health().ok).toBe(true);
  });

  test('a table of the application by that name is left alone', async () => {
    const db = await database(`${ITEMS}; CREATE TABLE _feed (mine TEXT)`);
    expect(() => attached(db, FEED)).toThrow(/something else named "_feed"/);
    expect(attached(db).feed).toBeUndefined();
  });

  test.each([
    [{ feed: 1 }, /option "feed" must be an object/],
    [{ feed: { keeps: 1 } }, /has no "keeps"/],
    [{ feed: { keep: 0 } }, /an integer from 1 to 100000000, not 0/],
  ])('%j is refused', async (config, message) => {
    const db = await database(ITEMS);
    expect(() => attached(db, config as never)).toThrow(message);
  });
});

/** What may happen between two looks. */
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('write'), id: fc.nat(7), name: fc.nat(5) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('delete'), id: fc.nat(7), name: fc.nat(5) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('receive'), id: fc.nat(7), name: fc.nat(5) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('remove'), id: fc.nat(7), name: fc.nat(5) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('rename'), id: fc.nat(7), name: fc.nat(7) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('look'), id: fc.nat(7), name: fc.nat(5) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('tick'), id: fc.nat(7), name: fc.nat(5) }) },
);

type Step = { kind: string; id: number; name: number };

function run(db: TestDatabase, manager: Manager, { kind, id, name }: Step, at: number): void {
  const quiet = (sql: string): void => {
    try {
      db.exec(sql);
    } catch {
      // The value is taken here, and the application is told so.
    }
  };
  if (kind === 'write') quiet(`INSERT OR REPLACE INTO items VALUES ('r${id}', 'n${name}', ${at})`);
  if (kind === 'delete') quiet(`DELETE FROM items WHERE id = 'r${id}'`);
  if (kind === 'rename') quiet(`UPDATE items SET id = 'r${name}', updated_at = ${at} WHERE id = 'r${id}'`);
  if (kind === 'receive') receive(manager, insert(`r${id}`, `n${name}`, at));
  if (kind === 'remove') {
    receive(manager, { op: 'DELETE', table: 'items', row: { id: `r${id}`, updated_at: at }, old_id: `r${id}` });
  }
}

/** What a reader has: where it is, and the rows as they were when it had read everything. */
interface Look {
  position: string;
  rows: string[];
}

function missing(manager: Manager, db: TestDatabase, look: Look): string[] | 'reset' {
  const entries = since(manager, look.position);
  if (!entries) return 'reset';
  const told = new Set(entries.flatMap(({ rows }) => rows.map(({ id }) => id)));
  const now = exactRows(db, 'items');
  const differing = [
    ...look.rows.filter((row) => !now.includes(row)),
    ...now.filter((row) => !look.rows.includes(row)),
  ];
  return differing.map((row) => /'(r\d+)'/.exec(row)?.[1] as string).filter((id) => !told.has(id));
}

const LOOKED: Step[] = ['receive', 'receive', 'look'].map((kind, id) => ({ kind, id, name: id }));

/**
 * Of half of the schedules all that was committed survives, as after a kill, or a power cut where commits are flushed. Of
 * the others only the beginning of a log that nobody has flushed does. There a reader must have looked when the feed had
 * seen all: a write that the database has lost, and that the feed never had, is in no position.
 */
test('whatever happens, and wherever the power is cut, a reader that resumes has every row that changed', async () => {
  let looked = 0;
  let reset = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 3, maxLength: 40 }),
      fc.option(fc.integer({ min: 0, max: 99 }), { freq: 2 }),
      fc.array(step, { maxLength: 12 }),
      async (steps, cut, after) => {
        const folder = scratchFolder();
        const path = join(folder, 'a.db');
        const db = await database(ITEMS, path);
        db.exec('PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = NORMAL');
        const manager = attached(db, FEED);
        db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
        const looks: Look[] = [];
        let at = 1000;
        for (const one of steps) {
          at += 1;
          run(db, manager, one, at);
          if (one.kind === 'tick' || cut !== null) await settled(manager, db);
          // As a page does: the position first, then all rows.
          if (one.kind === 'look') looks.push({ position: feedOf(manager).position(), rows: exactRows(db, 'items') });
        }
        for (const look of looks) {
          await settled(manager, db);
          expect(missing(manager, db, look)).toEqual([]);
        }
        // What a power cut leaves of a log that nobody has flushed: its beginning.
        const image = join(folder, 'image.db');
        copyFileSync(path, image);
        if (existsSync(`${path}-wal`)) {
          copyFileSync(`${path}-wal`, `${image}-wal`);
          truncateSync(`${image}-wal`, Math.floor((statSync(`${image}-wal`).size * (cut ?? 100)) / 100));
        }
        await manager.stop();
        const again = await openDatabase(image);
        cleanUp(() => again.close());
        const restarted = attached(again as Database, FEED);
        for (const one of after) {
          at += 1;
          run(again, restarted, one, at);
        }
        await settled(restarted, again);
        for (const look of looks) {
          const found = missing(restarted, again, look);
          looked += 1;
          if (found === 'reset') reset += 1;
          else expect(found).toEqual([]);
        }
        await restarted.stop();
      },
    ),
    // Of both kinds there is one in any case.
    { numRuns: draws(160), examples: [0, null].map((cut) => [LOOKED, cut, []]) },
  );
  // Were all of them resets, nothing would have been shown.
  expect(looked - reset).toBeGreaterThan(looked / 10);
  expect(reset).toBeGreaterThan(0);
});
