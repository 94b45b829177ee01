/**
 * The power fails in the middle of a migration, at a node with changes that nobody has yet. Whatever of the last writes has
 * reached the disk: the database is as it was before, or as it is afterwards, and goes on from there.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { attach, type MigrateOptions } from '../../src/index.ts';
import { startChild } from '../crash/kill-children.ts';
import { everyCut, wiredTo } from '../crash/power-cuts.ts';
import { giveUp, missingStrace } from '../crash/power-strace.ts';
import { readTrace, straceCommand, type TraceEvent } from '../crash/power-trace.ts';
import { buildLibrary } from '../support/build.ts';
import { openDatabase, type TestDatabase } from '../support/lane.ts';
import { exactRows, ITEMS, rowsOf, scratchFolder } from '../support/nodes.ts';
import { SEED } from '../support/seed.ts';

interface Shape {
  table: string;
  columns: string[];
}

interface Migration {
  sql: string;
  options: MigrateOptions;
  after: Shape;
}

const OLD = ['id', 'name', 'value', 'created_at', 'updated_at'];

const BEFORE: Shape = { table: 'items', columns: OLD };

/** Every kind of change to a schema; `after` is what there is then. */
const MIGRATIONS: Record<string, Migration> = {
  'a column is renamed': {
    sql: 'ALTER TABLE items RENAME COLUMN name TO title',
    options: { rename: { items: { name: 'title' } } },
    after: { table: 'items', columns: ['id', 'title', 'value', 'created_at', 'updated_at'] },
  },
  'the table is renamed': {
    sql: 'ALTER TABLE items RENAME TO things',
    options: { renameTable: { items: 'things' } },
    after: { table: 'things', columns: OLD },
  },
  'a column is dropped': {
    sql: 'ALTER TABLE items DROP COLUMN value',
    options: {},
    after: { table: 'items', columns: ['id', 'name', 'created_at', 'updated_at'] },
  },
  'a column is added and filled in': {
    sql: "ALTER TABLE items ADD COLUMN slug TEXT; UPDATE items SET slug = 'slug of ' || name",
    options: {},
    after: { table: 'items', columns: [...OLD, 'slug'] },
  },
  'the table is rebuilt, with a column of another name': {
    sql:
      'CREATE TABLE made (id TEXT PRIMARY KEY, title TEXT NOT NULL, value INTEGER, created_at INTEGER, ' +
      "updated_at INTEGER); INSERT INTO made SELECT id, name || '.', value, created_at, updated_at FROM items; " +
      'DROP TABLE items; ALTER TABLE made RENAME TO items',
    options: { rename: { items: { name: 'title' } } },
    after: { table: 'items', columns: ['id', 'title', 'value', 'created_at', 'updated_at'] },
  },
  'rows are rewritten, with an index and a trigger': {
    sql:
      'CREATE INDEX by_name ON items (name); UPDATE items SET name = upper(name); CREATE TABLE seen (id TEXT); ' +
      'CREATE TRIGGER noticed AFTER DELETE ON items BEGIN INSERT INTO seen VALUES (old.id); END',
    options: {},
    after: { table: 'items', columns: OLD },
  },
};

const PEER = 'http://127.0.0.1:9';

describe('a power cut during a migration', () => {
  const seed = Number(process.env.ROWCAST_POWER_SEED ?? SEED);
  let build: Awaited<ReturnType<typeof buildLibrary>>;
  let missing: string | undefined;
  beforeAll(async () => {
    build = await buildLibrary();
    missing = missingStrace();
  });
  afterAll(() => build?.remove());

  test.for(Object.keys(MIGRATIONS).flatMap((kind) => ['WAL', 'DELETE'].map((journal) => [kind, journal] as const)))(
    '%s, journal %s',
    async ([kind, journal], { skip }) => {
      if (missing !== undefined) return giveUp(missing, skip);
      const migration = MIGRATIONS[kind] as Migration;
      const folder = scratchFolder();
      const output = join(scratchFolder(), 'trace');
      const args = [join(folder, 'a.db'), journal, JSON.stringify(migration)];
      const child = startChild(build.folder, 'power-migrator.mjs', args, straceCommand(output));
      expect(await child.ended).toBe(0);
      const events = readTrace(readFileSync(output, 'utf8'), folder);
      const begun = momentOf(events, 'begun.db');
      const done = momentOf(events, 'done.db');
      expect(done - begun).toBeGreaterThan(2);
      const found = new Set<string>();
      const look = async (db: TestDatabase, { at }: { at: string }): Promise<void> => {
        found.add(await goesOn(db, migration, at));
      };
      await everyCut(events, seed, look, begun);
      expect([...found].sort()).toEqual(['new', 'old']);
    },
  );
});

/** Which of the two it is; then it is brought up to date, and everything reaches a peer that has migrated before. */
async function goesOn(db: TestDatabase, { sql, options, after }: Migration, at: string): Promise<'old' | 'new'> {
  const isRewritten = rowsOf(db, "SELECT 1 FROM sqlite_schema WHERE name = 'by_name'").length > 0;
  const shape = shapeOf(db);
  const isSame = JSON.stringify(BEFORE) === JSON.stringify(after);
  expect([BEFORE, after], at).toContainEqual(shape);
  const isNew = isSame ? isRewritten : JSON.stringify(shape) === JSON.stringify(after);

  const peerDb = await openDatabase();
  peerDb.exec(ITEMS);
  const peer = attach(peerDb, { id: 'peer', peers: [] }, ['items']);
  peer.migrate(sql, options);
  const config = { id: 'node', peers: [PEER], batchMs: 3_600_000, ...wiredTo(peer) };
  const warnings: string[] = [];
  const manager = attach(db, config, ['items']);
  manager.on('warning', ({ code }) => warnings.push(code));
  expect(await manager.flush(), at).toEqual({ delivered: [PEER], unreachable: [] });
  if (!isNew) manager.migrate(sql, options);
  db.exec(`UPDATE ${after.table} SET created_at = 2, updated_at = 1700000003000 WHERE id = 'row-1'`);
  db.exec(`DELETE FROM ${after.table} WHERE id = 'row-2'`);
  expect(await manager.flush(), at).toEqual({ delivered: [PEER], unreachable: [] });
  expect(shapeOf(db), at).toEqual(after);
  const rows = exactRows(db, after.table);
  expect(rows.length, at).toBeGreaterThanOrEqual(54);
  expect(exactRows(peerDb, after.table), at).toEqual(rows);
  expect(warnings, at).not.toContain('capture-gap');
  expect(manager.health(), at).toMatchObject({ ok: true, problems: [], dead_letter: 0, pending_changes: 0 });
  expect(peer.health(), at).toMatchObject({ ok: true, dead_letter: 0 });
  await manager.stop();
  await peer.stop();
  peerDb.close();
  return isNew ? 'new' : 'old';
}

function momentOf(events: TraceEvent[], file: string): number {
  return events.findIndex((event) => event.kind === 'create' && event.file === file);
}

function shapeOf(db: TestDatabase): Shape {
  const tables = rowsOf(
    db,
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('items', 'things', 'made')",
  );
  const table = tables.map(({ name }) => String(name)).join(' and ');
  return { table, columns: rowsOf(db, 'SELECT name FROM pragma_table_info(?)', table).map(({ name }) => String(name)) };
}
