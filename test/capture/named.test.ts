/** Several attachments to one file that name different tables: together they name what is synced, and each sees to all of it. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { attach, type Config, type Manager } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, node, rowsOf, scratchFolder, serveManager, type TestNode } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const SCHEMA = ['t', 's'].map(
  (name) => `CREATE TABLE IF NOT EXISTS ${name} (id TEXT PRIMARY KEY, a, updated_at INTEGER)`,
);

interface Process {
  db: TestDatabase;
  manager: Manager;
  clock: VirtualClock;
  codes: string[];
}

const HOUR = 3_600_000;
const opened = (path = ':memory:'): Promise<TestDatabase> => database(SCHEMA.join(';'), path);

function attachedTo(db: TestDatabase, tables: string[], config: Partial<Config> = {}): Process {
  const clock = new VirtualClock();
  const manager = attach(db, { maxAheadMs: 0, id: 'node', peers: [], batchMs: HOUR, clock, ...config }, tables);
  cleanUp(() => manager.stop());
  const codes: string[] = [];
  manager.on('warning', ({ code }) => codes.push(code));
  return { db, manager, clock, codes };
}

/** Each of them lives for so long, side by side; whoever is not among them gives no sign. */
async function pass(ms: number, ...alive: Process[]): Promise<void> {
  for (let passed = 0; passed < ms; passed += 200) for (const { clock } of alive) await clock.advance(200);
}

const write = (db: TestDatabase, table: string, id: string): unknown =>
  db.exec(`INSERT INTO ${table} VALUES ('${id}', 1, 1000)`);
const schemaOf = (db: TestDatabase): unknown => rowsOf(db, 'PRAGMA schema_version')[0]?.schema_version;
const entries = (db: TestDatabase): unknown =>
  rowsOf(db, "SELECT count(*) AS n FROM _meta WHERE key LIKE 'attached:%'")[0]?.n;
const captured = (db: TestDatabase): unknown[] =>
  rowsOf(db, "SELECT DISTINCT tbl_name AS name FROM sqlite_schema WHERE type = 'trigger' ORDER BY 1").map(
    ({ name }) => name,
  );
const deletions = (db: TestDatabase): unknown[] =>
  rowsOf(db, "SELECT table_name || ' ' || row_id AS what FROM _changes WHERE op = 'DELETE' ORDER BY change_id").map(
    ({ what }) => what,
  );

async function receiver(): Promise<{ there: TestNode; peers: string[] }> {
  const there = await node({ id: 'there', schema: SCHEMA.join(';'), tables: ['t', 's'] });
  return { there, peers: [await serveManager(there.manager)] };
}

for (const where of ['one connection', 'two connections'])
  test(`two with a table each, on ${where}: neither touches the triggers of the other, and nothing goes unseen`, async () => {
    const path = join(scratchFolder(), 'shared.db');
    const db = await opened(path);
    const one = attachedTo(db, ['t']);
    const other = attachedTo(where === 'one connection' ? db : await opened(path), ['s']);
    const before = schemaOf(db);
    for (let i = 0; i < 20; i++) {
      for (const table of ['t', 's']) {
        write(db, table, `stays ${i}`);
        write(db, table, `goes ${i}`);
      }
      await pass(200, one, other);
      other.db.exec(`DELETE FROM t WHERE id = 'goes ${i}'`);
      one.db.exec(`DELETE FROM s WHERE id = 'goes ${i}'`);
      await pass(200, other, one);
    }
    expect([schemaOf(db), one.codes, other.codes]).toEqual([before, [], []]);
    expect([one.manager.health().problems, other.manager.health().problems]).toEqual([[], []]);
    const all = Array.from({ length: 20 }, (_, i) => [`t goes ${i}`, `s goes ${i}`]).flat();
    expect(deletions(db)).toEqual(all);
  });

test('each of them takes changes of a table that only the other names, and sends them', async () => {
  const { there, peers } = await receiver();
  const path = join(scratchFolder(), 'shared.db');
  const one = attachedTo(await opened(path), ['t'], { peers });
  const other = attachedTo(await opened(path), ['s']);
  one.manager.applyChanges([
    { op: 'INSERT', table: 's', row_id: 'came', row: { id: 'came', a: 1, updated_at: 1000 } },
  ] as never);
  expect(rowsOf(other.db, 'SELECT id FROM s')).toEqual([{ id: 'came' }]);
  expect(one.manager.deadLetters.list()).toEqual([]);
  write(other.db, 's', 'written');
  await one.manager.flush();
  expect(there.all("SELECT id FROM s WHERE id = 'written'")).toHaveLength(1);
});

test('an old program beside a new one that has more tables: the old one leaves them alone, also when the new one is restarted', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const old = attachedTo(await opened(path), ['t']);
  for (let i = 0; i < 3; i++) {
    const now = attachedTo(await opened(path), ['t', 's']);
    await pass(2_000, old, now);
    write(now.db, 's', `row ${i}`);
    await now.manager.stop();
    await pass(2_000, old);
    old.db.exec(`DELETE FROM s WHERE id = 'row ${i}'`);
    expect([captured(old.db), now.codes]).toEqual([['s', 't'], []]);
  }
  expect(deletions(old.db)).toEqual(['s row 0', 's row 1', 's row 2']);
  expect(old.codes).toEqual([]);
  // Whoever attaches next without it takes it off the list.
  await old.manager.stop();
  const next = attachedTo(await opened(path), ['t']);
  await pass(200, next);
  expect([captured(next.db), next.codes]).toEqual([['t'], ['table-dropped']]);
});

test('a new program that has fewer tables: what the old one names is captured while that is there, and after', {
  tags: 'long',
}, async () => {
  const path = join(scratchFolder(), 'shared.db');
  const old = attachedTo(await opened(path), ['t', 's']);
  const now = attachedTo(await opened(path), ['t']);
  await pass(120_000, old, now);
  write(now.db, 's', 'a');
  now.db.exec("DELETE FROM s WHERE id = 'a'");
  expect(deletions(now.db)).toEqual(['s a']);
  await old.manager.stop();
  await pass(120_000, now);
  expect([captured(now.db), now.codes, old.codes]).toEqual([['s', 't'], [], []]);
});

test('one that was killed keeps its tables for a minute; then they are taken off the list', {
  tags: 'long',
}, async () => {
  const path = join(scratchFolder(), 'shared.db');
  const killed = attachedTo(await opened(path), ['t', 's']);
  const now = attachedTo(await opened(path), ['t']);
  await pass(50_000, now);
  write(now.db, 's', 'a');
  now.db.exec("DELETE FROM s WHERE id = 'a'");
  expect([captured(now.db), now.codes, deletions(now.db)]).toEqual([['s', 't'], [], ['s a']]);
  await pass(20_000, now);
  expect([captured(now.db), now.codes, entries(now.db)]).toEqual([['t'], ['table-dropped'], 1]);
  const before = schemaOf(now.db);
  await pass(10_000, now);
  expect([schemaOf(now.db), now.manager.health().problems]).toEqual([before, []]);
  // It was only suspended: it is there again, with its tables.
  await pass(2_000, killed, now);
  expect([captured(now.db), entries(now.db)]).toEqual([['s', 't'], 2]);
  expect(now.codes).toEqual(['table-dropped']);
  // What was deleted meanwhile went unseen, and it has never taken the table off its list.
  expect(killed.codes).toEqual(['capture-gap']);
});

test('a program that never runs for a minute forgets one that was killed as well', { tags: 'long' }, async () => {
  const path = join(scratchFolder(), 'shared.db');
  attachedTo(await opened(path), ['t', 's']);
  const time = new VirtualClock();
  const codes: string[][] = [];
  while (codes.length < 30 && !codes.flat().includes('table-dropped')) {
    const brief = attachedTo(await opened(path), ['t'], { clock: time });
    await pass(6_000, { ...brief, clock: time });
    await brief.manager.stop();
    codes.push(brief.codes);
  }
  const db = await opened(path);
  expect([captured(db), entries(db), codes.flat()]).toEqual([['t'], 0, ['table-dropped']]);
});

test('one that is killed and started again and again leaves one entry, and another with the same tables is not forgotten', {
  tags: 'long',
}, async () => {
  const path = join(scratchFolder(), 'shared.db');
  const lasting = attachedTo(await opened(path), ['s', 't']);
  const db = await opened(path);
  for (let i = 0; i < 20; i++) {
    attachedTo(db, ['t', 's']);
    expect(Number(entries(db))).toBeLessThanOrEqual(2);
    await pass(200, lasting);
  }
  expect([entries(db), lasting.codes]).toEqual([2, []]);
  // The one that is there still holds its tables when the other has gone.
  attachedTo(db, ['t']);
  await pass(200, lasting);
  write(db, 's', 'a');
  db.exec("DELETE FROM s WHERE id = 'a'");
  expect([captured(db), deletions(db)]).toEqual([['s', 't'], ['s a']]);
});

test('a machine that has slept is given the time to answer', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const old = attachedTo(await opened(path), ['t', 's']);
  const now = attachedTo(await opened(path), ['t']);
  await now.clock.advance(200);
  for (const { clock } of [old, now]) clock.shift(HOUR);
  await now.clock.advance(200);
  await pass(2_000, old, now);
  expect([captured(now.db), now.codes, entries(now.db)]).toEqual([['s', 't'], [], 2]);
});

test('one whose table is gone is no reason for another not to attach, and is captured again by whoever sees it first', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const one = attachedTo(await opened(path), ['s']);
  one.db.exec('DROP TABLE s');
  const other = attachedTo(await database('SELECT 1', path), ['t']);
  expect([captured(other.db), other.manager.health().problems]).toEqual([['t'], []]);
  other.db.exec(SCHEMA.join(';'));
  await pass(200, other);
  expect(captured(other.db)).toEqual(['s', 't']);
});

test('a migration by one knows the tables of the other, and adds to its own', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const one = attachedTo(await opened(path), ['t']);
  const other = attachedTo(await opened(path), ['s']);
  one.manager.migrate('ALTER TABLE s RENAME TO z; CREATE TABLE u (id TEXT PRIMARY KEY, updated_at INTEGER)', {
    renameTable: { s: 'z' },
    addTables: ['u'],
  });
  await pass(2_000, one, other);
  const before = schemaOf(one.db);
  await pass(2_000, one, other);
  expect([captured(one.db), schemaOf(one.db)]).toEqual([['t', 'u', 'z'], before]);
  // Its entry says so: another that attaches leaves it alone.
  attachedTo(await database('SELECT 1', path), ['t']);
  expect([captured(one.db), one.codes, other.codes]).toEqual([['t', 'u', 'z'], [], []]);
});

test('detach leaves the triggers of tables for which another is there, and takes them from one that is dead', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const one = attachedTo(await opened(path), ['t']);
  const other = attachedTo(await opened(path), ['s']);
  await pass(200, one, other);
  const leaving = one.manager.detach();
  await pass(6_000, one, other);
  await leaving;
  expect(captured(other.db)).toEqual(['s']);
  const third = attachedTo(await opened(path), ['t']);
  const ending = third.manager.detach();
  await pass(6_000, third);
  await ending;
  expect(captured(other.db)).toEqual([]);
});

test('two that name the same tables, and one alone, have nothing to ask', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const one = attachedTo(await opened(path), ['t', 's']);
  const other = attachedTo(await opened(path), ['s', 't']);
  await pass(2_000, one, other);
  const before = rowsOf(one.db, "SELECT value FROM _meta WHERE key LIKE 'attached:%'");
  await pass(30_000, one, other);
  expect(rowsOf(one.db, "SELECT value FROM _meta WHERE key LIKE 'attached:%'")).toEqual(before);
  await other.manager.stop();
  expect(entries(one.db)).toBe(1);
  await one.manager.stop();
  expect(entries(one.db)).toBe(0);
});
