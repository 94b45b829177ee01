/** The event `change`: what has changed, whoever wrote it, once it is committed. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Manager, RowcastEvents } from '../../src/index.ts';
import { openDatabase } from '../support/lane.ts';
import { attached, cleanUp, database, node, rowsOf, scratchFolder, serveManager, until } from '../support/nodes.ts';

type Told = RowcastEvents['change'];

const ITEMS = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';
const UNIQUE = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER)';

function listening(manager: Manager): { told: Told[]; off(): void } {
  const told: Told[] = [];
  return { told, off: manager.on('change', (one) => told.push(one)) };
}

function change(op: string, row: Record<string, unknown>): unknown {
  return { op, table: 'items', row, ...(op === 'DELETE' && { old_id: row.id }) };
}

function receive(manager: Manager, changes: unknown[], from = 'b'): void {
  const { status, body } = manager.receive(JSON.stringify({ batch_id: 1, changes }), { from });
  expect(status, JSON.stringify(body)).toBe(200);
}

const named = (told: Told[]): string[] =>
  told.flatMap(({ local, rows }) => rows.map(({ op, id }) => `${local ? 'here' : 'there'} ${op} ${id}`));

test('local writes of any connection are told on the next tick, received ones at once', async () => {
  const path = join(scratchFolder(), 'a.db');
  const { db, manager } = await node({ schema: ITEMS, path });
  const { told } = listening(manager);
  const other = await openDatabase(path);
  cleanUp(() => other.close());
  other.exec("INSERT INTO items VALUES ('other', 'x', 1000)");
  db.exec("INSERT INTO items VALUES ('own', 'x', 1000)");
  await until('both are told', () => named(told).length === 2);
  expect(named(told)).toEqual(['here INSERT other', 'here INSERT own']);
  receive(manager, [change('INSERT', { id: 'got', name: 'x', updated_at: 2000 })]);
  expect(told.at(-1)).toEqual({ local: false, from: 'b', rows: [{ op: 'INSERT', table: 'items', id: 'got' }] });
  receive(manager, [change('DELETE', { id: 'own', updated_at: 3000 })]);
  db.exec("DELETE FROM items WHERE id = 'other'");
  await until('the deletions are told', () => named(told).includes('here DELETE other'));
  expect(named(told).slice(3)).toEqual(['there DELETE own', 'here DELETE other']);
});

test('nothing is told of what changes nothing, and no content of a row', async () => {
  const { manager } = await node({ schema: ITEMS });
  receive(manager, [change('INSERT', { id: 'x', name: 'secret', updated_at: 2000 })]);
  const { told } = listening(manager);
  receive(manager, [change('INSERT', { id: 'x', name: 'older', updated_at: 1000 })]);
  expect(told).toEqual([]);
  receive(manager, [change('UPDATE', { id: 'x', name: 'secret', updated_at: 3000 })]);
  expect(JSON.stringify(told)).not.toContain('secret');
  expect(told).toHaveLength(1);
});

test('a transaction of the application is told when it is committed, and not at all when it is taken back', async () => {
  const { db, manager } = await node({ schema: ITEMS });
  const { told } = listening(manager);
  db.exec("BEGIN; INSERT INTO items VALUES ('open', 'x', 1000)");
  await pause(150);
  expect(told).toEqual([]);
  db.exec('COMMIT');
  await until('it is told', () => told.length > 0);
  db.exec("BEGIN; INSERT INTO items VALUES ('gone', 'x', 1000)");
  await pause(100);
  db.exec("ROLLBACK; INSERT INTO items VALUES ('next', 'x', 1000)");
  await until('the next is told', () => told.length > 1);
  expect(named(told)).toEqual(['here INSERT open', 'here INSERT next']);
});

test('who begins to listen inside a transaction hears of it', async () => {
  const { db, manager } = await node({ schema: ITEMS });
  db.exec("BEGIN; INSERT INTO items VALUES ('x', 'x', 1000)");
  const { told } = listening(manager);
  db.exec('COMMIT');
  await until('it is told', () => told.length > 0);
  receive(manager, [change('INSERT', { id: 'got', name: 'x', updated_at: 2000 })]);
  expect(named(told)).toEqual(['here INSERT x', 'there INSERT got']);
});

test.each([
  ['by itself', ''],
  [
    'and a trigger of the application sets another',
    'CREATE TRIGGER t AFTER UPDATE ON items BEGIN UPDATE items SET updated_at = 5 WHERE id = NEW.id; END',
  ],
])('the version that a row of the application is given is no write of somebody else, %s', async (_, trigger) => {
  const { db, manager } = await node({ schema: `${ITEMS};${trigger}` });
  const { told } = listening(manager);
  // What such a handler writes would be told as written elsewhere, and be answered again, for ever.
  manager.on('change', ({ local, rows }) => {
    if (!local) for (const { id } of rows) db.exec(`UPDATE items SET name = name || '!' WHERE id = '${id}'`);
  });
  db.exec("INSERT INTO items VALUES ('own', 'x', NULL)");
  await until('it is told', () => told.length > 0);
  db.exec("UPDATE items SET name = 'y' WHERE id = 'own'");
  await until('both are told', () => told.length > 1);
  receive(manager, [change('INSERT', { id: 'got', name: 'x', updated_at: 2000 })]);
  await until('what the handler has written is told', () => told.length > 3);
  receive(manager, [change('INSERT', { id: 'last', name: 'x', updated_at: 1000 })]);
  expect(named(told).slice(0, 5)).toEqual([
    'here INSERT own',
    'here UPDATE own',
    'there INSERT got',
    'here UPDATE got',
    'there INSERT last',
  ]);
  expect(rowsOf(db, "SELECT name FROM items WHERE id = 'got'")).toEqual([{ name: 'x!' }]);
});

test('what another process on the file has received is missed by who has no feed, and what it has written is not', async () => {
  const path = join(scratchFolder(), 'a.db');
  const { manager: receiver, db } = await node({ id: 'a', schema: ITEMS, path });
  const listener = attached(await openDatabase(path), { id: 'a' });
  const { told } = listening(listener);
  const missed = (): number => told.filter((one) => one.missed).length;
  db.exec("INSERT INTO items VALUES ('own', 'x', 1000)");
  receive(listener, [change('INSERT', { id: 'here', name: 'x', updated_at: 2000 })]);
  await until('both are told', () => named(told).length === 2);
  receive(receiver, [change('INSERT', { id: 'there', name: 'x', updated_at: 2000 })]);
  await until('the other has written down what came', () => missed() > 0);
  db.exec("INSERT INTO items VALUES ('last', 'x', 1000)");
  await until('it is told', () => named(told).length === 3);
  expect(missed()).toBe(1);
  expect(named(told).sort()).toEqual(['here INSERT last', 'here INSERT own', 'there INSERT here']);
});

test('rows that a UNIQUE value hides, and that come back, are told', async () => {
  const { db, manager } = await node({ schema: UNIQUE });
  const { told } = listening(manager);
  receive(manager, [change('INSERT', { id: 'weak', name: 'one', updated_at: 1000 })]);
  receive(manager, [change('INSERT', { id: 'strong', name: 'one', updated_at: 2000 })]);
  expect(named(told).slice(1).sort()).toEqual(['there DELETE weak', 'there INSERT strong']);
  db.exec("DELETE FROM items WHERE id = 'strong'");
  await until('the other is back', () => named(told).length >= 5);
  expect(named(told).slice(3)).toEqual(['here DELETE strong', 'there INSERT weak']);
});

test('what a trigger of the application makes of a received row is told as well', async () => {
  const schema =
    `${ITEMS}; CREATE TABLE notes (id TEXT PRIMARY KEY, updated_at INTEGER);` +
    "CREATE TRIGGER t AFTER INSERT ON items BEGIN INSERT INTO notes VALUES ('of ' || NEW.id, 1000); END";
  const { manager } = await node({ schema, tables: ['items', 'notes'] });
  const { told } = listening(manager);
  receive(manager, [change('INSERT', { id: 'x', name: 'x', updated_at: 1000 })]);
  expect(named(told).sort()).toEqual(['there INSERT of x', 'there INSERT x']);
});

test('what is acknowledged before the next tick is told all the same', async () => {
  const b = await node({ id: 'b', schema: ITEMS });
  const url = await serveManager(b.manager);
  const { db, manager } = await node({ id: 'a', schema: ITEMS, peers: [url] });
  const { told } = listening(manager);
  for (let i = 0; i < 30; i++) {
    db.exec(`INSERT INTO items VALUES ('x${i}', 'x', 1000)`);
    await manager.flush();
  }
  await until('all are told', () => named(told).length >= 30);
  expect(new Set(named(told)).size).toBe(30);
  expect(told.every(({ missed }) => !missed)).toBe(true);
  await until('they are deleted', () => rowsOf(db, 'SELECT 1 FROM _changes').length === 0);
});

test('what another process has deleted before it was seen is said to be missed', async () => {
  const { db, manager } = await node({ schema: ITEMS });
  const { told } = listening(manager);
  db.exec("INSERT INTO items VALUES ('x', 'x', 1000); DELETE FROM _changes; INSERT INTO items VALUES ('y', 'x', 1000)");
  await until('it is told', () => told.length >= 2);
  expect(told[0]).toEqual({ local: true, from: undefined, rows: [], missed: true });
  expect(named(told)).toEqual(['here INSERT y']);
});

test('where nobody listens, nothing of it is there, before and after', async () => {
  const { db, manager } = await node({ schema: ITEMS });
  const left = (): unknown[] => rowsOf(db, "SELECT name FROM sqlite_temp_schema WHERE name LIKE '_rowcast_touched%'");
  receive(manager, [change('INSERT', { id: 'x', name: 'x', updated_at: 1000 })]);
  expect(left()).toEqual([]);
  const { off } = listening(manager);
  expect(left()).toHaveLength(5);
  off();
  await until('it is taken away', () => left().length === 0);
  listening(manager);
  expect(left()).toHaveLength(5);
  await manager.stop();
  expect(left()).toEqual([]);
});

test('a table that is changed goes on being told of', async () => {
  const db = await database(ITEMS);
  const manager = attached(db);
  const { told } = listening(manager);
  db.exec(
    'CREATE TABLE new (id TEXT PRIMARY KEY, name TEXT, extra TEXT, updated_at INTEGER);' +
      'DROP TABLE items; ALTER TABLE new RENAME TO items',
  );
  receive(manager, [change('INSERT', { id: 'x', name: 'x', extra: 'y', updated_at: 1000 })]);
  expect(told.some(({ missed }) => missed)).toBe(true);
  expect(named(told)).toEqual(['there INSERT x']);
});

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
