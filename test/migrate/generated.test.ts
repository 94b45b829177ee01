/** The migrations that drizzle, knex and prisma generate, run by migrate, and run without it. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { MigrateOptions } from '../../src/index.ts';
import { isFrame, statementsIn } from '../../src/migrate/statements.ts';
import { root } from '../support/build.ts';
import { captured, exactRows, node, rowsOf, serveManager, type TestNode } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const FOLDER = join(root, 'test', 'migrate', 'generated');

function filesOf(tool: string): Map<string, string> {
  const names = readdirSync(join(FOLDER, tool)).sort();
  return new Map(names.map((name) => [name.slice(5, -4), readFileSync(join(FOLDER, tool, name), 'utf8')]));
}

/** What has to be said of a step besides its file. */
const OPTIONS: Record<string, MigrateOptions> = {
  add: { addTables: ['tags'] },
  rename: { rename: { items: { name: 'title' } } },
};

async function begun(schema: string, more: object = {}): Promise<TestNode> {
  const it = await node({ schema, tables: ['items', 'notes'], batchMs: 3_600_000, ...more });
  it.db.exec('PRAGMA foreign_keys = ON');
  return it;
}

function fill({ db }: TestNode): void {
  db.exec(`INSERT INTO items (id, name, value, updated_at) VALUES ('a', 'one', 1, ${T}), ('b', 'two', 2, ${T})`);
  db.exec(`INSERT INTO notes (id, item, updated_at) VALUES ('n', 'a', ${T}), ('m', 'b', ${T})`);
}

describe.each(['drizzle', 'knex', 'prisma'])('%s', (tool) => {
  const files = filesOf(tool);
  const steps = ['rebuild', 'add', 'drop', 'rename'];
  const sql = (step: string): string => files.get(step) as string;

  test('by migrate: nothing is lost, no child is deleted, and both nodes end the same', { tags: 'long' }, async () => {
    const other = await begun(sql('init'), { id: 'other' });
    const it = await begun(sql('init'), { id: 'it', peers: [await serveManager(other.manager)] });
    fill(it);
    await it.manager.flush();
    for (const step of steps) {
      it.db.exec(`UPDATE items SET updated_at = updated_at + 10 WHERE id = 'b'`);
      it.manager.migrate(sql(step), OPTIONS[step]);
      await it.manager.flush();
      expect(it.manager.health(), step).toMatchObject({ ok: true, problems: [], dead_letter: 0, pending_changes: 0 });
      other.manager.migrate(sql(step), OPTIONS[step]);
      await it.manager.flush();
      expect(exactRows(other.db, 'items'), step).toEqual(exactRows(it.db, 'items'));
      expect(rowsOf(it.db, 'SELECT count(*) AS n FROM notes'), step).toEqual([{ n: 2 }]);
      expect(other.manager.health().dead_letter, step).toBe(0);
    }
    expect(it.all('SELECT id, title, slug, updated_at > ? AS later FROM items ORDER BY id', T)).toEqual([
      { id: 'a', title: 'one', slug: 'x', later: 0 },
      { id: 'b', title: 'two', slug: 'x', later: 1 },
    ]);
    it.db.exec(`INSERT INTO tags VALUES ('t', 'label', ${T})`);
    await it.manager.flush();
    expect(exactRows(other.db, 'tags')).toEqual(exactRows(it.db, 'tags'));
  });

  test('without it: what was written meanwhile is sent, and the state is one that says what to do', {
    tags: 'long',
  }, async () => {
    const other = await begun(sql('init'), { id: 'other' });
    const it = await begun(sql('init'), { id: 'it', peers: [await serveManager(other.manager)] });
    const warnings: string[] = [];
    it.manager.on('warning', ({ code }) => warnings.push(code));
    fill(it);
    await it.manager.flush();
    it.db.exec(sql('rebuild'));
    it.db.exec(`UPDATE items SET name = 'unseen', updated_at = ${T + 50} WHERE id = 'a'`);
    await it.manager.flush();
    expect(warnings).toEqual(['capture-gap']);
    expect(other.all("SELECT name, updated_at FROM items WHERE id = 'a'")).toEqual([
      { name: 'unseen', updated_at: T + 50 },
    ]);
    it.db.exec(sql('rename'));
    it.db.exec(`UPDATE items SET title = 'seen', updated_at = ${T + 60} WHERE id = 'a'`);
    await it.manager.flush();
    expect(warnings).toEqual(['capture-gap', 'column-renamed']);
    expect(other.all("SELECT name FROM items WHERE id = 'a'")).toEqual([{ name: 'seen' }]);
    expect([it.manager.health().dead_letter, other.manager.health().dead_letter]).toEqual([0, 0]);
  });
});

test("drizzle's rebuild of a table with rows that it does not allow fails whole", async () => {
  const files = filesOf('drizzle');
  const it = await begun(files.get('init') as string);
  it.db.exec(`INSERT INTO items (id, name, updated_at) VALUES ('a', NULL, ${T})`);
  const before = rowsOf(it.db, 'SELECT name, sql FROM sqlite_schema ORDER BY name');
  expect(() => it.manager.migrate(files.get('rebuild') as string)).toThrow(/NOT NULL.*name.*nothing was changed/s);
  expect(rowsOf(it.db, 'SELECT name, sql FROM sqlite_schema ORDER BY name')).toEqual(before);
  expect(captured(it.db)).toHaveLength(1);
});

test('a text of SQL is taken apart where its statements end', () => {
  const sql = `-- a; comment
    BEGIN IMMEDIATE TRANSACTION; CREATE TABLE "a;b" (x TEXT DEFAULT ';');--> statement-breakpoint
    /* ; */ CREATE TRIGGER t AFTER INSERT ON a BEGIN
      UPDATE a SET x = CASE WHEN 1 THEN 2 ELSE 3 END; SELECT 1;
    END; ;
    CREATE TEMP TRIGGER u AFTER INSERT ON a BEGIN SELECT 1; END;
    SELECT 'it''s; fine'; COMMIT; END TRANSACTION; select [a;b] -- the end`;
  const found = statementsIn(sql);
  expect(found.filter((one) => !isFrame(one)).map((one) => one.split('\n')[0])).toEqual([
    `CREATE TABLE "a;b" (x TEXT DEFAULT ';')`,
    'CREATE TRIGGER t AFTER INSERT ON a BEGIN',
    'CREATE TEMP TRIGGER u AFTER INSERT ON a BEGIN SELECT 1; END',
    "SELECT 'it''s; fine'",
    'select [a;b] -- the end',
  ]);
  expect(found).toHaveLength(8);
});

test('a trigger ends where SQLite says so, whatever its columns are called', () => {
  const sql = `BEGIN -- a frame
    ;
    CREATE TRIGGER t AFTER UPDATE ON stays WHEN NEW.begin > OLD.end BEGIN
      INSERT INTO log VALUES (NEW.end); INSERT INTO log SELECT begin, end FROM stays; -- almost
    END; CREATE TABLE z (begin, end); COMMIT /* and out */;`;
  const found = statementsIn(sql).filter((one) => !isFrame(one));
  expect(found.map((one) => one.split('\n')[0])).toEqual([
    'CREATE TRIGGER t AFTER UPDATE ON stays WHEN NEW.begin > OLD.end BEGIN',
    'CREATE TABLE z (begin, end)',
  ]);
});

test('a migration may make a trigger that names a column called end', async () => {
  const schema =
    'CREATE TABLE items (id TEXT PRIMARY KEY, begin INTEGER, end INTEGER, updated_at INTEGER); CREATE TABLE log (x)';
  const { db, manager } = await node({ schema, batchMs: 3_600_000 });
  manager.migrate(
    'CREATE TRIGGER t AFTER INSERT ON items BEGIN INSERT INTO log VALUES (NEW.end); INSERT INTO log VALUES (2); END; ' +
      'CREATE TABLE after (x);',
  );
  db.exec(`INSERT INTO items VALUES ('a', 1, 5, ${T})`);
  expect(rowsOf(db, 'SELECT x FROM log')).toEqual([{ x: 5 }, { x: 2 }]);
});
