/** Counting never keeps anybody waiting: a bounded first look, the rest in slices, and what is not known yet is said. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { Connection } from '../../src/sqlite/connection.ts';
import { type Countable, EXACT_ROWS, RowCounter } from '../../src/sqlite/row-counter.ts';
import { openDatabase, type TestDatabase } from '../support/lane.ts';
import { cleanUp, database, recording, scratchFolder } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const SCHEMA = 'CREATE TABLE t (id TEXT PRIMARY KEY, x)';
const T: Countable = { name: 't', id: 'id', rowKey: 'rowid' };
/** As it is described where the rows lie in the order of their ids. */
const W: Countable = { ...T, rowKey: '"id"' };

function fill(db: TestDatabase, count: number, { table = 't', from = 1, id = "printf('%09d', n)" } = {}): void {
  db.exec(
    `WITH RECURSIVE s (n) AS (SELECT ${from} UNION ALL SELECT n + 1 FROM s WHERE n < ${from + count - 1}) ` +
      `INSERT INTO ${table} (id) SELECT ${id} FROM s`,
  );
}

interface Counting {
  db: TestDatabase;
  counter: RowCounter;
  clock: VirtualClock;
  sql: string[];
}

async function counting(schema = SCHEMA, path?: string): Promise<Counting> {
  const db = await database(schema, path);
  const { handle, sql } = recording(db);
  const clock = new VirtualClock();
  const counter = new RowCounter(new Connection(handle), clock);
  cleanUp(() => counter.stop());
  return { db, counter, clock, sql };
}

/** Statements by which nobody knows how many rows they read. */
function unbounded(sql: string[]): string[] {
  return sql.filter((text) => /\bcount\s*\(/i.test(text) && !/LIMIT \d+/.test(text));
}

describe('the first look', () => {
  test('is exact up to its limit', async () => {
    const { db, counter } = await counting();
    fill(db, EXACT_ROWS);
    expect(counter.count(T)).toEqual({ rows: EXACT_ROWS, atLeast: false });
  });

  test('says of one more that there are at least so many, and reads no further', async () => {
    const { db, counter, sql } = await counting();
    fill(db, EXACT_ROWS + 1);
    expect(counter.count(T)).toEqual({ rows: EXACT_ROWS + 1, atLeast: true });
    expect(unbounded(sql)).toEqual([]);
    fill(db, 1_000, { from: 900_000 });
    expect(counter.count(T)).toEqual({ rows: EXACT_ROWS + 1, atLeast: true });
  });

  test('is shared by all that are counted in it, and each has a little of its own', async () => {
    const { db, counter } = await counting(`${SCHEMA}; CREATE TABLE u (id TEXT PRIMARY KEY); CREATE TABLE v (id TEXT)`);
    fill(db, EXACT_ROWS + 1);
    fill(db, 1_500, { table: 'u' });
    fill(db, 1_000, { table: 'v' });
    counter.beginLook();
    expect(counter.count(T).atLeast).toBe(true);
    expect(counter.count({ name: 'u', id: 'id' })).toEqual({ rows: 1_001, atLeast: true });
    expect(counter.count({ name: 'v', id: 'id' })).toEqual({ rows: 1_000, atLeast: false });
    counter.beginLook();
    expect(counter.count({ name: 'u', id: 'id' })).toEqual({ rows: 1_500, atLeast: false });
  });

  test('reads fewer rows of a table whose ids are nowhere but in the rows', async () => {
    const { db, counter } = await counting('CREATE TABLE t (id TEXT PRIMARY KEY, x) WITHOUT ROWID');
    fill(db, EXACT_ROWS / 10 + 1);
    expect(counter.count({ ...T, rowKey: '"id"' })).toEqual({ rows: EXACT_ROWS / 10 + 1, atLeast: true });
  });
});

describe('in the background', () => {
  test('it is counted to the end, in slices, with a turn after each', async () => {
    const { db, counter, clock, sql } = await counting();
    fill(db, 123_456);
    counter.count(T);
    sql.length = 0;
    // A slice of 5,000 in each millisecond.
    await clock.advance(20);
    const { rows, atLeast } = counter.count(T);
    expect([rows > 80_000, rows < 120_000, atLeast]).toEqual([true, true, true]);
    await clock.advance(20);
    expect(counter.count(T)).toEqual({ rows: 123_456, atLeast: false });
    expect(unbounded(sql)).toEqual([]);
    const steps = sql.map((text) => Number(/OFFSET (\d+)/.exec(text)?.[1] ?? 0));
    expect(Math.max(...steps)).toBe(4_999);
  });

  test('nothing of it happens before whoever has asked is answered', async () => {
    const { db, counter, sql } = await counting();
    fill(db, EXACT_ROWS + 1);
    sql.length = 0;
    counter.count(T);
    expect(sql.filter((text) => /\bFROM\b/.test(text))).toHaveLength(1);
  });

  test.each<[string, string, string, Countable, number]>([
    ['rows without an id', SCHEMA, "iif(n % 2, NULL, printf('%09d', n))", T, 70_001],
    ['ids that are blobs', SCHEMA, "iif(n % 2, CAST(printf('%09d', n) AS BLOB), printf('%09d', n))", T, 70_001],
    ['ids that are no UTF-8', SCHEMA, "CAST(x'FF' || printf('%09d', n) AS TEXT)", T, 70_001],
    ['ids with a NUL', SCHEMA, "'a' || char(0) || printf('%09d', n)", T, 70_001],
    ['numbers beyond 2^53', 'CREATE TABLE t (id INTEGER PRIMARY KEY)', '9007199254740993 + n', T, 70_001],
    ['a table WITHOUT ROWID', 'CREATE TABLE t (id TEXT PRIMARY KEY) WITHOUT ROWID', "printf('%09d', n)", W, 7_001],
  ])('%s are counted, too', async (_, schema, id, of, rows) => {
    const { db, counter, clock } = await counting(schema);
    fill(db, rows, { id });
    expect(counter.count(of).atLeast).toBe(true);
    await clock.advance(500);
    expect(counter.count(of)).toEqual({ rows, atLeast: false });
  });

  test('a part is counted by itself, and so are the rows that count', async () => {
    const { db, counter, clock } = await counting(
      'CREATE TABLE t (kind TEXT DEFAULT 1, id TEXT, PRIMARY KEY (kind, id)) WITHOUT ROWID; CREATE TABLE u (id INTEGER PRIMARY KEY, op)',
    );
    fill(db, 60_000);
    db.exec("UPDATE t SET kind = iif(id % 3, 'a', 'b')");
    fill(db, 60_000, { table: 'u', id: 'n' });
    db.exec("UPDATE u SET op = iif(id % 3, 'INSERT', 'DELETE')");
    const part = (value: string): Countable => ({ name: 't', id: 'id', part: { column: 'kind', value } });
    const live: Countable = { name: 'u', id: 'id', only: "op <> 'DELETE'" };
    // In a look of its own each.
    const count = (of: Countable): unknown => {
      counter.beginLook();
      return counter.count(of);
    };
    expect(count(part('b'))).toEqual({ rows: 20_000, atLeast: false });
    expect(count(part('a'))).toEqual({ rows: 40_000, atLeast: false });
    expect(count(live)).toEqual({ rows: 3_334, atLeast: true });
    await clock.advance(500);
    expect(count(live)).toEqual({ rows: 40_000, atLeast: false });
  });

  test('where few of many rows count, what was counted stays until it is counted again', async () => {
    const { db, counter, clock } = await counting('CREATE TABLE u (id INTEGER PRIMARY KEY, op)');
    fill(db, 20_000, { table: 'u', id: 'n' });
    db.exec("UPDATE u SET op = iif(id <= 10, 'INSERT', 'DELETE')");
    const live: Countable = { name: 'u', id: 'id', only: "op <> 'DELETE'" };
    counter.count(live);
    await clock.advance(500);
    expect(counter.count(live)).toEqual({ rows: 10, atLeast: false });
    db.exec("UPDATE u SET op = 'INSERT' WHERE id = 20000");
    counter.beginLook();
    expect(counter.count(live)).toEqual({ rows: 10, atLeast: false });
    await clock.advance(30_000);
    expect(counter.count(live)).toEqual({ rows: 11, atLeast: false });
  });

  test('a table that has grown beyond what is counted at once has at least so many, where they count', async () => {
    const { db, counter } = await counting(`${SCHEMA}; CREATE TABLE u (id INTEGER PRIMARY KEY, op)`);
    const live: Countable = { name: 'u', id: 'id', only: "op <> 'DELETE'" };
    const count = (of: Countable): unknown => {
      counter.beginLook();
      return counter.count(of);
    };
    fill(db, 40_000);
    fill(db, 4_000, { table: 'u', id: 'n' });
    db.exec("UPDATE u SET op = iif(id <= 10, 'INSERT', 'DELETE')");
    expect([count(T), count(live)]).toEqual([
      { rows: 40_000, atLeast: false },
      { rows: 10, atLeast: false },
    ]);
    fill(db, 20_000, { from: 500_000 });
    fill(db, 4_000, { table: 'u', id: 'n', from: 5_000 });
    db.exec("UPDATE u SET op = 'DELETE' WHERE op IS NULL");
    expect([count(T), count(live)]).toEqual([
      { rows: EXACT_ROWS + 1, atLeast: true },
      { rows: 10, atLeast: false },
    ]);
  });

  test('of several tables one slice has its turn, and then the other', async () => {
    const { db, counter, clock, sql } = await counting(`${SCHEMA}; CREATE TABLE u (id TEXT PRIMARY KEY, x)`);
    fill(db, 60_000);
    fill(db, 60_000, { table: 'u' });
    counter.count(T);
    counter.count({ ...T, name: 'u' });
    sql.length = 0;
    await clock.advance(10);
    const order = sql.flatMap((text) => (/IS NOT NULL/.test(text) ? [/main\."(\w)"/.exec(text)?.[1]] : []));
    expect(order.length).toBeGreaterThan(6);
    expect(order.length).toBeLessThanOrEqual(10);
    expect(order.every((name, i) => i === 0 || name !== order[i - 1])).toBe(true);
  });

  test('what is written meanwhile is in the number that comes after', async () => {
    const { db, counter, clock } = await counting();
    fill(db, 100_000);
    counter.count(T);
    await clock.advance(10);
    // Before and behind the place where it has come to.
    db.exec("DELETE FROM t WHERE id <= '000000100'");
    fill(db, 50, { from: 900_000 });
    await clock.advance(100);
    expect(counter.count(T).atLeast).toBe(false);
    await clock.advance(30_000);
    expect(counter.count(T)).toEqual({ rows: 99_950, atLeast: false });
  });

  test('what another connection writes meanwhile is, too', async () => {
    const path = join(scratchFolder(), 'shared.db');
    const { db, counter, clock } = await counting(SCHEMA, path);
    fill(db, 60_000);
    counter.count(T);
    await clock.advance(100);
    expect(counter.count(T)).toEqual({ rows: 60_000, atLeast: false });
    const other = await openDatabase(path);
    cleanUp(() => other.close());
    other.exec("DELETE FROM t WHERE id <= '000000007'");
    counter.count(T);
    await clock.advance(30_000);
    expect(counter.count(T)).toEqual({ rows: 59_993, atLeast: false });
  });

  test('what is taken back is not remembered', async () => {
    const { db, counter, clock } = await counting();
    fill(db, 60_000);
    db.exec('BEGIN');
    fill(db, 10, { from: 900_000 });
    counter.count(T, true);
    await clock.advance(100);
    expect(counter.count(T, true)).toEqual({ rows: 60_010, atLeast: false });
    db.exec('ROLLBACK');
    counter.count(T);
    await clock.advance(30_000);
    expect(counter.count(T)).toEqual({ rows: 60_000, atLeast: false });
  });

  test('a table that is made anew meanwhile is counted as it is then, and one that is gone has no number', async () => {
    const { db, counter, clock } = await counting();
    fill(db, 100_000);
    counter.count(T);
    await clock.advance(10);
    db.exec(
      'ALTER TABLE t RENAME TO old; CREATE TABLE t (id TEXT PRIMARY KEY, x, y); INSERT INTO t (id, x) SELECT id, x FROM old',
    );
    db.exec("DROP TABLE old; DELETE FROM t WHERE id > '000070000'");
    await clock.advance(100);
    counter.count(T);
    await clock.advance(30_000);
    expect(counter.count(T)).toEqual({ rows: 70_000, atLeast: false });
    db.exec('DROP TABLE t');
    counter.count(T);
    await clock.advance(130_000);
    expect(() => counter.count(T)).toThrow(/no such table/);
  });

  test('it ends when it is stopped, whatever is left', async () => {
    const { db, counter, clock, sql } = await counting();
    fill(db, 100_000);
    counter.count(T);
    await clock.advance(5);
    counter.stop();
    sql.length = 0;
    await clock.advance(10_000);
    expect(sql).toEqual([]);
    expect(clock.pending).toBe(0);
  });

  test('a lock of somebody else is not waited for, and counting goes on after it', async () => {
    const path = join(scratchFolder(), 'locked.db');
    const { db, counter, clock, sql } = await counting(`PRAGMA journal_mode = DELETE; ${SCHEMA}`, path);
    fill(db, 60_000);
    counter.count(T);
    await clock.advance(5);
    const other = await openDatabase(path);
    cleanUp(() => other.close());
    other.exec('BEGIN EXCLUSIVE');
    sql.length = 0;
    // This connection waits for a minute where nobody says otherwise.
    db.exec('PRAGMA busy_timeout = 1');
    await clock.advance(5_000);
    const slices = sql.flatMap((text, i) =>
      /OFFSET/.test(text) ? [sql.slice(0, i).findLast((one) => /busy_timeout =/.test(one))] : [],
    );
    expect(new Set(slices)).toEqual(new Set(['PRAGMA busy_timeout = 0']));
    other.exec('ROLLBACK');
    await clock.advance(5_000);
    expect(counter.count(T)).toEqual({ rows: 60_000, atLeast: false });
  });
});

test('that many tables are counted at once is no leak that Node warns of', async () => {
  const names = Array.from({ length: 14 }, (_, i) => `t${i}`);
  const { db, counter, clock } = await counting(names.map((name) => SCHEMA.replace('t (', `${name} (`)).join('; '));
  const warned: string[] = [];
  const note = ({ message }: Error): number => warned.push(message);
  process.on('warning', note);
  counter.beginLook();
  for (const [i, table] of names.entries()) {
    // The first takes all that is counted at once.
    fill(db, i === 0 ? EXACT_ROWS : 2_000, { table });
    counter.count({ ...T, name: table });
  }
  await clock.advance(1_000);
  process.off('warning', note);
  expect(warned).toEqual([]);
});
