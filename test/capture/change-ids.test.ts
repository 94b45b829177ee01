/** Whoever writes to `_changes`, and whatever somebody has done to it by hand: no id is at or below a watermark. */
import { describe, expect, test } from 'vitest';
import { attach, type Config, type Manager } from '../../src/index.ts';
import { pruneChanges } from '../../src/send/prune.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { expectSameElsewhere, origin, PEER } from '../support/elsewhere.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, ITEMS, node, rowsOf, serveManager, type TestNode, until } from '../support/nodes.ts';

const NOTES = 'CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT, updated_at INTEGER)';
const BOTH = `${ITEMS};${NOTES}`;

const insert = (id: string): string => `INSERT INTO items VALUES ('${id}', 'n', 1, 1, 1000)`;
const row = (id: string): string => `{"id":"${id}","name":"by hand","value":1,"created_at":1,"updated_at":2000}`;
/** As the specification's table has it: without the name of the table. */
const foreign = (id: string, json = row(id)): string =>
  `INSERT INTO _changes (op, row_id, row_data) VALUES ('INSERT', '${id}', '${json}')`;

interface Pair {
  db: TestDatabase;
  peer: string;
  receiver: TestNode;
  attached(config?: Partial<Config>): Manager;
}

async function pair(schema = ITEMS, tables = ['items']): Promise<Pair> {
  const receiver = await node({ id: 'receiver', schema, tables });
  const peer = await serveManager(receiver.manager);
  const db = await database(schema);
  const attached = (config: Partial<Config> = {}): Manager => {
    const manager = attach(db, { id: 'node', peers: [peer], ...config }, tables);
    cleanUp(() => manager.stop());
    return manager;
  };
  return { db, peer, receiver, attached };
}

const ids = (it: { receiver: TestNode }, table = 'items'): unknown[] =>
  it.receiver.all(`SELECT id FROM ${table} ORDER BY id`).map(({ id }) => id);

/** Three changes that the peer has, so that its watermark is 3 and `_changes` is empty. */
async function drained(it: Pair): Promise<Manager> {
  const manager = it.attached();
  for (const id of ['a', 'b', 'c']) it.db.exec(insert(id));
  await manager.flush();
  expect(rowsOf(it.db, 'SELECT count(*) AS n FROM _changes')).toEqual([{ n: 0 }]);
  return manager;
}

describe('a change that no trigger of ours has recorded, while attached', () => {
  test('into an empty table: it is sent, and so is what comes after it', async () => {
    const it = await pair();
    const manager = await drained(it);
    it.db.exec(foreign('x'));
    it.db.exec(insert('d'));
    await manager.flush();
    expect(ids(it)).toEqual(['a', 'b', 'c', 'd', 'x']);
    expect(manager.health()).toMatchObject({ ok: true, pending_changes: 0, dead_letter: 0 });
  });

  test('of several tables the one that has its columns is meant', async () => {
    const it = await pair(BOTH, ['items', 'notes']);
    const manager = await drained(it);
    it.db.exec(foreign('x'));
    it.db.exec(foreign('n', '{"id":"n","body":"by hand","updated_at":2000}'));
    await manager.flush();
    expect(ids(it)).toEqual(['a', 'b', 'c', 'x']);
    expect(ids(it, 'notes')).toEqual(['n']);
  });

  test.each([
    ['a row that fits no table', foreign('x', '{"id":"x","colour":"red"}')],
    ['no row', "INSERT INTO _changes (op, row_id) VALUES ('DELETE', 'x')"],
    ['no op', `INSERT INTO _changes (row_id, row_data) VALUES ('x', '${row('x')}')`],
    ['a row that is not JSON', foreign('x', 'x:y')],
  ])('%s is a dead letter, and the others are sent', async (_what, sql) => {
    const it = await pair(BOTH, ['items', 'notes']);
    const manager = await drained(it);
    it.db.exec(sql);
    it.db.exec(insert('d'));
    expect(await manager.flush()).toEqual({ delivered: [it.peer], unreachable: [] });
    expect(ids(it)).toEqual(['a', 'b', 'c', 'd']);
    expect(manager.deadLetters.list()).toMatchObject([{ direction: 'out', rowId: 'x' }]);
    expect(rowsOf(it.db, 'SELECT count(*) AS n FROM _changes')).toEqual([{ n: 0 }]);
  });
});

describe('ids stay above the watermark', () => {
  test('of a database of an earlier build, without AUTOINCREMENT, that was drained', async () => {
    const it = await pair();
    await (await drained(it)).stop();
    it.db.exec(
      `DROP TABLE _changes; INSERT INTO _meta VALUES ('last_change_id', 7);
       CREATE TABLE _changes (change_id INTEGER PRIMARY KEY, op TEXT, table_name TEXT, row_id TEXT, row_data TEXT)`,
    );
    it.attached({ batchMs: 3_600_000 });
    it.db.exec(insert('d'));
    expect(rowsOf(it.db, 'SELECT change_id FROM _changes')).toEqual([{ change_id: 8 }]);
    expect(rowsOf(it.db, "SELECT * FROM _meta WHERE key = 'last_change_id'")).toEqual([]);
  });

  test('a change that such a build was given at id 1, below the watermark, is sent', async () => {
    const it = await pair();
    await (await drained(it)).stop();
    it.db.exec(
      `DROP TABLE _changes;
       CREATE TABLE _changes (change_id INTEGER PRIMARY KEY, op TEXT, table_name TEXT, row_id TEXT, row_data TEXT)`,
    );
    it.db.exec(foreign('x'));
    await it.attached().flush();
    expect(ids(it)).toEqual(['a', 'b', 'c', 'x']);
  });

  test.each([
    ['the sequence was deleted', "DELETE FROM sqlite_sequence WHERE name = '_changes'"],
    ['the sequence was set back', "UPDATE sqlite_sequence SET seq = 0 WHERE name = '_changes'"],
    ['the sequence is text', "UPDATE sqlite_sequence SET seq = 'none' WHERE name = '_changes'"],
    ['the changes were deleted', 'DELETE FROM _changes'],
    ['the table was dropped', 'DROP TABLE _changes'],
    ['_meta was emptied', 'DELETE FROM _meta'],
  ])('%s before an attach', async (_what, sql) => {
    const it = await pair();
    await (await drained(it)).stop();
    it.db.exec(sql);
    const manager = it.attached();
    it.db.exec(insert('d'));
    const [first] = rowsOf(it.db, 'SELECT min(change_id) AS id FROM _changes');
    expect(Number(first?.id)).toBeGreaterThan(3);
    await manager.flush();
    expect(ids(it)).toEqual(['a', 'b', 'c', 'd']);
  });

  test('what was written after somebody deleted the sequence, and before the attach, is sent', async () => {
    const it = await pair();
    await (await drained(it)).stop();
    it.db.exec('DELETE FROM sqlite_sequence');
    it.db.exec(insert('d'));
    expect(rowsOf(it.db, 'SELECT change_id FROM _changes')).toEqual([{ change_id: 1 }]);
    await it.attached().flush();
    expect(ids(it)).toEqual(['a', 'b', 'c', 'd']);
  });
});

describe('a watermark that somebody has written over', () => {
  const VALUES = ['NULL', "'abc'", '1e300', '9223372036854775807', '-5', "x'00'"];

  test.each(VALUES)('by %s, while attached: what waits is kept, and sent', async (value) => {
    const it = await pair();
    const manager = await drained(it);
    it.db.exec(`UPDATE _peer_state SET last_acked = ${value}; ${insert('d')}`);
    await until('the change has arrived', () => ids(it).includes('d'));
    it.db.exec(insert('e'));
    await manager.flush();
    expect(ids(it)).toEqual(['a', 'b', 'c', 'd', 'e']);
    expect(manager.health()).toMatchObject({ ok: true, pending_changes: 0 });
  });

  test.each(VALUES)('by %s, while nobody is attached: the next one sends what waits', async (value) => {
    const it = await pair();
    await (await drained(it)).stop();
    it.db.exec(`${insert('d')}; UPDATE _peer_state SET last_acked = ${value}, tail_from = ${value}`);
    await it.attached().flush();
    expect(ids(it)).toEqual(['a', 'b', 'c', 'd']);
  });

  test('is not one by which anything is pruned', async () => {
    const it = await pair();
    const other = await node({ id: 'other', schema: ITEMS });
    const peers = [it.peer, await serveManager(other.manager)];
    const manager = it.attached({ peers });
    it.db.exec(insert('a'));
    await manager.flush();
    await it.receiver.manager.stop();
    it.db.exec(`UPDATE _peer_state SET last_acked = NULL WHERE peer_url = '${it.peer}'; ${insert('d')}`);
    await until('the other one has it', () => other.all("SELECT 1 FROM items WHERE id = 'd'").length === 1);
    await manager.flush();
    expect(rowsOf(it.db, 'SELECT row_id FROM _changes')).toContainEqual({ row_id: 'd' });
  });
});

test('somebody has emptied sqlite_sequence: what is written next is not deleted for one that the peer has', async () => {
  const it = await origin();
  for (const id of ['a', 'b', 'c']) it.db.exec(insert(id));
  await expectSameElsewhere(it);
  it.db.exec('DELETE FROM sqlite_sequence');
  it.db.exec(insert('d'));
  const db = new Connection(it.db);
  db.transaction(() => pruneChanges(db, [PEER], Number.MAX_SAFE_INTEGER));
  expect(it.all('SELECT row_id FROM _changes')).toEqual([{ row_id: 'd' }]);
});

describe('a statement that fails in the middle and leaves what it has written', () => {
  const FAILING: Record<string, string> = {
    'an INSERT OR FAIL': `${insert('a').replace('INSERT', 'INSERT OR FAIL')}, ('b', 'n', 1, 1, 1000), ('a', 'n', 1, 1, 1000)`,
    'a RAISE(FAIL)': `${insert('a')}, ('b', 'n', 1, 1, 1000), ('fails', 'n', 1, 1, 1000)`,
  };

  test.each(Object.entries(FAILING))('%s: what is written next has an id of its own', async (_what, sql) => {
    // Nothing ticks here: whatever is put right must be so before the ids are told or deleted.
    const it = await origin({
      schema: `${ITEMS}; CREATE TRIGGER fails BEFORE INSERT ON items WHEN NEW.id = 'fails' BEGIN SELECT RAISE(FAIL, 'no'); END`,
    });
    expect(() => it.db.exec(sql)).toThrow();
    expect(it.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 'a' }, { id: 'b' }]);
    await expectSameElsewhere(it);
    it.db.exec(insert('c'));
    expect(it.all('SELECT change_id AS id FROM _changes')).toEqual([{ id: 3 }]);
    await expectSameElsewhere(it);
  });

  test('where nobody is sent anything, because all peers are stale', async () => {
    const it = await origin();
    expect(() => it.db.exec(FAILING['an INSERT OR FAIL'] as string)).toThrow();
    it.db.exec('UPDATE _peer_state SET stale = 1');
    pruneChanges(new Connection(it.db), [PEER], Number.MAX_SAFE_INTEGER);
    it.db.exec(insert('c'));
    expect(it.all('SELECT change_id AS id FROM _changes')).toEqual([{ id: 3 }]);
  });

  test('and a peer that is new then is to go on after it: no change is given another id', async () => {
    const db = await database();
    const manager = attach(db, { id: 'node', peers: [] }, ['items']);
    expect(() => db.exec(FAILING['an INSERT OR FAIL'] as string)).toThrow();
    manager.peers.add(PEER);
    expect(rowsOf(db, 'SELECT tail_from AS n FROM _peer_state')).toEqual([{ n: 2 }]);
    await manager.stop();
    await attach(db, { id: 'node', peers: [PEER] }, ['items']).stop();
    expect(rowsOf(db, 'SELECT change_id AS id FROM _changes')).toEqual([{ id: 1 }, { id: 2 }]);
  });
});
